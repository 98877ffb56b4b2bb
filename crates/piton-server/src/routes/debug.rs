//! Debugging a run: a session begins on it, stops are told as they come, and commands are said to the run that stands.

use piton_app::debug::{Breakpoint, Breaks, Command};
use piton_app::runs::resume::{ResumeRun, prepare};
use piton_app::{Failure, FailureKind};
use piton_runtime::recovery::CannotAsk;
use piton_types::RunId;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::acts::started;
use super::{Answer, Call, view};
use crate::debugs::Desk;
use crate::drives;
use crate::problem::Problem;
use crate::stream::events;

/// Where a debugged run stops.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Stops {
    /// Before or after nodes.
    #[schemars(schema_with = "breakpoints")]
    breakpoints: Vec<Breakpoint>,
    /// After nodes that fail.
    on_error: bool,
}

impl Stops {
    pub(super) fn breaks(self) -> Breaks {
        Breaks { breakpoints: self.breakpoints, on_error: self.on_error, at_start: true }
    }
}

/// A run that is to go on under a debugger.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Begin {
    /// Where it stops, beside the first node.
    #[serde(default)]
    stops: Stops,
    /// Go on although its surroundings changed.
    #[serde(default)]
    force: bool,
}

fn breakpoints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["node"],
            "properties": {
                "node": { "type": "string", "description": "The id of a node, or its place in the run." },
                "phase": { "enum": ["before", "after"] },
                "if": { "type": "string", "description": "A condition, as in `fetch.status > 299`." },
            },
        },
    })
}

/// The schema of a command.
pub(super) fn command(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "What the commands of `piton debug` say.",
        "required": ["command"],
        "properties": {
            "command": { "enum": [
                "break", "on_error", "clear", "step", "next", "continue", "to", "variables", "set", "back", "state", "quit",
            ] },
            "node": { "type": "string", "description": "Of `break`, `clear` and `to`." },
            "phase": { "enum": ["before", "after"], "description": "Of `break`." },
            "if": { "type": "string", "description": "Of `break`: a condition." },
            "on": { "type": "boolean", "description": "Of `on_error`." },
            "name": { "type": "string", "description": "Of `variables`: a node, or NODE.VARIABLE." },
            "variables": { "type": "object", "description": "Of `set`: values by NODE.VARIABLE." },
            "to": { "type": "string", "description": "Of `back`: a step, or the number of an entry." },
        },
    })
}

pub(super) async fn begin(call: Call) -> Answer {
    let Begin { stops, force } = call.taken()?;
    let wanted = ResumeRun { force, config: call.server.config.clone(), ..ResumeRun::of(call.part("run")?) };
    let prepared = prepare(&call.server.app, &wanted, &CannotAsk).await?;
    let notice = prepared.notice.clone();
    let run = drives::debug(&call.server, prepared, stops.breaks()).await.map_err(breakpoint)?;
    started(&run, notice.as_deref())
}

/// A node that isn't there is one of a breakpoint.
pub(super) fn breakpoint(failure: Failure) -> Problem {
    let is_node = failure.kind() == FailureKind::NotFound && failure.title().starts_with("there is no node");
    let problem = Problem::from(failure);
    if is_node { problem.field("breakpoints") } else { problem }
}

pub(super) async fn session(call: Call) -> Answer {
    let run: RunId = call.part("run")?;
    let desk = call.server.drives.desk(&run);
    if !call.accepts("text/event-stream") {
        return view(&*desk.ok_or_else(|| none(&run))?.seen().borrow());
    }
    events(&call.server, move |sink| async move {
        let mut seen = desk.as_ref().map(Desk::seen);
        // The stream mustn't keep the session: only who speaks to it does.
        drop(desk);
        while let Some(changes) = &mut seen {
            let now = serde_json::to_value(&*changes.borrow_and_update()).unwrap_or_default().to_string();
            sink.send("seen", None, &now).await?;
            if sink.while_there(changes.changed()).await?.is_err() {
                break;
            }
        }
        sink.send("end", None, "{}").await
    })
}

fn none(run: &RunId) -> Problem {
    Failure::not_found(format!("run {run} isn't being debugged by this server")).into()
}

pub(super) async fn say(call: Call) -> Answer {
    let run: RunId = call.part("run")?;
    let command: Command = call.taken()?;
    let to_blame = match &command {
        Command::Break(_) | Command::Clear { .. } | Command::To { .. } => Some("node"),
        Command::Variables { .. } => Some("name"),
        Command::Set { .. } => Some("variables"),
        Command::Back { .. } => Some("to"),
        _ => None,
    };
    let desk = call.server.drives.desk(&run).ok_or_else(|| none(&run))?;
    match desk.say(command).await {
        Ok(reply) => view(&reply),
        Err(failure) => {
            let at_field = matches!(failure.kind(), FailureKind::NotFound | FailureKind::Usage | FailureKind::Fixable);
            let problem = Problem::from(failure);
            Err(match to_blame.filter(|_| at_field) {
                Some(field) => problem.field(field),
                None => problem,
            })
        }
    }
}
