//! `piton resume`: goes on with a run that exists, by the document and inputs that its log has. Before that the
//! newest whole checkpoint is found, its surroundings are checked, and what changed is settled.

use std::sync::Arc;
use std::time::Duration;

use piton::recovery::{ChangePolicies, Changes, Examined, Recovery, RequiredFiles, Severity, UpstreamPolicy};
use piton::workspace::{DriftOptions, FileChanges, UpstreamChanges, Workspace};
use piton::{
    Bundle, Context, FlowOptions, Kinds, LeaseOptions, Limits, OpenRun, ResumePolicy, Run, RunError, Setting,
    examine_resume, resume_durable, resume_with_document,
};
use piton_store::{RunLog, Span, Store, StoreError};
use piton_types::{PartName, RunId, RunKind};
use serde_json::json;

use crate::arguments::Resume;
use crate::arguments::files::DriftWatch;
use crate::ask::AskTerminal;
use crate::drive::{Along, drive};
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use piton_app::documents;
use piton_app::documents::outside::{self, services};
use piton_app::files;
use piton_app::files::Capture;
use piton_app::references::run_id;

pub(crate) async fn execute(session: &Session, arguments: &Resume) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let run = run_id(&store, &arguments.run).await?;
    if arguments.explain {
        return explain(session, &store, &run, arguments).await;
    }
    let examined = examine(session, &store, &run, arguments).await?;
    if !examined.readable {
        let failure = Failure::refused(format!("the log of run {run} is damaged behind its newest whole checkpoint"))
            .cause(clean(&examined.notice.to_string()));
        return Err(match &examined.search.whole {
            Some(whole) => failure.hint(format!(
                "nothing was changed. `piton fork {}` makes a new run that goes on from there.",
                whole.checkpoint
            )),
            None => failure.hint(
                "nothing was changed. Make a copy of the store before anything else; `piton check` says what is damaged, \
                 `piton check --repair` keeps what is whole.",
            ),
        });
    }
    // To wait is to take the run, which is nothing to do to a program that only its own can go on with.
    if store.summary(&run).await?.is_some_and(|summary| summary.kind == RunKind::Workflow) {
        wait_for(session, &store, &run, arguments.wait).await?;
    }
    let id = run.clone();
    let services = services(session, arguments.config.as_deref())?;
    let policy = if arguments.force { ResumePolicy::Force } else { ResumePolicy::Normal };
    let notice = clean(&examined.notice.to_string());
    let along = along(session, &store, &run, arguments.drift).await?;
    let document = match &arguments.document {
        Some(path) => {
            let (Bundle { text, format, .. }, _) = documents::read_valid(path)?;
            Some((text, format))
        }
        None => None,
    };
    drive(session, store, &run, Some(notice), services, along, |context, options| async move {
        let options = FlowOptions { policy, ..options };
        match document {
            Some(document) => resume_with_document(&context, &id, document, options).await,
            None => resume_durable(&context, &id, options).await,
        }
    })
    .await
}

/// Says what changed since the run was begun, and what a document would mean. Nothing is done.
async fn explain(session: &Session, store: &Arc<dyn Store>, run: &RunId, arguments: &Resume) -> Result<Exit, Failure> {
    let context = Context::system(Arc::clone(store));
    let document = match &arguments.document {
        None => None,
        Some(path) => Some(documents::read_valid(path)?.1),
    };
    let services = services(session, arguments.config.as_deref())?;
    let setting = Setting { kinds: &Kinds::builtin(), services: &services, limits: &Limits::default() };
    let said = examine_resume(&context, run, document.as_ref(), setting).await?;
    store.close().await?;
    let output = &session.output;
    if output.is_json() {
        output.object(&json!({"run": run.as_str(), "changes": said.diagnostic.changes, "impact": said.impact}))?;
    } else {
        for change in &said.diagnostic.changes {
            output.data(&clean(&format!("{}: {}: {}", change.severity, change.component, change.description)))?;
        }
        if said.diagnostic.changes.is_empty() {
            output.note("nothing changed since the run was begun");
        }
        if let Some(impact) = &said.impact {
            let lists = [
                ("changed", &impact.changed),
                ("affected", &impact.affected),
                ("stays valid", &impact.valid),
                ("outdated", &impact.outdated),
                ("pending, and gone from the document", &impact.lost),
            ];
            for (name, nodes) in lists.iter().filter(|(_, nodes)| !nodes.is_empty()) {
                output.data(&clean(&format!("{name}: {}", nodes.join(", "))))?;
            }
        }
    }
    let is_lost = said.impact.as_ref().is_some_and(|impact| !impact.lost.is_empty());
    let refused = said.diagnostic.has_danger() || is_lost;
    if refused && !output.is_json() {
        output.note(&match (&arguments.document, is_lost) {
            (Some(_), true) => "with that document the run goes on under no policy: what is pending has no place in it".to_owned(),
            (Some(_), false) => format!(
                "`--force` goes on with it and keeps all that finished; `piton fork {run} --document FILE` does again what is outdated"
            ),
            (None, _) => format!("`piton resume {run}` would refuse; `--force` goes on all the same"),
        });
    }
    Ok(if refused { Exit::Refused } else { Exit::Done })
}

