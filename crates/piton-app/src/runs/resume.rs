//! Going on with a run by the document and inputs that its log has. Before that the newest whole checkpoint is found,
//! its surroundings are checked, and what changed is settled.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use piton::engine::{FileChanges, UpstreamChanges};
use piton_flow::{Bundle, Kinds, Limits, ResumePolicy, Setting, examine_resume};
use piton_log::RunLog;
use piton_runtime::recovery::{
    Ask, ChangePolicies, Changes, Choice, DeletedPolicy, Examined, ModifiedPolicy, PathPolicy, Question, Recovery,
    RequiredFiles, Severity, UpstreamPolicy,
};
use piton_runtime::{Context, ForkRun, History, LeaseOptions, OpenRun, Pager, Run, RunError};
use piton_store::{Store, StoreError};
use piton_types::{PartName, RunId, RunKind};
use piton_workspace::{DriftOptions, Workspace};

use crate::app::App;
use crate::documents;
use crate::documents::configured::{self, Configured, configuration};
use crate::documents::outside::{self, services};
use crate::failure::Failure;
use crate::files::restore::model_resolver;
use crate::files::{self, Capture};
use crate::references::run_id;
use crate::runs::drive::{Along, DriftWatch, Prepared, Work};
use crate::views::run::ExplainedView;

/// What is done about changes that a recovery finds, where it differs from the configuration.
#[derive(Debug, Clone, Default)]
pub struct OnChanges {
    /// Files that were modified.
    pub modified: Option<ModifiedPolicy>,
    /// Files that were deleted.
    pub deleted: Option<DeletedPolicy>,
    /// Commits upstream.
    pub upstream: Option<UpstreamPolicy>,
    /// By path.
    pub paths: Vec<PathPolicy>,
}

/// What a resume is asked for.
#[derive(Debug, Clone)]
pub struct ResumeRun {
    /// The run, or the unique beginning of its id.
    pub run: RunId,
    /// Another document.
    pub document: Option<PathBuf>,
    /// Models, knowledge bases, credentials, limits.
    pub config: Option<PathBuf>,
    /// How far it may go.
    pub limits: Limits,
    /// It goes on although its surroundings changed.
    pub force: bool,
    /// If its newest entries are damaged, a new run goes on from the newest whole checkpoint.
    pub fallback: bool,
    /// Waits so many seconds for another process that drives it.
    pub wait: Option<u64>,
    /// What is done about changes.
    pub changes: OnChanges,
    /// Where a merge of files is in its own way, a model of the configuration puts the two together.
    pub resolve: bool,
    /// How the repository is watched.
    pub drift: DriftWatch,
}

impl ResumeRun {
    /// A resume of a run with nothing said.
    pub fn of(run: RunId) -> Self {
        Self {
            run,
            document: None,
            config: None,
            limits: Limits::default(),
            force: false,
            fallback: false,
            wait: None,
            changes: OnChanges::default(),
            resolve: false,
            drift: DriftWatch::default(),
        }
    }
}

/// Finds out whether and from where a run can go on. `ask` decides what policies leave open.
pub async fn prepare(app: &App, wanted: &ResumeRun, ask: &dyn Ask) -> Result<Prepared, Failure> {
    let store = app.store().await?;
    let run = run_id(app, &store, &wanted.run).await?;
    let config = configuration(app, &store, &run, wanted.config.as_deref(), wanted.force).await?;
    let wanted = &ResumeRun { config, ..wanted.clone() };
    let examined = examine(app, &store, &run, wanted, ask).await?;
    let (run, notice) = if examined.readable {
        (run, examined.notice.to_string())
    } else {
        fall_back(app, &store, run, &examined, wanted, ask).await?
    };
    // To wait is to take the run, which is nothing to do to a program that only its own can go on with.
    if store.summary(&run).await?.is_some_and(|summary| summary.kind == RunKind::Workflow) {
        wait_for(app, &store, &run, wanted.wait).await?;
    }
    let services = services(app, wanted.config.as_deref())?;
    let policy = if wanted.force { ResumePolicy::Force } else { ResumePolicy::Normal };
    let along = along(app, &store, &run, wanted.drift).await?;
    let document = match &wanted.document {
        Some(path) => {
            let (Bundle { text, format, .. }, _) = documents::read_valid(path)?;
            Some((text, format))
        }
        None => None,
    };
    let (limits, work) = (wanted.limits.clone(), Work::Resume { document, policy });
    Ok(Prepared { store, run, notice: Some(notice), services, limits, along, work })
}

