//! One run, driven by this process.
//!
//! The invariant: what the handle believes is what the log has. Writes go through [`Run::append`], one
//! at a time, and a write that fails or is cut short breaks the handle: from then on nothing is run and
//! nothing is written, because what the log has is no longer known here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use piton_store::{Draft, RunLog, StoreError};
use piton_types::{
    Clock, Completed, Durability, IllegalMove, Parts, RunId, RunState, RunStatus, RunSummary, Seq, StepPath, Value,
};

use crate::live::LiveClaim;
use crate::{Context, Listener, RunError, StepRecord};

/// A run that this process drives, or a completed one that it looks at.
///
/// Dropping it without [`complete`](Self::complete) or [`fail`](Self::fail) leaves the run in progress:
/// it can be opened again, by this process at once and by others as soon as this one is dead.
///
/// Steps may run concurrently on one handle.
#[derive(Debug)]
pub struct Run {
    pub(crate) id: RunId,
    pub(crate) context: Context,
    pub(crate) durability: Durability,
    pub(crate) events: Listener,
    pub(crate) input: Value,
    pub(crate) retries: u32,
    pub(crate) writer: tokio::sync::Mutex<Writer>,
    pub(crate) known: Mutex<Known>,
    /// Held as long as the handle exists; a completed run is claimed by nobody.
    pub(crate) _claim: Option<LiveClaim>,
}

/// What writes need, one at a time.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: RunLog,
    /// The run's index row, as last written.
    pub(crate) summary: RunSummary,
    /// The parts of the newest checkpoint.
    pub(crate) parts: Parts,
    /// A write began and hasn't ended; if that is found by the next one, its future was dropped.
    pub(crate) writing: bool,
}

/// What is known without asking the store.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) state: RunState,
    /// The newest attempt at every step.
    pub(crate) steps: BTreeMap<StepPath, StepRecord>,
    /// How often each name was used on this handle.
    pub(crate) uses: HashMap<String, u32>,
    /// How many steps began on this handle.
    pub(crate) begun: u32,
    /// Why nothing more may be written.
    pub(crate) broken: Option<String>,
}

impl Run {
    /// The run's id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// The document and inputs that it was created with.
    pub fn input(&self) -> &Value {
        &self.input
    }

    /// The state that it is in.
    pub fn state(&self) -> RunState {
        self.known().state.clone()
    }

    /// The output of a completed run.
    pub fn outcome(&self) -> Option<Value> {
        match &self.known().state {
            RunState::Completed(Completed { output, .. }) => Some(output.clone()),
            _ => None,
        }
    }

    /// The clock that it was opened with.
    pub fn clock(&self) -> &dyn Clock {
        &*self.context.clock
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no code that holds this lock panics")
    }

    /// That work may begin: the run is in progress, and no write failed.
    pub(crate) fn check_ready(&self) -> Result<(), RunError> {
        let known = self.known();
        if let Some(cause) = &known.broken {
            return Err(RunError::Broken { run: self.id.clone(), cause: cause.clone() });
        }
        let (from, to) = (known.state.status(), RunStatus::InProgress);
        if from != to {
            return Err(RunError::Illegal { run: self.id.clone(), cause: IllegalMove { from, to } });
        }
        Ok(())
    }

    /// Appends an entry, as durable as the run is.
    pub(crate) async fn append(&self, writer: &mut Writer, mut draft: Draft<'_>) -> Result<Seq, RunError> {
        if std::mem::replace(&mut writer.writing, true) {
            self.known().broken.get_or_insert_with(|| "a write was cut short".to_owned());
        }
        self.check_ready()?;
        draft.durability = self.durability;
        let appended = writer.log.append(draft).await;
        writer.writing = false;
        appended.map_err(|error| {
            // These two are found before anything is written.
            if !matches!(error, StoreError::Invalid { .. } | StoreError::TooLarge { .. }) {
                self.known().broken = Some(error.to_string());
            }
            error.into()
        })
    }
}
