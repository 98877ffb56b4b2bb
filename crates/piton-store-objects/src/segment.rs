//! A segment as an object: a line of JSON with what it covers and where its sections are, then the sections as they
//! are. Each section has a checksum of its own, so that one is read without the others.

use bytes::Bytes;
use piton_store::checked::{self, FORMAT};
use piton_store::{Section, Segment, SegmentInfo, StoreError};
use piton_types::RunId;
use serde::{Deserialize, Serialize};

use crate::objects::{Objects, Part};

/// No header is longer.
const LONGEST_HEADER: u64 = 4096;

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    run: RunId,
    /// The numbers of the first and the last entry, counted like their objects.
    first: u64,
    last: u64,
    sections: Vec<Place>,
}

#[derive(Serialize, Deserialize)]
struct Place {
    name: Section,
    bytes: u64,
    checksum: String,
}

/// The object of a segment whose run has this base.
pub(crate) fn encode(run: &RunId, base: u64, segment: &Segment) -> Result<Bytes, StoreError> {
    let place = |name, section: &Bytes| Place {
        name,
        bytes: section.len() as u64,
        checksum: blake3::hash(section).to_hex().to_string(),
    };
    let mut bytes = checked::seal(&Header {
        format: FORMAT,
        run: run.clone(),
        first: base + u64::from(segment.info.first.0),
        last: base + u64::from(segment.info.last.0),
        sections: vec![
            place(Section::Entries, &segment.entries),
            place(Section::Index, &segment.index),
            place(Section::Nodes, &segment.nodes),
        ],
    })?;
    [&segment.entries, &segment.index, &segment.nodes].iter().for_each(|section| bytes.extend_from_slice(section));
    Ok(bytes.into())
}

/// One section of the segment with this name. `NotFound` if it is gone.
pub(crate) async fn read(
    objects: &dyn Objects,
    name: &str,
    (run, base, info): (&RunId, u64, SegmentInfo),
    wanted: Section,
) -> Result<Bytes, StoreError> {
    let what = || format!("segment {info} of run {run}");
    // Another writer may put a segment of the same extent in its place between the two reads.
    for _ in 0..100 {
        let missing = || StoreError::NotFound { what: what() };
        let start = objects.get(name, Part::Range(0..LONGEST_HEADER)).await?.ok_or_else(missing)?;
        let line = match start.bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => &start.bytes[..=end],
            None => &start.bytes[..],
        };
        let header: Header = checked::open(line, what)?;
        let numbers = [info.first, info.last].map(|seq| base + u64::from(seq.0));
        let whole = header.sections.iter().try_fold(line.len() as u64, |sum, place| sum.checked_add(place.bytes));
        if header.run != *run || [header.first, header.last] != numbers || whole != Some(start.size) {
            return Err(StoreError::corrupt(what(), "it is another's, or has not the length that it claims"));
        }
        let before = header.sections.iter().take_while(|place| place.name != wanted).map(|place| place.bytes);
        let from = line.len() as u64 + before.sum::<u64>();
        let place = header.sections.iter().find(|place| place.name == wanted);
        let place = place.ok_or_else(|| StoreError::corrupt(what(), "a section is missing"))?;
        let section = objects.get(name, Part::Range(from..from + place.bytes)).await?.ok_or_else(missing)?;
        if section.version != start.version {
            continue;
        }
        if blake3::hash(&section.bytes).to_hex().as_str() != place.checksum {
            return Err(StoreError::corrupt(what(), "a section doesn't fit its checksum"));
        }
        return Ok(section.bytes);
    }
    Err(StoreError::Unavailable { detail: format!("{} is replaced faster than it can be read", what()) })
}
