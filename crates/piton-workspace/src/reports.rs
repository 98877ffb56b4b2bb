//! An agent that reports what it does, event by event, each from a process of its own: what the hooks of a coding agent
//! are for. Its brackets outlive the process that opened them.
//!
//! The log of the session's run is all that one report knows of another. Only what a tool does lies in brackets, so
//! that what the user types while the agent thinks stays his. A turn (a prompt, and all that the agent did about it)
//! has a beginning and an end too, but is no bracket: to take it back is to take back what its tools did.
//!
//! Ends can be missing: the user interrupts, a tool call is refused. A bracket that is open when the agent says that it is
//! done ends there. One that is open when the user speaks again ends where it began, since nobody knows what
//! happened after that, and it may all be his.

use std::fs::File;
use std::sync::Arc;

use piton_log::{RunLog, SealedEntry};
use piton_store::Span;
use piton_types::{
    CheckpointKind, CheckpointRef, EntryKind, PartName, RunId, RunStatus, RunSummary, Seq, StepPath, Value,
};

use crate::record::{Record, Role};
use crate::session::{Execution, ToolFailure, create_run, end_run};
use crate::snapshot::Saved;
use crate::timeline::{Moment, moment};
use crate::workspace::blocking;
use crate::{Workspace, WorkspaceError};

/// How many entries are read at a time when looking back.
const PAGE: usize = 64;
/// How much of a prompt is shown in lists, in characters.
const PROMPT: usize = 72;
/// What the name of a turn begins with.
const TURN: &str = "turn-";

/// A session that is reported about. One report is made at a time, whatever process it comes from.
#[derive(Debug)]
pub struct Reports {
    workspace: Workspace,
    run: RunId,
    /// Of the run, if it was made for the session.
    summary: Option<RunSummary>,
    _one_at_a_time: File,
}

/// What was reported before, as far as it matters for the next report.
struct Recent {
    /// The number of the next entry, at least.
    next: u32,
    /// How many steps have ended.
    steps: u32,
    /// The tool calls that have begun, oldest first.
    open: Vec<Moment>,
    /// The beginning of the turn, if it is known.
    turn: Option<Moment>,
    /// Whether it has ended.
    turn_ended: bool,
}

impl Reports {
    /// The reports of the session `run`, which is made if there is none. A session that had ended and goes on is a new
    /// run, with a number behind its name.
    pub async fn of(workspace: &Workspace, run: &RunId, name: &str, input: Value) -> Result<Self, WorkspaceError> {
        let lock = one_at_a_time(workspace).await?;
        let mut id = run.clone();
        let mut times = 1;
        let summary = loop {
            match workspace.store().summary(&id).await? {
                None => break create_run(workspace, &id, name.to_owned(), input).await?,
                Some(summary) if summary.status == RunStatus::InProgress => break summary,
                Some(_) => {
                    times += 1;
                    let tail = format!("-{times}");
                    let head: String = run.as_str().chars().take(RunId::MAX_LEN - tail.len()).collect();
                    id = format!("{head}{tail}").parse().expect("an id with a number behind it is one");
                }
            }
        };
        Ok(Self { workspace: workspace.clone(), run: id, summary: Some(summary), _one_at_a_time: lock })
    }

