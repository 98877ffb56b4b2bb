//! The entries of a segment. Parents are left out: they are the hashes of the entries before, computed
//! again on the way, and the last one is checked against the hash that was written down.

use std::ops::RangeInclusive;

use bytes::Bytes;
use piton_types::{EntryHash, RunId, Seq};

use super::{put_all, ranges, unwrap};
use crate::codec::Reader;
use crate::sealed::{self, SealedEntry};
use piton_store::{Hashing, Record, Section, SegmentInfo, StoreError};

/// The entries of a segment, verified.
pub(crate) struct SegmentEntries;

impl SegmentEntries {
    pub(super) fn encode(entries: &[(Record, SealedEntry)]) -> Vec<u8> {
        let (first, last) = (&entries[0].1, &entries[entries.len() - 1].1);
        let mut out = Vec::new();
        out.extend_from_slice(first.parent.as_bytes());
        out.extend_from_slice(last.hash.as_bytes());
        let bare: Vec<_> =
            entries.iter().map(|(record, _)| [&record.entry[..1], &record.entry[33..]].concat()).collect();
        put_all(&mut out, &bare);
        out
    }

    /// Every entry of the section, oldest first.
    pub(crate) fn open(
        hashing: &Hashing,
        run: &RunId,
        info: SegmentInfo,
        bytes: &[u8],
    ) -> Result<Vec<(Record, SealedEntry)>, StoreError> {
        Self::open_some(hashing, run, info, bytes, info.first..=info.last)
    }

    /// Those entries of the section that are wanted, oldest first. The hashes of all of them are computed, which leads
    /// to the last.
    pub(crate) fn open_some(
        hashing: &Hashing,
        run: &RunId,
        info: SegmentInfo,
        bytes: &[u8],
        wanted: RangeInclusive<Seq>,
    ) -> Result<Vec<(Record, SealedEntry)>, StoreError> {
        let corrupt = |detail: &str| StoreError::corrupt(format!("segment {info} of run {run} (Entries)"), detail);
        let body = unwrap(run, info, Section::Entries, bytes)?;
        let mut reader = Reader::new(&body);
        let mut parent = EntryHash::new(reader.array()?);
        let last = EntryHash::new(reader.array()?);
        let body = body.slice(64..);
        let places = ranges(&body)?;
        if places.len() as u64 != info.len() {
            return Err(corrupt("it doesn't have an entry for each number"));
        }
        let mut out = Vec::new();
        for (seq, place) in (info.first.0..).map(Seq).zip(places) {
            let Some((version, rest)) = body[place].split_first() else { return Err(corrupt("an entry is empty")) };
            if !wanted.contains(&seq) {
                parent = sealed::hash_bare(hashing, run, seq, (&[*version], parent.as_bytes()), rest);
                continue;
            }
            let entry = Bytes::from([&[*version], parent.as_bytes().as_slice(), rest].concat());
            let (record, entry) = sealed::reopen(hashing, run, seq, entry)?;
            parent = entry.hash;
            out.push((record, entry));
        }
        if parent != last {
            return Err(corrupt("the hashes of its entries don't lead to the last one"));
        }
        Ok(out)
    }
}