/// Goes on past damage: a new run takes up the newest whole checkpoint, and the damaged one stays as it is. A policy or a
/// person has to want that.
async fn fall_back(
    app: &App,
    store: &Arc<dyn Store>,
    run: RunId,
    examined: &Examined,
    wanted: &ResumeRun,
    ask: &dyn Ask,
) -> Result<(RunId, String), Failure> {
    let Some(whole) = examined.search.whole.as_ref() else { return Err(unreadable(&run, examined)) };
    // By its log as it was then: nothing newer can be in the way.
    if whole.log.summary().await?.kind != RunKind::Workflow {
        return Err(unreadable(&run, examined));
    }
    let at = &whole.checkpoint;
    if !wanted.fallback && !policies(wanted)?.fallback {
        let text = format!(
            "{}\nThe log of run {run} is damaged behind {at}. Go on from there, as a new run?",
            examined.notice
        );
        let choices = vec![Choice::UseCheckpoint, Choice::Abort];
        if ask.ask(&Question { text, choices }).await != Some(Choice::UseCheckpoint) {
            return Err(unreadable(&run, examined));
        }
    }
    let context = Context::system(Arc::clone(store));
    let forked = piton_runtime::fork(&context, at, ForkRun::default()).await?;
    configured::inherit(app, (store, &at.run), (store, &forked)).await?;
    app.warn(&format!("the log of run {run} is damaged behind {at}; run {forked} goes on from there"));
    let notice = format!("{}\nrun {run} stays as it is, with what is damaged", examined.notice);
    Ok((forked, notice))
}

fn unreadable(run: &RunId, examined: &Examined) -> Failure {
    let failure = Failure::refused(format!("the log of run {run} is damaged behind its newest whole checkpoint"))
        .cause(examined.notice.to_string());
    match &examined.search.whole {
        Some(whole) => failure.hint(format!(
            "nothing was changed. `piton resume {run} --fallback` goes on from {}, as a new run; the damaged one stays.",
            whole.checkpoint
        )),
        None => failure.hint(
            "nothing was changed. Make a copy of the store before anything else; `piton check` says what is damaged, \
             `piton check --repair` keeps what is whole.",
        ),
    }
}

/// What changed since a run was begun, and what another document would mean. Nothing is done.
pub async fn explain(
    app: &App,
    run: &RunId,
    document: Option<&Path>,
    config: Option<&Path>,
) -> Result<ExplainedView, Failure> {
    let store = app.look().await?;
    let run = run_id(app, &store, run).await?;
    let context = Context::system(Arc::clone(&store));
    let document = document.map(documents::read_valid).transpose()?.map(|(_, document)| document);
    let found = match config {
        Some(_) => Configured::Not,
        None => configured::find(app, &store, &run).await?,
    };
    let own = match &found {
        Configured::Same(path) | Configured::Changed(path) => Some(path.as_path()),
        _ => None,
    };
    let services = services(app, config.or(own))?;
    let setting = Setting { kinds: &Kinds::builtin(), services: &services, limits: &Limits::default() };
    let mut said = examine_resume(&context, &run, document.as_ref(), setting).await?;
    said.diagnostic.changes.extend(configured::change_of(&found));
    store.close().await?;
    let is_lost = said.impact.as_ref().is_some_and(|impact| !impact.lost.is_empty());
    let is_refused = said.diagnostic.has_danger() || is_lost;
    Ok(ExplainedView { run, changes: said.diagnostic.changes, impact: said.impact, is_refused })
}

