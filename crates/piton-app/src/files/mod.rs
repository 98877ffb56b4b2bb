//! What is done with the files of a folder.

pub mod diff;
pub mod drift;
pub mod drift_watch;
pub mod guard;
pub mod ignored;
pub mod lease;
pub mod restore;
pub mod status;
pub mod undo;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use piton_runtime::Context;
use piton_store::{RedactedStore, Redaction, RedactionPolicy, SecretFiles, Store};
use piton_workspace::{Progress, Workspace, WorkspaceError, WorkspaceOptions};

use crate::app::App;
use crate::failure::Failure;
use crate::files::ignored::outer_rules;
use crate::words;

pub use restore::inside;

/// What a snapshot takes in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Capture {
    /// What ignore files hide, too.
    pub include_ignored: bool,
    /// The home folder or the root of the file system is accepted.
    pub force: bool,
    /// Ignore files that suddenly hide most of what was captured hold.
    pub new_rules: bool,
    /// How long to wait for another process that works on the folder; without it, until that process is done.
    pub patience: Option<Duration>,
}

impl Capture {
    /// For a folder that was accepted before.
    pub const ACCEPTED: Self = Self { include_ignored: false, force: true, new_rules: false, patience: None };
}

/// Opens the workspace of the folder. A restore that was cut short is finished first, and said.
pub async fn open(app: &App, store: &Arc<dyn Store>, capture: Capture) -> Result<Workspace, Failure> {
    let workspace = workspace(app, store, capture, false)?;
    if let Some(recovered) = watched(app, async |progress| workspace.recover(&progress).await).await? {
        app.warn(&format!("a restore that was cut short has been finished: {}", recovered.restore));
        for (path, why) in &recovered.left {
            app.warn(&format!("{path} was left as it is: {why}"));
        }
        recovered.rescued.iter().for_each(|one| app.warn(&one.to_string()));
    }
    Ok(workspace)
}

/// The same for a verb that only looks: a restore that was cut short is said, and stays as it is.
pub async fn look(app: &App, store: &Arc<dyn Store>, capture: Capture) -> Result<Workspace, Failure> {
    say_unfinished(app, workspace(app, store, capture, true)?)
}

/// The same for a verb that writes to the log, but not to the folder.
fn unrecovered(app: &App, store: &Arc<dyn Store>, capture: Capture) -> Result<Workspace, Failure> {
    say_unfinished(app, workspace(app, store, capture, false)?)
}

fn say_unfinished(app: &App, workspace: Workspace) -> Result<Workspace, Failure> {
    if workspace.is_unfinished()? {
        app.warn(
            "a restore of this folder was cut short, and some files may be old, others new; `piton save` finishes it",
        );
    }
    Ok(workspace)
}

fn workspace(app: &App, store: &Arc<dyn Store>, capture: Capture, looks: bool) -> Result<Workspace, Failure> {
    let root = &app.surroundings.folder;
    let residence = app.residence();
    let url = store.url();
    let database = url.strip_prefix("sqlite:").or_else(|| url.strip_prefix("file:")).map(PathBuf::from);
    let state = match &database {
        Some(database) => {
            let absolute = std::path::absolute(database).unwrap_or_else(|_| database.clone());
            let mut beside = absolute.into_os_string();
            beside.push("-files");
            PathBuf::from(beside)
                .join(&store.hashing().blob(residence.known_as().as_os_str().as_encoded_bytes()).to_string()[..16])
        }
        None => {
            return Err(Failure::fixable(format!("{url} has no place for what belongs to the files beside it"))
                .hint("name a store with `--store sqlite:PATH`."));
        }
    };
    let mut own: Vec<PathBuf> = database.iter().filter_map(|path| std::path::absolute(path).ok()).collect();
    own.push(root.join(".piton"));
    let options = WorkspaceOptions {
        state,
        own,
        outer: outer_rules(app),
        include_ignored: capture.include_ignored,
        new_rules: capture.new_rules,
        home: app.surroundings.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone())),
        wide: capture.force,
        budget: app.surroundings.budget,
        known_as: Some(residence.known_as().to_owned()),
        before: residence.before().to_vec(),
        looks,
        patience: capture.patience,
    };
    Ok(Workspace::open(&Context::system(watching(app, store)?), root, options)?)
}

/// The store, with an eye on keys and tokens in files if the user wants that.
fn watching(app: &App, store: &Arc<dyn Store>) -> Result<Arc<dyn Store>, Failure> {
    let files = app.surroundings.secrets.unwrap_or(SecretFiles::Capture);
    if files == SecretFiles::Capture {
        return Ok(Arc::clone(store));
    }
    let mut policy = RedactionPolicy::none().with_files(files);
    policy.formats = true;
    let redaction = Redaction::new(&policy)
        .map_err(|error| Failure::internal("the formats of secrets can't be searched for").because(&error))?;
    Ok(Arc::new(RedactedStore::new(Arc::clone(store), Arc::new(redaction))))
}

/// Does something that may take long, and shows how far it has come.
pub async fn watched<T>(
    app: &App,
    work: impl AsyncFnOnce(Arc<Progress>) -> Result<T, WorkspaceError>,
) -> Result<T, Failure> {
    let progress = Arc::new(Progress::default());
    let words = || so_far(&progress);
    Ok(app.showing(words, work(Arc::clone(&progress))).await?)
}

/// How far it has come, in words.
fn so_far(progress: &Progress) -> String {
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (files, written) = (count(&progress.files), count(&progress.written));
    match (progress.waiting.load(Ordering::Relaxed), files, written) {
        (true, _, _) => "waiting for another piton to be done with this folder".to_owned(),
        (_, 0, 0) => "looking at the files".to_owned(),
        (_, _, 0) => format!("{files} files read, {}", words::size(count(&progress.bytes))),
        _ => format!("{files} files read, {written} written"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_what_there_is_to_say() {
        let progress = Progress::default();
        assert_eq!(so_far(&progress), "looking at the files");
        progress.files.store(3, Ordering::Relaxed);
        progress.bytes.store(2_000, Ordering::Relaxed);
        assert_eq!(so_far(&progress), "3 files read, 2.0 KB");
        progress.written.store(2, Ordering::Relaxed);
        assert_eq!(so_far(&progress), "3 files read, 2 written");
        progress.waiting.store(true, Ordering::Relaxed);
        assert!(so_far(&progress).starts_with("waiting for another piton"));
    }
}
