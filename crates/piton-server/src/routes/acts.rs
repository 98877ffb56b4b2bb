//! What can be done at once. What should be seen before it is done goes by plans.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use piton_app::files::lease::{Book, Reserve};
use piton_app::files::{Capture, status};
use piton_app::references::Reference;
use piton_app::runs::answer::Asked;
use piton_app::runs::fork::{Forked, Forking, fork};
use piton_app::runs::queue::{self, Limit, SubmitRun};
use piton_app::runs::resume::{ResumeRun, prepare};
use piton_app::runs::start::{self, StartRun};
use piton_app::runs::steer;
use piton_app::{Failure, documents};
use piton_flow::Form;
use piton_runtime::recovery::CannotAsk;
use piton_types::{RunId, RunKind, Value, from_json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::debug::{Stops, breakpoint};
use super::{Answer, Call, answer, as_json, view};
use crate::drives::{debug, drive};
use crate::problem::Problem;
use crate::query::parse;

/// How long steps that run may take to end when a run is stopped, if nothing is said.
const GRACE: u64 = 30;
/// The longest that can be said.
const LONGEST: u64 = 24 * 60 * 60;

/// A document, to be run.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    /// The document: YAML or JSON.
    document: String,
    /// The name of its file; its end says what it is: `flow.yml`, `flow.json`.
    #[serde(default = "flow")]
    name: String,
    /// What it is given.
    #[serde(default)]
    inputs: BTreeMap<String, Json>,
    /// What the user of a chat asks.
    query: Option<String>,
    /// The run's id; a run that exists goes on.
    id: Option<String>,
    /// What it is found by beside its name.
    #[serde(default)]
    labels: Vec<String>,
    /// Checkpoint the files of the server's folder while it runs.
    #[serde(default)]
    files: bool,
    /// Put it into the queue instead, for a worker.
    submit: Option<Submit>,
    /// Drive it under a debugger, which stops before its first node and there.
    debug: Option<Stops>,
}

fn flow() -> String {
    "flow.yml".to_owned()
}

/// How it waits for a worker.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Submit {
    /// The larger, the sooner.
    #[serde(default)]
    priority: i32,
    /// Not before this, as in 2026-11-18T03:00:00Z.
    due: Option<String>,
    /// One run for each key.
    dedupe: Option<String>,
    /// Of the runs with a key at most so many are driven at once: `KEY=N`.
    limit: Option<String>,
    /// Again and again, by a pattern of cron.
    every: Option<String>,
}

/// A document, to be looked at.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    /// The document: YAML or JSON.
    document: String,
    /// The name of its file.
    #[serde(default = "flow")]
    name: String,
}

/// A document in a folder of its own, from which it can include nothing.
struct Uploaded {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Uploaded {
    fn of(text: &str, name: &str) -> Result<Self, Problem> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ' ');
        let ends = [".yml", ".yaml", ".json"].iter().any(|end| name.len() > end.len() && name.ends_with(end));
        if name.len() > 100 || name.starts_with('.') || !name.chars().all(is_plain) || !ends {
            return Err(Problem::of_field("name", "it is the plain name of a .yml or .json file"));
        }
        let cant = |error| Failure::fixable("the document can't be kept while it is read").because(&error);
        let folder = tempfile::tempdir().map_err(cant)?;
        let path = folder.path().join(name);
        std::fs::write(&path, text).map_err(cant)?;
        Ok(Self { _folder: folder, path })
    }
}

pub(super) async fn check_document(call: Call) -> Answer {
    let Document { document, name } = call.taken()?;
    let uploaded = Uploaded::of(&document, &name)?;
    let mut seen = as_json(&documents::validate(&uploaded.path)?)?;
    seen["file"] = name.into();
    answer(StatusCode::OK, &seen)
}

/// JSON as a value of a run.
fn value(field: &str, json: &Json) -> Result<Value, Problem> {
    from_json(json.to_string().as_bytes()).map_err(|error| Problem::of_field(field, error))
}

pub(super) async fn start_run(call: Call) -> Answer {
    let wanted: Start = call.taken()?;
    let uploaded = Uploaded::of(&wanted.document, &wanted.name)?;
    let checked = documents::validate(&uploaded.path)?;
    if !checked.valid {
        let failure = Failure::fixable("the document is not valid");
        return Err(Problem::from(failure).field("document").problems(as_json(&checked.errors)?));
    }
    let mut start = StartRun::of(uploaded.path.clone());
    for (name, json) in &wanted.inputs {
        start.inputs.insert(name.clone(), value(&format!("inputs.{name}"), json)?);
    }
    start.system.extend(wanted.query.map(|query| ("query".to_owned(), query.into())));
    start.id = wanted.id.as_deref().map(|id| parse("id", id)).transpose()?;
    start.labels = wanted.labels.into_iter().collect();
    start.config.clone_from(&call.server.config);
    start.files = wanted.files;
    let app = &call.server.app;
    if let Some(submit) = wanted.submit {
        if wanted.debug.is_some() {
            return Err(Problem::of_field("debug", "a run that is left to a worker isn't debugged here"));
        }
        let limit = submit.limit.as_deref().map(limit_of).transpose()?;
        let due = submit.due.as_deref().map(|due| parse("submit.due", due)).transpose()?;
        let Submit { priority, dedupe, every, .. } = submit;
        let submitted =
            queue::put(app, start, SubmitRun { priority, due, limit, dedupe, every, ..SubmitRun::default() }).await;
        return answer(StatusCode::ACCEPTED, &as_json(&submitted.map_err(inputs)?)?);
    }
    let prepared = start::prepare(app, start).await?;
    let run = match wanted.debug {
        Some(stops) => debug(&call.server, prepared, stops.breaks()).await.map_err(|failure| {
            if failure.title().starts_with("the inputs") { inputs(failure) } else { breakpoint(failure) }
        })?,
        None => drive(&call.server, prepared).await.map_err(inputs)?,
    };
    started(&run, None)
}

