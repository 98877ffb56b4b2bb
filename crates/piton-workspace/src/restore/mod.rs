//! The way back: restoring to a checkpoint, undoing one operation, redoing it.
//!
//! All three are one thing: some of what was done since is taken back, and the rest stays. Everything that
//! will be overwritten is in the store, durably, before the first file changes; the restore itself is an
//! entry of the log, so it can be undone like anything else. A restore that is killed is finished by
//! the next process that opens the folder.
//!
//! What was shown is what is done: a plan remembers the folder and the history that it was made from, and is refused if
//! either has changed since.

mod apply;
mod delta;
mod execute;
mod intent;
mod plan;
mod recover;
mod renames;
mod resolver;
mod route;
mod staging;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_recursion::async_recursion as boxed;
use piton_types::{BlobId, CheckpointRef, RunId};

use crate::record::RestoreKind;
use crate::scan::Progress;
use crate::snapshot::ATTEMPTS;
use crate::timeline::Timeline;
use crate::tree::Entry;
use crate::{RelPath, Workspace, WorkspaceError};

pub use delta::LineDelta;
pub use plan::{Plan, PlannedChange};
pub use recover::Recovered;
pub use resolver::{ContestedText, Resolver};
pub(crate) use staging::Named;
pub use staging::Rescued;

/// What becomes of a path that another writer changed too: the user, another agent or another program (W6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConflictResolution {
    /// Texts that can be merged are; the rest is refused.
    #[default]
    Merge,
    /// Nothing is written.
    Refuse,
    /// The checkpoint's version.
    PreferCheckpoint,
    /// What is there.
    PreferCurrent,
    /// What is there stays, and the checkpoint's version is written beside it as `NAME.checkpoint`.
    Beside,
    /// Texts are merged, with markers where that doesn't work out; the rest is refused.
    Markers,
    /// Texts that can be merged are; for the others the resolver is asked, and the rest is refused.
    Resolve,
    /// The user is asked, by [`Ask`]; texts that can be merged are.
    Ask,
}

/// A path that another writer changed too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Which.
    pub path: RelPath,
    /// Why it can't be decided.
    pub reason: String,
    /// The checkpoint's version.
    pub checkpoint: Option<Entry>,
    /// What is there.
    pub current: Option<Entry>,
}

/// Decides conflicts, one by one. Front ends that show them in their own way implement it.
pub trait Ask: Send + Sync {
    /// What is to become of it; [`ConflictResolution::Refuse`] if the user doesn't say. A front end that isn't a
    /// terminal takes this call for its event, tells its user, and waits or refuses.
    fn ask(&self, conflict: &Conflict) -> ConflictResolution;

    /// The same where the user may want to see how the two versions differ: `difference` finds it out, as a unified diff from
    /// what is there to the checkpoint's version. There is none between versions that aren't texts.
    fn ask_showing(&self, conflict: &Conflict, _difference: &dyn Fn() -> Option<String>) -> ConflictResolution {
        self.ask(conflict)
    }
}

/// There is no user to ask.
#[derive(Debug, Clone, Copy, Default)]
pub struct CannotAsk;

impl Ask for CannotAsk {
    fn ask(&self, _: &Conflict) -> ConflictResolution {
        ConflictResolution::Refuse
    }
}

/// Which paths a restore is about.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only these, and what is in them; all if empty.
    pub only: Vec<RelPath>,
    /// But not these.
    pub not: Vec<RelPath>,
}

impl Selection {
    fn has(&self, path: &RelPath) -> bool {
        (self.only.is_empty() || self.only.iter().any(|only| path.is_within(only)))
            && !self.not.iter().any(|not| path.is_within(not))
    }
}

/// How to restore (W5).
#[derive(Clone)]
pub struct RestoreOptions {
    /// Which paths.
    pub selection: Selection,
    /// For what another writer changed too.
    pub resolution: ConflictResolution,
    /// Who is asked.
    pub ask: Arc<dyn Ask>,
    /// Who puts texts together that can't be merged.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// Make everything as it was in the checkpoint, also what another writer changed.
    pub exact: bool,
    /// Take back also what changed during an agent's turn, but in none of its tool calls: it may be the user's.
    pub unattributed: bool,
    /// In an undo, take back also what changed while another run was at work: it may be that one's.
    pub shared: bool,
    /// Put the times of files back too. Otherwise a restored file is as new as it is, and build tools notice.
    pub times: bool,
}

impl Default for RestoreOptions {
    fn default() -> Self {
        Self {
            selection: Selection::default(),
            resolution: ConflictResolution::default(),
            ask: Arc::new(CannotAsk),
            resolver: None,
            exact: false,
            unattributed: false,
            shared: false,
            times: false,
        }
    }
}

