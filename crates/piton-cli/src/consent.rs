//! Asking before something is changed for good: the plan is shown, then it is agreed to on a terminal, by `--yes`,
//! or not at all.

use std::io::{IsTerminal as _, Write as _};

use serde_json::json;

use crate::arguments::Consent;
use crate::failure::Failure;
use crate::session::Session;

/// What will be done.
#[derive(Debug)]
pub(crate) struct Plan {
    what: String,
    lines: Vec<String>,
}

impl Plan {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), lines: Vec::new() }
    }

    /// One thing that it entails. Must be [`clean`](crate::output::clean).
    pub(crate) fn line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// Shows the plan, and says whether to go on.
    pub(crate) fn agreed(&self, session: &Session, consent: Consent) -> Result<bool, Failure> {
        let text = std::iter::once(&self.what).chain(&self.lines).map(String::as_str).collect::<Vec<_>>().join("\n  ");
        if consent.dry_run {
            if session.output.is_json() {
                session.output.object(&json!({"plan": self.what, "entails": self.lines, "done": false}))?;
            } else {
                session.output.data(&text)?;
            }
            session.output.note("nothing was done");
            return Ok(false);
        }
        session.output.note(&text);
        if consent.yes {
            return Ok(true);
        }
        match answer("Go on? [y/N] ") {
            Some(answer) if ["y", "yes"].contains(&answer.to_lowercase().as_str()) => Ok(true),
            Some(_) => {
                session.output.note("nothing was done");
                Ok(false)
            }
            None => Err(Failure::refused("nobody can be asked here, and nothing was done")
                .hint("`--yes` goes on without asking, `--dry-run` shows what would be done.")),
        }
    }
}

/// A line from the terminal; `None` if there is none.
pub(crate) fn answer(prompt: &str) -> Option<String> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return None;
    }
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{prompt}").and_then(|()| stderr.flush()).ok()?;
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(read) if read > 0 => Some(line.trim().to_owned()),
        _ => None,
    }
}
