//! What a debugger shows, as text or as one JSON object.

use piton_app::debug::Breakpoint;
use piton_app::views::debug::{ReplyView, StopReason, StopView};
use piton_app::views::run::OutcomeView;
use piton_flow::{Phase, RunOutcome};

use crate::failure::{Exit, Failure};
use crate::output::{Output, clean};
use crate::session::Session;
use crate::view::{value_line, value_text};

/// A stop.
pub(super) fn stop(output: &Output, stop: &StopView) -> Result<(), Failure> {
    if output.is_json() {
        return output.view(stop);
    }
    lines(stop).iter().try_for_each(|line| output.data(line))
}

/// What is to be said of a stop.
fn lines(stop: &StopView) -> Vec<String> {
    let run = stop.run.as_ref().map(ToString::to_string).unwrap_or_default();
    let error = stop.error.as_deref().map(clean).unwrap_or_default();
    let mut lines = vec![match (stop.reason, stop.phase, &stop.step) {
        (reason, Some(phase), Some(step)) => {
            let side = if phase == Phase::Before { "before" } else { "after" };
            let kind = stop.kind.as_deref().map(clean).unwrap_or_default();
            format!("stopped {side} {} ({kind}): {}", clean(step.as_str()), reason.as_str())
        }
        (StopReason::Completed, ..) => {
            format!("run {run} is completed; `back STEP` goes back in a new run, `quit` ends")
        }
        (StopReason::Failed, ..) => {
            format!("run {run} has failed; `back` goes back, `step` tries again, `quit` ends")
        }
        (StopReason::Waiting, ..) => {
            format!("run {run} waits for an answer; answer it with `piton answer {run}`, then `continue`")
        }
        (reason, ..) => format!("run {run}: {}", reason.as_str()),
    }];
    if !error.is_empty() {
        lines.push(format!("  error: {error}"));
    }
    lines.extend(stop.gave.iter().map(|gave| format!("  gave {}", value_line(gave))));
    lines.extend(stop.questions.iter().map(|question| format!("  {}", clean(&question.prompt))));
    lines
}

/// An answer.
pub(super) fn reply(output: &Output, reply: &ReplyView) -> Result<(), Failure> {
    if matches!(reply, ReplyView::GoesOn | ReplyView::Quits) {
        return Ok(());
    }
    if output.is_json() {
        return output.view(reply);
    }
    match reply {
        ReplyView::GoesOn | ReplyView::Quits => Ok(()),
        ReplyView::GoesBack { to, entails } => {
            output.data(&format!("back to {}", clean(to)))?;
            entails.iter().try_for_each(|line| output.data(&format!("  {}", clean(line))))
        }
        ReplyView::Breakpoints { breakpoints, on_error } => all(output, breakpoints, *on_error),
        ReplyView::Variables { variables } => output.data(&value_text(variables)),
        ReplyView::Set { variables } => output.data(&format!("set {}", clean(&variables.join(", ")))),
        ReplyView::State { stop, breakpoints, on_error } => {
            lines(stop).iter().try_for_each(|line| output.data(line))?;
            all(output, breakpoints, *on_error)
        }
    }
}

fn all(output: &Output, breakpoints: &[Breakpoint], on_error: bool) -> Result<(), Failure> {
    if breakpoints.is_empty() && !on_error {
        return output.data("no breakpoints");
    }
    breakpoints.iter().try_for_each(|breakpoint| output.data(&format!("stops {}", clean(&breakpoint.to_string()))))?;
    if on_error { output.data("stops after nodes that fail") } else { Ok(()) }
}

/// A run that was left where it stood.
pub(super) fn left(session: &Session, outcome: &RunOutcome) -> Result<Exit, Failure> {
    let (output, run) = (&session.output, &outcome.run);
    if output.is_json() {
        output.view(&OutcomeView::from(outcome))?;
    }
    output
        .note(&format!("run {run} is paused. `piton debug {run}` goes on with it, and so does `piton resume {run}`."));
    Ok(Exit::Done)
}