impl RestoreOptions {
    /// The files and nothing else: what the default is too.
    pub fn files_only() -> Self {
        Self::default()
    }
}

/// What was said about a conflict holds however often a plan has to be made: the user and the resolver are asked once.
struct Remembering {
    options: RestoreOptions,
    said: Answers<Conflict, ConflictResolution>,
    resolved: Answers<ContestedText, Result<Vec<u8>, String>>,
}

/// Questions that were asked, with their answers.
type Answers<Q, A> = Mutex<Vec<(Q, A)>>;

/// The answer to a question that was asked before, or that is asked now.
fn once<Q: Clone + PartialEq, A: Clone>(asked: &Answers<Q, A>, question: &Q, ask: impl FnOnce() -> A) -> A {
    let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, answer)) = asked.iter().find(|(known, _)| known == question) {
        return answer.clone();
    }
    let answer = ask();
    asked.push((question.clone(), answer.clone()));
    answer
}

impl Ask for Remembering {
    fn ask(&self, conflict: &Conflict) -> ConflictResolution {
        once(&self.said, conflict, || self.options.ask.ask(conflict))
    }

    fn ask_showing(&self, conflict: &Conflict, difference: &dyn Fn() -> Option<String>) -> ConflictResolution {
        once(&self.said, conflict, || self.options.ask.ask_showing(conflict, difference))
    }
}

impl Resolver for Remembering {
    fn resolve(&self, contested: &ContestedText) -> Result<Vec<u8>, String> {
        once(&self.resolved, contested, || match &self.options.resolver {
            Some(resolver) => resolver.resolve(contested),
            None => Err("there is none".to_owned()),
        })
    }
}

impl RestoreOptions {
    fn remembering(&self) -> Self {
        let remembering = Remembering { options: self.clone(), said: Mutex::default(), resolved: Mutex::default() };
        let remembering = Arc::new(remembering);
        let resolver = self.resolver.as_ref().map(|_| Arc::clone(&remembering) as Arc<dyn Resolver>);
        Self { ask: remembering, resolver, ..self.clone() }
    }
}

impl std::fmt::Debug for RestoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestoreOptions")
            .field("selection", &self.selection)
            .field("resolution", &self.resolution)
            .field("exact", &self.exact)
            .field("unattributed", &self.unattributed)
            .field("shared", &self.shared)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// What to go back to, or take back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// A checkpoint.
    Checkpoint(CheckpointRef),
    /// An operation: the entry that closed a bracket, the one that began a session which was killed, or a restore.
    /// `None` for the newest.
    Undo(Option<CheckpointRef>),
    /// All sessions of a run.
    UndoRun(RunId),
    /// The newest undo.
    Redo,
}

/// What a restore will do, and what that was worked out from. [`Workspace::restore`] does just that, or nothing.
#[derive(Debug, Clone)]
pub struct RestorePlan {
    /// What it is for.
    pub kind: RestoreKind,
    /// What it changes, what it leaves, and what stands in its way.
    pub plan: Plan,
    /// In an undo, the runs that were at work at the same time.
    pub beside: Vec<RunId>,
    basis: Basis,
}

/// The folder and its history as a plan knows them.
#[derive(Debug, Clone)]
struct Basis {
    /// The folder.
    tree: BlobId,
    /// The newest checkpoint of its history.
    moment: u64,
    /// Paths that are hidden and captured all the same, because the restore changes them.
    forced: HashSet<RelPath>,
    /// The tree that the files come from.
    target: BlobId,
    /// The times beside it, if they are to be put back.
    times: Option<BlobId>,
}

/// What a restore did.
#[derive(Debug, Clone)]
pub struct RestoreResult {
    /// The entry that records it; `None` if there was nothing to do.
    pub checkpoint: Option<CheckpointRef>,
    /// The checkpoint that was made just before.
    pub backup: Option<CheckpointRef>,
    /// What it was for.
    pub kind: RestoreKind,
    /// How many paths were changed.
    pub files_restored: usize,
    /// What was written to a path while it was replaced, and where that was kept.
    pub rescued: Vec<Rescued>,
    /// What was done.
    pub plan: Plan,
}

/// How many paths a note names.
const NOTED: usize = 50;

