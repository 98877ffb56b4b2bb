//! Putting a run back, as `restore` and `retry --from` do: first what that means is shown, then an entry of the log
//! says it, and the run is paused there.

use std::collections::BTreeSet;
use std::sync::Arc;

use piton_log::RunLog;
use piton_runtime::{Context, History, OpenRun, Pager, Run, RunError, StartAt, undone_effects};
use piton_types::{IllegalMove, RunId, RunStatus, Seq};

use crate::failure::Failure;
use crate::plan::Plan;

/// How many steps a plan names.
const NAMED: usize = 20;

/// Adds what trying a failed run again means: what is done again, and what isn't.
pub async fn tries_again(plan: &mut Plan, history: &History) -> Result<(), Failure> {
    for step in history.failed().await? {
        plan.line(format!("step {} is tried again", step.as_str()));
    }
    match history.finished {
        0 => {}
        1 => plan.line("1 finished step stays"),
        many => plan.line(format!("{many} finished steps stay")),
    }
    Ok(())
}

/// Adds what going on from `at` undoes, and what it can't.
pub async fn entails(plan: &mut Plan, context: &Context, run: &RunId, at: &StartAt, after: Seq) -> Result<(), Failure> {
    let log = RunLog::open(Arc::clone(&context.store), run).await?;
    let from = History::read(&log).await?.state.status();
    if from.is_final() {
        let cause = IllegalMove { from, to: RunStatus::InProgress };
        return Err(RunError::Illegal { run: run.clone(), cause }.into());
    }
    let (mut pager, mut behind) = (Pager::new(&log), Vec::new());
    while pager.cursor().is_some_and(|cursor| cursor.next > after) {
        behind.extend(pager.steps(NAMED).await?.into_iter().filter(|past| past.seq > after && !past.undone));
    }
    // A step that was tried several times is one all the same.
    let mut seen = BTreeSet::new();
    let undone = behind.iter().rev().map(|past| past.step.path.to_string()).filter(|path| seen.insert(path.clone()));
    let undone: Vec<String> = undone.collect();
    match undone.len() {
        0 => plan.line("no step is done again"),
        1 => plan.line(format!("step {} is done again", undone[0])),
        many if many > NAMED => plan.line(format!("{many} steps are done again: {}, …", undone[..NAMED].join(", "))),
        many => plan.line(format!("{many} steps are done again: {}", undone.join(", "))),
    }
    for left in undone_effects(context, run, at).await? {
        plan.line(format!("what {} did in the world stays", left.effect.intent.path.as_str()));
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
