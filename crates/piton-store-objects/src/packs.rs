//! Staged packs: `packs/HASH.pack`, a line of JSON with the ids of its blobs and then the pack as it is, created if
//! absent.
//!
//! `packs/HASH.state` says who has pinned it and until when, or since when no run was found to need it; a committed pack
//! has none. It is one object that is replaced if unchanged, so of a writer that pins a pack and a sweeper that deletes
//! it, one is first: the sweeper writes that the pack is going before it deletes it, and a writer that finds that begins
//! with a new pack of the same name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::checked::{self, FORMAT};
use piton_store::{Blobs, Owner, PackId, PackState, Pin, StoreError};
use piton_types::{BlobId, Durability, Timestamp};
use serde::{Deserialize, Serialize};

use crate::names::PACKS;
use crate::objects::{Objects, Part, Version, change, read};
use crate::store::ObjectStore;

/// What is read of a pack at first, which mostly has all of its header.
const HEADER: u64 = 64 << 10;

/// The line before a pack.
#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    pack: PackId,
    bytes: u64,
    content: String,
    ids: Vec<BlobId>,
    /// By chance, so that a pack that is staged again after it was deleted is another object, whatever a place takes
    /// the version of an object from.
    #[serde(default)]
    made: u64,
}

/// `HASH.state`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StateObject {
    format: u32,
    pack: PackId,
    /// Writers that have staged or found it, and until when they may commit.
    pins: Vec<(u64, Timestamp)>,
    condemned: Option<Timestamp>,
    /// The version of the pack that a sweeper is deleting. Only that one may go.
    going: Option<Version>,
}

impl StateObject {
    fn new(pack: PackId) -> Self {
        Self { format: FORMAT, pack, pins: Vec::new(), condemned: None, going: None }
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.iter().any(|(_, until)| *until > now())
    }

    fn state(&self) -> PackState {
        match self.condemned {
            Some(since) => PackState::Condemned(since),
            None if self.is_pinned() => PackState::Pinned,
            None if self.pins.is_empty() => PackState::Kept,
            None => PackState::Abandoned,
        }
    }
}

/// Which blob is in which packs, as far as this handle has read.
#[derive(Debug, Default)]
pub(crate) struct PackIndex {
    packs: HashMap<PackId, Known>,
    blobs: HashMap<BlobId, Vec<PackId>>,
    /// Packs that were there when they were looked for.
    seen: HashSet<PackId>,
}

impl PackIndex {
    fn forget(&mut self, pack: PackId) {
        self.seen.remove(&pack);
        for id in self.packs.remove(&pack).into_iter().flat_map(|known| known.ids) {
            if let Some(places) = self.blobs.get_mut(&id) {
                places.retain(|place| *place != pack);
            }
        }
    }
}

/// What the header of a pack says.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) bytes: u64,
    pub(crate) ids: Vec<BlobId>,
}

/// By the clock of this machine.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn later(life: Duration) -> Timestamp {
    let life = i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now().as_millis().saturating_add(life))
}

pub(crate) fn name(pack: PackId) -> String {
    format!("{PACKS}/{pack}.pack")
}

pub(crate) fn state_name(pack: PackId) -> String {
    format!("{PACKS}/{pack}.state")
}

fn what(pack: PackId) -> String {
    format!("staged pack {pack}")
}

/// Where a header ends.
fn line(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1)
}

fn header(bytes: &[u8], pack: PackId) -> Result<Header, StoreError> {
    let header: Header = checked::open(bytes, || what(pack))?;
    match header.pack == pack {
        true => Ok(header),
        false => Err(StoreError::corrupt(what(pack), format!("it is pack {}", header.pack))),
    }
}

