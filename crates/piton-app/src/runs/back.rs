//! Putting a run back, as `restore` and `retry --from` do: first what that means is shown, then an entry of the log
//! says it, and the run is paused there.

use std::collections::BTreeSet;

use piton_runtime::{Context, OpenRun, Run, RunError, StartAt, WholeHistory, undone_effects};
use piton_types::{IllegalMove, RunId, RunStatus, Seq, StepPath};

use crate::failure::Failure;
use crate::plan::Plan;
use crate::words::clean;

/// How many steps a plan names.
const NAMED: usize = 20;

/// The steps of a run that are finished and count, each once.
pub fn finished(history: &WholeHistory) -> BTreeSet<&StepPath> {
    let steps = history.steps.iter().zip(&history.step_entries);
    let counts = steps.filter(|(step, seq)| step.is_finished() && !history.is_undone(**seq));
    counts.map(|(step, _)| &step.path).collect()
}

/// Adds what trying a failed run again means: what is done again, and what isn't.
pub fn tries_again(plan: &mut Plan, history: &WholeHistory) {
    let finished = finished(history);
    let mut failed: Vec<&StepPath> = Vec::new();
    for (step, seq) in history.steps.iter().zip(&history.step_entries) {
        let is_open = !history.is_undone(*seq) && !finished.contains(&step.path);
        if is_open && !failed.contains(&&step.path) {
            failed.push(&step.path);
        }
    }
    for step in failed {
        plan.line(format!("step {} is tried again", clean(step.as_str())));
    }
    match finished.len() {
        0 => {}
        1 => plan.line("1 finished step stays"),
        many => plan.line(format!("{many} finished steps stay")),
    }
}

/// Adds what going on from `at` undoes, and what it can't.
pub async fn entails(plan: &mut Plan, context: &Context, run: &RunId, at: &StartAt, after: Seq) -> Result<(), Failure> {
    let history = WholeHistory::of(context, run).await?;
    let from = history.state.status();
    if from.is_final() {
        let cause = IllegalMove { from, to: RunStatus::InProgress };
        return Err(RunError::Illegal { run: run.clone(), cause }.into());
    }
    let mut undone: Vec<String> = Vec::new();
    for (step, seq) in history.steps.iter().zip(&history.step_entries) {
        let path = clean(step.path.as_str());
        // A step that was tried several times is one all the same.
        if *seq > after && !history.is_undone(*seq) && !undone.contains(&path) {
            undone.push(path);
        }
    }
    match undone.len() {
        0 => plan.line("no step is done again"),
        1 => plan.line(format!("step {} is done again", undone[0])),
        many if many > NAMED => plan.line(format!("{many} steps are done again: {}, …", undone[..NAMED].join(", "))),
        many => plan.line(format!("{many} steps are done again: {}", undone.join(", "))),
    }
    for left in undone_effects(context, run, at).await? {
        plan.line(format!("what {} did in the world stays", clean(left.effect.intent.path.as_str())));
    }
    Ok(())
}

/// Puts the run back and leaves it paused.
pub async fn put_back(
    context: &Context,
    run: &RunId,
    at: StartAt,
    usage_back: bool,
    reason: &str,
) -> Result<(), Failure> {
    let open = OpenRun { id: Some(run.clone()), existing: true, at, usage_back, ..OpenRun::default() };
    let held = Run::open(context, open).await?;
    held.pause(reason).await?;
    Ok(())
}
