//! Undo and redo of operations on a folder, along its timeline.

use std::path::PathBuf;
use std::sync::Arc;

use piton_log::RunLog;
use piton_store::{Span, Store};
use piton_types::{CheckpointRef, Seq, from_value};
use piton_workspace::{Goal, Moment, Record, Role, Side, Timeline, Workspace};

use crate::app::App;
use crate::failure::Failure;
use crate::files::restore::{Conflicts, Restoring};
use crate::files::{Capture, inside, open};
use crate::references::{Reference, Target, resolve};

impl Restoring {
    /// Takes back the newest operation, or the step, session or checkpoint that is named.
    ///
    /// A session that was killed before it told what it did is refused: what changed since may be the user's.
    pub async fn undo(
        app: &App,
        reference: Option<&Reference>,
        conflicts: &Conflicts,
        capture: Capture,
    ) -> Result<Self, Failure> {
        let store = app.store().await?;
        let mut whole_run = None;
        let target = match reference {
            None => None,
            Some(reference) => Some(target(app, &store, reference).await?),
        };
        let workspace = open(app, &store, capture).await?;
        let timeline = workspace.timeline().await?;
        let operation = match target {
            None => newest(&workspace, &timeline).await?,
            Some(target) => {
                // All that a run did, in however many drives.
                whole_run = Some(target.0.run().clone())
                    .filter(|run| target.1.is_none() && timeline.sessions_of(run).len() > 1);
                Some(operation(&timeline, target).await?)
            }
        };
        let killed = operation.as_ref().and_then(|operation| Killed::at(&timeline, timeline.find(operation)?));
        if let Some(killed) = killed {
            if killed.is_untold() {
                return Err(killed.refusal());
            }
            let (run, last) = (&killed.opened.checkpoint.run, &killed.last.checkpoint);
            app.note(&format!(
                "run {run} was killed: what it did up to its last checkpoint, {last}, is taken back; what changed \
                 later may be yours and stays"
            ));
        }
        let goal = whole_run.map_or(Goal::Undo(operation), Goal::UndoRun);
        Ok(Self::new(store, workspace, timeline, goal, conflicts.options(app)?))
    }

    /// The same for these files and folders only; for all if none is named. What is left of an operation can be taken back
    /// by its name later.
    pub fn only(mut self, app: &App, paths: &[PathBuf]) -> Result<Self, Failure> {
        let root = self.workspace.root().to_owned();
        self.options.selection.only =
            paths.iter().map(|path| inside(&root, &app.path(path))).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Takes back the last undo.
    pub async fn redo(app: &App, conflicts: &Conflicts, capture: Capture) -> Result<Self, Failure> {
        let store = app.store().await?;
        let workspace = open(app, &store, capture).await?;
        let timeline = workspace.timeline().await?;
        Ok(Self::new(store, workspace, timeline, Goal::Redo, conflicts.options(app)?))
    }
}

/// A session that was killed.
struct Killed<'a> {
    opened: &'a Moment,
    last: &'a Moment,
}

impl<'a> Killed<'a> {
    /// The one that the moment at `place` began.
    fn at(timeline: &'a Timeline, place: usize) -> Option<Self> {
        let last = timeline.killed_at(place)?;
        Some(Self { opened: &timeline.moments[place], last: &timeline.moments[last] })
    }

    /// Whether no checkpoint tells what it did.
    fn is_untold(&self) -> bool {
        self.opened.snapshot.tree == self.last.snapshot.tree
    }

    /// What changed since it began can't be told apart from what its user did after its end.
    fn refusal(&self) -> Failure {
        let start = &self.opened.checkpoint;
        Failure::refused(format!("run {} was killed before it made a checkpoint of what it did", start.run))
            .cause("what changed since it began may be its or yours")
            .hint(format!(
                "`piton restore {start}` takes back all that changed since it began; `piton log` names older \
                 sessions, which are taken back by name and leave this one."
            ))
    }
}

/// The newest operation. If a session was killed since and no checkpoint tells what it did, an older
/// one isn't taken instead.
async fn newest(workspace: &Workspace, timeline: &Timeline) -> Result<Option<CheckpointRef>, Failure> {
    let killed = (0..timeline.moments.len()).rev().find_map(|place| Killed::at(timeline, place));
    let is_newest = |killed: &Killed<'_>| {
        let mut later = timeline.moments.iter().rev().take_while(|moment| moment.checkpoint != killed.last.checkpoint);
        !later.any(Moment::is_operation)
    };
    if let Some(killed) = killed.filter(|killed| killed.is_untold() && is_newest(killed)) {
        let changes = workspace.detect_changes(killed.opened.snapshot, Side::Now, &Arc::default()).await?;
        if !changes.changes.is_empty() {
            return Err(killed.refusal());
        }
    }
    Ok(timeline.operations().0.last().map(|place| timeline.moments[*place].checkpoint.clone()))
}

/// What is meant: a run, or an entry of one.
async fn target(app: &App, store: &Arc<dyn Store>, reference: &Reference) -> Result<(RunLog, Option<Seq>), Failure> {
    match resolve(app, store, reference).await? {
        Target::Step(log, entry) | Target::Entry(log, entry) => Ok((log, Some(entry.seq))),
        Target::Run(log) => Ok((log, None)),
        Target::Blob(..) | Target::File(..) => {
            Err(Failure::usage(format!("{reference} is not a step, session or checkpoint")))
        }
    }
}

/// The entry that ended what is meant: a step, a session, or a checkpoint itself. Of a session that was killed, the one
/// that began it.
async fn operation(timeline: &Timeline, (log, seq): (RunLog, Option<Seq>)) -> Result<CheckpointRef, Failure> {
    let run = log.run().clone();
    if let Some(seq) = seq {
        return Ok(CheckpointRef { run, seq });
    }
    let killed = (0..timeline.moments.len()).filter_map(|place| Killed::at(timeline, place));
    let killed = killed.map(|killed| &killed.opened.checkpoint).filter(|opened| opened.run == run);
    // The newest of the run's sessions, however it ended.
    let seq = session_end(&log).await?.max(killed.map(|opened| opened.seq).max()).ok_or_else(|| {
        Failure::fixable(format!("run {run} has ended no session here"))
            .hint(format!("`piton log {run} --checkpoints` shows its checkpoints; each can be returned to."))
    })?;
    Ok(CheckpointRef { run, seq })
}

/// The newest entry that closed the whole session of a run.
async fn session_end(log: &RunLog) -> Result<Option<Seq>, Failure> {
    for entry in log.entries(Span::newest(usize::MAX)).await? {
        let record: Option<Record> =
            if entry.parts.is_empty() { None } else { from_value(log.body(&entry).await?).ok() };
        let session = |record: &Record| {
            matches!(record.role, Role::Closed { .. }) && record.kind == piton_types::CheckpointKind::Session
        };
        if record.as_ref().is_some_and(session) {
            return Ok(Some(entry.seq));
        }
    }
    Ok(None)
}
