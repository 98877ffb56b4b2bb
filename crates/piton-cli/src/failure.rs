//! How the program ends: the exit code, and a failure as a person and a program read it. The form is that of uv:
//! `error: …`, causes, an empty line, `hint: …`.

use std::process::ExitCode;

use serde_json::Value as Json;

pub(crate) use piton_app::{Failure, FailureKind};

use crate::output::clean;

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

impl From<&Failure> for Exit {
    fn from(failure: &Failure) -> Self {
        match failure.kind() {
            FailureKind::Usage => Self::Usage,
            FailureKind::Refused => Self::Refused,
            FailureKind::Internal => Self::Internal,
            _ => Self::UserFixable,
        }
    }
}

/// The failure as a program reads it.
pub(crate) fn json(failure: &Failure, exit: Exit) -> Json {
    let mut object = serde_json::to_value(failure).unwrap_or_default();
    object["exit_code"] = exit.code().into();
    object
}

/// The failure as a person reads it, without a line feed at the end and safe for a terminal. `paint` is given the words
/// `error:` and `hint:`.
pub(crate) fn render(failure: &Failure, paint: impl Fn(&str) -> String) -> String {
    let mut text = format!("{} {}", paint("error:"), clean(failure.title()));
    for cause in failure.causes() {
        text.push_str("\n  caused by: ");
        text.push_str(&clean(cause));
    }
    if let Some(hint) = failure.advice() {
        // A hint may have several lines.
        let lines: Vec<_> = hint.to_string().split('\n').map(clean).collect();
        text.push_str(&format!("\n\n{} {}", paint("hint:"), lines.join("\n")));
    }
    text
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
        insta::assert_snapshot!(render(&failure, str::to_owned), @r"
        error: can't read flow.yml
          caused by: the disk is on fire

        hint: put it out.
        ");
    }
}
