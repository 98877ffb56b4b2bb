//! `piton show`: a run, a checkpoint or other entry, a step or a value, whichever it is given.

use std::time::Duration;

use piton_app::runs::show::{Shown, show};
use piton_app::views::entry::WholeEntry;
use piton_app::views::files::FileDiff;
use piton_app::views::run::{ProgressView, StepView, UsageView, WholeRun, WholeStep};
use piton_types::{RunKind, RunState, RunStatus, Timestamp};
use serde_json::Value as Json;

use crate::arguments::Show;
use crate::commands::diff::file_text;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::{Table, count, cut, took};
use crate::view::{check_line, cost_text, kind_word, people_text, state_code, value_line, value_text};

/// How many files are named.
const NAMED: usize = 20;

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
                output.data(&format!("\n{}", steps_table(session, run.run.kind, steps).render(output.width())))?;
            }
        }
        Shown::Entry(entry) => {
            let mut text = entry_text(session, entry).render();
            for change in entry.change.iter().flat_map(|change| &change.changes) {
                text.push_str(&format!("\n\n{}", file_text(session, change, false)));
            }
            session.paged(&text)?;
        }
        Shown::Step(step) => output.data(&step_text(session, step).render())?,
        Shown::File(file) => output.bytes(&file.content)?,
        Shown::Blob(blob) if output.width().is_some() => session.paged(&people_text(&blob.value))?,
        Shown::Blob(blob) => output.data(&value_text(&blob.value))?,
    }
    Ok(Exit::Done)
}

fn run_text<'s>(session: &'s Session, whole: &WholeRun) -> Fields<'s> {
    let mut fields = Fields::new(session);
    let run = &whole.run;
    fields.add("run", &session.called(&run.id));
    if session.called(&run.id) != run.id.as_str() {
        fields.add("id", run.id.as_str());
    }
    fields.add("name", &run.name);
    fields.state(run.status);
    fields.time("created", run.created_at);
    fields.time("updated", run.updated_at);
    if let Some(parent) = &run.parent {
        fields.add("parent", &session.named(parent));
    }
    if let Some(folder) = &run.folder {
        fields.add("folder", folder);
    }
    fields.add("checkpoint", &whole.checkpoint.as_ref().map_or_else(|| "none".to_owned(), |at| session.named(at)));
    fields.add("steps", &format!("{} finished", whole.finished_steps));
    if let Some(millis) = whole.duration_ms {
        fields.add("took", &took(Duration::from_millis(millis)));
    }
    match whole.recovery_attempts {
        0 => {}
        attempts => fields.add("recovered", &count(attempts as usize, "time")),
    }
    if whole.priority != 0 {
        fields.add("priority", &whole.priority.to_string());
    }
    if let Some(complexity) = whole.estimated_complexity {
        fields.add("complexity", &complexity.to_string());
    }
    if let Some(progress) = &whole.progress {
        progress_lines(&mut fields, progress);
    }
    for check in &whole.verification {
        fields.add("check", &check_line(check));
    }
    for file in whole.files_modified.iter().take(NAMED) {
        fields.add("modified", file);
    }
    if whole.files_modified.len() > NAMED {
        fields.add("modified", &format!("… {} more", whole.files_modified.len() - NAMED));
    }
    if let Some(instructions) = &whole.resume_instructions {
        fields.add("to go on", instructions);
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
    fields.used(whole.usage);
    fields
}

fn progress_lines(fields: &mut Fields<'_>, progress: &ProgressView) {
    if let Some(current) = &progress.current {
        let at = progress.step.as_ref().map(ToString::to_string).filter(|step| step != current);
        let round = (progress.iteration > 0).then(|| format!("round {}", progress.iteration));
        let more: Vec<String> = at.into_iter().chain(round).collect();
        let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
        fields.add("at", &format!("{current}{more}"));
    }
    let percent = progress.percent.map(|percent| format!("{percent} %"));
    let parts: Vec<String> = percent.into_iter().chain(progress.last_progress.clone()).collect();
    if !parts.is_empty() {
        fields.add("progress", &parts.join(", "));
    }
}

fn steps_table(session: &Session, kind: RunKind, steps: &[StepView]) -> Table {
    let is_paid = steps.iter().any(|step| step.usage != UsageView::default());
    let paid: &[&str] = if is_paid { &["TOKENS", "COST"] } else { &[] };
    // Of a guarded agent it says more what was asked of its tools than what they answered.
    let asked = |step| asked_of_tool(step).filter(|_| kind == RunKind::Guard);
    let what = if steps.iter().any(|step| asked(step).is_some()) { "WHAT" } else { "RESULT" };
    let mut table = Table::with_heading(&[&["STEP", "WHEN", "TOOK", "TRY"], paid, &[what]].concat());
    for step in steps {
        let mut row = vec![
            clean(step.step.as_str()),
            session.age(step.created_at),
            took(Duration::from_millis(step.duration_ms)),
            step.attempt.to_string(),
        ];
        if is_paid {
            row.extend([step.usage.total.to_string(), cost_text(Some(step.usage))]);
        }
        row.push(match &step.error {
            _ if step.undone => "undone".to_owned(),
            Some(error) => format!("failed: {}", clean(error)),
            None => asked(step).map_or_else(|| value_line(&step.output), clean),
        });
        table.row(row);
    }
    table
}

