//! The way to a target: which snapshots lie between it and the folder as it is now, and what becomes of the changes from
//! each to the next. From that, the plan.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use piton_log::RunLog;
use piton_store::StoreError;
use piton_types::{BlobId, CheckpointRef, RunId};

use super::intent::Intents;
use super::plan::{Fate, Plan, Replay};
use super::{Goal, RestoreOptions, Selection};
use crate::record::{RestoreKind, Role};
use crate::timeline::{Maker, Timeline};
use crate::tree::{Entry, Nodes, Overlay};
use crate::workspace::blocking;
use crate::{RelPath, Workspace, WorkspaceError};

/// A goal, found in the history.
pub(super) struct Route {
    pub(super) kind: RestoreKind,
    /// The target and the snapshots since, without the folder as it is now.
    pub(super) trees: Vec<BlobId>,
    fates: Vec<Fate>,
    pub(super) times: Option<BlobId>,
    /// The place of the target in the history; `None` if only the target counts.
    start: Option<usize>,
    /// The runs that were at work at the same time as what is taken back.
    pub(super) beside: Vec<RunId>,
    /// What the writers were after, if a resolver wants to know.
    intents: Intents,
}

impl Route {
    /// Leaves out the snapshots that were removed. What changed up to one and after it can't be told apart any more:
    /// if the two had different fates, whatever changed is left alone.
    fn around(mut self, timeline: &Timeline) -> Result<Self, WorkspaceError> {
        let Some(start) = self.start else { return Ok(self) };
        let moments = &timeline.moments[start..];
        if moments[0].removed {
            return Err(WorkspaceError::Removed { checkpoint: moments[0].checkpoint.to_string() });
        }
        for place in (1..self.trees.len()).rev().filter(|place| moments[*place].removed) {
            self.trees.remove(place);
            let later = self.fates.remove(place);
            let earlier = &mut self.fates[place - 1];
            if *earlier != later {
                *earlier = Fate::Shared(format!("what {} had was removed", moments[place].checkpoint));
            }
        }
        Ok(self)
    }
}

impl Workspace {
    pub(super) async fn route(
        &self,
        timeline: &Timeline,
        goal: &Goal,
        options: &RestoreOptions,
    ) -> Result<Route, WorkspaceError> {
        let mut route = self.route_through(timeline, goal, options).await?.around(timeline)?;
        if let (Some(_), Some(start)) = (&options.resolver, route.start) {
            let of = match &route.kind {
                RestoreKind::Undo { operation, .. } => Some(operation.run.clone()),
                RestoreKind::To { .. } | RestoreKind::Redo { .. } => None,
            };
            route.intents = self.intents(timeline, start, of.as_ref()).await?;
        }
        Ok(route)
    }

    async fn route_through(
        &self,
        timeline: &Timeline,
        goal: &Goal,
        options: &RestoreOptions,
    ) -> Result<Route, WorkspaceError> {
        match goal {
            Goal::Checkpoint(checkpoint) => self.route_to(timeline, checkpoint, options).await,
            Goal::Undo(operation) => {
                let place = match operation {
                    Some(operation) => timeline
                        .find(operation)
                        .ok_or_else(|| WorkspaceError::NoFiles { checkpoint: operation.to_string() })?,
                    None => *timeline.operations().0.last().ok_or(WorkspaceError::Nothing { what: "undo" })?,
                };
                let operation = timeline.moments[place].checkpoint.clone();
                let RestoreOptions { unattributed, shared, .. } = *options;
                let kind = RestoreKind::Undo { operation, unattributed, whole_run: false, shared };
                route_back(timeline, place, kind, options)
            }
            Goal::UndoRun(run) => {
                let place = *timeline.sessions_of(run).last().ok_or(WorkspaceError::Nothing { what: "undo" })?;
                let operation = timeline.moments[place].checkpoint.clone();
                let RestoreOptions { unattributed, shared, .. } = *options;
                let kind = RestoreKind::Undo { operation, unattributed, whole_run: true, shared };
                route_back(timeline, place, kind, options)
            }
            Goal::Redo => {
                let place = *timeline.operations().1.last().ok_or(WorkspaceError::Nothing { what: "redo" })?;
                let undo = timeline.moments[place].checkpoint.clone();
                route_back(timeline, place, RestoreKind::Redo { undo }, &RestoreOptions::default())
            }
        }
    }

