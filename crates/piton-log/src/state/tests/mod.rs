//! The encoding as a whole, against plain values as the model.

mod diffs;
mod edits;
mod hostile;
mod merges;
mod round_trip;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{BlobId, Path, Value};
use proptest::prelude::*;

use super::cache::IdMap;
use super::{NodeSource, State, encode};
use piton_store::{Hashing, StoreError};

/// A store in memory that counts what is fetched from it.
#[derive(Default)]
struct Memory {
    nodes: Mutex<IdMap<Bytes>>,
    fetches: AtomicUsize,
}

impl Memory {
    fn of(value: &Value) -> (Self, BlobId) {
        let memory = Self::default();
        let root = memory.add(value);
        (memory, root)
    }

    fn add(&self, value: &Value) -> BlobId {
        let encoded = encode(&Hashing::PLAIN, value).unwrap();
        self.store(encoded.nodes);
        encoded.root
    }

    fn store(&self, nodes: Vec<(BlobId, Bytes)>) {
        self.nodes.lock().unwrap().extend(nodes);
    }

    /// How many were fetched since the last call.
    fn fetched(&self) -> usize {
        self.fetches.swap(0, Ordering::Relaxed)
    }
}

#[async_trait]
impl NodeSource for Memory {
    async fn fetch(&self, id: BlobId) -> Result<Bytes, StoreError> {
        self.fetches.fetch_add(1, Ordering::Relaxed);
        let node = self.nodes.lock().unwrap().get(&id).cloned();
        node.ok_or_else(|| StoreError::NotFound { what: format!("node {id}") })
    }
}

/// Nothing here really waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn root_of(value: &Value) -> BlobId {
    encode(&Hashing::PLAIN, value).unwrap().root
}

/// Numbers that look random, the same each time.
fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Text of `len` bytes, without repetition.
fn prose(seed: u64, len: usize) -> String {
    let mut next = noise(seed + 1);
    let mut text = String::with_capacity(len + 16);
    while text.len() < len {
        text.push_str(&format!("{:x} ", next()));
    }
    text.truncate(len);
    text
}

fn message(n: u64) -> Value {
    Value::map([("role", Value::from("assistant")), ("content", Value::from(prose(n, 600)))])
}

/// Any value of a few levels, with now and then a string that is cut.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..200_u64).prop_map(Value::from),
        any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
        any::<String>().prop_map(Value::from),
        proptest::collection::vec(any::<u8>(), 0..200).prop_map(Value::Bytes),
        (any::<u64>(), 80..120_usize).prop_map(|(seed, len)| Value::from(prose(seed >> 1, len))),
        (any::<u64>(), 4_000..30_000_usize).prop_map(|(seed, len)| Value::from(prose(seed >> 1, len))),
        (any::<u8>(), 4_090..5_000_usize).prop_map(|(byte, len)| Value::Bytes(vec![byte; len])),
    ];
    leaf.prop_recursive(4, 200, 40, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..40).prop_map(Value::List),
            proptest::collection::btree_map(any::<String>(), inner, 0..40).prop_map(Value::Map),
        ]
    })
}
