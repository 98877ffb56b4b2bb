//! Where the key of an encrypted store comes from: a file, a program (such as the one that asks the system's
//! keyring), a variable, or whoever sits at the terminal. Keys are bytes; no encoding is asked of a passphrase.

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use piton_store::Key;

use crate::failure::Failure;

/// No key, and no passphrase, is longer.
const LONGEST: u64 = 4096;

/// What was said about keys: options first, then the environment.
#[derive(Clone, Default)]
pub(crate) struct KeySources {
    /// `--key-file`.
    pub(crate) option: Option<PathBuf>,
    /// `PITON_KEY_FILE`.
    pub(crate) file: Option<PathBuf>,
    /// `PITON_KEY_COMMAND`: a shell command that prints the key or the passphrase.
    pub(crate) command: Option<OsString>,
    /// `PITON_PASSPHRASE`.
    pub(crate) passphrase: Option<OsString>,
}

impl KeySources {
    /// The key file that was named.
    pub(crate) fn named_file(&self) -> Option<&Path> {
        self.option.as_deref().or(self.file.as_deref())
    }

    /// Whether nothing was said.
    pub(crate) fn is_empty(&self) -> bool {
        self.named_file().is_none() && self.command.is_none() && self.passphrase.is_none()
    }

    /// The key of a store that is encrypted.
    pub(crate) fn key(&self) -> Result<Key, Failure> {
        if let Some(file) = self.named_file() {
            return Ok(Key::read_file(file)?);
        }
        if let Some(command) = &self.command {
            return from_command(command);
        }
        if let Some(passphrase) = &self.passphrase {
            return Ok(Key::passphrase(passphrase.clone().into_vec())?);
        }
        match ask("Passphrase of the store: ")? {
            Some(passphrase) => Ok(Key::passphrase(passphrase)?),
            None => Err(Failure::fixable("the store is encrypted, and no key was given").hint(
                "name its key file with `--key-file FILE` or PITON_KEY_FILE, a program that prints the key with \
                 PITON_KEY_COMMAND, or give the passphrase in PITON_PASSPHRASE.",
            )),
        }
    }

    /// A passphrase for a store that is to have one. On a terminal it is asked for twice.
    pub(crate) fn new_passphrase(&self) -> Result<Key, Failure> {
        if let Some(passphrase) = &self.passphrase {
            return Ok(Key::passphrase(passphrase.clone().into_vec())?);
        }
        let nobody = || {
            Failure::refused("nobody can be asked for a passphrase here")
                .hint("give it in PITON_PASSPHRASE, or use `--key-file FILE`.")
        };
        let first = ask("New passphrase of the store: ")?.ok_or_else(nobody)?;
        if ask("The same once more: ")?.ok_or_else(nobody)? != first {
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
pub(crate) fn read_or_make(path: &Path) -> Result<(Key, bool), Failure> {
    if path.symlink_metadata().is_ok() {
        return Ok((Key::read_file(path)?, false));
    }
    let key = Key::generate(&piton::SystemRandom);
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

/// A line that isn't shown; `None` if there is no terminal. The bytes are what the terminal sends.
fn ask(prompt: &str) -> Result<Option<Vec<u8>>, Failure> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = std::io::stdin();
    let mut stderr = std::io::stderr();
    if !(stdin.is_terminal() && stderr.is_terminal()) {
        return Ok(None);
    }
    let failed =
        |error: rustix::io::Errno| Failure::fixable("the terminal can't be told not to show it").because(&error);
    let before = tcgetattr(&stdin).map_err(failed)?;
    let mut hidden = before.clone();
    hidden.local_modes -= LocalModes::ECHO;
    tcsetattr(&stdin, OptionalActions::Flush, &hidden).map_err(failed)?;
    let _ = write!(stderr, "{prompt}").and_then(|()| stderr.flush());
    let mut line = Vec::new();
    let read = std::io::Read::take(stdin.lock(), LONGEST).read_until(b'\n', &mut line);
    let back = tcsetattr(&stdin, OptionalActions::Flush, &before);
    let _ = writeln!(stderr);
    read.map_err(|error| Failure::fixable("the passphrase can't be read").because(&error))?;
    back.map_err(failed)?;
    while line.ends_with(b"\n") || line.ends_with(b"\r") {
        line.pop();
    }
    Ok(Some(line))
}
