//! Other systems: a program is killed when the node that started it is given up, but if this process
//! is killed itself, it lives on.

use std::io;
use std::process::ExitStatus;

use tokio::process::{Child, Command};

/// Starts a program.
pub(crate) async fn spawn(mut command: Command) -> io::Result<Child> {
    command.spawn()
}

/// The exit code, or -1 if there is none.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or(-1)
}
