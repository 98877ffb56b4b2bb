//! Running a checked document.

use std::collections::BTreeMap;
use std::path::Path;

use piton_types::{Clock, Event, Value};

use crate::dispatch;
use crate::document::Document;
use crate::error::FlowError;
use crate::graph::Graph;
use crate::journal::Journal;

/// What a workflow is given, by name.
pub type Inputs = BTreeMap<String, Value>;

/// What a workflow gives, by name.
pub type Outputs = BTreeMap<String, Value>;

/// What a running workflow needs from whoever runs it.
pub struct Host<'a> {
    /// Keeps what finished.
    pub journal: &'a dyn Journal,
    /// What time it is.
    pub clock: &'a dyn Clock,
    /// Is told what happens, in order, after the journal has it.
    pub events: &'a (dyn Fn(&Event) + Sync),
    /// Where programs run; without one, where this process is.
    pub folder: Option<&'a Path>,
}

impl std::fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("run", self.journal.run()).field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Runs a document from its start to its ends and returns what the ends give together.
///
/// Nodes that the journal has finished don't run again.
///
/// # Errors
///
/// [`FlowError::Document`] and [`FlowError::Inputs`] before anything runs; [`FlowError::Node`] when a
/// node fails, after its failure is in the journal; [`FlowError::Journal`] when the journal fails.
pub async fn run(document: &Document, inputs: Inputs, host: &Host<'_>) -> Result<Outputs, FlowError> {
    let graph = prepare(document, &inputs)?;
    let run = host.journal.run().clone();
    (host.events)(&Event::RunStarted { run: run.clone(), resumed: false });
    let ended = dispatch::drive(&graph, inputs, host).await;
    (host.events)(&match &ended {
        Ok(outputs) => Event::RunSucceeded { run, outputs: Value::Map(outputs.clone()) },
        Err(error) => Event::RunFailed { run, error: error.to_string() },
    });
    ended
}

/// A document and its inputs, checked.
pub(crate) fn prepare(document: &Document, inputs: &Inputs) -> Result<Graph, FlowError> {
    let graph = Graph::build(document).map_err(FlowError::Document)?;
    graph.nodes[graph.start].node.check(inputs).map_err(FlowError::Inputs)?;
    Ok(graph)
}
