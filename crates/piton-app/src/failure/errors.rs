//! What the errors of the engines mean for the data, and what to do about them.

use std::borrow::Cow;

use piton_flow::{AnswerError, FlowError};
use piton_runtime::RunError;
use piton_runtime::recovery::RecoveryError;
use piton_store::StoreError;
use piton_types::RunStatus;
use piton_workspace::{DriftError, ReservationError, RestoreKind, WorkspaceError};

use super::{Failure, FailureKind, REPORT};

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let (kind, hint) = advice(&error);
        let failure = Self::new(kind, error.to_string()).causes_of(&error);
        match hint {
            Some(hint) => failure.hint(hint.into_owned()),
            None => failure,
        }
    }
}

/// What a store's error means for the data, and what to do about it.
fn advice(error: &StoreError) -> (FailureKind, Option<Cow<'static, str>>) {
    use FailureKind::{Damaged, Fixable, NotFound, Refused, Unavailable};
    let (kind, hint) = match error {
        StoreError::NotFound { .. } => (NotFound, "`piton log` shows what this folder's store holds."),
        StoreError::Conflict { run, .. } => {
            let hint = format!(
                "another process wrote to this run first; nothing was written here. Look at it with `piton show {run}`, then \
                 try again."
            );
            return (Refused, Some(hint.into()));
        }
        StoreError::Fenced { .. } => {
            (Refused, "another process drives this run now; nothing was written here, and the run goes on there.")
        }
        StoreError::Corrupt { .. } | StoreError::DamagedWal { .. } => (
            Damaged,
            "nothing was changed. Make a copy of the store before anything else; `piton check` says what is damaged, and `piton check --repair` keeps what is whole. Runs and checkpoints that don't use the damaged place can still be read.",
        ),
        StoreError::TooNew { .. } => {
            (Fixable, "the data is whole and nothing was changed; it needs the newer piton that wrote it.")
        }
        StoreError::Unsupported { .. } => {
            (Fixable, "nothing was changed; name a store that can with `--store sqlite:PATH`.")
        }
        StoreError::Unavailable { .. } => (
            Unavailable,
            "what was stored before is safe. Try again in a moment; `piton ls` shows which runs can go on.",
        ),
        StoreError::Full { .. } => {
            (Unavailable, "what was stored before is intact. Make room; then `piton ls` shows which runs can go on.")
        }
        StoreError::ReadOnly { .. } => {
            (Fixable, "nothing was changed; make it writable, or name another store with `--store URL`.")
        }
        StoreError::Denied { .. } => (
            Fixable,
            "nothing was changed; a store belongs to one user. Check its owner, or name another with `--store URL`.",
        ),
        StoreError::Locked { .. } => (
            Fixable,
            "nothing was changed; name the right key with `--key-file FILE` or PITON_KEY_FILE, or give the passphrase \
             in PITON_PASSPHRASE (its bytes count: a terminal with another encoding sends others).",
        ),
        StoreError::Poisoned { .. } => (
            Fixable,
            "everything that was acknowledged is safe. Check the disk, then run the command again: the store is opened anew.",
        ),
        StoreError::TooLarge { .. } => {
            (Fixable, "nothing was stored of it; keep large data in files and pass their names.")
        }
        _ => return (Fixable, None),
    };
    (kind, Some(Cow::Borrowed(hint)))
}

