//! `piton ls`: the runs of a folder, or of all, newest first.

use std::time::Duration;

use piton_app::runs::list::{ListRuns, RunQuery, Which, list};
use piton_app::views::run::ListedRun;
use piton_types::{RunKind, Timestamp};

use crate::arguments::Ls;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::{Table, took};
use crate::view::cost_text;

pub(crate) async fn execute(session: &Session, arguments: &Ls) -> Result<Exit, Failure> {
    let which = match arguments {
        Ls { waiting: true, .. } => Which::Waiting,
        Ls { failed: true, .. } => Which::Failed,
        Ls { stalled: true, .. } => Which::Stalled,
        _ => Which::All,
    };
    let query = RunQuery {
        text: arguments.text.clone().unwrap_or_default(),
        kinds: arguments.kind.into_iter().collect(),
        labels: arguments.label.iter().cloned().collect(),
        since: arguments.since.map(|age| {
            let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_millis(session.now().as_millis().saturating_sub(age))
        }),
        limit: Some(arguments.limit),
        ..RunQuery::default()
    };
    let runs = list(session, ListRuns { which, everywhere: arguments.all, query }).await?;
    let output = &session.output;
    if output.is_json() {
        output.list(&runs)?;
    } else if runs.is_empty() {
        output.note("nothing to show");
    } else {
        show(session, which, &runs)?;
    }
    Ok(Exit::Done)
}

fn show(session: &Session, which: Which, runs: &[ListedRun]) -> Result<(), Failure> {
    let last = match which {
        Which::Waiting => "QUESTION",
        Which::Failed => "ERROR",
        Which::All | Which::Stalled => "NAME",
    };
    let mut table = Table::with_heading(&["ID", "STATUS", "WHEN", "TOOK", "COST", last]);
    for listed in runs {
        let detail = listed.question.as_ref().or(listed.error.as_ref());
        table.row(vec![
            listed.run.id.to_string(),
            if listed.stalled { "stalled".to_owned() } else { listed.run.status.to_string() },
            session.age(listed.run.updated_at),
            took(Duration::from_millis(listed.duration_ms)),
            cost_text(listed.usage),
            clean(detail.unwrap_or(&listed.run.name)),
        ]);
        for more in listed.questions.iter().flatten().skip(1) {
            let mut cells = vec![String::new(); 5];
            cells.push(clean(&format!("{}: {}", more.step, more.prompt)));
            table.row(cells);
        }
    }
    let output = &session.output;
    output.data(&table.render(output.width()))?;
    if let Some(listed) = runs.iter().find(|listed| listed.stalled) {
        let (id, is_guard) = (&listed.run.id, listed.run.kind == RunKind::Guard);
        let (verb, what) = if is_guard { ("undo", "takes back what it did") } else { ("resume", "goes on with it") };
        output.note(&format!("the process that drove a stalled run is dead: `piton {verb} {id}` {what}"));
    }
    Ok(())
}
