//! Putting a run back, as `restore` and `retry --from` do: first what that means is shown, then an entry of the log
//! says it, and the run is paused there.

use piton::{Context, History, OpenRun, Run, RunError, StartAt, undone_effects};
use piton_types::{IllegalMove, RunId, RunStatus, Seq};

use crate::consent::Plan;
use crate::failure::Failure;
use crate::output::clean;

/// How many steps a plan names.
const NAMED: usize = 20;

/// Adds what going on from `at` undoes, and what it can't.
pub(crate) async fn entails(
    plan: &mut Plan,
    context: &Context,
    run: &RunId,
    at: &StartAt,
    after: Seq,
) -> Result<(), Failure> {
    let history = History::of(context, run).await?;
    let from = history.state.status();
    if from.is_final() {
        let cause = IllegalMove { from, to: RunStatus::InProgress };
        return Err(RunError::Illegal { run: run.clone(), cause }.into());
    }
    let undone: Vec<_> = history
        .steps
        .iter()
        .zip(&history.step_entries)
        .filter(|(_, seq)| **seq > after && !history.is_undone(**seq))
        .map(|(step, _)| clean(step.path.as_str()))
        .collect();
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
pub(crate) async fn put_back(
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