    /// Reports that go into the log of a session which somebody else began and will end.
    pub async fn within(workspace: &Workspace, run: RunId) -> Result<Self, WorkspaceError> {
        let lock = one_at_a_time(workspace).await?;
        Ok(Self { workspace: workspace.clone(), run, summary: None, _one_at_a_time: lock })
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// The user has spoken.
    pub async fn turn_begins(&self, prompt: &str) -> Result<Saved, WorkspaceError> {
        let recent = self.recent().await?;
        for opened in &recent.open {
            let role = Role::Dropped { since: opened.checkpoint.clone() };
            let record = Record { role, ..opened.record.clone().unwrap_or_else(|| Record::manual("")) };
            self.workspace.save(record, &Arc::default()).await?;
        }
        let mut next = recent.next + u32::try_from(recent.open.len()).unwrap_or(0);
        if let Some(turn) = recent.turn.as_ref().filter(|_| !recent.turn_ended) {
            self.close(turn, Ok(Value::Null), recent.steps).await?;
            next += 1;
        }
        let record = Record {
            path: Some(step(TURN.trim_end_matches('-'), next)),
            description: first_line(prompt),
            ..self.record(CheckpointKind::Auto, Role::Saved)
        };
        self.workspace.save(record, &Arc::default()).await
    }

    /// The agent is done for now. `None` if nothing is known to have begun.
    pub async fn turn_ended(&self) -> Result<Option<CheckpointRef>, WorkspaceError> {
        let recent = self.recent().await?;
        let mut steps = recent.steps;
        for opened in &recent.open {
            let message = "how it ended was not reported".to_owned();
            self.close(opened, Err(ToolFailure { message, recoverable: true }), steps).await?;
            steps += 1;
        }
        match &recent.turn {
            Some(turn) => self.close(turn, Ok(Value::Null), steps).await.map(Some),
            None => Ok(None),
        }
    }

    /// A tool call is about to begin; `call` is what the agent calls it.
    pub async fn tool_begins(&self, tool: &str, call: Option<&str>, input: Value) -> Result<Saved, WorkspaceError> {
        let record = Record {
            path: Some(step(tool, self.recent().await?.next)),
            tool: Some(tool.to_owned()),
            call: call.map(str::to_owned),
            ..self.record(CheckpointKind::PreTool, Role::Opened)
        };
        let mut body = record.to_value();
        if let Value::Map(fields) = &mut body {
            fields.insert(INPUT.to_owned(), input);
        }
        self.workspace.save_body(record, body, EntryKind::Checkpoint).await
    }

    /// A tool call has ended. `None` if it isn't known to have begun.
    pub async fn tool_ended(
        &self,
        tool: &str,
        call: Option<&str>,
        outcome: Result<Value, ToolFailure>,
    ) -> Result<Option<CheckpointRef>, WorkspaceError> {
        let recent = self.recent().await?;
        let is_it = |record: &Record| match (call, &record.call) {
            (Some(call), Some(known)) => call == known,
            _ => record.tool.as_deref() == Some(tool),
        };
        match recent.open.iter().rfind(|opened| opened.record.as_ref().is_some_and(is_it)) {
            Some(opened) => self.close(opened, outcome, recent.steps).await.map(Some),
            None => Ok(None),
        }
    }

    /// The session is over: its run is completed, unless it is another's.
    pub async fn end(self) -> Result<(), WorkspaceError> {
        let recent = self.recent().await?;
        if !recent.open.is_empty() || (recent.turn.is_some() && !recent.turn_ended) {
            self.turn_ended().await?;
        }
        let log = self.log().await?;
        let Some(summary) = self.summary.clone() else { return Ok(()) };
        let name = PartName::from(PartName::WORKSPACE);
        let first = log.entries(Span::ALL).await?.into_iter().find(|entry| entry.parts.contains_key(&name));
        if let Some(first) = first
            && let Some(first) = moment(&log, &first).await?
        {
            let role = Role::Closed { since: first.checkpoint, before: first.snapshot.tree };
            self.workspace.save(self.record(CheckpointKind::Session, role), &Arc::default()).await?;
        }
        end_run(&self.workspace, summary, Ok(Value::Null)).await
    }

    /// Ends what a moment began: a step of the run.
    async fn close(
        &self,
        opened: &Moment,
        outcome: Result<Value, ToolFailure>,
        index: u32,
    ) -> Result<CheckpointRef, WorkspaceError> {
        let log = self.log().await?;
        let input = log.body(&log.entry(opened.checkpoint.seq).await?).await?.field(INPUT).cloned();
        let began = opened.record.clone().unwrap_or_else(|| Record::manual(""));
        let input = input.unwrap_or_else(|| Value::from(began.description.as_str()));
        let role = Role::Closed { since: opened.checkpoint.clone(), before: opened.snapshot.tree };
        let record = Record { role, description: String::new(), ..began };
        let took = self.workspace.now().since(opened.at);
        let execution = Execution { index, input, outcome, started_at: opened.at, took };
        let body = execution.body(&record);
        Ok(self.workspace.save_body(record, body, EntryKind::StepDone).await?.checkpoint)
    }

    fn record(&self, kind: CheckpointKind, role: Role) -> Record {
        Record { run: Some(self.run.clone()), ..Record::new(kind, role, "") }
    }

    async fn log(&self) -> Result<RunLog, WorkspaceError> {
        Ok(RunLog::open(Arc::clone(self.workspace.store()), &self.run).await?)
    }

    /// Looks back as far as the beginning of the turn.
    async fn recent(&self) -> Result<Recent, WorkspaceError> {
        let log = self.log().await?;
        let steps = log.entries(Span::ALL).await?.iter().filter(|entry| entry.kind == EntryKind::StepDone).count();
        let mut recent = Recent {
            next: log.head().seq.0 + 1,
            steps: u32::try_from(steps).unwrap_or(u32::MAX),
            open: Vec::new(),
            turn: None,
            turn_ended: false,
        };
        let mut ended = Vec::new();
        let mut to = log.head().seq;
        'looking: loop {
            let page: Vec<SealedEntry> = log.entries(Span { to, ..Span::newest(PAGE) }).await?;
            let oldest = page.last().map_or(0, |entry| entry.seq.0);
            for entry in page {
                let Some(moment) = moment(&log, &entry).await? else { continue };
                let Some(record) = &moment.record else { continue };
                match &record.role {
                    Role::Closed { since, .. } | Role::Dropped { since } => ended.push(since.clone()),
                    Role::Opened if record.tool.is_some() && !ended.contains(&moment.checkpoint) => {
                        recent.open.insert(0, moment);
                    }
                    Role::Saved if record.path.as_ref().is_some_and(|path| path.as_str().starts_with(TURN)) => {
                        recent.turn_ended = ended.contains(&moment.checkpoint);
                        recent.turn = Some(moment);
                        break 'looking;
                    }
                    _ => {}
                }
            }
            let Some(before) = oldest.checked_sub(1) else { break };
            to = Seq(before);
        }
        Ok(recent)
    }
}

/// Where a bracket keeps what its tool was given, until it ends.
const INPUT: &str = "input";

/// The name of a step: what it is, and the number of the entry that began it, or one before that.
fn step(what: &str, number: u32) -> StepPath {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let what: String = what.chars().take(64).map(plain).collect();
    let what = if what.is_empty() { "tool" } else { &what };
    format!("{what}-{number}").parse().expect("letters, digits and a dash")
}

/// What a list shows of a prompt.
fn first_line(prompt: &str) -> String {
    let line = prompt.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("a prompt");
    let mut shown: String = line.chars().take(PROMPT).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    shown
}

/// Waits until no other process makes a report about this folder.
async fn one_at_a_time(workspace: &Workspace) -> Result<File, WorkspaceError> {
    let path = workspace.0.options.state.join("reports");
    blocking(move || {
        let fail = |error| WorkspaceError::file("lock", &path, error);
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(fail)?;
        file.lock().map_err(fail)?;
        Ok(file)
    })
    .await
}
