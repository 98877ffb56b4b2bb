//! `PR_SET_PDEATHSIG` kills a child when its parent dies.
//!
//! "Parent" there is the *thread* that forked. A thread of a runtime may end long before the process, so
//! all children are started by one thread that lives as long as the process.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::LazyLock;
use std::sync::mpsc;
use std::thread;

use rustix::process::{Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal, setsid};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::watcher;

struct Job {
    command: Command,
    runtime: Handle,
    answer: oneshot::Sender<io::Result<(Group, Child)>>,
}

static STARTER: LazyLock<Option<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (jobs, queue) = mpsc::channel::<Job>();
    let work = move || {
        watcher::begin();
        for mut job in queue {
            let _in_runtime = job.runtime.enter();
            // Its group is known to the watcher before the caller hears of it.
            let started = job.command.spawn().map(|child| {
                let group = Group::of(&child);
                (group, child)
            });
            // The caller may have stopped waiting; then both are dropped, which kills them.
            drop(job.answer.send(started));
        }
    };
    thread::Builder::new().name("piton-starter".to_owned()).spawn(work).ok().map(|_| jobs)
});

/// Starts a program that was [`prepare`]d.
pub(crate) async fn spawn(command: Command) -> io::Result<(Group, Child)> {
    let (answer, started) = oneshot::channel();
    let gone = || io::Error::other("the thread that starts programs is gone");
    let job = Job { command, runtime: Handle::current(), answer };
    STARTER.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
    started.await.map_err(|_| gone())?
}

/// Makes a program die when this process does, in a session of its own. Before whatever shuts it in, which
/// may not let it ask for that any more.
#[expect(unsafe_code, reason = "only between fork and exec can a child ask for the signal")]
pub(crate) fn prepare(command: &mut Command) {
    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent died before that, the signal will never come.
        if getppid() != Some(parent) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // Its own session: no terminal to type into, and one group to kill.
        setsid()?;
        Ok(())
    };
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed. It
    // makes three system calls and allocates nothing; its errors are plain numbers.
    unsafe {
        command.pre_exec(ask);
    }
}

/// A process group, led by the program that was started.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Option<Pid>,
    /// The watcher kills it if this process can't any more.
    is_watched: bool,
}

impl Group {
    fn of(child: &Child) -> Self {
        let leader = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        Self { leader, is_watched: leader.is_some_and(watcher::watch) }
    }
}

impl Drop for Group {
    /// Kills the processes that are still in it. The number is not given to another group while one member lives,
    /// and the leader is not reaped before its [`Child`] is dropped or waited for; a group that is gone
    /// by then could only be mistaken if the system wrapped its process ids in between.
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            // It may be gone already, which is what we want.
            let _ = kill_process_group(leader, Signal::KILL);
            if self.is_watched {
                watcher::forget(leader);
            }
        }
    }
}

/// The exit code as a shell would give it: 128 and the signal's number for a program that was killed.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
