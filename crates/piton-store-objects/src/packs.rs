//! Staged packs as objects: `packs/N.pack`, a line of JSON with the ids of its blobs and then the pack as it is.
//!
//! ```text
//! packs/N.pin         staged, and not committed yet
//! packs/N.condemned   since when no run was found to need it
//! packs/N.gone        the number of a deleted pack, so that it isn't used again
//! runs/RUN/uses/N     the run relies on pack N
//! ```
//!
//! A writer notes down that its run relies on a pack, and then looks whether the pack is condemned; the sweeper says in
//! the mark that it is about to delete the pack, and then looks for runs that rely on it. So at least one of them sees
//! the other, and neither needs a lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;

use bytes::Bytes;
use piton_store::checked::{self, FORMAT};
use piton_store::{Era, PackId, PackState, StoreError};
use piton_types::{BlobId, Durability, RunId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::names::{ERA, PACKS, number, numbers};
use crate::objects::{Objects, Part, Version, change, read};
use crate::run::{Found, Run};
use crate::store::ObjectStore;

/// What is read of a pack at first, which mostly has all of its header.
const HEADER: u64 = 64 << 10;

/// The line before a pack.
#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    number: u64,
    bytes: u64,
    content: String,
    ids: Vec<BlobId>,
}

/// `N.condemned`.
#[derive(Serialize, Deserialize)]
struct Mark {
    format: u32,
    number: u64,
    since: Timestamp,
    /// A sweeper is deleting the pack; no run can come to rely on it any more.
    is_going: bool,
}

/// `era.json`.
#[derive(Serialize, Deserialize)]
struct EraObject {
    format: u32,
    era: u64,
}

/// Which blob is in which pack, as far as this handle has read.
#[derive(Debug, Default)]
pub(crate) struct PackIndex {
    pub(crate) packs: BTreeMap<u64, Known>,
    pub(crate) blobs: HashMap<BlobId, PackId>,
}

/// What the header of a pack says.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) bytes: u64,
    pub(crate) ids: Vec<BlobId>,
}

/// The objects of one pack that there are.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Marks {
    /// The size of the pack's object.
    pub(crate) pack: Option<u64>,
    pub(crate) pin: bool,
    pub(crate) condemned: bool,
    pub(crate) gone: bool,
}

/// Which runs rely on which pack.
pub(crate) type Uses = BTreeMap<u64, Vec<RunId>>;

pub(crate) fn name(pack: u64, kind: &str) -> String {
    format!("{PACKS}/{pack:010}.{kind}")
}

pub(crate) fn missing(pack: u64) -> StoreError {
    StoreError::NotFound { what: what(pack) }
}

fn what(pack: u64) -> String {
    format!("staged pack {pack}")
}

/// The object of a pack.
pub(crate) fn encode(number: u64, pack: &[u8], ids: &[BlobId]) -> Result<Bytes, StoreError> {
    let content = blake3::hash(pack).to_hex().to_string();
    let mut bytes =
        checked::seal(&Header { format: FORMAT, number, bytes: pack.len() as u64, content, ids: ids.to_vec() })?;
    bytes.extend_from_slice(pack);
    Ok(bytes.into())
}

/// Where a header ends.
fn line(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1)
}

fn header(bytes: &[u8], number: u64) -> Result<Header, StoreError> {
    let header: Header = checked::open(bytes, || what(number))?;
    match header.number == number {
        true => Ok(header),
        false => Err(StoreError::corrupt(what(number), format!("it is pack {}", header.number))),
    }
}

