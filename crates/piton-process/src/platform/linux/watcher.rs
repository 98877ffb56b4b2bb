//! When this process is killed with `SIGKILL`, what its programs have started lives on: the signal of `PR_SET_PDEATHSIG`
//! reaches only the programs themselves. So one small process waits for our end, by the end of a pipe that we alone
//! hold, and kills the process groups that are left then.
//!
//! A group is made known just after its program was started: what a program leaves if we are killed within that moment
//! is missed, and so is whatever begins a session of its own.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::LazyLock;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Pid;

/// Keeps a list of groups, and kills those on it when its input ends.
const SCRIPT: &str = r#"trap "" HUP INT QUIT TERM
groups=" "
while read -r what group; do
  case $what in
    +) groups="$groups$group " ;;
    *) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -KILL "-$group" 2>/dev/null; done"#;

/// The pipe to it. Without one, programs are started all the same.
static WATCHER: LazyLock<Option<ChildStdin>> = LazyLock::new(|| {
    let mut command = Command::new("/bin/sh");
    // In a group of its own: what kills ours must not reach it.
    command.args(["-c", SCRIPT, "piton-watcher"]).env_clear().current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let pipe = command.spawn().ok()?.stdin?;
    // It is never waited for, not even if the user has stopped it.
    let flags = fcntl_getfl(&pipe).ok()?;
    fcntl_setfl(&pipe, flags | OFlags::NONBLOCK).ok()?;
    Some(pipe)
});

/// Starts it, so that the first program doesn't wait for it.
pub(super) fn begin() {
    LazyLock::force(&WATCHER);
}

/// Asks that the group be killed when this process ends. Says whether the watcher heard it.
pub(super) fn watch(group: Pid) -> bool {
    tell('+', group)
}

/// Takes that back.
pub(super) fn forget(group: Pid) {
    tell('-', group);
}

fn tell(what: char, group: Pid) -> bool {
    // One short write: lines of several threads don't mix.
    let line = format!("{what} {}\n", group.as_raw_nonzero());
    WATCHER.as_ref().is_some_and(|mut pipe| pipe.write_all(line.as_bytes()).is_ok())
}