impl ObjectStore {
    fn index(&self) -> MutexGuard<'_, PackIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every pack, with the size of its object and whether it has a state.
    pub(crate) async fn all_packs(&self, objects: &dyn Objects) -> Result<BTreeMap<PackId, (u64, bool)>, StoreError> {
        let mut packs = BTreeMap::new();
        // A state comes behind its pack.
        for listed in objects.list(PACKS, None, usize::MAX).await? {
            let Some((pack, kind)) = listed.name.split_once('.') else { continue };
            let Ok(pack) = pack.parse::<PackId>() else { continue };
            match kind {
                "pack" => drop(packs.insert(pack, (listed.size.unwrap_or(0), false))),
                "state" => drop(packs.entry(pack).and_modify(|(_, has_state)| *has_state = true)),
                _ => {}
            }
        }
        Ok(packs)
    }

    /// What the header of a pack says; `None` if the pack is gone.
    pub(crate) async fn pack_header(&self, objects: &dyn Objects, pack: PackId) -> Result<Option<Known>, StoreError> {
        if let Some(known) = self.index().packs.get(&pack) {
            return Ok(Some(known.clone()));
        }
        let name = name(pack);
        let Some(mut object) = objects.get(&name, Part::Range(0..HEADER)).await? else { return Ok(None) };
        if !object.bytes.contains(&b'\n') && object.size > HEADER {
            let Some(whole) = objects.get(&name, Part::Whole).await? else { return Ok(None) };
            object = whole;
        }
        let header = header(&object.bytes[..line(&object.bytes)], pack)?;
        let known = Known { bytes: header.bytes, ids: header.ids };
        self.learn(pack, known.clone());
        Ok(Some(known))
    }

    /// Takes into the index what was read of a pack.
    pub(crate) fn learn(&self, pack: PackId, known: Known) {
        let mut index = self.index();
        for id in &known.ids {
            let places = index.blobs.entry(*id).or_default();
            if !places.contains(&pack) {
                places.push(pack);
            }
        }
        index.packs.insert(pack, known);
    }

    /// Brings the index up to date, because it doesn't know something.
    async fn look_again(&self, objects: &dyn Objects) -> Result<(), StoreError> {
        if objects.is_remote() {
            return self.follow(objects).await;
        }
        let now = self.all_packs(objects).await?;
        let gone: Vec<PackId> = self.index().packs.keys().filter(|pack| !now.contains_key(pack)).copied().collect();
        gone.into_iter().for_each(|pack| self.index().forget(pack));
        for pack in now.keys() {
            self.pack_header(objects, *pack).await?;
        }
        Ok(())
    }

    /// Whether a pack that the index names is there. A followed index has those too that were deleted.
    async fn is_still_there(&self, objects: &dyn Objects, pack: PackId) -> Result<bool, StoreError> {
        if !objects.is_remote() || self.index().seen.contains(&pack) {
            return Ok(true);
        }
        let is_there = objects.exists(&name(pack)).await?;
        match is_there {
            true => drop(self.index().seen.insert(pack)),
            false => self.index().forget(pack),
        }
        Ok(is_there)
    }

    pub(crate) async fn pack_state(&self, objects: &dyn Objects, pack: PackId) -> Result<PackState, StoreError> {
        let state = read::<StateObject>(objects, &state_name(pack)).await;
        match state {
            // What is left of it says nothing, so the logs have to.
            Err(StoreError::Corrupt { .. }) => Ok(PackState::Abandoned),
            Ok(Some((state, _))) if state.pack != pack => Ok(PackState::Abandoned),
            state => Ok(state?.map_or(PackState::Kept, |(state, _)| state.state())),
        }
    }

    /// Changes the state of a pack. `next` gets what is there, and says whether that is to be written. A state that says
    /// nothing any more is deleted.
    pub(crate) async fn change_state(
        &self,
        objects: &dyn Objects,
        pack: PackId,
        mut next: impl FnMut(&mut StateObject) -> bool,
    ) -> Result<bool, StoreError> {
        let name = state_name(pack);
        let changed = change(objects, &name, Durability::Relaxed, |old: Result<Option<StateObject>, _>| {
            // What a power cut left of it may be torn. Then it has no pins that count.
            let is_torn = old.is_err();
            let mut state = old.ok().flatten().unwrap_or_else(|| StateObject::new(pack));
            let is_changed = next(&mut state);
            Ok(((is_changed || is_torn).then_some(state), is_changed))
        })
        .await?;
        if let Some((state, version)) = read::<StateObject>(objects, &name).await.ok().flatten()
            && state.pins.is_empty()
            && state.condemned.is_none()
            && state.going.is_none()
        {
            objects.delete(&name, Some(&version), Durability::Relaxed).await?;
        }
        Ok(changed)
    }

