//! Runs, their steps and questions, and what came of driving them.

use std::time::Duration;

use piton_flow::{EnvironmentChange, Impact, OpenQuestion, RunOutcome};
use piton_runtime::{QuestionRecord, StepRecord};
use piton_store::{Place, Waiting, WorkerStanding};
use piton_types::{
    CheckpointRef, RunId, RunKind, RunState, RunStatus, RunSummary, StepPath, Timestamp, TokenUsage, Value,
    Verification,
};
use serde::Serialize;
use serde_json::Value as Json;

use super::files::ChangeView;
use super::{millis, text, text_or_null, value_json};
use crate::names::short_of;
use crate::runs::queue::DOCUMENT;

/// What the index knows of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunView {
    /// The run.
    pub id: RunId,
    /// The same, under the name that every view has.
    pub run: RunId,
    /// The name that a person types: `guard-3`; its id if its user chose that.
    pub short: String,
    /// What it is called.
    pub name: String,
    /// What kind of work it is.
    pub kind: RunKind,
    /// Its state.
    pub status: RunStatus,
    /// When it came to be.
    #[serde(serialize_with = "text")]
    pub created_at: Timestamp,
    /// When its log last grew.
    #[serde(serialize_with = "text")]
    pub updated_at: Timestamp,
    /// For a fork, the checkpoint that it branched from.
    #[serde(serialize_with = "text_or_null")]
    pub parent: Option<CheckpointRef>,
    /// The folder that it belongs to.
    pub folder: Option<String>,
}

impl RunView {
    /// Whether it is work that a person or program began, and not the log of a folder's files.
    pub fn is_work(&self) -> bool {
        self.kind != RunKind::Workspace
    }
}

impl From<RunSummary> for RunView {
    fn from(run: RunSummary) -> Self {
        Self {
            short: short_of(&run),
            id: run.id.clone(),
            run: run.id,
            name: run.name,
            kind: run.kind,
            status: run.status,
            created_at: run.created_at,
            updated_at: run.updated_at,
            parent: run.parent,
            folder: run.folder,
        }
    }
}

/// What a run used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct UsageView {
    /// Tokens that went in.
    pub input: u64,
    /// Tokens that came out.
    pub output: u64,
    /// Both.
    pub total: u64,
    /// What it cost.
    pub cost: f64,
}

impl From<TokenUsage> for UsageView {
    fn from(usage: TokenUsage) -> Self {
        Self { input: usage.input, output: usage.output, total: usage.total(), cost: usage.cost }
    }
}

/// A run in a list.
#[derive(Debug, Clone, Serialize)]
pub struct ListedRun {
    /// The run.
    #[serde(flatten)]
    pub run: RunView,
    /// Whether it is in progress though no process drives it.
    pub stalled: bool,
    /// Whether its program stands still until what changed upstream was seen to.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stands_still: bool,
    /// From its beginning to its end, or to now.
    pub duration_ms: u64,
    /// How much of that a process was at work; null for a run that has done so much that nobody counts.
    pub worked_ms: Option<u64>,
    /// The step that ended last, or the one that asks or is at work.
    pub step: Option<String>,
    /// What it was started with, of a workflow.
    pub inputs: Json,
    /// What it used; zeros if that isn't known.
    #[serde(serialize_with = "usage")]
    pub usage: Option<UsageView>,
    /// What it asks, where waiting runs were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The questions with their forms, where waiting runs were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub questions: Option<Vec<QuestionView>>,
    /// Why it failed, where failed runs were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How it waits for a worker, or which has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueView>,
    /// What of its log can't be read, if it was looked at and something can't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// How a run waits for a worker.
#[derive(Debug, Clone, Serialize)]
pub struct QueueView {
    /// The worker that has it.
    pub worker: Option<String>,
    /// How often a worker took it since it was put in.
    pub attempts: u32,
    /// When a worker may take it; null for a run that waits to be tried again by a person.
    #[serde(serialize_with = "text_or_null")]
    pub due: Option<Timestamp>,
    /// The larger, the sooner.
    pub priority: i32,
    /// What a worker must have.
    pub labels: Vec<String>,
    /// Why the last attempt came to nothing.
    pub problem: Option<String>,
}

impl From<Place> for QueueView {
    fn from(place: Place) -> Self {
        let Waiting { labels, priority, due, attempts, problem, .. } = place.waiting;
        Self { worker: place.worker, attempts, due, priority, labels: named(labels), problem }
    }
}

/// A run that was put into the queue.
#[derive(Debug, Clone, Serialize)]
pub struct SubmittedView {
    /// The run.
    pub id: RunId,
    /// The same, under the name that every view has.
    pub run: RunId,
    /// How it stands.
    pub status: RunStatus,
    /// Whether there was none of that id or key before.
    pub is_new: bool,
}

/// What a worker did until it ended.
#[derive(Debug, Clone, Serialize)]
pub struct WorkedView {
    /// Its name.
    pub worker: String,
    /// How many runs it took.
    pub runs: u64,
}

/// A worker.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerView {
    /// Its name.
    pub name: String,
    /// What it has.
    pub labels: Vec<String>,
    /// How many runs it drives at once.
    pub concurrency: u32,
    /// How many it has.
    pub runs: u32,
    /// How long ago it gave its last sign of life.
    pub silent_for_ms: u64,
    /// Whether it takes no more.
    pub draining: bool,
}

