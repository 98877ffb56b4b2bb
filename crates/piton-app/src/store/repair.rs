//! Keeping what is whole of a damaged store: in a new one, beside which the damaged one is set aside.
//!
//! A repair has up to two stages, each with a plan that the shell agrees to: the end of SQLite's WAL behind a damaged
//! place is given up, and what is whole is taken over into a new store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_log::upkeep::{Salvaged, check, salvage_run};
use piton_runtime::SystemRandom;
use piton_runtime::retention::{rules, set_rules};
use piton_store::{EncryptedStore, Store, StoreError};
use piton_store_objects::{FolderOptions, ObjectStore, replace_folder};
use piton_store_sqlite::{DamagedWal, SqliteOptions, SqliteStore, gather};
use piton_types::RunId;
use piton_workspace::SnapshotReach;
use serde::Serialize;

use crate::app::App;
use crate::failure::Failure;
use crate::place::Found;
use crate::plan::Plan;
use crate::views::store::{CheckedView, DefectView};

/// A stage of a repair that the shell must agree to.
pub enum Stage<'a> {
    /// The end of the WAL is given up.
    Wal(&'a WalDamage),
    /// What is whole is taken over into a new store; this is what a check found. The store may have been gathered page by
    /// page because it can't be opened.
    Store {
        /// What was found.
        found: &'a CheckedView,
        /// Whether it was gathered.
        is_gathered: bool,
    },
}

