//! What a person at the terminal says: a line, or one that isn't shown.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use crate::failure::Failure;

/// No passphrase is longer.
const LONGEST: u64 = 4096;

/// Whether a person can be asked.
pub(crate) fn has_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// A line from the terminal; `None` if there is none.
pub(crate) fn answer(prompt: &str) -> Option<String> {
    if !has_terminal() {
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

/// A line that isn't shown; `None` if there is no terminal. The bytes are what the terminal sends.
pub(crate) fn ask_hidden(prompt: &str) -> Result<Option<Vec<u8>>, Failure> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = std::io::stdin();
    let mut stderr = std::io::stderr();
    if !has_terminal() {
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
