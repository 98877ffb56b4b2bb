//! Whether the repository moved under a folder, how bad that is, what is best done; and the permitted rebase, the one
//! thing that writes to the user's git.

use std::sync::Arc;

use piton_runtime::recovery::Environment as _;
use piton_store::Store;
use piton_types::{CheckpointRef, RunId};
use piton_workspace::{
    DriftError, DriftEvent, DriftOptions, Preference, Rebased, Record, Resolution, Workspace, advise,
};

use crate::app::App;
use crate::failure::Failure;
use crate::files::{Capture, unrecovered};
use crate::place::Found;
use crate::plan::Plan;
use crate::references::run_id;
use crate::views::files::DriftView;

/// A folder whose repository may have moved.
pub struct Drifting {
    store: Arc<dyn Store>,
    workspace: Workspace,
    run: RunId,
}

/// A rebase that is planned.
pub struct Rebasing {
    options: DriftOptions,
    test: Option<String>,
    /// What it means.
    pub plan: Plan,
}

impl Drifting {
    /// Looks on behalf of a run, or of the folder. What is found is noted in the log; a restore that was cut short is said,
    /// and stays as it is.
    pub async fn open(app: &App, run: Option<&RunId>) -> Result<Self, Failure> {
        // A refusal leaves no store behind.
        if matches!(app.surroundings.find()?, Found::Nothing { .. }) {
            if !Workspace::is_in_repository(app.folder()) {
                let (folder, why) = (app.folder().to_owned(), "not a git repository".to_owned());
                return Err(DriftError::NoRepository { folder, why }.into());
            }
            if !app.environment().has_program("git").await {
                return Err(DriftError::NoGit.into());
            }
        }
        let store = app.store_or_create().await?;
        let workspace = unrecovered(app, &store, Capture::ACCEPTED)?;
        let run = match run {
            Some(run) => run_id(app, &store, run).await?,
            None => workspace.run(),
        };
        Ok(Self { store, workspace, run })
    }

    /// How the repository moved since the last look. If history was rewritten, the files are backed up.
    pub async fn look(
        &self,
        options: DriftOptions,
        progress: Option<u8>,
        preference: Option<Preference>,
    ) -> Result<DriftView, Failure> {
        let Self { workspace, run, .. } = self;
        let tracker = workspace.drift_tracker(run).await?;
        let report = workspace.check_drift(tracker.known.as_ref(), options).await?;
        workspace.track_drift(run, &tracker, &report).await?;
        // Rewritten history stays a reason to stop until a person has seen to it.
        let open = tracker.tracked.iter().filter(|drift| drift.resolution.is_none());
        let rewritten =
            report.is_rewritten() || open.into_iter().any(|drift| matches!(drift.event, DriftEvent::ForcePush { .. }));
        let advice = advise(report.severity, rewritten, progress, preference);
        let backup = match report.is_rewritten() {
            true => Some(self.backup("before upstream's rewritten history is dealt with").await?),
            false => None,
        };
        Ok(DriftView { report, advice, backup, is_pause: advice.is_pause() })
    }

    /// Writes down that what was found was seen to.
    pub async fn resolve(&self, how: Resolution) -> Result<(), Failure> {
        Ok(self.workspace.resolve_drift(&self.run, how).await?)
    }

    /// What a rebase onto upstream means. `test` must succeed afterwards, or all of it is taken back.
    pub async fn plan_rebase(&self, options: DriftOptions, test: Option<String>) -> Result<Rebasing, Failure> {
        let report = self.workspace.check_drift(None, options).await?;
        let branch = report.branch.clone().unwrap_or_else(|| "no branch".to_owned());
        let mut plan = Plan::new(format!("{} commits of {} are moved onto upstream", report.ahead, branch));
        plan.line("your git is written: new commits, the branch, the index");
        plan.line(match &test {
            Some(test) => format!("{test} must succeed, or all of it is taken back"),
            None => "no test command is given, so nothing checks what comes out".to_owned(),
        });
        plan.line("`piton drift --undo-rebase` takes it back");
        Ok(Rebasing { options, test, plan })
    }

    /// Rebases. The files as they were are in the checkpoint that is returned, too.
    pub async fn rebase(&self, rebasing: Rebasing) -> Result<(Rebased, CheckpointRef), Failure> {
        let backup = self.backup("before a rebase").await?;
        let done = self.workspace.rebase(rebasing.options, rebasing.test).await?;
        self.resolve(Resolution::Rebased).await?;
        Ok((done, backup))
    }

    /// What taking the last rebase back means.
    pub fn plan_undo(&self) -> Plan {
        let mut plan = Plan::new("the last rebase is taken back");
        plan.line("your git is written: branch, index and objects become what they were");
        plan
    }

    /// Takes the last rebase back.
    pub async fn undo_rebase(&self) -> Result<Rebased, Failure> {
        Ok(self.workspace.undo_rebase().await?)
    }

    /// Ends the look.
    pub async fn close(self) -> Result<(), Failure> {
        Ok(self.store.close().await?)
    }

    async fn backup(&self, label: &str) -> Result<CheckpointRef, Failure> {
        Ok(self.workspace.save(Record::manual(label), &Arc::default()).await?.checkpoint)
    }
}
