//! What a run says of its work while it runs and when it ends: how far it has come, what was checked, which files it
//! changed.
//!
//! What counts of it is found in the log like everything else: going back undoes it, and a process that goes on has it.
//! Where the program says nothing, the steps tell where the run is.

use piton_types::{Durability, Progress, ProgressReport, StepPath, Verification, to_value};
use serde::Serialize;

use crate::core::draft;
use crate::fact::Fact;
use crate::record::LogRecord;
use crate::{History, Run, RunError};

/// Where a run is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AtWork {
    /// The agent or node at work, or the one that was last.
    pub current: Option<String>,
    /// The step at work, or the one that ended last.
    pub step: Option<StepPath>,
    /// How often its loop went round.
    pub iteration: u32,
    /// How much is done, if the program says.
    pub progress: Option<Progress>,
    /// What was done last, for a person.
    pub last_progress: Option<String>,
}

impl Run {
    /// Says how far the run has come, for the people who look at it. What isn't said stays as it was said before, or as
    /// the steps tell.
    ///
    /// It costs a commit without a sync: a power cut may lose the newest report, and nothing depends on it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use piton_runtime::{Context, History, OpenRun, Run, RunError};
    /// # use piton_store_objects::ObjectStore;
    /// use piton_types::{Progress, ProgressReport};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RunError> {
    /// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
    /// let run = Run::open(&context, OpenRun::default()).await?;
    /// run.report(ProgressReport { progress: Some(Progress::percent(40)), ..ProgressReport::of("read 4 of 10") }).await?;
    /// let at_work = History::of(&context, run.id()).await?.at_work();
    /// assert_eq!(at_work.last_progress.as_deref(), Some("read 4 of 10"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn report(&self, report: ProgressReport) -> Result<(), RunError> {
        let before = self.core().known().line.noted.progress.clone().unwrap_or_default();
        let progress = ProgressReport {
            current: report.current.or(before.current),
            iteration: report.iteration.or(before.iteration),
            progress: report.progress.or(before.progress),
            summary: report.summary.or(before.summary),
        };
        self.note(LogRecord { progress: Some(progress), ..LogRecord::default() }, Durability::Relaxed).await
    }

    /// Records what came of a check of the run's work. The run has it when it completes, and a check of the same name
    /// that is made later takes its place. A check that failed doesn't fail the run.
    pub async fn verified(&self, check: Verification) -> Result<(), RunError> {
        let durability = self.core().durability;
        self.note(LogRecord { verified: vec![check], ..LogRecord::default() }, durability).await
    }

    /// Records that files were changed by the run's work. It has them all when it completes.
    pub async fn changed_files(&self, files: Vec<String>) -> Result<(), RunError> {
        if files.is_empty() {
            return Ok(());
        }
        let durability = self.core().durability;
        self.note(LogRecord { files, ..LogRecord::default() }, durability).await
    }

    async fn note(&self, record: LogRecord, durability: Durability) -> Result<(), RunError> {
        let core = self.core();
        core.check_ready()?;
        let mut writer = core.writer().await?;
        let fact = Fact::Logged(record);
        let mut entry = draft(&core.id, &fact)?;
        entry.at = core.context.clock.now();
        let seq = core.append_with(&mut writer, entry, durability).await?;
        core.take_in(seq, fact);
        Ok(())
    }
}

impl History {
    /// Where the run is: what its program said last, and where it didn't, what the steps tell.
    pub fn at_work(&self) -> AtWork {
        let said = self.line.noted.progress.clone().unwrap_or_default();
        // What is at work outside stands in the log before it begins.
        let running = self.uncertain.last().map(|effect| &effect.intent.path);
        let asked = self.questions.last().map(|question| &question.path);
        let step = running.or(asked).or(self.last_step.as_ref().map(|step| &step.path)).cloned();
        let told = step.as_ref().map(told_by).unwrap_or_default();
        let finished = self.last_finished.as_ref().map(|step| format!("{step} finished"));
        AtWork {
            current: said.current.or(told.current),
            iteration: said.iteration.or(told.iteration).unwrap_or_default(),
            step,
            progress: said.progress,
            last_progress: said.summary.or(finished),
        }
    }

    /// What was checked of the run's work, as far as it counts.
    pub fn verifications(&self) -> &[Verification] {
        &self.line.noted.verified
    }

    /// The files that the run changed, as far as it has said so.
    pub fn files_modified(&self) -> impl Iterator<Item = &str> {
        self.line.noted.files.iter().map(String::as_str)
    }
}

/// What the path of a step tells: `loop/3/node` is the third round of `loop`, `agent/turn-2` the second turn of `agent`.
fn told_by(step: &StepPath) -> ProgressReport {
    let mut words = step.as_str().split('/');
    let current = words.next().map(str::to_owned);
    let is_round = |word: &str| word.strip_prefix("turn-").unwrap_or(word).parse().ok();
    ProgressReport { current, iteration: words.next().and_then(is_round), ..ProgressReport::default() }
}

/// The checks of a completed run, as its state has them.
pub(crate) fn checks(verified: &[Verification]) -> Result<piton_types::Value, RunError> {
    match verified {
        [] => Ok(piton_types::Value::Null),
        checks => to_value(checks).map_err(RunError::value("the checks of the run")),
    }
}
