//! `piton drift`: did the repository move under us, how bad is it, what is best done; and the permitted rebase.

use std::sync::Arc;

use piton::workspace::{
    Advice, Contested, DriftEvent, DriftOptions, DriftReport, Preference, Rebased, Record, Resolution, Workspace,
    advise,
};
use piton_types::RunId;
use serde_json::json;

use crate::arguments::agents::{Drift, Prefer, Resolve};
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use piton_app::Plan;
use piton_app::files::Capture;
use piton_app::files::open;
use piton_app::references::run_id;

/// How many files are named.
const NAMED: usize = 20;

pub(crate) async fn execute(session: &Session, arguments: Drift) -> Result<Exit, Failure> {
    let store = session.store_or_create().await?;
    let workspace = open(session, &store, Capture::ACCEPTED).await?;
    let run = match &arguments.run {
        Some(run) => run_id(&store, run).await?,
        None => workspace.run(),
    };
    let exit = if arguments.undo_rebase {
        undo_rebase(session, &workspace, &arguments).await?
    } else if arguments.rebase {
        rebase(session, &workspace, &run, &arguments).await?
    } else if let Some(how) = arguments.resolve {
        workspace.resolve_drift(&run, resolution(how)).await?;
        Exit::Done
    } else {
        look(session, &workspace, &run, &arguments).await?
    };
    store.close().await?;
    Ok(exit)
}

fn resolution(how: Resolve) -> Resolution {
    match how {
        Resolve::Ignored => Resolution::Ignored,
        Resolve::Rebased => Resolution::Rebased,
        Resolve::Restarted => Resolution::Restarted,
        Resolve::UserHandled => Resolution::UserHandled,
    }
}

fn options(arguments: &Drift) -> DriftOptions {
    DriftOptions { fetch: !arguments.no_fetch, patience: arguments.patience }
}

async fn look(session: &Session, workspace: &Workspace, run: &RunId, arguments: &Drift) -> Result<Exit, Failure> {
    let tracker = workspace.drift_tracker(run).await?;
    let report = workspace.check_drift(tracker.known.as_ref(), options(arguments)).await?;
    workspace.track_drift(run, &tracker, &report).await?;
    // Rewritten history stays a reason to stop until somebody has seen to it.
    let open = tracker.tracked.iter().filter(|drift| drift.resolution.is_none());
    let rewritten =
        report.is_rewritten() || open.into_iter().any(|drift| matches!(drift.event, DriftEvent::ForcePush { .. }));
    let preference = arguments.prefer.map(|prefer| match prefer {
        Prefer::Restart => Preference::Restart,
        Prefer::Merge => Preference::Merge,
    });
    let advice = advise(report.severity, rewritten, arguments.progress, preference);
    let backup = if report.is_rewritten() {
        let record = Record::manual("before upstream's rewritten history is dealt with");
        Some(workspace.save(record, &Arc::default()).await?.checkpoint)
    } else {
        None
    };
    show(session, &report, advice, backup.as_ref().map(ToString::to_string))?;
    let refused = advice.is_pause() || arguments.strict && advice != Advice::Nothing;
    Ok(if refused { Exit::Refused } else { Exit::Done })
}

fn show(session: &Session, report: &DriftReport, advice: Advice, backup: Option<String>) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        let mut object = serde_json::to_value(report)
            .map_err(|error| Failure::internal("the report has no JSON form").because(&error))?;
        object["advice"] = json!(advice);
        object["backup"] = json!(backup);
        return output.object(&object);
    }
    let mut lines = Vec::new();
    match (&report.upstream, &report.severity) {
        (None, _) => lines.push("there is no upstream to compare with".to_owned()),
        (Some(_), None) => lines.push("upstream has nothing new".to_owned()),
        (Some(upstream), Some(severity)) => {
            let short: String = upstream.chars().take(10).collect();
            lines.push(format!(
                "upstream is at {short}: {} behind, {} ahead; severity {severity}",
                report.behind, report.ahead
            ));
        }
    }
    lines.extend(report.events.iter().map(|event| format!("  {}", clean(&event.as_words()))));
    lines.extend(
        report
            .contested
            .iter()
            .take(NAMED)
            .map(|Contested { path, severity, why }| format!("  {severity:6} {}: {why}", clean(path))),
    );
    if report.contested.len() > NAMED {
        lines.push(format!("  … and {} more", report.contested.len() - NAMED));
    }
    if !report.uncommitted.is_empty() {
        lines.push(format!("{} files differ from what is committed", report.uncommitted.len()));
    }
    output.data(&lines.join("\n"))?;
    if let Some(why) = &report.unasked {
        output.warn(&clean(why));
    }
    if let Some(backup) = backup {
        output.note(&format!("the files are backed up in {backup}"));
    }
    if advice != Advice::Nothing {
        output.note(&format!("advice: {}", advice.as_words()));
    }
    Ok(())
}

async fn rebase(session: &Session, workspace: &Workspace, run: &RunId, arguments: &Drift) -> Result<Exit, Failure> {
    let report = workspace.check_drift(None, options(arguments)).await?;
    let test = arguments.test.clone().or_else(|| session.variable("PITON_TEST_COMMAND"));
    let branch = report.branch.clone().unwrap_or_else(|| "no branch".to_owned());
    let mut plan = Plan::new(format!("{} commits of {} are moved onto upstream", report.ahead, clean(&branch)));
    plan.line("your git is written: new commits, the branch, the index");
    plan.line(match &test {
        Some(test) => format!("{} must succeed, or all of it is taken back", clean(test)),
        None => "no test command is given, so nothing checks what comes out".to_owned(),
    });
    plan.line("`piton drift --undo-rebase` takes it back");
    if !agreed(&plan, session, arguments.consent)? {
        return Ok(Exit::Done);
    }
    let record = Record::manual("before a rebase");
    let backup = workspace.save(record, &Arc::default()).await?.checkpoint;
    let done = workspace.rebase(options(arguments), test).await?;
    workspace.resolve_drift(run, Resolution::Rebased).await?;
    session.output.note(&format!("the files as they were are in {backup}"));
    say(session, &done)
}

async fn undo_rebase(session: &Session, workspace: &Workspace, arguments: &Drift) -> Result<Exit, Failure> {
    let mut plan = Plan::new("the last rebase is taken back");
    plan.line("your git is written: branch, index and objects become what they were");
    if !agreed(&plan, session, arguments.consent)? {
        return Ok(Exit::Done);
    }
    let done = workspace.undo_rebase().await?;
    say(session, &done)
}

fn say(session: &Session, done: &Rebased) -> Result<Exit, Failure> {
    let Rebased { branch, old, new, commits } = done;
    if session.output.is_json() {
        session.output.object(&json!({"branch": branch, "old": old, "new": new, "commits": commits}))?;
    } else {
        session.output.data(&format!("{} moved from {old} to {new}", clean(branch)))?;
    }
    Ok(Exit::Done)
}
