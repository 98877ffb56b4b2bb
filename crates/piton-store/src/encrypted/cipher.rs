//! Sealing bytes: encrypted and authenticated by AES-256-GCM, and bound to the place they are stored at, so that a
//! record which is changed, moved or taken from another store doesn't open.
//!
//! Invariant: no two records are sealed under the same key. Each has 24 random bytes of its own (its *salt*), and its
//! key is the keyed BLAKE3 hash of them under the store's; so GCM's nonce, which must never be used twice with a key,
//! is always zero. 24 random bytes don't repeat in any number of records that a store can have.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use piton_types::{Random, RunId, Seq};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::{Hashing, Section, SegmentInfo, StoreError};

/// First byte of everything sealed.
const FORM: u8 = 0xe1;
pub(super) const SALT: usize = 24;
const TAG: usize = 16;
/// What sealing adds.
pub(crate) const OVERHEAD: usize = 1 + SALT + TAG;

/// The secret that everything in a store depends on.
pub(crate) type DataKey = Zeroizing<[u8; 32]>;

/// Which record it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    Entry(&'a RunId, Seq),
    Pack(&'a RunId, Seq),
    Section(&'a RunId, SegmentInfo, Section),
    Staged,
    Name(&'a RunId),
    Folder(&'a RunId),
    Note(&'a str),
    Checkpoint(&'a str),
}

impl Place<'_> {
    fn describe(&self) -> String {
        match self {
            Self::Entry(run, seq) => format!("entry {seq} of run {run}"),
            Self::Pack(run, seq) => format!("the pack of entry {seq} of run {run}"),
            Self::Section(run, info, _) => format!("segment {info} of run {run}"),
            Self::Staged => "a staged pack".to_owned(),
            Self::Name(run) => format!("the name of run {run}"),
            Self::Folder(run) => format!("the folder of run {run}"),
            Self::Note(key) => format!("the note {key:?}"),
            Self::Checkpoint(id) => format!("the checkpoint of {id:?}"),
        }
    }
}

/// Seals and opens the records of one store.
pub(crate) struct Cipher {
    key: DataKey,
    store: [u8; 16],
    random: Arc<dyn Random>,
}

impl Cipher {
    /// The cipher and the hashing of the store that has this key and id.
    pub(crate) fn new(key: &DataKey, store: [u8; 16], random: Arc<dyn Random>) -> (Self, Hashing) {
        let derive = |context| Zeroizing::new(blake3::derive_key(context, &**key));
        let key = derive("piton 1 records of an encrypted store");
        let naming = derive("piton 1 names and cuts of an encrypted store");
        (Self { key, store, random }, Hashing::keyed(*naming))
    }

    /// What a record is bound to. Parts have fixed lengths, or are counted before they come.
    fn bound(&self, place: Place<'_>) -> Vec<u8> {
        let mut bound = Vec::with_capacity(128);
        bound.extend_from_slice(b"piton record");
        bound.extend_from_slice(&self.store);
        let mut add = |kind: u8, run: &RunId, numbers: &[u32]| {
            bound.push(kind);
            bound.push(u8::try_from(run.as_str().len()).expect("run ids have at most 64 bytes"));
            bound.extend_from_slice(run.as_str().as_bytes());
            numbers.iter().for_each(|number| bound.extend_from_slice(&number.to_le_bytes()));
        };
        match place {
            Place::Entry(run, seq) => add(0, run, &[seq.0]),
            Place::Pack(run, seq) => add(1, run, &[seq.0]),
            Place::Section(run, info, Section::Entries) => add(2, run, &[info.first.0, info.last.0]),
            Place::Section(run, info, Section::Index) => add(3, run, &[info.first.0, info.last.0]),
            Place::Section(run, info, Section::Nodes) => add(4, run, &[info.first.0, info.last.0]),
            Place::Name(run) => add(5, run, &[]),
            Place::Folder(run) => add(6, run, &[]),
            // Its number isn't known when it is sealed. The keyed ids of the blobs in it say what it is.
            Place::Staged => bound.push(7),
            Place::Note(key) => {
                bound.push(8);
                bound.extend_from_slice(key.as_bytes());
            }
            Place::Checkpoint(id) => {
                bound.push(9);
                bound.extend_from_slice(id.as_bytes());
            }
        }
        bound
    }

    pub(crate) fn seal(&self, place: Place<'_>, plain: &[u8]) -> Bytes {
        seal(&self.key, &*self.random, &self.bound(place), plain)
    }

    pub(crate) fn open(&self, place: Place<'_>, sealed: Bytes) -> Result<Bytes, StoreError> {
        match sealed.first() {
            Some(&FORM) if sealed.len() >= OVERHEAD => {}
            _ => return Err(StoreError::corrupt(place.describe(), "it isn't encrypted, and this store is")),
        }
        open(&self.key, &self.bound(place), sealed)
            .ok_or_else(|| StoreError::corrupt(place.describe(), "it was changed, moved, or written with another key"))
    }
}

/// The key of one record.
fn key_of(key: &[u8; 32], salt: &[u8]) -> LessSafeKey {
    let record = Zeroizing::new(*blake3::keyed_hash(key, salt).as_bytes());
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*record).expect("a key of 32 bytes"))
}

/// It is used once with each key.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// Seals under a salt of random bytes.
pub(crate) fn seal(key: &[u8; 32], random: &dyn Random, bound: &[u8], plain: &[u8]) -> Bytes {
    let mut salt = [0; SALT];
    random.fill(&mut salt);
    seal_with(key, &salt, bound, &[plain])
}

/// Form, salt, ciphertext, tag. The salt must be one that no other content has.
pub(super) fn seal_with(key: &[u8; 32], salt: &[u8; SALT], bound: &[u8], plain: &[&[u8]]) -> Bytes {
    let length: usize = plain.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(length + OVERHEAD);
    out.push(FORM);
    out.extend_from_slice(salt);
    plain.iter().for_each(|part| out.extend_from_slice(part));
    let tag = key_of(key, salt).seal_in_place_separate_tag(nonce(), Aad::from(bound), &mut out[1 + SALT..]);
    out.extend_from_slice(tag.expect("far less than the cipher's limit").as_ref());
    out.into()
}

/// What was sealed; `None` if it isn't exactly that. It is opened where it is, if nobody else has it.
pub(crate) fn open(key: &[u8; 32], bound: &[u8], sealed: Bytes) -> Option<Bytes> {
    if sealed.len() < OVERHEAD || sealed[0] != FORM {
        return None;
    }
    let mut bytes = match sealed.try_into_mut() {
        Ok(own) => own,
        Err(shared) => BytesMut::from(&shared[..]),
    };
    let (head, text) = bytes.split_at_mut(1 + SALT);
    let length = key_of(key, &head[1..]).open_in_place(nonce(), Aad::from(bound), text).ok()?.len();
    Some(bytes.freeze().slice(1 + SALT..1 + SALT + length))
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}
