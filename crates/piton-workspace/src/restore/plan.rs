//! What a restore will do: worked out from trees alone, before anything is written.
//!
//! Between the target and the folder as it is now lie the snapshots that were made since, and what
//! changed from each to the next has a maker. A restore takes some of that back and keeps the rest: for
//! each path, it begins with the target's version and carries every change that is to be kept over to it,
//! in order. Where a kept change doesn't fit, because it was made on top of one that is taken back, there
//! is a conflict, unless the texts can be merged.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use piton_store::Hashing;
use piton_types::BlobId;

use super::{Ask, Conflict, ConflictResolution, Selection};
use crate::tree::{Content, Entry, Nodes, diff, entry_at, folder};
use crate::{RelPath, WorkspaceError, content};

/// The largest text that is merged.
const MERGED_MAX: u64 = 16 << 20;

/// What becomes of the changes between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They stay.
    Kept,
    /// They are taken back.
    Dropped,
    /// They may be somebody else's: a path that changed here is left alone, for this reason.
    Shared(String),
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
}

/// What a restore will do.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// What will change, in the order of paths.
    pub changes: Vec<PlannedChange>,
    /// What somebody else changed too, and nobody decided. While there is any, nothing is written.
    pub conflicts: Vec<Conflict>,
    /// What will be left as it is, and why.
    pub left: Vec<(RelPath, String)>,
    /// Contents that are new with this plan: merged texts.
    pub(crate) fresh: HashMap<BlobId, Bytes>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.conflicts.is_empty()
    }

    /// Paths whose present content no snapshot has, because it isn't captured.
    pub(crate) fn unseen(&self, nodes: &dyn Nodes, now: BlobId) -> Result<HashSet<RelPath>, WorkspaceError> {
        // Whether a folder can't be looked into; most paths share theirs with others.
        let mut hidden: HashMap<RelPath, bool> = HashMap::new();
        let mut unseen = HashSet::new();
        for change in &self.changes {
            let is_unseen = match change.now {
                Some(Entry::Excluded(_)) => true,
                Some(_) => false,
                None => match change.path.split() {
                    Some((folder, _)) => is_hidden(nodes, now, &folder, &mut hidden)?,
                    None => false,
                },
            };
            if is_unseen {
                unseen.insert(change.path.clone());
            }
        }
        Ok(unseen)
    }
}

/// Whether a folder, or one above it, was seen and not captured.
fn is_hidden(
    nodes: &dyn Nodes,
    now: BlobId,
    folder: &RelPath,
    known: &mut HashMap<RelPath, bool>,
) -> Result<bool, WorkspaceError> {
    if let Some(hidden) = known.get(folder) {
        return Ok(*hidden);
    }
    let hidden = match folder.split() {
        None => false,
        Some((above, _)) => {
            is_hidden(nodes, now, &above, known)? || matches!(entry_at(nodes, now, folder)?, Some(Entry::Excluded(_)))
        }
    };
    known.insert(folder.clone(), hidden);
    Ok(hidden)
}

/// One step in the life of a path.
struct Step {
    fate: Fate,
    old: Option<Entry>,
    new: Option<Entry>,
}