impl From<WorkerStanding> for WorkerView {
    fn from(worker: WorkerStanding) -> Self {
        let WorkerStanding { info, holds, silent_for, draining } = worker;
        Self {
            name: info.name,
            labels: named(info.labels),
            concurrency: info.concurrency,
            runs: holds,
            silent_for_ms: u64::try_from(silent_for.as_millis()).unwrap_or(u64::MAX),
            draining,
        }
    }
}

fn usage<S: serde::Serializer>(usage: &Option<UsageView>, serializer: S) -> Result<S::Ok, S::Error> {
    usage.unwrap_or_default().serialize(serializer)
}

/// A run with all that there is to see of it.
#[derive(Debug, Clone, Serialize)]
pub struct WholeRun {
    /// The run.
    #[serde(flatten)]
    pub run: RunView,
    /// What it gave; null unless it completed.
    pub outputs: Json,
    /// Why it failed.
    pub error: Option<String>,
    /// Its newest checkpoint.
    #[serde(serialize_with = "text_or_null")]
    pub checkpoint: Option<CheckpointRef>,
    /// How long it was at work.
    pub duration_ms: Option<u64>,
    /// How often it went on after something went wrong.
    pub recovery_attempts: u32,
    /// What it used; zeros if that isn't known.
    #[serde(serialize_with = "usage")]
    pub usage: Option<UsageView>,
    /// What it waits for.
    pub questions: Vec<AskedView>,
    /// How many steps are done for good.
    pub finished_steps: u64,
    /// How urgent it was when it was created: the larger, the sooner.
    pub priority: i32,
    /// A guess at its work when it was created.
    pub estimated_complexity: Option<f64>,
    /// Where it is; null if it is over.
    pub progress: Option<ProgressView>,
    /// How a person goes on with it, if it is paused.
    pub resume_instructions: Option<String>,
    /// The files that it changed, as far as its checkpoints tell.
    pub files_modified: Vec<String>,
    /// What was checked of its work.
    pub verification: Vec<Verification>,
    /// The steps, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<StepView>>,
    /// How it stands.
    #[serde(skip)]
    pub state: RunState,
}

/// Something that happened, as a person means it.
#[derive(Debug, Clone, Serialize)]
pub struct Happening {
    /// The entry that has it.
    #[serde(serialize_with = "text")]
    pub id: CheckpointRef,
    /// The run.
    pub run: RunId,
    /// What the run is called.
    pub name: String,
    /// When.
    #[serde(serialize_with = "text")]
    pub created_at: Timestamp,
    /// Who did it.
    pub who: String,
    /// What: a prompt, a command, a description.
    pub what: String,
    /// How many files changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<usize>,
    /// How many lines were added, unless so many files changed that they weren't counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added: Option<usize>,
    /// How many lines were removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<usize>,
    /// Who made what changed in the files: `user`, `agent`, `unattributed` or `restore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_by: Option<&'static str>,
    /// What the entry is called in the log.
    pub label: String,
    /// Whether it was taken back, or the run put back to before it.
    pub undone: bool,
    /// What changed, where paths were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Vec<ChangeView>>,
}

