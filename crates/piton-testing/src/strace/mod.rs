//! A real process, killed or failed at a chosen system call.
//!
//! [`trace`] runs a command once and lists its system calls; [`Trace::kill_points`] turns them into
//! [`KillAt`]s; [`run`] runs the command again with one of them. A killed call is *not* performed: the
//! kernel skips a call on whose entry `SIGKILL` arrives. So killing at call N + 1 is killing after call
//! N, and since what the program says is a `write` too, the moment between a sync and its
//! acknowledgement is among them.
//!
//! # How `strace` counts
//! `when=N` is counted *per system call and per thread* (strace(1): "accounting … is done per syscall
//! and per tracee"): `inject=write,fsync:…:when=3` strikes at the third `write` or the third `fsync` of
//! any one thread, whichever comes first. Hence:
//! - A [`KillAt`] with several system calls strikes at the first of those; with one, at the call that
//!   it names, of whichever thread gets there first. For a single-threaded program that is exact.
//! - In a program with several threads, the N-th call of a thread that is behind can't be named by its
//!   number. [`Trace::kill_points`] then names it by its file too (`-P`: only calls on that file are
//!   counted), which is exact as long as that file is written by one thread. What can't be named
//!   either way is counted in [`KillPoints::unnamed`], not passed over.
//! - Threads may take another order in the second run. A point that isn't met leaves the program
//!   running to its end: look at [`Finished::killed`] and count.

mod parse;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use parse::{Call, OpenPath, parse};

use crate::process::{self, Finished, Running};
use crate::scratch::Scratch;

/// The system calls that change something that another process, or this one after a restart, can see.
pub const CHANGING: &[&str] = &[
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "copy_file_range",
    "sendfile",
    "splice",
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
    "sync_file_range",
    "msync",
    "truncate",
    "ftruncate",
    "fallocate",
    "open",
    "openat",
    "openat2",
    "creat",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "setxattr",
    "fsetxattr",
    "utimensat",
];

/// Which of several calls of the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Only this one, counted from 1.
    Only(u32),
    /// This one and all after it.
    From(u32),
    /// From the first to the last, both included; then it works again.
    Between(u32, u32),
}

/// Kill the process on entering a system call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KillAt {
    /// The kinds of calls; each is counted by itself.
    pub syscalls: Vec<String>,
    /// Which one of its kind and its thread, counted from 1.
    pub when: u32,
    /// Count only calls on this file.
    pub path: Option<PathBuf>,
}

impl KillAt {
    /// At the `when`-th call of each of `syscalls`, whichever comes first.
    pub fn new(syscalls: &[&str], when: u32) -> Self {
        Self { syscalls: syscalls.iter().map(|&name| name.to_owned()).collect(), when, path: None }
    }
}

/// Let a system call fail without performing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailAt {
    /// The kind of call.
    pub syscall: String,
    /// The error, as in `"EIO"`.
    pub errno: String,
    /// Which ones of their thread.
    pub when: When,
    /// Count and fail only calls on this file.
    pub path: Option<PathBuf>,
}

impl FailAt {
    /// `syscall` fails with `errno`.
    pub fn new(syscall: &str, errno: &str, when: When) -> Self {
        Self { syscall: syscall.to_owned(), errno: errno.to_owned(), when, path: None }
    }
}

/// What `strace` is to do to the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Injection {
    /// Kill it.
    Kill(KillAt),
    /// Fail a call of it.
    Fail(FailAt),
}

impl From<KillAt> for Injection {
    fn from(kill: KillAt) -> Self {
        Self::Kill(kill)
    }
}

impl From<FailAt> for Injection {
    fn from(fail: FailAt) -> Self {
        Self::Fail(fail)
    }
}

impl Injection {
    fn arguments(&self) -> Vec<String> {
        let (syscalls, what, path) = match self {
            Self::Kill(kill) => (known(&kill.syscalls), format!("signal=KILL:when={}", kill.when), &kill.path),
            Self::Fail(fail) => {
                let when = match fail.when {
                    When::Only(at) => at.to_string(),
                    When::From(at) => format!("{at}+"),
                    When::Between(first, last) => format!("{first}..{last}"),
                };
                (known([&fail.syscall]), format!("error={}:when={when}", fail.errno), &fail.path)
            }
        };
        let mut arguments = vec!["-e".to_owned(), format!("trace={syscalls}")];
        arguments.extend(["-e".to_owned(), format!("inject={syscalls}:{what}")]);
        if let Some(path) = path {
            arguments.extend(["-P".to_owned(), path.to_str().expect("paths of tests are text").to_owned()]);
        }
        arguments
    }
}

/// Runs `command` under one injection.
///
/// # Panics
/// If `strace` is missing or refuses, or if the program doesn't end.
pub fn run(command: &Command, injection: impl Into<Injection>) -> Finished {
    let arguments = injection.into().arguments();
    under_strace(command, arguments.iter().map(String::as_str)).finished
}

