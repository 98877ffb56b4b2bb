//! `piton doctor`: what this machine has of all that Piton can use, and how to mend what is missing.
//!
//! It changes nothing and makes nothing: a folder without a store stays without one.

use std::fmt::Display;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_process::{Job, Limits, Means, ProcessError, Sandbox};
use rustix::fs::{statfs, statvfs};
use serde_json::{Value as Json, json};

use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table;
use piton_app::place::Found;

/// Less free space than this is too little for comfort.
const LITTLE_SPACE: u64 = 1 << 30;

/// Fewer watches than this, and `guard` may not see all folders of a large tree.
const FEW_WATCHES: u64 = 65_536;

/// How long a program may take that only says its version.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// Something works less well, or not at all, that not everybody needs.
    Warning,
    /// Piton can't do its work.
    Problem,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    detail: String,
    /// What to do about it.
    fix: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Display) -> Self {
        Self { check, verdict: Verdict::Ok, detail: detail.to_string(), fix: None }
    }

    fn warning(check: &'static str, detail: impl Display, fix: impl Display) -> Self {
        Self { check, verdict: Verdict::Warning, detail: detail.to_string(), fix: Some(fix.to_string()) }
    }

    fn problem(check: &'static str, detail: impl Display, fix: impl Display) -> Self {
        Self { check, verdict: Verdict::Problem, detail: detail.to_string(), fix: Some(fix.to_string()) }
    }

    fn json(&self) -> Json {
        json!({"check": self.check, "status": self.verdict.word(), "detail": self.detail, "fix": self.fix})
    }
}

pub(crate) async fn execute(session: &Session) -> Result<Exit, Failure> {
    let mut findings = vec![Finding::ok("piton", env!("CARGO_PKG_VERSION"))];
    findings.extend(store(session).await);
    findings.push(Finding::ok("engine", format!("SQLite {}", piton::SqliteStore::engine_version())));
    findings.push(program("git", "ignore rules hold without it, but `piton drift` has nothing to look at").await);
    findings.push(program("python3", "Python code nodes need it").await);
    findings.extend(sandbox().await);
    findings.extend(watches());

    let worst = findings.iter().any(|finding| finding.verdict == Verdict::Problem);
    if session.output.is_json() {
        session.output.object(&json!({
            "ok": !worst,
            "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(),
        }))?;
    } else {
        let mut lines = Vec::new();
        for Finding { check, verdict, detail, fix } in &findings {
            lines.push(format!("{:<8} {check:<9} {}", verdict.word(), clean(detail)));
            lines.extend(fix.as_ref().map(|fix| format!("{:18} fix: {fix}", "")));
        }
        session.output.data(&lines.join("\n"))?;
    }
    Ok(if worst { Exit::UserFixable } else { Exit::Done })
}

/// The store of the folder: that it opens, whose it is, and what room it has.
async fn store(session: &Session) -> Vec<Finding> {
    let mut findings = Vec::new();
    let place = match session.surroundings.find() {
        Ok(Found::Place(place)) => place,
        Ok(Found::Nothing { .. }) => {
            findings
                .push(Finding::ok("store", "none for this folder yet; the first `save`, `guard` or `run` makes one"));
            findings.extend(disk(&session.surroundings.folder));
            return findings;
        }
        Err(failure) => return vec![Finding::problem("store", failure.message(), advice(&failure))],
    };
    let path = place.url.split_once(':').map(|(_, path)| PathBuf::from(path)).filter(|path| path.exists());
    // Before it is opened, which would put it right.
    findings.extend(path.as_deref().map(private));
    match session.open(&place, false).await {
        Ok(store) => {
            findings.push(match store.usage().await {
                Ok(usage) => {
                    let (size, runs) = (table::size(usage.bytes), usage.runs);
                    Finding::ok("store", format!("{}, {size}, {runs} runs", place.url))
                }
                Err(error) => Finding::problem("store", error, "`piton check` says what is damaged and what is whole"),
            });
            if let Err(error) = store.close().await {
                findings.push(Finding::problem("store", error, "`piton check` says what is damaged and what is whole"));
            }
        }
        Err(failure) => findings.push(Finding::problem("store", failure.message(), advice(&failure))),
    }
    if let Some(path) = path {
        findings.extend(network(&path));
        findings.extend(disk(&path));
    }
    findings
}

/// What to do about a failure.
fn advice(failure: &Failure) -> String {
    failure.advice().map_or_else(|| "see what it says, and try again".to_owned(), ToString::to_string)
}

