//! What retention, checks and copies need; deleting is in `sweep`.

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::checked::{self, FORMAT};
use piton_store::{
    Defect, Era, Head, PackId, PackInfo, PackState, Reliance, Section, StoreError, Sweep, Swept, Totals, Upkeep,
};
use piton_types::{BlobId, Durability, RunId, Seq, Timestamp};
use serde::{Deserialize, Serialize};

use crate::commit::CommitObject;
use crate::names::{NOTES, escape};
use crate::objects::{Objects, change, read};
use crate::packs::{self, missing, name};
use crate::run::{End, Known, Run};
use crate::segment;
use crate::store::ObjectStore;

/// A note.
#[derive(Serialize, Deserialize)]
struct NoteObject {
    format: u32,
    key: String,
    #[serde(with = "checked::base64")]
    note: Bytes,
}

fn note_name(key: &str) -> String {
    format!("{NOTES}/{}.json", escape(key))
}

impl Run {
    /// Where the log ends, which must be there.
    async fn at_head(&self, objects: &dyn Objects, known: &mut Known, head: Head) -> Result<End, StoreError> {
        let end = self.end(objects, known).await?.end().ok_or_else(|| StoreError::no_run(&self.id))?;
        match end.head == head {
            true => Ok(end),
            false => Err(StoreError::Conflict { run: self.id.clone(), wanted: head.seq, head: Some(end.head) }),
        }
    }
}

#[async_trait]
impl Upkeep for ObjectStore {
    async fn remove(&self, run: &RunId, head: Head) -> Result<(), StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        let mut known = run.known.lock().await;
        let end = run.at_head(objects, &mut known, head).await?;
        let number = end.next();
        let removal = CommitObject::removal(&run.id, end.base, number).encode()?;
        if !objects.create(&run.names.entry(number), removal, Durability::Durable).await? {
            known.end = None;
            let head = run.end(objects, &mut known).await?.end().map(|end| end.head);
            return Err(StoreError::Conflict { run: run.id.clone(), wanted: end.head.seq, head });
        }
        *known = Known::default();
        for name in ["state.json", "history.jsonl", "lease.json"] {
            objects.delete(&run.names.at(name), None, Durability::Relaxed).await?;
        }
        Ok(())
    }

    async fn packs(&self, after: Option<PackId>, limit: usize) -> Result<Vec<PackInfo>, StoreError> {
        let objects = self.objects()?;
        let mut uses = self.uses(objects).await?;
        let mut infos = Vec::new();
        for (pack, marks) in self.marks(objects).await? {
            if infos.len() == limit {
                break;
            }
            if marks.pack.is_none() || after.is_some_and(|after| pack <= after.0) {
                continue;
            }
            let state = self.pack_state(objects, pack, marks).await?;
            // Swept since, perhaps.
            if let Some(known) = self.pack_header(objects, pack).await? {
                let runs = uses.remove(&pack).unwrap_or_default();
                infos.push(PackInfo { id: PackId(pack), state, size: known.bytes, runs });
            }
        }
        Ok(infos)
    }

    async fn pack_ids(&self, pack: PackId) -> Result<Vec<BlobId>, StoreError> {
        let objects = self.objects()?;
        if !objects.exists(&name(pack.0, "pack")).await? {
            return Err(missing(pack.0));
        }
        let mut ids = self.pack_header(objects, pack.0).await?.ok_or_else(|| missing(pack.0))?.ids;
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    async fn rely(&self, run: &RunId, head: Head, reliance: Reliance) -> Result<(), StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        let mut known = run.known.lock().await;
        let end = run.at_head(objects, &mut known, head).await?;
        self.let_rely(objects, &run, end.base, &reliance.also).await?;
        for pack in reliance.no_more {
            objects.delete(&run.names.used(end.base, pack.0), None, Durability::Relaxed).await?;
        }
        Ok(())
    }

    async fn next_era(&self) -> Result<Era, StoreError> {
        self.begin_era(self.objects()?).await
    }

    async fn condemn(&self, packs: &[PackId], at: Timestamp) -> Result<u64, StoreError> {
        let objects = self.objects()?;
        let (marks, uses) = (self.marks(objects).await?, self.uses(objects).await?);
        let mut condemned = Vec::new();
        for PackId(pack) in packs {
            let Some(marks) = marks.get(pack).filter(|marks| marks.pack.is_some()) else { continue };
            let is_free = !uses.contains_key(pack) && self.pack_state(objects, *pack, *marks).await? == PackState::Kept;
            if is_free && self.condemn_pack(objects, *pack, at).await? {
                condemned.push(*pack);
            }
        }
        let mut count = condemned.len() as u64;
        if count > 0 {
            // A run that came to rely on one before it was marked may not have seen the mark.
            let uses = self.uses(objects).await?;
            for pack in condemned.iter().filter(|pack| uses.contains_key(pack)) {
                objects.delete(&name(*pack, "condemned"), None, Durability::Relaxed).await?;
                count -= 1;
            }
        }
        Ok(count)
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        let objects = self.objects()?;
        let mut swept = self.sweep_removed(objects, sweep.bytes).await?;
        self.sweep_packs(objects, sweep, &mut swept).await?;
        Ok(swept)
    }

    async fn note(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        let name = note_name(key);
        match read::<NoteObject>(self.objects()?, &name).await? {
            Some((note, _)) if note.key != key => {
                Err(StoreError::corrupt(name, format!("it is the note {:?}", note.key)))
            }
            note => Ok(note.map(|(note, _)| note.note)),
        }
    }

    async fn set_note(&self, key: &str, note: Option<Bytes>) -> Result<(), StoreError> {
        let (objects, name) = (self.objects()?, note_name(key));
        match note {
            None => objects.delete(&name, None, Durability::Relaxed).await.map(drop),
            Some(note) => {
                let next = || NoteObject { format: FORMAT, key: key.to_owned(), note: note.clone() };
                change(objects, &name, Durability::Durable, |_| Ok((Some(next()), ()))).await
            }
        }
    }

    async fn run_ids(&self) -> Result<Vec<RunId>, StoreError> {
        let objects = self.objects()?;
        let mut runs = Vec::new();
        for id in self.all_runs(objects).await? {
            let run = self.run(&id);
            // A damaged one is there too.
            let end = run.end(objects, &mut *run.known.lock().await).await;
            if !matches!(end, Ok(found) if found.clone().end().is_none()) {
                runs.push(id);
            }
        }
        Ok(runs)
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        let objects = self.objects()?;
        let mut totals = Totals::default();
        for id in self.all_runs(objects).await? {
            let run = self.run(&id);
            let shape = match run.shape(objects, &mut *run.known.lock().await).await {
                // Removed since, or never begun; what is damaged doesn't keep the others from being counted.
                Err(StoreError::NotFound { .. } | StoreError::Corrupt { .. }) => continue,
                other => other?,
            };
            totals.entries += shape.entries().count() as u64;
            totals.entry_bytes += shape.objects.iter().map(|stretch| stretch.size).sum::<u64>();
            totals.segments += shape.segments.len() as u64;
            totals.segment_bytes += shape.segments.iter().map(|(_, size)| size).sum::<u64>();
        }
        for size in self.marks(objects).await?.values().filter_map(|marks| marks.pack) {
            totals.packs += 1;
            totals.pack_bytes += size;
        }
        Ok(totals)
    }

    async fn inspect(&self) -> Result<Vec<Defect>, StoreError> {
        let objects = self.objects()?;
        let mut defects = Vec::new();
        note(self.is_there(objects).await.map(drop), &mut defects)?;
        note(self.current_era(objects).await.map(drop), &mut defects)?;
        for id in self.all_runs(objects).await? {
            self.inspect_run(objects, &self.run(&id), &mut defects).await?;
        }
        for (pack, marks) in self.marks(objects).await? {
            match self.pack_bytes(objects, pack).await {
                Err(StoreError::NotFound { .. }) => {}
                read => note(read.map(drop), &mut defects)?,
            }
            note(self.pack_state(objects, pack, packs::Marks { pin: false, ..marks }).await.map(drop), &mut defects)?;
        }
        for listed in objects.list(NOTES, None, usize::MAX).await? {
            let name = format!("{NOTES}/{}", listed.name);
            note(read::<NoteObject>(objects, &name).await.map(drop), &mut defects)?;
        }
        Ok(defects)
    }
}

