//! Secrets in files: files are never rewritten, so a file with a secret is captured and named, or left out and
//! listed, as the policy of the store says.

use std::sync::atomic::{AtomicBool, Ordering};

use piton_store::{Hashing, Redaction, SecretFiles};
use piton_types::BlobId;

use crate::WorkspaceError;
use crate::content::Sink;

/// Looks at the contents of one file on their way. A secret that lies across two pieces of a large file isn't seen.
pub(crate) struct Watch<'a> {
    sink: &'a dyn Sink,
    redaction: Option<&'a Redaction>,
    found: AtomicBool,
}

impl<'a> Watch<'a> {
    /// Looks at the file of this name, if the policy says so.
    pub(crate) fn new(sink: &'a dyn Sink, name: &[u8]) -> Self {
        let redaction = sink.redaction().filter(|redaction| match redaction.secret_files() {
            SecretFiles::Capture => false,
            SecretFiles::Likely => is_likely(name),
            SecretFiles::Report | SecretFiles::Exclude => true,
        });
        Self { sink, redaction, found: AtomicBool::new(false) }
    }

    /// Whether a secret was found.
    pub(crate) fn found(&self) -> bool {
        self.found.load(Ordering::Relaxed)
    }

    /// Whether the file is to be left out for it.
    pub(crate) fn refuses(&self) -> bool {
        self.found() && self.redaction.is_some_and(|redaction| redaction.secret_files() == SecretFiles::Exclude)
    }
}

/// Whether a file of this name, without its folders, is made to hold secrets.
pub fn is_likely(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    const NAMES: [&[u8]; 8] =
        [b".netrc", b".npmrc", b".pypirc", b".pgpass", b".envrc", b"credentials", b"credentials.json", b"id_rsa"];
    const ENDINGS: [&[u8]; 4] = [b".pem", b".key", b".env", b".tfvars"];
    name.starts_with(b".env")
        || name.starts_with(b"secrets.")
        || name.starts_with(b"id_")
        || NAMES.contains(&&name[..])
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

impl Sink for Watch<'_> {
    fn hashing(&self) -> &Hashing {
        self.sink.hashing()
    }

    fn content(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError> {
        if self.redaction.is_some_and(|redaction| redaction.has_secret(bytes)) {
            self.found.store(true, Ordering::Relaxed);
        }
        match self.refuses() {
            // It is named, so that the file can be read to its end, but doesn't get into the store.
            true => Ok(self.sink.hashing().blob(bytes)),
            false => self.sink.content(bytes),
        }
    }

    fn node(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError> {
        self.sink.node(bytes)
    }
}
