//! The kinds of nodes, one file each. What a node takes from the variables is computed first, apart from
//! its work: it is recorded with the result, and the work sees nothing else.

mod command;
mod end;
mod start;
mod template_transform;

use std::fmt;

use async_trait::async_trait;
use piton_types::{Path, Value, from_value};
use serde::de::DeserializeOwned;

use crate::document::NodeSpec;
use crate::engine::{Host, Inputs};
use crate::pool::{Pool, Selector};
use crate::problem::Problems;

/// The kind that a workflow begins with.
pub(crate) const START: &str = "start";

/// The kind whose outputs are the workflow's.
pub(crate) const END: &str = "end";

/// Settings of any node that this version doesn't have. Ignoring them would run another workflow than
/// the one that was written.
pub(crate) const NOT_YET: [&str; 3] = ["error_strategy", "retry_config", "timeout_secs"];

/// The setting of any node that says whether a checkpoint is made when it has finished.
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// Kinds after which a checkpoint is made unless the node says otherwise.
const CHECKPOINT_BY_DEFAULT: [&str; 1] = ["agent"];

/// Whether a checkpoint is made after a node: as it says, else by its kind.
pub(crate) fn makes_checkpoint(kind: &str, data: &Value) -> bool {
    match data.field(CHECKPOINT) {
        Some(Value::Bool(wanted)) => *wanted,
        _ => CHECKPOINT_BY_DEFAULT.contains(&kind),
    }
}

/// A node, ready to run.
#[async_trait]
pub(crate) trait Node: fmt::Debug + Send + Sync {
    /// What it takes from the variables.
    fn inputs(&self, pool: &Pool) -> Result<Value, String>;

    /// Does its work and returns its outputs, a map; or says why it can't.
    async fn run(&self, inputs: &Value, host: &Host<'_>) -> Result<Value, String>;

    /// The variables that it names.
    fn selectors(&self) -> Vec<&Selector>;

    /// Checks what the workflow is given, before anything runs.
    fn check(&self, _inputs: &Inputs) -> Result<(), Problems> {
        Ok(())
    }
}

/// Why a node can't be built, and where in its data.
pub(crate) struct BuildError {
    pub(crate) path: Path,
    pub(crate) message: String,
}

/// The node that `spec` describes.
pub(crate) fn build(spec: &NodeSpec) -> Result<Box<dyn Node>, BuildError> {
    match spec.kind.as_str() {
        START => Ok(Box::new(start::Start::build(data(spec)?)?)),
        END => Ok(Box::new(end::End::build(data(spec)?))),
        "template-transform" => Ok(Box::new(template_transform::TemplateTransform::build(data(spec)?)?)),
        "command" => Ok(Box::new(command::Command::build(data(spec)?)?)),
        unknown => {
            let shown: String = unknown.chars().take(40).collect();
            let message = format!("this version of the engine has no kind {shown:?}");
            Err(BuildError { path: Path::root().key("type"), message })
        }
    }
}

fn data<T: DeserializeOwned>(spec: &NodeSpec) -> Result<T, BuildError> {
    from_value(spec.data.clone()).map_err(|error| {
        let path = error.path().clone();
        let message = error.to_string();
        let message = message.strip_prefix(&format!("at {path}: ")).unwrap_or(&message).to_owned();
        BuildError { path, message }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_of_checkpoints_beats_its_kind() {
        let data = |wanted: Value| Value::map([(CHECKPOINT, wanted)]);
        for (kind, by_default) in [("command", false), ("end", false), ("agent", true)] {
            assert_eq!(makes_checkpoint(kind, &Value::map::<&str>([])), by_default, "{kind}");
            assert_eq!(makes_checkpoint(kind, &data(Value::Null)), by_default, "{kind}");
            assert!(makes_checkpoint(kind, &data(Value::Bool(true))), "{kind}");
            assert!(!makes_checkpoint(kind, &data(Value::Bool(false))), "{kind}");
        }
    }
}
