//! An agent that reports what it does, event by event, each from a process of its own: what the hooks of a coding agent
//! are for. Its brackets outlive the process that opened them.
//!
//! The session is a run that the agent's own process holds, so it counts as in progress while the agent lives and as
//! stalled afterwards. A report needs no claim. Each entry carries what the reports before it told, so a report reads
//! the newest of them and no more, however long the session is.
//!
//! Only what a tool does lies in brackets, so that what the user types while the agent thinks isn't taken for the agent's.
//! A turn (a prompt, and all that the agent did about it) has a beginning and an end too, but is no bracket: to take it
//! back is to take back what its tools did. What else changed meanwhile is unattributed, and goes only if the user says so.
//!
//! Ends can be missing: the user interrupts, a tool call is refused. A bracket that is open when the agent says that it is
//! done ends there. One that is open when the user speaks again ends where it began: what happened after that may all
//! be the user's.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use piton_log::RunLog;
use piton_runtime::{Context, Ending, Liveness, OpenRun, Run, RunError, liveness};
use piton_store::Span;
use piton_types::{
    CheckpointKind, CheckpointRef, EntryKind, Holder, PartName, RunId, RunKind, RunStatus, Seq, StepPath, Value,
    from_value, to_value,
};
use serde::{Deserialize, Serialize};

use crate::record::{Record, Role, TURN};
use crate::session::{Execution, ToolFailure};
use crate::snapshot::{NewMoment, Saved};
use crate::timeline::{Moment, moment};
use crate::workspace::blocking;
use crate::{Workspace, WorkspaceError};

/// How many entries are read at a time when looking for the newest report.
const PAGE: usize = 16;
/// How much of a prompt is shown in lists, in characters.
const PROMPT: usize = 72;
/// Where a bracket keeps what its tool was given, until it ends.
pub(crate) const INPUT: &str = "input";
/// Where an entry keeps what was told before it.
const TOLD: &str = "told";

/// A session that is reported about. One report is made at a time, whatever process it comes from.
#[derive(Debug)]
pub struct Reports {
    workspace: Workspace,
    run: RunId,
    /// The process that holds the run, if the run was made for these reports.
    holder: Option<Holder>,
    _one_at_a_time: File,
}

/// What was reported so far, as far as it matters for the next report.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Told {
    /// The entry of the first report.
    first: Option<Seq>,
    /// The entry that began the turn, if there was one.
    turn: Option<Seq>,
    /// Whether the turn has ended.
    turn_ended: bool,
    /// The tool calls that have begun and not ended, oldest first.
    open: Vec<OpenCall>,
    /// How many steps have ended.
    steps: u32,
    /// How many turns there were.
    turns: u32,
    /// How often each tool was called since the turn began.
    calls: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OpenCall {
    entry: Seq,
    tool: String,
    call: Option<String>,
}

impl Told {
    /// Adds what an entry told.
    fn add(&mut self, entry: Seq, kind: EntryKind, record: &Record) {
        self.first.get_or_insert(entry);
        self.steps += u32::from(kind == EntryKind::StepDone);
        match &record.role {
            Role::Closed { since, .. } | Role::Dropped { since } => {
                self.open.retain(|open| open.entry != since.seq);
                self.turn_ended |= self.turn == Some(since.seq);
            }
            Role::Opened => {
                let (tool, call) = (record.tool.clone().unwrap_or_default(), record.call.clone());
                *self.calls.entry(plain(&tool)).or_default() += 1;
                self.open.push(OpenCall { entry, tool, call });
            }
            Role::Saved if record.is_turn() => {
                (self.turn, self.turn_ended) = (Some(entry), false);
                self.turns += 1;
                self.calls.clear();
            }
            _ => {}
        }
    }

    /// The name of the next turn.
    fn next_turn(&self) -> StepPath {
        step(format!("{TURN}{}", self.turns + 1))
    }

    /// The name of the next call of a tool: which of its calls in the turn it is.
    fn next_call(&self, tool: &str) -> StepPath {
        let tool = plain(tool);
        let number = self.calls.get(&tool).unwrap_or(&0) + 1;
        match self.turns {
            0 => step(format!("{tool}-{number}")),
            turn => step(format!("{TURN}{turn}/{tool}-{number}")),
        }
    }
}

