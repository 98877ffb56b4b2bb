//! Other systems: a program is killed when its [`crate::Process`] is dropped, but if this process is
//! killed itself, it lives on, and so does what it has started. There is no sandbox.

use std::io;
use std::process::ExitStatus;

use tokio::process::{Child, Command};

use crate::job::{Job, ProcessError};
use crate::sandbox::{Sandbox, Unavailable};

/// Nothing to prepare.
pub(crate) fn prepare(_command: &mut Command) {}

/// Starts a program.
pub(crate) async fn spawn(mut command: Command) -> io::Result<(Group, Child)> {
    command.spawn().map(|child| (Group, child))
}

/// The exit code, or -1 if there is none.
#[cfg_attr(target_os = "linux", expect(unreachable_pub, reason = "the platform in use exports its own"))]
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or(-1)
}

/// A process group, which isn't one here.
#[derive(Debug)]
pub(crate) struct Group;

/// How a job is shut in: not at all.
#[derive(Debug)]
pub(crate) enum Confinement {}

impl Confinement {
    pub(crate) fn command(&self, _sandbox: &Sandbox, _job: &Job) -> Result<Command, ProcessError> {
        match *self {}
    }
}

/// Always refuses.
pub(crate) async fn choose(_sandbox: &Sandbox) -> Result<Confinement, Unavailable> {
    Err(Unavailable::Platform)
}