/// Finds out from where the run can go on.
async fn examine(
    app: &App,
    store: &Arc<dyn Store>,
    run: &RunId,
    wanted: &ResumeRun,
    ask: &dyn Ask,
) -> Result<Examined, Failure> {
    let (context, environment) = (Context::system(Arc::clone(store)), app.environment());
    let policies = policies(wanted)?;
    let required = RequiredFiles::new(&environment);
    let workspace = workspace_of(app, store, run).await?;
    let resolver = match (wanted.resolve, &wanted.config) {
        (false, _) => None,
        (true, Some(config)) => Some(model_resolver(app, config, None)?),
        (true, None) => return Err(Failure::usage("`--resolve` needs `--config FILE` with a provider of models")),
    };
    let files = workspace.clone().map(FileChanges::new).map(|files| match &resolver {
        Some(resolver) => files.resolving(Arc::clone(resolver)),
        None => files,
    });
    let upstream = workspace.map(|workspace| {
        let upstream = UpstreamChanges::new(workspace, DriftOptions::default());
        match policies.upstream {
            UpstreamPolicy::Rebase => upstream.permitting_rebase(app.variable("PITON_TEST_COMMAND")),
            _ => upstream,
        }
    });
    let mut changes: Vec<&dyn Changes> = vec![&required];
    changes.extend(files.iter().map(|files| files as &dyn Changes));
    changes.extend(upstream.iter().map(|upstream| upstream as &dyn Changes));
    let recovery = Recovery { context: &context, environment: &environment, changes: &changes, policies, ask };
    let examined = recovery.examine(run).await?;
    for finding in examined.report.findings.iter().filter(|finding| finding.severity > Severity::Info) {
        app.warn(&finding.message);
    }
    Ok(examined)
}

/// What is done about changes: by what was said, then by the configuration, then by asking.
fn policies(wanted: &ResumeRun) -> Result<ChangePolicies, Failure> {
    let mut policies = match &wanted.config {
        Some(config) => outside::policies(config)?,
        None => ChangePolicies::default(),
    };
    let said = &wanted.changes;
    policies.modified = said.modified.unwrap_or(policies.modified);
    policies.deleted = said.deleted.unwrap_or(policies.deleted);
    policies.upstream = said.upstream.unwrap_or(policies.upstream);
    policies.paths.extend(said.paths.iter().cloned());
    Ok(policies)
}

/// What goes along with a run that has checkpoints of its files.
pub async fn along(
    app: &App,
    store: &Arc<dyn Store>,
    run: &RunId,
    drift: DriftWatch,
) -> Result<Option<Along>, Failure> {
    Ok(workspace_of(app, store, run).await?.map(|workspace| Along { workspace, drift }))
}

/// The workspace of a run that has checkpoints of its files; of this folder only.
async fn workspace_of(app: &App, store: &Arc<dyn Store>, run: &RunId) -> Result<Option<Workspace>, Failure> {
    let summary = match store.summary(run).await {
        Err(StoreError::Corrupt { .. }) => None,
        summary => summary?,
    };
    if summary.is_none_or(|summary| !app.residence().has(summary.folder.as_deref())) {
        return Ok(None);
    }
    let part = PartName::from(PartName::WORKSPACE);
    let log = match RunLog::open(Arc::clone(store), run).await {
        Ok(log) => log,
        // What is damaged is found, and said, by the examination.
        Err(StoreError::Corrupt { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match History::read(&log).await {
        // The parts of a checkpoint are carried on in those that follow, unless the run is put back to before it.
        Ok(history) if history.totals.restores == 0 => {
            let has_files = history.checkpoint.is_some_and(|(_, parts)| parts.contains_key(&part));
            return Ok(if has_files { Some(files::open(app, store, Capture::ACCEPTED).await?) } else { None });
        }
        Ok(_) | Err(StoreError::Corrupt { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let mut pager = Pager::new(&log);
    while pager.cursor().is_some() {
        match pager.checkpoints(64).await {
            Ok(page) if page.iter().any(|checkpoint| checkpoint.parts.contains_key(&part)) => {
                return Ok(Some(files::open(app, store, Capture::ACCEPTED).await?));
            }
            Ok(_) => {}
            Err(StoreError::Corrupt { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Waits for a run that another process drives, if that is wanted; afterwards it is ours.
pub async fn wait_for(app: &App, store: &Arc<dyn Store>, run: &RunId, seconds: Option<u64>) -> Result<(), Failure> {
    let Some(seconds) = seconds else { return Ok(()) };
    let context = Context::system(Arc::clone(store));
    let open = |wait| OpenRun {
        id: Some(run.clone()),
        existing: true,
        lease: LeaseOptions { wait, ..LeaseOptions::default() },
        ..OpenRun::default()
    };
    match Run::open(&context, open(None)).await {
        Err(held @ RunError::Held { .. }) => app.note(&format!("waiting: {held}")),
        // Ours, or over, or something that is told when it is driven.
        _ => return Ok(()),
    }
    drop(Run::open(&context, open(Some(Duration::from_secs(seconds)))).await?);
    Ok(())
}
