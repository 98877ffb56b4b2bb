//! Linux: `PR_SET_PDEATHSIG` kills a child when its parent dies.
//!
//! "Parent" there is the *thread* that forked. A thread of a runtime may end long before the process, so
//! all children are started by one thread that lives as long as the process.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::LazyLock;
use std::sync::mpsc;
use std::thread;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct Job {
    command: Command,
    runtime: Handle,
    answer: oneshot::Sender<io::Result<Child>>,
}

static STARTER: LazyLock<Option<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (jobs, queue) = mpsc::channel::<Job>();
    let work = move || {
        for mut job in queue {
            let _in_runtime = job.runtime.enter();
            // Nobody may be waiting any more; then the child is dropped, which kills it.
            drop(job.answer.send(job.command.spawn()));
        }
    };
    thread::Builder::new().name("piton-starter".to_owned()).spawn(work).ok().map(|_| jobs)
});

/// Starts a program that is killed when this process dies, however it dies.
///
/// Not if the program changes its user on start (set-user-id): the kernel clears the wish then.
pub(crate) async fn spawn(mut command: Command) -> io::Result<Child> {
    die_with_parent(&mut command);
    let (answer, started) = oneshot::channel();
    let gone = || io::Error::other("the thread that starts programs is gone");
    let job = Job { command, runtime: Handle::current(), answer };
    STARTER.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
    started.await.map_err(|_| gone())?
}

#[expect(unsafe_code, reason = "only between fork and exec can a child ask for the signal")]
fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent died before that, the signal will never come.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed. It
    // makes two system calls and allocates nothing; its errors are plain numbers.
    unsafe {
        command.pre_exec(ask);
    }
}

/// The exit code as a shell would give it: 128 and the signal's number for a program that was killed.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