/// Promise 28: nobody else can read it.
fn private(path: &Path) -> Finding {
    let check = "privacy";
    let shown = path.display();
    match path.symlink_metadata() {
        Err(error) => Finding::problem(check, format!("{shown}: {error}"), "look who owns it and where it lies"),
        Ok(data) if data.uid() != rustix::process::getuid().as_raw() => Finding::problem(
            check,
            format!("{shown} belongs to user {}", data.uid()),
            "name a store of your own with `--store URL`",
        ),
        Ok(data) if data.mode() & 0o077 != 0 => Finding::problem(
            check,
            format!("others can read {shown} (mode {:o})", data.mode() & 0o777),
            format!("chmod {} {shown}", if data.is_dir() { "700" } else { "600" }),
        ),
        Ok(_) => Finding::ok(check, "only you can read the store"),
    }
}

/// File systems of other machines, on which locks and syncs may not mean what they say.
fn network(path: &Path) -> Option<Finding> {
    const REMOTE: [(u64, &str); 4] =
        [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0xfe53_4d42, "SMB"), (0x0102_1997, "9p")];
    let kind = u64::try_from(statfs(path).ok()?.f_type).ok()?;
    let (_, name) = REMOTE.into_iter().find(|(number, _)| *number == kind)?;
    Some(Finding::warning(
        "disk",
        format!("the store is on {name}"),
        "keep it on a local disk: locks over the network are not to be trusted",
    ))
}

fn disk(path: &Path) -> Option<Finding> {
    let stat = statvfs(path).ok()?;
    let free = stat.f_bavail * stat.f_frsize;
    let text = format!("{} free", table::size(free));
    Some(if free < LITTLE_SPACE {
        Finding::warning("disk", text, "make room, or name a store elsewhere with `--store URL`; `piton gc` frees some")
    } else {
        Finding::ok("disk", text)
    })
}

/// Whether a program is there, by its own word.
async fn program(name: &'static str, without: &str) -> Finding {
    let job =
        Job { limits: Limits { time: Some(PATIENCE), ..Limits::default() }, ..Job::new(name).arguments(["--version"]) };
    match piton_process::run(job).await {
        Ok(ended) if ended.exit_code == 0 => {
            Finding::ok(name, String::from_utf8_lossy(&ended.stdout).lines().next().unwrap_or_default().trim())
        }
        Ok(ended) => {
            Finding::warning(name, format!("it ends with {}", ended.exit_code), format!("install {name}: {without}"))
        }
        Err(_) => Finding::warning(name, "not found", format!("install {name}: {without}")),
    }
}

/// What code and commands of workflows can be shut into.
async fn sandbox() -> Vec<Finding> {
    const INSTALL: &str = "install bubblewrap (`apt-get install bubblewrap`) and allow user namespaces";
    let wrapped = confined(Sandbox::for_command().by(Means::Bubblewrap)).await;
    let kernel = confined(Sandbox::for_code().by(Means::Kernel)).await;
    vec![match (wrapped, kernel) {
        (Ok(()), Ok(())) => Finding::ok("sandbox", "bubblewrap; Landlock and seccomp"),
        (Ok(()), Err(_)) => Finding::ok("sandbox", "bubblewrap"),
        (Err(wrapped), Ok(())) => Finding::warning(
            "sandbox",
            format!("Landlock and seccomp for code; none for programs that start others ({wrapped})"),
            INSTALL,
        ),
        (Err(wrapped), Err(kernel)) => {
            Finding::warning("sandbox", format!("none, so code nodes are refused ({wrapped}; {kernel})"), INSTALL)
        }
    }]
}

async fn confined(sandbox: Sandbox) -> Result<(), String> {
    let job = Job {
        sandbox: Some(sandbox),
        limits: Limits { time: Some(PATIENCE), ..Limits::default() },
        ..Job::new("/usr/bin/true")
    };
    match piton_process::run(job).await {
        Ok(ended) if ended.exit_code == 0 => Ok(()),
        Ok(ended) => Err(format!("it ends with {}", ended.exit_code)),
        Err(ProcessError::Unavailable(reason)) => Err(reason.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// How many folders `guard` may watch.
fn watches() -> Option<Finding> {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").ok()?;
    let limit: u64 = limit.trim().parse().ok()?;
    Some(if limit < FEW_WATCHES {
        Finding::warning(
            "watches",
            format!("the system allows {limit} watched folders"),
            format!(
                "sysctl fs.inotify.max_user_watches={FEW_WATCHES}; until then `guard` looks at large trees by a timer"
            ),
        )
    } else {
        Finding::ok("watches", format!("up to {limit} watched folders"))
    })
}
