//! How far a workflow has come: which share of its nodes is done or passed over.

use piton_runtime::{History, RunError};
use piton_types::{Progress, RunId};

use crate::body::FlowBody;
use crate::document::Document;
use crate::error::FlowError;
use crate::flow::Flow;
use crate::kind::Kinds;
use crate::position::Position;

/// How much of a workflow's run is done. Nothing if its document has kinds of nodes that aren't the engine's own.
///
/// # Errors
///
/// [`FlowError::NotAWorkflow`], and what the store says.
pub async fn how_far(run: &RunId, history: &History) -> Result<Option<Progress>, FlowError> {
    let body = FlowBody::of_history(run, history).await?;
    let document = Document::parse(&body.document, body.format).map_err(FlowError::Document)?;
    let Ok(flow) = Flow::build(&document, &Kinds::builtin()) else { return Ok(None) };
    let nodes: Vec<_> =
        flow.graph.nodes.iter().filter(|node| node.reached).map(|node| node.id.step().clone()).collect();
    let all = nodes.len().max(1);
    let finished = history.finished_among(nodes).await.map_err(RunError::Store)?;
    let pending = Position::pending(&flow.graph, finished.iter().map(|step| (&step.path, &step.output))).len();
    let percent = all.saturating_sub(pending) * 100 / all;
    Ok(u8::try_from(percent).ok().map(Progress::percent))
}
