//! `piton check`: finds damage and what it affects; for one checkpoint, the report of what going on from it needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton::recovery::{validate, whole_at};
use piton::retention::{rules, set_rules};
use piton::upkeep::{CheckReport, RunReport, Salvaged, Sizes, check, check_run, salvage_run};
use piton::workspace::SnapshotReach;
use piton::{DamagedWal, SqliteOptions, SqliteStore, SystemRandom, gather_damaged, replace_damaged};
use piton_store::{EncryptedStore, Store, StoreError};
use piton_store_objects::{FolderOptions, ObjectStore, replace_folder};
use piton_types::{CheckpointRef, Timestamp};
use serde_json::{Value as Json, json};

use crate::arguments::store::Check;
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table;
use piton_app::Plan;
use piton_app::place::Found;
use piton_app::references::Reference;
use piton_app::references::run_id;
use piton_app::store::check::SIZES;

/// How many of a kind are named.
const NAMED: usize = 20;

pub(crate) async fn execute(session: &Session, arguments: &Check) -> Result<Exit, Failure> {
    if arguments.repair {
        return repair(session, arguments).await;
    }
    let store = session.store().await?;
    let exit = match &arguments.reference {
        None => {
            let checking = check(&store, &SnapshotReach, arguments.deep);
            let report = session.through_stores("checking", checking).await?;
            note_sizes(session, &store, &report).await?;
            show(session, &report)?;
            if report.is_whole() { Exit::Done } else { Exit::UserFixable }
        }
        Some(Reference::Run(prefix)) => {
            let run = run_id(&store, prefix).await?;
            let checking = check_run(&store, &run, &SnapshotReach);
            let report = session.through_stores("checking", checking).await?;
            let whole = report.is_whole();
            show(session, &CheckReport { runs: vec![report], ..CheckReport::default() })?;
            if whole { Exit::Done } else { Exit::UserFixable }
        }
        Some(reference) => {
            let checkpoint = checkpoint(session, &store, reference).await?;
            let search = whole_at(&store, &checkpoint).await?;
            let report = validate(&search, &session.environment()).await;
            let sound = report.is_sound() && search.whole.is_some();
            if session.output.is_json() {
                session.output.object(&json!({"checkpoint": checkpoint.to_string(), "sound": sound, "checks": report.checks, "findings": report.findings}))?;
            } else {
                let text = report.to_string();
                session.output.data(&text.lines().map(clean).collect::<Vec<_>>().join("\n"))?;
            }
            if sound { Exit::Done } else { Exit::UserFixable }
        }
    };
    store.close().await?;
    Ok(exit)
}