    async fn route_to(
        &self,
        timeline: &Timeline,
        checkpoint: &CheckpointRef,
        options: &RestoreOptions,
    ) -> Result<Route, WorkspaceError> {
        let Selection { only, not } = &options.selection;
        let partial = !only.is_empty() || !not.is_empty();
        let kind = RestoreKind::To { checkpoint: checkpoint.clone(), partial };
        let Some(place) = timeline.find(checkpoint) else {
            // Another folder's, or of a run that has none: there is no history in common.
            let log = RunLog::open(Arc::clone(self.store()), &checkpoint.run).await?;
            let snapshot = Self::snapshot_of(&log, checkpoint.seq)
                .await?
                .ok_or_else(|| WorkspaceError::NoFiles { checkpoint: checkpoint.to_string() })?;
            let (trees, times) = (vec![snapshot.tree], snapshot.times);
            let fates = vec![Fate::Dropped];
            return Ok(Route {
                kind,
                trees,
                fates,
                times,
                start: None,
                beside: Vec::new(),
                intents: Intents::default(),
            });
        };
        let times = timeline.moments[place].snapshot.times;
        let since = place + 1..=timeline.moments.len();
        let fates: Vec<Fate> = since
            .clone()
            .map(|place| match timeline.maker(place) {
                Maker::User => Fate::Kept,
                Maker::Unattributed(_) if !options.unattributed => Fate::Unattributed,
                _ => Fate::Dropped,
            })
            .collect();
        // Without an agent's work since then there is nothing to keep apart from it.
        let agents = since.clone().any(|place| matches!(timeline.maker(place), Maker::Agents(_)));
        if options.exact || !agents {
            let trees = vec![timeline.moments[place].snapshot.tree];
            let fates = vec![Fate::Dropped];
            return Ok(Route {
                kind,
                trees,
                fates,
                times,
                start: Some(place),
                beside: Vec::new(),
                intents: Intents::default(),
            });
        }
        let trees = timeline.moments[place..].iter().map(|moment| moment.snapshot.tree).collect();
        Ok(Route { kind, trees, fates, times, start: Some(place), beside: Vec::new(), intents: Intents::default() })
    }

    /// The plan, and the paths that it changes though no snapshot has what is there.
    pub(super) async fn plan(
        &self,
        route: &Arc<Route>,
        now: BlobId,
        new: Arc<HashMap<BlobId, Bytes>>,
        options: &RestoreOptions,
    ) -> Result<(Plan, HashSet<RelPath>), WorkspaceError> {
        let (reader, options, hashing) = (self.reader(), options.clone(), self.store().hashing().clone());
        let (workspace, stored, route) = (self.clone(), self.nodes(), Arc::clone(route));
        blocking(move || {
            let nodes = Overlay { new: &new, below: &stored };
            let mut trees = route.trees.clone();
            trees.push(now);
            // A plan that stores nothing has the contents of changed files only on disk.
            let get = |id: BlobId| match reader.get(id) {
                Err(StoreError::NotFound { .. }) => workspace.find_on_disk(&nodes, now, id),
                other => Ok(other?),
            };
            let replay = Replay {
                nodes: &nodes,
                hashing: &hashing,
                get: &get,
                trees: &trees,
                fates: &route.fates,
                selection: &options.selection,
                resolution: options.resolution,
                ask: &*options.ask,
                resolver: options.resolver.as_deref(),
                intents: &route.intents,
            };
            let mut plan = replay.plan()?;
            let unseen = plan.unseen(&nodes, now)?;
            Ok((plan, unseen))
        })
        .await
    }

