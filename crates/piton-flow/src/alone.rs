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
/// As [`Run::alone`]; [`FlowError::NotNext`] if something else comes before that node from there, and
/// [`RunError::NoSuchStep`] if the document doesn't have it.
pub async fn run_alone(
    context: &Context,
    at: &CheckpointRef,
    step: &StepPath,
    changes: ForkRun,
    services: &Services,
    kinds: &Kinds,
) -> Result<StepRecord, FlowError> {
    let run = Run::alone_with(context, at, Some(step.clone()), changes).await?;
    let body = FlowBody::of_run(&run).await?;
    let document = Document::parse(&body.document, body.format).map_err(FlowError::Document)?;
    let flow = Flow::build(&document, kinds).map_err(FlowError::Document)?;
    let journal = RunJournal::new(&run, &flow, services, &*context.clock);
    let ids = NoIds;
    let host =
        Host { folder: body.folder.as_deref().map(Path::new), services, ..Host::new(&journal, &*context.clock, &ids) };
    // It ends in an error: everything after that node is refused.
    let mut refused = None;
    match engine::run(&flow, body.given(), &host).await {
        Err(FlowError::Journal(error)) => match error.downcast::<RunError>() {
            Ok(error) => match *error {
                RunError::Alone { step, .. } => refused = Some(step),
                error => return Err(FlowError::Run(error)),
            },
            Err(error) => return Err(FlowError::Journal(error)),
        },
        Err(FlowError::Node { .. }) | Ok(_) => {}
        Err(error) => return Err(error),
    }
    match run.ran_alone() {
        Some(record) => Ok(record),
        None if has(&document, step) => Err(FlowError::NotNext {
            at: at.clone(),
            step: step.clone(),
            before: refused.filter(|other| other != step),
        }),
        None => Err(RunError::NoSuchStep { run: at.run.clone(), step: step.clone() }.into()),
    }
}

/// Whether a document has the node of a step, at whatever depth.
fn has(document: &Document, step: &StepPath) -> bool {
    let node = step.as_str().rsplit('/').next().unwrap_or_default();
    let inside = |inner: &Option<Box<Document>>| inner.as_ref().is_some_and(|inner| has(inner, step));
    document.nodes.iter().any(|spec| spec.id.as_str() == node || inside(&spec.inside))
}

/// Ids for a node that runs alone. No reader sees them again, so they are all the same.
struct NoIds;

impl engine::Ids for NoIds {
    fn next(&self) -> String {
        "alone".to_owned()
    }
}
