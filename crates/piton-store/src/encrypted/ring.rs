//! The key ring: the store's own key, wrapped, in a run of its own in the store below. A log that only
//! grows by one entry at a time is all that it needs, so every store has room for it.
//!
//! The newest entry counts. Those before it, which an earlier key opens, are folded away at once.

use std::collections::BTreeSet;

use bytes::Bytes;
use piton_types::{Durability, EntryHash, Fence, Random, RunId, RunKind, RunStatus, RunSummary, Seq, Timestamp};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::cipher::DataKey;
use super::key::{Key, Wrapped, hex, unhex};
use crate::checked::{self, FORMAT};
use crate::{Commit, Hashing, Head, Owner, Record, Segment, SegmentInfo, Span, Store, StoreError};

/// The run that holds the ring. No other run may be called so in an encrypted store.
const NAME: &str = "piton.keys";

#[derive(Serialize, Deserialize)]
pub(crate) struct Ring {
    format: u32,
    /// Which store it is of.
    store: String,
    key: Wrapped,
}

/// What a key ring gives to a caller that has the right key.
pub(crate) struct Opened {
    pub(crate) data: DataKey,
    pub(crate) store: [u8; 16],
}

impl Ring {
    pub(crate) fn new(store: &[u8; 16], key: Wrapped) -> Self {
        Self { format: FORMAT, store: hex(store), key }
    }

    /// Opens a ring from its bytes. A wrong key is `Locked`.
    pub(crate) fn open(bytes: &[u8], key: &Key) -> Result<Opened, StoreError> {
        let what = || "the store's key ring".to_owned();
        let ring: Self = checked::open(bytes, what)?;
        let store = unhex(&ring.store).ok_or_else(|| StoreError::corrupt(what(), "it names no store"))?;
        Ok(Opened { data: key.unwrap(&ring.key, &store)?, store })
    }
}

/// The id of the run that holds the ring.
pub(crate) fn run() -> RunId {
    NAME.parse().expect("a valid id")
}

/// Whether `store` has a key ring, so that what it holds is encrypted.
pub async fn is_encrypted(store: &dyn Store) -> Result<bool, StoreError> {
    match store.head(&run()).await {
        Ok(head) => Ok(head.is_some()),
        Err(error) => Err(error),
    }
}

/// Makes the ring of a store that holds nothing yet.
pub(crate) async fn create(store: &dyn Store, key: &Key, random: &dyn Random) -> Result<(), StoreError> {
    let (mut data, mut id) = (Zeroizing::new([0; 32]), [0; 16]);
    random.fill(&mut *data);
    random.fill(&mut id);
    begin(store, &data, &id, key, random).await
}

/// Makes the ring of a store that holds nothing yet, with what is in the ring of another.
pub(crate) async fn adopt(
    store: &dyn Store,
    other: &dyn Store,
    key: &Key,
    random: &dyn Random,
) -> Result<(), StoreError> {
    let Opened { data, store: id } = open(other, key).await?;
    begin(store, &data, &id, key, random).await
}

async fn begin(
    store: &dyn Store,
    data: &DataKey,
    id: &[u8; 16],
    key: &Key,
    random: &dyn Random,
) -> Result<(), StoreError> {
    if is_encrypted(store).await? {
        let detail = "it is encrypted already".to_owned();
        return Err(StoreError::Invalid { what: store.url(), detail });
    }
    if store.usage().await?.runs > 0 {
        let detail = "it holds runs that aren't encrypted; copy them into a new store".to_owned();
        return Err(StoreError::Invalid { what: store.url(), detail });
    }
    append(store, None, id, key.wrap(data, id, random)?).await
}

/// Opens the ring. A wrong key is `Locked`, and changes nothing.
pub(crate) async fn open(store: &dyn Store, key: &Key) -> Result<Opened, StoreError> {
    Ring::open(&newest(store).await?.entry, key)
}

/// The newest entry of the ring.
async fn newest(store: &dyn Store) -> Result<Record, StoreError> {
    let what = || "the store's key ring".to_owned();
    let mut newest = store.read(&run(), Span::newest(1)).await?;
    let newest = newest.pop().ok_or_else(|| StoreError::corrupt(what(), "it is empty"))?;
    match Hashing::PLAIN.entry(&[&newest.entry]) == newest.hash {
        true => Ok(newest),
        false => Err(StoreError::corrupt(what(), "its hash doesn't fit its content")),
    }
}

/// Wraps the store's key with another key; the old one opens it no longer.
pub(crate) async fn rotate(store: &dyn Store, old: &Key, new: &Key, random: &dyn Random) -> Result<(), StoreError> {
    let record = newest(store).await?;
    let head = Head { seq: record.seq, hash: record.hash, fence: record.fence };
    let Opened { data, store: id } = Ring::open(&record.entry, old)?;
    append(store, Some(head), &id, new.wrap(&data, &id, random)?).await?;
    // Until this is done the old wrapping is still there. If the process is killed here, the user rotates again.
    let info = SegmentInfo { first: Seq(0), last: head.seq };
    let empty = Bytes::from_static(b"-");
    store.fold(&run(), Segment { info, entries: empty.clone(), index: empty.clone(), nodes: empty }).await
}

async fn append(store: &dyn Store, head: Option<Head>, id: &[u8; 16], key: Wrapped) -> Result<(), StoreError> {
    let entry: Bytes = checked::seal(&Ring::new(id, key))?.into();
    // Beside the runs it would be the oldest.
    let at = Timestamp::from_millis(0);
    let row = RunSummary {
        id: run(),
        name: "keys of this store".to_owned(),
        kind: RunKind::Steps,
        status: RunStatus::InProgress,
        created_at: at,
        updated_at: at,
        parent: None,
        folder: None,
        labels: BTreeSet::new(),
    };
    let commit = Commit {
        run: run(),
        seq: head.map_or(Seq(0), |head| head.seq.next()),
        parent: head.map_or(EntryHash::ROOT, |head| head.hash),
        hash: Hashing::PLAIN.entry(&[&entry]),
        fence: Fence(1),
        at,
        entry,
        pack: Bytes::new(),
        staged: Vec::new(),
        owner: Owner(0),
        index: head.is_none().then_some(row),
        durability: Durability::Durable,
    };
    store.append(vec![commit]).await
}