/// Decides whether a repair goes on.
pub trait Consent {
    /// Whether to carry the plan of a stage out.
    fn agrees(&mut self, stage: Stage<'_>, plan: &Plan) -> Result<bool, Failure>;
}

/// What came of a repair.
pub enum Repaired {
    /// Nothing is damaged.
    Whole(CheckedView),
    /// The shell didn't agree, and nothing was done.
    Declined,
    /// It was repaired. If only its WAL was, this is what a check found afterwards.
    Done(RepairedView, Option<CheckedView>),
}

/// A store that was repaired.
#[derive(Debug, Clone, Serialize)]
pub struct RepairedView {
    /// Where it is.
    pub repaired: String,
    /// What isn't as it was.
    pub notes: Vec<String>,
    /// What was damaged in its WAL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defects: Option<Vec<DefectView>>,
    /// How many commits of its WAL were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits_kept: Option<u64>,
    /// How many were given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits_given_up: Option<u64>,
    /// Where the damaged WAL is kept; null if it isn't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_set_aside: Option<Option<String>>,
    /// Where the damaged store is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<String>,
}

/// Repairs the store of the folder. With `dry_run` nothing is done, and the consent is only told the plans.
pub async fn repair(app: &App, deep: bool, dry_run: bool, consent: &mut dyn Consent) -> Result<Repaired, Failure> {
    let Found::Place(place) = app.surroundings.find()? else {
        return Err(Failure::not_found("there is no store here"));
    };
    let damaged = Damaged::at(&place.url)?;
    let (mut wal, mut notes) = (None, Vec::new());
    let free = damaged.free_copy();
    let opened = match damaged.open_or_gather(DamagedWal::Refuse).await? {
        Opened::Wal(found) => {
            if dry_run {
                found.remove_copy(&free)?;
            }
            if !consent.agrees(Stage::Wal(&found), &found.plan())? {
                return Ok(Repaired::Declined);
            }
            let opened = damaged.open_or_gather(DamagedWal::KeepPrefix).await?;
            notes.extend(found.given_up());
            wal = Some(found);
            opened
        }
        opened => opened,
    };
    let (below, is_gathered) = match opened {
        Opened::Store(store) => (store, false),
        Opened::Gathered(store) => (store, true),
        Opened::Wal(wal) => return Err(wal.error().into()),
    };
    let key = match piton_store::is_encrypted(&*below).await? {
        true => Some(app.surroundings.keys.key(app.shell())?),
        false => None,
    };
    let store = app.unlock_with(Arc::clone(&below), key.as_ref()).await?;
    let report = app.through_stores("checking", check(&store, &SnapshotReach, deep)).await?;
    let found = CheckedView::from(&report);
    if found.whole && !is_gathered {
        store.close().await?;
        return Ok(match &wal {
            None => Repaired::Whole(found),
            Some(wal) => Repaired::Done(RepairedView::of(&damaged.path, notes, Some(wal)), Some(found)),
        });
    }
    let (path, new) = (&damaged.path, damaged.beside("-repaired"));
    let mut plan = Plan::new("keep what is whole in a new store");
    plan.line(format!("{} becomes the store", new.display()));
    plan.line(format!("{} and its WAL are kept beside it as .damaged-N", path.display()));
    if !consent.agrees(Stage::Store { found: &found, is_gathered }, &plan)? {
        store.close().await?;
        drop((store, below));
        damaged.clear(&damaged.beside("-gathered"))?;
        return Ok(Repaired::Declined);
    }
    let runs = store.run_ids().await?;
    let (below, store, gathered) = match is_gathered || damaged.is_folder {
        true => (below, store, None),
        false => {
            // A page that leads to others may be damaged, and those be whole: they are found page by page.
            store.close().await?;
            drop((store, below));
            let gathered = damaged.gather()?;
            let below = damaged.open(DamagedWal::Refuse)?;
            let store = app.unlock_with(Arc::clone(&below), key.as_ref()).await?;
            let gathered = match gathered {
                Some(gathered) => app.unlock_with(gathered, key.as_ref()).await.ok(),
                None => None,
            };
            (below, store, gathered)
        }
    };
    let found_again = match &gathered {
        Some(gathered) => gathered.run_ids().await?,
        None => Vec::new(),
    };
    // A run that is whole as it is needs nothing else; what was gathered of the others is at least what is found of them so.
    let source = |run: &RunId| {
        let is_whole = report.runs.iter().any(|found| found.run == *run && found.is_whole());
        gathered.as_ref().filter(|_| !is_whole && found_again.contains(run)).unwrap_or(&store)
    };
    damaged.clear(&new)?;
    let target_below = damaged.create(&new)?;
    let target: Arc<dyn Store> = match &key {
        Some(key) => Arc::new(EncryptedStore::create_like(target_below, &*below, key, Arc::new(SystemRandom)).await?),
        None => target_below,
    };
    let salvaging = async {
        for run in runs {
            let salvaged = salvage_run(source(&run), &target, &run, &SnapshotReach).await?;
            notes.extend(salvaged_line(&salvaged));
        }
        Ok::<_, StoreError>(())
    };
    app.through_stores("keeping what is whole", salvaging).await?;
    match rules(&*store).await {
        Ok(rules) => set_rules(&*target, &rules).await?,
        Err(_) => notes.push("the rules for what is kept are lost: the usual ones hold (`piton gc --help`)".to_owned()),
    }
    target.close().await?;
    store.close().await?;
    if let Some(gathered) = &gathered {
        gathered.close().await?;
    }
    drop((store, below, target, gathered));
    let aside = damaged.replace(&new)?;
    damaged.clear(&damaged.beside("-gathered"))?;
    let view = RepairedView::of(path, notes, wal.as_ref());
    Ok(Repaired::Done(RepairedView { set_aside: Some(aside.to_string_lossy().into_owned()), ..view }, None))
}

impl RepairedView {
    fn of(store: &Path, notes: Vec<String>, wal: Option<&WalDamage>) -> Self {
        Self {
            repaired: store.to_string_lossy().into_owned(),
            notes,
            defects: wal.map(|wal| vec![wal.defect()]),
            commits_kept: wal.map(|wal| wal.before),
            commits_given_up: wal.map(|wal| wal.behind),
            wal_set_aside: wal.map(|wal| wal.copy.as_ref().map(|copy| copy.to_string_lossy().into_owned())),
            set_aside: None,
        }
    }
}

/// What isn't as it was of a run that was taken over.
fn salvaged_line(salvaged: &Salvaged) -> Option<String> {
    let Salvaged { run, entries_to, lost, unread, saved } = salvaged;
    if lost.is_empty() && *unread == 0 && saved.is_none() && entries_to.is_some() {
        return None;
    }
    let to = entries_to.map_or_else(|| "nothing".to_owned(), |seq| format!("entries up to {seq}"));
    let mut line = format!("run {run}: {to} kept, {} checkpoints lost", lost.len());
    if *unread > 0 {
        line.push_str(&format!(", {unread} entries can't be read"));
    }
    match saved.as_ref().map(|(checkpoints, id)| (&checkpoints[..], id)) {
        Some(([seq], id)) => line.push_str(&format!("; the state of {run}@{seq} is in run {id}")),
        Some(([first, .., last], id)) => {
            line.push_str(&format!("; the whole checkpoints from {run}@{first} to {run}@{last} are in run {id}"));
        }
        _ => {}
    }
    Some(line)
}

/// What there is of a store that is to be repaired.
enum Opened {
    /// The store itself.
    Store(Arc<dyn Store>),
    /// It can't be opened; this is what was found of it page by page.
    Gathered(Arc<dyn Store>),
    /// It can be opened once the end of its WAL is given up. Nothing was changed.
    Wal(WalDamage),
}

/// A WAL that a crash left, with commits behind a damaged place.
pub struct WalDamage {
    path: PathBuf,
    /// The commits before the damage.
    before: u64,
    /// Those that can still be read behind it.
    behind: u64,
    /// Where its bytes are kept.
    copy: Option<PathBuf>,
}

impl WalDamage {
    /// What the store says of its WAL; the error again if it is something else that is damaged.
    fn of(error: StoreError) -> Result<Self, StoreError> {
        match error {
            StoreError::DamagedWal { wal, before, behind, copy } => Ok(Self { path: wal, before, behind, copy }),
            other => Err(other),
        }
    }

    fn error(self) -> StoreError {
        StoreError::DamagedWal { wal: self.path, before: self.before, behind: self.behind, copy: self.copy }
    }

    /// The damage.
    pub fn defect(&self) -> DefectView {
        let detail = format!("{} commits are before the damage and {} behind it", self.before, self.behind);
        DefectView { what: self.path.to_string_lossy().into_owned(), detail }
    }

