//! The nodes of a segment, with short references to each other.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use piton_types::{BlobId, RunId};

use super::transcode::transcode;
use super::{put_all, ranges, unwrap};
use crate::codec::{Reader, put_varint};
use crate::state::IdMap;
use crate::state::grammar::{Malformed, reference_offsets};
use piton_store::{Hashing, Section, SegmentInfo, StoreError};

/// An opened nodes section.
#[derive(Debug)]
pub(crate) struct SegmentNodes {
    body: Bytes,
    places: Vec<Range<usize>>,
    ids: OnceLock<Vec<BlobId>>,
}

/// Where a reference leads.
pub(crate) enum Target {
    /// To another node of the segment.
    Near(u32),
    /// Elsewhere.
    Far(BlobId),
}

impl SegmentNodes {
    pub(super) fn encode(nodes: &[(BlobId, Bytes)]) -> Result<Vec<u8>, StoreError> {
        let mut places = IdMap::with_capacity(nodes.len());
        let mut compact = Vec::with_capacity(nodes.len());
        for (place, (id, node)) in (0_u64..).zip(nodes) {
            let mut out = Vec::with_capacity(node.len());
            let mut copied = 0;
            for at in reference_offsets(node)? {
                out.extend_from_slice(&node[copied..at]);
                copied = at + 32;
                let id = BlobId::new(node[at..copied].try_into().expect("32 bytes"));
                // Only backwards, so that ids can be computed in one pass from the front.
                match places.get(&id) {
                    Some(target) => put_varint(&mut out, place - target),
                    None => {
                        put_varint(&mut out, 0);
                        out.extend_from_slice(id.as_bytes());
                    }
                }
            }
            out.extend_from_slice(&node[copied..]);
            compact.push(out);
            places.insert(*id, place);
        }
        let mut out = Vec::new();
        put_all(&mut out, &compact);
        Ok(out)
    }

    pub(crate) fn open(run: &RunId, info: SegmentInfo, bytes: &[u8]) -> Result<Self, StoreError> {
        let body = unwrap(run, info, Section::Nodes, bytes)?;
        let places = ranges(&body)?;
        Ok(Self { body, places, ids: OnceLock::new() })
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Bytes in memory.
    pub(crate) fn size(&self) -> usize {
        self.body.len() + self.places.len() * 48
    }

    /// A node with its short references.
    pub(crate) fn compact(&self, place: u32) -> &[u8] {
        &self.body[self.places[place as usize].clone()]
    }

    /// Reads a reference of the node at `place`.
    pub(crate) fn reference(place: u32, reader: &mut Reader<'_>) -> Result<Target, Malformed> {
        match reader.varint()? {
            0 => Ok(Target::Far(reader.id()?)),
            distance => match u32::try_from(distance).ok().and_then(|distance| place.checked_sub(distance)) {
                Some(near) => Ok(Target::Near(near)),
                None => Err(Malformed("a reference leads before the first node")),
            },
        }
    }

    /// The ids of all nodes, computed from their content.
    pub(crate) fn ids(&self, hashing: &Hashing) -> Result<&[BlobId], StoreError> {
        if let Some(ids) = self.ids.get() {
            return Ok(ids);
        }
        self.each(hashing, |_, _| Ok(()))?;
        Ok(self.ids.get().expect("all of them were computed just now"))
    }

    /// Gives every node as it was when its id was computed, with that id, which is computed on the way.
    pub(crate) fn each(
        &self,
        hashing: &Hashing,
        mut give: impl FnMut(BlobId, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut ids = Vec::with_capacity(self.places.len());
        let mut canonical = Vec::new();
        for place in 0..u32::try_from(self.len()).expect("a segment has far fewer nodes") {
            canonical.clear();
            self.expand(place, &ids, &mut canonical)?;
            let id = hashing.blob(&canonical);
            ids.push(id);
            give(id, &canonical)?;
        }
        self.ids.get_or_init(|| ids);
        Ok(())
    }

    /// A node as it was when its id was computed.
    pub(crate) fn canonical(&self, hashing: &Hashing, place: u32) -> Result<Bytes, StoreError> {
        let mut out = Vec::new();
        self.expand(place, self.ids(hashing)?, &mut out)?;
        Ok(out.into())
    }

    fn expand(&self, place: u32, ids: &[BlobId], out: &mut Vec<u8>) -> Result<(), StoreError> {
        transcode(self.compact(place), out, &mut |reader, out| {
            let id = match Self::reference(place, reader)? {
                Target::Far(id) => id,
                Target::Near(near) => ids[near as usize],
            };
            out.extend_from_slice(id.as_bytes());
            Ok(())
        })?;
        Ok(())
    }
}