/// Finds out from where the run can go on.
async fn examine(
    session: &Session,
    store: &Arc<dyn Store>,
    run: &RunId,
    arguments: &Resume,
) -> Result<Examined, Failure> {
    let (context, environment) = (Context::system(Arc::clone(store)), session.environment());
    let policies = policies(arguments)?;
    let required = RequiredFiles::new(&environment);
    let workspace = workspace_of(session, store, run).await?;
    let files = workspace.clone().map(FileChanges::new);
    let upstream = workspace.map(|workspace| {
        let upstream = UpstreamChanges::new(workspace, DriftOptions::default());
        match policies.upstream {
            UpstreamPolicy::Rebase => upstream.permitting_rebase(session.variable("PITON_TEST_COMMAND")),
            _ => upstream,
        }
    });
    let mut changes: Vec<&dyn Changes> = vec![&required];
    changes.extend(files.iter().map(|files| files as &dyn Changes));
    changes.extend(upstream.iter().map(|upstream| upstream as &dyn Changes));
    let ask = AskTerminal::default();
    let recovery = Recovery { context: &context, environment: &environment, changes: &changes, policies, ask: &ask };
    let examined = recovery.examine(run).await?;
    for finding in examined.report.findings.iter().filter(|finding| finding.severity > Severity::Info) {
        session.output.warn(&clean(&finding.message));
    }
    Ok(examined)
}

/// What is done about changes: by flags, then by the configuration, then by asking.
fn policies(arguments: &Resume) -> Result<ChangePolicies, Failure> {
    let mut policies = match &arguments.config {
        Some(config) => outside::policies(config)?,
        None => ChangePolicies::default(),
    };
    let flags = &arguments.changes;
    policies.modified = flags.on_modified.unwrap_or(policies.modified);
    policies.deleted = flags.on_deleted.unwrap_or(policies.deleted);
    policies.upstream = flags.on_upstream.unwrap_or(policies.upstream);
    policies.paths.extend(flags.on_path.iter().cloned());
    Ok(policies)
}

/// What goes along with a run that has checkpoints of its files.
pub(crate) async fn along(
    session: &Session,
    store: &Arc<dyn Store>,
    run: &RunId,
    drift: DriftWatch,
) -> Result<Option<Along>, Failure> {
    Ok(workspace_of(session, store, run).await?.map(|workspace| Along { workspace, drift }))
}

/// The workspace of a run that has checkpoints of its files; they are of this folder, or none of our business.
async fn workspace_of(session: &Session, store: &Arc<dyn Store>, run: &RunId) -> Result<Option<Workspace>, Failure> {
    let summary = store.summary(run).await?;
    if summary.is_none_or(|summary| !session.residence().has(summary.folder.as_deref())) {
        return Ok(None);
    }
    let part = PartName::from(PartName::WORKSPACE);
    let log = match RunLog::open(Arc::clone(store), run).await {
        Ok(log) => log,
        // What is damaged is found, and said, by the examination.
        Err(StoreError::Corrupt { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match log.entries(Span::ALL).await {
        Ok(entries) if entries.iter().any(|entry| entry.parts.contains_key(&part)) => {
            let capture = Capture::ACCEPTED;
            Ok(Some(files::open(session, store, capture).await?))
        }
        Ok(_) | Err(StoreError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits for a run that somebody else drives, if that is wanted; afterwards it is ours.
pub(crate) async fn wait_for(
    session: &Session,
    store: &Arc<dyn Store>,
    run: &RunId,
    seconds: Option<u64>,
) -> Result<(), Failure> {
    let Some(seconds) = seconds else { return Ok(()) };
    let context = Context::system(Arc::clone(store));
    let open = |wait| OpenRun {
        id: Some(run.clone()),
        existing: true,
        lease: LeaseOptions { wait, ..LeaseOptions::default() },
        ..OpenRun::default()
    };
    match Run::open(&context, open(None)).await {
        Err(held @ RunError::Held { .. }) => session.output.note(&format!("waiting: {}", clean(&held.to_string()))),
        // Ours, or over, or something that is told when it is driven.
        _ => return Ok(()),
    }
    drop(Run::open(&context, open(Some(Duration::from_secs(seconds)))).await?);
    Ok(())
}
