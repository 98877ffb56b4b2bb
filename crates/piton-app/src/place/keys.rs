//! Where the key of an encrypted store comes from: a file, a program (such as the one that asks the system's
//! keyring), a variable, or a person whom the shell asks. Keys are bytes; no encoding is asked of a passphrase.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use piton_store::Key;

use crate::failure::Failure;
use crate::shell::Shell;

/// The variables by which keys are given. No program that Piton starts for a document or a user gets them.
pub const KEY_VARIABLES: [&str; 3] = ["PITON_KEY_FILE", "PITON_KEY_COMMAND", "PITON_PASSPHRASE"];

/// What was said about keys: options first, then the environment.
#[derive(Clone, Default)]
pub struct KeySources {
    /// `--key-file`.
    pub option: Option<PathBuf>,
    /// `PITON_KEY_FILE`.
    pub file: Option<PathBuf>,
    /// `PITON_KEY_COMMAND`: a shell command that prints the key or the passphrase.
    pub command: Option<OsString>,
    /// `PITON_PASSPHRASE`.
    pub passphrase: Option<OsString>,
}

impl KeySources {
    /// The key file that was named.
    pub fn named_file(&self) -> Option<&Path> {
        self.option.as_deref().or(self.file.as_deref())
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.named_file().is_none() && self.command.is_none() && self.passphrase.is_none()
    }

    /// The key of a store that is encrypted.
    pub fn key(&self, shell: &dyn Shell) -> Result<Key, Failure> {
        if let Some(file) = self.named_file() {
            return Ok(Key::read_file(file)?);
        }
        if let Some(command) = &self.command {
            return from_command(command);
        }
        if let Some(passphrase) = &self.passphrase {
            return Ok(Key::passphrase(passphrase.clone().into_vec())?);
        }
        match shell.passphrase("Passphrase of the store: ")? {
            Some(passphrase) => Ok(Key::passphrase(passphrase)?),
            None => Err(Failure::fixable("the store is encrypted, and no key was given").hint(
                "name its key file with `--key-file FILE` or PITON_KEY_FILE, a program that prints the key with \
                 PITON_KEY_COMMAND, or give the passphrase in PITON_PASSPHRASE.",
            )),
        }
    }

    /// A passphrase for a store that is to have one. A person is asked for it twice.
    pub fn new_passphrase(&self, shell: &dyn Shell) -> Result<Key, Failure> {
        if let Some(passphrase) = &self.passphrase {
            return Ok(Key::passphrase(passphrase.clone().into_vec())?);
        }
        let no_person = || {
            Failure::refused("there is no person here to be asked for a passphrase")
                .hint("give it in PITON_PASSPHRASE, or use `--key-file FILE`.")
        };
        let first = shell.passphrase("New passphrase of the store: ")?.ok_or_else(no_person)?;
        if shell.passphrase("The same once more: ")?.ok_or_else(no_person)? != first {
            return Err(Failure::fixable("the two passphrases differ, and nothing was done"));
        }
        Ok(Key::passphrase(first)?)
    }
}

impl std::fmt::Debug for KeySources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeySources").field("file", &self.named_file()).finish_non_exhaustive()
    }
}

/// The key in a file; if there is none, a new one is made and written there.
pub fn read_or_make(path: &Path) -> Result<(Key, bool), Failure> {
    if path.symlink_metadata().is_ok() {
        return Ok((Key::read_file(path)?, false));
    }
    let key = Key::generate(&piton_runtime::SystemRandom);
    key.write_file(path)?;
    Ok((key, true))
}

fn from_command(command: &OsString) -> Result<Key, Failure> {
    let failed = |why: &str| Failure::fixable(format!("PITON_KEY_COMMAND {why}"));
    let output =
        Command::new("/bin/sh").arg("-c").arg(command).stdin(Stdio::inherit()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| failed("can't be run").because(&error))?;
    if !output.status.success() {
        return Err(failed("failed").hint("what it printed is above; it must print the key and end with 0."));
    }
    let mut text = output.stdout;
    while text.ends_with(b"\n") || text.ends_with(b"\r") {
        text.pop();
    }
    match text.starts_with(b"PITON-KEY-") {
        true => Ok(Key::from_text(&text)?),
        false => Ok(Key::passphrase(text)?),
    }
}
