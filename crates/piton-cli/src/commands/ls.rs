//! `piton ls`: the runs of a folder, or of all, newest first. Reads the index, and of the runs that it shows the
//! newest entries; whole logs only for the question or the error that was asked for.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use piton::recovery::stalled;
use piton::{Context, History, LeaseOptions, LeaseWatch, OpenQuestion};
use piton_store::{RunLog, RunQuery, Store};
use piton_types::{RunId, RunState, RunStatus, RunSummary, TokenUsage};
use serde_json::{Value as Json, json};

use crate::arguments::Ls;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::questions;
use crate::session::Session;
use crate::table::{Table, took};
use crate::view;
use piton_app::runs::usage::{self, cost_text, usage_json};

/// A run as it is listed.
struct Row {
    run: RunSummary,
    stalled: bool,
    took: Duration,
    usage: Option<TokenUsage>,
    /// The questions or the error.
    detail: Vec<String>,
    questions: Vec<OpenQuestion>,
}

pub(crate) async fn execute(session: &Session, arguments: &Ls) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    if arguments.all {
        for place in session.surroundings.find_all()? {
            let store = session.open(&place, false).await?;
            rows.extend(list(session, &store, arguments).await?);
            store.close().await?;
        }
    } else {
        let store = session.store().await?;
        rows = list(session, &store, arguments).await?;
        store.close().await?;
    }
    show(session, arguments, &rows)?;
    Ok(Exit::Done)
}

/// The runs that nobody drives. Of holders on other hosts that shows only after a while, for which `--stalled` waits.
async fn dead(session: &Session, store: &Arc<dyn Store>, arguments: &Ls) -> Result<HashSet<RunId>, Failure> {
    let (context, ttl) = (Context::system(Arc::clone(store)), LeaseOptions::default().ttl);
    let mut watch = LeaseWatch::default();
    let mut runs = stalled(&context, &mut watch, ttl).await?;
    if arguments.stalled && runs.watched > 0 {
        let said = format!("watching {} on other hosts for {} s", many(runs.watched, "run"), ttl.as_secs());
        session.output.note(&said);
        context.clock.sleep(ttl).await;
        runs = stalled(&context, &mut watch, ttl).await?;
    }
    Ok(runs.found.into_iter().map(|stalled| stalled.run.id).collect())
}

fn many(count: usize, what: &str) -> String {
    if count == 1 { format!("one {what}") } else { format!("{count} {what}s") }
}

async fn list(session: &Session, store: &Arc<dyn Store>, arguments: &Ls) -> Result<Vec<Row>, Failure> {
    let status = match arguments {
        Ls { waiting: true, .. } => vec![RunStatus::Waiting],
        Ls { failed: true, .. } => vec![RunStatus::Failed],
        Ls { stalled: true, .. } => vec![RunStatus::InProgress],
        _ => Vec::new(),
    };
    let dead =
        if arguments.waiting || arguments.failed { HashSet::new() } else { dead(session, store, arguments).await? };
    let query = RunQuery { status, limit: Some(arguments.limit), ..RunQuery::default() };
    let mut rows = Vec::new();
    for run in store.list(query).await?.into_iter().filter(|run| !arguments.stalled || dead.contains(&run.id)) {
        let log = RunLog::open(Arc::clone(store), &run.id).await?;
        let (detail, questions) =
            if arguments.waiting || arguments.failed { detail(&log).await? } else { Default::default() };
        let over = !matches!(run.status, RunStatus::InProgress | RunStatus::Waiting);
        let end = if over { run.updated_at } else { session.now() };
        rows.push(Row {
            stalled: dead.contains(&run.id),
            took: end.since(run.created_at),
            usage: usage::recent(&log).await?,
            detail,
            questions,
            run,
        });
    }
    Ok(rows)
}

async fn detail(log: &RunLog) -> Result<(Vec<String>, Vec<OpenQuestion>), Failure> {
    let history = History::read(log).await?;
    Ok(match history.state {
        RunState::Waiting(waiting) => {
            let questions: Vec<_> = history.questions.into_iter().map(OpenQuestion::from).collect();
            let prompts = questions.iter().map(|question| match questions.len() {
                1 => question.prompt.clone(),
                _ => format!("{}: {}", question.step, question.prompt),
            });
            let prompts: Vec<_> = prompts.collect();
            (if prompts.is_empty() { vec![waiting.prompt] } else { prompts }, questions)
        }
        RunState::Failed(failed) => (vec![failed.message], Vec::new()),
        _ => (Vec::new(), Vec::new()),
    })
}

fn show(session: &Session, arguments: &Ls, rows: &[Row]) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        for row in rows {
            let mut object = view::run_json(&row.run);
            object.insert("stalled".to_owned(), json!(row.stalled));
            object.insert("duration_ms".to_owned(), json!(u64::try_from(row.took.as_millis()).unwrap_or(u64::MAX)));
            object.insert("usage".to_owned(), usage_json(row.usage));
            if let Some(detail) = row.detail.first() {
                object.insert(if arguments.waiting { "question" } else { "error" }.to_owned(), json!(detail));
            }
            if arguments.waiting {
                object.insert("questions".to_owned(), row.questions.iter().map(questions::json).collect());
            }
            output.object(&Json::Object(object))?;
            if output.is_closed() {
                break;
            }
        }
        return Ok(());
    }
    if rows.is_empty() {
        output.note("nothing to show");
        return Ok(());
    }
    let last = match (arguments.waiting, arguments.failed) {
        (true, _) => "QUESTION",
        (_, true) => "ERROR",
        _ => "NAME",
    };
    let mut table = Table::with_heading(&["ID", "STATUS", "WHEN", "TOOK", "COST", last]);
    for row in rows {
        table.row(vec![
            row.run.id.to_string(),
            if row.stalled { "stalled".to_owned() } else { row.run.status.to_string() },
            session.age(row.run.updated_at),
            took(row.took),
            cost_text(row.usage),
            clean(row.detail.first().unwrap_or(&row.run.name)),
        ]);
        for more in row.detail.iter().skip(1) {
            table.row(vec![String::new(), String::new(), String::new(), String::new(), String::new(), clean(more)]);
        }
    }
    output.data(&table.render(output.width()))?;
    if let Some(row) = rows.iter().find(|row| row.stalled) {
        output.note(&format!("whoever drove a stalled run is dead: `piton resume {}` goes on with it", row.run.id));
    }
    Ok(())
}