impl Replay<'_> {
    pub(crate) fn plan(&self) -> Result<Plan, WorkspaceError> {
        let mut lives: BTreeMap<RelPath, Vec<Step>> = BTreeMap::new();
        for (pair, fate) in self.trees.windows(2).zip(self.fates) {
            // What was hidden and is seen now didn't come to be then: nobody knows who made it.
            let mut revealed: Option<RelPath> = None;
            for change in diff(self.nodes, pair[0], pair[1])? {
                if matches!(change.old, Some(Entry::Excluded(_))) {
                    revealed = Some(change.path.clone());
                }
                let is_revealed = revealed.as_ref().is_some_and(|above| change.path.is_within(above));
                if self.selection.has(&change.path) {
                    let fate = if is_revealed { Fate::Dropped } else { fate.clone() };
                    let step = Step { fate, old: change.old, new: change.new };
                    lives.entry(change.path).or_default().push(step);
                }
            }
        }
        let mut plan = Plan::default();
        for (path, life) in lives {
            self.settle(&mut plan, path, &life)?;
        }
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
        let mut then = target.clone();
        let mut merged = false;
        for step in life.iter().filter(|step| step.fate == Fate::Kept) {
            if alike(&then, &step.old) {
                then = step.new.clone();
            } else if !alike(&then, &step.new) {
                match self.merge(plan, &step.old, &step.new, &then)? {
                    Some(entry) => (then, merged) = (Some(entry), true),
                    None => {
                        let why = match (&step.new, &then) {
                            (None, _) => "it was deleted since",
                            (_, None) => "it was changed since, and isn't in the checkpoint",
                            _ => "it was changed since, in the same place or a way that can't be merged",
                        };
                        self.decide(plan, path, why.to_owned(), target, now);
                        return Ok(());
                    }
                }
            }
        }
        self.add(plan, PlannedChange { path, now: now.clone(), then, merged });
        Ok(())
    }

    fn add(&self, plan: &mut Plan, change: PlannedChange) {
        match (&change.now, &change.then) {
            (now, then) if alike(now, then) => {}
            (_, Some(Entry::Excluded(reason))) => {
                let why = match change.now {
                    None => format!("it is gone, and was not captured: {}", reason.as_str()),
                    Some(_) => format!("it was not captured then: {}", reason.as_str()),
                };
                plan.left.push((change.path, why));
            }
            // Never deleted: nobody has its content.
            (Some(Entry::Excluded(_)), None) => {}
            _ => plan.changes.push(change),
        }
    }

    /// A path that somebody else changed too.
    fn decide(&self, plan: &mut Plan, path: RelPath, reason: String, target: &Option<Entry>, now: &Option<Entry>) {
        let conflict = Conflict { path, reason, checkpoint: target.clone(), current: now.clone() };
        let resolution = match self.resolution {
            ConflictResolution::Ask => self.ask.ask(&conflict),
            other => other,
        };
        match resolution {
            ConflictResolution::PreferCheckpoint => {
                let (path, now, then) = (conflict.path, conflict.current, conflict.checkpoint);
                self.add(plan, PlannedChange { path, now, then, merged: false });
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
                        plan.changes.push(PlannedChange { path, now: None, then, merged: false });
                        plan.left.push((conflict.path, conflict.reason));
                    }
                    (None, _) => {
                        let reason = "there is a file of that name with .checkpoint already".to_owned();
                        plan.conflicts.push(Conflict { reason, ..conflict });
                    }
                    _ => plan.left.push((conflict.path, conflict.reason)),
                }
            }
            ConflictResolution::Refuse | ConflictResolution::Merge | ConflictResolution::Ask => {
                plan.conflicts.push(conflict);
            }
        }
    }

    /// Both changes in one, if they are texts and touch different lines.
    fn merge(
        &self,
        plan: &mut Plan,
        base: &Option<Entry>,
        ours: &Option<Entry>,
        theirs: &Option<Entry>,
    ) -> Result<Option<Entry>, WorkspaceError> {
        if !matches!(self.resolution, ConflictResolution::Merge | ConflictResolution::Ask) {
            return Ok(None);
        }
        let (
            Some(Entry::File { mode: base_mode, size: base_size, content: base }),
            Some(Entry::File { mode: our_mode, size: our_size, content: ours }),
            Some(Entry::File { mode: their_mode, size: their_size, content: theirs }),
        ) = (base, ours, theirs)
        else {
            return Ok(None);
        };
        if [base_size, our_size, their_size].into_iter().any(|size| *size > MERGED_MAX) {
            return Ok(None);
        }
        let mode = match (our_mode == base_mode, their_mode == base_mode) {
            (true, _) => *their_mode,
            (_, true) => *our_mode,
            _ if our_mode == their_mode => *our_mode,
            _ => return Ok(None),
        };
        if theirs == base || ours == theirs {
            return Ok(Some(Entry::File { mode, size: *our_size, content: *ours }));
        }
        if ours == base {
            return Ok(Some(Entry::File { mode, size: *their_size, content: *theirs }));
        }
        let load = |content: Content, size: u64| {
            let get = |id: BlobId| match plan.fresh.get(&id) {
                Some(bytes) => Ok(bytes.clone()),
                None => (self.get)(id),
            };
            content::load(&get, content, size)
        };
        let texts = [load(*base, *base_size)?, load(*ours, *our_size)?, load(*theirs, *their_size)?];
        let Some(merged) = crate::merge_clean(&texts[0], &texts[1], &texts[2]) else { return Ok(None) };
        if merged.len() as u64 > content::WHOLE {
            // Larger ones would have to be cut; a person can do it.
            return Ok(None);
        }
        let (id, size) = (self.hashing.blob(&merged), merged.len() as u64);
        plan.fresh.insert(id, merged.into());
        Ok(Some(Entry::File { mode, size, content: Content::Whole(id) }))
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
            let Some(Entry::Folder { node, .. }) = change.now else { continue };
            if matches!(change.then, Some(Entry::Folder { .. })) {
                continue;
            }
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

fn alike(a: &Option<Entry>, b: &Option<Entry>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.is_alike(b),
        _ => false,
    }
}
