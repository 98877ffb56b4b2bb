//! A segment as a file: a line of JSON with what it covers and where its sections are, then the sections as
//! they are. Each section has a checksum of its own, so that one is read without the others.

use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use piton_types::{RunId, Seq};
use serde::{Deserialize, Serialize};

use super::disk;
use crate::checked::{self, FORMAT};
use crate::{Section, Segment, SegmentInfo, StoreError};

/// No header is longer.
const LONGEST_HEADER: u64 = 4096;

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    run: RunId,
    first: Seq,
    last: Seq,
    sections: Vec<Place>,
}

#[derive(Serialize, Deserialize)]
struct Place {
    name: Section,
    bytes: u64,
    checksum: String,
}

/// The line before the sections.
pub(crate) fn header(run: &RunId, segment: &Segment) -> Result<Vec<u8>, StoreError> {
    let place = |name, section: &Bytes| Place {
        name,
        bytes: section.len() as u64,
        checksum: blake3::hash(section).to_hex().to_string(),
    };
    checked::seal(&Header {
        format: FORMAT,
        run: run.clone(),
        first: segment.info.first,
        last: segment.info.last,
        sections: vec![
            place(Section::Entries, &segment.entries),
            place(Section::Index, &segment.index),
            place(Section::Nodes, &segment.nodes),
        ],
    })
}

/// One section of the segment at `path`.
pub(crate) fn read(path: &Path, run: &RunId, info: SegmentInfo, wanted: Section) -> Result<Bytes, StoreError> {
    let what = || format!("segment {info} of run {run}");
    let failed = |error: std::io::Error| StoreError::from_io(&error, path);
    let Some(file) = disk::open(path)? else { return Err(StoreError::NotFound { what: what() }) };
    let length = file.metadata().map_err(failed)?.len();
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    reader.by_ref().take(LONGEST_HEADER).read_until(b'\n', &mut line).map_err(failed)?;
    let header: Header = checked::open(&line, what)?;
    let fits = (&header.run, header.first, header.last) == (run, info.first, info.last);
    let whole = header.sections.iter().try_fold(line.len() as u64, |sum, place| sum.checked_add(place.bytes));
    if !fits || whole != Some(length) {
        return Err(StoreError::corrupt(what(), "it is another's, or has not the length that it claims"));
    }
    let before = header.sections.iter().take_while(|place| place.name != wanted).map(|place| place.bytes);
    let start = line.len() as u64 + before.sum::<u64>();
    let place = header.sections.iter().find(|place| place.name == wanted);
    let place = place.ok_or_else(|| StoreError::corrupt(what(), "a section is missing"))?;
    reader.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut bytes = Vec::new();
    reader.take(place.bytes).read_to_end(&mut bytes).map_err(failed)?;
    if blake3::hash(&bytes).to_hex().as_str() != place.checksum {
        return Err(StoreError::corrupt(what(), "a section doesn't fit its checksum"));
    }
    Ok(bytes.into())
}
