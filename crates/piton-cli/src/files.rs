//! The way from a call of the program to the workspace of its folder, and the store's files that must stay out of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use piton::SystemClock;
use piton::workspace::{Progress, Workspace, WorkspaceError, WorkspaceOptions};
use piton_store::{RedactedStore, Redaction, RedactionPolicy, SecretFiles, Store};

use crate::arguments::files::Capture;
use crate::failure::{Exit, Failure, REPORT};
use crate::ignored::outer_rules;
use crate::output::clean;
use crate::progress::showing;
use crate::session::Session;
use crate::table;

/// Opens the workspace of the folder. A restore that was cut short is finished first, and said.
pub(crate) async fn open(session: &Session, store: &Arc<dyn Store>, capture: Capture) -> Result<Workspace, Failure> {
    let root = &session.surroundings.folder;
    let residence = session.residence();
    let url = store.url();
    let database = url.strip_prefix("sqlite:").or_else(|| url.strip_prefix("file:")).map(PathBuf::from);
    let state = match &database {
        Some(database) => {
            let absolute = std::path::absolute(database).unwrap_or_else(|_| database.clone());
            let mut beside = absolute.into_os_string();
            beside.push("-files");
            PathBuf::from(beside)
                .join(&blake3::hash(residence.known_as().as_os_str().as_encoded_bytes()).to_hex()[..16])
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
        outer: outer_rules(session),
        include_ignored: capture.include_ignored,
        home: session.surroundings.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone())),
        wide: capture.force,
        budget: session.surroundings.budget,
        known_as: Some(residence.known_as().to_owned()),
        before: residence.before().to_vec(),
    };
    let store = watching(session, store)?;
    let workspace = Workspace::open(store, Arc::new(SystemClock::new()), root, options)?;
    if let Some(recovered) = watched(session, async |progress| workspace.recover(&progress).await).await? {
        session.output.warn(&format!("a restore that was cut short has been finished: {}", recovered.restore));
        for (path, why) in &recovered.left {
            session.output.warn(&format!("{} was left as it is: {why}", clean(&path.to_string())));
        }
    }
    Ok(workspace)
}

/// The store, with an eye on keys and tokens in files if the user wants that.
fn watching(session: &Session, store: &Arc<dyn Store>) -> Result<Arc<dyn Store>, Failure> {
    let files = session.surroundings.secrets.unwrap_or(SecretFiles::Capture);
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
pub(crate) async fn watched<T>(
    session: &Session,
    work: impl AsyncFnOnce(Arc<Progress>) -> Result<T, WorkspaceError>,
) -> Result<T, Failure> {
    let progress = Arc::new(Progress::default());
    let words = || so_far(&progress);
    Ok(showing(session, words, work(Arc::clone(&progress))).await?)
}

/// How far it has come, in words.
fn so_far(progress: &Progress) -> String {
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (files, written) = (count(&progress.files), count(&progress.written));
    match (progress.waiting.load(Ordering::Relaxed), files, written) {
        (true, _, _) => "waiting for another piton to be done with this folder".to_owned(),
        (_, 0, 0) => "looking at the files".to_owned(),
        (_, _, 0) => format!("{files} files read, {}", table::size(count(&progress.bytes))),
        _ => format!("{files} files read, {written} written"),
    }
}

impl From<WorkspaceError> for Failure {
    fn from(error: WorkspaceError) -> Self {
        let failure = |exit| Self::new(exit, error.to_string()).causes_of(&error);
        match &error {
            WorkspaceError::Root { .. } => failure(Exit::Refused)
                .hint("go to the folder that you mean, or say `--force` if you really mean this one."),
            WorkspaceError::Conflicts { conflicts } => {
                let mut text = failure(Exit::Refused);
                for conflict in conflicts.iter().take(20) {
                    text = text.cause(format!("{}: {}", clean(&conflict.path.to_string()), conflict.reason));
                }
                text.hint(
                    "nothing was written. `--conflict checkpoint` takes the checkpoint's version, `current` leaves \
                     yours, `beside` writes NAME.checkpoint; paths can be named or left out with `--not`.",
                )
            }
            WorkspaceError::Incomplete { failed, .. } => {
                let mut text = failure(Exit::UserFixable);
                for (path, why) in failed.iter().take(20) {
                    text = text.cause(format!("{}: {why}", clean(&path.to_string())));
                }
                text.hint(
                    "the rest was done. `piton undo` takes it back; put the cause right and try again for the rest.",
                )
            }
            WorkspaceError::Nothing { .. } => {
                failure(Exit::UserFixable).hint("`piton log --checkpoints` shows what there is.")
            }
            WorkspaceError::OverBudget { .. } => failure(Exit::UserFixable)
                .hint("what was stored is safe. Make room, or raise it with PITON_BUDGET (bytes; 0 for none)."),
            WorkspaceError::Snapshot { .. } => {
                failure(Exit::UserFixable).hint("nothing was changed; other checkpoints may still be whole.")
            }
            WorkspaceError::File { .. }
            | WorkspaceError::NoFiles { .. }
            | WorkspaceError::OtherFolder { .. }
            | WorkspaceError::Removed { .. } => failure(Exit::UserFixable),
            WorkspaceError::Busy { .. } => failure(Exit::UserFixable).hint("try again when it is done."),
            WorkspaceError::Store(_) => match error {
                WorkspaceError::Store(error) => error.into(),
                _ => failure(Exit::Internal),
            },
            _ => failure(Exit::Internal).hint(REPORT),
        }
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
