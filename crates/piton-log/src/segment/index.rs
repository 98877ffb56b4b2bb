//! Which of a segment's nodes may be looked for from outside: the parts and bodies of its entries, and
//! all that the last of its states is made of. A node that is none of these (the spine of a list that
//! grew on) is found the slow way, by computing all ids.

use piton_types::{BlobId, RunId};

use super::{Source, unwrap};
use crate::codec::{Reader, put_varint, references};
use crate::state::IdMap;
use crate::state::grammar::Malformed;
use piton_store::{Section, SegmentInfo, StoreError};

/// An opened index section: prefixes of ids in ascending order, and the place of each.
#[derive(Debug)]
pub(crate) struct SegmentIndex {
    prefixes: Vec<u64>,
    places: Vec<u32>,
}

fn prefix(id: &BlobId) -> u64 {
    u64::from_be_bytes(id.as_bytes()[..8].try_into().expect("eight bytes"))
}

impl SegmentIndex {
    pub(super) fn encode(source: &Source<'_>) -> Result<Vec<u8>, StoreError> {
        let places: IdMap<u32> = source.nodes.iter().map(|(id, _)| *id).zip(0..).collect();
        let mut wanted = vec![false; source.nodes.len()];
        for (_, entry) in &source.entries {
            let roots = entry.parts.values().map(|part| part.root).chain(references(&entry.body)?);
            for place in roots.filter_map(|root| places.get(&root)) {
                wanted[*place as usize] = true;
            }
        }
        let newest = source.entries.iter().rev().find(|(_, entry)| !entry.parts.is_empty());
        let mut open: Vec<BlobId> =
            newest.iter().flat_map(|(_, entry)| entry.parts.values()).map(|part| part.root).collect();
        let mut seen = vec![false; source.nodes.len()];
        while let Some(id) = open.pop() {
            if let Some(place) = places.get(&id).map(|place| *place as usize)
                && !std::mem::replace(&mut seen[place], true)
            {
                wanted[place] = true;
                open.extend(references(&source.nodes[place].1)?);
            }
        }
        let mut rows: Vec<_> = (0_u32..)
            .zip(&source.nodes)
            .filter(|(place, _)| wanted[*place as usize])
            .map(|(place, (id, _))| (prefix(id), place))
            .collect();
        rows.sort_unstable();
        let mut out = Vec::with_capacity(rows.len() * 11);
        put_varint(&mut out, rows.len() as u64);
        rows.iter().for_each(|(prefix, _)| out.extend_from_slice(&prefix.to_be_bytes()));
        rows.iter().for_each(|(_, place)| put_varint(&mut out, (*place).into()));
        Ok(out)
    }

    pub(crate) fn open(run: &RunId, info: SegmentInfo, bytes: &[u8]) -> Result<Self, StoreError> {
        let body = unwrap(run, info, Section::Index, bytes)?;
        let mut reader = Reader::new(&body);
        let count = reader.count_of(9)?;
        let mut prefixes = Vec::with_capacity(count);
        for _ in 0..count {
            prefixes.push(u64::from_be_bytes(reader.array()?));
        }
        let mut places = Vec::with_capacity(count);
        for _ in 0..count {
            places.push(u32::try_from(reader.varint()?).map_err(|_| Malformed("a place is out of range"))?);
        }
        reader.end()?;
        if !prefixes.is_sorted() {
            return Err(Malformed("an index isn't sorted").into());
        }
        Ok(Self { prefixes, places })
    }

    /// The places whose nodes may have this id.
    pub(crate) fn find(&self, id: &BlobId) -> impl Iterator<Item = u32> {
        let wanted = prefix(id);
        let start = self.prefixes.partition_point(|prefix| *prefix < wanted);
        let matching = self.prefixes[start..].iter().take_while(move |prefix| **prefix == wanted);
        matching.zip(&self.places[start..]).map(|(_, place)| *place)
    }
}
