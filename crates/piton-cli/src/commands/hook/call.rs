//! `piton hook call`: one event of an agent.
//!
//! Never stops the agent, and never speaks to its model: whatever goes wrong is a message for the user, and the
//! exit code is 0.

use std::io::Read as _;

use piton_runtime::calling_program;
use piton_runtime::danger::{Classifier, Operation};
use piton_types::{RunId, Value, from_json};
use piton_workspace::{Reports, ToolFailure, Workspace};
use serde_json::{Value as Json, json};

use crate::failure::{Exit, Failure, render};
use crate::session::Session;
use piton_app::files::Capture;
use piton_app::files::open;
use piton_app::store::keeping;

/// The largest event that is read.
const MAX_EVENT: u64 = 64 << 20;
/// The largest answer of a tool that is kept, in bytes of JSON. Some repeat the whole file.
const MAX_OUTPUT: usize = 10 << 10;

/// An event, as far as it matters.
#[derive(Debug, serde::Deserialize)]
struct Event {
    session_id: String,
    hook_event_name: String,
    #[serde(default)]
    prompt: String,
    #[serde(default)]
    tool_name: String,
    #[serde(default)]
    tool_input: Json,
    #[serde(default)]
    tool_response: Json,
    #[serde(default)]
    tool_use_id: Option<String>,
    #[serde(default)]
    error: Json,
}

pub(crate) async fn execute(session: &Session) -> Exit {
    if let Err(failure) = report(session).await {
        let message = format!("piton made no checkpoint\n{}", render(&failure, str::to_owned));
        session.output.note(&message);
        // The agent shows this to its user. If it can't be written there is no reader to tell.
        let _ = session.output.object(&json!({ "systemMessage": message }));
    }
    Exit::Done
}

async fn report(session: &Session) -> Result<(), Failure> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(MAX_EVENT)
        .read_to_string(&mut text)
        .map_err(|error| Failure::fixable("the event can't be read").because(&error))?;
    let event: Event = serde_json::from_str(&text)
        .map_err(|error| Failure::fixable("the event is none of Claude Code's").because(&error))?;
    let input = value(&event.tool_input);
    let begins_or_ends_a_tool =
        matches!(event.hook_event_name.as_str(), "PreToolUse" | "PostToolUse" | "PostToolUseFailure");
    // What only reads needs no checkpoint; most calls are of that kind.
    let operation = Operation::Tool { name: &event.tool_name, input: &input };
    if begins_or_ends_a_tool && !Classifier::default().classify(operation).is_dangerous() {
        return Ok(());
    }
    let store = session.store_or_create().await?;
    let workspace = open(session, &store, Capture::default()).await?;
    let reports = reports(session, &workspace, &event).await?;
    let call = event.tool_use_id.as_deref();
    match event.hook_event_name.as_str() {
        "UserPromptSubmit" => drop(reports.turn_begins(&event.prompt).await?),
        "PreToolUse" => drop(reports.tool_begins(&event.tool_name, call, input).await?),
        "PostToolUse" => drop(reports.tool_ended(&event.tool_name, call, Ok(kept(&event.tool_response))).await?),
        "PostToolUseFailure" => {
            let message = event.error.as_str().map_or_else(|| event.error.to_string(), str::to_owned);
            let failure = ToolFailure { message, recoverable: true };
            drop(reports.tool_ended(&event.tool_name, call, Err(failure)).await?);
        }
        "Stop" => {
            drop(reports.turn_ended().await?);
            keeping::in_passing(session, &store).await;
        }
        "SessionEnd" => reports.end().await?,
        other => session.output.detail(&format!("{other} is no event that matters")),
    }
    store.close().await?;
    Ok(())
}

/// The session that it is about: that of `piton guard` if the agent runs under it, else one of its own.
async fn reports(session: &Session, workspace: &Workspace, event: &Event) -> Result<Reports, Failure> {
    let around = session.variable("PITON_RUN").and_then(|run| run.parse::<RunId>().ok());
    if let Some(run) = around
        && workspace.is_driven(&run).await?
    {
        return Ok(Reports::within(workspace, run).await?);
    }
    let name = format!("claude-{}", event.session_id);
    let run = RunId::for_foreign(&name, |name| *blake3::hash(name).as_bytes());
    let input = Value::Map([("session_id".to_owned(), Value::from(event.session_id.as_str()))].into());
    Ok(Reports::of(workspace, &run, "Claude Code", input, calling_program()).await?)
}

fn value(json: &Json) -> Value {
    // What is beyond our numbers is kept as text.
    from_json(json.to_string().as_bytes()).unwrap_or_else(|_| Value::from(json.to_string()))
}

/// What is kept of a tool's answer.
fn kept(json: &Json) -> Value {
    let text = json.to_string();
    if text.len() <= MAX_OUTPUT { value(json) } else { Value::from(format!("{} bytes, not kept", text.len())) }
}