    /// The content of a file that a plan has seen and the store doesn't have.
    fn find_on_disk(&self, nodes: &dyn Nodes, now: BlobId, id: BlobId) -> Result<Bytes, WorkspaceError> {
        let mut found = None;
        crate::tree::walk(nodes, now, &RelPath::default(), &mut |path, entry| {
            if matches!(entry, Entry::File { content, .. } if content.id() == id) {
                found = Some(path);
            }
            Ok(())
        })?;
        let path = found.ok_or(crate::TreeError("a content is nowhere"))?;
        let bytes = self.read_now(&path)?;
        if self.store().hashing().blob(&bytes) != id {
            return Err(WorkspaceError::Busy { root: self.root().to_owned() });
        }
        Ok(bytes.into())
    }
}

/// The way back over one operation, or over all sessions of a run up to one: what its run did in it is taken back, and
/// everything else stays; what is unattributed in it, or may be another run's, goes along if that is wanted.
fn route_back(
    timeline: &Timeline,
    place: usize,
    kind: RestoreKind,
    options: &RestoreOptions,
) -> Result<Route, WorkspaceError> {
    let moment = &timeline.moments[place];
    let nothing = || WorkspaceError::Nothing { what: "undo" };
    let (mut start, end, whose): (usize, usize, Option<&RunId>) = match (&moment.record.role, timeline.killed_at(place))
    {
        (_, Some(end)) => (place, end, Some(&moment.checkpoint.run)),
        (Role::Closed { since, .. }, _) => (timeline.find(since).ok_or_else(nothing)?, place, Some(&since.run)),
        (Role::Restored { backup, .. }, _) => (timeline.find(backup).ok_or_else(nothing)?, place, None),
        // Any other checkpoint: what changed up to it, since the one before.
        _ => (place.checked_sub(1).ok_or_else(nothing)?, place, None),
    };
    if let (RestoreKind::Undo { whole_run: true, .. }, Some(run)) = (&kind, whose) {
        start = timeline.moments.iter().position(|moment| moment.opens_session_of(run)).unwrap_or(start);
    }
    let (mut dropped, _) = timeline.related(place);
    dropped.extend(timeline.gone_since(end));
    // What was in it may have been taken back and brought again by itself: that goes with it.
    let within = (start + 1..=end).filter(|at| match &timeline.moments[*at].record.role {
        Role::Closed { since, .. } => whose == Some(&since.run),
        _ => timeline.killed_at(*at).is_some() && whose == Some(&timeline.moments[*at].checkpoint.run),
    });
    dropped.extend(within.flat_map(|at| timeline.related(at).0));
    let fate = |at: usize| {
        if dropped.contains(&at) {
            return Fate::Dropped;
        }
        if at > end {
            return Fate::Kept;
        }
        let Some(whose) = whose else { return Fate::Dropped };
        match timeline.maker(at) {
            Maker::Agents(runs) if !runs.contains(whose) => Fate::Kept,
            Maker::Agents(runs) if options.shared || runs.iter().all(|run| run == whose) => Fate::Dropped,
            Maker::Agents(runs) => {
                let others: Vec<_> = runs.iter().filter(|run| *run != whose).map(ToString::to_string).collect();
                Fate::Shared(format!("it changed while {} was at work too", others.join(" and ")))
            }
            Maker::Unattributed(runs) if runs.contains(whose) => {
                if options.unattributed {
                    Fate::Dropped
                } else {
                    Fate::Unattributed
                }
            }
            Maker::Unattributed(_) | Maker::User | Maker::Restore => Fate::Kept,
        }
    };
    let trees = timeline.moments[start..].iter().map(|moment| moment.snapshot.tree).collect();
    let fates = (start + 1..=timeline.moments.len()).map(fate).collect();
    let beside = whose.map(|run| timeline.beside(run, start, end)).unwrap_or_default();
    let times = timeline.moments[start].snapshot.times;
    Ok(Route { kind, trees, fates, times, start: Some(start), beside, intents: Intents::default() })
}
