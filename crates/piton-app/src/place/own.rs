//! Which of the stores that lie inside folders this user made.
//!
//! A folder can come from anywhere, and bring a store along: with an unfinished restore in it, that store would decide
//! what is written. So a store inside a folder is used only if the user's state directory knows it. It is known by a
//! random id in a file beside it, not by its path: a folder that is moved or copied keeps its store.

use std::path::{Path, PathBuf};

use piton_runtime::SystemRandom;
use piton_types::Random as _;
use serde_json::json;

use super::DATABASE;
use super::private;
use crate::failure::Failure;
use crate::words::typed;

/// Where the id is, beside the database.
const ID: &str = "id";
/// The subfolder of the state directory with a file for each id.
const KNOWN: &str = ".inside";
/// How many characters an id has.
const LENGTH: usize = 32;

/// The ids that the state directory knows.
pub(super) struct Own {
    known: PathBuf,
}

impl Own {
    /// Those in a state directory.
    pub(super) fn of(state: &Path) -> Self {
        Self { known: state.join(KNOWN) }
    }

    /// Whether this user made the store in `folder`. Nothing but its id is looked at.
    pub(super) fn made(&self, folder: &Path) -> bool {
        let Some(id) = id_of(folder) else { return false };
        self.known.join(id).symlink_metadata().is_ok_and(|data| data.is_file())
    }

    /// Makes the store in `folder` this user's, under a new id: the sender of the folder may know the old one.
    pub(super) fn take(&self, folder: &Path, now: &str) -> Result<(), Failure> {
        let mut bytes = [0; LENGTH / 2];
        SystemRandom.fill(&mut bytes);
        let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        private::create(&self.known)?;
        // For people who wonder what it is; only its name counts. Where the store lies isn't said: it may be encrypted.
        let about = json!({ "format": 1, "created_at": now }).to_string();
        // The record first: an id without one is a store of another user's.
        for (path, text) in [(self.known.join(&id), &about), (folder.join(ID), &id)] {
            private::write(&path, text.as_bytes()).map_err(|error| private::cant_write(&path, &error))?;
        }
        Ok(())
    }
}

/// The id of the store in a folder, if it has one.
fn id_of(folder: &Path) -> Option<String> {
    let path = folder.join(ID);
    // A link or a pipe is no file of ours, and isn't opened.
    path.symlink_metadata().ok().filter(|data| data.is_file() && data.len() == LENGTH as u64)?;
    let id = std::fs::read_to_string(path).ok()?;
    id.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(id)
}

/// A store that came with its folder.
pub(super) fn foreign(folder: &Path) -> Failure {
    let shown = folder.display();
    let around = typed(&["-C", &folder.parent().unwrap_or(folder).to_string_lossy()]);
    Failure::refused(format!("{shown} isn't a store that you made here"))
        .cause("it came with its folder, or your state directory has been lost; nothing in it was used or changed")
        .hint(format!(
            "`piton {around} init --adopt` shows what it holds, drops what is unfinished in it and makes it yours; \
             `rm -r {shown}` does without it. In CI or a container, where your state directory is new each time, \
             name it: `--store sqlite:{shown}/{DATABASE}`."
        ))
}