impl Happening {
    /// An entry of which nothing is known yet.
    pub fn of(id: &CheckpointRef, at: Timestamp) -> Self {
        Self {
            id: id.clone(),
            run: id.run.clone(),
            name: String::new(),
            created_at: at,
            who: String::new(),
            what: String::new(),
            files: None,
            added: None,
            removed: None,
            made_by: None,
            label: String::new(),
            undone: false,
            changes: None,
        }
    }
}

/// Where a run is.
#[derive(Debug, Clone, Serialize)]
pub struct ProgressView {
    /// The agent or node at work, or the one that was last.
    pub current: Option<String>,
    /// The step at work, or the one that ended last.
    pub step: Option<StepPath>,
    /// How often its loop went round.
    pub iteration: u32,
    /// How much is done, from 0 to 100, if that is known.
    pub percent: Option<u8>,
    /// What was done last.
    pub last_progress: Option<String>,
}

/// A question in a run's own view.
#[derive(Debug, Clone, Serialize)]
pub struct AskedView {
    /// Its place in the run.
    pub step: StepPath,
    /// What is asked.
    pub prompt: String,
    /// When it stops waiting.
    #[serde(serialize_with = "text_or_null")]
    pub timeout_at: Option<Timestamp>,
}

impl From<&QuestionRecord> for AskedView {
    fn from(question: &QuestionRecord) -> Self {
        Self {
            step: question.path.clone(),
            prompt: question.prompt.clone(),
            timeout_at: question.deadline.as_ref().map(|deadline| deadline.at),
        }
    }
}

/// A step's attempt.
#[derive(Debug, Clone, Serialize)]
pub struct StepView {
    /// Its path.
    pub step: StepPath,
    /// Its number in the run.
    pub index: u32,
    /// `completed` or `failed`.
    pub status: &'static str,
    /// Which attempt.
    pub attempt: u32,
    /// When it began.
    #[serde(serialize_with = "text")]
    pub created_at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// What it was given.
    pub input: Json,
    /// What it gave.
    pub output: Json,
    /// Why it failed.
    pub error: Option<String>,
    /// What it used, with all that is inside it.
    pub usage: UsageView,
    /// Whether the run was put back to before it, so that it counts no more.
    pub undone: bool,
}

impl StepView {
    /// What there is to see of an attempt.
    pub fn of(step: &StepRecord, undone: bool) -> Self {
        Self {
            step: step.path.clone(),
            index: step.index,
            status: if step.is_finished() { "completed" } else { "failed" },
            attempt: step.attempt,
            created_at: step.started_at,
            duration_ms: step.duration_ms,
            input: value_json(&step.input),
            output: value_json(&step.output),
            error: step.error.clone(),
            usage: step.usage.into(),
            undone,
        }
    }
}

/// A step's attempt with its place.
#[derive(Debug, Clone, Serialize)]
pub struct WholeStep {
    /// The entry that has it.
    #[serde(serialize_with = "text")]
    pub id: CheckpointRef,
    /// The run.
    pub run: RunId,
    /// The step.
    #[serde(flatten)]
    pub step: StepView,
}

/// A question that is open.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuestionView {
    /// Its place in the run.
    pub step: StepPath,
    /// What only a person who was told of it knows.
    pub token: String,
    /// Its title.
    pub title: Option<String>,
    /// What is asked.
    pub prompt: String,
    /// Whether it asks for a yes or no.
    pub approval: bool,
    /// The fields of the answer.
    pub fields: Vec<FieldView>,
    /// What was wrong with the last answer.
    pub problem: Option<String>,
    /// When it stops waiting.
    #[serde(serialize_with = "text_or_null")]
    pub timeout_at: Option<Timestamp>,
    /// Whether it says what the answer should look like.
    #[serde(skip)]
    pub has_form: bool,
}

/// A field of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldView {
    /// Its name.
    pub name: String,
    /// What people call it.
    pub label: String,
    /// What it should be.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether there is no answer without it.
    pub required: bool,
    /// What it may be, if that is limited.
    pub options: Vec<Json>,
    /// What it is if the answer doesn't say.
    pub default: Json,
}

