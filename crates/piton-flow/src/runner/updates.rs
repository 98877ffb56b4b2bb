//! Variables that whoever holds a durable run sets. They are steps of its log, so that whoever goes on with the run
//! has them too.

use std::sync::Arc;

use piton_runtime::{Run, RunError, StepDone};
use piton_types::{StepPath, Value, from_value, to_value};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::control::{Control, Update};
use crate::record;
use crate::selector::Selector;

/// No node can have this name.
const PREFIX: &str = "#update";

/// What the log has of an update.
#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    selector: Vec<String>,
    value: Value,
    /// Nodes that had set the same before.
    after: Vec<String>,
}

/// The updates that the log has, oldest first.
pub(crate) fn recorded(run: &Run) -> Result<Vec<Update>, RunError> {
    let mut found = Vec::new();
    for number in 1.. {
        let Some(step) = run.recorded(&path(number)?) else { break };
        found.extend(read(&step.path, step.output)?);
    }
    Ok(found)
}

/// The updates that a step of them has.
pub(crate) fn read(step: &StepPath, output: Value) -> Result<Vec<Update>, RunError> {
    let updates: Vec<Recorded> =
        from_value(output).map_err(|cause| RunError::Value { what: format!("step {step}"), cause })?;
    let update = |update: Recorded| {
        let selector = Selector::new(update.selector).ok()?;
        Some(Update { selector, value: update.value, after: update.after })
    };
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

/// Updates of one run are numbered one after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turn(Arc<tokio::sync::Mutex<()>>);

/// Records updates, then makes them. Beside the work, which may hold what a write needs; and in a task of its own,
/// so that a write is never cut short.
pub(crate) fn record_beside(
    run: &Arc<Run>,
    control: &Control,
    turn: &Turn,
    values: Vec<(Selector, Value)>,
    done: oneshot::Sender<Result<(), String>>,
) {
    let (run, control, turn) = (Arc::clone(run), control.clone(), turn.clone());
    tokio::spawn(async move {
        let _turn = turn.0.lock().await;
        let recorded = record(&run, values).await;
        let told = match recorded {
            Ok(updates) => {
                control.put_updates(updates);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        };
        // Who doesn't wait for it doesn't want to know.
        let _ = done.send(told);
    });
}

/// Records updates. Nobody else records any meanwhile.
pub(crate) async fn record(run: &Run, values: Vec<(Selector, Value)>) -> Result<Vec<Update>, RunError> {
    let mut number = 1;
    while run.recorded(&path(number)?).is_some() {
        number += 1;
    }
    let updates: Vec<Update> = values
        .into_iter()
        .map(|(selector, value)| Update { after: setters(run, &selector), selector, value })
        .collect();
    let stored: Vec<Recorded> = updates
        .iter()
        .map(|update| Recorded {
            selector: std::iter::once(&update.selector.node).chain(&update.selector.path).cloned().collect(),
            value: update.value.clone(),
            after: update.after.clone(),
        })
        .collect();
    let value = to_value(&stored).map_err(|cause| RunError::Value { what: "an update".to_owned(), cause })?;
    let step = StepDone { started_at: run.clock().now(), ..StepDone::new(path(number)?, Value::Null, Ok(value)) };
    run.record(step, Vec::new()).await?;
    Ok(updates)
}

/// The nodes that have set this variable so far.
fn setters(run: &Run, selector: &Selector) -> Vec<String> {
    let is_setter = |path: &StepPath| {
        let Some(step) = run.recorded(path) else { return false };
        let output = record::read(step.output);
        path.as_str() == selector.node || output.assignments.iter().any(|(set, _)| set == selector)
    };
    let finished = run.finished();
    finished.iter().filter(|path| !path.as_str().contains('/') && is_setter(path)).map(ToString::to_string).collect()
}
