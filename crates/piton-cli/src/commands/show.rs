//! `piton show`: a run, a checkpoint or other entry, a step or a value, whichever it is given.

use piton::{History, QuestionRecord, StepRecord};
use piton_store::{RunLog, SealedEntry, StoreError};
use piton_types::{BlobId, RunState, RunSummary, Timestamp, Value, from_value};
use serde_json::{Map, Value as Json, json};

use crate::arguments::Show;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::{Table, cut, took};
use crate::view;
use piton_app::references::{Target, resolve};
use piton_app::runs::usage::{self, cost_text, usage_json};

pub(crate) async fn execute(session: &Session, arguments: &Show) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let target = resolve(session, &store, &arguments.reference).await?;
    if arguments.steps && !matches!(target, Target::Run(_)) {
        return Err(Failure::usage(format!("--steps needs a run, and {} isn't one", arguments.reference)));
    }
    match target {
        Target::Run(log) => show_run(session, &log, arguments.steps).await?,
        Target::Entry(log, entry) => show_entry(session, &log, &entry).await?,
        Target::Step(log, entry) => show_step(session, &log, &entry).await?,
        Target::Blob(id, value) => show_blob(session, id, &value)?,
    }
    store.close().await?;
    Ok(Exit::Done)
}

async fn show_run(session: &Session, log: &RunLog, steps: bool) -> Result<(), Failure> {
    let summary = log.summary().await?;
    let history = History::read(log).await?;
    let checkpoint = history.checkpoint.as_ref().map(|(seq, _)| format!("{}@{seq}", log.run()));
    let used = match &history.checkpoint {
        Some((_, parts)) => usage::of_parts(log, parts).await?,
        None => None,
    };
    if session.output.is_json() {
        let mut object = view::run_json(&summary);
        object.extend(view::object(view::result_json(&history.state)));
        object.insert("checkpoint".to_owned(), json!(checkpoint));
        let took = history.duration(session.clock()).map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        object.insert("duration_ms".to_owned(), json!(took));
        object.insert("recovery_attempts".to_owned(), json!(history.recovery_attempts()));
        object.insert("usage".to_owned(), usage_json(used));
        object.insert("questions".to_owned(), history.questions.iter().map(question_json).collect());
        object.insert("finished_steps".to_owned(), json!(finished(&history)));
        if steps {
            object.insert("steps".to_owned(), history.steps.iter().map(step_json).map(Json::Object).collect());
        }
        return session.output.object(&Json::Object(object));
    }
    let mut fields = run_text(session, &summary, &history, checkpoint);
    if let Some(used) = used {
        fields.add("used", &format!("{} tokens, cost {}", used.total(), cost_text(Some(used))));
    }
    session.output.data(&fields.render())?;
    if steps && !history.steps.is_empty() {
        session.output.data(&format!("\n{}", steps_table(session, &history.steps).render(session.output.width())))?;
    }
    Ok(())
}

/// How many steps are done for good.
fn finished(history: &History) -> usize {
    history.steps.iter().filter(|step| step.is_finished()).count()
}

fn run_text<'s>(
    session: &'s Session,
    summary: &RunSummary,
    history: &History,
    checkpoint: Option<String>,
) -> Fields<'s> {
    let mut fields = Fields::new(session);
    fields.add("run", summary.id.as_str());
    fields.add("name", &summary.name);
    fields.add("status", summary.status.as_str());
    fields.time("created", summary.created_at);
    fields.time("updated", summary.updated_at);
    if let Some(parent) = &summary.parent {
        fields.add("parent", &parent.to_string());
    }
    if let Some(folder) = &summary.folder {
        fields.add("folder", folder);
    }
    fields.add("checkpoint", checkpoint.as_deref().unwrap_or("none"));
    fields.add("steps", &format!("{} finished", finished(history)));
    if let Some(duration) = history.duration(session.clock()) {
        fields.add("took", &took(duration));
    }
    match history.recovery_attempts() {
        0 => {}
        attempts => fields.add("recovered", &format!("{attempts} times")),
    }
    match &history.state {
        RunState::Completed(done) => fields.value("outputs", &done.output),
        RunState::Failed(failed) => fields.add("error", &failed.message),
        RunState::Waiting(waiting) if history.questions.is_empty() => fields.add("question", &waiting.prompt),
        RunState::Waiting(_) => {
            for question in &history.questions {
                fields.add("question", &format!("{}: {}", question.path, question.prompt));
            }
        }
        RunState::Paused(paused) => fields.add("reason", &paused.reason),
        RunState::Cancelled { reason, .. } => fields.add("reason", reason),
        RunState::Queued(_) | RunState::InProgress(_) => {}
    }
    fields
}

fn steps_table(session: &Session, steps: &[StepRecord]) -> Table {
    let mut table = Table::with_heading(&["STEP", "WHEN", "TOOK", "TRY", "RESULT"]);
    for step in steps {
        table.row(vec![
            clean(step.path.as_str()),
            session.age(step.started_at),
            took(std::time::Duration::from_millis(step.duration_ms)),
            step.attempt.to_string(),
            match &step.error {
                Some(error) => format!("failed: {}", clean(error)),
                None => view::value_line(&step.output),
            },
        ]);
    }
    table
}