impl ObjectStore {
    /// Every pack, by what there is of it.
    pub(crate) async fn marks(&self, objects: &dyn Objects) -> Result<BTreeMap<u64, Marks>, StoreError> {
        let mut packs: BTreeMap<u64, Marks> = BTreeMap::new();
        for listed in objects.list(PACKS, None, usize::MAX).await? {
            let Some((pack, kind)) = listed.name.split_once('.') else { continue };
            let Some(pack) = number(pack) else { continue };
            let marks = packs.entry(pack).or_default();
            match kind {
                "pack" => marks.pack = Some(listed.size.unwrap_or(0)),
                "pin" => marks.pin = true,
                "condemned" => marks.condemned = true,
                "gone" => marks.gone = true,
                _ => {}
            }
        }
        Ok(packs)
    }

    /// What the header of a pack says; `None` if the pack is gone.
    pub(crate) async fn pack_header(&self, objects: &dyn Objects, pack: u64) -> Result<Option<Known>, StoreError> {
        if let Some(known) = self.index.lock().unwrap_or_else(PoisonError::into_inner).packs.get(&pack) {
            return Ok(Some(known.clone()));
        }
        let name = name(pack, "pack");
        let Some(mut object) = objects.get(&name, Part::Range(0..HEADER)).await? else { return Ok(None) };
        if line(&object.bytes).is_none() && object.size > HEADER {
            let Some(whole) = objects.get(&name, Part::Whole).await? else { return Ok(None) };
            object = whole;
        }
        let end = line(&object.bytes).unwrap_or(object.bytes.len());
        let header = header(&object.bytes[..end], pack)?;
        let known = Known { bytes: header.bytes, ids: header.ids };
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &known.ids {
            // The newest of several.
            let place = index.blobs.entry(*id).or_insert(PackId(pack));
            *place = (*place).max(PackId(pack));
        }
        index.packs.insert(pack, known.clone());
        Ok(Some(known))
    }

    /// A pack.
    pub(crate) async fn pack_bytes(&self, objects: &dyn Objects, pack: u64) -> Result<Bytes, StoreError> {
        let object = objects.get(&name(pack, "pack"), Part::Whole).await?.ok_or_else(|| missing(pack))?;
        let end = line(&object.bytes).unwrap_or(object.bytes.len());
        let header = header(&object.bytes[..end], pack)?;
        let bytes = object.bytes.slice(end..);
        if bytes.len() as u64 != header.bytes || blake3::hash(&bytes).to_hex().as_str() != header.content {
            return Err(StoreError::corrupt(what(pack), "its content doesn't fit its checksum"));
        }
        Ok(bytes)
    }

    async fn mark(&self, objects: &dyn Objects, pack: u64) -> Result<Option<(Mark, Version)>, StoreError> {
        let name = name(pack, "condemned");
        match read::<Mark>(objects, &name).await? {
            Some((mark, _)) if mark.number != pack => {
                Err(StoreError::corrupt(name, format!("it is the mark of pack {}", mark.number)))
            }
            mark => Ok(mark),
        }
    }

    /// What became of a pack.
    pub(crate) async fn pack_state(
        &self,
        objects: &dyn Objects,
        pack: u64,
        marks: Marks,
    ) -> Result<PackState, StoreError> {
        if marks.pin {
            return Ok(PackState::Pinned);
        }
        let mark = if marks.condemned { self.mark(objects, pack).await? } else { None };
        Ok(mark.map_or(PackState::Kept, |(mark, _)| PackState::Condemned(mark.since)))
    }

    /// Condemns a pack.
    pub(crate) async fn condemn_pack(
        &self,
        objects: &dyn Objects,
        pack: u64,
        since: Timestamp,
    ) -> Result<bool, StoreError> {
        let mark = checked::seal(&Mark { format: FORMAT, number: pack, since, is_going: false })?;
        objects.create(&name(pack, "condemned"), mark.into(), Durability::Durable).await
    }

    /// Says that a pack is about to be deleted; `false` if it isn't condemned any more.
    pub(crate) async fn begin_going(&self, objects: &dyn Objects, pack: u64) -> Result<bool, StoreError> {
        match self.mark(objects, pack).await? {
            None => Ok(false),
            // A sweeper died over it.
            Some((mark, _)) if mark.is_going => Ok(true),
            Some((mark, version)) => {
                let bytes = checked::seal(&Mark { is_going: true, ..mark })?;
                objects.replace(&name(pack, "condemned"), bytes.into(), &version, Durability::Durable).await
            }
        }
    }

