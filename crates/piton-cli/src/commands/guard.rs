//! `piton guard -- COMMAND…`: any program, with checkpoints of the folder before, while and after it runs.
//!
//! The program is in our process group and has the terminal: a signal from the keyboard reaches it directly.
//! `SIGTERM` and `SIGHUP`, which reach us alone, are passed on. Until it has ended we say nothing.

use std::process::{ExitStatus, Stdio};

use piton_app::files::guard::{GuardOptions, Guarding};
use piton_app::place::keys::KEY_VARIABLES;
use piton_app::runs::drive::DriftWatch;
use piton_app::views::files::{CoverageView, GitMovesView, GuardedView};
use piton_runtime::recovery::Environment as _;
use piton_types::RunId;
use piton_workspace::SessionOptions;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch::Sender;

use crate::arguments::files::Guard;
use crate::commands::status::change_line;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::count;
use crate::view::check_line;

/// How many changes are named at the end.
const NAMED: usize = 20;

pub(crate) async fn execute(session: &Session, arguments: Guard) -> Result<Exit, Failure> {
    let options = GuardOptions {
        capture: arguments.capture.into(),
        checkpoints: SessionOptions { quiet_for: arguments.quiet_for, at_least: arguments.at_least },
        drift: DriftWatch { every: arguments.drift_every, pauses: arguments.pause_on_drift },
        rollback_on_failure: arguments.rollback_on_failure,
        outlives: arguments.outlive,
    };
    let command: Vec<String> = arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    // A refusal leaves nothing behind.
    if let Some(program) = command.first().filter(|program| !program.contains('/'))
        && !session.environment().has_program(program).await
    {
        return Err(Failure::fixable(format!("can't start {}", clean(program)))
            .cause("there is no such program in the PATH")
            .hint("is it installed? Nothing was changed."));
    }
    let mut guarding = Guarding::begin(session, &command, options).await?;
    let (tell_pid, pid) = tokio::sync::watch::channel(None);
    let run = guarding.run().clone();
    let status = match guarding.around(session, pid, run_program(session, &arguments, &run, &tell_pid)).await {
        Ok(status) => status,
        Err(failure) => {
            guarding.not_started().await?;
            return Err(failure);
        }
    };
    let exit = Exit::Of(exit_code(status));
    if exit.code() == 0 {
        check(&mut guarding, &arguments.verify).await?;
    }
    match guarding.finish(session, exit.code()).await {
        Ok(view) => {
            summary(session, &view)?;
            let is_wrong = exit.code() == 0 && view.verification.iter().any(|check| !check.passed);
            Ok(if is_wrong { Exit::Of(1) } else { exit })
        }
        Err(failure) => Ok(session.output.failure_with(&failure, exit)),
    }
}

/// Checks the work of the program. The keyboard's interrupt ends the checks, and not us.
async fn check(guarding: &mut Guarding, commands: &[String]) -> Result<(), Failure> {
    if commands.is_empty() {
        return Ok(());
    }
    tokio::select! {
        checked = guarding.verify(commands) => checked,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// Runs the program to its end.
async fn run_program(
    session: &Session,
    arguments: &Guard,
    run: &RunId,
    tell_pid: &Sender<Option<Pid>>,
) -> Result<ExitStatus, Failure> {
    let (program, rest) = arguments.command.split_first().expect("clap asks for one");
    let listen = |kind| signal(kind).map_err(|error| Failure::fixable("can't listen for signals").because(&error));
    // The program gets these itself; without a listener they would end us before it.
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut quit = listen(SignalKind::quit())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let mut command = tokio::process::Command::new(program);
    for name in KEY_VARIABLES.into_iter().chain(session.surroundings.withheld()) {
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
    let checks: Vec<String> = view.verification.iter().map(|check| format!("piton: {}", check_line(check))).collect();
    if changes.is_empty() {
        let mut lines = vec![format!("{stopped}piton: no files changed")];
        lines.extend(checks);
        lines.extend(gap_line(view.coverage));
        lines.extend(view.not_protected.iter().map(|line| format!("piton: {}", clean(line))));
        lines.extend(view.git.iter().flat_map(git_lines));
        output.note(&lines.join("\n"));
        return Ok(());
    }
    let mut lines = vec![format!("{stopped}piton: {} changed", count(changes.len(), "file"))];
    lines.extend(changes.iter().take(NAMED).map(|change| format!("  {}", change_line(change))));
    if changes.len() > NAMED {
        lines.push(format!("  … {} more", changes.len() - NAMED));
    }
    lines.extend(checks);
    lines.extend(gap_line(view.coverage));
    lines.extend(view.not_protected.iter().map(|line| format!("piton: {}", clean(line))));
    lines.extend(view.left.iter().map(|left| format!("  left {}: {}", clean(&left.path), clean(&left.reason))));
    let brings = format!("`piton redo` or `piton restore {id}` brings it again");
    lines.push(match view.rolled_back {
        true if view.left.is_empty() => format!("piton: it failed, and all of that was taken back; {brings}"),
        true => format!("piton: it failed, and that was taken back except for what was left; {brings}"),
        false => format!("piton: `piton undo {run}` takes it back, `piton diff {opened} {id}` shows it"),
    });
    lines.extend(view.git.iter().flat_map(git_lines));
    if !view.shared_with.is_empty() {
        let others = view.shared_with.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        lines.push(format!(
            "piton: {others} worked here at the same time; what changed meanwhile can't be told apart, and `piton undo \
             {run} --both` takes that back too"
        ));
    }
    output.note(&lines.join("\n"));
    Ok(())
}

/// What moved in git. An undo leaves that as it is: the user's git is the user's.
fn git_lines(git: &GitMovesView) -> Vec<String> {
    let mut lines = vec![format!("piton: git: {}", clean(&git.moves.join("; ")))];
    lines.extend(git.put_back.iter().map(|command| format!("piton: `{}` puts that back", clean(command))));
    lines
}

/// What checkpoints may have missed, if the program ran long enough for any.
fn gap_line(CoverageView { checkpoints, longest_gap_ms }: CoverageView) -> Option<String> {
    let made = count(usize::try_from(checkpoints).unwrap_or(usize::MAX), "checkpoint");
    let seconds = longest_gap_ms.div_ceil(1000);
    (checkpoints > 0)
        .then(|| format!("piton: {made} while it ran; what came and went within {seconds} s may be in none"))
}
