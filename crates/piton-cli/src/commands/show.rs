//! `piton show`: a run, a checkpoint or other entry, a step or a value, whichever it is given.

use std::time::Duration;

use piton_app::runs::show::{Shown, show};
use piton_app::views::entry::WholeEntry;
use piton_app::views::run::{StepView, WholeRun, WholeStep};
use piton_types::{RunState, Timestamp};
use serde_json::Value as Json;

use crate::arguments::Show;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::{Table, cut, took};
use crate::view::{cost_text, kind_word, value_line, value_text};

pub(crate) async fn execute(session: &Session, arguments: &Show) -> Result<Exit, Failure> {
    let shown = show(session, &arguments.reference, arguments.steps).await?;
    let output = &session.output;
    if output.is_json() {
        output.view(&shown)?;
        return Ok(Exit::Done);
    }
    match &shown {
        Shown::Run(run) => {
            output.data(&run_text(session, run).render())?;
            if let Some(steps) = run.steps.as_ref().filter(|steps| !steps.is_empty()) {
                output.data(&format!("\n{}", steps_table(session, steps).render(output.width())))?;
            }
        }
        Shown::Entry(entry) => output.data(&entry_text(session, entry).render())?,
        Shown::Step(step) => output.data(&step_text(session, step).render())?,
        Shown::Blob(blob) => output.data(&value_text(&blob.value))?,
    }
    Ok(Exit::Done)
}

fn run_text<'s>(session: &'s Session, whole: &WholeRun) -> Fields<'s> {
    let mut fields = Fields::new(session);
    let run = &whole.run;
    fields.add("run", run.id.as_str());
    fields.add("name", &run.name);
    fields.add("status", run.status.as_str());
    fields.time("created", run.created_at);
    fields.time("updated", run.updated_at);
    if let Some(parent) = &run.parent {
        fields.add("parent", &parent.to_string());
    }
    if let Some(folder) = &run.folder {
        fields.add("folder", folder);
    }
    fields.add("checkpoint", &whole.checkpoint.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string));
    fields.add("steps", &format!("{} finished", whole.finished_steps));
    if let Some(millis) = whole.duration_ms {
        fields.add("took", &took(Duration::from_millis(millis)));
    }
    match whole.recovery_attempts {
        0 => {}
        attempts => fields.add("recovered", &format!("{attempts} times")),
    }
    match &whole.state {
        RunState::Completed(_) => fields.value("outputs", &whole.outputs),
        RunState::Failed(failed) => fields.add("error", &failed.message),
        RunState::Waiting(waiting) if whole.questions.is_empty() => fields.add("question", &waiting.prompt),
        RunState::Waiting(_) => {
            for question in &whole.questions {
                fields.add("question", &format!("{}: {}", question.step, question.prompt));
            }
        }
        RunState::Paused(paused) => fields.add("reason", &paused.reason),
        RunState::Cancelled { reason, .. } => fields.add("reason", reason),
        RunState::Queued(_) | RunState::InProgress(_) => {}
    }
    if let Some(used) = whole.usage {
        fields.add("used", &format!("{} tokens, cost {}", used.total, cost_text(Some(used))));
    }
    fields
}

fn steps_table(session: &Session, steps: &[StepView]) -> Table {
    let mut table = Table::with_heading(&["STEP", "WHEN", "TOOK", "TRY", "RESULT"]);
    for step in steps {
        table.row(vec![
            clean(step.step.as_str()),
            session.age(step.created_at),
            took(Duration::from_millis(step.duration_ms)),
            step.attempt.to_string(),
            match &step.error {
                Some(error) => format!("failed: {}", clean(error)),
                None => value_line(&step.output),
            },
        ]);
    }
    table
}

fn entry_text<'s>(session: &'s Session, whole: &WholeEntry) -> Fields<'s> {
    let mut fields = Fields::new(session);
    let entry = &whole.entry;
    fields.add(if entry.checkpoint { "checkpoint" } else { "entry" }, &entry.id.to_string());
    fields.add("kind", kind_word(entry.kind));
    if !entry.label.is_empty() {
        fields.add("label", &entry.label);
    }
    fields.time("created", entry.created_at);
    for (name, part) in &entry.parts {
        fields.add("part", &format!("{}  {} {}  {}", name.0, part.schema, part.version, part.root));
    }
    if whole.body != Json::Null {
        fields.value("body", &whole.body);
    }
    for (name, value) in &whole.state {
        fields.value(name, value);
    }
    fields
}

fn step_text<'s>(session: &'s Session, whole: &WholeStep) -> Fields<'s> {
    let mut fields = Fields::new(session);
    let step = &whole.step;
    fields.add("step", step.step.as_str());
    fields.add("run", whole.run.as_str());
    fields.add("entry", &whole.id.to_string());
    fields.add("status", step.status);
    fields.add("try", &step.attempt.to_string());
    fields.time("started", step.created_at);
    fields.add("took", &format!("{} ms", step.duration_ms));
    fields.value("input", &step.input);
    match &step.error {
        Some(error) => fields.add("error", error),
        None => fields.value("output", &step.output),
    }
    fields
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
    fn value(&mut self, name: &str, value: &Json) {
        let line = value_line(value);
        let text = if line.len() <= 60 { line } else { format!("\n{}", value_text(value)) };
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