impl From<&OpenQuestion> for QuestionView {
    fn from(question: &OpenQuestion) -> Self {
        let form = question.form.as_ref();
        let fields = form.into_iter().flat_map(|form| &form.fields).map(|field| FieldView {
            name: field.name.clone(),
            label: field.label.clone(),
            kind: field.kind.clone(),
            required: field.required,
            options: field.options.iter().map(value_json).collect(),
            default: value_json(&field.default),
        });
        Self {
            step: question.step.clone(),
            token: question.token.clone(),
            title: form.map(|form| form.title.clone()),
            prompt: question.prompt.clone(),
            approval: form.is_some_and(|form| form.approval),
            fields: fields.collect(),
            problem: form.and_then(|form| form.problem.clone()),
            timeout_at: question.timeout_at,
            has_form: form.is_some(),
        }
    }
}

/// What came of driving a run.
#[derive(Debug, Clone, Serialize)]
pub struct OutcomeView {
    /// The run.
    pub id: RunId,
    /// The same, under the name that every view has.
    pub run: RunId,
    /// How it stands: a run status, or `failed_with_recovery`.
    pub status: &'static str,
    /// What it gave; null unless it completed.
    pub outputs: Json,
    /// Why it failed, was paused or cancelled, or what its error handler recovered from.
    pub error: Option<String>,
    /// What was used in all.
    pub usage: UsageView,
    /// How many nodes failed without stopping it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceptions: Option<u32>,
    /// What was checked of its work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verification: Vec<Verification>,
    /// What it waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionView>,
    /// What stopping it came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StoppedView>,
}

/// What stopping a run came to.
#[derive(Debug, Clone, Serialize)]
pub struct StoppedView {
    /// The node that ended last.
    pub last_completed_node: Option<StepPath>,
    /// The nodes that were cut short.
    pub interrupted_nodes: Vec<StepPath>,
    /// Whether everything up to there is kept.
    pub checkpoint_saved: bool,
}

impl From<&RunOutcome> for OutcomeView {
    fn from(outcome: &RunOutcome) -> Self {
        let outputs = match outcome.status {
            RunStatus::Completed => value_json(&Value::Map(outcome.outputs.clone())),
            _ => Json::Null,
        };
        Self {
            id: outcome.run.clone(),
            run: outcome.run.clone(),
            status: match &outcome.recovered_from {
                Some(_) => "failed_with_recovery",
                None => outcome.status.as_str(),
            },
            outputs,
            error: outcome.error.clone().or_else(|| outcome.recovered_from.clone()),
            usage: outcome.usage.into(),
            exceptions: Some(outcome.exceptions).filter(|exceptions| *exceptions > 0),
            verification: outcome.verification.clone(),
            questions: outcome.questions.iter().map(QuestionView::from).collect(),
            stopped: outcome.stopped.as_ref().map(|stopped| StoppedView {
                last_completed_node: stopped.last_completed.clone(),
                interrupted_nodes: stopped.interrupted.clone(),
                checkpoint_saved: stopped.checkpoint_saved,
            }),
        }
    }
}

impl OutcomeView {
    /// A run that its driver dropped where it stood, before or after it began.
    pub fn dropped(run: &RunId, started: bool) -> Self {
        let status = if started { RunStatus::InProgress } else { RunStatus::Queued };
        Self {
            id: run.clone(),
            run: run.clone(),
            status: status.as_str(),
            outputs: Json::Null,
            error: Some("stopped by a signal".to_owned()),
            usage: UsageView::default(),
            exceptions: None,
            verification: Vec::new(),
            questions: Vec::new(),
            stopped: None,
        }
    }
}

/// What became of a request to a run.
#[derive(Debug, Clone, Serialize)]
pub struct RequestView {
    /// The run.
    pub id: RunId,
    /// The same, under the name that every view has.
    pub run: RunId,
    /// How it stands now.
    pub status: Option<RunStatus>,
    /// `done`, `asked` (the process that drives it was asked) or `already`.
    pub request: &'static str,
}

