//! Contents of files: blobs that are staged ahead of the commit that refers to them, many to a
//! compressed pack, and read back one by one or many at a time.
//!
//! Both sides are for threads that read and write files: they are plain calls, which wait for the store
//! by themselves. They must not be called on a thread that drives the store's runtime.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use piton_types::BlobId;
use tokio::runtime::Handle;

use crate::framed::{FrameBuilder, FramedIndex};
use crate::pack::Pack;
use crate::state::IdSet;
use piton_store::{PackId, Pin, Store, StoreError};

/// How much goes into one pack, before compression.
pub(crate) const PACK: usize = 4 << 20;

/// How many opened packs are kept at hand.
const KEPT: usize = 8;

/// What is read of a pack at first, which mostly has all of its index.
const INDEX: usize = 32 << 10;

/// The level of compression. A higher one takes longer than reading and hashing the files together, and
/// gains little: files of a folder are compressed side by side.
pub(crate) const LEVEL: i32 = 1;

/// Takes blobs and stages them.
pub struct ContentWriter {
    store: Arc<dyn Store>,
    runtime: Handle,
    /// Packs that aren't full yet; a thread takes one, fills it and puts it back.
    open: Mutex<Vec<FrameBuilder>>,
    seen: Mutex<IdSet>,
    packs: Mutex<Vec<PackId>>,
    pin: Pin,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ContentWriter {
    /// A writer into `store`, which `runtime` drives. What it stages and what it finds is pinned with `pin`, for the commit
    /// that is to name it.
    pub fn new(store: Arc<dyn Store>, runtime: Handle, pin: Pin) -> Self {
        Self { store, runtime, open: Mutex::default(), seen: Mutex::default(), packs: Mutex::default(), pin }
    }

    /// Names `blob`, and stores it if the store doesn't have it.
    pub fn put(&self, blob: &[u8]) -> Result<BlobId, StoreError> {
        let id = self.store.hashing().blob(blob);
        if !locked(&self.seen).insert(id) {
            return Ok(id);
        }
        let mut builder = locked(&self.open).pop().unwrap_or_default();
        builder.add(id, blob);
        if builder.len() < PACK {
            locked(&self.open).push(builder);
        } else {
            self.stage(builder)?;
        }
        Ok(id)
    }

    fn stage(&self, mut builder: FrameBuilder) -> Result<(), StoreError> {
        let ids = builder.ids();
        let places = match self.runtime.block_on(self.store.locate(&ids)) {
            // Some may be there and not be found; they are stored again.
            Err(StoreError::Corrupt { .. }) => vec![None; ids.len()],
            found => found?,
        };
        let mut known: HashMap<BlobId, PackId> =
            ids.iter().zip(places).filter_map(|(id, place)| Some((*id, place?))).collect();
        let mut packs: Vec<_> = known.values().copied().collect();
        packs.sort_unstable();
        packs.dedup();
        match self.runtime.block_on(self.store.pin(&packs, self.pin)) {
            // Deleted just now: what was in it is stored again.
            Err(StoreError::PackGone { .. }) => {
                known.clear();
                packs.clear();
            }
            pinned => pinned?,
        }
        builder.retain(|id| !known.contains_key(id));
        let new = builder.ids();
        if !new.is_empty() {
            let bytes = builder.seal(self.store.hashing(), LEVEL)?;
            packs.push(self.runtime.block_on(piton_store::stage(&*self.store, bytes, &new, self.pin))?);
        }
        locked(&self.packs).extend(packs);
        Ok(())
    }

    /// Stages what is left, and gives every pack that the blobs are in: a commit that refers to them must
    /// name all of these.
    pub fn finish(&self) -> Result<Vec<PackId>, StoreError> {
        let mut last = std::mem::take(&mut *locked(&self.open));
        // Mostly there is one for each thread, and each of them small.
        if let Some(mut whole) = last.pop() {
            for builder in last {
                whole.join(builder);
            }
            self.stage(whole)?;
        }
        let mut packs = std::mem::take(&mut *locked(&self.packs));
        packs.sort_unstable();
        packs.dedup();
        Ok(packs)
    }
}

impl std::fmt::Debug for ContentWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContentWriter").finish_non_exhaustive()
    }
}

/// Gives blobs back.
pub struct ContentReader {
    store: Arc<dyn Store>,
    runtime: Handle,
    opened: Mutex<Vec<(PackId, Arc<Opened>)>>,
}

/// A staged pack of either form.
enum Opened {
    Framed(Framed),
    Plain(Pack),
}

/// A pack of file contents, of which only the index was read at first.
struct Framed {
    pack: PackId,
    index: FramedIndex,
    /// How many bytes of it were read by parts.
    parts: AtomicUsize,
    whole: OnceLock<Bytes>,
}

impl ContentReader {
    /// A reader of `store`, which `runtime` drives.
    pub fn new(store: Arc<dyn Store>, runtime: Handle) -> Self {
        Self { store, runtime, opened: Mutex::default() }
    }

    /// One blob.
    pub fn get(&self, id: BlobId) -> Result<Bytes, StoreError> {
        let mut found = None;
        self.get_all(&[id], |_, blob| {
            found = Some(blob);
            Ok(())
        })?;
        found.ok_or_else(|| missing(id))
    }

