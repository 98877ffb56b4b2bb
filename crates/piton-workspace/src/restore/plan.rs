//! What a restore will do: worked out from trees alone, before anything is written.
//!
//! Between the target and the folder as it is now lie the snapshots that were made since, and what
//! changed from each to the next has a maker. A restore takes some of that back and keeps the rest: for
//! each path, it begins with the target's version and carries every change that is to be kept over to it,
//! in order. Where a kept change doesn't fit, because it was made on top of one that is taken back, there
//! is a conflict, unless the texts can be merged. A file that was renamed on the way is followed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use piton_store::Hashing;
use piton_types::BlobId;

use super::intent::Intents;
use super::renames::{Renamed, renames};
use super::{Ask, Conflict, ConflictResolution, ContestedText, Resolver, Selection};
use crate::tree::{Content, Entry, Nodes, PERMISSIONS, Reason, alike, diff, entry_at, folder};
use crate::{RelPath, TextDiff, WorkspaceError, content, is_binary};

/// A larger file's difference isn't shown.
const SHOWN: u64 = 1 << 20;

/// The largest text that is merged.
const MERGED_MAX: u64 = 16 << 20;

/// What becomes of the changes between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They stay.
    Kept,
    /// They stay, and are named: they may be the user's.
    Unattributed,
    /// They are taken back.
    Dropped,
    /// They may be another writer's: a path that changed here is left alone, for this reason.
    Shared(String),
}

impl Fate {
    fn is_kept(&self) -> bool {
        matches!(self, Self::Kept | Self::Unattributed)
    }
}

/// Everything to begin with.
pub(crate) struct Replay<'a> {
    pub(crate) nodes: &'a dyn Nodes,
    pub(crate) hashing: &'a Hashing,
    /// Gives the content of a blob.
    pub(crate) get: &'a dyn Fn(BlobId) -> Result<Bytes, WorkspaceError>,
    /// The target, the snapshots since, and the folder as it is now.
    pub(crate) trees: &'a [BlobId],
    /// For each but the first, what becomes of the changes that led to it.
    pub(crate) fates: &'a [Fate],
    pub(crate) selection: &'a Selection,
    pub(crate) resolution: ConflictResolution,
    pub(crate) ask: &'a dyn Ask,
    pub(crate) resolver: Option<&'a dyn Resolver>,
    /// What the writers were after.
    pub(crate) intents: &'a Intents,
}

/// One path that will change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    /// Which.
    pub path: RelPath,
    /// What is there now.
    pub now: Option<Entry>,
    /// What will be there.
    pub then: Option<Entry>,
    /// Whether that is a merge of two versions.
    pub merged: bool,
    /// Whether a [`Resolver`] put the two together, and a person should look at it.
    pub resolved: bool,
}

/// What a restore will do.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// What will change, in the order of paths.
    pub changes: Vec<PlannedChange>,
    /// What another writer changed too, and isn't decided. While there is any, nothing is written.
    pub conflicts: Vec<Conflict>,
    /// What will be left as it is, and why.
    pub left: Vec<(RelPath, String)>,
    /// Paths that changed during an agent's turn, but in none of its tool calls: those changes stay.
    pub unattributed: Vec<RelPath>,
    /// Contents that are new with this plan: merged texts.
    pub(crate) fresh: HashMap<BlobId, Bytes>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.conflicts.is_empty()
    }

    /// The text that a merged path will have.
    pub fn merged_text(&self, change: &PlannedChange) -> Option<&[u8]> {
        match &change.then {
            Some(Entry::File { content, .. }) if change.merged => self.fresh.get(&content.id()).map(|text| &text[..]),
            _ => None,
        }
    }

    /// Paths whose present content no snapshot has, because it isn't captured. What lies on another file system now is left.
    pub(crate) fn unseen(&mut self, nodes: &dyn Nodes, now: BlobId) -> Result<HashSet<RelPath>, WorkspaceError> {
        // Why a folder can't be looked into; most paths share theirs with others.
        let mut hidden: HashMap<RelPath, Option<Reason>> = HashMap::new();
        let mut unseen = HashSet::new();
        for change in std::mem::take(&mut self.changes) {
            let reason = match (&change.now, change.path.split()) {
                (Some(Entry::Excluded(reason)), _) => Some(*reason),
                (None, Some((folder, _))) => hidden_by(nodes, now, &folder, &mut hidden)?,
                _ => None,
            };
            if reason == Some(Reason::Mount) {
                self.left.push((change.path, Reason::Mount.as_str().to_owned()));
                continue;
            }
            if reason.is_some() {
                unseen.insert(change.path.clone());
            }
            self.changes.push(change);
        }
        Ok(unseen)
    }
}