impl RestoreResult {
    /// A note for the agent whose files these are, as a front end can put it into the conversation: without it the
    /// agent goes on believing that its changes are there. Empty if nothing was changed.
    pub fn note(&self) -> String {
        if self.plan.changes.is_empty() {
            return String::new();
        }
        let what = match &self.kind {
            RestoreKind::To { checkpoint, .. } => format!("returned to checkpoint {checkpoint}"),
            RestoreKind::Undo { operation, whole_run: true, .. } => format!("freed of what run {} did", operation.run),
            RestoreKind::Undo { operation, .. } => format!("freed of what {operation} did"),
            RestoreKind::Redo { undo } => format!("given back what {undo} had undone"),
        };
        let mut lines = vec![format!("The files of this folder were {what}. Read a file again before you rely on it:")];
        lines.extend(self.plan.changes.iter().take(NOTED).map(|change| {
            let what = match (&change.now, &change.then) {
                _ if change.merged => "merged with edits of another program",
                (None, _) => "there again",
                (_, None) => "gone",
                _ => "as it was",
            };
            format!("- {}: {what}", change.path)
        }));
        if self.plan.changes.len() > NOTED {
            lines.push(format!("- and {} more", self.plan.changes.len() - NOTED));
        }
        lines.extend(self.plan.left.iter().take(NOTED).map(|(path, why)| format!("- {path}: left as it is, {why}")));
        lines.join("\n")
    }
}

impl Workspace {
    /// What a restore will do (W4), with the folder as it is now. Nothing is stored.
    #[boxed]
    pub async fn plan_restore(
        &self,
        timeline: &Timeline,
        goal: &Goal,
        options: &RestoreOptions,
        progress: &Arc<Progress>,
    ) -> Result<RestorePlan, WorkspaceError> {
        self.settled(progress).await?;
        let options = &options.remembering();
        let route = Arc::new(self.route(timeline, goal, options).await?);
        let mut forced = HashSet::new();
        loop {
            let looked = self.look(&forced, progress).await?;
            let (tree, nodes) = (looked.snapshot.tree, Arc::new(looked.nodes));
            let (plan, unseen) = self.plan(&route, tree, nodes, options).await?;
            if unseen.is_subset(&forced) {
                let (kind, times) = (route.kind.clone(), route.times.filter(|_| options.times));
                let basis = Basis { tree, moment: timeline.head, forced, target: route.trees[0], times };
                return Ok(RestorePlan { kind, plan, beside: route.beside.clone(), basis });
            }
            forced.extend(unseen);
        }
    }

    /// Does what was planned (W5, W6), and nothing else. With conflicts that aren't decided, nothing is written.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::Outdated`] if the folder isn't as it was when the restore was planned: then nothing was
    /// written, and a new plan says what would be done now.
    #[boxed]
    pub async fn restore(
        &self,
        planned: RestorePlan,
        progress: &Arc<Progress>,
    ) -> Result<RestoreResult, WorkspaceError> {
        let _lock = self.lock(progress).await?;
        self.refuse_unfinished()?;
        let RestorePlan { kind, plan, basis, .. } = planned;
        let outdated = || WorkspaceError::Outdated { root: self.root().to_owned() };
        if self.last_number().await? != basis.moment {
            return Err(outdated());
        }
        let mut attempts = 0;
        loop {
            let mut staged = self.stage(&basis.forced, self.rules_now().await?, progress).await?;
            if staged.scanned.root.tree != basis.tree {
                staged.let_go().await?;
                return Err(outdated());
            }
            let (kind, plan) = (kind.clone(), plan.clone());
            match self.execute(kind, plan, staged, basis.target, basis.times, progress).await {
                Err(error) if error.is_passing() && attempts < ATTEMPTS => attempts += 1,
                done => return done,
            }
        }
    }

    /// Plans a restore and does it, with the folder as it is when this process has it to itself: for callers that show
    /// no plan to a user.
    #[boxed]
    pub async fn restore_to(
        &self,
        goal: &Goal,
        options: &RestoreOptions,
        progress: &Arc<Progress>,
    ) -> Result<RestoreResult, WorkspaceError> {
        let _lock = self.lock(progress).await?;
        self.refuse_unfinished()?;
        let options = &options.remembering();
        let mut attempts = 0;
        loop {
            match self.try_restore_to(goal, options, progress).await {
                Err(error) if error.is_passing() && attempts < ATTEMPTS => attempts += 1,
                done => return done,
            }
        }
    }

    async fn try_restore_to(
        &self,
        goal: &Goal,
        options: &RestoreOptions,
        progress: &Arc<Progress>,
    ) -> Result<RestoreResult, WorkspaceError> {
        let route = Arc::new(self.route(&self.timeline().await?, goal, options).await?);
        let mut forced = HashSet::new();
        // A path that the target has and that is hidden now must be captured before it is overwritten.
        let (staged, plan) = loop {
            let mut staged = self.stage(&forced, self.rules_now().await?, progress).await?;
            let (plan, unseen) = self.plan(&route, staged.scanned.root.tree, Arc::default(), options).await?;
            if unseen.is_subset(&forced) {
                break (staged, plan);
            }
            staged.let_go().await?;
            forced.extend(unseen);
        };
        let times = route.times.filter(|_| options.times);
        self.execute(route.kind.clone(), plan, staged, route.trees[0], times, progress).await
    }
}
