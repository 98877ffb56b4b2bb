//! `piton status`: what changed in the folder since its newest checkpoint, which runs want a person, and where the
//! store is.

use piton_app::files::status::status;
use piton_app::views::files::{ChangeView, StatusView};
use piton_workspace::ChangeKind;

use crate::arguments::files::Status;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table;

/// How many changes are named.
const NAMED: usize = 50;

pub(crate) async fn execute(session: &Session, arguments: &Status) -> Result<Exit, Failure> {
    let output = &session.output;
    let view = status(session, arguments.capture.into(), arguments.excluded, output.is_json()).await?;
    if output.is_json() {
        output.view(&view)?;
    } else {
        output.data(&output.pasted(&lines(session, &view, arguments.excluded).join("\n")))?;
    }
    Ok(Exit::Done)
}

fn lines(session: &Session, view: &StatusView, excluded: bool) -> Vec<String> {
    let most = view.budget.map_or_else(String::new, |budget| format!(" of at most {}", table::size(budget)));
    let mut lines = vec![
        format!("folder      {}", clean(&view.folder)),
        format!("store       {} ({}{most})", view.store, table::size(view.bytes)),
    ];
    for run in &view.standing_still {
        let name = session.names().of(run);
        lines.push(format!("paused      {name} stands still, the same lines changed upstream: {}", goes_on_by(&name)));
    }
    if view.waiting > 0 {
        let whose = if view.waiting == 1 { "1 run waits" } else { &format!("{} runs wait", view.waiting) };
        lines.push(format!("questions   {whose} for an answer: `piton ls --waiting`"));
    }
    if view.failed > 0 {
        lines.push(format!("failed      {}: `piton ls --failed`", table::count(view.failed, "run")));
    }
    let Some((checkpoint, at)) = view.checkpoint.as_ref().zip(view.created_at) else {
        lines.push("checkpoint  none of these files yet: `piton save` makes one".to_owned());
        return lines;
    };
    let label = if view.label.is_empty() {
        String::new()
    } else {
        format!("  {}", session.names().shorten(&clean(&view.label)))
    };
    lines.push(format!("checkpoint  {} ({}){label}", session.named(checkpoint), session.age(at)));
    let by = match view.made_by {
        "unattributed" => ", unattributed: during an agent's turn, but in none of its tool calls",
        "agent" => ", while an agent is at work",
        _ => "",
    };
    lines.push(match view.changes.len() {
        0 => "changes     none since then".to_owned(),
        n => format!("changes     {n} since then{by}"),
    });
    lines.extend(view.changes.iter().take(NAMED).map(|change| format!("  {}", change_line(change))));
    if view.changes.len() > NAMED {
        lines.push(format!("  … {} more: `piton diff --stat @` shows all", view.changes.len() - NAMED));
    }
    if !excluded && view.not_captured > 0 {
        lines.push(format!(
            "not captured  {}: `piton status --excluded` shows them",
            table::count(usize::try_from(view.not_captured).unwrap_or(usize::MAX), "name")
        ));
    }
    lines.extend(view.excluded.iter().map(|one| format!("  {}: {}", clean(&one.path), one.reason.as_str())));
    lines
}

/// The command that lets a program go on that stands still.
pub(crate) fn goes_on_by(run: &str) -> String {
    format!("`piton drift --run {run} --resolve user-handled` lets it go on")
}

/// A letter and the path, as git's short form has it.
pub(crate) fn change_line(change: &ChangeView) -> String {
    let path = format!("{}{}", clean(&change.path), if change.is_folder { "/" } else { "" });
    match (&change.from, change.kind) {
        (Some(from), _) => format!("R {} → {path}", clean(from)),
        (_, ChangeKind::Created) => format!("A {path}"),
        (_, ChangeKind::Deleted) => format!("D {path}"),
        (_, ChangeKind::ModeChanged) => format!("P {path}"),
        _ => format!("M {path}"),
    }
}
