//! The port through which the app speaks to its shell: a terminal, a server, a test.
//!
//! The app returns what it was asked for as values. What happens on the way (a warning, how far long work has come)
//! and what only a person has (a passphrase) goes through this trait.

use crate::failure::Failure;

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Only for a user who wants to know more.
    Detail,
    /// Progress.
    Note,
    /// Something that the user should know, though it isn't an error.
    Warning,
}

/// What a shell gives to the app. The defaults are those of a shell without a person.
pub trait Shell: Send + Sync {
    /// Says something beside the result, on one line. Names and texts of others in it are as they are.
    fn tell(&self, level: Level, text: &str);

    /// Asks a person for a passphrase that isn't shown; `None` if no person can be asked.
    fn passphrase(&self, _prompt: &str) -> Result<Option<Vec<u8>>, Failure> {
        Ok(None)
    }

    /// Whether it shows how far long work has come.
    fn shows_progress(&self) -> bool {
        false
    }

    /// Shows how far long work has come; `None` when the work has ended.
    fn progress(&self, _words: Option<&str>) {}
}

/// A shell that says nothing and asks nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Shell for Silent {
    fn tell(&self, _level: Level, _text: &str) {}
}