/// Writes down what deduplication and compression are worth: to find that out, everything has to be read.
async fn note_sizes(session: &Session, store: &Arc<dyn Store>, report: &CheckReport) -> Result<(), Failure> {
    if !report.is_whole() || !store.capabilities().upkeep {
        return Ok(());
    }
    let totals = store.totals().await?;
    let stored = totals.entry_bytes + totals.segment_bytes + totals.pack_bytes;
    let note = sizes_json(report.sizes, stored, session.now());
    match store.set_note(SIZES, Some(note.to_string().into())).await {
        // A store that can only be read, for whatever reason, is checked all the same.
        Err(StoreError::ReadOnly { .. } | StoreError::Full { .. } | StoreError::Poisoned { .. }) => Ok(()),
        other => Ok(other?),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn sizes_json(sizes: Sizes, stored: u64, now: Timestamp) -> Json {
    let ratio = |a: u64, b: u64| (b > 0).then(|| (a as f64 / b as f64 * 100.0).round() / 100.0);
    json!({
        "counted_at": now.to_string(),
        "logical": sizes.logical,
        "unique": sizes.unique,
        "stored": stored,
        "deduplication": ratio(sizes.logical, sizes.unique),
        "compression": ratio(sizes.unique, stored),
    })
}

/// A checkpoint by its name. It may be damaged, so its entry isn't looked at for a plain number.
async fn checkpoint(
    session: &Session,
    store: &Arc<dyn Store>,
    reference: &Reference,
) -> Result<CheckpointRef, Failure> {
    if let Reference::Entry { run, seq } = reference {
        return Ok(CheckpointRef { run: run_id(store, run).await?, seq: *seq });
    }
    let (log, entry) = piton_app::references::resolve_checkpoint(session, store, reference).await?;
    Ok(CheckpointRef { run: log.run().clone(), seq: entry.seq })
}

fn show(session: &Session, report: &CheckReport) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        return output.object(&json!({
            "whole": report.is_whole(),
            "defects": report.defects.iter().map(|defect| json!({"what": defect.what, "detail": defect.detail})).collect::<Vec<_>>(),
            "packs": report.packs.iter().map(|(pack, defect)| json!({"pack": pack.0, "detail": defect.detail})).collect::<Vec<_>>(),
            "runs": report.runs.iter().map(run_json).collect::<Vec<_>>(),
        }));
    }
    let mut lines = Vec::new();
    for defect in report.defects.iter().take(NAMED) {
        lines.push(format!("damaged: {}: {}", clean(&defect.what), clean(&defect.detail)));
    }
    for (_, defect) in report.packs.iter().take(NAMED) {
        lines.push(format!("damaged: {}: {}", clean(&defect.what), clean(&defect.detail)));
    }
    for run in report.runs.iter().filter(|run| !run.is_whole()) {
        lines.extend(run_lines(run));
    }
    let (entries, whole): (u64, u64) =
        report.runs.iter().fold((0, 0), |(entries, whole), run| (entries + run.entries, whole + run.whole));
    let verdict = if report.is_whole() { "all well" } else { "damaged" };
    lines.push(format!(
        "{verdict}: {} runs, {entries} entries, {whole} whole checkpoints, {} of files",
        report.runs.len(),
        table::size(report.pack_bytes)
    ));
    output.data(&lines.join("\n"))?;
    if !report.is_whole() {
        output.note("`piton check --repair` keeps what is whole in a new store and sets this one aside");
    }
    Ok(())
}

fn run_lines(run: &RunReport) -> Vec<String> {
    let mut lines = vec![format!("run {}: {} whole checkpoints", run.run, run.whole)];
    for defect in run.defects.iter().take(NAMED) {
        lines.push(format!("  {}: {}", clean(&defect.what), clean(&defect.detail)));
    }
    for damaged in run.damaged.iter().take(NAMED) {
        lines.push(format!("  {}@{} can't be read whole: {}", run.run, damaged.seq, clean(&damaged.parts.join(", "))));
        lines.extend(damaged.files.iter().take(NAMED).map(|file| format!("    {}", clean(file))));
    }
    if run.damaged.len() > NAMED {
        lines.push(format!("  … and {} more checkpoints", run.damaged.len() - NAMED));
    }
    lines.push(match run.newest_whole {
        Some(seq) => format!("  the newest whole checkpoint is {}@{seq}", run.run),
        None => "  no checkpoint is whole".to_owned(),
    });
    lines
}

fn run_json(run: &RunReport) -> Json {
    json!({
        "run": run.run.as_str(),
        "whole": run.is_whole(),
        "entries": run.entries,
        "checkpoints": run.whole,
        "removed": run.removed,
        "newest_whole": run.newest_whole.map(|seq| format!("{}@{seq}", run.run)),
        "defects": run.defects.iter().map(|defect| json!({"what": defect.what, "detail": defect.detail})).collect::<Vec<_>>(),
        "damaged": run.damaged.iter().map(|damaged| json!({
            "checkpoint": format!("{}@{}", run.run, damaged.seq), "parts": damaged.parts, "files": damaged.files,
        })).collect::<Vec<_>>(),
    })
}

