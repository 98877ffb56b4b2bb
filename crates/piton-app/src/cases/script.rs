//! A case with a script for the debugger (`debug.toml`, .yml or .json): where the run should stop and why, and what is
//! said there. It is played on a [`Session`] as a person would.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use piton_flow::{Phase, When};
use piton_types::{Value, from_json};
use serde::Deserialize;
use serde_json::Value as Json;

use super::case::Case;
use super::run::{Ended, execute};
use crate::debug::{Breakpoint, Breaks, Command, Console, Session};
use crate::failure::Failure;
use crate::views::debug::{ReplyView, StopView};

/// What the file says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    #[serde(default)]
    config: Config,
    /// One after the other.
    steps: Vec<Step>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    breakpoints: Vec<String>,
    break_on_start: bool,
    break_on_error: bool,
    /// For engines that show variables at each stop. Here they are there when they are asked for.
    #[serde(rename = "auto_snapshot")]
    _auto_snapshot: bool,
}

/// What should be seen at a stop, and what is done there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    expect_node: Option<String>,
    expect_reason: Option<String>,
    expect_phase: Option<Phase>,
    expect_error_contains: Option<String>,
    action: Action,
    /// Set before the action.
    add_breakpoint: Option<Added>,
    remove_breakpoint: Option<String>,
    /// For `to`.
    node: Option<String>,
    /// For `update_variables`.
    #[serde(default)]
    variables: BTreeMap<String, Value>,
    /// For `abort`.
    abort_reason: Option<String>,
    /// For `inspect`.
    #[serde(default)]
    expect_snapshot: bool,
    #[serde(default)]
    expect_snapshot_contains: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Step,
    Next,
    Continue,
    To,
    /// Looks at variables. The run still stands at the next step of the script.
    Inspect,
    /// Sets variables, and continues.
    UpdateVariables,
    /// Only breakpoints change. The run still stands at the next step of the script.
    Stay,
    Abort,
}

/// A breakpoint: the id of a node, or more.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Added {
    Before(String),
    At {
        node: String,
        #[serde(default)]
        phase: Phase,
        #[serde(default, rename = "if")]
        when: Option<When>,
    },
}

impl From<Added> for Breakpoint {
    fn from(added: Added) -> Self {
        match added {
            Added::Before(node) => Self::before(node),
            Added::At { node, phase, when } => Self { node, phase, when },
        }
    }
}

/// What ends a script early.
enum Cut {
    Differs(String),
    Aborted(String),
}

/// Plays the script. The run as it ended, and what differs from the script.
pub(super) async fn play(case: &Case, script: &Script, base: Option<&str>) -> Result<(Ended, Vec<String>), String> {
    let Ok(document) = &case.document else { return Ok((execute(case, base, None).await?, Vec::new())) };
    let config = &script.config;
    let breaks = Breaks {
        breakpoints: config.breakpoints.iter().map(Breakpoint::before).collect(),
        on_error: config.break_on_error,
        at_start: config.break_on_start,
    };
    let (session, console) =
        Session::new(document.clone(), breaks, None).map_err(|failure| format!("debug: {failure}"))?;
    let played = AtomicUsize::new(0);
    let mut run = pin!(execute(case, base, Some(session.as_ref())));
    let mut hand = pin!(script.say(console, &played));
    let cut = tokio::select! {
        biased;
        cut = &mut hand => cut,
        ended = &mut run => {
            let ended = ended?;
            let differences = match played.load(Ordering::Relaxed) {
                all if all == script.steps.len() => Vec::new(),
                played => vec![format!("step {}: the run ended, {}, without another stop", played + 1, ended.status)],
            };
            return Ok((ended, differences));
        }
    };
    Ok(match cut {
        Cut::Differs(line) => (Ended::failed(&"the script was left"), vec![line]),
        Cut::Aborted(reason) => (Ended::failed(&format!("aborted: {reason}")), Vec::new()),
    })
}

