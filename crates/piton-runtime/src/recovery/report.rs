//! The validation report (C6).

use std::fmt;

use piton_types::CheckpointRef;
use serde::Serialize;

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// Its fields and shapes.
    Structure,
    /// Its bytes.
    Integrity,
    /// What is around it.
    Environment,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Going on may not give what was wanted.
    Warning,
    /// Going on will not work, or do harm.
    Error,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Where.
    pub area: Area,
    /// How bad.
    pub severity: Severity,
    /// What, in words.
    pub message: String,
}

/// What was found about a checkpoint and its surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValidationReport {
    /// Which; `None` if there is none that is whole.
    pub checkpoint: Option<CheckpointRef>,
    /// What isn't as it should be, in the order of the areas.
    pub findings: Vec<Finding>,
    /// How many things were looked at.
    pub checks: u32,
}

impl ValidationReport {
    /// The worst of it.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Whether nothing stands against going on.
    pub fn is_sound(&self) -> bool {
        self.worst() < Some(Severity::Error)
    }

    pub(super) fn add(&mut self, area: Area, severity: Severity, message: impl Into<String>) {
        self.findings.push(Finding { area, severity, message: message.into() });
    }
}

impl fmt::Display for ValidationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.checkpoint {
            Some(checkpoint) => write!(f, "checkpoint {checkpoint}: {} checks", self.checks)?,
            None => write!(f, "no whole checkpoint: {} checks", self.checks)?,
        }
        if self.findings.is_empty() {
            return f.write_str(", all well");
        }
        for Finding { area, severity, message } in &self.findings {
            let area = match area {
                Area::Structure => "structure",
                Area::Integrity => "integrity",
                Area::Environment => "environment",
            };
            let severity = match severity {
                Severity::Info => "info",
                Severity::Warning => "warning",
                Severity::Error => "error",
            };
            write!(f, "\n{severity}: {area}: {message}")?;
        }
        Ok(())
    }
}
