//! One step alone (R7): the program runs on the data of a checkpoint, in a fork that is kept in memory.
//! What the log has is replayed, one new step runs, and everything after it is refused. Neither the
//! history of the run nor the world is touched: effects that the checkpoint doesn't have aren't performed.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use piton_log::EmbeddedStore;
use piton_store::MemoryCheckpointStore;
use piton_types::{CheckpointRef, StepPath};

use crate::core::{Alone, Core};
use crate::line::is_inside;
use crate::open::Purpose;
use crate::{Context, ForkRun, OpenRun, RetryPolicy, Run, RunError, fork_into};

impl Run {
    /// A run for trying one step out on the data of a checkpoint: `step`, or the first that the checkpoint
    /// doesn't have. Run the program on it; the next call after that step fails with
    /// [`RunError::Alone`], and [`ran_alone`](Self::ran_alone) has what came of the step.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use piton_runtime::{Context, OpenRun, Run, RunError};
    /// # use piton_store_objects::ObjectStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RunError> {
    /// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
    /// async fn program(run: &mut Run, factor: u32) -> Result<u32, RunError> {
    ///     let a = run.step("a", 2, async |n| Ok::<_, std::io::Error>(n)).await?;
    ///     let b = run.step("b", a, async |n| Ok::<_, std::io::Error>(n * factor)).await?;
    ///     Ok(run.step("c", b, async |n| Ok::<_, std::io::Error>(n)).await?)
    /// }
    /// let mut run = Run::open(&context, OpenRun { id: Some("sum".parse()?), ..OpenRun::default() }).await?;
    /// program(&mut run, 3).await?;
    ///
    /// // Entry 2 is step `a`. What would `b` give with another factor?
    /// let mut alone = Run::alone(&context, &"sum@2".parse()?, None).await?;
    /// assert!(matches!(program(&mut alone, 5).await, Err(RunError::Alone { .. })));
    /// assert_eq!(alone.ran_alone().map(|step| step.output), Some(10.into()));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn alone(context: &Context, at: &CheckpointRef, step: Option<StepPath>) -> Result<Self, RunError> {
        Self::alone_with(context, at, step, ForkRun::default()).await
    }

    /// [`alone`](Self::alone), on data with changes.
    #[boxed]
    pub async fn alone_with(
        context: &Context,
        at: &CheckpointRef,
        step: Option<StepPath>,
        changes: ForkRun,
    ) -> Result<Self, RunError> {
        let memory = EmbeddedStore::new(Arc::new(MemoryCheckpointStore::new()));
        let scratch = Context { store: Arc::new(memory), ..context.clone() };
        let id = fork_into(context, &scratch, at, changes).await?;
        let open = OpenRun { id: Some(id), retry: RetryPolicy::NONE, ..OpenRun::default() };
        Self::open_for(&scratch, open, Purpose { alone: Some(Alone { step }), ..Purpose::default() }).await
    }
}

impl Core {
    /// That this call may run: in a run of one step, only that one may.
    pub(crate) fn check_alone(&self, path: &StepPath) -> Result<(), RunError> {
        let Some(alone) = &self.alone else { return Ok(()) };
        let ran = self.known().ran_alone.clone();
        let related = |one: &StepPath| one == path || is_inside(path, one) || is_inside(one, path);
        if alone.step.as_ref().is_none_or(related) && ran.is_none_or(|ran| ran == *path) {
            return Ok(());
        }
        Err(RunError::Alone { step: path.clone(), only: alone.step.clone() })
    }
}
