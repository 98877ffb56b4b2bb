//! One node alone (R7): what it would come to on the data of a checkpoint, perhaps with changes. It runs in a fork that
//! is kept in memory: neither the history of the run nor what it did in the world is touched. The node itself runs
//! for real, with a key of its own.

use std::path::Path;

use piton_runtime::{Context, ForkRun, Run, RunError, StepRecord};
use piton_types::{CheckpointRef, StepPath};

use crate::body::FlowBody;
use crate::document::Document;
use crate::durable::RunJournal;
use crate::engine::{self, Host};
use crate::error::FlowError;
use crate::flow::Flow;
use crate::kind::Kinds;
use crate::need::Services;

/// Runs one node on the data of an entry of a workflow's log, and returns what came of it.
///
/// # Errors
///
/// As [`Run::alone`]; [`RunError::NoSuchStep`] if the run doesn't come to that node from there.
pub async fn run_alone(
    context: &Context,
    at: &CheckpointRef,
    step: &StepPath,
    changes: ForkRun,
    services: &Services,
    kinds: &Kinds,
) -> Result<StepRecord, FlowError> {
    let run = Run::alone_with(context, at, Some(step.clone()), changes).await?;
    let body = FlowBody::of_run(&run)?;
    let document = Document::parse(&body.document, body.format).map_err(FlowError::Document)?;
    let flow = Flow::build(&document, kinds).map_err(FlowError::Document)?;
    let journal = RunJournal::new(&run, &flow, services, &*context.clock);
    let ids = NoIds;
    let host =
        Host { folder: body.folder.as_deref().map(Path::new), services, ..Host::new(&journal, &*context.clock, &ids) };
    // It ends in an error: everything after that node is refused.
    match engine::run(&flow, body.inputs, &host).await {
        Err(FlowError::Journal(error)) => match error.downcast::<RunError>() {
            Ok(error) if matches!(*error, RunError::Alone { .. }) => {}
            Ok(error) => return Err(FlowError::Run(*error)),
            Err(error) => return Err(FlowError::Journal(error)),
        },
        Err(FlowError::Node { .. }) | Ok(_) => {}
        Err(error) => return Err(error),
    }
    run.ran_alone().ok_or_else(|| RunError::NoSuchStep { run: at.run.clone(), step: step.clone() }.into())
}

/// Nobody will see them again.
struct NoIds;

impl engine::Ids for NoIds {
    fn next(&self) -> String {
        "alone".to_owned()
    }
}
