//! Why something couldn't be done: a kind that programs decide by, a message with its causes, and a hint.
//!
//! Libraries say what happened and what it means for the data; the app adds what to do. How a failure is shown, and
//! which exit code or HTTP status its kind becomes, is the shell's.

mod errors;
mod hint;

use serde::Serialize;

pub(crate) use errors::rest_of;
pub use hint::{Command, Hint, Piece};

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The user can put it right.
    Fixable,
    /// What was asked for isn't there.
    NotFound,
    /// Stored bytes are damaged.
    Damaged,
    /// It may work later: a store that doesn't answer, a full disk.
    Unavailable,
    /// What was asked for was written wrongly.
    Usage,
    /// To go on might have done harm.
    Refused,
    /// A fault of Piton itself.
    Internal,
}

/// Why something couldn't be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    kind: FailureKind,
    #[serde(rename = "error")]
    message: String,
    causes: Vec<String>,
    hint: Option<Hint>,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), causes: Vec::new(), hint: None }
    }

    /// Something that the user can put right.
    pub fn fixable(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Fixable, message)
    }

    /// Something that isn't there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(FailureKind::NotFound, message)
    }

    /// Something that was written wrongly.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, message)
    }

    /// Something that might have done harm.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Refused, message)
    }

    /// A state that Piton should never get into.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Internal, message).hint(REPORT)
    }

    /// Adds what to do, with commands between backticks.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds an error and everything that caused it.
    #[must_use]
    pub fn because(mut self, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            self.causes.push(error.to_string());
            next = error.source();
        }
        self
    }

    /// Adds a cause in words.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    /// Adds everything that caused an error, but not the error itself.
    #[must_use]
    pub fn causes_of(self, error: &dyn std::error::Error) -> Self {
        match error.source() {
            Some(source) => self.because(source),
            None => self,
        }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// What happened, without its causes.
    pub fn title(&self) -> &str {
        &self.message
    }

    /// Why it happened, nearest cause first.
    pub fn causes(&self) -> &[String] {
        &self.causes
    }

    /// What happened and why, on one line.
    pub fn message(&self) -> String {
        std::iter::once(&self.message).chain(&self.causes).map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// What to do about it.
    pub fn advice(&self) -> Option<&Hint> {
        self.hint.as_ref()
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for Failure {}

/// What to do about a fault of ours.
pub const REPORT: &str =
    "this is a fault in piton, not in your work; what was stored is safe. Please report it with the lines above.";