    /// Which packs the runs rely on.
    pub(crate) async fn uses(&self, objects: &dyn Objects) -> Result<Uses, StoreError> {
        let mut uses = Uses::new();
        for id in self.all_runs(objects).await? {
            let run = self.run(&id);
            let listed = objects.list(&run.names.at("uses"), None, usize::MAX).await?;
            if listed.is_empty() {
                continue;
            }
            let base = match run.end(objects, &mut *run.known.lock().await).await {
                Ok(Found::Run(end)) => Some(end.base),
                Ok(Found::Free(_)) => continue,
                // Of a damaged run it isn't known; it keeps what it may need.
                Err(StoreError::Corrupt { .. } | StoreError::TooNew { .. }) => None,
                Err(error) => return Err(error),
            };
            for (of, pack) in listed.iter().filter_map(|listed| numbers(&listed.name)) {
                if base.is_none_or(|base| base == of) {
                    uses.entry(pack).or_default().push(id.clone());
                }
            }
        }
        uses.values_mut().for_each(|runs| {
            runs.sort();
            runs.dedup();
        });
        Ok(uses)
    }

    /// Lets a run rely on packs: what is needed is neither pinned nor condemned. `NotFound` if one is gone or going.
    pub(crate) async fn let_rely(
        &self,
        objects: &dyn Objects,
        run: &Run,
        base: u64,
        packs: &[PackId],
    ) -> Result<(), StoreError> {
        for PackId(pack) in packs {
            if !objects.exists(&name(*pack, "pack")).await? {
                return Err(missing(*pack));
            }
        }
        for PackId(pack) in packs {
            objects.create(&run.names.used(base, *pack), Bytes::new(), Durability::Durable).await?;
            loop {
                let Some((mark, version)) = self.mark(objects, *pack).await? else { break };
                if mark.is_going {
                    return Err(missing(*pack));
                }
                if objects.delete(&name(*pack, "condemned"), Some(&version), Durability::Durable).await? {
                    break;
                }
            }
            if !objects.exists(&name(*pack, "pack")).await? {
                return Err(missing(*pack));
            }
            objects.delete(&name(*pack, "pin"), None, Durability::Relaxed).await?;
        }
        Ok(())
    }

    /// Deletes packs that were staged and can't be committed any more: those with a pin, when no handle is open that
    /// could have staged them.
    pub(crate) async fn delete_orphans(&self, objects: &dyn Objects) -> Result<(), StoreError> {
        let pinned = self.marks(objects).await?.into_iter().filter(|(_, marks)| marks.pin);
        let pinned: Vec<u64> = pinned.map(|(pack, _)| pack).collect();
        if pinned.is_empty() {
            return Ok(());
        }
        let uses = self.uses(objects).await?;
        for pack in pinned {
            if !uses.contains_key(&pack) {
                objects.delete(&name(pack, "pack"), None, Durability::Relaxed).await?;
            }
            objects.delete(&name(pack, "pin"), None, Durability::Relaxed).await?;
        }
        Ok(())
    }

    pub(crate) async fn current_era(&self, objects: &dyn Objects) -> Result<Era, StoreError> {
        Ok(Era(read::<EraObject>(objects, ERA).await?.map_or(0, |(era, _)| era.era)))
    }

    pub(crate) async fn begin_era(&self, objects: &dyn Objects) -> Result<Era, StoreError> {
        change(objects, ERA, Durability::Durable, |old: Result<Option<EraObject>, _>| {
            let era = old?.map_or(0, |old| old.era) + 1;
            Ok((Some(EraObject { format: FORMAT, era }), Era(era)))
        })
        .await
    }
}
