//! The user's pager, which their environment names: a long list goes through it on a terminal.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Shows a text; `false` if there is no such pager.
pub(crate) fn show(pager: &str, text: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", pager]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Ends by itself if all of it fits, keeps colours, and leaves what was read on the screen.
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    // A reader that has seen enough is no error.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()).and_then(|()| stdin.write_all(b"\n")));
    // The shell's word for a program that isn't there.
    child.wait().is_ok_and(|ended| ended.code() != Some(127))
}