/// All that a program did.
#[derive(Debug, Clone)]
pub struct Trace {
    /// How it ended and what it said.
    pub finished: Finished,
    /// Its system calls of the kinds that were asked for, in the order in which they came back.
    pub calls: Vec<Call>,
    stdout: String,
}

/// Runs `command` undisturbed and lists its calls of the kinds `syscalls`, with `data` bytes of each
/// buffer.
///
/// # Panics
/// If `strace` is missing or refuses, or if the program doesn't end.
pub fn trace(command: &Command, syscalls: &[&str], data: usize) -> Trace {
    let (filter, size) = (format!("trace={}", known(syscalls)), data.to_string());
    let traced = under_strace(command, ["-s", &size, "-e", &filter]);
    Trace { finished: traced.finished, calls: parse(&traced.text), stdout: traced.stdout }
}

/// Where to kill a program so that each of its chosen calls is met.
#[derive(Debug, Clone, Default)]
pub struct KillPoints {
    /// The points, in the order of the traced run.
    pub points: Vec<KillAt>,
    /// Chosen calls that `strace` has no name for; see the module's documentation.
    pub unnamed: usize,
}

impl Trace {
    /// How many calls there were of each kind, over all threads.
    pub fn counts(&self) -> HashMap<&str, usize> {
        let mut counts = HashMap::new();
        for call in &self.calls {
            *counts.entry(call.name.as_str()).or_default() += 1;
        }
        counts
    }

    /// A point for every call that changes something under `root` or says something on the standard
    /// output. The trace must have been made with [`CHANGING`], since `strace` counts every call of a
    /// kind, chosen or not.
    pub fn kill_points(&self, root: &Path) -> KillPoints {
        self.kill_points_where(|call| self.says(call) || (call.changes() && call.touches(root)))
    }

    /// Whether a call says something on the program's standard output.
    pub fn says(&self, call: &Call) -> bool {
        call.name.contains("write") && call.file(0).is_some_and(|file| file.path == Path::new(&self.stdout))
    }

    /// A point for every call that `wanted` chooses.
    pub fn kill_points_where(&self, wanted: impl Fn(&Call) -> bool) -> KillPoints {
        let mut calls: Vec<_> = self.calls.iter().collect();
        calls.sort_by_key(|call| call.begin);
        let mut found = KillPoints::default();
        let (mut all, mut by_file) = (Ranks::default(), Ranks::default());
        for call in calls {
            let path = call.paths().find(|path| path.is_absolute() && path.to_str().is_some());
            let place = all.rank(call.thread, (call.name.as_str(), None));
            let place_in_file = path.as_ref().map(|path| by_file.rank(call.thread, (&call.name, Some(path.clone()))));
            if !wanted(call) {
                continue;
            }
            let point = |when, path| KillAt { syscalls: vec![call.name.clone()], when, path };
            match (place, place_in_file) {
                (Place { when, first: true }, _) => found.points.push(point(when, None)),
                (_, Some(Place { when, first: true })) => found.points.push(point(when, path)),
                _ => found.unnamed += 1,
            }
        }
        found
    }
}

/// The how-manieth call of its kind and thread a call is, and whether no thread got so far before.
#[derive(Clone, Copy)]
struct Place {
    when: u32,
    first: bool,
}

type Kind<'a> = (&'a str, Option<PathBuf>);

#[derive(Default)]
struct Ranks<'a> {
    of_thread: HashMap<(u32, Kind<'a>), u32>,
    of_all: HashMap<Kind<'a>, u32>,
}

impl<'a> Ranks<'a> {
    fn rank(&mut self, thread: u32, kind: Kind<'a>) -> Place {
        let when = self.of_thread.entry((thread, kind.clone())).or_default();
        *when += 1;
        let most = self.of_all.entry(kind).or_default();
        let first = *when > *most;
        *most = (*most).max(*when);
        Place { when: *when, first }
    }
}

/// A list of system calls, in which those that this machine doesn't have are ignored.
fn known<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    names.into_iter().map(|name| format!("?{}", name.as_ref())).collect::<Vec<_>>().join(",")
}

struct Traced {
    finished: Finished,
    text: String,
    stdout: String,
}

/// Runs the command below `strace`, its environment and folder unchanged.
fn under_strace<'a>(command: &Command, arguments: impl IntoIterator<Item = &'a str>) -> Traced {
    if Command::new("strace").arg("-V").output().is_err() {
        panic!("strace is needed: apt-get install strace");
    }
    let scratch = Scratch::in_memory();
    let output = scratch.join("trace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-xx", "--quiet=attach,personality,path-resolution", "-o"]).arg(&output);
    strace.args(arguments).arg("--").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        strace.current_dir(dir);
    }
    let running = Running::spawn(&mut strace);
    let stdout = running.stdout_name().to_owned();
    let finished = process::wait_for(running, &strace);
    if let Some(complaint) = finished.stderr.lines().find(|line| line.starts_with("strace: ")) {
        panic!("strace refuses: {complaint}");
    }
    let text = fs::read_to_string(&output).expect("strace writes its trace");
    Traced { finished, text, stdout }
}