impl ObjectStore {
    /// What is wrong with a run's objects.
    async fn inspect_run(&self, objects: &dyn Objects, run: &Run, defects: &mut Vec<Defect>) -> Result<(), StoreError> {
        let shape = match run.shape(objects, &mut *run.known.lock().await).await {
            Ok(shape) => shape,
            // Removed since, or never begun.
            Err(StoreError::NotFound { .. }) => return Ok(()),
            Err(error) => return note(Err(error), defects),
        };
        for missing in shape.missing(&run.id, Seq(0), Seq(u32::MAX)) {
            note(Err(missing), defects)?;
        }
        for stretch in &shape.objects {
            note(run.object(objects, stretch.number).await.map(drop), defects)?;
        }
        for (info, _) in &shape.segments {
            let (name, base) = (run.segment_name(shape.base, *info), shape.base);
            for section in [Section::Entries, Section::Index, Section::Nodes] {
                match segment::read(objects, &name, (&run.id, base, *info), section).await {
                    Err(StoreError::NotFound { .. }) => break,
                    read => note(read.map(drop), defects)?,
                }
            }
        }
        Ok(())
    }
}

/// Damage is noted, other failures end the inspection.
fn note(outcome: Result<(), StoreError>, defects: &mut Vec<Defect>) -> Result<(), StoreError> {
    match outcome {
        Err(StoreError::Corrupt { what, detail }) => defects.push(Defect { what, detail }),
        Err(error @ StoreError::TooNew { .. }) => {
            defects.push(Defect { what: "an object of the store".to_owned(), detail: error.to_string() });
        }
        other => return other,
    }
    Ok(())
}
