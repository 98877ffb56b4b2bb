//! Runs as steps of other runs: a log of its own, an id that follows from the parent's, and a result that
//! the parent records once.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;

use piton_types::{Event, RunId, RunState, StepPath, Value, WaitFor, Waiting, to_value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attempt::Attempt;
use crate::core::Core;
use crate::fact::Fact;
use crate::open::Purpose;
use crate::scope::Input;
use crate::step::{Ending, decode, store_output};
use crate::{FailureKind, OpenRun, Run, RunError, Scope};

impl Scope {
    /// Runs `program` as a run of its own, whose id follows from this one's. The process that goes on with this run
    /// goes on with that one too, and once it is over its result is a step of this one.
    ///
    /// It stops with this run, and if it leaves to wait for an answer, so does this one.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use piton_runtime::{Context, OpenRun, Run, RunError};
    /// # use piton_store_objects::ObjectStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RunError> {
    /// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
    /// let mut run = Run::open(&context, OpenRun { id: Some("all".parse()?), ..OpenRun::default() }).await?;
    /// let length: usize = run
    ///     .child("part", "bees", async |mut child| {
    ///         Ok(child.step("count", "bees", async |topic| Ok::<_, std::io::Error>(topic.len())).await?)
    ///     })
    ///     .await?;
    /// assert_eq!(length, 4);
    /// let step = run.recorded(&"part".parse()?).await?.expect("it is recorded");
    /// assert!(step.child.as_ref().is_some_and(|id| id.as_str().starts_with("all.")));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step); the child is failed then, and tried again with this run.
    pub async fn child<I, T, W>(
        &mut self,
        name: &str,
        input: I,
        program: impl Fn(Run) -> W + Send + Sync,
    ) -> Result<T, RunError>
    where
        I: Serialize + Send + Sync,
        T: Serialize + DeserializeOwned + Send,
        W: Future<Output = Result<T, RunError>> + Send,
    {
        let place = self.place(name)?;
        let stored = Input::new(&place.path, &input)?;
        let core = &*self.core;
        let id = core.child_id(&place.path)?;
        let body = stored.value.clone();
        let (path, program) = (&place.path, &program);
        let attempt = || {
            let purpose = Purpose { child_of: Some((core.id.clone(), path.clone())), alone: None };
            let open = core.child(&id, path, body.clone());
            // A run in a run: the type of the future would have no end.
            let opened: Pin<Box<dyn Future<Output = _> + Send + '_>> =
                Box::pin(Run::open_for(&core.context, open, purpose));
            async move {
                match opened.await {
                    Ok(child) => core.drive_child(child, path, program).await,
                    Err(error) => core.left(error).await,
                }
            }
        };
        core.run_step(&place, stored, None, Some(id.clone()), attempt).await
    }
}

impl Core {
    fn child(&self, id: &RunId, step: &StepPath, body: Value) -> OpenRun {
        OpenRun {
            id: Some(id.clone()),
            name: step.to_string(),
            body,
            durability: self.durability,
            events: self.events.clone(),
            retry: self.retry.clone(),
            waits: self.waits,
            lease: self.lease,
            overdue: self.overdue.clone(),
            ..OpenRun::default()
        }
    }

    async fn drive_child<T: Serialize + DeserializeOwned, W: Future<Output = Result<T, RunError>>>(
        &self,
        child: Run,
        step: &StepPath,
        program: impl Fn(Run) -> W,
    ) -> Ending<T> {
        if let Some(output) = child.outcome() {
            return match decode(step, output.clone()) {
                Ok(value) => Ending::Done(output, value),
                Err(error) => failed(error.to_string()),
            };
        }
        let stopper = child.stopper();
        let ended = {
            let mut work = pin!(self.attempt(program(child.second()), None));
            let mut stop = pin!(async {
                self.asked().await;
                stopper.pass_on(self.known().line.request.clone());
                std::future::pending::<()>().await;
            });
            std::future::poll_fn(|cx| {
                if let Poll::Ready(ended) = work.as_mut().poll(cx) {
                    return Poll::Ready(ended);
                }
                stop.as_mut().poll(cx).map(|()| unreachable!("it is pending for ever"))
            })
            .await
        };
        let message = match ended {
            Attempt::Ended(Ok(output)) => match store_output(step, &output) {
                Ok((stored, output)) => {
                    return match child.complete(&stored).await {
                        Ok(()) => Ending::Done(stored, output),
                        Err(error) => self.left(error).await,
                    };
                }
                Err(message) => message,
            },
            Attempt::Ended(Err(error)) if error.leaves_the_run() => return self.left(error).await,
            Attempt::Ended(Err(error)) => {
                if matches!(child.state(), RunState::Failed(_)) {
                    return failed(error.to_string());
                }
                return match child.fail(&error).await {
                    Ok(()) => failed(error.to_string()),
                    Err(error) => self.left(error).await,
                };
            }
            Attempt::Panicked(said) => format!("it panicked: {said}"),
            Attempt::TimedOut(_) | Attempt::Interrupted => return Ending::Interrupted,
        };
        match child.fail(crate::Failure::new("program", message.clone())).await {
            Ok(()) => failed(message),
            Err(error) => self.left(error).await,
        }
    }

    /// The child isn't over. If it waits, so does this run.
    async fn left<T>(&self, error: RunError) -> Ending<T> {
        match &error {
            RunError::Stopped { .. } if self.known().line.request.is_some() => Ending::Interrupted,
            RunError::Waiting { step, prompt, .. } => {
                let waiting = Waiting { wait_for: WaitFor::UserInput, prompt: prompt.clone(), timeout_at: None };
                if let Err(error) = self.wait_with_it(waiting).await {
                    return Ending::Left(error);
                }
                let (run, step, prompt) = (self.id.clone(), step.clone(), prompt.clone());
                self.events.tell(|| Event::RunPaused { run, step: Some(step), prompt });
                self.release().await;
                Ending::Left(error)
            }
            _ => Ending::Left(error),
        }
    }

    async fn wait_with_it(&self, waiting: Waiting) -> Result<(), RunError> {
        let mut writer = self.writer().await?;
        self.commit(&mut writer, Fact::State(RunState::Waiting(waiting))).await.map(drop)
    }

    /// The id of the run that is the step `path` of this one.
    fn child_id(&self, path: &StepPath) -> Result<RunId, RunError> {
        const DIGITS: usize = 20;
        let epoch = self.known().line.epoch;
        let name = to_value(&(self.id.as_str(), epoch, path.as_str())).map_err(RunError::value("the id of a child"))?;
        let hash = crate::scope::hash(&name)?.to_string();
        let parent = self.id.as_str();
        let kept = parent.len().min(RunId::MAX_LEN - DIGITS - 1);
        Ok(format!("{}.{}", &parent[..kept], &hash[..DIGITS]).parse()?)
    }
}

fn failed<T>(message: String) -> Ending<T> {
    Ending::Failed { kind: FailureKind::Work, message, retryable: true }
}
