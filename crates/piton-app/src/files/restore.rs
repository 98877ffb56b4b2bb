//! Files back to a checkpoint, by one plan: the plan is made, the shell shows it and asks, then it is carried out.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use piton::engine::{ModelResolver, ModelResolverOptions};
use piton_store::Store;
use piton_types::{CheckpointRef, RunId};
use piton_workspace::{
    Ask, ConflictResolution, Entry, Goal, RelPath, Resolver, RestoreKind, RestoreOptions, RestorePlan, Selection,
    TextDiff, Timeline, Workspace, WorkspaceError, is_binary,
};

use crate::app::App;
use crate::documents::outside::chosen_model;
use crate::failure::{Failure, rest_of};
use crate::files::{self, Capture, watched};
use crate::references::{Reference, resolve_checkpoint};
use crate::store::keeping;
use crate::views::files::{PlannedView, RestorePlanView, RestoredView};
use crate::words::typed;

/// The largest file whose lines are compared.
const MAX_TEXT: u64 = 16 << 20;
/// How many paths a refusal names.
const NAMED: usize = 20;

/// How to go about paths that two sides changed.
pub struct Conflicts {
    /// What becomes of them.
    pub resolution: ConflictResolution,
    /// Decides about each where the resolution is to ask.
    pub ask: Arc<dyn Ask>,
    /// Where a model is described that puts two versions together.
    pub config: Option<PathBuf>,
    /// Which model.
    pub model: Option<String>,
    /// What changed during an agent's turn, but in none of its tool calls, is taken back too.
    pub unattributed: bool,
    /// In an undo, what changed while another run was at work is taken back too.
    pub shared: bool,
}

impl Conflicts {
    /// As options of a restore.
    pub fn options(&self, app: &App) -> Result<RestoreOptions, Failure> {
        let resolver = match (self.resolution, &self.config) {
            (ConflictResolution::Resolve, None) => {
                return Err(Failure::usage("`--conflict resolve` needs `--config FILE` with a provider of models"));
            }
            (ConflictResolution::Resolve | ConflictResolution::Ask, Some(config)) => {
                Some(model_resolver(app, config, self.model.as_deref())?)
            }
            _ => None,
        };
        let (resolution, ask) = (self.resolution, Arc::clone(&self.ask));
        let (unattributed, shared) = (self.unattributed, self.shared);
        Ok(RestoreOptions { resolution, ask, resolver, unattributed, shared, ..RestoreOptions::default() })
    }
}

/// A model of a configuration that puts two versions of a text together.
pub(crate) fn model_resolver(app: &App, config: &Path, model: Option<&str>) -> Result<Arc<dyn Resolver>, Failure> {
    let (provider, model) = chosen_model(app, config, model)?;
    let options = ModelResolverOptions { model, ..ModelResolverOptions::default() };
    let resolver = ModelResolver::new(provider, options)
        .map_err(|error| Failure::fixable("the network can't be set up").because(&error))?;
    Ok(Arc::new(resolver))
}

/// Which files of a checkpoint are restored, and how.
#[derive(Debug, Clone, Default)]
pub struct Selected {
    /// Only these files and folders; all if none is named.
    pub only: Vec<PathBuf>,
    /// But not these.
    pub not: Vec<PathBuf>,
    /// All files become as they were, those that the user changed too.
    pub exact: bool,
    /// Their times, too.
    pub times: bool,
}

/// A change of files that can be looked at and carried out.
pub struct Restoring {
    store: Arc<dyn Store>,
    /// The folder.
    pub workspace: Workspace,
    timeline: Timeline,
    pub(super) goal: Goal,
    pub(super) options: RestoreOptions,
}

/// What a change of files will do.
pub struct Previewed {
    /// The plan: [`Restoring::carry_out`] does just that.
    pub planned: RestorePlan,
}

impl Restoring {
    /// A change with this goal.
    pub(super) fn new(
        store: Arc<dyn Store>,
        workspace: Workspace,
        timeline: Timeline,
        goal: Goal,
        options: RestoreOptions,
    ) -> Self {
        Self { store, workspace, timeline, goal, options }
    }

