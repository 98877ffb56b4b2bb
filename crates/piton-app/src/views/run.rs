//! Runs, their steps and questions, and what came of driving them.

use std::time::Duration;

use piton_flow::{EnvironmentChange, Impact, OpenQuestion, RunOutcome};
use piton_runtime::{QuestionRecord, StepRecord};
use piton_types::{
    CheckpointRef, RunId, RunKind, RunState, RunStatus, RunSummary, StepPath, Timestamp, TokenUsage, Value,
};
use serde::Serialize;
use serde_json::Value as Json;

use super::{millis, text, text_or_null, value_json};

/// What the index knows of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunView {
    /// The run.
    pub id: RunId,
    /// The same, under the name that every view has.
    pub run: RunId,
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

impl From<RunSummary> for RunView {
    fn from(run: RunSummary) -> Self {
        Self {
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
    /// From its beginning to its end, or to now.
    pub duration_ms: u64,
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
    /// How often it was taken up again after a crash.
    pub recovery_attempts: u32,
    /// What it used; zeros if that isn't known.
    #[serde(serialize_with = "usage")]
    pub usage: Option<UsageView>,
    /// What it waits for.
    pub questions: Vec<AskedView>,
    /// How many steps are done for good.
    pub finished_steps: u64,
    /// The steps, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<StepView>>,
    /// How it stands.
    #[serde(skip)]
    pub state: RunState,
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
}

impl From<&StepRecord> for StepView {
    fn from(step: &StepRecord) -> Self {
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
    /// What kind of work it is.
    #[serde(skip)]
    pub kind: RunKind,
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
