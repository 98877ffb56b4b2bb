//! Which packs have which blobs, in a place where every look is a call to another machine: `staged/N.json` says it of one
//! pack, numbered from 0 in the order of staging, and `staged.json` of all before a number. A handle reads that one once
//! and follows the numbers, by one call if nothing is new.
//!
//! Invariant: a pack that was staged and not deleted since is in `staged.json` or in a numbered object behind it. What is
//! deleted stays in the index, so an answer from it is looked at before it counts. The newest numbered object is never
//! deleted: a handle that follows sees by a missing number that it has to read the index again.

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use piton_store::checked::{self, FORMAT};
use piton_store::{PackId, StoreError};
use piton_types::{BlobId, Durability};
use serde::{Deserialize, Serialize};

use crate::names::{STAGED, entry_name, number};
use crate::objects::{Objects, Part, Version, change, read};
use crate::packs::Known;
use crate::rows::AT_ONCE;
use crate::store::ObjectStore;

/// What was staged before a number.
const INDEX: &str = "staged.json";

/// So many numbered objects become part of the index, or a sixteenth of all if that is more.
const FOLDED: u64 = 64;

/// What is said of a pack.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Staged {
    pack: PackId,
    bytes: u64,
    /// The ids of its blobs, one behind the other.
    #[serde(with = "checked::base64")]
    ids: Bytes,
}

/// `staged/N.json`.
#[derive(Serialize, Deserialize)]
struct StagedObject {
    format: u32,
    #[serde(flatten)]
    staged: Staged,
}

/// `staged.json`.
#[derive(Serialize, Deserialize)]
struct IndexObject {
    format: u32,
    /// The first number that isn't in it.
    next: u64,
    packs: Vec<Staged>,
}

/// How far a handle has followed.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// The next number; `None` if the index has to be read.
    next: Option<u64>,
    /// How far the index goes.
    folded: u64,
    /// Everything, in the order of the numbers.
    packs: Vec<Staged>,
    version: Option<Version>,
}

impl Staged {
    fn new(pack: PackId, bytes: u64, ids: &[BlobId]) -> Self {
        let ids = ids.iter().flat_map(|id| *id.as_bytes()).collect::<Vec<u8>>();
        Self { pack, bytes, ids: ids.into() }
    }

    fn known(&self) -> Result<Known, StoreError> {
        let ids = self.ids.as_chunks::<32>();
        match ids.1.is_empty() {
            true => Ok(Known { bytes: self.bytes, ids: ids.0.iter().map(|id| BlobId::new(*id)).collect() }),
            false => Err(StoreError::corrupt(INDEX, "a list of blobs is cut off")),
        }
    }
}

impl ObjectStore {
    /// Takes in what was staged since the last look.
    pub(crate) async fn follow(&self, objects: &dyn Objects) -> Result<(), StoreError> {
        self.follow_on(objects, &mut *self.followed.lock().await).await
    }

    async fn follow_on(&self, objects: &dyn Objects, followed: &mut Followed) -> Result<(), StoreError> {
        loop {
            let next = match followed.next {
                Some(next) => next,
                None => {
                    *followed = Followed::default();
                    if let Some((index, version)) = read::<IndexObject>(objects, INDEX).await? {
                        (followed.folded, followed.version) = (index.next, Some(version));
                        for staged in index.packs {
                            self.take_in(followed, staged)?;
                        }
                    }
                    followed.folded
                }
            };
            followed.next = None;
            let before = next.checked_sub(1).map(entry_name);
            let listed = objects.list(STAGED, before.as_deref(), usize::MAX).await?;
            let numbers = listed.iter().filter_map(|listed| number(listed.name.strip_suffix(".json")?));
            let numbers: Vec<u64> = numbers.filter(|number| *number >= next).collect();
            if !numbers.iter().copied().eq(next..next + numbers.len() as u64) {
                continue;
            }
            let read: Vec<Option<Staged>> = futures_util::stream::iter(numbers)
                .map(|number| async move {
                    let found = read::<StagedObject>(objects, &format!("{STAGED}/{}", entry_name(number))).await?;
                    Ok::<_, StoreError>(found.map(|(object, _)| object.staged))
                })
                .buffered(AT_ONCE)
                .try_collect()
                .await?;
            // Folded since the list: then the index has it.
            let Some(read) = read.into_iter().collect::<Option<Vec<_>>>() else { continue };
            let last = next + read.len() as u64;
            for staged in read {
                self.take_in(followed, staged)?;
            }
            followed.next = Some(last);
            return Ok(());
        }
    }

    fn take_in(&self, followed: &mut Followed, staged: Staged) -> Result<(), StoreError> {
        self.learn(staged.pack, staged.known()?);
        followed.packs.push(staged);
        Ok(())
    }

    /// Says of a pack that is there which blobs it has.
    pub(crate) async fn tell_staged(
        &self,
        objects: &dyn Objects,
        pack: PackId,
        bytes: u64,
        ids: &[BlobId],
    ) -> Result<(), StoreError> {
        let mut followed = self.followed.lock().await;
        let staged = Staged::new(pack, bytes, ids);
        loop {
            self.follow_on(objects, &mut followed).await?;
            let number = followed.next.expect("it was followed");
            let name = format!("{STAGED}/{}", entry_name(number));
            let object = checked::seal(&StagedObject { format: FORMAT, staged: staged.clone() })?;
            if !objects.create(&name, object.into(), Durability::Durable).await? {
                continue;
            }
            // Of a slow writer the number may have been used before, and be in the index by now.
            let index = objects.get(INDEX, Part::Range(0..0)).await?.map(|index| index.version);
            if index == followed.version {
                self.take_in(&mut followed, staged)?;
                followed.next = Some(number + 1);
            } else {
                followed.next = None;
                self.follow_on(objects, &mut followed).await?;
                if followed.folded > number {
                    objects.delete(&name, None, Durability::Relaxed).await?;
                    continue;
                }
            }
            if let Err(error) = fold(objects, &mut followed).await {
                tracing::warn!(%error, "the index of staged packs is behind");
            }
            return Ok(());
        }
    }
}

/// Makes what was followed the index, if it is worth it.
async fn fold(objects: &dyn Objects, followed: &mut Followed) -> Result<(), StoreError> {
    let Some(next) = followed.next else { return Ok(()) };
    if next - followed.folded < FOLDED.max(followed.packs.len() as u64 / 16) {
        return Ok(());
    }
    let packs = followed.packs.clone();
    let mut is_ours = false;
    change(objects, INDEX, Durability::Durable, |old: Result<Option<IndexObject>, StoreError>| {
        // Another handle may have done it.
        is_ours = old?.is_none_or(|old| old.next < next);
        Ok((is_ours.then(|| IndexObject { format: FORMAT, next, packs: packs.clone() }), ()))
    })
    .await?;
    // Which version it has now another handle may have decided.
    (followed.folded, followed.version) = (next, None);
    let listed = objects.list(STAGED, None, usize::MAX).await?;
    let old = listed.iter().filter(|listed| *listed.name < *entry_name(next - 1));
    let old: Vec<String> = old.map(|listed| format!("{STAGED}/{}", listed.name)).collect();
    match is_ours {
        true => objects.delete_all(&old, Durability::Relaxed).await,
        false => Ok(()),
    }
}