    /// Files back to a checkpoint.
    pub async fn to(
        app: &App,
        reference: &Reference,
        selected: &Selected,
        conflicts: &Conflicts,
        capture: Capture,
    ) -> Result<(Self, CheckpointRef), Failure> {
        let store = app.store().await?;
        let (log, entry) = resolve_checkpoint(app, &store, reference).await?;
        let checkpoint = CheckpointRef { run: log.run().clone(), seq: entry.seq };
        let workspace = files::open(app, &store, capture).await?;
        let root = workspace.root().to_owned();
        let paths =
            |paths: &[PathBuf]| paths.iter().map(|path| inside(&root, &app.path(path))).collect::<Result<Vec<_>, _>>();
        let only = paths(&selected.only)?;
        if let Some(snapshot) = Workspace::snapshot_of(&log, entry.seq).await? {
            for path in &only {
                // What can't be read of the checkpoint is told by the restore.
                let is_known = root.join(path.as_path()).symlink_metadata().is_ok()
                    || workspace.has(snapshot, path.clone()).await.unwrap_or(true);
                if !is_known {
                    let shown = path.to_string();
                    let log = typed(&["piton", "log", "--", &shown]);
                    let hint = format!("nothing was changed. `{log}` shows the checkpoints that changed it.");
                    return Err(Failure::fixable(format!("neither {checkpoint} nor the folder has {shown}")).hint(hint));
                }
            }
        }
        let options = RestoreOptions {
            selection: Selection { only, not: paths(&selected.not)? },
            exact: selected.exact,
            times: selected.times,
            ..conflicts.options(app)?
        };
        let timeline = workspace.timeline().await?;
        Ok((Self::new(store, workspace, timeline, Goal::Checkpoint(checkpoint.clone()), options), checkpoint))
    }

    /// The checkpoint of the folder that a short id means, as chat front ends name it. Nothing is asked; only files are
    /// restored.
    pub async fn to_short(app: &App, id: &str) -> Result<Self, Failure> {
        let store = app.store().await?;
        let workspace = files::open(app, &store, Capture::default()).await?;
        let timeline = workspace.timeline().await?;
        let found = timeline.find_short(id).map_err(|error| Failure::fixable(error.to_string()))?.clone();
        let options = RestoreOptions { resolution: ConflictResolution::Merge, ..RestoreOptions::files_only() };
        Ok(Self::new(store, workspace, timeline, Goal::Checkpoint(found), options))
    }

    /// What it will do.
    pub async fn preview(&self, app: &App) -> Result<Previewed, Failure> {
        let (workspace, goal, options) = (&self.workspace, &self.goal, &self.options);
        let planning = async |progress| workspace.plan_restore(&self.timeline, goal, options, &progress).await;
        Ok(Previewed { planned: watched(app, planning).await? })
    }

    /// The same, taking back also what changed while another run was at work.
    #[must_use]
    pub fn taking_shared(mut self) -> Self {
        self.options.shared = true;
        self
    }

    /// Carries out what was shown, or refuses because the folder changed since; and does what is due in the store.
    pub async fn carry_out(&self, app: &App, previewed: Previewed) -> Result<RestoredView, Failure> {
        let restoring = async |progress| Ok(self.workspace.restore(previewed.planned, &progress).await);
        match watched(app, restoring).await? {
            Err(WorkspaceError::Incomplete { failed, planned, restore, rescued }) => {
                let hint = rest_of(&restore, &self.words(app));
                let error = WorkspaceError::Incomplete { failed, planned, restore, rescued };
                Err(Failure::from(error).hint(hint))
            }
            other => Ok(RestoredView::from(&other?)),
        }
    }

    /// The options of a return to a checkpoint, as they are typed.
    fn words(&self, app: &App) -> String {
        let RestoreOptions { selection, exact, times, unattributed, .. } = &self.options;
        let shown = |path: &RelPath| app.seen_from_here(path.as_path()).to_string_lossy().into_owned();
        let quoted = |path: &RelPath| format!(" '{}'", shown(path).replace('\'', r"'\''"));
        let mut words: String = selection.only.iter().map(quoted).collect();
        words.extend(selection.not.iter().map(|path| format!(" --not{}", quoted(path))));
        let flags = [(exact, " --exact"), (times, " --times"), (unattributed, " --unattributed")];
        words.extend(flags.into_iter().filter(|(is_set, _)| **is_set).map(|(_, flag)| flag));
        words
    }

    /// Ends it, carried out or not.
    pub async fn close(self, app: &App) -> Result<(), Failure> {
        keeping::in_passing(app, &self.store).await;
        Ok(self.store.close().await?)
    }
}

impl Previewed {
    /// Whether nothing keeps it from being carried out.
    pub fn is_free(&self) -> bool {
        self.planned.plan.conflicts.is_empty()
    }

    /// The runs whose work can't be told apart from what is to be taken back, if anything is left for that.
    pub fn beside(&self) -> &[RunId] {
        if self.planned.plan.left.is_empty() { &[] } else { &self.planned.beside }
    }

