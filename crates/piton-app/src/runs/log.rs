//! What happened, newest first. Reads no more than it shows: of a run the newest entries, of a store the newest
//! entries of as few runs as have them.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use piton_log::{RunLog, SealedEntry};
use piton_runtime::Pager;
use piton_store::Store;
use piton_types::Seq;
use piton_workspace::Changed;

use crate::app::App;
use crate::failure::Failure;
use crate::files::{self, Capture, inside, watched};
use crate::references::{Reference, Runs, Target, resolve};
use crate::views::entry::{EntryView, LoggedEntry};
use crate::views::files::{ChangeView, MomentView};
use crate::words::typed;

/// How many entries are read at a time when not all of them count.
const PAGE: usize = 64;

/// What the history of a folder is asked for.
#[derive(Debug, Clone, Default)]
pub struct LogQuery {
    /// Of a run, or of one up to an entry. A text that means none of those may be a path.
    pub of: Option<Reference>,
    /// Only checkpoints in which these paths changed.
    pub paths: Vec<PathBuf>,
    /// Only checkpoints.
    pub checkpoints: bool,
    /// The most that are shown.
    pub limit: usize,
}

/// What happened.
#[derive(Debug)]
pub enum Happened {
    /// Entries.
    Entries(Vec<LoggedEntry>),
    /// Checkpoints in which paths changed.
    Paths(Vec<MomentView>),
}

/// A run, and the entry up to which it is looked at.
pub(super) type Subject = (RunLog, Seq);

/// Whose log is wanted, and the paths that are named. A text that means no run may be a path.
pub(super) async fn subject(
    app: &App,
    store: &Arc<dyn Store>,
    query: &LogQuery,
) -> Result<(Option<Subject>, Vec<PathBuf>), Failure> {
    let mut paths = query.paths.clone();
    let Some(reference) = &query.of else { return Ok((None, paths)) };
    match resolve(app, store, reference).await {
        Ok(Target::Run(log)) => Ok((Some((log, Seq(u32::MAX))), paths)),
        Ok(Target::Entry(log, entry) | Target::Step(log, entry)) => Ok((Some((log, entry.seq)), paths)),
        Ok(Target::Blob(..)) => Err(Failure::usage(format!("{reference} is a value, which has no log"))
            .hint(format!("`piton show {reference}` shows it."))),
        Ok(Target::File(file)) => Err(Failure::usage(format!("{reference} is a file, whose history goes by its path"))
            .hint(format!(
                "`{}` shows the checkpoints that changed it.",
                typed(&["piton", "log", "--", &file.path.to_string()])
            ))),
        Err(unknown) => {
            // `a.rs` could be the beginning of a run's id, and `src/a.rs` a step of one.
            let path = PathBuf::from(reference.to_string());
            if app.path(&path).symlink_metadata().is_err() {
                return Err(unknown);
            }
            paths.push(path);
            Ok((None, paths))
        }
    }
}

/// Finds what happened.
pub async fn log(app: &App, query: LogQuery) -> Result<Happened, Failure> {
    let store = app.look().await?;
    let (of, paths) = subject(app, &store, &query).await?;
    let happened = if paths.is_empty() {
        let found = match of {
            None => of_store(&store, &query).await?,
            Some((log, to)) => of_run(&log, to, &query, |_| true).await?,
        };
        Happened::Entries(found)
    } else {
        Happened::Paths(of_paths(app, &store, &query, of, &paths).await?)
    };
    store.close().await?;
    Ok(happened)
}

/// The newest entries of one run, from `to` back, as long as `wanted` wants more.
async fn of_run(
    log: &RunLog,
    to: Seq,
    query: &LogQuery,
    wanted: impl Fn(&SealedEntry) -> bool,
) -> Result<Vec<LoggedEntry>, Failure> {
    // The entry that removes a checkpoint, or puts the run back to before one, comes after it, and so is met first.
    let (mut pager, mut found, mut removed) = (Pager::new(log), Vec::new(), BTreeSet::new());
    while found.len() < query.limit && pager.cursor().is_some() {
        let is_newer = pager.cursor().is_some_and(|cursor| cursor.next > to);
        let limit = if query.checkpoints || is_newer { PAGE } else { query.limit - found.len() };
        let page = pager.entries(limit).await?;
        let (page, undone): (Vec<_>, Vec<_>) = page.into_iter().map(|past| (past.entry, past.undone)).unzip();
        removed.extend(log.removed_in(&page).await?.checkpoints);
        for (entry, undone) in page.iter().zip(undone).filter(|(entry, _)| entry.seq <= to) {
            if !wanted(entry) {
                return Ok(found);
            }
            if (!query.checkpoints || !entry.parts.is_empty()) && found.len() < query.limit {
                let removed = removed.contains(&entry.seq);
                found.push(LoggedEntry { entry: EntryView::of(log.run(), entry), removed, undone });
            }
        }
    }
    Ok(found)
}

/// The newest entries of all runs.
async fn of_store(store: &Arc<dyn Store>, query: &LogQuery) -> Result<Vec<LoggedEntry>, Failure> {
    let mut newest: Vec<LoggedEntry> = Vec::new();
    let mut runs = Runs::newest_first(Arc::clone(store));
    while let Some(run) = runs.next().await? {
        // The oldest that would still be shown. No entry is newer than its run, and the runs come newest
        // first, so once a run is older than that, all others are.
        let last = newest.get(query.limit.wrapping_sub(1)).map(|last| last.entry.created_at);
        if query.limit == 0 || last.is_some_and(|last| run.updated_at < last) {
            break;
        }
        let log = RunLog::open(Arc::clone(store), &run.id).await?;
        newest.extend(of_run(&log, Seq(u32::MAX), query, |entry| last.is_none_or(|last| entry.at >= last)).await?);
        // Stable: entries of one run stay in their order even if the clock stood still.
        newest.sort_by_key(|logged| Reverse(logged.entry.created_at));
        newest.truncate(query.limit);
    }
    Ok(newest)
}

/// The checkpoints in which a file or folder changed: of all runs in the folder, or of one up to an entry.
async fn of_paths(
    app: &App,
    store: &Arc<dyn Store>,
    query: &LogQuery,
    of: Option<(RunLog, Seq)>,
    paths: &[PathBuf],
) -> Result<Vec<MomentView>, Failure> {
    let workspace = files::look(app, store, Capture::ACCEPTED).await?;
    let paths = paths.iter().map(|path| inside(workspace.root(), &app.path(path))).collect::<Result<Vec<_>, _>>()?;
    let mut history = watched(app, async |_| workspace.history_of(paths).await).await?;
    history.reverse();
    history.retain(|Changed { moment, .. }| {
        of.as_ref().is_none_or(|(log, to)| moment.checkpoint.run == *log.run() && moment.checkpoint.seq <= *to)
    });
    history.truncate(query.limit);
    let views = history.iter().map(|Changed { moment, made_by, changes }| MomentView {
        files: None,
        changes: Some(changes.iter().map(ChangeView::from).collect()),
        ..MomentView::of(moment, made_by)
    });
    Ok(views.collect())
}
