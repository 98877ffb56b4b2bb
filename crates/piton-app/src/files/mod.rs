//! What is done with the files of a folder.

pub mod bring;
pub mod diff;
pub mod drift;
pub mod drift_watch;
pub mod guard;
pub mod ignored;
pub mod lease;
mod outlive;
pub mod restore;
pub mod status;
pub mod undo;
pub mod unprotected;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use piton_runtime::Context;
use piton_store::{Hashing, RedactedStore, Redaction, RedactionPolicy, SecretFiles, Store};
use piton_workspace::{Progress, Workspace, WorkspaceError, WorkspaceOptions};

use crate::app::App;
use crate::failure::Failure;
use crate::files::ignored::outer_rules;
use crate::place::is_shared;
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
    /// Files that look as if they had secrets in them are named, unless the user has said what becomes of such files.
    pub names_secrets: bool,
}

impl Capture {
    /// For a folder that was accepted before.
    pub const ACCEPTED: Self =
        Self { include_ignored: false, force: true, new_rules: false, patience: None, names_secrets: false };
}

/// Makes the store of the folder if there is none, unless the folder may not be captured: a refusal leaves nothing behind.
pub(crate) async fn store_for_files(app: &App, capture: Capture) -> Result<Arc<dyn Store>, Failure> {
    Workspace::accepts(app.folder(), home(app).as_deref(), capture.force)?;
    app.store_or_create().await
}

/// The user's home.
fn home(app: &App) -> Option<PathBuf> {
    app.surroundings.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone()))
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

/// The folder's files as the store knows them, for a look at their history; `None` for a store that has no place for what
/// belongs to files.
pub(crate) fn at(app: &App, store: &Arc<dyn Store>) -> Result<Option<Workspace>, Failure> {
    let url = store.url();
    let has_place = is_shared(&url) || ["sqlite:", "file:"].iter().any(|scheme| url.starts_with(scheme));
    has_place.then(|| workspace(app, store, Capture::ACCEPTED, true)).transpose()
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
    let beside = match &database {
        Some(database) => {
            let absolute = std::path::absolute(database).unwrap_or_else(|_| database.clone());
            let mut beside = absolute.into_os_string();
            beside.push("-files");
            PathBuf::from(beside)
        }
        None if is_shared(&url) => app.surroundings.beside_shared(&url)?,
        None => {
            return Err(Failure::fixable(format!("{url} has no place for what belongs to the files beside it"))
                .hint("name a store with `--store sqlite:PATH`."));
        }
    };
    let folder = store.hashing().blob(residence.known_as().as_os_str().as_encoded_bytes()).to_string();
    let state = beside.join(&folder[..16]);
    let mut own: Vec<PathBuf> = database.iter().filter_map(|path| std::path::absolute(path).ok()).collect();
    own.push(root.join(".piton"));
    let options = WorkspaceOptions {
        state,
        own,
        outer: outer_rules(app),
        include_ignored: capture.include_ignored,
        new_rules: capture.new_rules,
        home: home(app),
        wide: capture.force,
        budget: app.surroundings.budget,
        known_as: Some(residence.known_as().to_owned()),
        before: residence.before().to_vec(),
        machine: residence.machine().map(str::to_owned),
        looks,
        patience: capture.patience,
    };
    Ok(Workspace::open(&Context::system(watching(app, store, capture)?), root, options)?)
}

/// The store, with an eye on keys and tokens in files if the user wants that.
fn watching(app: &App, store: &Arc<dyn Store>, capture: Capture) -> Result<Arc<dyn Store>, Failure> {
    let files = match app.surroundings.secrets {
        Some(files) => files,
        // In an encrypted store they are safe.
        None if capture.names_secrets && *store.hashing() == Hashing::PLAIN => SecretFiles::Likely,
        None => SecretFiles::Capture,
    };
    if files == SecretFiles::Capture {
        return Ok(Arc::clone(store));
    }
    Ok(Arc::new(RedactedStore::new(Arc::clone(store), Arc::new(formats_in(files)?))))
}

/// An eye on keys and tokens that are known by their form.
pub(crate) fn formats_in(files: SecretFiles) -> Result<Redaction, Failure> {
    let mut policy = RedactionPolicy::none().with_files(files);
    policy.formats = true;
    Redaction::new(&policy)
        .map_err(|error| Failure::internal("the formats of secrets can't be searched for").because(&error))
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

fn files_of(number: u64) -> String {
    words::count(usize::try_from(number).unwrap_or(usize::MAX), "file")
}

/// How far it has come, in words.
fn so_far(progress: &Progress) -> String {
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (files, written) = (count(&progress.files), count(&progress.written));
    match (progress.waiting.load(Ordering::Relaxed), files, written) {
        (true, _, _) => "waiting for another piton to be done with this folder".to_owned(),
        (_, 0, 0) => "looking at the files".to_owned(),
        (_, _, 0) => format!("{} read, {}", files_of(files), words::size(count(&progress.bytes))),
        _ => format!("{} read, {written} written", files_of(files)),
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
