//! The configuration that a run was begun with, found again when it goes on.
//!
//! The log names the file and the hash of what was in it. A log may come from anywhere, and a configuration has credentials
//! and programs: so the log is believed only if a record in the user's state directory says that this user began this run,
//! in this store, with that file. A file that was changed since isn't used unless the user says so: an agent may have
//! changed it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_flow::{ChangeSeverity, ConfigFile, EnvironmentChange, configured_by};
use piton_runtime::{Context, History};
use piton_store::{Store, StoreError};
use piton_types::RunId;

use crate::app::App;
use crate::failure::Failure;
use crate::words::typed;

/// What is known of the configuration that a run was begun with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Configured {
    /// The run was begun without one.
    Not,
    /// It is there, as it was.
    Same(PathBuf),
    /// It is there, and was changed.
    Changed(PathBuf),
    /// It isn't there.
    Gone(PathBuf),
    /// The run names one, and isn't one that this user began here with it.
    Foreign(PathBuf),
}

/// What a configuration file is, for the log of a run.
pub fn file_of(path: &Path) -> Result<ConfigFile, Failure> {
    let unreadable = |error: &std::io::Error| Failure::fixable(format!("can't read {}", path.display())).because(error);
    let path = path.canonicalize().map_err(|error| unreadable(&error))?;
    let hash = hash_of(&path).map_err(|error| unreadable(&error))?;
    Ok(ConfigFile { path: path.to_string_lossy().into_owned(), hash })
}

fn hash_of(path: &Path) -> std::io::Result<String> {
    Ok(blake3::hash(&std::fs::read(path)?).to_hex().to_string())
}

/// By what a run with its configuration is known.
fn name_of(store: &Arc<dyn Store>, run: &RunId, file: &ConfigFile) -> String {
    let words = [store.url(), run.to_string(), file.path.clone(), file.hash.clone()];
    let mut hasher = blake3::Hasher::new();
    for word in words {
        hasher.update(&(word.len() as u64).to_le_bytes());
        hasher.update(word.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// Remembers that this user begins a run with a configuration.
pub fn remember(app: &App, store: &Arc<dyn Store>, run: &RunId, file: &ConfigFile) -> Result<(), Failure> {
    app.surroundings.remember_configured(&name_of(store, run, file))
}

/// A run that branches off goes on with the configuration of the run that it comes from, if this user began that one with it.
pub async fn inherit(
    app: &App,
    (from, parent): (&Arc<dyn Store>, &RunId),
    (to, child): (&Arc<dyn Store>, &RunId),
) -> Result<(), Failure> {
    let history = History::of(&Context::system(Arc::clone(to)), child).await?;
    let Some(file) = configured_by(&history) else { return Ok(()) };
    match app.surroundings.is_configured(&name_of(from, parent, &file))? {
        true => remember(app, to, child, &file),
        false => Ok(()),
    }
}

/// What is known of the configuration that a run needs to go on, if its log can be read. What is over needs none.
pub async fn find(app: &App, store: &Arc<dyn Store>, run: &RunId) -> Result<Configured, Failure> {
    let context = Context::system(Arc::clone(store));
    match History::of(&context, run).await {
        Ok(history) if history.state.status().is_final() => Ok(Configured::Not),
        _ => begun_with(app, store, run).await,
    }
}

/// What is known of the configuration that a run was begun with, also if it is over.
async fn begun_with(app: &App, store: &Arc<dyn Store>, run: &RunId) -> Result<Configured, Failure> {
    let history = match History::of(&Context::system(Arc::clone(store)), run).await {
        Ok(history) => history,
        // What is damaged is found, and said, by the examination.
        Err(piton_runtime::RunError::Store(StoreError::Corrupt { .. } | StoreError::NotFound { .. })) => {
            return Ok(Configured::Not);
        }
        Err(error) => return Err(error.into()),
    };
    let Some(file) = configured_by(&history) else { return Ok(Configured::Not) };
    let path = PathBuf::from(&file.path);
    if !app.surroundings.is_configured(&name_of(store, run, &file))? {
        return Ok(Configured::Foreign(path));
    }
    Ok(match hash_of(&path) {
        Ok(hash) if hash == file.hash => Configured::Same(path),
        Ok(_) => Configured::Changed(path),
        Err(_) => Configured::Gone(path),
    })
}

/// The configuration that a run goes on with: the one that is said, or the one that it was begun with. One that was changed
/// is used only if that is forced.
pub async fn configuration(
    app: &App,
    store: &Arc<dyn Store>,
    run: &RunId,
    said: Option<&Path>,
    force: bool,
) -> Result<Option<PathBuf>, Failure> {
    if let Some(said) = said {
        return Ok(Some(said.to_owned()));
    }
    let again = |shown: &str| typed(&["piton", "resume", run.as_str(), "--config", shown]);
    choose(app, run, find(app, store, run).await?, force, again)
}

/// The same for another turn of a conversation, by its newest turn so far, which may be over. `again` is the command with the
/// configuration that it is given.
pub async fn configuration_of_turn(
    app: &App,
    store: &Arc<dyn Store>,
    turn: &RunId,
    said: Option<&Path>,
    force: bool,
    again: impl Fn(&str) -> String,
) -> Result<Option<PathBuf>, Failure> {
    match said {
        Some(said) => Ok(Some(said.to_owned())),
        None => choose(app, turn, begun_with(app, store, turn).await?, force, again),
    }
}

fn choose(
    app: &App,
    run: &RunId,
    found: Configured,
    force: bool,
    again: impl Fn(&str) -> String,
) -> Result<Option<PathBuf>, Failure> {
    let change = change_of(&found);
    match found {
        Configured::Not => Ok(None),
        Configured::Same(path) => {
            app.detail(&format!("the configuration is {}, as when the run was begun", path.display()));
            Ok(Some(path))
        }
        Configured::Changed(path) if force => Ok(Some(path)),
        Configured::Changed(path) => {
            let again = again(&path.to_string_lossy());
            let cause = change.map(|change| change.description).unwrap_or_default();
            Err(Failure::refused(format!("run {run} doesn't go on by itself with a configuration that was changed"))
                .cause(cause)
                .hint(format!("look at it, then `{again}` goes on with it as it is now.")))
        }
        Configured::Gone(_) | Configured::Foreign(_) => {
            app.warn(&change.map(|change| change.description).unwrap_or_default());
            Ok(None)
        }
    }
}

/// What is to be said of the configuration of a run before it goes on.
pub fn change_of(found: &Configured) -> Option<EnvironmentChange> {
    let (severity, description) = match found {
        Configured::Not | Configured::Same(_) => return None,
        Configured::Changed(path) => {
            (ChangeSeverity::Danger, format!("{} was changed since the run was begun", path.display()))
        }
        Configured::Gone(path) => (
            ChangeSeverity::Warning,
            format!(
                "the run was begun with the configuration {}, which can't be read now; `--config FILE` names another",
                path.display()
            ),
        ),
        Configured::Foreign(path) => (
            ChangeSeverity::Warning,
            format!(
                "the run names the configuration {}, but isn't one that you began here with it, so it isn't used; \
                 `--config FILE` names yours",
                path.display()
            ),
        ),
    };
    Some(EnvironmentChange { component: "config".to_owned(), description, severity })
}
