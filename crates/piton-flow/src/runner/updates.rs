//! Variables that the caller who holds a durable run sets. They are steps of its log, so that a process that goes on
//! with the run has them too.

use piton_runtime::{Run, RunError, StepDone, StepStanding};
use piton_types::{StepPath, TokenUsage, Value, ValueError, from_value, to_value};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::control::{Control, Update};
use crate::engine::Host;
use crate::journal::NodeDone;
use crate::node::Effect;
use crate::selector::Selector;

/// No node can have this name.
const PREFIX: &str = "#update";

/// What the log has of an update.
#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    selector: Vec<String>,
    value: Value,
}

/// The variables that a step of updates sets.
pub(crate) fn read(step: &StepPath, output: Value) -> Result<Vec<(Selector, Value)>, RunError> {
    let updates: Vec<Recorded> =
        from_value(output).map_err(|cause| RunError::Value { what: format!("step {step}"), cause })?;
    let update = |update: Recorded| Some((Selector::new(update.selector).ok()?, update.value));
    Ok(updates.into_iter().filter_map(update).collect())
}

/// The step of the updates of this number, from 1.
pub(crate) fn path(number: u32) -> Result<StepPath, RunError> {
    Ok(format!("{PREFIX}/{number}").parse()?)
}

/// Whether a step has updates, and not what a node gave.
pub(crate) fn are(step: &StepPath) -> bool {
    step.as_str().strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('/'))
}

/// The updates that the log has, oldest first, and in how many steps it has them.
pub(crate) async fn recorded(run: &Run) -> Result<(u32, Vec<Update>), RunError> {
    let (mut count, mut found) = (0, Vec::new());
    loop {
        let step = path(count + 1)?;
        let StepStanding::Finished { output, order, .. } = run.standing(&step).await? else {
            return Ok((count, found));
        };
        count += 1;
        let made = |(selector, value)| Update { selector, value, order: Some(order) };
        found.extend(read(&step, output)?.into_iter().map(made));
    }
}

/// Makes updates: they count from now on, for the nodes that begin or end from now on, and are written next. `done`
/// is told when they are written.
pub(crate) fn make(
    values: Vec<(Selector, Value)>,
    host: &Host<'_>,
    control: &Control,
    done: oneshot::Sender<Result<(), String>>,
) {
    let value = match stored(&values) {
        Ok(value) => value,
        Err(error) => return drop(done.send(Err(error.to_string()))),
    };
    let step = match path(control.next_update_step()) {
        Ok(step) => step,
        Err(error) => return drop(done.send(Err(error.to_string()))),
    };
    control.update(values);
    host.burst.ended(NodeDone {
        step,
        inputs: Value::Null,
        result: Ok(value),
        started_at: host.clock.now(),
        duration: std::time::Duration::ZERO,
        // It can't be had again, so nothing begins before it is written.
        effect: Effect::Outward,
        checkpoint: false,
        retry: None,
        unanswered: false,
        usage: TokenUsage::default(),
    });
    // A caller that doesn't wait for it needs no answer.
    host.burst.call(move || drop(done.send(Ok(()))));
}

fn stored(values: &[(Selector, Value)]) -> Result<Value, ValueError> {
    let stored = values.iter().map(|(selector, value)| Recorded {
        selector: std::iter::once(&selector.node).chain(&selector.path).cloned().collect(),
        value: value.clone(),
    });
    to_value(&stored.collect::<Vec<_>>())
}

/// Writes updates into the log of a run that nothing drives.
pub(crate) async fn record(run: &Run, values: &[(Selector, Value)]) -> Result<(), RunError> {
    let (count, _) = recorded(run).await?;
    let value = stored(values).map_err(|cause| RunError::Value { what: "an update".to_owned(), cause })?;
    let step = StepDone::new(path(count + 1)?, Value::Null, Ok(value));
    run.record(StepDone { started_at: run.clock().now(), ..step }, Vec::new()).await?;
    Ok(())
}
