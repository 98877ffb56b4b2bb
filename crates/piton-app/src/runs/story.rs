//! What happened in a folder, as a person means it, newest first: edits, what agents and tools did, saves, restores, how
//! runs ended, what they asked. What the engine notes for itself is in [`log`](super::log).
//!
//! A session or a turn stands for all that changed in it. Where only some paths matter, each checkpoint in which they
//! changed stands for itself.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use piton_log::{RunLog, SealedEntry};
use piton_runtime::Pager;
use piton_store::Store;
use piton_types::{
    CheckpointKind, CheckpointRef, EntryKind, RunId, RunKind, RunStatus, RunSummary, Seq, Timestamp, Value,
};
use piton_workspace::{Changed, FileChange, Maker, Moment, Role, Side, Workspace};

use super::log::{LogQuery, Subject, subject};
use crate::app::App;
use crate::failure::Failure;
use crate::files::diff::line_counts;
use crate::files::{Capture, at, inside, look, watched};
use crate::references::{Reference, Runs};
use crate::views::files::ChangeView;
use crate::views::run::Happening;
use crate::views::value_json;

/// Of a change of more files the lines aren't counted.
const COUNTED: usize = 200;
/// How many entries of a run are read at a time.
const PAGE: usize = 64;

/// What is told.
#[derive(Debug, Clone, Default)]
pub struct StoryQuery {
    /// Of a run, or of one up to an entry. A text that means none of those may be a path.
    pub of: Option<Reference>,
    /// Only where these paths changed.
    pub paths: Vec<PathBuf>,
    /// Only since then.
    pub since: Option<Timestamp>,
    /// The most that is told.
    pub limit: usize,
}

/// What happened.
#[derive(Debug, Clone, Default)]
pub struct Story {
    /// The newest of it.
    pub told: Vec<Happening>,
    /// Whether there is more.
    pub more: bool,
}

/// Tells what happened.
pub async fn story(app: &App, query: StoryQuery) -> Result<Story, Failure> {
    let store = app.look().await?;
    let asked = LogQuery { of: query.of.clone(), paths: query.paths.clone(), ..LogQuery::default() };
    let (of, paths) = subject(app, &store, &asked).await?;
    let mut teller = Teller { app, store: Arc::clone(&store), query, of, names: HashMap::new() };
    let mut told = match paths.is_empty() {
        true => teller.all().await?,
        false => teller.of_paths(&paths).await?,
    };
    told.retain(|one| teller.query.since.is_none_or(|since| one.created_at >= since));
    let more = told.len() > teller.query.limit;
    told.truncate(teller.query.limit);
    store.close().await?;
    Ok(Story { told, more })
}

/// The runs and the question, for as long as it takes to tell.
struct Teller<'a> {
    app: &'a App,
    store: Arc<dyn Store>,
    query: StoryQuery,
    of: Option<Subject>,
    /// What is known of the runs that were met.
    names: HashMap<RunId, Option<RunSummary>>,
}