impl From<FlowError> for Failure {
    fn from(error: FlowError) -> Self {
        match error {
            FlowError::Document(problems) => problems
                .iter()
                .fold(Self::fixable("the document is not valid"), |failure, problem| {
                    failure.cause(problem.to_string())
                })
                .hint("nothing was run."),
            FlowError::Inputs(problems) => problems
                .iter()
                .fold(Self::fixable("the inputs are not valid"), |failure, problem| {
                    failure.cause(problem.to_string())
                })
                .hint("nothing was run. Inputs are given with `-i NAME=TEXT` or `--inputs FILE`."),
            FlowError::Run(error) => error.into(),
            FlowError::Differs { ref run, .. } => {
                let hint = format!("choose another --id, or go on with its own document: `piton resume {run}`.");
                Self::refused(error.to_string()).hint(hint)
            }
            FlowError::TurnOpen { ref run, .. } => Self::refused(error.to_string()).hint(format!(
                "nothing was changed. `piton resume {run}` goes on with it; `piton cancel {run}` gives it up, and the \
                 conversation goes on without it."
            )),
            FlowError::NoSuchTurn { next, .. } => Self::fixable(error.to_string())
                .hint(format!("nothing was run. `--turn {next}` is the next one; without `--turn` it is found out.")),
            FlowError::ResumeRejected { workflow_id, changes, .. } => changes
                .iter()
                .fold(Self::refused(format!("run {workflow_id} was begun in other surroundings")), |failure, change| {
                    failure.cause(format!("{}: {}: {}", change.severity, change.component, change.description))
                })
                .hint("nothing was changed. The same command with `--force` goes on all the same."),
            FlowError::PendingNodesGone { ref run, .. } => Self::refused(error.to_string()).hint(format!(
                "nothing was changed. `piton resume {run}` goes on with the document that it has; `piton run FILE` begins anew with \
                 the other."
            )),
            FlowError::NotNext { ref at, ref step, .. } => {
                Self::fixable(error.to_string()).hint(format!(
                    "nothing was run. `piton log {0}` shows its entries; `piton fork {0}@N --only {1}` tries the step on one \
                     from which it is next.",
                    at.run,
                    step.as_str()
                ))
            }
            FlowError::NotAWorkflow { ref run } => Self::fixable(error.to_string())
                .hint(format!("the program that started it must go on with it; `piton show {run}` shows what it did.")),
            error => Self::fixable(error.to_string()).causes_of(&error),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Store(error) => error.into(),
            RunError::Held { ref run, .. } => Self::refused(error.to_string()).hint(format!(
                "nothing was changed. `--wait` waits for that process, `piton stop {run}` stops it; a run is driven by one \
                 process at a time."
            )),
            RunError::Stopped { ref run, .. } => {
                let hint = format!("what finished is kept. `piton resume {run}` goes on from there.");
                Self::fixable(error.to_string()).hint(hint)
            }
            RunError::NotAsked { ref run, .. } => {
                Self::fixable(error.to_string()).hint(format!("`piton show {run}` shows how it stands."))
            }
            RunError::WhichQuestion { .. } => {
                Self::fixable(error.to_string()).hint("say which one with `--node STEP`, or by its token.")
            }
            RunError::NoSuchStep { ref run, .. } => Self::fixable(error.to_string())
                .hint(format!("nothing was changed. `piton show {run} --steps` shows its steps.")),
            RunError::Illegal { ref run, cause } => {
                let hint = match cause.from {
                    RunStatus::Queued => format!("`piton resume {run}` begins it, `piton cancel {run}` gives it up."),
                    RunStatus::Failed => {
                        format!("`piton retry {run}` tries it again, `piton cancel {run}` gives it up.")
                    }
                    from if from.is_final() => format!("`piton fork {run}` branches a new run off it."),
                    _ => format!("`piton show {run}` shows how it stands."),
                };
                Self::refused(error.to_string()).causes_of(&error).hint(format!("nothing was changed; {hint}"))
            }
            RunError::Changed { .. } => Self::refused(error.to_string())
                .hint("nothing was run. Go on with the program that began it, or start a new run."),
            RunError::Broken { ref run, .. } => {
                let hint = format!("what the log has is safe: `piton resume {run}` goes on from there.");
                Self::fixable(error.to_string()).hint(hint)
            }
            RunError::Name(_) => Self::usage(error.to_string()),
            error => Self::fixable(error.to_string()).causes_of(&error),
        }
    }
}

