//! An entry as it is stored: its fields in a fixed order, sealed by a hash that also covers the run, the
//! sequence number and the parent, so that an entry which is changed, moved or swapped doesn't fit.

use bytes::Bytes;
use piton_types::{BlobId, EntryHash, EntryKind, Fence, PackId, Part, PartName, Parts, RunId, Seq, Timestamp};

use crate::codec::{Reader, put_bytes, put_signed, put_varint};
use crate::state::grammar::Malformed;
use piton_store::{Hashing, Record, StoreError};

/// The newest version of the entry format.
pub(crate) const VERSION: u8 = 1;

/// How long a label may be, in bytes.
pub(crate) const MAX_LABEL: usize = 200;

/// An entry of a log, verified, with its body still encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedEntry {
    /// Its place in the log.
    pub seq: Seq,
    /// The hash of the entry before it.
    pub parent: EntryHash,
    /// Its own hash.
    pub hash: EntryHash,
    /// The fence of its writer.
    pub fence: Fence,
    /// When it was written.
    pub at: Timestamp,
    /// What it records.
    pub kind: EntryKind,
    /// What to show in a list.
    pub label: String,
    /// The state of the run as of this entry; an entry with parts is a checkpoint.
    pub parts: Parts,
    /// Staged packs that it needs: those of its nodes, and others if it has no snapshot of files that says so.
    pub packs: Vec<PackId>,
    /// The top node of the body; [`RunLog::body`](crate::RunLog::body) decodes it.
    pub(crate) body: Bytes,
}

impl SealedEntry {
    /// Checks a stored entry against the place that it was read from, and takes it apart.
    pub fn open(hashing: &Hashing, run: &RunId, record: &Record) -> Result<Self, StoreError> {
        open(hashing, run, record)
    }
}

/// What goes into an entry before it is sealed.
pub(crate) struct Fields<'a> {
    pub(crate) parent: EntryHash,
    pub(crate) fence: Fence,
    pub(crate) at: Timestamp,
    pub(crate) kind: EntryKind,
    pub(crate) label: &'a str,
    pub(crate) parts: &'a Parts,
    pub(crate) packs: &'a [PackId],
    pub(crate) body: &'a [u8],
}

/// The bytes of an entry and their hash.
pub(crate) fn seal(hashing: &Hashing, run: &RunId, seq: Seq, fields: &Fields<'_>) -> (Bytes, EntryHash) {
    let mut out = Vec::with_capacity(160 + fields.body.len());
    out.push(VERSION);
    out.extend_from_slice(fields.parent.as_bytes());
    out.push(fields.kind as u8);
    put_varint(&mut out, fields.fence.0);
    put_signed(&mut out, fields.at.as_millis());
    put_bytes(&mut out, fields.label.as_bytes());
    put_varint(&mut out, fields.parts.len() as u64);
    for (name, part) in fields.parts {
        put_bytes(&mut out, name.0.as_bytes());
        put_bytes(&mut out, part.schema.as_bytes());
        put_varint(&mut out, part.version.into());
        out.extend_from_slice(part.root.as_bytes());
    }
    put_varint(&mut out, fields.packs.len() as u64);
    fields.packs.iter().for_each(|pack| out.extend_from_slice(pack.as_bytes()));
    put_bytes(&mut out, fields.body);
    let hash = hash(hashing, run, seq, &out);
    (out.into(), hash)
}

fn hash(hashing: &Hashing, run: &RunId, seq: Seq, entry: &[u8]) -> EntryHash {
    hash_bare(hashing, run, seq, (&[], &[]), entry)
}

/// The hash of an entry that comes in pieces: its version, its parent and the rest.
pub(crate) fn hash_bare(
    hashing: &Hashing,
    run: &RunId,
    seq: Seq,
    (version, parent): (&[u8], &[u8]),
    rest: &[u8],
) -> EntryHash {
    let run = run.as_str().as_bytes();
    let length = [u8::try_from(run.len()).expect("run ids have at most 64 bytes")];
    hashing.entry(&[b"piton entry", &length, run, &seq.0.to_le_bytes(), version, parent, rest])
}

/// Checks a stored entry against the place that it was read from, and takes it apart.
pub(crate) fn open(hashing: &Hashing, run: &RunId, record: &Record) -> Result<SealedEntry, StoreError> {
    unseal(run, record, || hash(hashing, run, record.seq, &record.entry) == record.hash)
}

/// Takes a stored entry apart, if its hash fits.
fn unseal(run: &RunId, record: &Record, fits: impl Fn() -> bool) -> Result<SealedEntry, StoreError> {
    let seq = record.seq;
    let corrupt = |detail: &str| StoreError::corrupt(format!("entry {seq} of run {run}"), detail);
    // Version first: a newer format may hash differently.
    match record.entry.first() {
        None => return Err(corrupt("it is empty")),
        Some(&VERSION) => {}
        Some(&found) if found > VERSION && fits() => {
            return Err(StoreError::TooNew {
                what: format!("entry {seq} of run {run}"),
                found: found.into(),
                known: VERSION.into(),
            });
        }
        Some(_) => return Err(corrupt("its version is not one that was ever written")),
    }
    if !fits() {
        return Err(corrupt("its hash doesn't fit its content"));
    }
    let entry = parse(seq, record).map_err(|Malformed(detail)| corrupt(detail))?;
    if entry.fence != record.fence {
        return Err(corrupt("its fence isn't the one it was stored under"));
    }
    Ok(entry)
}

fn parse(seq: Seq, record: &Record) -> Result<SealedEntry, Malformed> {
    let mut reader = Reader::new(&record.entry[1..]);
    let parent = EntryHash::new(reader.array()?);
    let kind = EntryKind::from_number(reader.byte()?).ok_or(Malformed("its kind is unknown"))?;
    let fence = Fence(reader.varint()?);
    let at = Timestamp::from_millis(reader.signed()?);
    let label = reader.text()?.to_owned();
    let mut parts = Parts::new();
    for _ in 0..reader.count_of(35)? {
        let name = PartName(reader.text()?.to_owned());
        let schema = reader.text()?.to_owned();
        let version = u32::try_from(reader.varint()?).map_err(|_| Malformed("a version is out of range"))?;
        let root = BlobId::new(reader.array()?);
        parts.insert(name, Part { schema, version, root });
    }
    let mut packs = Vec::new();
    for _ in 0..reader.count_of(32)? {
        packs.push(PackId::new(reader.array()?));
    }
    let body = record.entry.slice_ref(reader.sized()?);
    reader.end()?;
    Ok(SealedEntry { seq, parent, hash: record.hash, fence, at, kind, label, parts, packs, body })
}

/// Opens an entry whose hash is not known from elsewhere but computed: the caller checks the chain.
pub(crate) fn reopen(
    hashing: &Hashing,
    run: &RunId,
    seq: Seq,
    entry: Bytes,
) -> Result<(Record, SealedEntry), StoreError> {
    let mut record = Record { seq, hash: hash(hashing, run, seq, &entry), fence: Fence(0), entry, pack: Bytes::new() };
    // The fence is in the entry; there is no second copy of it here to compare with.
    if record.entry.first() == Some(&VERSION) {
        let mut reader = Reader::new(&record.entry[1..]);
        reader.bytes(33)?;
        record.fence = Fence(reader.varint()?);
    }
    // It was computed just now.
    let sealed = unseal(run, &record, || true)?;
    Ok((record, sealed))
}