/// What a side is for, with what is known of its work.
fn told(what: &str, of: &str, work: &str) -> String {
    if work.is_empty() { what.to_owned() } else { format!("{what}. {of}: {work}") }
}

/// Why a folder, or one above it, was seen and not captured, if it was.
fn hidden_by(
    nodes: &dyn Nodes,
    now: BlobId,
    folder: &RelPath,
    known: &mut HashMap<RelPath, Option<Reason>>,
) -> Result<Option<Reason>, WorkspaceError> {
    if let Some(hidden) = known.get(folder) {
        return Ok(*hidden);
    }
    let hidden = match folder.split() {
        None => None,
        Some((above, _)) => match (hidden_by(nodes, now, &above, known)?, entry_at(nodes, now, folder)?) {
            (None, Some(Entry::Excluded(reason))) => Some(reason),
            (above, _) => above,
        },
    };
    known.insert(folder.clone(), hidden);
    Ok(hidden)
}

/// One step in the life of a path.
#[derive(Clone)]
pub(super) struct Step {
    /// Which of the intervals between trees.
    pub(super) at: usize,
    pub(super) fate: Fate,
    pub(super) old: Option<Entry>,
    pub(super) new: Option<Entry>,
}

/// How far two versions of a file can be put together.
enum Joined {
    /// They are one now.
    One(Entry),
    /// They are texts that are in each other's way; with the mode that the file gets.
    Contested(Box<ContestedText>, u16),
    /// They can't.
    No,
}

/// Where the life of a path leads.
struct Settled {
    then: Option<Entry>,
    merged: bool,
    resolved: bool,
}

