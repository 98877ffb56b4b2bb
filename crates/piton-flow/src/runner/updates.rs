//! Variables that the caller who holds a durable run sets. They are steps of its log, so that a process that goes on
//! with the run has them too.

use std::sync::Arc;

use piton_runtime::{Run, RunError, StepDone, StepRecord};
use piton_types::{StepPath, Value, ValueError, from_value, to_value};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::body::FlowBody;
use crate::control::{Control, Update};
use crate::document::Document;
use crate::engine::Host;
use crate::journal::NodeDone;
use crate::node::Effect;
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

/// The updates of one run, which are numbered one after the other.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    /// How many steps of them there are.
    count: u32,
}

impl Updates {
    /// The updates that the log has, oldest first.
    pub(crate) async fn recorded(&mut self, run: &Run) -> Result<Vec<Update>, RunError> {
        let mut found = Vec::new();
        while let Some(step) = run.recorded(&path(self.count + 1)?).await? {
            self.count += 1;
            found.extend(read(&step.path, step.output.clone())?);
        }
        Ok(found)
    }

    /// Makes updates: they count from now on, for the nodes that begin or end from now on, and are written next. `done`
    /// is told when they are written.
    pub(crate) fn make(
        &mut self,
        values: Vec<(Selector, Value)>,
        host: &Host<'_>,
        control: &Control,
        done: oneshot::Sender<Result<(), String>>,
    ) {
        let updates: Vec<Update> = values
            .into_iter()
            .map(|(selector, value)| Update { after: control.setters(&selector), selector, value })
            .collect();
        let (step, value) = match (path(self.count + 1), stored(&updates)) {
            (Ok(step), Ok(value)) => (step, value),
            (Err(error), _) => return drop(done.send(Err(error.to_string()))),
            (_, Err(error)) => return drop(done.send(Err(error.to_string()))),
        };
        self.count += 1;
        control.put_updates(updates);
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
        });
        // A caller that doesn't wait for it needs no answer.
        host.burst.call(move || drop(done.send(Ok(()))));
    }
}

fn stored(updates: &[Update]) -> Result<Value, ValueError> {
    let stored: Vec<Recorded> = updates
        .iter()
        .map(|update| Recorded {
            selector: std::iter::once(&update.selector.node).chain(&update.selector.path).cloned().collect(),
            value: update.value.clone(),
            after: update.after.clone(),
        })
        .collect();
    to_value(&stored)
}

/// Writes updates into the log of a run that nothing drives.
pub(crate) async fn record(run: &Run, values: Vec<(Selector, Value)>) -> Result<(), RunError> {
    let mut updates = Updates::default();
    updates.recorded(run).await?;
    let ended = run.finished_among(nodes(run).await).await?;
    let made = |(selector, value)| Update { after: setters(&ended, &selector), selector, value };
    let value = stored(&values.into_iter().map(made).collect::<Vec<_>>())
        .map_err(|cause| RunError::Value { what: "an update".to_owned(), cause })?;
    let step = StepDone::new(path(updates.count + 1)?, Value::Null, Ok(value));
    run.record(StepDone { started_at: run.clock().now(), ..step }, Vec::new()).await?;
    Ok(())
}

/// The nodes of the run's document.
async fn nodes(run: &Run) -> Vec<StepPath> {
    let body = FlowBody::of_run(run).await.ok();
    let document = body.and_then(|body| Document::parse(&body.document, body.format).ok());
    document.iter().flat_map(|document| &document.nodes).filter_map(|node| node.id.as_str().parse().ok()).collect()
}

/// Those of the nodes that have set this variable.
fn setters(ended: &[Arc<StepRecord>], selector: &Selector) -> Vec<String> {
    let sets = |step: &StepRecord| record::assignments(&step.output).iter().any(|(set, _)| set == selector);
    let setters = ended.iter().filter(|step| step.path.as_str() == selector.node || sets(step));
    setters.map(|step| step.path.to_string()).collect()
}
