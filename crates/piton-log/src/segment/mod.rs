//! Segments: consecutive entries of one log with their nodes, compressed together. A segment has three
//! sections, so that a list of entries doesn't read nodes and a search doesn't read either.
//!
//! Inside a segment a reference to a node of the same segment is the distance to it, a byte or two
//! instead of 32: its id can always be computed again from the nodes themselves. That is most of what
//! makes a thousand checkpoints smaller than the text in them.

mod entries;
mod index;
mod nodes;
mod transcode;

use bytes::Bytes;
use piton_types::{BlobId, RunId};

pub(crate) use entries::SegmentEntries;
pub(crate) use index::SegmentIndex;
pub(crate) use nodes::{SegmentNodes, Target};

use crate::codec::{Reader, put_bytes, put_varint};
use crate::pack::{deflate, inflate};
use crate::sealed::SealedEntry;
use piton_store::{Hashing, Record, Section, Segment, SegmentInfo, StoreError};

/// The first byte of each section.
const fn form(section: Section) -> u8 {
    match section {
        Section::Entries => 3,
        Section::Index => 4,
        Section::Nodes => 5,
    }
}

/// What a new segment is made from.
pub(crate) struct Source<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) info: SegmentInfo,
    /// The covered entries as they are stored, and opened.
    pub(crate) entries: Vec<(Record, SealedEntry)>,
    /// Their nodes, each once, children before parents where both are here.
    pub(crate) nodes: Vec<(BlobId, Bytes)>,
}

/// Builds a segment and proves it: the nodes are taken out of it again and must have their ids.
pub(crate) fn build(hashing: &Hashing, source: &Source<'_>, level: i32) -> Result<Segment, StoreError> {
    let wrap = |section, body: &[u8]| {
        let mut out = header(source.run, source.info);
        out.extend_from_slice(body);
        deflate(form(section), &out, level)
    };
    let entries = wrap(Section::Entries, &SegmentEntries::encode(&source.entries))?;
    let nodes = wrap(Section::Nodes, &SegmentNodes::encode(&source.nodes)?)?;
    let index = wrap(Section::Index, &SegmentIndex::encode(source)?)?;

    let opened = SegmentNodes::open(source.run, source.info, &nodes)?;
    if !opened.ids(hashing)?.iter().eq(source.nodes.iter().map(|(id, _)| id)) {
        return Err(StoreError::corrupt(format!("a new segment of run {}", source.run), "its nodes changed their ids"));
    }
    Ok(Segment { info: source.info, entries, index, nodes })
}

/// Binds a section to its place, so that one from another run or range doesn't pass for it.
fn header(run: &RunId, info: SegmentInfo) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, run.as_str().as_bytes());
    put_varint(&mut out, info.first.0.into());
    put_varint(&mut out, info.last.0.into());
    out
}

/// The body of a section that was written for this place.
fn unwrap(run: &RunId, info: SegmentInfo, section: Section, bytes: &[u8]) -> Result<Bytes, StoreError> {
    let named = |error: StoreError| match error {
        StoreError::Corrupt { detail, .. } => {
            StoreError::corrupt(format!("segment {info} of run {run} ({section:?})"), detail)
        }
        other => other,
    };
    let plain = inflate(form(section), bytes).map_err(named)?;
    let expected = header(run, info);
    if !plain.starts_with(&expected) {
        return Err(named(StoreError::corrupt("", "it belongs to another place")));
    }
    Ok(plain.slice(expected.len()..))
}

/// Splits `count` byte strings, whose lengths come first, into their ranges.
fn ranges(body: &Bytes) -> Result<Vec<std::ops::Range<usize>>, StoreError> {
    let mut reader = Reader::new(body);
    let count = reader.count_of(1)?;
    let mut lengths = Vec::with_capacity(count);
    for _ in 0..count {
        lengths.push(reader.varint()?);
    }
    let mut start = body.len() - reader.rest().len();
    let mut out = Vec::with_capacity(count);
    for length in lengths {
        let length = reader.bytes(length)?.len();
        out.push(start..start + length);
        start += length;
    }
    reader.end()?;
    Ok(out)
}

/// The inverse of [`ranges`].
fn put_all(out: &mut Vec<u8>, items: &[Vec<u8>]) {
    put_varint(out, items.len() as u64);
    for item in items {
        put_varint(out, item.len() as u64);
    }
    for item in items {
        out.extend_from_slice(item);
    }
}
