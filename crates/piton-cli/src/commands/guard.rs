//! `piton guard -- COMMAND…`: any program, with checkpoints of the folder before, while and after it runs.
//!
//! The program is in our process group and has the terminal: a signal from the keyboard reaches it directly.
//! `SIGTERM` and `SIGHUP`, which reach us alone, are passed on. Until it has ended we say nothing.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use piton_runtime::SystemRandom;
use piton_types::{CheckpointRef, RunId, Value};
use piton_workspace::{
    Goal, RestoreOptions, Session as Guarded, SessionEnd, SessionOptions, Side, Standing, Workspace,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::files::Guard;
use crate::commands::status::change_line;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use piton_app::files::drift_watch::watch;
use piton_app::files::{open, watched};
use piton_app::store::keeping;
use piton_app::views::files::{ChangeView, GuardedView};

/// How many changes are named at the end.
const NAMED: usize = 20;

pub(crate) async fn execute(session: &Session, arguments: Guard) -> Result<Exit, Failure> {
    let store = session.store_or_create().await?;
    let workspace = open(session, &store, arguments.capture.into()).await?;
    let run = RunId::generate(session.now(), &SystemRandom);
    let command: Vec<String> = arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let name = command.join(" ");
    let words = Value::List(command.iter().map(|word| Value::from(word.as_str())).collect());
    let input = Value::Map([("command".to_owned(), words)].into());
    let mut guarded =
        watched(session, async |progress| Guarded::begin_as(&workspace, run.clone(), name, input, &progress).await)
            .await?;
    let options = SessionOptions { quiet_for: arguments.quiet_for, at_least: arguments.at_least };
    let (ended, problem) = guarded
        .run_with_checkpoints(options, async {
            let (tell_pid, pid) = tokio::sync::watch::channel(None);
            let watching = watch(&workspace, &run, arguments.drift_every, arguments.pause_on_drift, pid);
            tokio::select! {
                ended = run_program(&arguments, &run, tell_pid) => ended,
                never = watching => match never {},
            }
        })
        .await;
    let status = match ended {
        Ok(status) => status,
        Err(failure) => {
            guarded.end(Err("the program could not be started".to_owned())).await?;
            store.close().await?;
            return Err(failure);
        }
    };
    let code = exit_code(status);
    let outcome = if code == 0 { Ok(Value::from(0)) } else { Err(format!("the program ended with {code}")) };
    let workspace = match workspace.standing() {
        Standing::There => workspace,
        Standing::Replaced if is_there(&store.url()) => {
            let anew = open(session, &store, arguments.capture.into()).await?;
            guarded.move_to(&anew);
            anew
        }
        standing => {
            let opened = guarded.opened().checkpoint.clone();
            // If the store was inside, nothing can be written to it either.
            let _ = guarded.abandon("the folder was gone when the program ended").await;
            let failure = match standing {
                Standing::Moved => moved(&workspace, &opened),
                _ => deleted(&workspace, &store.url(), &opened, code),
            };
            let _ = store.close().await;
            return Err(failure);
        }
    };
    let end = watched(session, async |progress| guarded.end_with(outcome, &progress).await).await?;
    if let Some(problem) = problem {
        session.output.warn(&format!("a checkpoint in between could not be made: {problem}"));
    }
    let rolled_back = if code != 0 && arguments.rollback_on_failure && end.before.tree != end.after.tree {
        let goal = Goal::Undo(Some(end.closed.clone()));
        let options = RestoreOptions::default();
        Some(watched(session, async |progress| workspace.restore_to(&goal, &options, &progress).await).await?)
    } else {
        None
    };
    summary(session, &workspace, &run, &end, code, rolled_back.is_some()).await?;
    let tracker = workspace.drift_tracker(&run).await?;
    if let Some(severity) = tracker.pending() {
        session.output.warn(&format!("the repository moved meanwhile ({severity}); `piton drift` says how"));
    }
    keeping::in_passing(session, &store).await;
    store.close().await?;
    Ok(Exit::Of(code))
}

/// Runs the program to its end.
async fn run_program(
    arguments: &Guard,
    run: &RunId,
    tell_pid: tokio::sync::watch::Sender<Option<Pid>>,
) -> Result<ExitStatus, Failure> {
    let (program, rest) = arguments.command.split_first().expect("clap asks for one");
    let listen = |kind| signal(kind).map_err(|error| Failure::fixable("can't listen for signals").because(&error));
    // The program gets these itself; without a listener they would end us before it.
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut quit = listen(SignalKind::quit())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let mut child = tokio::process::Command::new(program)
        .args(rest)
        // Whatever it starts knows on whose behalf it works, as `piton lease` does.
        .env("PITON_RUN", run.as_str())
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| {
            Failure::fixable(format!("can't start {}", clean(&program.to_string_lossy())))
                .because(&error)
                .hint("is it installed, and in the PATH? Nothing was changed.")
        })?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let _ = tell_pid.send(pid);
    let pass = |signal: Signal| {
        if let Some(pid) = pid {
            // If it has just ended there is no process to tell.
            let _ = kill_process(pid, signal);
        }
    };
    loop {
        tokio::select! {
            ended = child.wait() => {
                return ended.map_err(|error| Failure::fixable("can't wait for the program").because(&error));
            }
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
            _ = terminate.recv() => pass(Signal::TERM),
            _ = hang_up.recv() => pass(Signal::HUP),
        }
    }
}

