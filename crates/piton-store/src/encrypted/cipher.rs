//! Sealing bytes: encrypted and authenticated by AES-256-GCM, and bound to the place they are stored at, so that a
//! record which is changed, moved or taken from another store doesn't open.
//!
//! Every record has a key of its own: the keyed hash of its nonce and its place. So the counter of GCM begins at zero for
//! each, and how many records a store may have isn't bounded by GCM's short nonces.
//!
//! Invariant: no two contents are sealed with the same nonce for one place. A nonce has 32 bytes, random or the hash of
//! the content: they don't repeat in any number of records that a store can have.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use piton_types::{PackId, Random, RunId, Seq};
use ring::aead;
use zeroize::Zeroizing;

use crate::{Hashing, Section, SegmentInfo, StoreError};

/// First byte of everything sealed.
const FORM: u8 = 0xe1;
const NONCE: usize = 32;
const TAG: usize = 16;
/// What sealing adds.
pub(crate) const OVERHEAD: usize = 1 + NONCE + TAG;

/// The secret that everything in a store depends on.
pub(crate) type DataKey = Zeroizing<[u8; 32]>;

/// Which record it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    Entry(&'a RunId, Seq),
    Pack(&'a RunId, Seq),
    Section(&'a RunId, SegmentInfo, Section),
    Staged(PackId),
    Name(&'a RunId),
    Folder(&'a RunId),
    Label(&'a RunId),
    Note(&'a str),
    Checkpoint(&'a str),
}

impl Place<'_> {
    fn describe(&self) -> String {
        match self {
            Self::Entry(run, seq) => format!("entry {seq} of run {run}"),
            Self::Pack(run, seq) => format!("the pack of entry {seq} of run {run}"),
            Self::Section(run, info, _) => format!("segment {info} of run {run}"),
            Self::Staged(pack) => format!("staged pack {pack}"),
            Self::Name(run) => format!("the name of run {run}"),
            Self::Folder(run) => format!("the folder of run {run}"),
            Self::Label(run) => format!("a label of run {run}"),
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
            Place::Staged(pack) => {
                bound.push(7);
                bound.extend_from_slice(pack.as_bytes());
            }
            Place::Note(key) => {
                bound.push(8);
                bound.extend_from_slice(key.as_bytes());
            }
            Place::Checkpoint(id) => {
                bound.push(9);
                bound.extend_from_slice(id.as_bytes());
            }
            Place::Label(run) => add(10, run, &[]),
        }
        bound
    }

    pub(crate) fn seal(&self, place: Place<'_>, plain: &[u8]) -> Bytes {
        seal(&self.key, &*self.random, &self.bound(place), plain)
    }

    /// Seals an entry and its pack, with one call for the randomness of both.
    pub(crate) fn seal_entry(&self, run: &RunId, seq: Seq, entry: &[u8], pack: &[u8]) -> (Bytes, Bytes) {
        let mut nonces = [[0; NONCE]; 2];
        self.random.fill(nonces.as_flattened_mut());
        let seal = |place, nonce, plain| seal_with(&self.key, nonce, &self.bound(place), &[plain]);
        let pack = match pack {
            [] => Bytes::new(),
            pack => seal(Place::Pack(run, seq), &nonces[1], pack),
        };
        (seal(Place::Entry(run, seq), &nonces[0], entry), pack)
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

/// Seals with a random nonce.
pub(crate) fn seal(key: &[u8; 32], random: &dyn Random, bound: &[u8], plain: &[u8]) -> Bytes {
    let mut nonce = [0; NONCE];
    random.fill(&mut nonce);
    seal_with(key, &nonce, bound, &[plain])
}

/// The key of one record.
fn record_key(key: &[u8; 32], nonce: &[u8; NONCE], bound: &[u8]) -> aead::LessSafeKey {
    let key = Zeroizing::new(*blake3::Hasher::new_keyed(key).update(nonce).update(bound).finalize().as_bytes());
    aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_256_GCM, &*key).expect("the key has 32 bytes"))
}

/// Where the counter of every record begins: no two records have one key.
fn beginning() -> aead::Nonce {
    aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN])
}

/// Form, nonce, ciphertext, tag. The nonce must be one that no other content has for this key and place.
pub(super) fn seal_with(key: &[u8; 32], nonce: &[u8; NONCE], bound: &[u8], plain: &[&[u8]]) -> Bytes {
    let length: usize = plain.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(length + OVERHEAD);
    out.push(FORM);
    out.extend_from_slice(nonce);
    plain.iter().for_each(|part| out.extend_from_slice(part));
    let sealing = record_key(key, nonce, bound);
    let tag = sealing.seal_in_place_separate_tag(beginning(), aead::Aad::empty(), &mut out[1 + NONCE..]);
    out.extend_from_slice(tag.expect("a record is far below the 64 GiB of GCM").as_ref());
    out.into()
}

/// What was sealed; `None` if it isn't exactly that. It is opened where it is, if no other handle shares the bytes.
pub(crate) fn open(key: &[u8; 32], bound: &[u8], sealed: Bytes) -> Option<Bytes> {
    let (head, _) = sealed.split_at_checked(1 + NONCE)?;
    let (&[FORM], nonce) = head.split_first_chunk()? else { return None };
    let opening = record_key(key, nonce.try_into().ok()?, bound);
    let mut bytes = match sealed.try_into_mut() {
        Ok(own) => own,
        Err(shared) => BytesMut::from(&shared[..]),
    };
    let length = opening.open_in_place(beginning(), aead::Aad::empty(), &mut bytes[1 + NONCE..]).ok()?.len();
    Some(bytes.freeze().slice(1 + NONCE..1 + NONCE + length))
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}
