//! A guarded program doesn't outlive the process that guards it: what it does after that would be in no checkpoint, and
//! nothing could stop it.
//!
//! A keeper waits until its input ends, which it does however this process dies. It ends the program itself; what the
//! program has started in turn is the program's affair, as when a terminal is closed.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

/// Ends a program when the input ends without a word; after a word it goes in peace.
const KEEPER: &str = r#"trap "" HUP INT QUIT TERM
if read -r _; then exit 0; fi
kill -TERM "$1" 2>/dev/null || exit 0
kill -CONT "$1" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$1" 2>/dev/null || exit 0; sleep 0.5; done
kill -KILL "$1" 2>/dev/null"#;

/// Waits for the end of this process, or of the program.
pub(super) struct Keeper(Child);

impl Keeper {
    /// For a program of ours that has just been started. Without a shell there is none.
    pub(super) fn of(program: Pid) -> Option<Self> {
        let mut keeper = Command::new("/bin/sh");
        // In a group of its own: what kills ours must not reach it.
        keeper.args(["-c", KEEPER, "piton-keeper", &program.as_raw_nonzero().to_string()]).process_group(0);
        keeper.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        keeper.spawn().ok().map(Self)
    }
}

impl Drop for Keeper {
    /// The program has ended, and its number may be another's by now.
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            let _ = input.write_all(b"ended\n");
        }
        let _ = self.0.wait();
    }
}