impl Script {
    /// Says it all, counts what was played, and then sees to it that the run stops nowhere else.
    async fn say(&self, mut console: Console, played: &AtomicUsize) -> Cut {
        let mut at: Option<StopView> = None;
        for (place, step) in self.steps.iter().enumerate() {
            let number = place + 1;
            let stop = match at.take() {
                Some(stop) => stop,
                None => match console.next_stop().await {
                    Some(stop) => stop,
                    None => return Cut::Differs(format!("step {number}: the session is over")),
                },
            };
            let mut differences = step.differences(&stop);
            if differences.is_empty() {
                // The run may end as soon as it goes on.
                played.store(number, Ordering::Relaxed);
                match step.act(&console).await {
                    Ok(found) => differences = found,
                    Err(failure) => differences.push(failure.to_string()),
                }
            }
            if !differences.is_empty() {
                return Cut::Differs(format!("step {number}: {}", differences.join("; ")));
            }
            match step.action {
                Action::Abort => {
                    let reason = step.abort_reason.as_deref().unwrap_or("by the debugger");
                    return Cut::Aborted(reason.to_owned());
                }
                Action::Inspect | Action::Stay => at = Some(stop),
                _ => {}
            }
        }
        if at.is_some() {
            return Cut::Differs("the script ends while the run stands".to_owned());
        }
        match console.next_stop().await {
            Some(stop) => Cut::Differs(format!("the script is over, and the run stopped again: {}", told(&stop))),
            // The run ends.
            None => std::future::pending().await,
        }
    }
}

impl Step {
    fn differences(&self, stop: &StopView) -> Vec<String> {
        let mut found = Vec::new();
        if self.expect_node.is_some() && self.expect_node != stop.node
            || self.expect_phase.is_some() && self.expect_phase != stop.phase
            || self.expect_reason.as_deref().is_some_and(|reason| reason != stop.reason.as_str())
        {
            let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "any".to_owned());
            let phase = self.expect_phase.map_or_else(|| "any".to_owned(), |phase| format!("{phase:?}").to_lowercase());
            found.push(format!(
                "expected a stop at node {}, phase {phase}, reason {}; it stopped at {}",
                word(&self.expect_node),
                word(&self.expect_reason),
                told(stop)
            ));
        }
        if let Some(wanted) = &self.expect_error_contains
            && !stop.error.as_ref().is_some_and(|error| error.contains(wanted))
        {
            found.push(format!("expected an error with {wanted:?}, got {:?}", stop.error));
        }
        found
    }

    /// Does what is to be done there, and says what differs.
    async fn act(&self, console: &Console) -> Result<Vec<String>, Failure> {
        if let Some(added) = &self.add_breakpoint {
            console.say(Command::Break(added.clone().into())).await?;
        }
        if let Some(node) = &self.remove_breakpoint {
            console.say(Command::Clear { node: Some(node.clone()) }).await?;
        }
        let command = match self.action {
            Action::Step => Command::Step,
            Action::Next => Command::Next,
            Action::Continue => Command::Continue,
            Action::To => Command::To { node: self.node.clone().unwrap_or_default() },
            Action::UpdateVariables => {
                console.say(Command::Set { variables: self.variables.clone() }).await?;
                Command::Continue
            }
            Action::Inspect => return self.inspect(console).await,
            Action::Stay | Action::Abort => return Ok(Vec::new()),
        };
        console.say(command).await?;
        Ok(Vec::new())
    }

    async fn inspect(&self, console: &Console) -> Result<Vec<String>, Failure> {
        let mut found = Vec::new();
        if self.expect_snapshot {
            console.say(Command::Variables { name: None }).await?;
        }
        for (name, wanted) in &self.expect_snapshot_contains {
            let ReplyView::Variables { variables } =
                console.say(Command::Variables { name: Some(name.clone()) }).await?
            else {
                continue;
            };
            if !is_like(&variables, wanted) {
                found.push(format!("variable {name}: expected {wanted:?}, got {variables}"));
            }
        }
        Ok(found)
    }
}

fn is_like(shown: &Json, wanted: &Value) -> bool {
    from_json(shown.to_string().as_bytes()).is_ok_and(|shown| shown == *wanted)
}

fn told(stop: &StopView) -> String {
    let phase = stop.phase.map_or_else(|| "none".to_owned(), |phase| format!("{phase:?}").to_lowercase());
    format!("node {}, phase {phase}, reason {}", stop.node.as_deref().unwrap_or("none"), stop.reason.as_str())
}
