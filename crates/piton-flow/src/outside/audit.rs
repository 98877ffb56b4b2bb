//! A record of what nodes did outside: one JSON object a line, written before the deed. A durable run has the same
//! lines in its own log, where they are with the entry of the node.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use piton_types::{RunId, StepPath, Timestamp, to_json, to_value};
use serde::Serialize;

/// Why something couldn't be written down.
pub type AuditError = Box<dyn std::error::Error + Send + Sync>;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditKind {
    /// A program was run.
    Command,
    /// Code was run.
    Code,
    /// Something was asked for over HTTP.
    Http,
    /// A model was asked.
    Model,
    /// A tool was called.
    Tool,
    /// A credential was used.
    Credential,
    /// Something was refused.
    Refused,
    /// A checkpoint was saved.
    CheckpointSaved,
    /// A run went on.
    Resumed,
    /// A run went on although its surroundings changed, because the caller said so.
    ForceResumeWithChanges,
}

/// One line. It names things and never has their content.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditEntry {
    /// When.
    pub at: Timestamp,
    /// In which run.
    pub run: RunId,
    /// By which node.
    pub step: StepPath,
    /// What.
    pub kind: AuditKind,
    /// Which program, host, model, tool, group.
    pub detail: String,
}

/// Where entries go: a file, a store, both.
pub trait Audit: Send + Sync {
    /// Keeps an entry. What it is about isn't done unless this returns `Ok`.
    fn record(&self, entry: &AuditEntry) -> Result<(), AuditError>;
}

/// A file of JSON lines, readable by its owner only, only ever added to.
pub struct AuditFile(Mutex<File>);

impl fmt::Debug for AuditFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditFile")
    }
}

impl AuditFile {
    /// Opens or makes the file.
    ///
    /// # Errors
    ///
    /// What the system says; and if the file exists and others may read or write it.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            if file.metadata()?.mode() & 0o077 != 0 {
                let message = "the audit log is readable by others; chmod 600 it";
                return Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, message));
            }
        }
        Ok(Self(Mutex::new(file)))
    }
}

impl AuditEntry {
    /// It as one line of JSON.
    pub(crate) fn line(&self) -> Result<String, AuditError> {
        Ok(to_json(&to_value(self)?)?.to_string())
    }
}

impl Audit for AuditFile {
    fn record(&self, entry: &AuditEntry) -> Result<(), AuditError> {
        let mut line = entry.line()?;
        line.push('\n');
        // One write for one line: lines of several processes don't mix.
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())?)
    }
}
