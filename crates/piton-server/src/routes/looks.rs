//! What can be looked at. Each is what a verb of the command line shows, as it is.

use std::path::PathBuf;
use std::time::Duration;

use axum::http::StatusCode;
use piton_app::Failure;
use piton_app::files::{self, Capture, lease::Book};
use piton_app::references::Reference;
use piton_app::runs::list::{ListRuns, RunQuery, Which};
use piton_app::runs::log::{Happened, LogQuery};
use piton_app::runs::{answer as answers, diff, graph, log, pages, queue, resume, show, summary};
use piton_app::views::page::{CheckpointsPage, EntriesPage};
use piton_types::{RunId, Timestamp};
use serde_json::json;

use super::{Answer, Call, answer, as_json, view};
use crate::problem::Problem;
use crate::{metrics, openapi};

/// The longest that a question is waited for.
const LONGEST_WAIT: u64 = 60;

pub(super) async fn runs(call: Call) -> Answer {
    let query = &call.query;
    let which = match query.text("which") {
        None | Some("all") => Which::All,
        Some("waiting") => Which::Waiting,
        Some("failed") => Which::Failed,
        Some("stalled") => Which::Stalled,
        Some(_) => return Err(Problem::of_field("which", "it is all, waiting, failed or stalled")),
    };
    let limit = query.limit(50, 500)?;
    let labels = query.text("label").into_iter().flat_map(|labels| labels.split(',')).map(str::to_owned);
    let wanted = ListRuns {
        which,
        everywhere: false,
        query: RunQuery {
            status: query.words("status")?,
            kinds: query.words("kind")?,
            labels: labels.collect(),
            text: query.text("text").unwrap_or_default().to_owned(),
            folders: query.texts("folder").into_iter().map(str::to_owned).collect(),
            since: moment(&call, "since")?,
            until: moment(&call, "until")?,
            ..RunQuery::default()
        },
    };
    view(&pages::runs(&call.server.app, wanted, query.text("cursor"), limit).await?)
}

/// A time, or how long ago: `30m`, `2h`, `7d`.
fn moment(call: &Call, name: &str) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = call.query.text(name) else { return Ok(None) };
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)];
    let ago = units.iter().find_map(|(unit, seconds)| {
        let number: i64 = text.strip_suffix(unit)?.parse().ok()?;
        (0..1_000_000).contains(&number).then(|| number * seconds * 1000)
    });
    match ago {
        Some(ago) => Ok(Some(Timestamp::from_millis(call.server.app.now().as_millis() - ago))),
        None => call.query.parse(name),
    }
}

pub(super) async fn overview(call: Call) -> Answer {
    let mut seen = as_json(&summary::summary(&call.server.app).await?)?;
    seen["here"] = json!(call.server.drives.runs());
    answer(StatusCode::OK, &seen)
}

pub(super) async fn run(call: Call) -> Answer {
    let run: RunId = call.part("run")?;
    let shown = show::show(&call.server.app, &Reference::Run(run), call.query.flag("steps")?).await?;
    let show::Shown::Run(whole) = &shown else {
        return Err(Problem::not_found("that is a value, not a run"));
    };
    let id = whole.run.id.clone();
    let mut seen = as_json(&shown)?;
    let here = call.server.drives.has(&id);
    seen["driven_here"] = here.into();
    seen["debugged"] = call.server.drives.desk(&id).is_some().into();
    let in_progress = seen["status"] == "in_progress";
    seen["stalled"] = (in_progress && !here && !answers::is_driven(&call.server.app, &id).await?).into();
    answer(StatusCode::OK, &seen)
}

pub(super) async fn steps(call: Call) -> Answer {
    let (run, query) = (call.part("run")?, &call.query);
    let (limit, values) = (query.limit(100, 500)?, query.flag("values")?);
    view(&pages::steps(&call.server.app, &run, query.text("before"), limit, values).await?)
}

pub(super) async fn checkpoints(call: Call) -> Answer {
    match entries(&call, true).await? {
        Happened::Entries(checkpoints) => view(&CheckpointsPage { checkpoints }),
        Happened::Paths(_) => Err(Failure::internal("no path was named").into()),
    }
}

pub(super) async fn run_log(call: Call) -> Answer {
    match entries(&call, false).await? {
        Happened::Entries(entries) => view(&EntriesPage { entries }),
        Happened::Paths(_) => Err(Failure::internal("no path was named").into()),
    }
}

async fn entries(call: &Call, checkpoints: bool) -> Result<Happened, Problem> {
    let of = Some(Reference::Run(call.part("run")?));
    let query = LogQuery { of, paths: Vec::new(), checkpoints, limit: call.query.limit(100, 1000)? };
    Ok(log::log(&call.server.app, query).await?)
}

