//! The history of a folder: the checkpoints of its files from all runs that worked in it, in the order of
//! their numbers, and who made what changed between two of them.
//!
//! An agent's work lies in brackets: a checkpoint opens one before it begins (a session, a tool call) and
//! another closes it. What changes while no bracket is open is the user's, unless a turn of an agent is under way: then
//! it may be either's, and is unattributed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use piton_log::{RunLog, SealedEntry};
use piton_store::{Span, StoreError};
use piton_types::{CheckpointKind, CheckpointRef, PartName, RunId, RunKind, RunSummary, Seq, Timestamp, from_value};

use crate::order::may_have_files;
use crate::record::{Record, RestoreKind, Role};
use crate::snapshot::Snapshot;
use crate::{GitMove, Workspace, WorkspaceError};

/// One checkpoint of a folder's files.
#[derive(Debug, Clone)]
pub struct Moment {
    /// Its name.
    pub checkpoint: CheckpointRef,
    /// When.
    pub at: Timestamp,
    /// What to show in a list.
    pub label: String,
    /// Why it was made, and its place in the history.
    pub record: Record,
    /// The files.
    pub snapshot: Snapshot,
    /// Whether it was removed: then it is known who made what, but the files can't be read.
    pub removed: bool,
}

impl Moment {
    fn role(&self) -> &Role {
        &self.record.role
    }

    fn begins_session(&self) -> bool {
        matches!(self.role(), Role::Opened) && self.record.kind == CheckpointKind::Session
    }

    /// Whether a session of a run began with it.
    pub(crate) fn opens_session_of(&self, run: &RunId) -> bool {
        self.begins_session() && self.checkpoint.run == *run
    }

    /// A turn is no bracket: what its tools do lies in theirs.
    fn begins_turn(&self) -> bool {
        matches!(self.role(), Role::Saved) && self.record.is_turn()
    }

    /// Whether it ended something that can be taken back.
    pub fn is_operation(&self) -> bool {
        matches!(self.role(), Role::Closed { .. } | Role::Restored { .. })
    }
}

/// Who made what changed between a moment and the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Maker {
    /// The user: no bracket was open, and no turn under way.
    User,
    /// The runs whose brackets were open.
    Agents(Vec<RunId>),
    /// The user or one of these runs, which can't be told: a turn of theirs was under way, but no bracket was open.
    Unattributed(Vec<RunId>),
    /// A restore.
    Restore,
}

impl Maker {
    /// As views name it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agents(_) => "agent",
            Self::Unattributed(_) => "unattributed",
            Self::Restore => "restore",
        }
    }
}

/// What the restores that took an operation back or brought it again left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// All of it.
    All,
    /// Nothing, but what is unattributed stays.
    Unattributed,
    /// Nothing.
    Nothing,
}

/// The moments of a folder, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// All of them.
    pub moments: Vec<Moment>,
    /// The number of the newest one, or a higher one that no checkpoint got.
    pub(crate) head: u64,
    /// Entries that only carry the files of an earlier checkpoint on, as a driver's own checkpoints do, and which
    /// checkpoint that is.
    carried: HashMap<CheckpointRef, CheckpointRef>,
    /// For each bracket that a moment opened, the place of its last moment; open to the end if absent.
    ends: HashMap<usize, usize>,
    /// The same for each turn.
    turns: HashMap<usize, usize>,
    /// The sessions that were killed: where each began, and the place of its last moment.
    killed: HashMap<usize, usize>,
}

impl Workspace {
    /// The history of the folder, from the runs that name it.
    #[boxed]
    pub async fn timeline(&self) -> Result<Timeline, WorkspaceError> {
        let kept = self.kept_number();
        let mut timeline = Timeline::default();
        for run in self.runs().await? {
            match self.moments_of(&run.id).await {
                Ok((moments, carried)) => {
                    timeline.moments.extend(moments);
                    timeline.carried.extend(carried);
                }
                // Its checkpoints can't be told apart any more: what it changed counts as the user's, and is kept.
                Err(error) if is_passed_over(&run, &error) => {}
                Err(error) => return Err(error),
            }
        }
        timeline.moments.sort_by(|a, b| (a.record.moment, &a.checkpoint).cmp(&(b.record.moment, &b.checkpoint)));
        timeline.head = kept.unwrap_or_else(|| timeline.moments.last().map_or(0, |newest| newest.record.moment));
        timeline.find_closed();
        let mut driven = HashSet::new();
        for run in timeline.unclosed() {
            if self.is_driven(&run).await? {
                driven.insert(run);
            }
        }
        timeline.find_ends(&driven);
        Ok(timeline)
    }
}

