//! Steps: work that runs once. Its result is one entry of the log, written when it ends; a step that
//! the log has finished isn't run again, whoever asks.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use piton_store::{Draft, DraftPart, Hashing, state};
use piton_types::{BlobId, EntryKind, Event, Seq, StepPath, Timestamp, TokenUsage, Value, from_value, to_value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Run, RunError, StepRecord};

/// A step that ended, to be recorded.
#[derive(Debug)]
pub struct StepDone {
    /// Its place in the run.
    pub path: StepPath,
    /// What it took in.
    pub input: Value,
    /// What it gave out, or why it failed.
    pub result: Result<Value, String>,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Duration,
}

/// Where the log has a step that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Its entry.
    pub seq: Seq,
    /// Which attempt it was, from 1.
    pub attempt: u32,
}

impl Run {
    /// Runs `work` with `input` and records what it gives; if the log has that already, returns it
    /// without running anything.
    ///
    /// The step's place in the run is `name`; the second use of a name on one handle is `name#2`, and
    /// so on, so a program must use its names in the same order every time it runs. Concurrent steps
    /// need names of their own.
    ///
    /// When it returns `Ok`, the result is as durable as the run. What is returned is always what the
    /// log has: a type that loses something when it is stored shows that the first time, not after a
    /// crash. If the work fails, that is recorded too, and the step runs again when the run is resumed.
    /// If the process dies before the result is recorded, the work runs again as well.
    ///
    /// # Errors
    ///
    /// [`RunError::Step`] if the work fails, [`RunError::Changed`] if the log has the step with another
    /// input. After [`RunError::Store`] the run must be opened again.
    pub async fn step<I, T, E, W>(&self, name: &str, input: I, work: impl FnOnce(I) -> W + Send) -> Result<T, RunError>
    where
        I: Serialize + Send,
        T: Serialize + DeserializeOwned + Send,
        E: Display + Send,
        W: Future<Output = Result<T, E>> + Send,
    {
        let step = self.place(name)?;
        let value = to_value(&input).map_err(RunError::value(format!("the input of step {step}")))?;
        let run = self.id.clone();
        if let Some(record) = self.recorded(&step).filter(StepRecord::is_finished) {
            let now = input_hash(&value)?;
            if record.input_hash != now {
                return Err(RunError::Changed { step, recorded: record.input_hash, now });
            }
            let output = decode(&step, record.output)?;
            self.events.tell(&Event::StepSkipped { run, step });
            return Ok(output);
        }
        self.check_ready()?;
        self.events.tell(&Event::StepStarted { run: run.clone(), step: step.clone() });
        let (started_at, started) = (self.context.clock.now(), self.context.clock.monotonic());
        let result = work(input).await;
        let duration = self.context.clock.monotonic().saturating_sub(started);
        let (result, output) = match result {
            Ok(output) => {
                let stored = to_value(&output).map_err(RunError::value(format!("the output of step {step}")))?;
                let output = decode(&step, stored.clone())?;
                (Ok(stored), Ok(output))
            }
            Err(error) => (Err(error.to_string()), Err(error.to_string())),
        };
        let done = StepDone { path: step.clone(), input: value, result, started_at, duration };
        let Recorded { attempt, .. } = self.record(done, Vec::new()).await?;
        match output {
            Ok(output) => {
                self.events.tell(&Event::StepFinished { run, step, duration, usage: TokenUsage::default() });
                Ok(output)
            }
            Err(message) => {
                self.events.tell(&Event::StepFailed { run, step: step.clone(), error: message.clone() });
                Err(RunError::Step { step, attempt, message })
            }
        }
    }

    /// The newest attempt at a step that the log has. For engines that name their steps themselves;
    /// others use [`step`](Self::step).
    pub fn recorded(&self, path: &StepPath) -> Option<StepRecord> {
        self.known().steps.get(path).cloned()
    }

    /// The steps that finished well, each of which [`recorded`](Self::recorded) has.
    pub fn finished(&self) -> Vec<StepPath> {
        let known = self.known();
        known.steps.iter().filter(|(_, step)| step.is_finished()).map(|(path, _)| path.clone()).collect()
    }

    /// Records a step that ended. It tells nobody: an engine has its own events, and tells them when
    /// this has returned.
    ///
    /// With any `parts` the entry is a checkpoint too, in the same commit; see
    /// [`checkpoint`](Self::checkpoint). Without, it carries no state.
    pub async fn record(&self, done: StepDone, parts: Vec<DraftPart<'_>>) -> Result<Recorded, RunError> {
        let (output, error) = match done.result {
            Ok(output) => (output, None),
            Err(message) => (Value::Null, Some(message)),
        };
        let input_hash = input_hash(&done.input)?;
        let mut writer = self.writer.lock().await;
        let record = {
            let mut known = self.known();
            let index = known.begun;
            known.begun += 1;
            StepRecord {
                index,
                input_hash,
                input: done.input,
                output,
                error,
                started_at: done.started_at,
                duration_ms: u64::try_from(done.duration.as_millis()).unwrap_or(u64::MAX),
                attempt: known.steps.get(&done.path).map_or(0, |last| last.attempt) + 1,
                path: done.path,
            }
        };
        let mut draft = Draft::new(EntryKind::StepDone, self.context.clock.now());
        draft.label = record.path.as_str().to_owned();
        draft.body = to_value(&record).map_err(RunError::value(format!("the record of step {}", record.path)))?;
        draft.parts = parts;
        let seq = if draft.parts.is_empty() {
            self.append(&mut writer, draft).await?
        } else {
            self.append_checkpoint(&mut writer, draft).await?
        };
        let attempt = record.attempt;
        self.known().steps.insert(record.path.clone(), record);
        Ok(Recorded { seq, attempt })
    }

    /// The place of the next step of this name.
    fn place(&self, name: &str) -> Result<StepPath, RunError> {
        let path: StepPath = name.parse()?;
        let mut known = self.known();
        let uses = known.uses.entry(name.to_owned()).or_insert(0);
        *uses += 1;
        if *uses == 1 { Ok(path) } else { Ok(format!("{name}#{uses}").parse()?) }
    }
}

/// Plain in every store, so that a run which was copied into an encrypted one still fits.
fn input_hash(input: &Value) -> Result<BlobId, RunError> {
    Ok(state::encode(&Hashing::PLAIN, input)?.root)
}

fn decode<T: DeserializeOwned>(step: &StepPath, output: Value) -> Result<T, RunError> {
    from_value(output).map_err(RunError::value(format!("the output of step {step}")))
}
