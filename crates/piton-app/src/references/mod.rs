//! How a run, a checkpoint, a step or a blob is named by a user, and what that means in a store.
//!
//! | written | means |
//! |---|---|
//! | `@` | the newest checkpoint here |
//! | `@-`, `@--`, `@~3` | its parent, the parent's parent, the third before it |
//! | `RUN` | a run, by its short name (`guard-3`), its id, or the unique beginning of its id |
//! | `RUN@`, `RUN@-`, `RUN@~3` | the same, of one run |
//! | `RUN@7` | the checkpoint or entry with that number |
//! | `RUN/step` | a step |
//! | `REF:path` | a file in the checkpoint that `REF` names, as in `@-:src/a.rs` |
//! | 64 hex digits | a blob |
//!
//! Parsing is strict and needs no store; [`resolve`] finds what is meant.

mod resolve;
mod walk;

use std::fmt;
use std::str::FromStr;

use piton_types::{BlobId, InvalidId, RunId, Seq, StepPath};

pub use resolve::{FileAt, Target, resolve, resolve_checkpoint, run_id};
pub use walk::Runs;

/// What the user wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A checkpoint, counted back from the newest one of the store or of a run.
    Back {
        /// The run, or the beginning of its id; `None` for the newest of this folder.
        run: Option<RunId>,
        /// How many to go back.
        steps: u32,
    },
    /// An entry by its number.
    Entry {
        /// The run, or the beginning of its id.
        run: RunId,
        /// The number.
        seq: Seq,
    },
    /// A step.
    Step {
        /// The run, or the beginning of its id.
        run: RunId,
        /// The step.
        step: StepPath,
    },
    /// A file in a checkpoint.
    File {
        /// The checkpoint.
        of: Box<Reference>,
        /// The file, as the user names it from where the command is called.
        path: String,
    },
    /// A run, or the beginning of its id. 64 hex digits are also read so, and then tried as a blob.
    Run(RunId),
}

/// Why a text is not a reference.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReference {
    /// The run or step in it is not one.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// What follows `@` is neither a number nor a way back.
    #[error("{text:?} is not valid after '@': nothing, a number such as 7, '-', '--' or '~3' is wanted")]
    Suffix {
        /// What follows, cut to 80 characters.
        text: String,
    },
    /// `REF:` without a path, or of what has no files.
    #[error("{text:?} is not valid: a file of a checkpoint is wanted, as in '@-:src/a.rs'")]
    File {
        /// What was written, cut to 80 characters.
        text: String,
    },
    /// `@7` without a run.
    #[error("'@{number}' needs a run in front of it, as in RUN@{number}; '@~{number}' counts back from the newest")]
    NumberAlone {
        /// The number.
        number: u32,
    },
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        if let Some((of, path)) = text.split_once(':') {
            let wrong = || InvalidReference::File { text: text.chars().take(80).collect() };
            let of: Self = of.parse()?;
            if path.is_empty() || path.contains('\0') {
                return Err(wrong());
            }
            return Ok(Self::File { of: Box::new(of), path: path.to_owned() });
        }
        // Whichever comes first separates the run: a step's name may have '@' in it.
        let Some(place) = text.find(['@', '/']) else { return Ok(Self::Run(text.parse()?)) };
        let (run, rest) = text.split_at(place);
        if let Some(step) = rest.strip_prefix('/') {
            return Ok(Self::Step { run: run.parse()?, step: step.parse()? });
        }
        let run = if run.is_empty() { None } else { Some(run.parse::<RunId>()?) };
        let suffix = &rest[1..];
        let number = |digits: &str| digits.parse().ok().filter(|n: &u32| n.to_string() == digits);
        if let Some(steps) = suffix.strip_prefix('~').and_then(number) {
            return Ok(Self::Back { run, steps });
        }
        if suffix.bytes().all(|b| b == b'-')
            && let Ok(steps) = u32::try_from(suffix.len())
        {
            return Ok(Self::Back { run, steps });
        }
        match (run, number(suffix)) {
            (Some(run), Some(seq)) => Ok(Self::Entry { run, seq: Seq(seq) }),
            (None, Some(number)) => Err(InvalidReference::NumberAlone { number }),
            (_, None) => Err(InvalidReference::Suffix { text: suffix.chars().take(80).collect() }),
        }
    }
}

impl Reference {
    /// The blob that this may also mean.
    pub fn as_blob(&self) -> Option<BlobId> {
        match self {
            Self::Run(run) => run.as_str().parse().ok(),
            _ => None,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Back { run, steps } => {
                write!(f, "{}@", run.as_ref().map_or("", RunId::as_str))?;
                match steps {
                    0..=2 => f.write_str(&"--"[..*steps as usize]),
                    steps => write!(f, "~{steps}"),
                }
            }
            Self::Entry { run, seq } => write!(f, "{run}@{seq}"),
            Self::Step { run, step } => write!(f, "{run}/{step}"),
            Self::File { of, path } => write!(f, "{of}:{path}"),
            Self::Run(run) => write!(f, "{run}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Reference, InvalidReference> {
        text.parse()
    }

    fn run(id: &str) -> RunId {
        id.parse().unwrap()
    }

    #[test]
    fn every_form() {
        for (text, steps) in [("@", 0), ("@-", 1), ("@--", 2), ("@---", 3), ("@~0", 0), ("@~3", 3)] {
            assert_eq!(parse(text), Ok(Reference::Back { run: None, steps }), "{text}");
            assert_eq!(parse(&format!("r{text}")), Ok(Reference::Back { run: Some(run("r")), steps }), "r{text}");
        }
        assert_eq!(parse("night-ly.1@7"), Ok(Reference::Entry { run: run("night-ly.1"), seq: Seq(7) }));
        assert_eq!(parse("r@0"), Ok(Reference::Entry { run: run("r"), seq: Seq(0) }));
        assert_eq!(parse("r/a/b#2"), Ok(Reference::Step { run: run("r"), step: "a/b#2".parse().unwrap() }));
        assert_eq!(parse("r/a@b"), Ok(Reference::Step { run: run("r"), step: "a@b".parse().unwrap() }));
        assert_eq!(parse("01kab"), Ok(Reference::Run(run("01kab"))));
        assert_eq!(parse("01kab").unwrap().as_blob(), None);
        let blob = BlobId::new([0xa5; 32]);
        assert_eq!(parse(&blob.to_string()).unwrap().as_blob(), Some(blob));
    }

    #[test]
    fn prints_what_it_parses() {
        for text in ["@", "@-", "@--", "@~3", "r@", "r@--", "r@7", "r/a/b#2", "r", "@-:src/a.rs", "r@7:a:b"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "../../x",
            "/etc/passwd",
            "..",
            "r/",
            "r//a",
            "r/a\nb",
            "-",
            "~3",
            "r~3",
            "'; DROP",
            "@7",
            "@~",
            "@~-1",
            "@~03",
            "@~4294967296",
            "@-~1",
            "@-3",
            "@x",
            "r@07",
            "r@+7",
            "r@7@8",
            "r@4294967296",
            "@@",
            "ü@1",
            "r@7-",
            "@:",
            ":a",
        ] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        insta::assert_snapshot!(parse("@7").unwrap_err(), @"'@7' needs a run in front of it, as in RUN@7; '@~7' counts back from the newest");
        insta::assert_snapshot!(parse("r@x").unwrap_err(), @r#""x" is not valid after '@': nothing, a number such as 7, '-', '--' or '~3' is wanted"#);
        insta::assert_snapshot!(parse("../x").unwrap_err(), @r#"run id ".." is not valid: it must start with a letter or a digit"#);
    }
}
