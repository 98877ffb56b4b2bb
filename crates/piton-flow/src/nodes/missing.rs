//! A node of a kind that isn't known here. Its document is checked as far as it can be, and the kind is a
//! need of it; such a node never runs. Also a node that its author hasn't filled in yet: it fails when its turn comes.

use async_trait::async_trait;
use piton_types::Value;

use crate::need::Need;
use crate::node::{Exits, Node, NodeContext, NodeError, NodeOutput};

#[derive(Debug)]
struct Missing {
    kind: String,
}

/// A node of a kind that isn't known.
pub(crate) fn missing(kind: &str) -> Box<dyn Node> {
    Box::new(Missing { kind: kind.to_owned() })
}

#[async_trait]
impl Node for Missing {
    async fn run(&self, _inputs: &Value, _context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        Err(NodeError::new("UnknownKind", format!("there is no kind {:?} here", self.kind)))
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Kind { kind: self.kind.clone() }]
    }

    fn exits(&self) -> Exits {
        Exits::Any
    }
}

#[derive(Debug)]
struct Unfinished {
    what: String,
}

/// A node of which something is still missing.
pub(crate) fn unfinished(what: String) -> Box<dyn Node> {
    Box::new(Unfinished { what })
}

#[async_trait]
impl Node for Unfinished {
    async fn run(&self, _inputs: &Value, _context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        Err(NodeError::new("Unfinished", format!("the node is unfinished: {}", self.what)))
    }

    fn exits(&self) -> Exits {
        Exits::Any
    }
}