    /// Pins a pack, whether it is there or not. If a sweeper was deleting it, it is gone afterwards.
    async fn pin_one(&self, objects: &dyn Objects, pack: PackId, pin: Pin) -> Result<(), StoreError> {
        // What a sweeper is deleting goes before the state says that it isn't: later the sweeper finds nothing to delete.
        let mut gone: Option<Version> = None;
        loop {
            let mut going = None;
            self.change_state(objects, pack, |state| {
                going = state.going.clone().filter(|going| gone.as_ref() != Some(going));
                if going.is_some() {
                    return false;
                }
                state.pins.retain(|(owner, _)| *owner != pin.owner.0);
                state.pins.push((pin.owner.0, later(pin.life)));
                (state.condemned, state.going) = (None, None);
                true
            })
            .await?;
            let Some(going) = going else { return Ok(()) };
            self.index().forget(pack);
            objects.delete(&name(pack), Some(&going), Durability::Relaxed).await?;
            gone = Some(going);
        }
    }

    /// A commit is about to rely on packs: until it is there they are pinned.
    pub(crate) async fn take_packs(
        &self,
        objects: &dyn Objects,
        packs: &[PackId],
        owner: Owner,
    ) -> Result<(), StoreError> {
        for pack in packs {
            let mut is_going = false;
            self.change_state(objects, *pack, |state| {
                is_going = state.going.is_some();
                let is_mine = |(other, until): &(u64, Timestamp)| *other == owner.0 && *until > now();
                if is_going || state.condemned.is_none() && state.pins.iter().any(is_mine) {
                    return false;
                }
                state.condemned = None;
                state.pins.retain(|(other, _)| *other != owner.0);
                state.pins.push((owner.0, later(Pin::LIFE)));
                true
            })
            .await?;
            if is_going || !objects.exists(&name(*pack)).await? {
                self.index().forget(*pack);
                return Err(StoreError::PackGone { pack: *pack });
            }
        }
        Ok(())
    }

    /// The commit is there, and the pins of its writer end.
    pub(crate) async fn end_pins(
        &self,
        objects: &dyn Objects,
        packs: &[PackId],
        owner: Owner,
    ) -> Result<(), StoreError> {
        for pack in packs {
            self.change_state(objects, *pack, |state| {
                let before = state.pins.len();
                state.pins.retain(|(other, _)| *other != owner.0);
                state.pins.len() < before
            })
            .await?;
        }
        Ok(())
    }

    /// Condemns a pack unless it is pinned or condemned already.
    pub(crate) async fn condemn_one(
        &self,
        objects: &dyn Objects,
        pack: PackId,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        if !objects.exists(&name(pack)).await? {
            return Ok(false);
        }
        self.change_state(objects, pack, |state| {
            let is_free = state.condemned.is_none() && !state.is_pinned();
            if is_free {
                state.pins.clear();
                state.condemned = Some(at);
            }
            is_free
        })
        .await
    }

    /// Takes a pack off the condemned list, and pins off it that ran out.
    pub(crate) async fn pardon_one(&self, objects: &dyn Objects, pack: PackId) -> Result<(), StoreError> {
        self.change_state(objects, pack, |state| {
            let (pins, was) = (state.pins.len(), state.condemned.is_some() && state.going.is_none());
            state.pins.retain(|(_, until)| *until > now());
            if was {
                state.condemned = None;
            }
            was || state.pins.len() < pins
        })
        .await
        .map(drop)
    }