    /// What a repair does about it.
    fn plan(&self) -> Plan {
        let (before, behind) = (self.before, self.behind);
        let mut plan = Plan::new("give up what is behind the damage in the WAL");
        plan.line(format!("{before} commits before the damage are kept, {behind} behind it are given up"));
        let path = self.path.to_string_lossy();
        plan.line(format!("{path} is cut there, and kept as it is beside it as .damaged-N"));
        plan.line("what else is damaged shows then, and is asked about");
        plan
    }

    /// What was given up, and where it is.
    fn given_up(&self) -> Vec<String> {
        let (before, behind) = (self.before, self.behind);
        let mut lines = vec![format!(
            "the WAL was damaged: {before} commits before the damage are kept, {behind} behind it given up"
        )];
        let copy = self.copy.as_ref().map(|copy| format!("the damaged WAL is kept as {}", copy.display()));
        lines.extend(copy);
        lines
    }

    /// Takes the copy away if this look has made it: the WAL itself is still there.
    fn remove_copy(&self, free: &Path) -> Result<(), Failure> {
        match &self.copy {
            Some(copy) if copy.file_name() == free.file_name() => std::fs::remove_file(copy)
                .map_err(|error| Failure::fixable(format!("can't remove {}", copy.display())).because(&error)),
            _ => Ok(()),
        }
    }
}

/// A store that is to be repaired: one file, or a folder of them.
struct Damaged {
    path: PathBuf,
    is_folder: bool,
}

impl Damaged {
    fn at(url: &str) -> Result<Self, Failure> {
        match url.split_once(':') {
            Some(("sqlite", path)) => Ok(Self { path: path.into(), is_folder: false }),
            Some(("file", path)) => Ok(Self { path: path.into(), is_folder: true }),
            _ => Err(Failure::fixable(format!("{url} can't be repaired by piton"))),
        }
    }

    /// The store, or if it can't be opened or doesn't know its runs, what can be found of it otherwise.
    async fn open_or_gather(&self, damaged_wal: DamagedWal) -> Result<Opened, Failure> {
        let error = match self.open(damaged_wal) {
            Ok(store) => match (store.run_ids().await, piton_store::is_encrypted(&*store).await) {
                (Ok(_), Ok(_)) => return Ok(Opened::Store(store)),
                (Err(error), _) | (_, Err(error)) => error,
            },
            Err(error) => match WalDamage::of(error) {
                Ok(wal) => return Ok(Opened::Wal(wal)),
                Err(error) => error,
            },
        };
        if self.is_folder || !matches!(error, StoreError::Corrupt { .. } | StoreError::Invalid { .. }) {
            return Err(error.into());
        }
        match self.gather()? {
            Some(gathered) => Ok(Opened::Gathered(gathered)),
            None => Err(error.into()),
        }
    }

    /// What can be found of the database page by page. Nothing if no page of the file is ours.
    fn gather(&self) -> Result<Option<Arc<dyn Store>>, Failure> {
        let gathered = self.beside("-gathered");
        self.clear(&gathered)?;
        if gather(&self.path, &gathered)? == 0 {
            self.clear(&gathered)?;
            return Ok(None);
        }
        Ok(Some(Arc::new(SqliteStore::open(gathered, SqliteOptions::default().with_create(false))?)))
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        with_suffix(&self.path, suffix)
    }

    /// The name that the next copy of a damaged WAL gets.
    fn free_copy(&self) -> PathBuf {
        let copies = (1_u32..).map(|number| self.beside(&format!("-wal.damaged-{number}")));
        copies.into_iter().find(|copy| copy.symlink_metadata().is_err()).unwrap_or_default()
    }

    fn open(&self, damaged_wal: DamagedWal) -> Result<Arc<dyn Store>, StoreError> {
        if self.is_folder {
            let options = FolderOptions::default().with_create(false).with_salvage(true);
            return Ok(Arc::new(ObjectStore::in_folder(&self.path, &options)?));
        }
        let options = SqliteOptions::default().with_create(false).with_damaged_wal(damaged_wal);
        Ok(Arc::new(SqliteStore::open(&self.path, options)?))
    }

    /// Takes away what a repair that was cut short left at `new`.
    fn clear(&self, new: &Path) -> Result<(), Failure> {
        let fail = |error| Failure::fixable(format!("can't remove {}", new.display())).because(&error);
        if new.is_dir() {
            return std::fs::remove_dir_all(new).map_err(fail);
        }
        for suffix in ["", "-wal", "-shm", "-lock"] {
            match std::fs::remove_file(with_suffix(new, suffix)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
                _ => {}
            }
        }
        Ok(())
    }

    fn create(&self, new: &Path) -> Result<Arc<dyn Store>, StoreError> {
        Ok(match self.is_folder {
            true => Arc::new(ObjectStore::in_folder(new, &FolderOptions::default())?),
            false => Arc::new(SqliteStore::open(new, SqliteOptions::default())?),
        })
    }

    fn replace(&self, new: &Path) -> Result<PathBuf, StoreError> {
        match self.is_folder {
            true => replace_folder(&self.path, new),
            false => piton_store_sqlite::replace(&self.path, new),
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
