//! `piton guard -- COMMAND…`: any program, with checkpoints of the folder before, while and after it runs.
//!
//! The program is in our process group and has the terminal: a signal from the keyboard reaches it directly.
//! `SIGTERM` and `SIGHUP`, which reach us alone, are passed on. Until it has ended we say nothing.

use std::process::{ExitStatus, Stdio};

use piton_app::files::guard::{GuardOptions, Guarding};
use piton_app::place::keys::KEY_VARIABLES;
use piton_app::runs::drive::DriftWatch;
use piton_app::views::files::GuardedView;
use piton_types::RunId;
use piton_workspace::SessionOptions;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch::Sender;

use crate::arguments::files::Guard;
use crate::commands::status::change_line;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::table::count;

/// How many changes are named at the end.
const NAMED: usize = 20;

pub(crate) async fn execute(session: &Session, arguments: Guard) -> Result<Exit, Failure> {
    let options = GuardOptions {
        capture: arguments.capture.into(),
        checkpoints: SessionOptions { quiet_for: arguments.quiet_for, at_least: arguments.at_least },
        drift: DriftWatch { every: arguments.drift_every, pauses: arguments.pause_on_drift },
        rollback_on_failure: arguments.rollback_on_failure,
    };
    let command: Vec<String> = arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut guarding = Guarding::begin(session, &command, options).await?;
    let (tell_pid, pid) = tokio::sync::watch::channel(None);
    let run = guarding.run().clone();
    let status = match guarding.around(pid, run_program(&arguments, &run, &tell_pid)).await {
        Ok(status) => status,
        Err(failure) => {
            guarding.not_started().await?;
            return Err(failure);
        }
    };
    let exit = Exit::Of(exit_code(status));
    match guarding.finish(session, exit.code()).await {
        Ok(view) => {
            summary(session, &view)?;
            Ok(exit)
        }
        Err(failure) => Ok(session.output.failure_with(&failure, exit)),
    }
}

/// Runs the program to its end.
async fn run_program(arguments: &Guard, run: &RunId, tell_pid: &Sender<Option<Pid>>) -> Result<ExitStatus, Failure> {
    let (program, rest) = arguments.command.split_first().expect("clap asks for one");
    let listen = |kind| signal(kind).map_err(|error| Failure::fixable("can't listen for signals").because(&error));
    // The program gets these itself; without a listener they would end us before it.
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut quit = listen(SignalKind::quit())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let mut command = tokio::process::Command::new(program);
    for name in KEY_VARIABLES {
        command.env_remove(name);
    }
    let mut child = command
        .args(rest)
        // Whatever it starts knows on whose behalf it works, as `piton lease` does.
        .env("PITON_RUN", run.as_str())
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| {
            Failure::fixable(format!("can't start {}", program.to_string_lossy()))
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

/// As a shell would count it.
fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

fn summary(session: &Session, view: &GuardedView) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        return output.view(view);
    }
    let GuardedView { run, id, opened, changes, .. } = view;
    let stopped = match view.status {
        "paused" | "cancelled" => "piton: the program was stopped, as was asked for\n",
        _ => "",
    };
    if changes.is_empty() {
        output.note(&format!("{stopped}piton: no files changed"));
        return Ok(());
    }
    let mut lines = vec![format!("{stopped}piton: {} changed", count(changes.len(), "file"))];
    lines.extend(changes.iter().take(NAMED).map(|change| format!("  {}", change_line(change))));
    if changes.len() > NAMED {
        lines.push(format!("  … {} more", changes.len() - NAMED));
    }
    lines.push(match view.rolled_back {
        true => {
            format!(
                "piton: it failed, and all of that was taken back; `piton redo` or `piton restore {id}` brings it again"
            )
        }
        false => format!("piton: `piton undo {run}` takes it back, `piton diff {opened} {id}` shows it"),
    });
    output.note(&lines.join("\n"));
    Ok(())
}