impl Teller<'_> {
    async fn all(&mut self) -> Result<Vec<Happening>, Failure> {
        // Some stores have no place for what belongs to the files of a folder.
        let mut told = match at(self.app, &self.store)? {
            Some(workspace) => self.of_files(&workspace).await?,
            None => Vec::new(),
        };
        told.extend(self.of_runs().await?);
        // Stable: what is of one time stays in its order.
        told.sort_by_key(|one| Reverse(one.created_at));
        Ok(told)
    }

    fn wants(&self, checkpoint: &CheckpointRef) -> bool {
        self.of.as_ref().is_none_or(|(log, to)| checkpoint.run == *log.run() && checkpoint.seq <= *to)
    }

    async fn summary(&mut self, run: &RunId) -> Result<Option<RunSummary>, Failure> {
        if let Some(known) = self.names.get(run) {
            return Ok(known.clone());
        }
        let found = self.store.summary(run).await?;
        self.names.insert(run.clone(), found.clone());
        Ok(found)
    }

    /// What happened to the files of the folder, newest first, one more than is wanted.
    async fn of_files(&mut self, workspace: &Workspace) -> Result<Vec<Happening>, Failure> {
        let timeline = workspace.timeline().await?;
        let done: HashSet<usize> = timeline.operations().0.into_iter().collect();
        // The runs whose turns and tools are told, and not their sessions.
        let detailed: HashSet<RunId> = timeline
            .moments
            .iter()
            .filter(|moment| matches!(moment.record.role, Role::Closed { .. }) && moment.record.path.is_some())
            .map(|moment| moment.checkpoint.run.clone())
            .collect();
        let closed: HashSet<RunId> = timeline
            .moments
            .iter()
            .filter(|moment| matches!(moment.record.role, Role::Closed { .. }))
            .map(|moment| moment.checkpoint.run.clone())
            .collect();
        let mut told = Vec::new();
        for (place, moment) in timeline.moments.iter().enumerate().rev() {
            if told.len() > self.query.limit || self.query.since.is_some_and(|since| moment.at < since) {
                break;
            }
            if moment.removed || !self.wants(&moment.checkpoint) {
                continue;
            }
            let before = timeline.moments[..place].iter().rev().find(|before| !before.removed);
            let is_changed = before.is_none_or(|before| before.snapshot.tree != moment.snapshot.tree);
            let is_session = moment.record.kind == CheckpointKind::Session;
            let maker = timeline.maker(place);
            let (is_told, since) = match &moment.record.role {
                Role::Restored { backup, .. } => (true, Some(backup)),
                Role::Closed { .. } if is_session && detailed.contains(&moment.checkpoint.run) => (is_changed, None),
                Role::Closed { since, before, .. } => (is_session || *before != moment.snapshot.tree, Some(since)),
                Role::Saved if moment.record.kind == CheckpointKind::Manual => (true, None),
                Role::Dropped { .. } => (false, None),
                // What is saved while an agent works is part of what is told when it is done.
                Role::Saved if matches!(maker, Maker::Agents(_)) => {
                    (is_changed && !closed.contains(&moment.checkpoint.run), None)
                }
                Role::Saved | Role::Opened | Role::Backup { .. } => (is_changed, None),
            };
            if !is_told {
                continue;
            }
            let since = since.and_then(|since| timeline.find(since)).filter(|since| !timeline.moments[*since].removed);
            let old = since.map(|since| &timeline.moments[since]).or(before);
            let undone = moment.is_operation()
                && !done.contains(&place)
                && old.is_some_and(|old| old.snapshot.tree != moment.snapshot.tree);
            let mut one = self.moment(moment, &maker).await?;
            one.undone = undone;
            match old {
                None => one.files = usize::try_from(moment.snapshot.files).ok(),
                Some(old) => self.count(workspace, old, moment, &mut one).await?,
            }
            told.push(one);
        }
        Ok(told)
    }

    /// The checkpoints in which paths changed, newest first.
    async fn of_paths(&mut self, paths: &[PathBuf]) -> Result<Vec<Happening>, Failure> {
        let workspace = look(self.app, &self.store, Capture::ACCEPTED).await?;
        let paths =
            paths.iter().map(|path| inside(workspace.root(), &self.app.path(path))).collect::<Result<Vec<_>, _>>()?;
        let history = watched(self.app, async |_| workspace.history_of(paths).await).await?;
        let mut told = Vec::new();
        for Changed { moment, made_by, changes } in history.iter().rev() {
            if told.len() > self.query.limit {
                break;
            }
            if self.wants(&moment.checkpoint) {
                let mut one = self.moment(moment, made_by).await?;
                self.add(&workspace, changes, moment, &mut one).await?;
                one.changes = Some(changes.iter().map(ChangeView::from).collect());
                told.push(one);
            }
        }
        Ok(told)
    }

    async fn count(
        &self,
        workspace: &Workspace,
        old: &Moment,
        new: &Moment,
        one: &mut Happening,
    ) -> Result<(), Failure> {
        let side = Side::Stored(new.snapshot);
        let found =
            watched(self.app, async |progress| workspace.detect_changes(old.snapshot, side, &progress).await).await?;
        self.add(workspace, &found.changes, new, one).await
    }

    /// How many files and lines changed.
    async fn add(
        &self,
        workspace: &Workspace,
        changes: &[FileChange],
        new: &Moment,
        one: &mut Happening,
    ) -> Result<(), Failure> {
        let files: Vec<&FileChange> = changes.iter().filter(|change| !ChangeView::from(*change).is_folder).collect();
        one.files = Some(files.len());
        if files.len() > COUNTED {
            return Ok(());
        }
        let (mut added, mut removed) = (0, 0);
        for change in files {
            if let Some((more, fewer)) = line_counts(workspace, change, Side::Stored(new.snapshot)).await? {
                added += more;
                removed += fewer;
            }
        }
        (one.added, one.removed) = (Some(added), Some(removed));
        Ok(())
    }

    /// Who did something to the files, and what.
    async fn moment(&mut self, moment: &Moment, maker: &Maker) -> Result<Happening, Failure> {
        let record = &moment.record;
        let run = self.summary(&moment.checkpoint.run).await?;
        let agent = match maker {
            Maker::User | Maker::Restore => None,
            Maker::Agents(runs) | Maker::Unattributed(runs) => match runs.first() {
                Some(run) => self.summary(run).await?.map(|run| maker_name(&run)),
                None => None,
            },
        };
        let who = match (maker, agent) {
            (Maker::User | Maker::Restore, _) => "you".to_owned(),
            (Maker::Unattributed(_), Some(agent)) => format!("you or {agent}"),
            (Maker::Unattributed(_), None) => "unknown".to_owned(),
            (_, agent) => agent.unwrap_or_else(|| "agent".to_owned()),
        };
        let name = run.map(|run| run.name).unwrap_or_default();
        let what = match &record.role {
            Role::Restored { .. } => moment.label.clone(),
            Role::Closed { .. } if record.path.is_some() => self.input(moment, record.tool.as_deref()).await?,
            Role::Closed { .. } => name.clone(),
            _ if !record.description.is_empty() && !matches!(record.role, Role::Opened) => record.description.clone(),
            Role::Saved if record.kind == CheckpointKind::Manual => "saved".to_owned(),
            Role::Saved if matches!(maker, Maker::Agents(_)) => format!("{name} (so far)"),
            _ => "changed files".to_owned(),
        };
        Ok(Happening {
            id: moment.checkpoint.clone(),
            run: moment.checkpoint.run.clone(),
            name,
            created_at: moment.at,
            who,
            what: first_line(&what),
            made_by: Some(maker.as_str()),
            label: moment.label.clone(),
            ..Happening::of(&moment.checkpoint, moment.at)
        })
    }

    /// What a tool was given or a turn was asked.
    async fn input(&self, moment: &Moment, tool: Option<&str>) -> Result<String, Failure> {
        let CheckpointRef { run, seq } = &moment.checkpoint;
        let log = RunLog::open(Arc::clone(&self.store), run).await?;
        let body = log.body(&log.entry(*seq).await?).await?;
        let input = body.field("input");
        if let Some(text) = input.and_then(Value::as_str) {
            return Ok(text.to_owned());
        }
        let named = ["command", "file_path", "path", "url", "query"];
        let said = named.iter().find_map(|name| Some((*name, input?.field(name)?.as_str()?)));
        Ok(match (tool, said) {
            (_, Some(("command", command))) => command.to_owned(),
            (Some(tool), Some((_, said))) => format!("{tool} {said}"),
            (Some(tool), None) => tool.to_owned(),
            (None, _) => moment.label.clone(),
        })
    }

    /// How runs began, ended and what they asked; of one run its steps too.
    async fn of_runs(&mut self) -> Result<Vec<Happening>, Failure> {
        if let Some((log, to)) = &self.of {
            let Some(summary) = self.store.summary(log.run()).await? else { return Ok(Vec::new()) };
            return self.of_run(log, *to, &summary, true).await;
        }
        let mut told: Vec<Happening> = Vec::new();
        let mut runs = Runs::newest_first(Arc::clone(&self.store));
        while let Some(run) = runs.next().await? {
            let last = told.get(self.query.limit).map(|last| last.created_at);
            if last.is_some_and(|last| run.updated_at < last)
                || self.query.since.is_some_and(|since| run.updated_at < since)
            {
                break;
            }
            // Of guarded programs the files are told.
            if matches!(run.kind, RunKind::Guard | RunKind::Workspace) {
                continue;
            }
            let log = RunLog::open(Arc::clone(&self.store), &run.id).await?;
            told.extend(self.of_run(&log, Seq(u32::MAX), &run, false).await?);
            told.sort_by_key(|one| Reverse(one.created_at));
            told.truncate(self.query.limit + 1);
        }
        Ok(told)
    }

    async fn of_run(&self, log: &RunLog, to: Seq, run: &RunSummary, steps: bool) -> Result<Vec<Happening>, Failure> {
        let (mut pager, mut told) = (Pager::new(log), Vec::new());
        while told.len() <= self.query.limit && pager.cursor().is_some() {
            for past in pager.entries(PAGE).await?.into_iter().filter(|past| past.entry.seq <= to) {
                if let Some(mut one) = entry(log, &past.entry, run, steps).await? {
                    one.undone = past.undone;
                    // A question is put down once more when the run begins to wait for it.
                    let is_again = |newer: &mut Happening| newer.what == one.what && newer.who == one.who;
                    if past.entry.kind == EntryKind::Asked {
                        told.pop_if(is_again);
                    }
                    told.push(one);
                }
            }
        }
        Ok(told)
    }
}