/// Whether a store is still where it was: one inside the folder goes with it.
fn is_there(store: &str) -> bool {
    Path::new(store.split_once(':').map_or(store, |(_, path)| path)).exists()
}

/// The program moved the folder in which it ran.
fn moved(workspace: &Workspace, opened: &CheckpointRef) -> Failure {
    let root = clean(&workspace.root().to_string_lossy());
    Failure::fixable(format!("the program moved {root}, the folder that it ran in"))
        .cause("so there is no checkpoint of how it left it")
        .hint(format!(
            "go to where it is now; there `piton restore {opened}` returns it to what it was when the program began."
        ))
}

/// The program deleted the folder in which it ran.
fn deleted(workspace: &Workspace, store: &str, opened: &CheckpointRef, code: u8) -> Failure {
    let root = clean(&workspace.root().to_string_lossy());
    let hint = match is_there(store) {
        true => format!(
            "`mkdir -p {root}` and `piton -C {root} restore {opened}` bring back what was in it when the program began."
        ),
        false => "its store was inside it, and is gone with it. A store that `piton init` makes without `--here` is \
                  outside, and survives that."
            .to_owned(),
    };
    Failure::fixable(format!("the program deleted {root}, the folder that it ran in"))
        .cause(format!("it ended with {code}"))
        .hint(hint)
}

/// As a shell would count it.
fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

async fn summary(
    session: &Session,
    workspace: &Workspace,
    run: &RunId,
    end: &SessionEnd,
    code: u8,
    rolled_back: bool,
) -> Result<(), Failure> {
    let output = &session.output;
    let changes = workspace.detect_changes(end.before, Side::Stored(end.after), &Arc::default()).await?.changes;
    let changes: Vec<ChangeView> = changes.iter().map(ChangeView::from).collect();
    if output.is_json() {
        return output.view(&GuardedView {
            run: run.clone(),
            id: end.closed.clone(),
            opened: end.opened.clone(),
            status: if code == 0 { "completed" } else { "failed" },
            exit_code: code,
            changes,
            rolled_back,
        });
    }
    if changes.is_empty() {
        output.note("piton: no files changed");
        return Ok(());
    }
    let mut lines = vec![format!("piton: {} changed", count(changes.len()))];
    lines.extend(changes.iter().take(NAMED).map(|change| format!("  {}", change_line(change))));
    if changes.len() > NAMED {
        lines.push(format!("  … {} more", changes.len() - NAMED));
    }
    lines.push(match rolled_back {
        true => format!(
            "piton: it failed, and all of that was taken back; `piton redo` or `piton restore {}` brings it again",
            end.closed
        ),
        false => {
            format!("piton: `piton undo {run}` takes it back, `piton diff {} {}` shows it", end.opened, end.closed)
        }
    });
    output.note(&lines.join("\n"));
    Ok(())
}

fn count(files: usize) -> String {
    if files == 1 { "1 file".to_owned() } else { format!("{files} files") }
}