impl Reports {
    /// The reports of the session `run`, which is made if there is none and held by the process `agent`; without one,
    /// by this process. A session that had ended and goes on is a new run, with a number behind its name.
    pub async fn of(
        workspace: &Workspace,
        run: &RunId,
        name: &str,
        input: Value,
        agent: Option<Holder>,
    ) -> Result<Self, WorkspaceError> {
        let lock = one_at_a_time(workspace).await?;
        let mut id = run.clone();
        let mut times = 1;
        while let Some(summary) = workspace.store().summary(&id).await? {
            if summary.status == RunStatus::InProgress {
                break;
            }
            times += 1;
            let tail = format!("-{times}");
            let head: String = run.as_str().chars().take(RunId::MAX_LEN - tail.len()).collect();
            id = format!("{head}{tail}").parse().expect("an id with a number behind it is one");
        }
        let agent = agent.unwrap_or_else(|| workspace.context().holder.clone());
        let lives = |holder: &Holder| liveness(holder, &workspace.context().holder) != Liveness::Dead;
        let holder = match workspace.store().lease(&id).await? {
            Some(lease) if lease.holder == agent || lives(&lease.holder) => lease.holder,
            _ => {
                let open = OpenRun {
                    id: Some(id.clone()),
                    name: name.to_owned(),
                    kind: RunKind::Guard,
                    folder: Some(workspace.folder_text()),
                    body: input,
                    ..OpenRun::default()
                };
                match Run::open(&Context { holder: agent.clone(), ..workspace.context().clone() }, open).await {
                    Ok(_) => agent,
                    Err(RunError::Held { holder, .. }) => holder,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        Ok(Self { workspace: workspace.clone(), run: id, holder: Some(holder), _one_at_a_time: lock })
    }

    /// Reports that go into the log of a run which another process drives and will end.
    pub async fn within(workspace: &Workspace, run: RunId) -> Result<Self, WorkspaceError> {
        let lock = one_at_a_time(workspace).await?;
        Ok(Self { workspace: workspace.clone(), run, holder: None, _one_at_a_time: lock })
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// The user has spoken.
    pub async fn turn_begins(&self, prompt: &str) -> Result<Saved, WorkspaceError> {
        let (log, mut told) = self.told().await?;
        for open in told.open.clone() {
            let opened = began(&log, open.entry).await?;
            let role = Role::Dropped { since: opened.checkpoint };
            self.add(&mut told, NewMoment::new(Record { role, ..opened.record })).await?;
        }
        if let Some(turn) = told.turn.filter(|_| !told.turn_ended) {
            self.close(&log, &mut told, turn, Ok(Value::Null)).await?;
        }
        let record = Record {
            path: Some(told.next_turn()),
            description: first_line(prompt),
            ..self.record(CheckpointKind::Auto, Role::Saved)
        };
        self.add(&mut told, NewMoment::new(record)).await
    }

    /// The agent is done for now. `None` if nothing is known to have begun.
    pub async fn turn_ended(&self) -> Result<Option<CheckpointRef>, WorkspaceError> {
        let (log, mut told) = self.told().await?;
        self.end_turn(&log, &mut told).await
    }

    async fn end_turn(&self, log: &RunLog, told: &mut Told) -> Result<Option<CheckpointRef>, WorkspaceError> {
        for open in told.open.clone() {
            let message = "how it ended was not reported".to_owned();
            self.close(log, told, open.entry, Err(ToolFailure { message, recoverable: true })).await?;
        }
        match told.turn {
            Some(turn) => self.close(log, told, turn, Ok(Value::Null)).await.map(Some),
            None => Ok(None),
        }
    }

    /// A tool call is about to begin; `call` is what the agent calls it.
    pub async fn tool_begins(&self, tool: &str, call: Option<&str>, input: Value) -> Result<Saved, WorkspaceError> {
        let (_, mut told) = self.told().await?;
        let record = Record {
            path: Some(told.next_call(tool)),
            tool: Some(tool.to_owned()),
            call: call.map(str::to_owned),
            ..self.record(CheckpointKind::PreTool, Role::Opened)
        };
        self.add(&mut told, NewMoment::new(record).with(INPUT, input)).await
    }

    /// A tool call has ended. `None` if it isn't known to have begun.
    pub async fn tool_ended(
        &self,
        tool: &str,
        call: Option<&str>,
        outcome: Result<Value, ToolFailure>,
    ) -> Result<Option<CheckpointRef>, WorkspaceError> {
        let (log, mut told) = self.told().await?;
        let is_it = |open: &&OpenCall| match (call, &open.call) {
            (Some(call), Some(known)) => call == known,
            _ => open.tool == tool,
        };
        match told.open.iter().rfind(is_it).map(|open| open.entry) {
            Some(opened) => self.close(&log, &mut told, opened, outcome).await.map(Some),
            None => Ok(None),
        }
    }

    /// The session is over: its run is completed, unless another process drives it.
    pub async fn end(self) -> Result<(), WorkspaceError> {
        let (log, mut told) = self.told().await?;
        if !told.open.is_empty() || (told.turn.is_some() && !told.turn_ended) {
            self.end_turn(&log, &mut told).await?;
        }
        let Some(holder) = self.holder.clone() else { return Ok(()) };
        if let Some(first) = told.first {
            let first = began(&log, first).await?;
            let role = Role::Closed { since: first.checkpoint, before: first.snapshot.tree };
            self.add(&mut told, NewMoment::new(self.record(CheckpointKind::Session, role))).await?;
        }
        // On behalf of the process that holds the run.
        let context = Context { holder, ..self.workspace.context().clone() };
        let open = OpenRun { id: Some(self.run.clone()), existing: true, ..OpenRun::default() };
        match Run::open(&context, open).await {
            Ok(run) => {
                let changed = self.workspace.files_changed_by(&self.run).await?;
                let files_modified = changed.iter().map(ToString::to_string).collect();
                Ok(run.complete_as(Value::Null, Ending { files_modified, ..Ending::default() }).await?)
            }
            // The user has given it up.
            Err(RunError::Illegal { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends what an entry began: a step of the run.
    async fn close(
        &self,
        log: &RunLog,
        told: &mut Told,
        opened: Seq,
        outcome: Result<Value, ToolFailure>,
    ) -> Result<CheckpointRef, WorkspaceError> {
        let input = log.body(&log.entry(opened).await?).await?.field(INPUT).cloned();
        let opened = began(log, opened).await?;
        let input = input.unwrap_or_else(|| Value::from(opened.record.description.as_str()));
        let role = Role::Closed { since: opened.checkpoint, before: opened.snapshot.tree };
        let record = Record { role, description: String::new(), ..opened.record };
        let took = self.workspace.now().since(opened.at);
        let execution = Execution { index: told.steps, input, outcome, started_at: opened.at, took };
        Ok(self.add(told, execution.into_moment(record)).await?.checkpoint)
    }

    /// Appends an entry, with what was told before it.
    async fn add(&self, told: &mut Told, moment: NewMoment) -> Result<Saved, WorkspaceError> {
        let (kind, record) = (moment.kind, moment.record.clone());
        let before = to_value(&*told).expect("numbers and texts are values");
        let saved = self.workspace.save_moment(moment.with(TOLD, before), &Arc::default()).await?;
        told.add(saved.checkpoint.seq, kind, &record);
        Ok(saved)
    }

    fn record(&self, kind: CheckpointKind, role: Role) -> Record {
        Record { run: Some(self.run.clone()), ..Record::new(kind, role, "") }
    }

    /// What was told so far, as the newest report says.
    async fn told(&self) -> Result<(RunLog, Told), WorkspaceError> {
        let log = RunLog::open(Arc::clone(self.workspace.store()), &self.run).await?;
        let mut to = log.head().seq;
        loop {
            let page = log.entries(Span { to, ..Span::newest(PAGE) }).await?;
            for entry in page.iter().filter(|entry| entry.parts.contains_key(&PartName::from(PartName::WORKSPACE))) {
                let body = log.body(entry).await?;
                let Some(before) = body.field(TOLD).cloned() else { continue };
                if let (Ok(mut told), Ok(record)) = (from_value::<Told>(before), from_value::<Record>(body)) {
                    told.add(entry.seq, entry.kind, &record);
                    return Ok((log, told));
                }
            }
            match page.last().and_then(|oldest| oldest.seq.0.checked_sub(1)) {
                Some(before) => to = Seq(before),
                None => return Ok((log, Told::default())),
            }
        }
    }
}

/// The checkpoint that began something.
async fn began(log: &RunLog, entry: Seq) -> Result<Moment, WorkspaceError> {
    let found = moment(log, &log.entry(entry).await?).await?;
    found.ok_or_else(|| WorkspaceError::NoFiles { checkpoint: format!("{}@{entry}", log.run()) })
}

/// A tool as names of steps have it.
fn plain(tool: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let tool: String = tool.chars().take(64).map(plain).collect();
    if tool.is_empty() { "tool".to_owned() } else { tool.to_ascii_lowercase() }
}

fn step(path: String) -> StepPath {
    path.parse().expect("letters, digits and dashes")
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
    let inner = Arc::clone(&workspace.0);
    blocking(move || {
        let fail = |error| WorkspaceError::file("lock", inner.state.path("reports"), error);
        let file = inner.state.lock_file("reports").map_err(fail)?;
        inner.wait_for("reports", &file)?;
        Ok(file)
    })
    .await
}