async fn show_entry(session: &Session, log: &RunLog, entry: &SealedEntry) -> Result<(), Failure> {
    let body = view::told(log.body(entry).await?);
    let mut state = Vec::new();
    for (name, part) in &entry.parts {
        state.push((name.0.clone(), log.load(part).await?));
    }
    if session.output.is_json() {
        let mut object = view::entry_json(log.run(), entry);
        object.insert("hash".to_owned(), json!(entry.hash.to_string()));
        object.insert("body".to_owned(), view::value_json(&body));
        let state = state.iter().map(|(name, value)| (name.clone(), view::value_json(value)));
        object.insert("state".to_owned(), Json::Object(state.collect()));
        return session.output.object(&Json::Object(object));
    }
    let mut fields = Fields::new(session);
    let word = if entry.parts.is_empty() { "entry" } else { "checkpoint" };
    fields.add(word, &view::entry_id(log.run(), entry).to_string());
    fields.add("kind", view::kind_word(entry.kind));
    if !entry.label.is_empty() {
        fields.add("label", &entry.label);
    }
    fields.time("created", entry.at);
    for (name, part) in &entry.parts {
        fields.add("part", &format!("{}  {} {}  {}", name.0, part.schema, part.version, part.root));
    }
    if body != Value::Null {
        fields.value("body", &body);
    }
    for (name, value) in &state {
        fields.value(name, value);
    }
    session.output.data(&fields.render())
}

async fn show_step(session: &Session, log: &RunLog, entry: &SealedEntry) -> Result<(), Failure> {
    let body = log.body(entry).await?;
    let id = view::entry_id(log.run(), entry).to_string();
    let step: StepRecord =
        from_value(body).map_err(|error| StoreError::corrupt(format!("the body of entry {id}"), error.to_string()))?;
    if session.output.is_json() {
        let mut object = view::object([("id", json!(id)), ("run", json!(log.run().as_str()))]);
        object.extend(step_json(&step));
        return session.output.object(&Json::Object(object));
    }
    let mut fields = Fields::new(session);
    fields.add("step", step.path.as_str());
    fields.add("run", log.run().as_str());
    fields.add("entry", &id);
    fields.add("status", status(&step));
    fields.add("try", &step.attempt.to_string());
    fields.time("started", step.started_at);
    fields.add("took", &format!("{} ms", step.duration_ms));
    fields.value("input", &step.input);
    match &step.error {
        Some(error) => fields.add("error", error),
        None => fields.value("output", &step.output),
    }
    session.output.data(&fields.render())
}

fn question_json(question: &QuestionRecord) -> Json {
    json!({"step": question.path.as_str(), "prompt": question.prompt, "timeout_at": question.deadline.as_ref().map(|deadline| view::time_json(deadline.at))})
}

fn status(step: &StepRecord) -> &'static str {
    if step.is_finished() { "completed" } else { "failed" }
}

fn step_json(step: &StepRecord) -> Map<String, Json> {
    view::object([
        ("step", json!(step.path.as_str())),
        ("index", json!(step.index)),
        ("status", json!(status(step))),
        ("attempt", json!(step.attempt)),
        ("created_at", view::time_json(step.started_at)),
        ("duration_ms", json!(step.duration_ms)),
        ("input", view::value_json(&step.input)),
        ("output", view::value_json(&step.output)),
        ("error", json!(step.error)),
    ])
}

fn show_blob(session: &Session, id: BlobId, value: &Value) -> Result<(), Failure> {
    if session.output.is_json() {
        return session.output.object(&json!({"id": id.to_string(), "value": view::value_json(value)}));
    }
    session.output.data(&view::value_text(value))
}

/// Names and values below one another.
struct Fields<'s> {
    session: &'s Session,
    lines: Vec<(String, String)>,
}

impl<'s> Fields<'s> {
    fn new(session: &'s Session) -> Self {
        Self { session, lines: Vec::new() }
    }

    fn add(&mut self, name: &str, text: &str) {
        self.lines.push((clean(name), clean(text)));
    }

    fn time(&mut self, name: &str, at: Timestamp) {
        self.add(name, &format!("{at} ({})", self.session.age(at)));
    }

    /// A value beside its name if it is short, else below it.
    fn value(&mut self, name: &str, value: &Value) {
        let line = view::value_line(value);
        let text = if line.len() <= 60 { line } else { format!("\n{}", view::value_text(value)) };
        self.lines.push((clean(name), text));
    }

    fn render(&self) -> String {
        let width = self.lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let lines = self.lines.iter().map(|(name, text)| match text.strip_prefix('\n') {
            Some(below) => {
                format!("{name}\n{}", below.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n"))
            }
            None => {
                let line = format!("{name:width$}  {text}");
                self.session.output.width().map_or_else(|| line.clone(), |columns| cut(&line, columns))
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
