//! How a verb ends when it doesn't end well: the exit code, the message with its causes, and the hint.
//!
//! Libraries say what happened and what it means for the data; only this shell adds what to do. The
//! form is that of uv: `error: …`, causes, an empty line, `hint: …`.

use std::process::ExitCode;

use piton_store::StoreError;
use serde_json::{Value as Json, json};

/// How the program ends. The numbers are promised in the help and to scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Done,
    /// The user can fix it.
    UserFixable,
    /// The command was written wrongly.
    Usage,
    /// The run waits for an answer.
    Waiting,
    /// To go on might have done harm.
    Refused,
    /// A fault of Piton itself.
    Internal,
    /// `SIGINT`, as shells count it.
    Interrupted,
    /// `SIGTERM`, as shells count it.
    Terminated,
    /// What a program that we ran for the user ended with.
    Of(u8),
}

impl Exit {
    /// As the system is told.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::UserFixable => 1,
            Self::Usage => 2,
            Self::Waiting => 3,
            Self::Refused => 4,
            Self::Internal => 70,
            Self::Interrupted => 130,
            Self::Terminated => 143,
            Self::Of(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a verb failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), causes: Vec::new(), hint: None }
    }

    /// Something that the user can put right.
    pub(crate) fn fixable(message: impl Into<String>) -> Self {
        Self::new(Exit::UserFixable, message)
    }

    /// A command that was written wrongly.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Something that might have done harm.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Exit::Refused, message)
    }

    /// A state that Piton should never get into.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Exit::Internal, message).hint(REPORT)
    }

    /// Adds what to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds an error and everything that caused it.
    pub(crate) fn because(mut self, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            self.causes.push(error.to_string());
            next = error.source();
        }
        self
    }

    /// Adds a cause in words.
    pub(crate) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    /// Adds everything that caused an error, but not the error itself.
    pub(crate) fn causes_of(self, error: &dyn std::error::Error) -> Self {
        match error.source() {
            Some(source) => self.because(source),
            None => self,
        }
    }

    /// What happened and why, on one line.
    pub(crate) fn message(&self) -> String {
        std::iter::once(&self.message).chain(&self.causes).map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// What to do about it.
    pub(crate) fn advice(&self) -> &str {
        self.hint.as_deref().unwrap_or("see what it says, and try again")
    }

    /// The failure as a program reads it.
    pub(crate) fn json(&self) -> Json {
        json!({
            "error": self.message,
            "causes": self.causes,
            "hint": self.hint,
            "exit_code": self.exit.code(),
        })
    }

    /// The failure as a person reads it, without a line feed at the end. `paint` is given the words
    /// `error:` and `hint:`.
    pub(crate) fn render(&self, paint: impl Fn(&str) -> String) -> String {
        let mut text = format!("{} {}", paint("error:"), self.message);
        for cause in &self.causes {
            text.push_str("\n  caused by: ");
            text.push_str(cause);
        }
        if let Some(hint) = &self.hint {
            text.push_str("\n\n");
            text.push_str(&paint("hint:"));
            text.push(' ');
            text.push_str(hint);
        }
        text
    }
}

/// What to do about a fault of ours.
pub(crate) const REPORT: &str =
    "this is a fault in piton, not in your work; what was stored is safe. Please report it with the lines above.";

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let (exit, hint) = advice(&error);
        Self { hint, ..Self::new(exit, error.to_string()) }.causes_of(&error)
    }
}

/// What a store's error means for the data, and what to do about it.
fn advice(error: &StoreError) -> (Exit, Option<String>) {
    use Exit::{Refused, UserFixable};
    let (exit, hint) = match error {
        StoreError::NotFound { .. } => (UserFixable, "`piton log` shows what this folder's store holds."),
        StoreError::Conflict { .. } => (
            Refused,
            "somebody else wrote to this run first; nothing was written here. Look at it with `piton show RUN`, then try again.",
        ),
        StoreError::Fenced { .. } => {
            (Refused, "another process drives this run now; nothing was written here, and the run goes on there.")
        }
        StoreError::Corrupt { .. } | StoreError::DamagedLog { .. } => (
            UserFixable,
            "nothing was changed. Make a copy of the store before anything else; `piton check` says what is damaged, and `piton check --repair` keeps what is whole. Runs and checkpoints that don't use the damaged place can still be read.",
        ),
        StoreError::TooNew { .. } => {
            (UserFixable, "the data is whole and nothing was changed; it needs the newer piton that wrote it.")
        }
        StoreError::Unsupported { .. } => {
            (UserFixable, "nothing was changed; name a store that can with `--store sqlite:PATH`.")
        }
        StoreError::Unavailable { .. } => (
            UserFixable,
            "what was stored before is safe. Try again in a moment; a run goes on with `piton resume RUN`.",
        ),
        StoreError::Full { .. } => {
            (UserFixable, "what was stored before is intact. Make room, then go on with `piton resume RUN`.")
        }
        StoreError::ReadOnly { .. } => {
            (UserFixable, "nothing was changed; make it writable, or name another store with `--store URL`.")
        }
        StoreError::Denied { .. } => (
            UserFixable,
            "nothing was changed; a store belongs to one user. Check its owner, or name another with `--store URL`.",
        ),
        StoreError::Locked { .. } => (
            UserFixable,
            "nothing was changed; name the right key with `--key-file FILE` or PITON_KEY_FILE, or give the passphrase \
             in PITON_PASSPHRASE (its bytes count: a terminal with another encoding sends others).",
        ),
        StoreError::Poisoned { .. } => (
            UserFixable,
            "everything that was acknowledged is safe. Check the disk, then run the command again: the store is opened anew.",
        ),
        StoreError::TooLarge { .. } => {
            (UserFixable, "nothing was stored of it; keep large data in files and pass their names.")
        }
        _ => return (UserFixable, None),
    };
    (exit, Some(hint.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help promises each number, in the words of its place.
    #[test]
    fn every_exit_code_is_in_the_help() {
        use Exit::{Done, Internal, Interrupted, Refused, Terminated, Usage, UserFixable, Waiting};
        let (_, promised) = crate::arguments::AFTER.split_once("Exit codes:").unwrap();
        let numbers: Vec<u8> =
            promised.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
        let codes = [Done, UserFixable, Usage, Waiting, Refused, Internal, Interrupted, Terminated].map(Exit::code);
        assert_eq!(numbers, codes);
    }

    #[test]
    fn renders_message_causes_and_hint() {
        let cause = std::io::Error::other("the disk is on fire");
        let failure = Failure::fixable("can't read flow.yml").because(&cause).hint("put it out.");
        insta::assert_snapshot!(failure.render(str::to_owned), @r"
        error: can't read flow.yml
          caused by: the disk is on fire

        hint: put it out.
        ");
    }

    #[test]
    fn a_store_error_says_what_to_do() {
        let failure = Failure::from(StoreError::NotFound { what: "run x".to_owned() });
        insta::assert_snapshot!(failure.render(str::to_owned), @r"
        error: run x doesn't exist

        hint: `piton log` shows what this folder's store holds.
        ");
    }

    /// Losing a race is refused for safety; the rest of a store's errors the user can fix.
    #[test]
    fn exit_codes_of_store_errors() {
        let fenced = StoreError::Fenced {
            run: "r".parse().unwrap(),
            held: piton_types::Fence(1),
            current: piton_types::Fence(2),
        };
        assert_eq!(Failure::from(fenced).exit, Exit::Refused);
        assert_eq!(Failure::from(StoreError::corrupt("x", "y")).exit, Exit::UserFixable);
    }
}