/// What a coding agent asked of a tool, or its user of it, as far as a line tells that.
fn asked_of_tool(step: &StepView) -> Option<&str> {
    let named = ["command", "file_path", "prompt"].iter().find_map(|name| step.input.get(name)?.as_str());
    // Of a prompt the input is what was said.
    let text = named.or_else(|| step.input.as_str().filter(|_| step.output.is_null()))?;
    text.lines().find(|line| !line.trim().is_empty())
}

fn entry_text<'s>(session: &'s Session, whole: &WholeEntry) -> Fields<'s> {
    let mut fields = Fields::new(session);
    let entry = &whole.entry;
    fields.add(if entry.checkpoint { "checkpoint" } else { "entry" }, &session.named(&entry.id));
    fields.add("kind", kind_word(entry.kind));
    if !entry.label.is_empty() {
        fields.add("label", &session.names().shorten(&entry.label));
    }
    if whole.undone {
        fields.add("undone", "the run was put back to before it");
    }
    fields.time("created", entry.created_at);
    let Some(change) = &whole.change else {
        for (name, part) in &entry.parts {
            fields.add("part", &format!("{}  {} {}  {}", name.0, part.schema, part.version, part.root));
        }
        if whole.body != Json::Null {
            fields.value("body", &whole.body);
        }
        for (name, value) in &whole.state {
            fields.value(name, value);
        }
        return fields;
    };
    // Of a checkpoint of files what it changed matters; `--json` has the rest.
    let input = ["command", "file_path"].into_iter().find_map(|name| whole.body["input"].get(name)?.as_str());
    if let Some(input) = input.or_else(|| whole.body["input"].as_str()) {
        fields.add("did", input);
    }
    let lines = |count: fn(&FileDiff) -> Option<usize>| change.changes.iter().filter_map(count).sum::<usize>();
    let (added, removed) = (lines(|file| file.added), lines(|file| file.removed));
    let files = count(change.changes.iter().filter(|file| file.is_file).count(), "file");
    fields.add("changed", &format!("+{added} −{removed} in {files} since {}", session.named(&change.from)));
    for (name, value) in whole.state.iter().filter(|(name, _)| *name != "workspace") {
        fields.value(name, value);
    }
    fields
}

fn step_text<'s>(session: &'s Session, whole: &WholeStep) -> Fields<'s> {
    let mut fields = Fields::new(session);
    let step = &whole.step;
    fields.add("step", step.step.as_str());
    fields.add("run", &session.called(&whole.run));
    fields.add("entry", &session.named(&whole.id));
    fields.add("status", if step.undone { "undone" } else { step.status });
    fields.add("try", &step.attempt.to_string());
    fields.time("started", step.created_at);
    fields.add("took", &took(Duration::from_millis(step.duration_ms)));
    fields.used(Some(step.usage));
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

    /// How a run stands, in its colour.
    fn state(&mut self, status: RunStatus) {
        let (word, code) = (status.as_str(), state_code(status));
        self.lines.push((
            "status".to_owned(),
            match self.session.output.has_colour() && !code.is_empty() {
                true => format!("\x1b[{code}m{word}\x1b[0m"),
                false => word.to_owned(),
            },
        ));
    }

    fn time(&mut self, name: &str, at: Timestamp) {
        self.add(name, &format!("{at} ({})", self.session.age(at)));
    }

    fn used(&mut self, usage: Option<UsageView>) {
        if let Some(used) = usage.filter(|used| *used != UsageView::default()) {
            let cost = if used.cost > 0.0 { format!(", cost {}", cost_text(Some(used))) } else { String::new() };
            self.add("used", &format!("{}{cost}", count(usize::try_from(used.total).unwrap_or(usize::MAX), "token")));
        }
    }

    /// A value beside its name if it is short, else below it.
    fn value(&mut self, name: &str, value: &Json) {
        let line = value_line(value);
        let is_long = line.len() > 60;
        let text = match self.session.output.width() {
            // A program that reads along gets JSON.
            None if is_long => format!("\n{}", value_text(value)),
            Some(_) if is_long || value.is_object() => format!("\n{}", people_text(value)),
            _ => line,
        };
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
