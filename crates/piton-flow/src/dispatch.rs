//! Which node runs when: a node is ready once everything before it is done. What is ready and what
//! runs are apart, so that several can run at once without the rest knowing.

use std::collections::VecDeque;

use piton_types::{Event, Value};

use crate::engine::{Host, Inputs, Outputs};
use crate::error::FlowError;
use crate::graph::{Graph, GraphNode};
use crate::journal::NodeDone;
use crate::pool::Pool;

/// The nodes that may run, and what the others wait for.
struct Ready {
    queue: VecDeque<usize>,
    waits_for: Vec<usize>,
}

impl Ready {
    fn new(graph: &Graph) -> Self {
        Self {
            queue: VecDeque::from([graph.start]),
            waits_for: graph.nodes.iter().map(|node| node.waits_for).collect(),
        }
    }

    fn take(&mut self) -> Option<usize> {
        self.queue.pop_front()
    }

    fn done(&mut self, node: &GraphNode) {
        for &next in &node.next {
            self.waits_for[next] -= 1;
            if self.waits_for[next] == 0 {
                self.queue.push_back(next);
            }
        }
    }
}

/// Runs everything that the start leads to, one node at a time.
pub(crate) async fn drive(graph: &Graph, inputs: Inputs, host: &Host<'_>) -> Result<Outputs, FlowError> {
    let mut pool = Pool::new(inputs);
    let mut ready = Ready::new(graph);
    let mut outputs = Outputs::new();
    while let Some(place) = ready.take() {
        let node = &graph.nodes[place];
        let given = run_node(node, &pool, host).await?;
        if node.is_end {
            outputs.extend(given.as_map().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        }
        pool.set(node.id.as_str(), given);
        ready.done(node);
    }
    Ok(outputs)
}

/// The outputs of a node: as the journal has them, or of running it now.
async fn run_node(node: &GraphNode, pool: &Pool, host: &Host<'_>) -> Result<Value, FlowError> {
    let (run, step) = (host.journal.run().clone(), node.id.step().clone());
    if let Some(outputs) = host.journal.recorded(&node.id).await.map_err(FlowError::Journal)? {
        (host.events)(&Event::StepSkipped { run, step });
        return Ok(outputs);
    }
    (host.events)(&Event::StepStarted { run: run.clone(), step: step.clone() });
    let (started_at, started) = (host.clock.now(), host.clock.monotonic());
    let (inputs, result) = match node.node.inputs(pool) {
        Ok(inputs) => {
            let result = node.node.run(&inputs, host).await;
            (inputs, result)
        }
        Err(message) => (Value::Null, Err(message)),
    };
    let done = NodeDone {
        node: &node.id,
        inputs: &inputs,
        result: result.as_ref().map_err(String::as_str),
        started_at,
        duration: host.clock.monotonic().saturating_sub(started),
        checkpoint: node.checkpoint,
    };
    let checkpoint = host.journal.record(done).await.map_err(FlowError::Journal)?;
    match result {
        Ok(outputs) => {
            (host.events)(&Event::StepFinished { run, step });
            if let Some(checkpoint) = checkpoint {
                (host.events)(&Event::CheckpointSaved { checkpoint });
            }
            Ok(outputs)
        }
        Err(message) => {
            (host.events)(&Event::StepFailed { run, step, error: message.clone() });
            Err(FlowError::Node { node: node.id.clone(), message })
        }
    }
}
