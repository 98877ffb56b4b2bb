//! What retention needs: removing runs, and condemning and sweeping packs.
//!
//! ```text
//! runs/NAME/uses/N      the run relies on pack N
//! blobs/N.condemned     since when nobody was found to need pack N
//! blobs/N.gone          the number of a deleted pack, so that it isn't used again
//! removed/              folders of runs that nobody sees any more
//! era.json  notes/      what retention wrote down
//! ```
//!
//! Commits that rely on packs share the lock `upkeep`; whoever changes what may be deleted has it alone. A removed
//! run is one rename away from the others, and everything that it relied on goes with it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{BlobId, RunId, Seq, Timestamp};
use serde::{Deserialize, Serialize};

use super::entry::EntryFile;
use super::log::exists;
use super::names::escape;
use super::run::RunFiles;
use super::{FileStore, disk, segment};
use crate::checked::{self, FORMAT};
use crate::{
    Defect, Era, Head, PackId, PackInfo, PackState, Reliance, Section, StoreError, Sweep, Swept, Totals, Upkeep,
};

#[derive(Serialize, Deserialize)]
struct EraFile {
    format: u32,
    era: u64,
}

#[derive(Serialize, Deserialize)]
struct CondemnedFile {
    format: u32,
    since: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct NoteFile {
    format: u32,
    key: String,
    #[serde(with = "checked::base64")]
    note: Bytes,
}

/// Which runs rely on which pack.
type Uses = BTreeMap<u64, Vec<RunId>>;

impl FileStore {
    fn removed(&self) -> PathBuf {
        self.root.join("removed")
    }

    fn condemned(&self, number: u64) -> PathBuf {
        self.blobs().join(format!("{number}.condemned"))
    }

    fn note_path(&self, key: &str) -> PathBuf {
        self.root.join("notes").join(format!("{}.json", escape(key)))
    }

    /// Locks what may be deleted: shared for a commit that relies on it, alone for changing it.
    pub(crate) fn upkeep_lock(&self, shared: bool) -> Result<File, StoreError> {
        let path = self.root.join("upkeep");
        let file = disk::private().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| StoreError::from_io(&error, &path))?;
        disk::lock(&file, shared, &path)?;
        Ok(file)
    }

    pub(crate) fn current_era(&self) -> Result<Era, StoreError> {
        let path = self.root.join("era.json");
        match disk::read(&path)? {
            None => Ok(Era(0)),
            Some(bytes) => Ok(Era(checked::open::<EraFile>(&bytes, || path.display().to_string())?.era)),
        }
    }

    /// Lets a run rely on packs, durably: what is needed is neither pinned nor condemned. The lock is the caller's.
    pub(crate) fn let_rely(&self, files: &RunFiles, packs: &[PackId]) -> Result<(), StoreError> {
        if let Some(gone) = packs.iter().find(|pack| !exists(&self.pack_path(pack.0))) {
            return Err(StoreError::NotFound { what: format!("staged pack {}", gone.0) });
        }
        let uses = files.uses();
        disk::make_folder(&uses)?;
        for pack in packs {
            let path = uses.join(pack.0.to_string());
            let made = disk::private().write(true).create(true).truncate(false).open(&path);
            made.map_err(|error| StoreError::from_io(&error, &path))?;
        }
        self.disk.sync_folder(&uses)?;
        self.disk.sync_folder(&files.folder)?;
        // Only now: a pack that is neither pinned nor used may be condemned.
        for pack in packs {
            disk::remove(&self.pin(pack.0))?;
            disk::remove(&self.condemned(pack.0))?;
        }
        self.disk.sync_folder(&self.blobs())
    }

    fn uses(&self) -> Result<Uses, StoreError> {
        let mut uses = Uses::new();
        for run in self.run_ids()? {
            let files = self.run(&run);
            for name in disk::names(&files.uses())?.unwrap_or_default() {
                if let Ok(number) = name.parse() {
                    uses.entry(number).or_default().push(run.clone());
                }
            }
        }
        uses.values_mut().for_each(|runs| runs.sort());
        Ok(uses)
    }