    /// Deletes a pack if it is condemned since then and not pinned; gives its size.
    pub(crate) async fn sweep_one(
        &self,
        objects: &dyn Objects,
        pack: PackId,
        since: Timestamp,
    ) -> Result<Option<u64>, StoreError> {
        // A pack that is staged again under this name is another object.
        let object = objects.get(&name(pack), Part::Range(0..0)).await?;
        let version = object.as_ref().map(|object| object.version.clone());
        let is_due = self.change_state(objects, pack, |state| {
            let is_due = state.condemned == Some(since) && !state.is_pinned();
            if is_due {
                state.going.clone_from(&version);
                if version.is_none() {
                    // There is nothing to delete.
                    (state.condemned, state.pins) = (None, Vec::new());
                }
            }
            is_due
        });
        let (true, Some(object)) = (is_due.await?, object) else { return Ok(None) };
        self.index().forget(pack);
        let is_deleted = objects.delete(&name(pack), Some(&object.version), Durability::Relaxed).await?;
        // Unless a writer has begun anew with it.
        self.change_state(objects, pack, |state| {
            let is_ours = state.going.as_ref() == Some(&object.version);
            if is_ours {
                (state.condemned, state.going, state.pins) = (None, None, Vec::new());
            }
            is_ours
        })
        .await?;
        Ok(is_deleted.then_some(object.size))
    }
}

#[async_trait]
impl Blobs for ObjectStore {
    async fn stage(&self, id: PackId, pack: Bytes, ids: &[BlobId], pin: Pin) -> Result<(), StoreError> {
        let objects = self.objects()?;
        // First the pin, so the pack is never there without it.
        self.pin_one(objects, id, pin).await?;
        if objects.exists(&name(id)).await? {
            return match objects.is_remote() && !self.index().packs.contains_key(&id) {
                // Whoever created it may have died before it said so.
                true => self.tell_staged(objects, id, pack.len() as u64, ids).await,
                false => Ok(()),
            };
        }
        let (length, content) = (pack.len() as u64, blake3::hash(&pack).to_hex().to_string());
        let header =
            Header { format: FORMAT, pack: id, bytes: length, content, ids: ids.to_vec(), made: Owner::new().0 };
        let mut bytes = checked::seal(&header)?;
        bytes.extend_from_slice(&pack);
        objects.create(&name(id), bytes.into(), Durability::Durable).await?;
        match objects.is_remote() {
            true => self.tell_staged(objects, id, length, ids).await,
            false => Ok(()),
        }
    }

    async fn pin(&self, packs: &[PackId], pin: Pin) -> Result<(), StoreError> {
        let objects = self.objects()?;
        for pack in packs {
            self.pin_one(objects, *pack, pin).await?;
            if !objects.exists(&name(*pack)).await? {
                self.index().forget(*pack);
                self.end_pins(objects, &[*pack], pin.owner).await?;
                return Err(StoreError::PackGone { pack: *pack });
            }
        }
        Ok(())
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        let objects = self.objects()?;
        // Packs don't change, so what is known is listed again only if something isn't.
        let is_known =
            |index: &PackIndex| ids.iter().all(|id| index.blobs.get(id).is_some_and(|places| !places.is_empty()));
        if !is_known(&self.index()) {
            self.look_again(objects).await?;
        }
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            let named = self.index().blobs.get(id).cloned().unwrap_or_default();
            let mut places = Vec::with_capacity(named.len());
            for pack in named {
                if self.is_still_there(objects, pack).await? {
                    places.push(pack);
                }
            }
            let mut place = places.first().copied();
            if places.len() > 1 {
                for pack in places {
                    if !matches!(self.pack_state(objects, pack).await, Ok(PackState::Condemned(_))) {
                        place = Some(pack);
                        break;
                    }
                }
            }
            found.push(place);
        }
        Ok(found)
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        let object = self.objects()?.get(&name(pack), Part::Whole).await?;
        let Some(object) = object else {
            self.index().forget(pack);
            return Err(StoreError::no_pack(pack));
        };
        let end = line(&object.bytes);
        let header = header(&object.bytes[..end], pack)?;
        let bytes = object.bytes.slice(end..);
        if bytes.len() as u64 != header.bytes || blake3::hash(&bytes).to_hex().as_str() != header.content {
            return Err(StoreError::corrupt(what(pack), "its content doesn't fit its checksum"));
        }
        Ok(bytes)
    }
}
