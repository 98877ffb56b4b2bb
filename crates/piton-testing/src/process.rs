//! Children that print lines, can be killed, stopped and continued at any time, and never outlive or
//! hang the test.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How long [`run`] and the `strace` runs wait by default.
pub const LIMIT: Duration = Duration::from_secs(120);

/// How long the output of a dead child may still be held open by a grandchild.
const DRAIN: Duration = Duration::from_secs(2);

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It returned this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// It was killed by us because its time was up.
    TimedOut,
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => unreachable!("a process that was waited for has ended in one of the two ways"),
        }
    }
}

/// A child that has ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// How.
    pub ending: Ending,
    /// All that it printed.
    pub stdout: String,
    /// All that it complained.
    pub stderr: String,
}

impl Finished {
    /// It returned 0.
    pub fn success(&self) -> bool {
        self.ending == Ending::Code(0)
    }

    /// `SIGKILL` killed it.
    pub fn killed(&self) -> bool {
        self.ending == Ending::Signal(Signal::KILL.as_raw())
    }

    /// The whole lines that it printed. What follows the last line feed was not said.
    pub fn lines(&self) -> Vec<String> {
        whole_lines(&self.stdout)
    }
}

/// The lines of `text` that end with a line feed.
pub(crate) fn whole_lines(text: &str) -> Vec<String> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
}

#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    ended: bool,
}

/// Where a reading thread puts what it reads.
#[derive(Clone, Default)]
struct Pipe(Arc<(Mutex<Output>, Condvar)>);

impl Pipe {
    fn drain(mut from: impl Read + Send + 'static) -> Self {
        let pipe = Self::default();
        let shared = pipe.clone();
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                let count = from.read(&mut buffer).unwrap_or(0);
                let (output, changed) = &*shared.0;
                let mut output = output.lock().expect("no holder of this lock can panic");
                output.bytes.extend_from_slice(&buffer[..count]);
                output.ended = count == 0;
                changed.notify_all();
                if output.ended {
                    break;
                }
            }
        });
        pipe
    }

    /// Waits until `done` answers or the time is up.
    fn wait<T>(&self, limit: Duration, mut done: impl FnMut(&Output) -> Option<T>) -> Option<T> {
        let end = Instant::now() + limit;
        let (output, changed) = &*self.0;
        let mut output = output.lock().expect("no holder of this lock can panic");
        loop {
            if let Some(answer) = done(&output) {
                return Some(answer);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || output.ended {
                return None;
            }
            output = changed.wait_timeout(output, left).expect("no holder of this lock can panic").0;
        }
    }

    fn text(&self) -> String {
        self.wait(DRAIN, |output| output.ended.then_some(()));
        let output = self.0.0.lock().expect("no holder of this lock can panic");
        String::from_utf8_lossy(&output.bytes).into_owned()
    }
}

/// A running child. Dropping it kills it and its process group.
pub struct Running {
    child: Child,
    stdout: Pipe,
    stderr: Pipe,
    taken: usize,
    over: bool,
    stdout_name: String,
}

impl Running {
    /// Starts `command` in a process group of its own, without input.
    ///
    /// # Panics
    /// If it can't be started.
    pub fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} can't be started: {error}"));
        let stdout = child.stdout.take().expect("it was asked for");
        // Both ends of a pipe have the same number.
        let stdout_name = format!("pipe:[{}]", fstat(&stdout).expect("a pipe has a number").st_ino);
        let stdout = Pipe::drain(stdout);
        let stderr = Pipe::drain(child.stderr.take().expect("it was asked for"));
        Self { child, stdout, stderr, taken: 0, over: false, stdout_name }
    }

    /// The child's process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// What the kernel calls its standard output, in whichever process and under whichever number.
    pub(crate) fn stdout_name(&self) -> &str {
        &self.stdout_name
    }

    /// The next whole line of its output; `None` if it doesn't come in time or never will.
    pub fn line(&mut self, limit: Duration) -> Option<String> {
        let from = self.taken;
        let line = self.stdout.wait(limit, |output| {
            let rest = &output.bytes[from..];
            rest.iter().position(|&byte| byte == b'\n').map(|end| rest[..end].to_vec())
        })?;
        self.taken += line.len() + 1;
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    /// `SIGKILL`.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// `SIGSTOP`: it stands still, as under a debugger or in a frozen machine.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// `SIGCONT`.
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        signal_process(self.pid(), signal);
    }

    /// Waits for its end; kills it, and says so, when the time is up.
    pub fn wait(mut self, limit: Duration) -> Finished {
        let ending = self.wait_until(Instant::now() + limit).unwrap_or(Ending::TimedOut);
        self.finish(ending)
    }

    /// Lets it run for a while, then kills it. It may have ended by itself before.
    pub fn kill_after(mut self, delay: Duration) -> Finished {
        let ending = self.wait_until(Instant::now() + delay);
        let ending = ending.unwrap_or_else(|| {
            self.kill();
            self.child.wait().expect("our own child can be waited for").into()
        });
        self.finish(ending)
    }

    fn wait_until(&mut self, end: Instant) -> Option<Ending> {
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child can be waited for") {
                return Some(status.into());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            thread::sleep(left.min(Duration::from_millis(1)));
        }
    }

    fn finish(mut self, ending: Ending) -> Finished {
        self.put_down();
        Finished { ending, stdout: self.stdout.text(), stderr: self.stderr.text() }
    }

    /// Kills the whole group, once: later its number may be that of another group. Errors mean that no process of it is
    /// left.
    fn put_down(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.put_down();
    }
}

/// Runs `command` to its end, which must come within [`LIMIT`].
///
/// # Panics
/// If it doesn't.
pub fn run(command: &mut Command) -> Finished {
    wait_for(Running::spawn(command), command)
}

pub(crate) fn wait_for(running: Running, command: &Command) -> Finished {
    let finished = running.wait(LIMIT);
    assert_ne!(finished.ending, Ending::TimedOut, "{command:?} did not end; it said: {}", finished.stderr);
    finished
}

/// Sends a signal to a process by its id. One that is gone already is no error.
///
/// # Panics
/// If the signal isn't permitted.
pub fn signal_process(pid: Pid, signal: Signal) {
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("process {} can't be signalled: {error}", pid.as_raw_nonzero()),
    }
}
