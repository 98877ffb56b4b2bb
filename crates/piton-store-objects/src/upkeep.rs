//! What retention, checks and copies need; deleting is in `sweep`.

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::checked::{self, FORMAT};
use piton_store::{
    Blobs as _, Defect, Head, PackId, PackInfo, PackState, Section, StoreError, Sweep, Swept, Totals, Upkeep,
};
use piton_types::{BlobId, Durability, RunId, Seq, Timestamp};
use serde::{Deserialize, Serialize};

use crate::commit::CommitObject;
use crate::names::{NOTES, escape, unescape};
use crate::objects::{Objects, change, read};
use crate::packs::name;
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
        if objects.is_remote() {
            run.moves(objects, &mut known, Some(&end)).await?;
        }
        let mark = known.mark.map(|(mark, _)| mark);
        let removal = CommitObject::removal(&run.id, end.base, number).encode()?;
        if !objects.create(&run.names.entry(number), removal, Durability::Durable).await? {
            known.end = None;
            let head = run.end(objects, &mut known).await?.end().map(|end| end.head);
            return Err(StoreError::Conflict { run: run.id.clone(), wanted: end.head.seq, head });
        }
        *known = Known::default();
        if let Some(mark) = mark {
            run.is_gone(objects, mark).await?;
        }
        for name in ["state.json", "history.jsonl", "lease.json"] {
            objects.delete(&run.names.at(name), None, Durability::Relaxed).await?;
        }
        Ok(())
    }

    async fn packs(&self, after: Option<PackId>, limit: usize) -> Result<Vec<PackInfo>, StoreError> {
        let objects = self.objects()?;
        let mut infos = Vec::new();
        for (id, (_, has_state)) in self.all_packs(objects).await? {
            if infos.len() == limit {
                break;
            }
            if after.is_some_and(|after| id <= after) {
                continue;
            }
            let state = if has_state { self.pack_state(objects, id).await? } else { PackState::Kept };
            // Swept since, perhaps.
            if let Some(known) = self.pack_header(objects, id).await? {
                infos.push(PackInfo { id, state, size: known.bytes });
            }
        }
        Ok(infos)
    }

    async fn pack_ids(&self, pack: PackId) -> Result<Vec<BlobId>, StoreError> {
        let objects = self.objects()?;
        let missing = || StoreError::no_pack(pack);
        if !objects.exists(&name(pack)).await? {
            return Err(missing());
        }
        let mut ids = self.pack_header(objects, pack).await?.ok_or_else(missing)?.ids;
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    async fn condemn(&self, packs: &[PackId], at: Timestamp) -> Result<u64, StoreError> {
        let objects = self.objects()?;
        let mut count = 0;
        for pack in packs {
            count += u64::from(self.condemn_one(objects, *pack, at).await?);
        }
        Ok(count)
    }

    async fn pardon(&self, packs: &[PackId]) -> Result<(), StoreError> {
        let objects = self.objects()?;
        for pack in packs {
            self.pardon_one(objects, *pack).await?;
        }
        Ok(())
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        let objects = self.objects()?;
        let mut swept = self.sweep_removed(objects, sweep.bytes).await?;
        for (pack, since) in sweep.packs {
            if swept.bytes >= sweep.bytes {
                swept.more = true;
                break;
            }
            if let Some(size) = self.sweep_one(objects, pack, since).await? {
                swept.packs += 1;
                swept.bytes += size;
            }
        }
        Ok(swept)
    }

    async fn notes(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        let objects = self.objects()?;
        let mut notes = Vec::new();
        for listed in objects.list(NOTES, None, usize::MAX).await? {
            let key = listed.name.strip_suffix(".json").and_then(unescape).filter(|key| key.starts_with(prefix));
            if let Some(key) = key
                && let Some(note) = self.note(&key).await?
            {
                notes.push((key, note));
            }
        }
        notes.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(notes)
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
        for (size, _) in self.all_packs(objects).await?.values() {
            totals.packs += 1;
            totals.pack_bytes += size;
        }
        Ok(totals)
    }

    async fn inspect(&self) -> Result<Vec<Defect>, StoreError> {
        let objects = self.objects()?;
        let mut defects = Vec::new();
        note(self.is_there(objects).await.map(drop), &mut defects)?;
        for id in self.all_runs(objects).await? {
            self.inspect_run(objects, &self.run(&id), &mut defects).await?;
        }
        for pack in self.all_packs(objects).await?.into_keys() {
            match self.pack(pack).await {
                Err(StoreError::NotFound { .. }) => {}
                read => note(read.map(drop), &mut defects)?,
            }
            note(self.pack_state(objects, pack).await.map(drop), &mut defects)?;
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