/// Which input is to blame, if one is.
fn inputs(failure: Failure) -> Problem {
    let cause = failure.causes().first().filter(|_| failure.title().starts_with("the inputs"));
    let name = cause.and_then(|cause| Some(cause.strip_prefix("input \"")?.split_once('"')?.0.to_owned()));
    let problem = Problem::from(failure);
    match name {
        Some(name) => problem.field(format!("inputs.{name}")),
        None => problem,
    }
}

fn limit_of(text: &str) -> Result<Limit, Problem> {
    let wrong = || Problem::of_field("submit.limit", "it is KEY=N, and N is at least 1");
    let (key, number) = text.rsplit_once('=').ok_or_else(wrong)?;
    let number: u32 = number.parse().map_err(|_| wrong())?;
    if key.is_empty() || number == 0 { Err(wrong()) } else { Ok(Limit { key: key.to_owned(), at_once: number }) }
}

pub(super) fn started(run: &RunId, notice: Option<&str>) -> Answer {
    let said = json!({ "id": run, "run": run, "status": "in_progress", "notice": notice });
    answer(StatusCode::ACCEPTED, &said)
}

/// An answer to a question.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reply {
    /// Which question, if there are several: the node that asks, its place, or its token.
    step: Option<String>,
    /// The answer: an object with its fields, such as `approved`.
    answer: Json,
    /// Go on with the run then, unless a process drives it.
    #[serde(default = "yes")]
    resume: bool,
}

fn yes() -> bool {
    true
}

pub(super) async fn reply(call: Call) -> Answer {
    let Reply { step, answer: said, resume } = call.taken()?;
    let (app, run) = (&call.server.app, call.part("run")?);
    let said = value("answer", &said)?;
    let asked = Asked::find(app, &run, step.as_deref()).await?;
    if let Some(problem) = asked.question.check(&said).err() {
        return Err(unfit(asked.question.form.as_ref(), &said, &problem));
    }
    let answered = asked.answer(&said, &call.who()?.name()).await?;
    let run = answered.run.clone();
    let mut seen = as_json(&answered)?;
    let mut resumed = false;
    if resume && answered.open == 0 && answered.kind == Some(RunKind::Workflow) && !call.server.drives.has(&run) {
        let wanted = ResumeRun { config: call.server.config.clone(), ..ResumeRun::of(run) };
        // The answer is in the log: whatever keeps the run from going on now, it can be resumed later.
        match go_on(&call, &wanted).await {
            Ok(_) => resumed = true,
            Err(failure) => seen["not_resumed"] = failure.message().into(),
        }
    }
    seen["resumed"] = resumed.into();
    answer(StatusCode::OK, &seen)
}

/// What is wrong with an answer, field by field where it is of fields.
fn unfit(form: Option<&Form>, said: &Value, problem: &str) -> Problem {
    let failure = Failure::fixable(problem).hint("nothing was changed; the question is still open.");
    let fields = form.into_iter().flat_map(|form| &form.fields);
    let wrong: Vec<(String, String)> = fields
        .filter_map(|field| {
            let alone = Form { fields: vec![field.clone()], ..Form::default() };
            Some((format!("answer.{}", field.name), alone.accept(said).err()?))
        })
        .collect();
    let Some((first, _)) = wrong.first().cloned() else {
        let is_decision = problem.contains("approved");
        return Problem::from(failure).field(if is_decision { "answer.approved" } else { "answer" });
    };
    let each = wrong.iter().map(|(field, message)| json!({ "field": field, "message": message }));
    Problem::from(failure).field(first).problems(each.collect())
}

async fn go_on(call: &Call, wanted: &ResumeRun) -> Result<(RunId, Option<String>), Failure> {
    let prepared = prepare(&call.server.app, wanted, &CannotAsk).await?;
    let notice = prepared.notice.clone();
    Ok((drive(&call.server, prepared).await?, notice))
}

/// A run that is to stop.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Stop {
    /// Why, for its log.
    reason: Option<String>,
    /// How many seconds steps that run may take to end.
    grace_s: Option<u64>,
}