    /// One blob, and others that lie beside it and cost next to nothing more, each to `give`. A caller that asks for a
    /// node of a tree will ask for those around it.
    pub fn get_around(&self, id: BlobId, mut give: impl FnMut(BlobId, &[u8])) -> Result<Bytes, StoreError> {
        let pack = self.by_pack(&[id])?.first().map(|(pack, _)| *pack).ok_or_else(|| missing(id))?;
        let Opened::Framed(framed) = &*self.open(pack)? else { return self.get(id) };
        let mut found = None;
        let fetch = |place: Range<usize>| {
            self.expect(framed, place.len())?;
            self.fetch(framed, place)
        };
        framed.index.read_frame_of(&id, fetch, |near, blob| {
            if near == id {
                found = Some(Bytes::copy_from_slice(&blob));
            }
            give(near, &blob);
        })?;
        found.ok_or_else(|| lacks(pack))
    }

    /// Each of the blobs once, pack by pack. Duplicates are given once.
    pub fn get_all(
        &self,
        ids: &[BlobId],
        mut give: impl FnMut(BlobId, Bytes) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for (pack, ids) in self.by_pack(ids)? {
            self.read(pack, &ids, &mut give)?;
        }
        Ok(())
    }

    /// Which packs hold these blobs, so that several threads can share the work.
    pub fn by_pack(&self, ids: &[BlobId]) -> Result<Vec<(PackId, Vec<BlobId>)>, StoreError> {
        let places = self.runtime.block_on(self.store.locate(ids))?;
        let mut packs: HashMap<PackId, Vec<BlobId>> = HashMap::new();
        for (id, place) in ids.iter().zip(places) {
            packs.entry(place.ok_or_else(|| missing(*id))?).or_default().push(*id);
        }
        let mut packs: Vec<_> = packs.into_iter().collect();
        packs.sort_unstable_by_key(|(pack, _)| *pack);
        Ok(packs)
    }

    /// Blobs of one pack.
    pub fn read(
        &self,
        pack: PackId,
        ids: &[BlobId],
        mut give: impl FnMut(BlobId, Bytes) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let wanted: IdSet = ids.iter().copied().collect();
        let opened = self.open(pack)?;
        let mut left = wanted.len();
        let mut counted = |id, blob| {
            left -= 1;
            give(id, blob)
        };
        match &*opened {
            Opened::Framed(framed) => {
                let frames = framed.index.frames_of(&wanted);
                self.expect(framed, frames.values().map(Range::len).sum())?;
                for (frame, place) in frames {
                    framed.index.read(frame, &self.fetch(framed, place)?, &wanted, &mut counted)?;
                }
            }
            Opened::Plain(plain) => {
                // A node that stands there as a difference is no content.
                for id in &wanted {
                    if let Some(place) = plain.place(id).filter(|place| plain.is_whole(*place)) {
                        counted(*id, Bytes::copy_from_slice(plain.node(place)))?;
                    }
                }
            }
        }
        match left {
            0 => Ok(()),
            _ => Err(lacks(pack)),
        }
    }

    fn open(&self, pack: PackId) -> Result<Arc<Opened>, StoreError> {
        if let Some((_, opened)) = locked(&self.opened).iter().find(|(id, _)| *id == pack) {
            return Ok(Arc::clone(opened));
        }
        let opened = Arc::new(match self.open_index(pack)? {
            Some(framed) => Opened::Framed(framed),
            None => Opened::Plain(Pack::open(self.whole(pack)?)?),
        });
        let mut kept = locked(&self.opened);
        if kept.len() == KEPT {
            kept.remove(0);
        }
        kept.push((pack, Arc::clone(&opened)));
        Ok(opened)
    }
}

impl ContentReader {
    /// The index of a pack, or all of it if the store gives no parts; `None` if it has no file contents.
    fn open_index(&self, pack: PackId) -> Result<Option<Framed>, StoreError> {
        let mut whole = OnceLock::new();
        let mut start = match self.runtime.block_on(self.store.pack_part(pack, 0, INDEX))? {
            Some(start) => start,
            None => {
                let bytes = self.whole(pack)?;
                whole = OnceLock::from(bytes.clone());
                bytes
            }
        };
        match FramedIndex::end(&start) {
            None => return Ok(None),
            Some(end) if end > start.len() && whole.get().is_none() => start = self.part(pack, 0..end)?,
            Some(_) => {}
        }
        Ok(Some(Framed { pack, index: FramedIndex::open(&start)?, parts: AtomicUsize::new(0), whole }))
    }

    /// So many bytes of a pack will be fetched. If that comes to much of it, it is read as a whole.
    fn expect(&self, framed: &Framed, bytes: usize) -> Result<(), StoreError> {
        let so_far = framed.parts.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if framed.whole.get().is_none() && so_far > framed.index.size() / 2 {
            let whole = self.whole(framed.pack)?;
            framed.whole.get_or_init(|| whole);
        }
        Ok(())
    }

    /// A part of a pack.
    fn fetch(&self, framed: &Framed, place: Range<usize>) -> Result<Bytes, StoreError> {
        match framed.whole.get() {
            Some(whole) if place.end <= whole.len() => Ok(whole.slice(place)),
            Some(_) => Err(lacks(framed.pack)),
            None => self.part(framed.pack, place),
        }
    }

    fn whole(&self, pack: PackId) -> Result<Bytes, StoreError> {
        self.runtime.block_on(piton_store::pack(&*self.store, pack))
    }

    fn part(&self, pack: PackId, place: Range<usize>) -> Result<Bytes, StoreError> {
        match self.runtime.block_on(self.store.pack_part(pack, place.start as u64, place.len()))? {
            Some(part) if part.len() == place.len() => Ok(part),
            _ => Err(lacks(pack)),
        }
    }
}

fn lacks(pack: PackId) -> StoreError {
    StoreError::corrupt(format!("staged pack {pack}"), "it lacks blobs that it lists")
}

fn missing(id: BlobId) -> StoreError {
    StoreError::NotFound { what: format!("blob {id}") }
}

impl std::fmt::Debug for ContentReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContentReader").finish_non_exhaustive()
    }
}
