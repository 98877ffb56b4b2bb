//! `piton ls`: the runs of a folder, or of all, newest first.

use std::collections::BTreeMap;
use std::time::Duration;

use piton_app::runs::list::{ListRuns, RunQuery, Which, list};
use piton_app::views::run::ListedRun;
use piton_types::{RunKind, Timestamp};

use crate::arguments::Ls;
use crate::commands::status::goes_on_by;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::{Table, cut, took};
use crate::view::{cost_text, state_code, value_line};

/// A shorter wait isn't worth a column.
const NOTED: u64 = 60_000;
/// How many columns a step may have.
const STEP: usize = 20;
/// How many columns the value of an input may have.
const INPUT: usize = 24;

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
        // One more than is shown tells whether there is more.
        limit: Some(arguments.limit.saturating_add(usize::from(!arguments.all))),
        ..RunQuery::default()
    };
    let mut runs = list(session, ListRuns { which, everywhere: arguments.all, query }).await?;
    let more = !arguments.all && runs.len() > arguments.limit;
    if more {
        runs.truncate(arguments.limit);
    }
    let output = &session.output;
    if output.is_json() {
        output.list(&runs)?;
    } else if runs.is_empty() {
        output.note("nothing to show");
    } else {
        show(session, which, &runs, arguments.kind.is_some())?;
        if more {
            let limit = arguments.limit;
            output.note(&format!("these are the newest {limit}; `-n {}` shows more", limit.max(1) * 4));
        }
    }
    Ok(Exit::Done)
}

fn show(session: &Session, which: Which, runs: &[ListedRun], files: bool) -> Result<(), Failure> {
    let last = match which {
        Which::Waiting => "QUESTION",
        Which::Failed => "ERROR",
        Which::All | Which::Stalled => "WHAT",
    };
    // The log of a folder's files is no work that somebody began.
    let runs: Vec<&ListedRun> = runs.iter().filter(|listed| files || listed.run.is_work()).collect();
    let is_paid = runs.iter().any(|listed| listed.usage.is_some_and(|used| used.cost > 0.0));
    let waited = |listed: &ListedRun| listed.worked_ms.map(|worked| listed.duration_ms.saturating_sub(worked));
    let has_waited = runs.iter().any(|listed| waited(listed).is_some_and(|millis| millis >= NOTED));
    let mut heading = vec!["RUN", "STATE", "STEP", "WHEN", "WORKED"];
    heading.extend(has_waited.then_some("WAITED"));
    heading.extend(is_paid.then_some("COST"));
    heading.push(last);
    let output = &session.output;
    let mut table = Table::with_heading(&heading).coloured(output.has_colour());
    for (depth, listed) in tree(&runs) {
        let (word, code) = state(listed);
        let indent = if depth == 0 { String::new() } else { format!("{}└ ", "  ".repeat(depth - 1)) };
        let mut cells = vec![
            format!("{indent}{}", clean(&listed.run.short)),
            clean(&word),
            listed.step.as_deref().map_or_else(|| "-".to_owned(), |step| cut(&clean(step), STEP)),
            session.age(listed.run.updated_at),
            took(Duration::from_millis(listed.worked_ms.unwrap_or(listed.duration_ms))),
        ];
        if has_waited {
            let millis = waited(listed).filter(|millis| *millis >= NOTED);
            cells.push(millis.map_or_else(|| "-".to_owned(), |millis| took(Duration::from_millis(millis))));
        }
        if is_paid {
            cells.push(cost_text(listed.usage));
        }
        let detail = listed.damaged.as_ref().or(listed.question.as_ref()).or(listed.error.as_ref());
        cells.push(detail.map_or_else(|| what(listed), |detail| clean(detail)));
        table.row(cells);
        table.paint(1, code);
        for more in listed.questions.iter().flatten().skip(1) {
            let mut cells = vec![String::new(); heading.len() - 1];
            cells.push(clean(&format!("{}: {}", more.step, more.prompt)));
            table.row(cells);
        }
    }
    session.paged(&table.render(output.width()))?;
    if let Some(listed) = runs.iter().find(|listed| listed.damaged.is_some()) {
        let id = &listed.run.id;
        output.note(&format!("part of a damaged run can't be read: `piton check` says what, `piton resume {id} --fallback` goes on past it"));
    }
    if let Some(listed) = runs.iter().find(|listed| listed.stands_still) {
        output.note(&format!("the same lines changed upstream: {}", goes_on_by(listed.run.id.as_str())));
    }
    if let Some(listed) = runs.iter().find(|listed| listed.stalled) {
        let (id, is_guard) = (&listed.run.id, listed.run.kind == RunKind::Guard);
        let (verb, what) = if is_guard { ("undo", "takes back what it did") } else { ("resume", "goes on with it") };
        output.note(&format!("the process that drove a stalled run is dead: `piton {verb} {id}` {what}"));
    }
    Ok(())
}

/// How a run stands in a word, with its worker, and its colour.
fn state(listed: &ListedRun) -> (String, &'static str) {
    let queue = listed.queue.as_ref();
    let worker = queue.and_then(|queue| queue.worker.as_ref().map(|worker| format!(", {worker}")));
    let attempt = queue.filter(|queue| queue.attempts > 1).map(|queue| format!(", attempt {}", queue.attempts));
    let (status, code) = match () {
        () if listed.damaged.is_some() => ("damaged".to_owned(), "31"),
        () if listed.stalled => ("stalled".to_owned(), "35"),
        () if listed.stands_still => ("standing still".to_owned(), "33"),
        () => (listed.run.status.to_string(), state_code(listed.run.status)),
    };
    ([Some(status), worker, attempt].into_iter().flatten().collect(), code)
}

/// What a run is called, with what it was started with.
fn what(listed: &ListedRun) -> String {
    let mut text = clean(&listed.run.name);
    for (name, value) in listed.inputs.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value_line(value), |text| clean(text.trim_end()));
        text.push_str(&format!("  {}={}", clean(name), cut(&value, INPUT)));
    }
    text
}

/// Forks below the run that they branched off, if it is listed too; else in the order of the list. With their depth.
fn tree<'l>(runs: &[&'l ListedRun]) -> Vec<(usize, &'l ListedRun)> {
    let parent = |listed: &ListedRun| {
        let parent = &listed.run.parent.as_ref()?.run;
        runs.iter().position(|other| other.run.id == *parent)
    };
    let mut children: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut roots = Vec::new();
    for (place, listed) in runs.iter().enumerate() {
        match parent(listed) {
            Some(parent) => children.entry(parent).or_default().push(place),
            None => roots.push(place),
        }
    }
    let mut ordered = Vec::new();
    let mut open: Vec<(usize, usize)> = roots.into_iter().rev().map(|place| (0, place)).collect();
    while let Some((depth, place)) = open.pop() {
        ordered.push((depth, runs[place]));
        open.extend(children.remove(&place).unwrap_or_default().into_iter().rev().map(|child| (depth + 1, child)));
    }
    ordered
}