/// How to go on after a restore that could not be done whole: the checkpoint by its own name, since `@` is another by now,
/// and with `options` as they were.
pub(crate) fn rest_of(restore: &RestoreKind, options: &str) -> String {
    let (again, back) = match restore {
        RestoreKind::To { checkpoint, .. } => (format!("piton restore {checkpoint}{options}"), "piton undo"),
        RestoreKind::Undo { operation, unattributed, whole_run, shared } => {
            let also = if *unattributed { " --unattributed" } else { "" };
            let both = if *shared { " --both" } else { "" };
            let what = if *whole_run { operation.run.to_string() } else { operation.to_string() };
            (format!("piton undo {what}{also}{both}"), "piton redo")
        }
        // By its name: for `redo` it is redone.
        RestoreKind::Redo { undo } => (format!("piton undo {undo}"), "piton undo"),
    };
    format!(
        "the rest was done. Put the cause right, and `{again}` does what is missing; `{back}` takes back what was done."
    )
}

impl From<WorkspaceError> for Failure {
    fn from(error: WorkspaceError) -> Self {
        let failure = |kind| Self::new(kind, error.to_string()).causes_of(&error);
        match &error {
            WorkspaceError::Root { .. } => failure(FailureKind::Refused)
                .hint("go to the folder that you mean, or say `--force` if you really mean this one."),
            WorkspaceError::Outdated { .. } => {
                failure(FailureKind::Refused).hint("nothing was written; say it again to see what would be done now.")
            }
            WorkspaceError::Conflicts { conflicts } => {
                let mut text = failure(FailureKind::Refused);
                for conflict in conflicts.iter().take(20) {
                    text = text.cause(format!("{}: {}", conflict.path, conflict.reason));
                }
                text.hint(
                    "nothing was written. `--conflict checkpoint` takes the checkpoint's version, `current` leaves \
                     yours, `beside` writes NAME.checkpoint; paths can be named or left out with `--not`.",
                )
            }
            WorkspaceError::Incomplete { failed, restore, rescued, .. } => {
                let mut text = failure(FailureKind::Fixable);
                for (path, why) in failed.iter().take(20) {
                    text = text.cause(format!("{path}: {why}"));
                }
                text = rescued.iter().fold(text, |text, one| text.cause(one.to_string()));
                text.hint(rest_of(restore, ""))
            }
            WorkspaceError::Begun { .. } => failure(FailureKind::Fixable)
                .hint("some files are changed, and no byte is lost: `piton save` finishes it, then `piton undo` takes it back."),
            WorkspaceError::Nothing { .. } => {
                failure(FailureKind::Fixable).hint("`piton log --checkpoints` shows what there is.")
            }
            WorkspaceError::OverBudget { .. } => failure(FailureKind::Fixable)
                .hint("what was stored is safe. Make room, or raise it with PITON_BUDGET (bytes; 0 for none)."),
            WorkspaceError::Snapshot { .. } => {
                failure(FailureKind::Fixable).hint("nothing was changed; other checkpoints may still be whole.")
            }
            WorkspaceError::File { .. }
            | WorkspaceError::NoFiles { .. }
            | WorkspaceError::OtherFolder { .. }
            | WorkspaceError::Removed { .. } => failure(FailureKind::Fixable),
            WorkspaceError::Unfinished { .. } => failure(FailureKind::Fixable)
                .hint("nothing was written by this command, and no byte is lost: `piton save` finishes it."),
            WorkspaceError::Busy { .. } | WorkspaceError::Waited { .. } => failure(FailureKind::Fixable).hint("try again when it is done."),
            WorkspaceError::Store(_) => match error {
                WorkspaceError::Store(error) => error.into(),
                _ => failure(FailureKind::Internal),
            },
            _ => failure(FailureKind::Internal).hint(REPORT),
        }
    }
}