async fn repair(session: &Session, arguments: &Check) -> Result<Exit, Failure> {
    let Found::Place(place) = session.surroundings.find()? else {
        return Err(Failure::fixable("there is no store here"));
    };
    let damaged = Damaged::at(&place.url)?;
    let (mut log, mut said) = (None, Vec::new());
    let free = damaged.free_copy();
    let opened = match damaged.open_or_gather(DamagedWal::Refuse).await? {
        Opened::Log(found) => {
            if arguments.consent.dry_run {
                found.remove_copy(&free)?;
                found.tell(session)?;
                return Ok(Exit::UserFixable);
            }
            if !agreed(&found.plan(session)?, session, arguments.consent)? {
                return Ok(Exit::Done);
            }
            let opened = damaged.open_or_gather(DamagedWal::KeepPrefix).await?;
            said.extend(found.given_up());
            log = Some(found);
            opened
        }
        opened => opened,
    };
    let (below, is_gathered) = match opened {
        Opened::Store(store) => (store, false),
        Opened::Gathered(store) => (store, true),
        Opened::Log(log) => return Err(log.error().into()),
    };
    let key = match piton_store::is_encrypted(&*below).await? {
        true => Some(session.surroundings.keys.key(session.shell())?),
        false => None,
    };
    let store = session.unlock_with(Arc::clone(&below), key.as_ref()).await?;
    let checking = check(&store, &SnapshotReach, arguments.deep);
    let report = session.through_stores("checking", checking).await?;
    if report.is_whole() && !is_gathered {
        store.close().await?;
        match &log {
            None => show(session, &report)?,
            Some(log) if session.output.is_json() => session.output.object(&log.repaired_json(&damaged.path, &said))?,
            Some(_) => {
                session.output.data(&said.join("\n"))?;
                show(session, &report)?;
            }
        }
        return Ok(Exit::Done);
    }
    if is_gathered {
        session.output.note("the store can't be opened as it is: this is what was found of it, page by page");
    }
    if !session.output.is_json() {
        show(session, &report)?;
    }
    let (path, new) = (&damaged.path, damaged.beside("-repaired"));
    let mut plan = Plan::new("keep what is whole in a new store");
    plan.line(format!("{} becomes the store", new.display()));
    plan.line(format!("{} and its log are kept beside it as .damaged-N", path.display()));
    if !agreed(&plan, session, arguments.consent)? {
        store.close().await?;
        drop((store, below));
        damaged.clear(&damaged.beside("-gathered"))?;
        // What was asked for is whether it is damaged.
        return Ok(if arguments.consent.dry_run { Exit::UserFixable } else { Exit::Done });
    }
    let runs = store.run_ids().await?;
    damaged.clear(&new)?;
    let target_below = damaged.create(&new)?;
    let target: Arc<dyn Store> = match &key {
        Some(key) => Arc::new(EncryptedStore::create_like(target_below, &*below, key, Arc::new(SystemRandom)).await?),
        None => target_below,
    };
    let salvaging = async {
        for run in runs {
            let salvaged = salvage_run(&store, &target, &run, &SnapshotReach).await?;
            said.extend(salvaged_line(&salvaged));
        }
        Ok::<_, StoreError>(())
    };
    session.through_stores("keeping what is whole", salvaging).await?;
    match rules(&*store).await {
        Ok(rules) => set_rules(&*target, &rules).await?,
        Err(_) => said.push("the rules for what is kept are lost: the usual ones hold (`piton gc --help`)".to_owned()),
    }
    target.close().await?;
    store.close().await?;
    drop((store, below, target));
    let aside = damaged.replace(&new)?;
    damaged.clear(&damaged.beside("-gathered"))?;
    if session.output.is_json() {
        let mut object = match &log {
            Some(log) => log.repaired_json(path, &said),
            None => json!({"repaired": path.to_string_lossy(), "notes": said}),
        };
        object["set_aside"] = json!(aside.to_string_lossy());
        session.output.object(&object)?;
    } else {
        said.push(format!("the damaged store is kept as {}", aside.display()));
        session.output.data(&said.join("\n"))?;
    }
    Ok(Exit::Done)
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
    /// It can be opened once the end of its log is given up. Nothing was changed.
    Log(DamagedLog),
}

/// A log that a crash left, with commits behind a damaged place.
struct DamagedLog {
    path: PathBuf,
    /// The commits before the damage.
    before: u64,
    /// Those that can still be read behind it.
    behind: u64,
    /// Where its bytes are kept.
    copy: Option<PathBuf>,
}

