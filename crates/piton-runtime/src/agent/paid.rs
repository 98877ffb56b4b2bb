//! Calls that cost something: checked against the budget before, recorded with what they used after, in one
//! commit.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use piton_types::{StepPath, TokenUsage, from_value, to_value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{AgentContext, AgentError, Message};
use crate::{Call, Checkpointed, FailureKind, Run, RunError, StepDone};

/// What a call that costs something gave.
#[derive(Debug, Clone)]
pub struct Paid<T, E> {
    /// What it gave, or why it failed: a call that failed may have cost something too.
    pub result: Result<T, E>,
    /// What it used.
    pub usage: TokenUsage,
    /// What it adds to the conversation.
    pub messages: Vec<Message>,
}

impl AgentContext {
    /// A step of `run` that costs something. Its result, what it used, what it adds to the conversation and
    /// everything else that changed in the context are one entry of the log: after a crash either all of it
    /// is there, or none and the step runs again.
    ///
    /// A step that the log has isn't run and isn't paid again. `path` is its place in the run, which the
    /// caller keeps unique. `estimate` is what it may use at most, as far as the caller knows.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use piton_runtime::{AgentContext, AgentError, Budget, Context, Message, OpenRun, Paid, Run};
    /// # use piton_store_objects::ObjectStore;
    /// # use piton_types::TokenUsage;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), AgentError> {
    /// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
    /// # let run = Run::open(&context, OpenRun::default()).await?;
    /// let mut agent = AgentContext::open(&run).await?;
    /// agent.set_budget(Budget { max_cost: Some(0.05), ..Budget::default() }).await?;
    /// let estimate = TokenUsage { cost: 0.04, ..TokenUsage::default() };
    /// let call = async |question: &str| Paid {
    ///     result: Ok::<_, std::io::Error>(format!("an answer to {question}")),
    ///     usage: TokenUsage { input: 10, output: 20, cost: 0.03 },
    ///     messages: vec![Message::assistant("an answer")],
    /// };
    /// agent.paid(&run, &"turn/1".parse().unwrap(), "why?", estimate, call).await?;
    /// let refused = agent.paid(&run, &"turn/2".parse().unwrap(), "how?", estimate, call).await;
    /// assert!(matches!(refused, Err(AgentError::OverCost { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`AgentError::OverCost`] and [`AgentError::OverTokens`] before the call is made; then nothing is
    /// recorded. [`RunError::Step`] if the call failed, which is recorded with what it used;
    /// [`RunError::Changed`] if the log has the step with another input.
    pub async fn paid<I, T, E, W>(
        &mut self,
        run: &Run,
        path: &StepPath,
        input: I,
        estimate: TokenUsage,
        work: impl FnOnce(I) -> W + Send,
    ) -> Result<T, AgentError>
    where
        I: Serialize + Send,
        T: Serialize + DeserializeOwned + Send,
        E: Display + Send,
        W: Future<Output = Paid<T, E>> + Send,
    {
        let step = path.clone();
        let value = to_value(&input).map_err(RunError::value(format!("the input of step {step}")))?;
        let decode = |output| from_value(output).map_err(RunError::value(format!("the output of step {step}")));
        if let Some(record) = run.recorded(path).await?.filter(|record| record.is_finished()) {
            let record = Arc::unwrap_or_clone(record);
            let now = piton_log::state::encode(&piton_store::Hashing::PLAIN, &value).map_err(RunError::from)?.root;
            if record.input_hash != Some(now) {
                let expected = Call { step: step.clone(), input: Some(record.input) };
                let (expected, got) = (Box::new(expected), Box::new(Call { step, input: Some(value) }));
                return Err(RunError::Changed { run: run.id().clone(), expected, got }.into());
            }
            return Ok(decode(record.output)?);
        }
        self.ledger().check(estimate)?;
        let clock = run.clock();
        let (started_at, started) = (clock.now(), clock.monotonic());
        let paid = work(input).await;
        let duration = clock.monotonic().saturating_sub(started);
        for message in &paid.messages {
            self.push_message(message).await?;
        }
        self.add_usage(paid.usage).await?;
        let (result, output) = match paid.result {
            Ok(output) => {
                let stored = to_value(&output).map_err(RunError::value(format!("the output of step {step}")))?;
                (Ok(stored.clone()), Ok(decode(stored)?))
            }
            Err(error) => (Err(error.to_string()), Err(error.to_string())),
        };
        let done = StepDone { started_at, duration, usage: paid.usage, ..StepDone::new(step.clone(), value, result) };
        let recorded = run.record(done, self.draft_parts()).await?;
        let kind = FailureKind::Work;
        output.map_err(|message| RunError::Step { step, attempt: recorded.attempt, kind, message }.into())
    }
}