impl From<DriftError> for Failure {
    fn from(error: DriftError) -> Self {
        let text = error.to_string();
        match error {
            DriftError::Workspace(error) => error.into(),
            DriftError::Refused { .. } => Self::refused(text).hint("nothing was changed."),
            DriftError::TestFailed { .. } => Self::refused(text).hint("put right what it found, then try again."),
            DriftError::NoRepository { .. } => {
                Self::fixable(text).hint("`piton status` tells what changed in a folder without git.")
            }
            DriftError::NoGit => Self::fixable(text).hint("install git; everything but drift works without it."),
            error => Self::fixable(text).causes_of(&error),
        }
    }
}

impl From<RecoveryError> for Failure {
    fn from(error: RecoveryError) -> Self {
        match error {
            RecoveryError::Stopped(stopped) => {
                let report = stopped.to_string();
                let mut lines = report.lines();
                let first = lines.next().unwrap_or_default();
                lines.fold(Self::refused(first), Failure::cause).hint(match report.contains("integrity:") {
                    true => {
                        "nothing was done. Make a copy of the store before anything else; `piton check` says what is \
                         damaged, `piton check --repair` keeps what is whole."
                    }
                    false => {
                        "nothing was done. On a terminal this is asked; otherwise put right what is listed, then try again."
                    }
                })
            }
            RecoveryError::Store(error) => error.into(),
            error => Self::fixable(error.to_string()).causes_of(&error),
        }
    }
}

impl From<AnswerError> for Failure {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Run(RunError::Unanswered { step }) => {
                Self::refused(format!("the time for an answer to {} is over", step.as_str()))
                    .hint("nothing was changed. When the run goes on, it does what the document says for that.")
            }
            AnswerError::Run(error) => error.into(),
            error => Self::fixable(error.to_string()).hint("nothing was changed; the question is still open."),
        }
    }
}

impl From<ReservationError> for Failure {
    fn from(error: ReservationError) -> Self {
        match error {
            ReservationError::Workspace(error) => error.into(),
            ReservationError::Held { ref held } => {
                let until = held.iter().map(|held| held.expires_at).max().map(|at| at.to_string()).unwrap_or_default();
                Self::refused(error.to_string())
                    .hint(format!("it ends at {until} unless it is renewed; `--wait SECONDS` waits for it."))
            }
            ReservationError::OutOfOrder { .. } => Self::refused(error.to_string())
                .hint("take all at once, or drop what you have first; without `--wait` it is only tried."),
            error => Self::refused(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use piton_types::Holder;

    use super::*;

    fn hint(failure: &Failure) -> String {
        failure.advice().map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn a_store_error_says_what_to_do() {
        let failure = Failure::from(StoreError::NotFound { what: "run x".to_owned() });
        assert_eq!((failure.kind(), failure.message()), (FailureKind::NotFound, "run x doesn't exist".to_owned()));
        assert_eq!(hint(&failure), "`piton log` shows what this folder's store holds.");
    }

    /// A lost race is refused for safety; the rest of a store's errors the user can fix.
    #[test]
    fn kinds_of_store_errors() {
        let fenced = StoreError::Fenced {
            run: "r".parse().unwrap(),
            held: piton_types::Fence(1),
            current: piton_types::Fence(2),
        };
        assert_eq!(Failure::from(fenced).kind(), FailureKind::Refused);
        assert_eq!(Failure::from(StoreError::corrupt("x", "y")).kind(), FailureKind::Damaged);
    }

    #[test]
    fn a_run_that_another_process_drives_is_refused() {
        let holder = Holder { host: "box".to_owned(), boot: String::new(), pid: 7, started: 0 };
        let failure = Failure::from(RunError::Held { run: "r".parse().unwrap(), holder, since: None });
        assert_eq!(failure.kind(), FailureKind::Refused);
        assert_eq!(failure.message(), "run r is being driven by process 7 on box");
        assert!(hint(&failure).starts_with("nothing was changed. `--wait` waits for that process"));
    }

    #[test]
    fn a_run_with_another_document_is_refused() {
        let failure = Failure::from(FlowError::Differs { run: "r".parse().unwrap(), what: "a document" });
        assert_eq!(failure.kind(), FailureKind::Refused);
    }
}
