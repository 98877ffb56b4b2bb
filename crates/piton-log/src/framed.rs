//! Packs of file contents: many blobs, compressed together in frames of some 64 KiB, so that one blob
//! is read by inflating one frame, and files that lie side by side share what they have in common.
//!
//! At its start is an index: which blobs there are, and where each frame is. The index has a checksum, and so has each
//! frame, compressed as it is; so a few blobs are read without the rest of the pack. A pack is built, opened again from
//! the bytes that will be stored, and every blob in it hashed, before a run may rely on it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use piton_types::BlobId;
use zstd::zstd_safe::{self, DCtx, InBuffer, OutBuffer, ResetDirective};

use crate::codec::{CHECKSUM, Reader, checksum, put_varint};
use crate::pack::MAX_INFLATED;
use crate::state::{IdMap, IdSet};
use piton_store::{Hashing, PackId, Store, StoreError};

/// First byte of such a pack.
pub(crate) const FORM: u8 = 2;

/// The form, the checksum of what follows of the index, and the length of the rest of it.
const HEADER: usize = 1 + CHECKSUM + 4;

/// A frame is closed when it has reached this many bytes. A larger one compresses little better, and
/// takes longer to read one small file from.
const FRAME: usize = 64 << 10;

thread_local! {
    /// To make one takes as long as to inflate some kilobytes.
    static INFLATER: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// Blobs that are to become a pack.
#[derive(Debug, Default)]
pub(crate) struct FrameBuilder {
    blobs: Vec<(BlobId, usize)>,
    plain: Vec<u8>,
}

impl FrameBuilder {
    pub(crate) fn add(&mut self, id: BlobId, blob: &[u8]) {
        self.blobs.push((id, blob.len()));
        self.plain.extend_from_slice(blob);
    }

    /// Adds everything of another.
    pub(crate) fn join(&mut self, other: Self) {
        self.blobs.extend(other.blobs);
        self.plain.extend_from_slice(&other.plain);
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.plain.len()
    }

    pub(crate) fn ids(&self) -> Vec<BlobId> {
        self.blobs.iter().map(|(id, _)| *id).collect()
    }

    /// Leaves out what isn't wanted; each blob is asked for once.
    pub(crate) fn retain(&mut self, mut wanted: impl FnMut(&BlobId) -> bool) {
        let wanted: Vec<bool> = self.blobs.iter().map(|(id, _)| wanted(id)).collect();
        if wanted.iter().all(|wanted| *wanted) {
            return;
        }
        let mut kept = Self::default();
        let mut start = 0;
        for ((id, length), wanted) in self.blobs.iter().zip(wanted) {
            if wanted {
                kept.add(*id, &self.plain[start..start + length]);
            }
            start += length;
        }
        *self = kept;
    }

    /// The bytes to store, proven to give every blob back.
    pub(crate) fn seal(&self, hashing: &Hashing, level: i32) -> Result<Bytes, StoreError> {
        let failed =
            |error: std::io::Error| StoreError::Invalid { what: "compression".to_owned(), detail: error.to_string() };
        let mut compressor = zstd::bulk::Compressor::new(level).map_err(failed)?;
        let mut frames = Vec::new();
        let (mut from, mut to, mut count) = (0, 0, 0_u64);
        for (place, (_, length)) in self.blobs.iter().enumerate() {
            to += length;
            count += 1;
            if to - from >= FRAME || place + 1 == self.blobs.len() {
                frames.push((count, compressor.compress(&self.plain[from..to]).map_err(failed)?));
                (from, count) = (to, 0);
            }
        }
        let packed: usize = frames.iter().map(|(_, frame)| frame.len() + 8).sum();
        let mut out = Vec::with_capacity(HEADER + self.blobs.len() * 36 + packed + 16);
        out.push(FORM);
        out.extend_from_slice(&[0; HEADER - 1]);
        put_varint(&mut out, self.blobs.len() as u64);
        for (id, length) in &self.blobs {
            out.extend_from_slice(id.as_bytes());
            put_varint(&mut out, *length as u64);
        }
        put_varint(&mut out, frames.len() as u64);
        for (count, frame) in &frames {
            put_varint(&mut out, *count);
            put_varint(&mut out, frame.len() as u64);
            out.extend_from_slice(&checksum(frame));
        }
        let length = u32::try_from(out.len() - HEADER).map_err(|_| StoreError::TooLarge {
            what: "the index of a pack".to_owned(),
            size: out.len() as u64,
            limit: u32::MAX.into(),
        })?;
        out[1 + CHECKSUM..HEADER].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(&out[1 + CHECKSUM..]);
        out[1..=CHECKSUM].copy_from_slice(&sum);
        for (_, frame) in &frames {
            out.extend_from_slice(frame);
        }
        let bytes = Bytes::from(out);
        FramedPack::open(bytes.clone())?.verify(hashing)?;
        Ok(bytes)
    }
}

/// A pack of file contents, opened.
#[derive(Debug)]
pub(crate) struct FramedPack {
    bytes: Bytes,
    index: FramedIndex,
}

/// What the start of a pack says about it.
#[derive(Debug)]
pub(crate) struct FramedIndex {
    frames: Vec<Frame>,
    /// The frame of each blob: a pack of nodes has thousands, and is asked for a few of them again and again.
    places: IdMap<usize>,
    /// Bytes of the whole pack.
    size: usize,
}

#[derive(Debug)]
struct Frame {
    /// Where it is in the pack.
    place: Range<usize>,
    sum: [u8; CHECKSUM],
    /// What it inflates to.
    length: usize,
    /// Its blobs and where they are in it.
    blobs: Vec<(BlobId, Range<usize>)>,
}

/// Whether a staged pack has file contents.
pub(crate) async fn is_content(store: &dyn Store, pack: PackId) -> Result<bool, StoreError> {
    let start = match store.pack_part(pack, 0, 1).await? {
        Some(start) => start,
        None => store.pack(pack).await?,
    };
    Ok(start.first() == Some(&FORM))
}

fn corrupt(detail: &str) -> StoreError {
    StoreError::corrupt("a pack of file contents", detail)
}

impl FramedIndex {
    /// Where the index ends in a pack that begins so; `None` if this is no pack of file contents.
    pub(crate) fn end(start: &[u8]) -> Option<usize> {
        let length = start.get(1 + CHECKSUM..HEADER).filter(|_| start[0] == FORM)?;
        let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
        HEADER.checked_add(usize::try_from(length).ok()?)
    }

    /// Reads the index from the start of a pack, which has all of it.
    pub(crate) fn open(start: &[u8]) -> Result<Self, StoreError> {
        let index = Self::end(start).and_then(|end| start.get(..end)).ok_or_else(|| corrupt("its index ends early"))?;
        let mut reader = Reader::new(&index[1..]);
        if reader.array()? != checksum(reader.rest()) {
            return Err(corrupt("the checksum of its index doesn't fit"));
        }
        reader.bytes(4)?;
        let count = reader.count_of(33)?;
        let mut blobs = Vec::with_capacity(count);
        let mut whole = 0_u64;
        for _ in 0..count {
            let (id, length) = (reader.id()?, reader.varint()?);
            whole = whole.saturating_add(length);
            if whole > MAX_INFLATED {
                let what = "a pack of file contents".to_owned();
                return Err(StoreError::TooLarge { what, size: whole, limit: MAX_INFLATED });
            }
            blobs.push((id, usize::try_from(length).expect("checked against a small limit")));
        }
        let mut frames = Vec::new();
        let mut places = IdMap::with_capacity(count);
        let (mut blobs, mut size) = (blobs.into_iter(), index.len());
        for number in 0..reader.count_of(2 + CHECKSUM)? {
            let (count, packed, sum) = (reader.varint()?, reader.varint()?, reader.array()?);
            let end = usize::try_from(packed).ok().and_then(|packed| size.checked_add(packed));
            let place = size..end.ok_or_else(|| corrupt("a frame is too long"))?;
            size = place.end;
            let mut frame = Frame { place, sum, length: 0, blobs: Vec::new() };
            for _ in 0..count {
                let (id, length) = blobs.next().ok_or_else(|| corrupt("its frames claim more blobs than it has"))?;
                places.insert(id, number);
                frame.blobs.push((id, frame.length..frame.length + length));
                frame.length += length;
            }
            frames.push(frame);
        }
        if blobs.next().is_some() {
            return Err(corrupt("blobs are in none of its frames"));
        }
        reader.end()?;
        Ok(Self { frames, places, size })
    }

    /// Bytes of the whole pack.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The frames that hold these blobs, and where each is in the pack, in order.
    pub(crate) fn frames_of(&self, wanted: &IdSet) -> BTreeMap<usize, Range<usize>> {
        let frames = wanted.iter().filter_map(|id| self.places.get(id));
        frames.map(|frame| (*frame, self.frames[*frame].place.clone())).collect()
    }

    /// Gives those of the wanted blobs that are in a frame, whose bytes these are.
    pub(crate) fn read(
        &self,
        frame: usize,
        packed: &[u8],
        wanted: &IdSet,
        mut give: impl FnMut(BlobId, Bytes) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let frame = &self.frames[frame];
        // What lies behind the last of them isn't inflated.
        let Some((_, last)) = frame.blobs.iter().rfind(|(id, _)| wanted.contains(id)) else { return Ok(()) };
        let plain = inflate(frame, packed, last.end)?;
        let mut given = IdSet::default();
        for (id, range) in frame.blobs.iter().filter(|(id, _)| wanted.contains(id)) {
            if given.insert(*id) {
                give(*id, plain.slice(range.clone()))?;
            }
        }
        Ok(())
    }

    /// Gives every blob of the frame that has `id`, whose bytes `fetch` gives; none if there is no such frame.
    pub(crate) fn read_frame_of(
        &self,
        id: &BlobId,
        fetch: impl FnOnce(Range<usize>) -> Result<Bytes, StoreError>,
        mut give: impl FnMut(BlobId, Bytes),
    ) -> Result<(), StoreError> {
        if let Some(frame) = self.places.get(id).map(|place| &self.frames[*place]) {
            let plain = inflate(frame, &fetch(frame.place.clone())?, frame.length)?;
            frame.blobs.iter().for_each(|(id, range)| give(*id, plain.slice(range.clone())));
        }
        Ok(())
    }
}

/// The first `wanted` bytes of a frame, whose packed bytes these are.
fn inflate(frame: &Frame, packed: &[u8], wanted: usize) -> Result<Bytes, StoreError> {
    if checksum(packed) != frame.sum {
        return Err(corrupt("the checksum of a frame doesn't fit"));
    }
    let mut plain = Vec::with_capacity(wanted);
    INFLATER
        .with_borrow_mut(|inflater| {
            if wanted == frame.length {
                return inflater.decompress(&mut plain, packed).map(drop);
            }
            // Whatever the last frame left half done is of no interest.
            inflater.reset(ResetDirective::SessionOnly)?;
            let (mut input, mut output) = (InBuffer::around(packed), OutBuffer::around(&mut plain));
            loop {
                let before = (input.pos(), output.pos());
                inflater.decompress_stream(&mut output, &mut input)?;
                if output.pos() == wanted || (input.pos(), output.pos()) == before {
                    return Ok(());
                }
            }
        })
        .map_err(|code| corrupt(zstd_safe::get_error_name(code)))?;
    if plain.len() != wanted {
        return Err(corrupt("a frame's length isn't the one it claims"));
    }
    Ok(Bytes::from(plain))
}

impl FramedPack {
    pub(crate) fn open(bytes: Bytes) -> Result<Self, StoreError> {
        let index = FramedIndex::open(&bytes)?;
        match index.size == bytes.len() {
            true => Ok(Self { bytes, index }),
            false => Err(corrupt("its length isn't the one it claims")),
        }
    }

    /// Gives each of the wanted blobs that it has.
    pub(crate) fn read(
        &self,
        wanted: &IdSet,
        mut give: impl FnMut(BlobId, Bytes) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for (frame, place) in self.index.frames_of(wanted) {
            self.index.read(frame, &self.bytes[place], wanted, &mut give)?;
        }
        Ok(())
    }

    /// Gives every blob.
    pub(crate) fn read_all(
        &self,
        mut give: impl FnMut(BlobId, Bytes) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for frame in &self.index.frames {
            let plain = inflate(frame, &self.bytes[frame.place.clone()], frame.length)?;
            frame.blobs.iter().try_for_each(|(id, range)| give(*id, plain.slice(range.clone())))?;
        }
        Ok(())
    }

    /// Compares the checksums of all frames.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.index.frames.iter().all(|frame| checksum(&self.bytes[frame.place.clone()]) == frame.sum) {
            true => Ok(()),
            false => Err(corrupt("the checksum of a frame doesn't fit")),
        }
    }

    /// How many bytes its blobs have.
    pub(crate) fn inflated(&self) -> u64 {
        self.index.frames.iter().map(|frame| frame.length as u64).sum()
    }

    /// Its blobs, with how many bytes each has.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = (BlobId, usize)> {
        self.index.frames.iter().flat_map(|frame| frame.blobs.iter().map(|(id, range)| (*id, range.len())))
    }

    /// The ids of its blobs.
    pub(crate) fn ids(&self) -> Vec<BlobId> {
        self.index.frames.iter().flat_map(|frame| frame.blobs.iter().map(|(id, _)| *id)).collect()
    }

    pub(crate) fn verify(&self, hashing: &Hashing) -> Result<(), StoreError> {
        self.read_all(|id, blob| match hashing.blob(&blob) == id {
            true => Ok(()),
            false => Err(StoreError::corrupt(format!("blob {id}"), "its content doesn't have that hash")),
        })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD_NO_PAD;

    use super::*;

    const HASHING: Hashing = Hashing::PLAIN;

    const PINNED: &str = "Av5U80Zj2XY2bwAAAAOvE0m59fmhpqBATeo23MlJm8slya3BErfMmpPK5B8yYgDTP7SKta3/JprhcrKaaRP/BPbyZiB6eo6X\
                          by7NVx1EkgP+Jg+MgvSr+R/db2SbKDZGjz3SLUe0wmDK6NGRqhC35BcBAxY865jOw2iLpyi1L/0gGm0AADhvbmV0d28gAQAn\
                          zgg";

    fn sample() -> (FrameBuilder, Vec<(BlobId, Vec<u8>)>) {
        let mut builder = FrameBuilder::default();
        let blobs: Vec<_> = (0..6_u8)
            .map(|n| vec![n; if n == 3 { FRAME } else { 100 * usize::from(n) }])
            .map(|blob| (HASHING.blob(&blob), blob))
            .collect();
        blobs.iter().for_each(|(id, blob)| builder.add(*id, blob));
        (builder, blobs)
    }

    #[test]
    fn every_blob_comes_back_and_only_its_frame_is_inflated() {
        let (builder, blobs) = sample();
        let pack = FramedPack::open(builder.seal(&HASHING, 1).unwrap()).unwrap();
        assert_eq!(pack.index.frames.len(), 2);
        for (id, blob) in &blobs {
            let mut given = Vec::new();
            pack.read(&[*id].into_iter().collect(), |id, bytes| {
                given.push((id, bytes.to_vec()));
                Ok(())
            })
            .unwrap();
            assert_eq!(given, [(*id, blob.clone())]);
        }
    }

    /// Pins the format: bytes that were written once are read for ever.
    #[test]
    fn the_format_is_pinned() {
        let bytes = STANDARD_NO_PAD.decode(PINNED).unwrap();
        let pack = FramedPack::open(bytes.clone().into()).unwrap();
        pack.verify(&HASHING).unwrap();
        let mut given = Vec::new();
        pack.read_all(|_, blob| {
            given.push(String::from_utf8(blob.to_vec()).unwrap());
            Ok(())
        })
        .unwrap();
        assert_eq!(given, ["", "one", "two two two two two two"]);
        assert_eq!(FramedIndex::end(&bytes), Some(pack.index.frames[0].place.start));
    }

    #[test]
    fn what_is_left_out_is_left_out() {
        let (mut builder, blobs) = sample();
        builder.retain(|id| *id != blobs[3].0);
        let pack = FramedPack::open(builder.seal(&HASHING, 1).unwrap()).unwrap();
        let mut ids = Vec::new();
        pack.read_all(|id, _| {
            ids.push(id);
            Ok(())
        })
        .unwrap();
        let expected: Vec<_> = blobs.iter().map(|(id, _)| *id).filter(|id| *id != blobs[3].0).collect();
        assert_eq!(ids, expected);
    }

    /// Promises 5 and 6: no flipped byte goes unseen, and a blob under a wrong name is never stored.
    #[test]
    fn damage_is_found() {
        let mut builder = FrameBuilder::default();
        builder.add(HASHING.blob(b"a few bytes"), b"a few bytes");
        let bytes = builder.seal(&HASHING, 1).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            let opened = FramedPack::open(damaged.into());
            assert!(opened.is_err() || opened.is_ok_and(|pack| pack.check().is_err()), "byte {at}");
            assert!(FramedPack::open(bytes.slice(..at)).is_err(), "cut at {at}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            let read = FramedPack::open(damaged.into()).and_then(|pack| pack.verify(&HASHING));
            assert!(
                matches!(read, Err(StoreError::Corrupt { .. } | StoreError::TooLarge { .. })),
                "byte {at}: {read:?}"
            );
        }
        builder.add(HASHING.blob(b"x"), b"y");
        assert!(matches!(builder.seal(&HASHING, 1), Err(StoreError::Corrupt { .. })));
    }
}
