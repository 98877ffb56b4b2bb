//! One run, driven by this process.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use piton_types::{Clock, Completed, Fence, RunId, RunState, StepPath, Value};

use crate::core::Core;
use crate::record::{Order, RequestRecord};
use crate::{Context, Scope, StepRecord};

/// A run that this process drives, or a completed one that it looks at.
///
/// Dropping it without [`complete`](Self::complete) or [`fail`](Self::fail) leaves the run in progress:
/// it can be opened again, by this process at once and by others as soon as this one is dead. To let
/// others have it, [`pause`](Self::pause) it.
///
/// A run is its own outermost [`Scope`], where [`step`](Scope::step) and its like are. They take the run
/// exclusively, so that the order of calls is the program's and not the scheduler's; what is to run side
/// by side gets a [`branch`](Scope::branch) each.
#[derive(Debug)]
pub struct Run {
    pub(crate) scope: Scope,
}

impl Deref for Run {
    type Target = Scope;

    fn deref(&self) -> &Scope {
        &self.scope
    }
}

impl DerefMut for Run {
    fn deref_mut(&mut self) -> &mut Scope {
        &mut self.scope
    }
}

/// Asks a run of this process to stop; for signal handlers and front ends.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Core>);

impl Stopper {
    /// Stops the run at the next step boundary, to go on later. Steps that run may go on for `grace`;
    /// without it, until they end.
    pub fn stop(&self, reason: &str, grace: Option<std::time::Duration>) {
        let grace_ms = grace.map(crate::deadline::millis);
        self.0.request(RequestRecord { order: Order::Stop { grace_ms }, reason: reason.to_owned() });
    }
}

impl Stopper {
    pub(crate) fn pass_on(&self, request: Option<RequestRecord>) {
        request.into_iter().for_each(|request| self.0.request(request));
    }
}

impl Run {
    pub(crate) fn new(core: Core) -> Self {
        Self { scope: Scope::outermost(Arc::new(core)) }
    }

    /// Another handle of the same run, with all of its calls still to be made: for the program that is to
    /// make them, while this one ends the run.
    pub(crate) fn second(&self) -> Self {
        Self { scope: Scope::outermost(Arc::clone(&self.scope.core)) }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.scope.core
    }

    /// The run's id.
    pub fn id(&self) -> &RunId {
        &self.core().id
    }

    /// The fence of this handle's claim: an entry that carries it is refused once another process took the run over.
    pub fn fence(&self) -> Fence {
        self.core().fence
    }

    /// What the run got from outside.
    pub fn context(&self) -> &Context {
        &self.core().context
    }

    /// The clock that it was opened with.
    pub fn clock(&self) -> &dyn Clock {
        &*self.core().context.clock
    }

    /// The document and inputs that it was created with.
    pub fn input(&self) -> &Value {
        &self.core().input
    }

    /// The state that it is in.
    pub fn state(&self) -> RunState {
        self.core().known().state.clone()
    }

    /// The output of a completed run.
    pub fn outcome(&self) -> Option<Value> {
        match &self.core().known().state {
            RunState::Completed(Completed { output, .. }) => Some(output.clone()),
            _ => None,
        }
    }

    /// Another handle of the run, to be shared: for everything but calls, which this one makes. A program that saves
    /// state while steps run needs one.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use piton_runtime::{Context, OpenRun, Run, RunError};
    /// # use piton_store_objects::ObjectStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RunError> {
    /// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
    /// let mut run = Run::open(&context, OpenRun::default()).await?;
    /// let shared = run.share();
    /// run.step("talk", 1, async |n| {
    ///     shared.save("app", &n.into()).await?;
    ///     Ok::<_, RunError>(n)
    /// })
    /// .await?;
    /// assert_eq!(run.part("app").await?, Some(1.into()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn share(&self) -> Arc<Self> {
        Arc::new(Self { scope: Scope::closed(Arc::clone(&self.scope.core)) })
    }

    /// A way to stop this run from elsewhere in the process.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.scope.core))
    }

    /// The step that ran alone, if the run was opened for that; see [`Run::alone`].
    pub fn ran_alone(&self) -> Option<StepRecord> {
        let path: StepPath = self.core().known().ran_alone.clone()?;
        self.core().known().line.steps.get(&path).map(|step| StepRecord::clone(step))
    }
}