impl DamagedLog {
    /// What the store says of its log; the error again if it is something else that is damaged.
    fn of(error: StoreError) -> Result<Self, StoreError> {
        match error {
            StoreError::DamagedLog { log, before, behind, copy } => Ok(Self { path: log, before, behind, copy }),
            other => Err(other),
        }
    }

    fn error(self) -> StoreError {
        StoreError::DamagedLog { log: self.path, before: self.before, behind: self.behind, copy: self.copy }
    }

    /// How many commits are before and behind the damage, in words.
    fn detail(&self) -> String {
        format!("{} commits are before the damage and {} behind it", self.before, self.behind)
    }

    fn defects(&self) -> Json {
        json!([{"what": self.path.to_string_lossy(), "detail": self.detail()}])
    }

    /// What a repair does, and what that entails.
    fn entails(&self) -> (&'static str, Vec<String>) {
        let (before, behind) = (self.before, self.behind);
        let counted = format!("{before} commits before the damage are kept, {behind} behind it are given up");
        let path = clean(&self.path.to_string_lossy());
        let cut = format!("{path} is cut there, and kept as it is beside it as .damaged-N");
        let rest = "what else is damaged shows then, and is asked about".to_owned();
        ("give up what is behind the damage in the log", vec![counted, cut, rest])
    }

    /// The plan of a repair, once the damage is said.
    fn plan(&self, session: &Session) -> Result<Plan, Failure> {
        if !session.output.is_json() {
            session.output.data(&self.line())?;
        }
        let (what, lines) = self.entails();
        let mut plan = Plan::new(what);
        lines.into_iter().for_each(|line| plan.line(line));
        Ok(plan)
    }

    /// The damage and what a repair would do about it.
    fn tell(&self, session: &Session) -> Result<(), Failure> {
        let (what, lines) = self.entails();
        if session.output.is_json() {
            session.output.object(&json!({
                "whole": false,
                "defects": self.defects(),
                "plan": what,
                "entails": lines,
                "done": false,
            }))?;
        } else {
            session.output.data(&format!("{}\n{what}\n  {}", self.line(), lines.join("\n  ")))?;
        }
        session.output.note("nothing was done");
        Ok(())
    }

    fn line(&self) -> String {
        format!("damaged: {}: {}", clean(&self.path.to_string_lossy()), self.detail())
    }

    /// What was given up, and where it is.
    fn given_up(&self) -> Vec<String> {
        let (before, behind) = (self.before, self.behind);
        let mut lines = vec![format!(
            "the log was damaged: {before} commits before the damage are kept, {behind} behind it given up"
        )];
        let copy = self.copy.as_ref().map(|copy| format!("the damaged log is kept as {}", copy.display()));
        lines.extend(copy);
        lines
    }

    fn repaired_json(&self, store: &Path, notes: &[String]) -> Json {
        json!({
            "repaired": store.to_string_lossy(),
            "defects": self.defects(),
            "commits_kept": self.before,
            "commits_given_up": self.behind,
            "log_set_aside": self.copy.as_ref().map(|copy| copy.to_string_lossy()),
            "notes": notes,
        })
    }

    /// Takes the copy away if this look has made it: the log itself is still there.
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
            Ok(store) => match store.run_ids().await {
                Ok(_) => return Ok(Opened::Store(store)),
                Err(error) => error,
            },
            Err(error) => match DamagedLog::of(error) {
                Ok(log) => return Ok(Opened::Log(log)),
                Err(error) => error,
            },
        };
        if self.is_folder || !matches!(error, StoreError::Corrupt { .. } | StoreError::Invalid { .. }) {
            return Err(error.into());
        }
        let gathered = self.beside("-gathered");
        self.clear(&gathered)?;
        // A file of which no page is ours is no store of ours.
        if gather_damaged(&self.path, &gathered)? == 0 {
            self.clear(&gathered)?;
            return Err(error.into());
        }
        let options = SqliteOptions::default().with_create(false);
        Ok(Opened::Gathered(Arc::new(SqliteStore::open(gathered, options)?)))
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        with_suffix(&self.path, suffix)
    }

    /// The name that the next copy of a damaged log gets.
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
            false => replace_damaged(&self.path, new),
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