    fn pack_state(&self, number: u64) -> Result<PackState, StoreError> {
        if exists(&self.pin(number)) {
            return Ok(PackState::Pinned);
        }
        let path = self.condemned(number);
        match disk::read(&path)? {
            None => Ok(PackState::Kept),
            Some(bytes) => {
                let file: CondemnedFile = checked::open(&bytes, || path.display().to_string())?;
                Ok(PackState::Condemned(file.since))
            }
        }
    }

    /// Checks that the run's log ends there.
    fn at_head(&self, files: &RunFiles, head: Head) -> Result<(), StoreError> {
        let now = files.end(&mut None)?.ok_or_else(|| StoreError::no_run(&files.run))?.head;
        match now == head {
            true => Ok(()),
            false => Err(StoreError::Conflict { run: files.run.clone(), wanted: head.seq, head: Some(now) }),
        }
    }

    /// Deletes the folders of removed runs, until `bytes` are gone; says how many, and whether something is left.
    /// Somebody else may be at it too.
    fn sweep_removed(&self, bytes: u64) -> Result<(u64, bool), StoreError> {
        let gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        let mut freed = 0;
        let names = disk::names(&self.removed())?.unwrap_or_default();
        for name in names.into_iter().filter(|name| name.ends_with(".folder")) {
            let mut folders = vec![self.removed().join(name)];
            while let Some(folder) = folders.last().cloned() {
                let listing = match fs::read_dir(&folder) {
                    Err(error) if gone(&error) => {
                        folders.pop();
                        continue;
                    }
                    listing => listing.map_err(|error| StoreError::from_io(&error, &folder))?,
                };
                let mut below = Vec::new();
                for entry in listing {
                    let entry = entry.map_err(|error| StoreError::from_io(&error, &folder))?;
                    let Ok(data) = entry.metadata() else { continue };
                    if data.is_dir() {
                        below.push(entry.path());
                        continue;
                    }
                    if freed >= bytes {
                        return Ok((freed, true));
                    }
                    disk::remove(&entry.path())?;
                    freed += data.len();
                }
                if below.is_empty() {
                    match fs::remove_dir(&folder) {
                        Err(error) if !gone(&error) => return Err(StoreError::from_io(&error, &folder)),
                        _ => folders.pop(),
                    };
                } else {
                    folders.extend(below);
                }
            }
        }
        Ok((freed, false))
    }

    /// Deletes a pack, if it may still be: somebody may have come to rely on it since it was listed.
    fn sweep_pack(&self, number: u64, before: Timestamp) -> Result<Option<u64>, StoreError> {
        let _lock = self.upkeep_lock(false)?;
        let due = matches!(self.pack_state(number)?, PackState::Condemned(since) if since < before);
        if !due || self.uses()?.contains_key(&number) {
            return Ok(None);
        }
        let path = self.pack_path(number);
        let size = path.symlink_metadata().map_or(0, |data| data.len());
        let gone = self.blobs().join(format!("{number}.gone"));
        let made = disk::private().write(true).create(true).truncate(false).open(&gone);
        made.map_err(|error| StoreError::from_io(&error, &gone))?;
        // The data before what says that it may go: killed in between, the next sweep goes on here.
        disk::remove(&path)?;
        disk::remove(&self.condemned(number))?;
        // Of the numbers that are gone the largest is enough.
        for earlier in self.pack_numbers(".gone")? {
            if earlier < number {
                disk::remove(&self.blobs().join(format!("{earlier}.gone")))?;
            }
        }
        Ok(Some(size))
    }