impl Replay<'_> {
    pub(crate) fn plan(&self) -> Result<Plan, WorkspaceError> {
        let mut lives: BTreeMap<RelPath, Vec<Step>> = BTreeMap::new();
        for (at, (pair, fate)) in self.trees.windows(2).zip(self.fates).enumerate() {
            // What was hidden and is seen now didn't come to be then: it can't be known who made it, or what it was.
            let mut revealed: Option<RelPath> = None;
            for change in diff(self.nodes, pair[0], pair[1])? {
                if matches!(change.old, Some(Entry::Excluded(_))) {
                    revealed = Some(change.path.clone());
                }
                let above = revealed.as_ref().filter(|above| change.path.is_within(above));
                let is_unknown = above.is_some_and(|above| *above != change.path) && !lives.contains_key(&change.path);
                if is_unknown || !self.selection.has(&change.path) {
                    continue;
                }
                let fate = if above.is_some() { Fate::Dropped } else { fate.clone() };
                let step = Step { at, fate, old: change.old, new: change.new };
                lives.entry(change.path).or_default().push(step);
            }
        }
        let is_unattributed = |life: &[Step]| life.iter().any(|step| step.fate == Fate::Unattributed);
        let unattributed = lives.iter().filter(|(_, life)| is_unattributed(life)).map(|(path, _)| path.clone());
        let mut plan = Plan { unattributed: unattributed.collect(), ..Plan::default() };
        for renamed in renames(&lives, self.get)? {
            if self.follow(&mut plan, &renamed)? {
                renamed.names().for_each(|name| drop(lives.remove(name)));
            }
        }
        for (path, life) in lives {
            self.settle(&mut plan, path, &life)?;
        }
        plan.changes.sort_by(|a, b| a.path.cmp(&b.path));
        self.keep_folders(&mut plan)?;
        Ok(plan)
    }

    /// What becomes of one path.
    fn settle(&self, plan: &mut Plan, path: RelPath, life: &[Step]) -> Result<(), WorkspaceError> {
        let (Some(first), Some(last)) = (life.first(), life.last()) else { return Ok(()) };
        let (target, now) = (&first.old, &last.new);
        let shared = life.iter().find_map(|step| match &step.fate {
            Fate::Shared(why) => Some(why.clone()),
            _ => None,
        });
        let dropped = life.iter().any(|step| step.fate == Fate::Dropped);
        if let Some(why) = shared {
            // What is only perhaps ours stays, and is said. If some of it is ours for certain, a person decides.
            if dropped {
                self.decide(plan, path, why, target, now);
            } else {
                plan.left.push((path, why));
            }
            return Ok(());
        }
        if !dropped {
            return Ok(());
        }
        match self.replay(plan, &path, life)? {
            Ok(Settled { then, merged, resolved }) => {
                self.add(plan, PlannedChange { path, now: now.clone(), then, merged, resolved });
            }
            Err((reason, resolution)) => {
                let conflict = Conflict { path, reason, checkpoint: target.clone(), current: now.clone() };
                self.decide_as(plan, conflict, resolution);
            }
        }
        Ok(())
    }

    /// Carries every change that is to be kept over to the target's version; or the reason why that doesn't work
    /// out, and what was said about it.
    fn replay(
        &self,
        plan: &mut Plan,
        path: &RelPath,
        life: &[Step],
    ) -> Result<Result<Settled, (String, ConflictResolution)>, WorkspaceError> {
        let (Some(first), Some(last)) = (life.first(), life.last()) else {
            return Ok(Ok(Settled { then: None, merged: false, resolved: false }));
        };
        let mut settled = Settled { then: first.old.clone(), merged: false, resolved: false };
        for step in life.iter().filter(|step| step.fate.is_kept()) {
            if alike(&settled.then, &step.old) {
                settled.then = step.new.clone();
                continue;
            }
            if alike(&settled.then, &step.new) {
                continue;
            }
            let (contested, mode) = match self.merge(plan, path, &step.old, &step.new, &settled.then)? {
                Joined::One(entry) => {
                    (settled.then, settled.merged) = (Some(entry), true);
                    continue;
                }
                Joined::Contested(contested, mode) => (Some(contested), mode),
                Joined::No => (None, 0),
            };
            let why = match (&step.new, &settled.then) {
                (None, _) => "it was deleted since",
                (_, None) => "it was changed since, and isn't in the checkpoint",
                _ => "it was changed since, in the same place or a way that can't be merged",
            };
            let (checkpoint, current) = (first.old.clone(), last.new.clone());
            let conflict = Conflict { path: path.clone(), reason: why.to_owned(), checkpoint, current };
            let resolution = self.choose(&conflict);
            let text = match (resolution, contested, self.resolver) {
                (ConflictResolution::Markers, Some(contested), _) => contested.marked(),
                (ConflictResolution::Resolve, Some(contested), Some(resolver)) => match contested.answer(resolver) {
                    Ok(text) => {
                        settled.resolved = true;
                        Some(text)
                    }
                    Err(said) => {
                        let why = format!("{why}; the resolver didn't help: {said}");
                        return Ok(Err((why, resolution)));
                    }
                },
                _ => None,
            };
            match text.and_then(|text| self.fresh(plan, text, mode)) {
                Some(entry) => (settled.then, settled.merged) = (Some(entry), true),
                None => return Ok(Err((why.to_owned(), resolution))),
            }
        }
        Ok(Ok(settled))
    }

    /// A file that was renamed on the way: its name and its content are carried over together. Says whether that
    /// worked out.
    fn follow(&self, plan: &mut Plan, renamed: &Renamed) -> Result<bool, WorkspaceError> {
        let life = &renamed.life;
        let (Some(first), Some(last)) = (life.first(), life.last()) else { return Ok(false) };
        // If all of it stays, or all of it goes, the names are one by one what they should be.
        let mixed = life.iter().any(|step| step.fate == Fate::Dropped) && life.iter().any(|step| step.fate.is_kept());
        if !mixed || life.iter().any(|step| matches!(step.fate, Fate::Shared(_))) || first.old.is_none() {
            return Ok(false);
        }
        // Carrying it over must not ask the user: if it needs that, each name is asked about on its own.
        let quiet = Replay { resolution: ConflictResolution::Merge, ..*self };
        let Some((_, here)) = renamed.to.last() else { return Ok(false) };
        let Ok(Settled { then: Some(then), merged, resolved }) = quiet.replay(plan, here, life)? else {
            return Ok(false);
        };
        let then = Some(then);
        let now = last.new.clone();
        // The last name that it got in a change that stays; else the one that it had.
        let is_kept = |at: usize| life.iter().any(|step| step.at == at && step.fate.is_kept());
        let name = renamed.to.iter().rfind(|(at, _)| is_kept(*at)).map_or(&renamed.from, |(_, to)| to);
        if name == here {
            self.add(plan, PlannedChange { path: here.clone(), now, then, merged, resolved });
        } else {
            self.add(plan, PlannedChange { path: name.clone(), now: None, then, merged, resolved });
            let (path, then) = (here.clone(), None);
            self.add(plan, PlannedChange { path, now, then, merged: false, resolved: false });
        }
        Ok(true)
    }

    fn add(&self, plan: &mut Plan, mut change: PlannedChange) {
        if alike(&change.now, &change.then) {
            return;
        }
        // Setuid and its like never come from a snapshot.
        if let Some(Entry::File { mode, .. }) = &mut change.then {
            *mode &= PERMISSIONS;
        }
        match (&change.now, &change.then) {
            (now, then) if alike(now, then) => {}
            (_, Some(Entry::Excluded(reason))) => {
                let why = match change.now {
                    None => format!("it is gone, and was not captured: {}", reason.as_str()),
                    Some(_) => format!("it was not captured then: {}", reason.as_str()),
                };
                plan.left.push((change.path, why));
            }
            // Never deleted: the store doesn't have its content.
            (Some(Entry::Excluded(_)), None) => {}
            _ => plan.changes.push(change),
        }
    }

    /// A path that another writer changed too.
    fn decide(&self, plan: &mut Plan, path: RelPath, reason: String, target: &Option<Entry>, now: &Option<Entry>) {
        let conflict = Conflict { path, reason, checkpoint: target.clone(), current: now.clone() };
        let resolution = self.choose(&conflict);
        self.decide_as(plan, conflict, resolution);
    }

    /// What is to become of a conflict.
    fn choose(&self, conflict: &Conflict) -> ConflictResolution {
        match self.resolution {
            ConflictResolution::Ask => self.ask.ask_showing(conflict, &|| self.difference(conflict)),
            other => other,
        }
    }

    /// How what is there differs from the checkpoint's version, if both are texts, or there is only one.
    fn difference(&self, conflict: &Conflict) -> Option<String> {
        let text = |entry: &Option<Entry>| match entry {
            None => Some(Bytes::new()),
            Some(Entry::File { content, size, .. }) if *size <= SHOWN => {
                content::load(&|id| (self.get)(id), *content, *size).ok().filter(|text| !is_binary(text))
            }
            Some(_) => None,
        };
        Some(TextDiff::compute(&text(&conflict.current)?, &text(&conflict.checkpoint)?).to_string())
    }

    fn decide_as(&self, plan: &mut Plan, conflict: Conflict, resolution: ConflictResolution) {
        match resolution {
            ConflictResolution::PreferCheckpoint => {
                let (path, now, then) = (conflict.path, conflict.current, conflict.checkpoint);
                self.add(plan, PlannedChange { path, now, then, merged: false, resolved: false });
            }
            ConflictResolution::PreferCurrent => plan.left.push((conflict.path, conflict.reason)),
            ConflictResolution::Beside => {
                let beside = conflict.path.split().and_then(|(parent, name)| {
                    let name = [name, b".checkpoint"].concat();
                    crate::path::check_name(&name).ok().map(|()| parent.join(&name))
                });
                let free = beside.filter(|beside| {
                    let now = self.trees.last().map(|now| entry_at(self.nodes, *now, beside));
                    matches!(now, Some(Ok(None)))
                });
                match (free, &conflict.checkpoint) {
                    (Some(path), Some(Entry::File { .. } | Entry::Link { .. })) => {
                        let then = conflict.checkpoint.clone();
                        self.add(plan, PlannedChange { path, now: None, then, merged: false, resolved: false });
                        plan.left.push((conflict.path, conflict.reason));
                    }
                    (None, _) => {
                        let reason = "there is a file of that name with .checkpoint already".to_owned();
                        plan.conflicts.push(Conflict { reason, ..conflict });
                    }
                    _ => plan.left.push((conflict.path, conflict.reason)),
                }
            }
            ConflictResolution::Refuse
            | ConflictResolution::Merge
            | ConflictResolution::Markers
            | ConflictResolution::Resolve
            | ConflictResolution::Ask => plan.conflicts.push(conflict),
        }
    }

    /// Both changes in one, if they are texts and touch different lines.
    fn merge(
        &self,
        plan: &mut Plan,
        path: &RelPath,
        base: &Option<Entry>,
        ours: &Option<Entry>,
        theirs: &Option<Entry>,
    ) -> Result<Joined, WorkspaceError> {
        let merges = [
            ConflictResolution::Merge,
            ConflictResolution::Markers,
            ConflictResolution::Resolve,
            ConflictResolution::Ask,
        ];
        if !merges.contains(&self.resolution) {
            return Ok(Joined::No);
        }
        let (
            Some(Entry::File { mode: base_mode, size: base_size, content: base }),
            Some(Entry::File { mode: our_mode, size: our_size, content: ours }),
            Some(Entry::File { mode: their_mode, size: their_size, content: theirs }),
        ) = (base, ours, theirs)
        else {
            return Ok(Joined::No);
        };
        if [base_size, our_size, their_size].into_iter().any(|size| *size > MERGED_MAX) {
            return Ok(Joined::No);
        }
        let mode = match (our_mode == base_mode, their_mode == base_mode) {
            (true, _) => *their_mode,
            (_, true) => *our_mode,
            _ if our_mode == their_mode => *our_mode,
            _ => return Ok(Joined::No),
        };
        if theirs == base || ours == theirs {
            return Ok(Joined::One(Entry::File { mode, size: *our_size, content: *ours }));
        }
        if ours == base {
            return Ok(Joined::One(Entry::File { mode, size: *their_size, content: *theirs }));
        }
        let load = |content: Content, size: u64| {
            let get = |id: BlobId| match plan.fresh.get(&id) {
                Some(bytes) => Ok(bytes.clone()),
                None => (self.get)(id),
            };
            content::load(&get, content, size)
        };
        let [base, current, checkpoint] =
            [load(*base, *base_size)?, load(*ours, *our_size)?, load(*theirs, *their_size)?];
        let options = crate::MergeOptions::default();
        let Ok(merged) = crate::merge(&base, &current, &checkpoint, &options) else { return Ok(Joined::No) };
        if merged.conflicts > 0 {
            let contested = ContestedText {
                path: path.clone(),
                base,
                current,
                checkpoint,
                current_intent: told(
                    "edits that the user or another program made since, and that are to be kept",
                    "What is known of them",
                    &self.intents.others,
                ),
                checkpoint_intent: told(
                    "the file as it is to be again, without what an agent did to it",
                    "What the agent was asked and did",
                    &self.intents.agent,
                ),
            };
            return Ok(Joined::Contested(Box::new(contested), mode));
        }
        Ok(self.fresh(plan, merged.text, mode).map_or(Joined::No, Joined::One))
    }

    /// A file with a content that is new with this plan.
    fn fresh(&self, plan: &mut Plan, text: Vec<u8>, mode: u16) -> Option<Entry> {
        if text.len() as u64 > content::WHOLE {
            // Larger ones would have to be cut; a person can do it.
            return None;
        }
        let (id, size) = (self.hashing.blob(&text), text.len() as u64);
        plan.fresh.insert(id, text.into());
        Some(Entry::File { mode, size, content: Content::Whole(id) })
    }

    /// A folder goes only if everything in it goes, and becomes a file only then.
    fn keep_folders(&self, plan: &mut Plan) -> Result<(), WorkspaceError> {
        let mut going: BTreeSet<RelPath> = plan
            .changes
            .iter()
            .filter(|change| change.then.is_none() && !matches!(change.now, Some(Entry::Folder { .. })))
            .map(|change| change.path.clone())
            .collect();
        let coming: BTreeSet<RelPath> =
            plan.changes.iter().filter(|change| change.then.is_some()).map(|change| change.path.clone()).collect();
        let mut kept = Vec::new();
        for change in plan.changes.iter().rev() {
            if !matches!(change.now, Some(Entry::Folder { .. })) || matches!(change.then, Some(Entry::Folder { .. })) {
                continue;
            }
            // What changed in it since it came to be didn't make it another folder.
            let Some(now) = self.trees.last() else { continue };
            let Some(Entry::Folder { node, .. }) = entry_at(self.nodes, *now, &change.path)? else { continue };
            // What is to come below it needs it too.
            let needed = coming.range(change.path.clone()..).nth(usize::from(change.then.is_some()));
            let needed = needed.is_some_and(|path| path.is_within(&change.path) && *path != change.path);
            let emptied = folder(self.nodes, node)?.iter().all(|leaf| going.contains(&change.path.join(&leaf.name)));
            if emptied && !needed {
                going.insert(change.path.clone());
            } else {
                kept.push(change.path.clone());
            }
        }
        for path in kept {
            let Some(place) = plan.changes.iter().position(|change| change.path == path) else { continue };
            let change = plan.changes.remove(place);
            if change.then.is_some() {
                let reason = "it is a folder now, with other files in it".to_owned();
                let (checkpoint, current) = (change.then, change.now);
                plan.conflicts.push(Conflict { path, reason, checkpoint, current });
            }
        }
        Ok(())
    }
}