impl Workspace {
    /// The checkpoints of files in a run's log, and the entries that only carry one of them on.
    async fn moments_of(
        &self,
        run: &RunId,
    ) -> Result<(Vec<Moment>, Vec<(CheckpointRef, CheckpointRef)>), WorkspaceError> {
        let (mut moments, mut carried) = (Vec::new(), Vec::new());
        let log = RunLog::open(Arc::clone(self.store()), run).await?;
        if !may_have_files(&log).await? {
            return Ok((moments, carried));
        }
        let entries = log.entries(Span::ALL).await?;
        let removed = log.removed_in(&entries).await?.checkpoints;
        let mut roots: HashMap<_, CheckpointRef> = HashMap::new();
        for entry in entries {
            let Some(part) = entry.parts.get(&PartName::from(PartName::WORKSPACE)) else { continue };
            let checkpoint = CheckpointRef { run: run.clone(), seq: entry.seq };
            match moment(&log, &entry).await? {
                Some(moment) => {
                    roots.insert(part.root, checkpoint);
                    moments.push(Moment { removed: removed.contains(&entry.seq), ..moment });
                }
                None => carried.extend(roots.get(&part.root).map(|from| (checkpoint, from.clone()))),
            }
        }
        Ok((moments, carried))
    }
}

/// Whether damage in a run's log is passed over, so that it is in no other run's way. The folder's own log is what
/// checkpoints by hand are written to: there it isn't.
pub(crate) fn is_passed_over(run: &RunSummary, error: &WorkspaceError) -> bool {
    let is_passed =
        run.kind != RunKind::Workspace && matches!(error, WorkspaceError::Store(StoreError::Corrupt { .. }));
    if is_passed {
        tracing::warn!(run = %run.id, %error, "the checkpoints of a damaged run are passed over");
    }
    is_passed
}

/// What an entry says of the files, if it is about them. An entry that only carries the files of an earlier one on has
/// no record, and is no moment of the folder.
pub(crate) async fn moment(log: &RunLog, entry: &SealedEntry) -> Result<Option<Moment>, WorkspaceError> {
    let Some(part) = entry.parts.get(&PartName::from(PartName::WORKSPACE)) else { return Ok(None) };
    let Ok(record) = from_value::<Record>(log.body(entry).await?) else { return Ok(None) };
    let checkpoint = CheckpointRef { run: log.run().clone(), seq: entry.seq };
    let snapshot = Snapshot::load(log, entry.seq, part).await?;
    Ok(Some(Moment { checkpoint, at: entry.at, label: entry.label.clone(), record, snapshot, removed: false }))
}

impl Timeline {
    /// Where a checkpoint is. One that only carries the files of an earlier one on is where that one is.
    pub fn find(&self, checkpoint: &CheckpointRef) -> Option<usize> {
        let checkpoint = self.carried.get(checkpoint).unwrap_or(checkpoint);
        self.moments.iter().position(|moment| moment.checkpoint == *checkpoint)
    }

    /// The brackets that were closed.
    fn find_closed(&mut self) {
        let closed = self.moments.iter().enumerate().filter_map(|(end, moment)| match moment.role() {
            Role::Closed { since, .. } => Some((self.find(since)?, end)),
            Role::Dropped { since } => self.find(since).map(|start| (start, start)),
            _ => None,
        });
        // A turn that began a session is named twice: by its own end, and by that of the session.
        let turns = closed.clone().rev().filter(|(start, _)| self.moments[*start].begins_turn());
        (self.turns, self.ends) = (turns.collect(), closed.collect());
    }

    /// The runs whose holder matters: those with a turn that was not closed, or with a session and a bracket that was
    /// not. An agent that reports says nothing when its user interrupts a tool, so what changed after its last report
    /// may be the user's, whether the agent lives or not.
    fn unclosed(&self) -> HashSet<RunId> {
        let sessions = self.sessions();
        let open = self.moments.iter().enumerate().filter(|(place, moment)| match moment.role() {
            Role::Opened => !self.ends.contains_key(place) && sessions.contains(&moment.checkpoint.run),
            _ => moment.begins_turn() && !self.turns.contains_key(place),
        });
        open.map(|(_, moment)| moment.checkpoint.run.clone()).collect()
    }

    /// The runs that this or another program made for a session.
    fn sessions(&self) -> HashSet<RunId> {
        let opened = self.moments.iter().filter(|moment| moment.begins_session());
        opened.map(|moment| moment.checkpoint.run.clone()).collect()
    }

    /// A bracket or turn that was not closed, of a run that no process drives, ended with the last that its run said.
    fn find_ends(&mut self, driven: &HashSet<RunId>) {
        let sessions = self.sessions();
        for place in 0..self.moments.len() {
            let moment = &self.moments[place];
            let run = &moment.checkpoint.run;
            let last = self.moments.iter().rposition(|other| other.checkpoint.run == *run).unwrap_or(place);
            if moment.begins_turn() && !driven.contains(run) {
                self.turns.entry(place).or_insert(last);
            }
            if !matches!(moment.role(), Role::Opened) || self.ends.contains_key(&place) {
                continue;
            }
            let is_held = driven.contains(run) && sessions.contains(run);
            if let Some(last) = self.last_of_session(place, is_held) {
                self.killed.insert(place, last);
            }
            if !is_held {
                self.ends.insert(place, last);
            }
        }
    }