    /// What is wrong with a run's files.
    fn inspect_run(&self, run: &RunId, defects: &mut Vec<Defect>) -> Result<(), StoreError> {
        let files = self.run(run);
        let shape = match files.shape() {
            Ok(shape) => shape,
            // Removed since, or never begun.
            Err(StoreError::NotFound { .. }) => return Ok(()),
            Err(error) => return note(Err(error), defects),
        };
        for missing in shape.missing(run, Seq(0), Seq(u32::MAX)) {
            note(Err(missing), defects)?;
        }
        for seq in shape.entries {
            let read = disk::read(&files.entry(seq)).and_then(|bytes| match bytes {
                Some(bytes) => EntryFile::decode(&bytes, run, seq).map(drop),
                None => Ok(()),
            });
            note(read, defects)?;
        }
        for info in shape.segments {
            for section in [Section::Entries, Section::Index, Section::Nodes] {
                match segment::read(&files.segment(info), run, info, section) {
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
            defects.push(Defect { what: "a file of the store".to_owned(), detail: error.to_string() });
        }
        other => return other,
    }
    Ok(())
}

#[async_trait]
impl Upkeep for FileStore {
    async fn remove(&self, run: &RunId, head: Head) -> Result<(), StoreError> {
        self.writable()?;
        let _upkeep = self.upkeep_lock(false)?;
        let files = self.run(run);
        let mut known = files.turn();
        let locked = files.lock(&mut known, false)?.ok_or_else(|| StoreError::no_run(run))?;
        self.at_head(&files, head)?;
        disk::make_folder(&self.removed())?;
        // Under a name that was never used: that of a file which is made and removed for it.
        let place = self.disk.temporary(&self.removed(), "run", &[])?;
        let target = place.path.with_extension("folder");
        fs::rename(&files.folder, &target).map_err(|error| StoreError::from_io(&error, &files.folder))?;
        *locked.end = None;
        *locked.told = false;
        self.disk.sync_folder(&self.runs())
    }

    async fn packs(&self, after: Option<PackId>, limit: usize) -> Result<Vec<PackInfo>, StoreError> {
        self.open_for_reading()?;
        let mut uses = self.uses()?;
        let numbers = self.pack_numbers(".pack")?.into_iter();
        let behind = numbers.filter(|number| after.is_none_or(|after| *number > after.0));
        let mut infos = Vec::new();
        for number in behind.take(limit) {
            let state = self.pack_state(number)?;
            let runs = uses.remove(&number).unwrap_or_default();
            // Swept since, perhaps.
            if let Some((header, _)) = self.header(number)? {
                infos.push(PackInfo { id: PackId(number), state, size: header.bytes, runs });
            }
        }
        Ok(infos)
    }

    async fn pack_ids(&self, pack: PackId) -> Result<Vec<BlobId>, StoreError> {
        self.open_for_reading()?;
        let missing = || StoreError::NotFound { what: format!("staged pack {}", pack.0) };
        let mut ids = self.header(pack.0)?.ok_or_else(missing)?.0.ids;
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    async fn rely(&self, run: &RunId, head: Head, reliance: Reliance) -> Result<(), StoreError> {
        self.writable()?;
        let _upkeep = self.upkeep_lock(false)?;
        let files = self.run(run);
        let mut known = files.turn();
        let _lock = files.lock(&mut known, true)?.ok_or_else(|| StoreError::no_run(run))?;
        self.at_head(&files, head)?;
        if !reliance.also.is_empty() {
            self.let_rely(&files, &reliance.also)?;
        }
        reliance.no_more.iter().try_for_each(|pack| disk::remove(&files.uses().join(pack.0.to_string())))
    }

    async fn next_era(&self) -> Result<Era, StoreError> {
        self.writable()?;
        let _lock = self.upkeep_lock(false)?;
        let era = self.current_era()?.0 + 1;
        let bytes = checked::seal(&EraFile { format: FORMAT, era })?;
        self.disk.replace(&self.scratch(), &self.root.join("era.json"), &[&bytes], true)?;
        Ok(Era(era))
    }

    async fn condemn(&self, packs: &[PackId], at: Timestamp) -> Result<u64, StoreError> {
        self.writable()?;
        let _lock = self.upkeep_lock(false)?;
        let uses = self.uses()?;
        let bytes = checked::seal(&CondemnedFile { format: FORMAT, since: at })?;
        let mut condemned = 0;
        for pack in packs {
            let there = exists(&self.pack_path(pack.0));
            if there && self.pack_state(pack.0)? == PackState::Kept && !uses.contains_key(&pack.0) {
                self.disk.replace(&self.scratch(), &self.condemned(pack.0), &[&bytes], false)?;
                condemned += 1;
            }
        }
        Ok(condemned)
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        self.writable()?;
        let (bytes, more) = self.sweep_removed(sweep.bytes)?;
        let mut swept = Swept { packs: 0, bytes, more };
        for number in self.pack_numbers(".condemned")? {
            if swept.bytes >= sweep.bytes {
                let due = |state| matches!(state, PackState::Condemned(since) if since < sweep.before);
                swept.more = swept.more || self.pack_state(number).is_ok_and(due);
                continue;
            }
            if let Some(size) = self.sweep_pack(number, sweep.before)? {
                swept.packs += 1;
                swept.bytes += size;
            }
        }
        Ok(swept)
    }

    async fn note(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.open_for_reading()?;
        let path = self.note_path(key);
        let Some(bytes) = disk::read(&path)? else { return Ok(None) };
        let what = || path.display().to_string();
        let file: NoteFile = checked::open(&bytes, what)?;
        match file.key == key {
            true => Ok(Some(file.note)),
            false => Err(StoreError::corrupt(what(), format!("it is the note {:?}", file.key))),
        }
    }

    async fn set_note(&self, key: &str, note: Option<Bytes>) -> Result<(), StoreError> {
        self.writable()?;
        let path = self.note_path(key);
        let Some(note) = note else { return disk::remove(&path) };
        disk::make_folder(&self.root.join("notes"))?;
        let bytes = checked::seal(&NoteFile { format: FORMAT, key: key.to_owned(), note })?;
        self.disk.replace(&self.scratch(), &path, &[&bytes], true)
    }

    async fn run_ids(&self) -> Result<Vec<RunId>, StoreError> {
        self.open_for_reading()?;
        let mut runs = Self::run_ids(self)?;
        // Of a run that was being created when its maker died there is nothing but folders.
        runs.retain(|run| !matches!(self.run(run).shape(), Err(StoreError::NotFound { .. })));
        runs.sort();
        Ok(runs)
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        self.open_for_reading()?;
        let mut totals = Totals::default();
        let size = |path: PathBuf| path.symlink_metadata().map_or(0, |data| data.len());
        for run in self.run_ids()? {
            let files = self.run(&run);
            let shape = match files.shape() {
                // Removed since, or never begun; what is damaged can still be counted by the others.
                Err(StoreError::NotFound { .. } | StoreError::Corrupt { .. }) => continue,
                other => other?,
            };
            totals.entries += shape.entries.len() as u64;
            totals.entry_bytes += shape.entries.iter().map(|seq| size(files.entry(*seq))).sum::<u64>();
            totals.segments += shape.segments.len() as u64;
            totals.segment_bytes += shape.segments.iter().map(|info| size(files.segment(*info))).sum::<u64>();
        }
        let packs = self.pack_numbers(".pack")?;
        totals.packs = packs.len() as u64;
        totals.pack_bytes = packs.into_iter().map(|number| size(self.pack_path(number))).sum();
        Ok(totals)
    }

    async fn inspect(&self) -> Result<Vec<Defect>, StoreError> {
        self.open_for_reading()?;
        let mut defects = Vec::new();
        note(self.is_there().map(drop), &mut defects)?;
        note(self.current_era().map(drop), &mut defects)?;
        for run in self.run_ids()? {
            self.inspect_run(&run, &mut defects)?;
        }
        for number in self.pack_numbers(".pack")? {
            match crate::Blobs::pack(self, PackId(number)).await {
                Err(StoreError::NotFound { .. }) => {}
                read => note(read.map(drop), &mut defects)?,
            }
            note(self.pack_state(number).map(drop), &mut defects)?;
        }
        for name in disk::names(&self.root.join("notes"))?.unwrap_or_default() {
            let path = self.root.join("notes").join(&name);
            let read = disk::read(&path).and_then(|bytes| match bytes {
                Some(bytes) => checked::open::<NoteFile>(&bytes, || path.display().to_string()).map(drop),
                None => Ok(()),
            });
            note(read, &mut defects)?;
        }
        Ok(defects)
    }
}
