//! Sealing bytes: encrypted and authenticated by XChaCha20-Poly1305 under a random nonce, and bound to the
//! place they are stored at, so that a record which is changed, moved or taken from another store doesn't open.

use std::sync::Arc;

use bytes::Bytes;
use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use piton_types::{Random, RunId, Seq};
use zeroize::Zeroizing;

use crate::{Hashing, Section, SegmentInfo, StoreError};

/// First byte of everything sealed.
const FORM: u8 = 0xe1;
const NONCE: usize = 24;
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
    Staged,
    Name(&'a RunId),
    Folder(&'a RunId),
    Note(&'a str),
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
        }
    }
}

/// Seals and opens the records of one store.
pub(crate) struct Cipher {
    cipher: XChaCha20Poly1305,
    store: [u8; 16],
    random: Arc<dyn Random>,
}

impl Cipher {
    /// The cipher and the hashing of the store that has this key and id.
    pub(crate) fn new(key: &DataKey, store: [u8; 16], random: Arc<dyn Random>) -> (Self, Hashing) {
        let derive = |context| Zeroizing::new(blake3::derive_key(context, &**key));
        let sealing = derive("piton 1 records of an encrypted store");
        let naming = derive("piton 1 names and cuts of an encrypted store");
        let cipher = XChaCha20Poly1305::new((&*sealing).into());
        (Self { cipher, store, random }, Hashing::keyed(*naming))
    }

    /// What a record is bound to. Parts have fixed lengths, or are counted before they come.
    fn bound(&self, place: Place<'_>) -> Vec<u8> {
        let mut bound = b"piton record".to_vec();
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
        }
        bound
    }

    pub(crate) fn seal(&self, place: Place<'_>, plain: &[u8]) -> Bytes {
        seal(&self.cipher, &*self.random, &self.bound(place), plain)
    }

    pub(crate) fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Bytes, StoreError> {
        match sealed.first() {
            Some(&FORM) if sealed.len() >= OVERHEAD => {}
            _ => return Err(StoreError::corrupt(place.describe(), "it isn't encrypted, and this store is")),
        }
        open(&self.cipher, &self.bound(place), sealed)
            .ok_or_else(|| StoreError::corrupt(place.describe(), "it was changed, moved, or written with another key"))
    }
}

/// Form, nonce, ciphertext, tag.
pub(crate) fn seal(cipher: &XChaCha20Poly1305, random: &dyn Random, bound: &[u8], plain: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(plain.len() + OVERHEAD);
    out.resize(1 + NONCE, FORM);
    random.fill(&mut out[1..]);
    let nonce = XNonce::try_from(&out[1..]).expect("24 bytes");
    out.extend_from_slice(plain);
    let text = &mut out[1 + NONCE..];
    let tag = cipher.encrypt_inout_detached(&nonce, bound, text.into()).expect("far less than the cipher's limit");
    out.extend_from_slice(&tag);
    out.into()
}

/// What was sealed; `None` if it isn't exactly that.
pub(crate) fn open(cipher: &XChaCha20Poly1305, bound: &[u8], sealed: &[u8]) -> Option<Bytes> {
    let (&form, rest) = sealed.split_first()?;
    let (nonce, rest) = rest.split_at_checked(NONCE)?;
    let (text, tag) = rest.split_at_checked(rest.len().checked_sub(TAG)?)?;
    if form != FORM {
        return None;
    }
    let (nonce, tag) = (XNonce::try_from(nonce).ok()?, Tag::try_from(tag).ok()?);
    let mut plain = text.to_vec();
    cipher.decrypt_inout_detached(&nonce, bound, plain.as_mut_slice().into(), &tag).ok()?;
    Some(plain.into())
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}
