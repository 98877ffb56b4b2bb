//! Linux: the host's name, the boot id and the start time of a process, from `uname` and `/proc`.

use std::fs;
use std::time::Duration;

use piton_types::Holder;

/// The inode of the pid namespace that every system starts with.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// This process. What `/proc` doesn't tell is left empty, and then never equals that of another process.
pub(crate) fn this_process() -> Holder {
    let pid = std::process::id();
    Holder { host: host(), boot: boot(), pid, started: started(pid).unwrap_or(0) }
}

/// The process with this number; `None` if there is none.
pub(crate) fn process(pid: u32) -> Option<Holder> {
    Some(Holder { host: host(), boot: boot(), pid, started: started(pid)? })
}

/// What commands are handed to between a program and what it starts. A shell lives as long as the command alone.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "env"];

/// The nearest ancestor of this process that is no shell.
pub(crate) fn calling_program() -> Option<Holder> {
    let (_, mut pid) = name_and_parent(&fs::read_to_string("/proc/self/stat").ok()?)?;
    loop {
        let (name, parent) = name_and_parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        if !SHELLS.contains(&name.as_str()) {
            return process(pid).filter(|_| pid > 1);
        }
        pid = parent;
    }
}

/// Fields 2 and 4 of a `stat` line.
fn name_and_parent(stat: &str) -> Option<(String, u32)> {
    let (before, rest) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    Some((name.to_owned(), rest.split_ascii_whitespace().nth(1)?.parse().ok()?))
}

/// Whether the process `pid` that started at `started` is running, in this boot and pid namespace.
/// `None` if that can't be found out.
pub(crate) fn is_running(pid: u32, started_then: u64) -> Option<bool> {
    // Without /proc a process that lives would look dead.
    fs::metadata("/proc/self/stat").ok()?;
    Some(started(pid) == Some(started_then))
}

/// Tells a process to look at its log, if it is the one that is meant. A process that doesn't listen to this signal
/// ignores it.
pub(crate) fn nudge(pid: u32, started_then: u64) {
    if is_running(pid, started_then) == Some(true)
        && let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw)
    {
        // The process may have ended meanwhile, or be another user's: it finds out by itself, a little later.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::URG);
    }
}

/// Time since the boot, with the time that the host was suspended.
pub(crate) fn since_boot() -> Option<Duration> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Some(Duration::new(now.tv_sec.try_into().ok()?, now.tv_nsec.try_into().ok()?))
}

/// The host's name. A process id means something within its namespace only, so a process in another
/// one (a container) counts as on another host.
fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match fs::read_link("/proc/self/ns/pid") {
        Ok(link) if link.as_os_str() != INITIAL_PID_NAMESPACE => format!("{name}/{}", link.display()),
        _ => name,
    }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// When a process started, in ticks since the boot; `None` if there is no such process, or only its
/// remains.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&stat)
}

/// Field 22 of a `stat` line. The name in field 2 may hold spaces and parentheses, so fields count
/// from behind the last one.
fn parse_stat(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_with_an_awkward_name_is_read() {
        let stat =
            |state: &str| format!("42 (a) b (c d)) {state} 1 42 42 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 98765 1 2");
        assert_eq!(parse_stat(&stat("S")), Some(98_765));
        assert_eq!(name_and_parent(&stat("S")), Some(("a) b (c d)".to_owned(), 1)));
        assert_eq!(parse_stat(&stat("Z")), None, "a zombie drives nothing");
        assert_eq!(parse_stat("42 (x"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn a_child_lives_until_it_is_killed() {
        let me = this_process();
        assert!(!me.host.is_empty() && me.boot.len() == 36 && me.started > 0, "{me:?}");
        assert_eq!(is_running(me.pid, me.started), Some(true));
        assert_eq!(is_running(me.pid, me.started + 1), Some(false), "the id was used again");

        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let since = started(child.id()).unwrap();
        assert_eq!(is_running(child.id(), since), Some(true));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(is_running(child.id(), since), Some(false));
    }
}
