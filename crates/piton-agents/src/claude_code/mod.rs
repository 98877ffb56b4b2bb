//! Claude Code: its hooks are commands in its settings, each called with an event as JSON on stdin.

pub(crate) mod settings;

use serde::Deserialize;
use serde_json::Value as Json;

use crate::report::{Happening, Report, ReportError, kept, value};

/// Where it looks in a folder: what the project shares, and what is the user's alone.
pub(crate) const FILES: [&str; 2] = [".claude/settings.json", ".claude/settings.local.json"];

/// By these words a command is told to be ours, wherever the program is.
const CALL: &str = " hook call claude-code";

/// The command of a hook. It ends well whatever happens, a `piton` that doesn't know the verb included: an end with 2
/// would stop the agent.
pub(crate) fn command(program: &str) -> String {
    format!(r#"{program} -C "$CLAUDE_PROJECT_DIR"{CALL} || true"#)
}

/// An event, as far as it matters.
#[derive(Debug, Deserialize)]
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

/// What an event says.
pub(crate) fn report(text: &str) -> Result<Report, ReportError> {
    let event: Event =
        serde_json::from_str(text).map_err(|source| ReportError::Foreign { agent: "Claude Code", source })?;
    let (tool, call) = (event.tool_name, event.tool_use_id);
    let input = value(&event.tool_input);
    let happening = match event.hook_event_name.as_str() {
        "UserPromptSubmit" => Happening::TurnBegins { prompt: event.prompt },
        "PreToolUse" => Happening::ToolBegins { tool, call, input },
        "PostToolUse" => Happening::ToolEnded { tool, call, input, outcome: Ok(kept(&event.tool_response)) },
        "PostToolUseFailure" => {
            let message = event.error.as_str().map_or_else(|| event.error.to_string(), str::to_owned);
            Happening::ToolEnded { tool, call, input, outcome: Err(message) }
        }
        "Stop" => Happening::TurnEnded,
        "SessionEnd" => Happening::SessionEnded,
        _ => Happening::Other { name: event.hook_event_name },
    };
    Ok(Report { session: event.session_id, happening })
}