/// An answer that is in the log.
#[derive(Debug, Clone, Serialize)]
pub struct AnsweredView {
    /// The run.
    pub id: RunId,
    /// The same, under the name that every view has.
    pub run: RunId,
    /// The question.
    pub step: StepPath,
    /// How the run stands now.
    pub status: Option<RunStatus>,
    /// The person who answered.
    pub by: String,
    /// How many questions are still open.
    pub open: usize,
    /// What kind of work the run is.
    #[serde(skip)]
    pub kind: Option<RunKind>,
}

/// A new run that branched off.
#[derive(Debug, Clone, Serialize)]
pub struct ForkedView {
    /// The run.
    pub id: RunId,
    /// The same, under the name that every view has.
    pub run: RunId,
    /// How it stands.
    pub status: RunStatus,
    /// Where it branched off.
    #[serde(serialize_with = "text")]
    pub parent: CheckpointRef,
    /// The settings that finished steps had used already: those steps keep what they gave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<UsedView>,
    /// What kind of work it is.
    #[serde(skip)]
    pub kind: RunKind,
}

/// A setting that comes too late for some steps.
#[derive(Debug, Clone, Serialize)]
pub struct UsedView {
    /// Its name.
    pub name: String,
    /// The finished steps that had used it.
    pub by: Vec<StepPath>,
    /// The entry before the first of them: a fork of that does them again.
    #[serde(serialize_with = "text")]
    pub before: CheckpointRef,
}

/// A fork with its files in a new folder.
#[derive(Debug, Clone, Serialize)]
pub struct ForkedFolder {
    /// The run, if it is one that goes on.
    pub id: Option<RunId>,
    /// The same, under the name that every view has.
    pub run: Option<RunId>,
    /// Where it branched off.
    #[serde(serialize_with = "text")]
    pub parent: CheckpointRef,
    /// The new folder.
    pub folder: String,
    /// How many files it has.
    pub files: usize,
    /// How many of them share their space with the old ones.
    pub cloned: usize,
    /// How many ignored files were copied along.
    pub ignored: usize,
}

/// A step that was tried, and not recorded.
#[derive(Debug, Clone, Serialize)]
pub struct TriedView {
    /// The step.
    pub step: StepPath,
    /// On what it was tried.
    #[serde(serialize_with = "text")]
    pub parent: CheckpointRef,
    /// The checkpoint of files of which it was tried in a copy; null if it was none that runs programs, or was tried in the
    /// folder itself.
    #[serde(serialize_with = "text_or_null")]
    pub files: Option<CheckpointRef>,
    /// What it was given.
    pub input: Json,
    /// What it gave.
    pub output: Json,
    /// Why it failed.
    pub error: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
}

/// A run that is paused and ready to go on.
#[derive(Debug, Clone, Serialize)]
pub struct ReadyView {
    /// The run.
    pub run: RunId,
    /// How it stands.
    pub status: RunStatus,
}

/// A run whose state was put back.
#[derive(Debug, Clone, Serialize)]
pub struct PutBackView {
    /// The run.
    pub run: RunId,
    /// How it stands.
    pub status: RunStatus,
    /// Where it was put back to.
    #[serde(serialize_with = "text")]
    pub restored: CheckpointRef,
    /// Its newest checkpoint.
    #[serde(serialize_with = "text_or_null")]
    pub checkpoint: Option<CheckpointRef>,
}

/// What changed since a run was begun, and what another document would mean for it.
#[derive(Debug, Serialize)]
pub struct ExplainedView {
    /// The run.
    pub run: RunId,
    /// What changed.
    pub changes: Vec<EnvironmentChange>,
    /// What the document would mean.
    pub impact: Option<Impact>,
    /// Whether a resume would be refused.
    #[serde(skip)]
    pub is_refused: bool,
}

/// From its beginning to its end, or to `now` if it isn't over.
pub(crate) fn lasted(run: &RunSummary, now: Timestamp) -> u64 {
    let over = !matches!(run.status, RunStatus::InProgress | RunStatus::Waiting);
    let end = if over { run.updated_at } else { now };
    let time: Duration = end.since(run.created_at);
    millis(time)
}

/// The labels that a person has given.
fn named(mut labels: Vec<String>) -> Vec<String> {
    labels.retain(|label| label != DOCUMENT);
    labels
}
