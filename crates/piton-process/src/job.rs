//! A program that runs to its end within limits.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

use crate::platform::{self, exit_code};
use crate::process::Process;
use crate::sandbox::{Sandbox, Unavailable};

/// What a program may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long it may take.
    pub time: Option<Duration>,
    /// How many bytes it may write to each of its outputs.
    pub output: u64,
    /// How much memory each of its processes may address, with what they share as files of memory. In a sandbox only.
    pub memory: u64,
    /// How many processes there may be at a time. In a sandbox that allows more than one only.
    pub processes: u64,
    /// How large a file it may make. In a sandbox only.
    pub file: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: None, output: 16 << 20, memory: 1 << 30, processes: 64, file: 64 << 20 }
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Job {
    /// The program: a path, or a name that is looked up.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables of its environment, beside or instead of ours.
    pub environment: BTreeMap<OsString, OsString>,
    /// Whether our environment is kept from it. A sandbox always does.
    pub clean_environment: bool,
    /// Variables of our environment that are kept from it.
    pub withheld: Vec<OsString>,
    /// Where it runs; without one, where we are.
    pub folder: Option<PathBuf>,
    /// What it reads.
    pub input: Vec<u8>,
    /// What it may use.
    pub limits: Limits,
    /// What it is shut into.
    pub sandbox: Option<Sandbox>,
}

impl Job {
    /// A program without arguments, input and sandbox.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            clean_environment: false,
            withheld: Vec::new(),
            folder: None,
            input: Vec::new(),
            limits: Limits::default(),
            sandbox: None,
        }
    }

    /// With these arguments too.
    #[must_use]
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }
}

/// A program that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// As a shell gives it: 128 and the signal's number for a program that was killed.
    pub exit_code: i32,
    /// What it wrote.
    pub stdout: Vec<u8>,
    /// What it complained.
    pub stderr: Vec<u8>,
}

/// Why a job has no end of its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// It can't be started.
    #[error("{program:?} can't be run")]
    Start {
        /// The program.
        program: OsString,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It was killed: it took too long.
    #[error("it took longer than {} seconds", after.as_secs_f64())]
    TimedOut {
        /// How long it may take.
        after: Duration,
    },
    /// It was killed: it wrote too much.
    #[error("it wrote more than {limit} bytes")]
    TooMuchOutput {
        /// How much it may write.
        limit: u64,
    },
    /// It didn't run: there is no sandbox for it.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Its outputs can't be read.
    #[error("its output can't be read")]
    Output(#[source] std::io::Error),
}

/// Runs a program to its end. Dropping the future kills it.
///
/// It has ended when both its outputs are closed and it has exited, so what it leaves running keeps it
/// going until its time is over. Then everything that it started is killed.
///
/// # Errors
///
/// A program that exits with any code is no error.
pub async fn run(job: Job) -> Result<Ended, ProcessError> {
    let mut command = match &job.sandbox {
        Some(sandbox) => platform::choose(sandbox).await?.command(sandbox, &job)?,
        None => plain(&job),
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let cannot = |source| ProcessError::Start { program: job.program.clone(), source };
    let mut process = Process::start_prepared(command).await.map_err(cannot)?;
    let limit = job.limits.output;
    let work = async {
        let (stdin, stdout, stderr) = (process.stdin(), process.stdout(), process.stderr());
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A program that doesn't read all of its input is none of our business.
                let _ = stdin.write_all(&job.input).await;
            }
            Ok(())
        };
        // All at once: a program that fills one pipe while we serve another would wait for ever.
        let ((), stdout, stderr) = tokio::try_join!(feed, read(stdout, limit), read(stderr, limit))?;
        let status = process.wait().await.map_err(ProcessError::Output)?;
        Ok(Ended { exit_code: exit_code(status), stdout, stderr })
    };
    match job.limits.time {
        Some(after) => timeout(after, work).await.unwrap_or(Err(ProcessError::TimedOut { after })),
        None => work.await,
    }
}

fn plain(job: &Job) -> Command {
    let mut command = Command::new(&job.program);
    platform::prepare(&mut command);
    command.args(&job.arguments);
    if job.clean_environment {
        command.env_clear();
    }
    for name in &job.withheld {
        command.env_remove(name);
    }
    command.envs(&job.environment);
    if let Some(folder) = &job.folder {
        command.current_dir(folder);
    }
    command
}

async fn read(output: Option<impl AsyncRead + Unpin>, limit: u64) -> Result<Vec<u8>, ProcessError> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        output.take(limit + 1).read_to_end(&mut bytes).await.map_err(ProcessError::Output)?;
    }
    if bytes.len() as u64 > limit { Err(ProcessError::TooMuchOutput { limit }) } else { Ok(bytes) }
}
