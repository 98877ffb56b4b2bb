//! `piton resume`: goes on with a run that exists, by the document and inputs that its log has.

use piton_app::runs::resume::{OnChanges, ResumeRun, explain, prepare};

use crate::arguments::Resume;
use crate::ask::AskTerminal;
use crate::drive::drive;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Resume) -> Result<Exit, Failure> {
    if arguments.explain {
        return say_what_changed(session, arguments).await;
    }
    let flags = &arguments.changes;
    let changes = OnChanges {
        modified: flags.on_modified,
        deleted: flags.on_deleted,
        upstream: flags.on_upstream,
        paths: flags.on_path.clone(),
    };
    let wanted = ResumeRun {
        run: arguments.run.clone(),
        document: arguments.document.clone(),
        config: arguments.config.clone(),
        limits: arguments.limits.into(),
        force: arguments.force,
        fallback: arguments.fallback,
        wait: arguments.wait,
        changes,
        resolve: arguments.resolve,
        drift: arguments.drift.into(),
    };
    go_on(session, &wanted).await
}

/// Goes on with a run; what policies leave open is asked on the terminal.
pub(crate) async fn go_on(session: &Session, wanted: &ResumeRun) -> Result<Exit, Failure> {
    drive(session, prepare(session, wanted, &AskTerminal::default()).await?).await
}

/// Says what changed since the run was begun, and what a document would mean. Nothing is done.
async fn say_what_changed(session: &Session, arguments: &Resume) -> Result<Exit, Failure> {
    let (document, config) = (arguments.document.as_deref(), arguments.config.as_deref());
    let said = explain(session, &arguments.run, document, config).await?;
    let exit = if said.is_refused { Exit::Refused } else { Exit::Done };
    let output = &session.output;
    if output.is_json() {
        output.view(&said)?;
        return Ok(exit);
    }
    for change in &said.changes {
        output.data(&clean(&format!("{}: {}: {}", change.severity, change.component, change.description)))?;
    }
    if said.changes.is_empty() {
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
    if said.is_refused {
        let run = &said.run;
        let is_lost = said.impact.as_ref().is_some_and(|impact| !impact.lost.is_empty());
        output.note(&match (&arguments.document, is_lost) {
            (Some(_), true) => "with that document the run goes on under no policy: what is pending has no place in it".to_owned(),
            (Some(_), false) => format!(
                "`--force` goes on with it and keeps all that finished; `piton fork {run} --document FILE` does again what is outdated"
            ),
            (None, _) => format!("`piton resume {run}` would refuse; `--force` goes on all the same"),
        });
    }
    Ok(exit)
}