    /// How far a session got that was not closed, if it was killed: no process drives its run, or the run has begun
    /// another session since.
    fn last_of_session(&self, place: usize, is_held: bool) -> Option<usize> {
        if !self.moments[place].begins_session() {
            return None;
        }
        let mut last = place;
        for (at, other) in self.moments.iter().enumerate().skip(place + 1) {
            if other.checkpoint.run != self.moments[place].checkpoint.run {
                continue;
            }
            if other.begins_session() {
                return Some(last);
            }
            last = at;
        }
        (!is_held).then_some(last)
    }

    /// The place of the last checkpoint that a session made, if the moment at `place` began it and it was killed; that
    /// place itself if it made none. What changed later may be the user's, and counts as such.
    pub fn killed_at(&self, place: usize) -> Option<usize> {
        self.killed.get(&place).copied()
    }

    /// Who made what changed up to the moment at `place`, since the one before it. The place behind the
    /// last stands for the folder as it is now.
    pub fn maker(&self, place: usize) -> Maker {
        if self.moments.get(place).is_some_and(|moment| matches!(moment.role(), Role::Restored { .. })) {
            return Maker::Restore;
        }
        let runs = |is_open: &dyn Fn(usize, &Moment) -> bool| {
            let mut runs: Vec<RunId> = Vec::new();
            for (at, moment) in self.moments.iter().enumerate().take(place) {
                if is_open(at, moment) && !runs.contains(&moment.checkpoint.run) {
                    runs.push(moment.checkpoint.run.clone());
                }
            }
            Some(runs).filter(|runs| !runs.is_empty())
        };
        let lasts = |ends: &HashMap<usize, usize>, at: usize| ends.get(&at).is_none_or(|end| *end >= place);
        let agents = runs(&|at, moment| matches!(moment.role(), Role::Opened) && lasts(&self.ends, at));
        let turns = || runs(&|at, moment| moment.begins_turn() && lasts(&self.turns, at));
        match agents {
            Some(runs) => Maker::Agents(runs),
            None => turns().map_or(Maker::User, Maker::Unattributed),
        }
    }

    /// Who made what changed between two places. If that is not the same maker throughout, it can't be told.
    pub(crate) fn maker_between(&self, old: usize, new: usize) -> Maker {
        let mut makers: Vec<Maker> = (old + 1..=new).map(|place| self.maker(place)).collect();
        makers.dedup();
        match makers.pop() {
            Some(one) if makers.is_empty() => one,
            _ => Maker::Unattributed(Vec::new()),
        }
    }

    /// The restores that took the operation at `place` back, brought it again, and so on, and what they left of it.
    pub(crate) fn related(&self, place: usize) -> (Vec<usize>, Left) {
        let (mut related, mut left) = (vec![], Left::All);
        // Each with what was left before it.
        let mut names = vec![(&self.moments[place].checkpoint, Left::All)];
        for (at, moment) in self.moments.iter().enumerate().skip(place + 1) {
            let Role::Restored { restore, .. } = moment.role() else { continue };
            let (of, unattributed, whole_run) = match restore {
                RestoreKind::Undo { operation, unattributed, whole_run, .. } => (operation, *unattributed, *whole_run),
                RestoreKind::Redo { undo } => (undo, false, false),
                RestoreKind::To { .. } => continue,
            };
            let by_run = whole_run && self.is_session_of(place, of);
            let named = names.iter().position(|(name, _)| *name == of).or_else(|| by_run.then_some(0));
            let Some(named) = named else { continue };
            let after = match (named, unattributed) {
                (0, true) => Left::Nothing,
                (0, false) => Left::Unattributed,
                _ => names[named].1,
            };
            names.push((&moment.checkpoint, left));
            related.push(at);
            left = after;
        }
        (related, left)
    }

    /// The later operations that were taken back and still are, with the restores that did it: together they come to
    /// nothing, and what is below them must not depend on them.
    pub(crate) fn gone_since(&self, place: usize) -> Vec<usize> {
        let mut gone = vec![];
        for (at, moment) in self.moments.iter().enumerate().skip(place + 1) {
            let (related, left) = self.related(at);
            if left == Left::All {
                continue;
            }
            let is_gone = |at: &usize, run: &RunId| match self.maker(*at) {
                Maker::Agents(runs) => runs == [run.clone()],
                Maker::Unattributed(runs) => left == Left::Nothing && runs.contains(run),
                Maker::User | Maker::Restore => false,
            };
            match (moment.role(), self.killed_at(at)) {
                (_, Some(end)) => gone.extend((at + 1..=end).filter(|at| is_gone(at, &moment.checkpoint.run))),
                (Role::Closed { since, .. }, _) => {
                    // One that had begun before can't be told apart from what is asked about.
                    let Some(start) = self.find(since).filter(|start| *start >= place) else { continue };
                    gone.extend((start + 1..=at).filter(|at| is_gone(at, &since.run)));
                }
                (Role::Restored { .. }, _) => gone.push(at),
                _ => continue,
            }
            gone.extend(related);
        }
        gone
    }