    /// An undo that takes nothing back because all of it may be another's did nothing, and says so.
    pub fn refusal(&self) -> Option<Failure> {
        let Previewed { planned: RestorePlan { kind: RestoreKind::Undo { operation, whole_run, .. }, plan, .. } } =
            self
        else {
            return None;
        };
        if plan.left.is_empty() || !plan.changes.is_empty() || !plan.conflicts.is_empty() {
            return None;
        }
        let what = if *whole_run { operation.run.to_string() } else { operation.to_string() };
        let mut failure = Failure::refused(format!("nothing of {what} could be taken back"));
        for (path, why) in plan.left.iter().take(NAMED) {
            failure = failure.cause(format!("{path}: {why}"));
        }
        if plan.left.len() > NAMED {
            failure = failure.cause(format!("and {} more", plan.left.len() - NAMED));
        }
        let others = self.beside().iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        Some(match others.is_empty() {
            true => failure.hint("nothing was changed."),
            false => failure.hint(format!(
                "nothing was changed. `piton undo {what} --both` takes back what {others} may have done there, too."
            )),
        })
    }

    /// The plan with the lines of its texts, of the first `most` paths.
    pub async fn view(&self, workspace: &Workspace, most: usize) -> Result<RestorePlanView, Failure> {
        let mut view = RestorePlanView::of(&self.planned.kind, &self.planned.plan);
        for (change, shown) in self.planned.plan.changes.iter().zip(&mut view.changes).take(most) {
            *shown = PlannedView::of(change, workspace.line_delta(&self.planned.plan, change).await?);
        }
        Ok(view)
    }

    /// What it does to a text, as a unified diff from what is there now; `None` if it changes no text at that path.
    pub async fn diff(&self, workspace: &Workspace, path: &str) -> Result<Option<String>, Failure> {
        let plan = &self.planned.plan;
        let is_large = |entry: &Option<Entry>| matches!(entry, Some(Entry::File { size, .. }) if *size > MAX_TEXT);
        let Some(change) = plan.changes.iter().find(|change| change.path.to_string() == path) else { return Ok(None) };
        let is_file = |entry: &Option<Entry>| matches!(entry, Some(Entry::File { .. }));
        if !(is_file(&change.now) || is_file(&change.then)) || is_large(&change.now) || is_large(&change.then) {
            return Ok(None);
        }
        let now = if is_file(&change.now) { workspace.read_now(&change.path)? } else { Vec::new() };
        let then = match (plan.merged_text(change), &change.then) {
            (Some(text), _) => text.to_vec(),
            (None, Some(entry)) => workspace.read(entry).await?.unwrap_or_default().to_vec(),
            (None, None) => Vec::new(),
        };
        Ok((!is_binary(&now) && !is_binary(&then)).then(|| TextDiff::compute(&now, &then).to_string()))
    }

    /// What a model made of two versions, by path: a person should agree only to what was seen.
    pub fn resolved(&self, workspace: &Workspace) -> Vec<(String, String)> {
        let resolved = self.planned.plan.changes.iter().filter(|change| change.resolved);
        let texts = resolved.filter_map(|change| {
            let text = self.planned.plan.merged_text(change)?;
            let now = workspace.read_now(&change.path).unwrap_or_default();
            Some((change.path.to_string(), TextDiff::compute(&now, text).to_string()))
        });
        texts.collect()
    }
}

/// A path that the user named, as one in the workspace.
pub fn inside(root: &Path, path: &Path) -> Result<RelPath, Failure> {
    let mut whole = PathBuf::new();
    for part in root.join(path).components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            other => whole.push(other),
        }
    }
    let inside = whole
        .strip_prefix(root)
        .map_err(|_| Failure::usage(format!("{} isn't in {}", path.display(), root.display())))?;
    RelPath::new(inside.as_os_str().as_bytes()).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_the_user_names_stay_inside() {
        let root = Path::new("/work");
        assert_eq!(inside(root, Path::new("a/../b/./c")).unwrap().to_string(), "b/c");
        assert_eq!(inside(root, Path::new("/work/a")).unwrap().to_string(), "a");
        assert!(inside(root, Path::new(".")).unwrap().is_root());
        assert!(inside(root, Path::new("/etc/passwd")).is_err());
        assert!(inside(root, Path::new("../../x")).is_err(), "it isn't taken for another file either");
        assert!(inside(root, Path::new("a/../../x")).is_err());
    }
}