pub(super) async fn log_of(call: Call) -> Answer {
    let query = &call.query;
    let wanted = LogQuery {
        of: query.parse("ref")?,
        paths: query.texts("path").into_iter().map(PathBuf::from).collect(),
        checkpoints: query.flag("checkpoints")?,
        limit: query.limit(100, 1000)?,
    };
    match log::log(&call.server.app, wanted).await? {
        Happened::Entries(entries) => view(&EntriesPage { entries }),
        Happened::Paths(moments) => answer(StatusCode::OK, &json!({ "moments": as_json(&moments)? })),
    }
}

pub(super) async fn graph(call: Call) -> Answer {
    let run: RunId = call.part("run")?;
    let drawn = graph::graph(&call.server.app, &run).await?;
    answer(StatusCode::OK, &drawn.json()?)
}

pub(super) async fn questions(call: Call) -> Answer {
    let wait = match call.query.parse::<u64>("wait")? {
        None => 0,
        Some(wait) if wait <= LONGEST_WAIT => wait,
        Some(_) => return Err(Problem::of_field("wait", format!("it is at most {LONGEST_WAIT} seconds"))),
    };
    let run = call.part("run")?;
    let asked = answers::questions(&call.server.app, &run, Duration::from_secs(wait)).await?;
    answer(StatusCode::OK, &json!({ "questions": as_json(&asked)? }))
}

pub(super) async fn diagnosis(call: Call) -> Answer {
    let run = call.part("run")?;
    let said = resume::explain(&call.server.app, &run, None, call.server.config.as_deref()).await?;
    let mut seen = as_json(&said)?;
    seen["refused"] = said.is_refused.into();
    answer(StatusCode::OK, &seen)
}

pub(super) async fn show_reference(call: Call) -> Answer {
    let reference: Reference = call.query.needed("ref")?;
    view(&show::show(&call.server.app, &reference, call.query.flag("steps")?).await?)
}

pub(super) async fn diff_files(call: Call) -> Answer {
    let (from, to) = (call.query.parse("from")?, call.query.parse("to")?);
    let lines = call.query.flag("lines")?;
    view(&files::diff::diff(&call.server.app, from.as_ref(), to.as_ref(), &[], lines).await?)
}

pub(super) async fn diff_state(call: Call) -> Answer {
    let (from, to) = (call.query.needed("from")?, call.query.needed("to")?);
    view(&diff::diff_states(&call.server.app, &from, &to).await?)
}

pub(super) async fn diff_runs(call: Call) -> Answer {
    let (from, to) = (call.query.needed("from")?, call.query.needed("to")?);
    match diff::diff_runs(&call.server.app, &from, &to, false).await? {
        Some(seen) => view(&seen),
        None => Err(Problem::from(
            Failure::usage("those are not two runs that are made of steps").hint("`/api/diff/files` compares files."),
        )),
    }
}

pub(super) async fn file_status(call: Call) -> Answer {
    view(&files::status::status(&call.server.app, Capture::ACCEPTED, false, false).await?)
}

pub(super) async fn timeline(call: Call) -> Answer {
    let (before, limit) = (call.query.text("before"), call.query.limit(200, 1000)?);
    view(&files::status::timeline(&call.server.app, before, limit).await?)
}

pub(super) async fn leases(call: Call) -> Answer {
    let book = Book::look(&call.server.app).await?;
    let leases = book.list().await?;
    book.close().await?;
    answer(StatusCode::OK, &json!({ "leases": as_json(&leases)? }))
}

pub(super) async fn store(call: Call) -> Answer {
    view(&summary::store(&call.server.app).await?)
}

pub(super) async fn workers(call: Call) -> Answer {
    let workers = queue::workers(&call.server.app).await?;
    answer(StatusCode::OK, &json!({ "workers": as_json(&workers)? }))
}

pub(super) async fn queued(call: Call) -> Answer {
    view(&summary::queue(&call.server.app).await?)
}

pub(super) async fn audit(call: Call) -> Answer {
    let acts = call.server.audit.newest(call.query.limit(100, 1000)?)?;
    answer(StatusCode::OK, &json!({ "acts": acts }))
}

pub(super) async fn describe(_: Call) -> Answer {
    answer(StatusCode::OK, &openapi::description())
}

pub(super) async fn measure(call: Call) -> Answer {
    let text = metrics::text(&call.server).await?;
    let mut answer = axum::http::Response::new(axum::body::Body::from(text));
    let kind = axum::http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(axum::http::header::CONTENT_TYPE, kind);
    Ok(answer)
}

pub(super) async fn health(_: Call) -> Answer {
    answer(StatusCode::OK, &json!({ "ok": true }))
}