    /// Whether the operation at `place` is a session of the run that `last` is one of, and not a later one.
    fn is_session_of(&self, place: usize, last: &CheckpointRef) -> bool {
        let moment = &self.moments[place];
        let is_session = moment.record.kind == CheckpointKind::Session
            && (matches!(moment.role(), Role::Closed { .. }) || self.killed.contains_key(&place));
        is_session && moment.checkpoint.run == last.run && moment.checkpoint.seq <= last.seq
    }

    /// The sessions of a run as operations, oldest first: where each ended; of one that was killed, where it began.
    pub fn sessions_of(&self, run: &RunId) -> Vec<usize> {
        let all = CheckpointRef { run: run.clone(), seq: Seq(u32::MAX) };
        (0..self.moments.len()).filter(|place| self.is_session_of(*place, &all)).collect()
    }

    /// The brackets of a run: the place where each began, and the one where it ended. One without an end lasts up to the
    /// run's newest checkpoint.
    pub(crate) fn brackets_of(&self, run: &RunId) -> Vec<(usize, usize)> {
        let own = |place: &usize| self.moments[*place].checkpoint.run == *run;
        let newest = (0..self.moments.len()).rfind(own);
        let opened = (0..self.moments.len()).filter(own).filter(|at| matches!(self.moments[*at].role(), Role::Opened));
        opened.filter_map(|at| Some((at, self.ends.get(&at).copied().or(newest)?))).collect()
    }

    /// The runs beside `run` that were at work while it was, between two places.
    pub fn beside(&self, run: &RunId, start: usize, end: usize) -> Vec<RunId> {
        let mut others: Vec<RunId> = Vec::new();
        for place in start + 1..=end {
            if let Maker::Agents(runs) = self.maker(place)
                && runs.contains(run)
            {
                others.extend(runs.into_iter().filter(|other| other != run));
            }
        }
        others.sort();
        others.dedup();
        others
    }

    /// How git's names moved while the session of a run lasted that began and ended at these places.
    pub fn git_moves(&self, start: usize, end: usize) -> Vec<GitMove> {
        GitMove::together(self.moments[start + 1..=end].iter().flat_map(|moment| moment.record.git.iter().cloned()))
    }

    /// The operations that can be taken back, newest last, and the undos that can be taken back. A session that was
    /// killed goes by the checkpoint that began it: none ended it.
    pub fn operations(&self) -> (Vec<usize>, Vec<usize>) {
        let (mut done, mut undone): (Vec<usize>, Vec<usize>) = Default::default();
        let end = |place: &usize| self.killed_at(*place).map_or((*place, false), |end| (end, true));
        let changed =
            |(begun, end): &(&usize, &usize)| self.moments[**begun].snapshot.tree != self.moments[**end].snapshot.tree;
        let killed: HashMap<usize, usize> = self.killed.iter().filter(changed).map(|(a, b)| (*b, *a)).collect();
        // What each undo took back, which its redo brings again.
        let mut taken: HashMap<usize, Vec<usize>> = HashMap::new();
        for (place, moment) in self.moments.iter().enumerate() {
            match moment.role() {
                Role::Restored { restore: RestoreKind::Undo { operation, whole_run, .. }, .. } => {
                    let named = self.find(operation);
                    let is_taken = |at: &usize| Some(*at) == named || *whole_run && self.is_session_of(*at, operation);
                    let (gone, kept) = done.into_iter().partition(is_taken);
                    done = kept;
                    taken.insert(place, gone);
                    undone.push(place);
                }
                Role::Restored { restore: RestoreKind::Redo { undo }, .. } => {
                    let Some(undo) = self.find(undo) else { continue };
                    undone.retain(|place| *place != undo);
                    // Of one that was taken back twice, the second time with what is unattributed, only the first has it.
                    done.extend(taken.remove(&undo).unwrap_or_default());
                    done.sort_unstable_by_key(end);
                }
                Role::Closed { before, .. } if *before == moment.snapshot.tree => {}
                Role::Restored { before, .. } if *before == moment.snapshot.tree => {}
                _ if moment.is_operation() => done.push(place),
                _ => {}
            }
            done.extend(killed.get(&place));
        }
        (done, undone)
    }
}
