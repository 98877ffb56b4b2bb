//! `iteration-start`, `loop-start` and `loop-end`: places in a container. They do nothing; the container
//! looks where the run went.

use async_trait::async_trait;
use piton_types::Value;

use crate::kind::{Build, Built};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};

#[derive(Debug)]
struct Marker;

pub(super) fn build(_build: &Build<'_>) -> Built {
    Ok(Box::new(Marker))
}

#[async_trait]
impl Node for Marker {
    async fn run(&self, _inputs: &Value, _context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        Ok(NodeOutput::default())
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }
}
