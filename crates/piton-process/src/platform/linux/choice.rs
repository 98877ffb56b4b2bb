//! Which means there are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::{bubblewrap, kernel};
use crate::job::{Job, ProcessError};
use crate::process::Process;
use crate::sandbox::{Means, Sandbox, Unavailable};

/// How a job is shut in.
#[derive(Debug)]
pub(crate) enum Confinement {
    Bubblewrap,
    Kernel,
}

impl Confinement {
    /// The command that runs the job in its sandbox.
    pub(crate) fn command(&self, sandbox: &Sandbox, job: &Job) -> Result<Command, ProcessError> {
        let command = match self {
            Self::Bubblewrap => bubblewrap::command(sandbox, job).map_err(Unavailable::Bubblewrap),
            Self::Kernel => kernel::command(sandbox, job).map_err(Unavailable::Kernel),
        };
        command.map_err(ProcessError::from)
    }
}

/// The means that this sandbox allows and this system has.
pub(crate) async fn choose(sandbox: &Sandbox) -> Result<Confinement, Unavailable> {
    let wrapped = match sandbox.means {
        Means::Any | Means::Bubblewrap => bubblewrap_works(sandbox).await,
        Means::Kernel => Err("it wasn't asked for".to_owned()),
    };
    let reason = match (wrapped, sandbox.means) {
        (Ok(()), _) => return Ok(Confinement::Bubblewrap),
        (Err(reason), Means::Bubblewrap) => return Err(Unavailable::Bubblewrap(reason)),
        (Err(reason), _) if sandbox.processes => return Err(Unavailable::Processes(reason)),
        (Err(reason), _) => reason,
    };
    match (kernel::works(), sandbox.means) {
        (Ok(()), _) => Ok(Confinement::Kernel),
        (Err(kernel), Means::Kernel) => Err(Unavailable::Kernel(kernel)),
        (Err(kernel), _) => Err(Unavailable::Nothing { bubblewrap: reason, kernel }),
    }
}

/// What came of trying each bubblewrap; it costs some milliseconds, and doesn't change under us.
static TRIED: Mutex<BTreeMap<PathBuf, Result<(), String>>> = Mutex::new(BTreeMap::new());

/// Runs `true` in a sandbox: that it is installed doesn't mean that it may make namespaces, nor that it is new enough.
async fn bubblewrap_works(sandbox: &Sandbox) -> Result<(), String> {
    let path = &sandbox.bubblewrap;
    let poisoned = "the lock is only held to look at the map";
    if let Some(known) = TRIED.lock().expect(poisoned).get(path) {
        return known.clone();
    }
    let works = attempt(sandbox).await;
    TRIED.lock().expect(poisoned).insert(path.clone(), works.clone());
    works
}

async fn attempt(sandbox: &Sandbox) -> Result<(), String> {
    let plain = Sandbox { bubblewrap: sandbox.bubblewrap.clone(), ..Sandbox::for_command() };
    let mut command = bubblewrap::command(&plain, &Job::new("/usr/bin/true"))?;
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut process =
        Process::start_prepared(command).await.map_err(|error| format!("{}: {error}", sandbox.bubblewrap.display()))?;
    match timeout(Duration::from_secs(10), process.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => {
            Err(format!("{} ended with {status}; it should be version 0.7 or newer", sandbox.bubblewrap.display()))
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("{} doesn't end", sandbox.bubblewrap.display())),
    }
}
