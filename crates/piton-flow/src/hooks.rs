//! What a program does before and after a workflow.

use std::sync::Arc;

use async_trait::async_trait;
use piton_types::RunId;

use crate::engine::Inputs;
use crate::error::FlowError;
use crate::runner::ExecutionStatus;

/// Is called before and after a workflow that this process drives: to prepare what it needs, to tell others of it.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use piton_flow::{Document, ExecutionStatus, Format, Inputs, WorkflowHooks, WorkflowRunner};
/// use piton_types::RunId;
///
/// #[derive(Default)]
/// struct Diary(Mutex<Vec<String>>);
///
/// #[async_trait::async_trait]
/// impl WorkflowHooks for Diary {
///     async fn before(&self, run: &RunId, _inputs: &Inputs) -> Result<(), String> {
///         self.0.lock().unwrap().push(format!("{run} begins"));
///         Ok(())
///     }
///
///     async fn after(&self, run: &RunId, status: &ExecutionStatus) {
///         self.0.lock().unwrap().push(format!("{run} is over: {}", matches!(status, ExecutionStatus::Completed(_))));
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let schema = Document::parse("
/// # nodes: [{id: in, data: {type: start}}, {id: out, data: {type: end, outputs: []}}]
/// # edges: [{source: in, target: out}]
/// # ", Format::Yaml)?;
/// let diary = Arc::new(Diary::default());
/// let handle = WorkflowRunner::builder(schema).workflow_id("tuesday").hooks(diary.clone()).build().run().await?;
/// handle.wait().await;
/// assert_eq!(*diary.0.lock().unwrap(), ["tuesday begins", "tuesday is over: true"]);
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait WorkflowHooks: Send + Sync {
    /// Before the run is opened. An error keeps it from running: nothing was written then.
    async fn before(&self, _run: &RunId, _inputs: &Inputs) -> Result<(), String> {
        Ok(())
    }

    /// The run is over or was stopped, and its handle isn't told yet. A process that dies before doesn't call it.
    async fn after(&self, _run: &RunId, _status: &ExecutionStatus) {}
}

/// The hooks of a workflow, called in the order in which they were given.
#[derive(Clone, Default)]
pub(crate) struct AllHooks(pub(crate) Vec<Arc<dyn WorkflowHooks>>);

impl AllHooks {
    pub(crate) async fn before(&self, run: &RunId, inputs: &Inputs) -> Result<(), FlowError> {
        for hooks in &self.0 {
            hooks.before(run, inputs).await.map_err(|reason| FlowError::Hook { run: run.clone(), reason })?;
        }
        Ok(())
    }

    pub(crate) async fn after(&self, run: &RunId, status: &ExecutionStatus) {
        for hooks in &self.0 {
            hooks.after(run, status).await;
        }
    }
}
