//! From opening a run to its end, whatever that is.

use std::future::Future;

use piton_types::{RunState, StepPath};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::step::decode;
use crate::{Context, Failure, OpenRun, Run, RunError};

/// How a run stands once it was driven.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome<T> {
    /// It is over, and gave this.
    Completed(T),
    /// It failed. Driven again, it tries what failed once more.
    Failed(Failure),
    /// It was stopped. Driven again, it goes on.
    Paused {
        /// Why.
        reason: String,
    },
    /// It was given up.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// It waits for an answer. Driven again after that, it goes on; no process needs to be alive meanwhile.
    Waiting {
        /// The question.
        step: StepPath,
        /// What to show.
        prompt: String,
    },
}

impl Run {
    /// Opens a run, runs `program` on it and ends it by what comes of that.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use piton_runtime::{Context, OpenRun, Outcome, Run, RunError};
    /// # use piton_store_objects::ObjectStore;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RunError> {
    /// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
    /// let outcome = Run::drive(&context, OpenRun::default(), async |mut run| {
    ///     let n = run.step("count", "bees", async |topic| Ok::<_, std::io::Error>(topic.len())).await?;
    ///     if n > 100 { Err(RunError::program("too many")) } else { Ok(n) }
    /// })
    /// .await?;
    /// assert_eq!(outcome, Outcome::Completed(4));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What keeps the run from being driven at all: it is held, or its store fails. It isn't over then.
    pub async fn drive<T, W>(
        context: &Context,
        open: OpenRun,
        program: impl FnOnce(Self) -> W + Send,
    ) -> Result<Outcome<T>, RunError>
    where
        T: Serialize + DeserializeOwned + Send,
        W: Future<Output = Result<T, RunError>> + Send,
    {
        let run = Self::open(context, open).await?;
        if let Some(output) = run.outcome() {
            let end: StepPath = "output".parse()?;
            return Ok(Outcome::Completed(decode(&end, output)?));
        }
        match program(run.second()).await {
            Ok(output) => {
                run.complete(&output).await?;
                Ok(Outcome::Completed(output))
            }
            Err(RunError::Stopped { reason, .. }) => Ok(match run.state() {
                RunState::Cancelled { .. } => Outcome::Cancelled { reason },
                _ => Outcome::Paused { reason },
            }),
            Err(RunError::Waiting { step, prompt, .. }) => Ok(Outcome::Waiting { step, prompt }),
            Err(error) if error.leaves_the_run() => Err(error),
            Err(error) => {
                let failure = Failure::from(&error);
                // Who didn't answer in time has failed it already.
                if !matches!(run.state(), RunState::Failed(_)) {
                    run.fail(failure.clone()).await?;
                }
                Ok(Outcome::Failed(failure))
            }
        }
    }
}