pub(super) async fn stop(call: Call) -> Answer {
    let Stop { reason, grace_s } = call.taken()?;
    let grace = grace_s.unwrap_or(GRACE);
    if grace > LONGEST {
        return Err(Problem::of_field("grace_s", format!("it is at most {LONGEST}")));
    }
    let reason = reason.unwrap_or_else(|| format!("stopped by {}", by(&call)));
    let (seen, _) = steer::stop(&call.server.app, &call.part("run")?, &reason, Duration::from_secs(grace)).await?;
    view(&seen)
}

fn by(call: &Call) -> String {
    call.who().map_or_else(|_| "the server".to_owned(), crate::gate::Who::name)
}

/// A run that is to go on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Resume {
    /// Go on although its surroundings changed.
    #[serde(default)]
    force: bool,
}

pub(super) async fn resume(call: Call) -> Answer {
    let Resume { force } = call.taken()?;
    let wanted = ResumeRun { force, config: call.server.config.clone(), ..ResumeRun::of(call.part("run")?) };
    let (run, notice) = go_on(&call, &wanted).await?;
    started(&run, notice.as_deref())
}

/// Where a run branches off, and what is different there.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Fork {
    /// The checkpoint, `RUN@3` or `RUN/step`; the newest if nothing is said.
    at: Option<String>,
    /// Inputs, variables, or fields of what a step gave as `STEP.NAME`.
    #[serde(default)]
    set: BTreeMap<String, Json>,
    /// The new run's id.
    id: Option<String>,
    /// Drive it at once.
    #[serde(default)]
    start: bool,
}

pub(super) async fn branch(call: Call) -> Answer {
    let Fork { at, set, id, start } = call.taken()?;
    let run: RunId = call.part("run")?;
    let at = match at {
        Some(at) => parse("at", &at)?,
        None => Reference::Run(run),
    };
    let wanted = Forking {
        at,
        set: pairs(&set)?,
        id: id.as_deref().map(|id| parse("id", id)).transpose()?,
        document: None,
        only: None,
        in_place: false,
        into: None,
        include_ignored: false,
        config: call.server.config.clone(),
    };
    let forked = fork(&call.server.app, wanted).await?;
    let mut seen = as_json(&forked)?;
    seen["started"] = false.into();
    if let Forked::Run(new) = &forked
        && start
        && new.kind == RunKind::Workflow
    {
        let wanted = ResumeRun { config: call.server.config.clone(), ..ResumeRun::of(new.id.clone()) };
        match go_on(&call, &wanted).await {
            Ok(_) => seen["started"] = true.into(),
            Err(failure) => seen["not_started"] = failure.message().into(),
        }
    }
    answer(StatusCode::CREATED, &seen)
}

/// What is to be different, as values.
pub(super) fn pairs(set: &BTreeMap<String, Json>) -> Result<Vec<(String, Value)>, Problem> {
    set.iter().map(|(name, json)| Ok((name.clone(), value(&format!("set.{name}"), json)?))).collect()
}

/// A checkpoint of the files.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Save {
    /// What it is called.
    #[serde(default)]
    message: String,
}

pub(super) async fn save(call: Call) -> Answer {
    let Save { message } = call.taken()?;
    view(&status::save(&call.server.app, message, Capture::default()).await?)
}

/// Files that are to be reserved.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Take {
    /// Which.
    paths: Vec<PathBuf>,
    /// For reading only.
    #[serde(default)]
    read: bool,
    /// How many seconds it lasts.
    lasting_s: Option<u64>,
    /// On whose behalf.
    owner: String,
}

pub(super) async fn take(call: Call) -> Answer {
    let Take { paths, read, lasting_s, owner } = call.taken()?;
    let lasting = lasting_s.unwrap_or(600);
    if lasting > LONGEST {
        return Err(Problem::of_field("lasting_s", format!("it is at most {LONGEST}")));
    }
    let lasting = Duration::from_secs(lasting);
    let book = Book::open(&call.server.app).await?;
    let wanted = Reserve { paths, read, lasting, wait: Duration::ZERO, pid: None, owner };
    let leases = book.take(&wanted).await;
    book.close().await?;
    answer(StatusCode::OK, &json!({ "leases": as_json(&leases?)? }))
}

/// Files that needn't be reserved any more.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    /// Which.
    paths: Vec<PathBuf>,
    /// On whose behalf they were.
    owner: String,
}

pub(super) async fn release(call: Call) -> Answer {
    let Release { paths, owner } = call.taken()?;
    let book = Book::open(&call.server.app).await?;
    let leases = book.release(&paths, &owner).await;
    book.close().await?;
    answer(StatusCode::OK, &json!({ "leases": as_json(&leases?)? }))
}

/// Workers that are to take no more.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Drain {
    /// Which; all if none is named.
    name: Option<String>,
}

pub(super) async fn drain(call: Call) -> Answer {
    let Drain { name } = call.taken()?;
    let drained = queue::drain(&call.server.app, name.as_deref()).await?;
    answer(StatusCode::OK, &json!({ "drained": drained }))
}

/// The server, as the acts of other files need it.
pub(super) async fn drive_prepared(call: &Call, prepared: piton_app::runs::drive::Prepared) -> Result<RunId, Failure> {
    drive(&Arc::clone(&call.server), prepared).await
}
