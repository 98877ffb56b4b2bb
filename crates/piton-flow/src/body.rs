//! What a run of a workflow is about: its document and inputs, as entry 0 of its log has them, and the document that
//! it goes on with since, if it was replaced. A replaced document is a step of the log (`#document/N`), so a process that
//! goes on with the run finds it, and going back to before it brings the old one back.

use std::collections::BTreeMap;

use piton_runtime::{History, Run, RunError, StepDone};
use piton_types::{RunId, StepPath, Value, from_value, to_value};
use serde::{Deserialize, Serialize};

use crate::engine::Inputs;
use crate::error::FlowError;
use crate::fingerprint::ContextFingerprint;
use crate::flow::Given;
use crate::format::Format;
use crate::runner::Schedule;

/// No node can have this name.
const PREFIX: &str = "#document";

/// The file that says what a run may use, as it was when the run was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigFile {
    /// Where it is.
    pub path: String,
    /// The hash of what was in it.
    pub hash: String,
}

/// The configuration that a run says it was begun with. The log says so, and a log may come from anywhere: the caller
/// decides whether to believe it. Nothing for a run that was begun without one, or is no workflow.
pub fn configured_by(history: &History) -> Option<ConfigFile> {
    from_value::<FlowBody>(history.input.clone()).ok()?.config
}

/// What entry 0 of a workflow's run has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FlowBody {
    pub(crate) document: String,
    pub(crate) format: Format,
    pub(crate) inputs: Inputs,
    /// The system variables that it began with.
    #[serde(default)]
    pub(crate) system: BTreeMap<String, Value>,
    /// The variables of the conversation that the turn before it left.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) conversation: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) folder: Option<String>,
    /// What it was begun with; null in a run of before there were fingerprints.
    #[serde(default)]
    pub(crate) fingerprint: Value,
    /// The configuration that it was begun with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<ConfigFile>,
    /// The schedule that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<Schedule>,
}

/// A document that takes the place of the one before.
#[derive(Debug, Serialize, Deserialize)]
struct Replaced {
    document: String,
    format: Format,
    fingerprint: Value,
}

impl FlowBody {
    pub(crate) async fn of_history(run: &RunId, history: &History) -> Result<Self, FlowError> {
        let mut body = Self::read(run, history.input.clone())?;
        for number in 1.. {
            let Some(step) = history.step(&path(number)?).await.map_err(RunError::Store)? else { break };
            body.follow(run, step.output.clone())?;
        }
        Ok(body)
    }

    pub(crate) async fn of_run(run: &Run) -> Result<Self, FlowError> {
        let mut body = Self::read(run.id(), run.input().clone())?;
        for number in 1.. {
            let Some(step) = run.recorded(&path(number)?).await? else { break };
            body.follow(run.id(), step.output.clone())?;
        }
        Ok(body)
    }

    fn read(run: &RunId, input: Value) -> Result<Self, FlowError> {
        from_value(input).map_err(|_| FlowError::NotAWorkflow { run: run.clone() })
    }

    /// Goes on with a document that took the place of the one before.
    fn follow(&mut self, run: &RunId, replaced: Value) -> Result<(), FlowError> {
        let not_a_workflow = |_| FlowError::NotAWorkflow { run: run.clone() };
        let Replaced { document, format, fingerprint } = from_value(replaced).map_err(not_a_workflow)?;
        (self.document, self.format, self.fingerprint) = (document, format, fingerprint);
        Ok(())
    }

    /// What the run was given.
    pub(crate) fn given(&self) -> Given {
        let (inputs, system, conversation) = (self.inputs.clone(), self.system.clone(), self.conversation.clone());
        Given { inputs, system, conversation, ..Given::default() }
    }

    /// What it was begun with.
    pub(crate) fn begun_with(&self) -> Option<ContextFingerprint> {
        ContextFingerprint::read(self.fingerprint.clone())
    }

    /// Puts into the log of the run that it goes on with this document.
    pub(crate) async fn replace(&self, run: &Run) -> Result<(), FlowError> {
        let mut number = 1;
        while run.recorded(&path(number)?).await?.is_some() {
            number += 1;
        }
        let (document, format, fingerprint) = (self.document.clone(), self.format, self.fingerprint.clone());
        let replaced = to_value(&Replaced { document, format, fingerprint })
            .map_err(|cause| RunError::Value { what: "a document".to_owned(), cause })?;
        let done = StepDone::new(path(number)?, Value::Null, Ok(replaced));
        run.record(StepDone { started_at: run.clock().now(), ..done }, Vec::new()).await?;
        Ok(())
    }
}

fn path(number: u32) -> Result<StepPath, RunError> {
    Ok(format!("{PREFIX}/{number}").parse()?)
}
