//! Resource limits, and who the program runs as.

use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, geteuid, setrlimit};
use tokio::process::Command;

use crate::job::Limits;

/// The user that owns nothing.
const NOBODY: u32 = 65534;

/// Open files, which is plenty for code and little for an attack.
const MAX_OPEN: u64 = 256;

/// Limits as they are set between fork and exec: numbers only, nothing that allocates.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResourceLimits(Limits);

impl From<Limits> for ResourceLimits {
    fn from(limits: Limits) -> Self {
        Self(limits)
    }
}

impl ResourceLimits {
    /// Sets them for the process that calls. Makes system calls only.
    pub(super) fn apply(self) -> io::Result<()> {
        let set = |resource, value| setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
        set(Resource::As, self.0.memory)?;
        set(Resource::Fsize, self.0.file)?;
        set(Resource::Nofile, MAX_OPEN)?;
        set(Resource::Core, 0)?;
        // The backstop should we be unable to kill it: no more processor time than twice its time.
        if let Some(time) = self.0.time {
            set(Resource::Cpu, time.saturating_mul(2).saturating_add(Duration::from_secs(1)).as_secs())?;
        }
        Ok(())
    }
}

/// Makes the program run as the user `nobody` if this process is root's, because the limit on processes doesn't hold for root.
pub(super) fn drop_root(command: &mut Command) {
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
}
