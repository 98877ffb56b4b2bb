//! A program and all that it starts, as one thing that can be killed.

use std::io;
use std::process::ExitStatus;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::platform;

/// A started program. Dropping it kills it, with whatever it has started and left in its process group.
#[derive(Debug)]
pub struct Process {
    /// Before the leader, which isn't reaped until then. It is killed when it is dropped.
    _group: platform::Group,
    child: Child,
}

impl Process {
    /// Starts a program in a process group of its own. It is killed when this process dies, unless it
    /// changes its user on start (set-user-id): the kernel forgets the wish then.
    ///
    /// # Errors
    ///
    /// What the system says if it can't be started.
    pub async fn start(mut command: Command) -> io::Result<Self> {
        platform::prepare(&mut command);
        Self::start_prepared(command).await
    }

    /// Starts a program that is prepared to die with us.
    pub(crate) async fn start_prepared(mut command: Command) -> io::Result<Self> {
        command.kill_on_drop(true);
        let (group, child) = platform::spawn(command).await?;
        Ok(Self { _group: group, child })
    }

    /// Where it reads, if that was asked for as a pipe and not taken before.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Where it writes.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Where it complains.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }
}
