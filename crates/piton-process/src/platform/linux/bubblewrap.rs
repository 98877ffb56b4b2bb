//! Bubblewrap: a file system of its own with nothing in it but what is given, no network, no processes
//! but its own. What it runs dies with it, and it dies with us.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use tokio::process::Command;

use super::limits::{ResourceLimits, drop_root};
use super::seccomp;
use super::start::prepare;
use crate::job::Job;
use crate::sandbox::Sandbox;

/// Limits the processes from inside. The kernel counts them per user and user namespace: a limit that holds
/// before there is a namespace also counts what the same user runs elsewhere, other sandboxes among it.
/// `-u` is bash's word for it, `-p` that of others.
const LIMITED: &str = r#"{ ulimit -u "$1" 2>/dev/null || ulimit -p "$1"; } && shift && exec "$@""#;

/// How much of its memory a program that starts others may have as files that are shared between them, and what that is at most.
const SHARED: (u64, u64) = (4, 64 << 20);

pub(super) fn command(sandbox: &Sandbox, job: &Job) -> Result<Command, String> {
    let mut limits = job.limits;
    let mut command = Command::new(&sandbox.bubblewrap);
    prepare(&mut command);
    command.env_clear();
    command.args(["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]);
    for (name, value) in &job.environment {
        command.args([OsStr::new("--setenv"), name, value]);
    }
    for path in &sandbox.read {
        command.args([OsStr::new("--ro-bind-try"), path.as_os_str(), path.as_os_str()]);
    }
    command.args(["--dev", "/dev"]);
    for path in &sandbox.write {
        command.args([OsStr::new("--bind"), path.as_os_str(), path.as_os_str()]);
    }
    if sandbox.processes {
        let shared = (limits.memory / SHARED.0).min(SHARED.1);
        limits.memory -= shared;
        command.args(["--proc", "/proc", "--size", &shared.to_string(), "--tmpfs", "/dev/shm"]);
    }
    // What is in a file system of memory is in no limit of a process: there is none to write but the one with a size.
    command.args(["--remount-ro", "/dev", "--remount-ro", "/"]);
    let folder = job.folder.as_deref().unwrap_or_else(|| "/".as_ref());
    command.arg("--chdir").arg(folder);
    let filter = if sandbox.processes { seccomp::filter_for_programs()? } else { seccomp::filter()? };
    let filter = filter_file(&filter).map_err(|error| error.to_string())?;
    command.arg("--seccomp").arg(filter.as_raw_fd().to_string());
    command.arg("--");
    if sandbox.processes {
        command.args(["/bin/sh", "-c", LIMITED, "sh"]).arg(job.limits.processes.to_string());
    }
    command.arg(&job.program).args(&job.arguments);
    drop_root(&mut command);
    confine(&mut command, filter, ResourceLimits::from(limits));
    Ok(command)
}

/// The filter in a file of memory, as bubblewrap wants it.
fn filter_file(filter: &seccompiler::BpfProgram) -> Result<OwnedFd, io::Error> {
    let mut file = File::from(memfd_create("filter", MemfdFlags::CLOEXEC)?);
    file.write_all(&seccomp::bytes(filter))?;
    file.rewind()?;
    Ok(file.into())
}

#[expect(unsafe_code, reason = "only between fork and exec can a child be limited and given a descriptor alone")]
fn confine(command: &mut Command, filter: OwnedFd, limits: ResourceLimits) {
    let shut_in = move || {
        fcntl_setfd(&filter, FdFlags::empty())?;
        limits.apply()
    };
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed. It
    // makes system calls only and allocates nothing; its errors are plain numbers.
    unsafe {
        command.pre_exec(shut_in);
    }
}
