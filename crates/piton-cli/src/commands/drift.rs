//! `piton drift`: did the repository move under us, how bad is it, what is best done; and the permitted rebase.

use piton_app::files::drift::Drifting;
use piton_app::views::files::DriftView;
use piton_workspace::{Advice, Contested, DriftOptions, Preference, Rebased, Resolution};

use crate::arguments::agents::{Drift, Prefer, Resolve};
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;

/// How many files are named.
const NAMED: usize = 20;

pub(crate) async fn execute(session: &Session, arguments: Drift) -> Result<Exit, Failure> {
    let drifting = Drifting::open(session, arguments.run.as_ref()).await?;
    let exit = if arguments.undo_rebase {
        match agreed(&drifting.plan_undo(), session, arguments.consent)? {
            true => say(session, &drifting.undo_rebase().await?)?,
            false => Exit::Done,
        }
    } else if arguments.rebase {
        rebase(session, &drifting, &arguments).await?
    } else if let Some(how) = arguments.resolve {
        drifting.resolve(resolution(how)).await?;
        Exit::Done
    } else {
        let preference = arguments.prefer.map(|prefer| match prefer {
            Prefer::Restart => Preference::Restart,
            Prefer::Merge => Preference::Merge,
        });
        let found = drifting.look(options(&arguments), arguments.progress, preference).await?;
        show(session, &found)?;
        let refused = found.is_pause || arguments.strict && found.advice != Advice::Nothing;
        if refused { Exit::Refused } else { Exit::Done }
    };
    drifting.close().await?;
    Ok(exit)
}

async fn rebase(session: &Session, drifting: &Drifting, arguments: &Drift) -> Result<Exit, Failure> {
    let test = arguments.test.clone().or_else(|| session.variable("PITON_TEST_COMMAND"));
    let rebasing = drifting.plan_rebase(options(arguments), test).await?;
    if !agreed(&rebasing.plan, session, arguments.consent)? {
        return Ok(Exit::Done);
    }
    let (done, backup) = drifting.rebase(rebasing).await?;
    session.output.note(&format!("the files as they were are in {backup}"));
    say(session, &done)
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

fn show(session: &Session, found: &DriftView) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        return output.view(found);
    }
    let DriftView { report, advice, backup, .. } = found;
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
    if *advice != Advice::Nothing {
        output.note(&format!("advice: {}", advice.as_words()));
    }
    Ok(())
}

fn say(session: &Session, done: &Rebased) -> Result<Exit, Failure> {
    let Rebased { branch, old, new, .. } = done;
    if session.output.is_json() {
        session.output.view(done)?;
    } else {
        session.output.data(&format!("{} moved from {old} to {new}", clean(branch)))?;
    }
    Ok(Exit::Done)
}
