//! Asking git: its plumbing only, and nothing that a repository can make it run.
//!
//! Hooks, the file system monitor, filters, external differs, and lazy fetches are switched off; nothing waits for a
//! terminal; only protocols that carry data are allowed. Whatever is asked has a time limit.

use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::DriftError;

/// How long a question about what is on this disk may take.
const LOCAL: Duration = Duration::from_secs(120);

/// What git may be told by variables of its caller, as in a hook: none of it is meant for us.
const FOREIGN: [&str; 16] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_CEILING_DIRECTORIES",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_EXEC_PATH",
    "GIT_TEMPLATE_DIR",
];

/// What is switched off, whatever the repository says.
const OFF: [&str; 9] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.untrackedCache=false",
    "core.pager=cat",
    "diff.external=",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "submodule.recurse=false",
];

/// What git said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) code: i32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

impl Said {
    /// The text, without the line feed at its end.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }
}

/// The pieces of a list that ends each with NUL.
pub(super) fn pieces(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == 0).filter(|piece| !piece.is_empty())
}

/// git, in a folder.
#[derive(Debug, Clone)]
pub(super) struct Git {
    folder: PathBuf,
    /// Filters that are configured, which run commands.
    filters: Vec<String>,
    /// Another repository than the folder's.
    pub(super) directory: Option<PathBuf>,
    environment: Vec<(&'static str, OsString)>,
    stop: Stop,
}

/// Says that the caller doesn't wait for an answer any more: set when its [`Asker`] is dropped.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

/// Sets the flag when the caller has gone.
pub(super) struct Asker(pub(super) Stop);

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// How often the flag is looked at.
const GLANCE: Duration = Duration::from_millis(50);

impl Git {
    pub(super) fn new(folder: &Path, stop: &Stop) -> Result<Self, DriftError> {
        let mut git = Self {
            folder: folder.to_owned(),
            filters: Vec::new(),
            directory: None,
            environment: Vec::new(),
            stop: stop.clone(),
        };
        let said = git.try_ask(["config", "-z", "--name-only", "--get-regexp", r"^filter\."])?;
        let mut filters: Vec<String> = pieces(&said.stdout)
            .filter_map(|key| std::str::from_utf8(key).ok())
            .filter_map(|key| Some(key.strip_prefix("filter.")?.rsplit_once('.')?.0.to_owned()))
            .collect();
        filters.dedup();
        git.filters = filters;
        Ok(git)
    }

    /// The same, on another repository.
    pub(super) fn on(&self, directory: &Path) -> Self {
        Self { directory: Some(directory.to_owned()), ..self.clone() }
    }

    /// With a variable.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// With the objects of another repository.
    pub(super) fn borrowing(self, objects: &Path) -> Self {
        // In quotes, as git reads them: a colon would end the path.
        let mut quoted = b"\"".to_vec();
        for byte in objects.as_os_str().as_bytes() {
            quoted.extend(matches!(byte, b'"' | b'\\').then_some(b'\\'));
            quoted.push(*byte);
        }
        quoted.push(b'"');
        self.with("GIT_ALTERNATE_OBJECT_DIRECTORIES", OsString::from_vec(quoted))
    }

    /// Asks something that must have an answer.
    pub(super) fn ask<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<Said, DriftError> {
        self.ask_with(arguments, b"", LOCAL)
    }

    /// Asks something that may have none.
    pub(super) fn try_ask<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<Said, DriftError> {
        self.run(arguments, b"", LOCAL).map(|(_, said)| said)
    }

    /// Asks something, with input and a time limit.
    pub(super) fn ask_with<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: &[u8],
        limit: Duration,
    ) -> Result<Said, DriftError> {
        let (command, said) = self.run(arguments, input, limit)?;
        if said.code != 0 {
            return Err(DriftError::Git { command, code: said.code, said: said.stderr.trim_end().to_owned() });
        }
        Ok(said)
    }

    fn run<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: &[u8],
        limit: Duration,
    ) -> Result<(String, Said), DriftError> {
        let mut command = Command::new("git");
        command.current_dir(&self.folder).args(["--no-pager", "--no-optional-locks"]);
        command.args(OFF.iter().flat_map(|setting| ["-c", setting]));
        for filter in &self.filters {
            for what in ["clean", "smudge", "process"] {
                command.arg("-c").arg(format!("filter.{filter}.{what}="));
            }
            command.arg("-c").arg(format!("filter.{filter}.required=false"));
        }
        if let Some(directory) = &self.directory {
            let mut option = OsString::from("--git-dir=");
            option.push(directory);
            command.arg(option);
        }
        let mut words = Vec::new();
        for argument in arguments {
            words.push(argument.as_ref().to_string_lossy().into_owned());
            command.arg(argument);
        }
        let shown = words.into_iter().take(2).collect::<Vec<_>>().join(" ");
        for name in FOREIGN {
            command.env_remove(name);
        }
        command
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_ALLOW_PROTOCOL", "file:git:http:https:ssh")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("LC_ALL", "C")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => DriftError::NoGit,
            _ => DriftError::Git { command: shown.clone(), code: -1, said: error.to_string() },
        })?;
        match finish(child, input, limit, &self.stop) {
            Ok(Some(said)) => Ok((shown, said)),
            Ok(None) => Err(DriftError::TimedOut { command: shown, limit }),
            Err(error) => Err(DriftError::Git { command: shown, code: -1, said: error.to_string() }),
        }
    }
}

/// Runs a child to its end, or kills it and all that it started; `None` if that was needed.
fn finish(mut child: Child, input: &[u8], limit: Duration, stop: &Stop) -> std::io::Result<Option<Said>> {
    let end = Instant::now() + limit;
    let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (tell, told) = mpsc::channel();
    let drain = |from: Option<Box<dyn std::io::Read + Send>>, is_data: bool| {
        let tell = tell.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut from) = from {
                let _ = from.read_to_end(&mut bytes);
            }
            let _ = tell.send((is_data, bytes));
        })
    };
    drain(stdout.map(|from| Box::new(from) as _), true);
    drain(stderr.map(|from| Box::new(from) as _), false);
    let input = input.to_vec();
    std::thread::spawn(move || {
        if let Some(stdin) = &mut stdin {
            // If it doesn't read to the end, its exit code says why.
            let _ = stdin.write_all(&input);
        }
    });
    let (mut said, mut complained) = (None, None);
    while said.is_none() || complained.is_none() {
        match told.recv_timeout(end.saturating_duration_since(Instant::now()).min(GLANCE)) {
            Ok((true, bytes)) => said = Some(bytes),
            Ok((false, bytes)) => complained = Some(bytes),
            Err(_) if Instant::now() < end && !stop.0.load(Ordering::Relaxed) => {}
            Err(_) => {
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                child.wait()?;
                return Ok(None);
            }
        }
    }
    let status = child.wait()?;
    let stderr = String::from_utf8_lossy(&complained.unwrap_or_default()).into_owned();
    Ok(Some(Said { code: status.code().unwrap_or(-1), stdout: said.unwrap_or_default(), stderr }))
}