/// What an entry of a run means to a person, if anything.
async fn entry(log: &RunLog, entry: &SealedEntry, run: &RunSummary, steps: bool) -> Result<Option<Happening>, Failure> {
    let name = first_line(&run.name);
    let is_guard = matches!(run.kind, RunKind::Guard | RunKind::Workspace);
    let text = |body: &Value, field: &str| body.field(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (who, what) = match entry.kind {
        EntryKind::Created if steps => ("you".to_owned(), format!("started {name}")),
        EntryKind::StateChanged => {
            let body = log.body(entry).await?;
            let word = text(&body, "status");
            let Some(status) = RunStatus::ALL.into_iter().find(|status| status.as_str() == word) else {
                return Ok(None);
            };
            let more = match status {
                // A guarded program that ended well has told what it did.
                RunStatus::Completed if is_guard && !steps => return Ok(None),
                RunStatus::Completed => String::new(),
                RunStatus::Failed => format!(": {}", text(&body, "message")),
                RunStatus::Paused | RunStatus::Cancelled => format!(": {}", text(&body, "reason")),
                RunStatus::Queued | RunStatus::InProgress | RunStatus::Waiting => return Ok(None),
            };
            (maker_name(run), format!("{name} {status}{more}"))
        }
        EntryKind::Asked => (maker_name(run), format!("asks: {}", text(&log.body(entry).await?, "prompt"))),
        EntryKind::Answer => {
            let body = log.body(entry).await?;
            let by = Some(text(&body, "by")).filter(|by| !by.is_empty());
            let value = body.field("value").map(|value| value_json(value).to_string());
            (by.unwrap_or_else(|| "nobody in time".to_owned()), format!("answered {}", value.unwrap_or_default()))
        }
        EntryKind::StepDone if steps => {
            let body = log.body(entry).await?;
            let error = body.field("error").and_then(Value::as_str).map(|error| format!(" failed: {error}"));
            (maker_name(run), format!("{}{}", text(&body, "path"), error.unwrap_or_default()))
        }
        _ => return Ok(None),
    };
    let id = CheckpointRef { run: run.id.clone(), seq: entry.seq };
    let label = entry.label.clone();
    Ok(Some(Happening { name: run.name.clone(), who, what: first_line(&what), label, ..Happening::of(&id, entry.at) }))
}

/// What people call the one who does the work of a run: the program that is guarded, or the document.
fn maker_name(run: &RunSummary) -> String {
    match run.kind {
        RunKind::Guard => {
            let program = run.name.split_whitespace().next().unwrap_or("agent");
            program.rsplit('/').next().unwrap_or(program).to_owned()
        }
        RunKind::Workflow => "workflow".to_owned(),
        _ => "program".to_owned(),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
