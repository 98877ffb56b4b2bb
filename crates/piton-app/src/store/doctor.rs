//! What a machine has of all that Piton can use, and how to mend what is missing.
//!
//! It changes nothing and makes nothing: a folder without a store stays without one.

use std::fmt::Display;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_process::{Job, Limits, Means, ProcessError, Sandbox};
use rustix::fs::{statfs, statvfs};

use crate::app::{Access, App};
use crate::failure::Failure;
use crate::place::Found;
use crate::views::store::{DoctorView, FindingView, Verdict};
use crate::words;

/// Less free space than this is too little for comfort.
const LITTLE_SPACE: u64 = 1 << 30;

/// With less free space than this a verb that keeps something fails.
const NO_SPACE: u64 = 4 << 20;

/// Fewer watches than this, and `guard` may not see all folders of a large tree.
const FEW_WATCHES: u64 = 65_536;

/// How long a program may take that only says its version.
const PATIENCE: Duration = Duration::from_secs(10);

fn ok(check: &'static str, detail: impl Display) -> FindingView {
    FindingView { check, status: Verdict::Ok, detail: detail.to_string(), fix: None }
}

fn warning(check: &'static str, detail: impl Display, fix: impl Display) -> FindingView {
    FindingView { check, status: Verdict::Warning, detail: detail.to_string(), fix: Some(fix.to_string()) }
}

fn problem(check: &'static str, detail: impl Display, fix: impl Display) -> FindingView {
    FindingView { check, status: Verdict::Problem, detail: detail.to_string(), fix: Some(fix.to_string()) }
}

/// Looks at the machine. `version` is that of the shell.
pub async fn doctor(app: &App, version: &str) -> DoctorView {
    let mut findings = vec![ok("piton", version)];
    findings.extend(store(app).await);
    findings.push(ok("engine", format!("SQLite {}", piton_store_sqlite::SqliteStore::engine_version())));
    findings.push(program("git", "ignore rules hold without it, but `piton drift` has nothing to look at").await);
    findings.push(program("python3", "Python code nodes need it").await);
    findings.extend(sandbox().await);
    findings.extend(watches());
    DoctorView { ok: findings.iter().all(|finding| finding.status != Verdict::Problem), findings }
}

/// The store of the folder: that it opens, whose it is, and what room it has.
async fn store(app: &App) -> Vec<FindingView> {
    let mut findings = Vec::new();
    let place = match app.surroundings.find() {
        Ok(Found::Place(place)) => place,
        Ok(Found::Nothing { .. }) => {
            findings.push(ok("store", "none for this folder yet; the first `save`, `guard` or `run` makes one"));
            findings.extend(room(app));
            findings.extend(locked(app).await);
            return findings;
        }
        Err(failure) => return vec![problem("store", failure.message(), advice(&failure))],
    };
    let path = place.url.split_once(':').map(|(_, path)| PathBuf::from(path)).filter(|path| path.exists());
    findings.extend(path.as_deref().map(private));
    match app.open(&place, Access::Look).await {
        Ok(store) => {
            findings.push(match store.usage().await {
                Ok(usage) => {
                    let (size, runs) = (words::size(usage.bytes), usage.runs);
                    let runs = words::count(usize::try_from(runs).unwrap_or(usize::MAX), "run");
                    ok("store", format!("{}, {size}, {runs}", store.url()))
                }
                Err(error) => problem("store", error, "`piton check` says what is damaged and what is whole"),
            });
            if let Err(error) = store.close().await {
                findings.push(problem("store", error, "`piton check` says what is damaged and what is whole"));
            }
        }
        Err(failure) => findings.push(problem("store", failure.message(), advice(&failure))),
    }
    if let Some(path) = path {
        findings.extend(network(&path));
        findings.extend(writable(path.parent().unwrap_or(&path)));
        findings.extend(disk(&path));
    }
    findings.extend(locked(app).await);
    findings
}

/// Where the first store of the folder would be made: whether it can be, and what room there is.
fn room(app: &App) -> Vec<FindingView> {
    let Ok(state) = app.surroundings.state() else {
        let fix = "set HOME or XDG_STATE_HOME, or name a store with `--store URL`";
        return vec![problem("home", "there is no home folder for stores", fix)];
    };
    // What isn't there yet is made in what is there above it.
    let there = state.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    writable(there).into_iter().chain(disk(there)).collect()
}

/// A folder that can't be written to: every verb that keeps something would fail.
fn writable(folder: &Path) -> Option<FindingView> {
    use rustix::fs::{Access as Right, access};
    let error = access(folder, Right::WRITE_OK | Right::EXEC_OK).err()?;
    Some(problem(
        "home",
        format!("{} can't be written to: {error}", folder.display()),
        "make it writable, or name a store elsewhere with `--store URL` or PITON_STORE",
    ))
}

/// Encrypted stores of other folders that no key is given for.
async fn locked(app: &App) -> Option<FindingView> {
    let mut locked = 0;
    for place in app.surroundings.find_all().ok()? {
        locked += usize::from(app.is_locked(&place).await);
    }
    (locked > 0).then(|| {
        warning(
            "keys",
            format!("{} encrypted, and no key was given that opens them", words::count(locked, "store")),
            "`--key-file FILE` or PITON_KEY_FILE names the key; without it `piton ls --all` leaves them out",
        )
    })
}

/// What to do about a failure.
fn advice(failure: &Failure) -> String {
    failure.advice().map_or_else(|| "see what it says, and try again".to_owned(), ToString::to_string)
}

/// Promise 28: no other user can read it.
fn private(path: &Path) -> FindingView {
    let check = "privacy";
    let shown = path.display();
    match path.symlink_metadata() {
        Err(error) => problem(check, format!("{shown}: {error}"), "look who owns it and where it lies"),
        Ok(data) if data.uid() != rustix::process::getuid().as_raw() => problem(
            check,
            format!("{shown} belongs to user {}", data.uid()),
            "name a store of your own with `--store URL`",
        ),
        Ok(data) if data.mode() & 0o077 != 0 => problem(
            check,
            format!("others can read {shown} (mode {:o})", data.mode() & 0o777),
            format!("chmod {} {shown}", if data.is_dir() { "700" } else { "600" }),
        ),
        Ok(_) => ok(check, "only you can read the store"),
    }
}

/// File systems of other machines, on which locks and syncs may not mean what they say.
fn network(path: &Path) -> Option<FindingView> {
    const REMOTE: [(u64, &str); 4] =
        [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0xfe53_4d42, "SMB"), (0x0102_1997, "9p")];
    let kind = u64::try_from(statfs(path).ok()?.f_type).ok()?;
    let (_, name) = REMOTE.into_iter().find(|(number, _)| *number == kind)?;
    Some(warning(
        "disk",
        format!("the store is on {name}"),
        "keep it on a local disk: locks over the network are not to be trusted",
    ))
}

fn disk(path: &Path) -> Option<FindingView> {
    let stat = statvfs(path).ok()?;
    let free = stat.f_bavail * stat.f_frsize;
    let text = format!("{} free", words::size(free));
    // Some file systems count no names.
    let is_out_of_names = stat.f_files > 0 && stat.f_favail == 0;
    Some(if free < NO_SPACE || is_out_of_names {
        let text = if is_out_of_names { "no more files can be made".to_owned() } else { text };
        problem("disk", text, "make room, or name a store elsewhere with `--store URL`; `piton gc` frees some")
    } else if free < LITTLE_SPACE {
        warning("disk", text, "make room, or name a store elsewhere with `--store URL`; `piton gc` frees some")
    } else {
        ok("disk", text)
    })
}

/// Whether a program is there, by its own word.
async fn program(name: &'static str, without: &str) -> FindingView {
    let job =
        Job { limits: Limits { time: Some(PATIENCE), ..Limits::default() }, ..Job::new(name).arguments(["--version"]) };
    match piton_process::run(job).await {
        Ok(ended) if ended.exit_code == 0 => {
            ok(name, String::from_utf8_lossy(&ended.stdout).lines().next().unwrap_or_default().trim())
        }
        Ok(ended) => warning(name, format!("it ends with {}", ended.exit_code), format!("install {name}: {without}")),
        Err(_) => warning(name, "not found", format!("install {name}: {without}")),
    }
}

/// What code and commands of workflows can be shut into.
async fn sandbox() -> Vec<FindingView> {
    const INSTALL: &str = "install bubblewrap (`apt-get install bubblewrap`) and allow user namespaces";
    let wrapped = confined(Sandbox::for_command().by(Means::Bubblewrap)).await;
    let kernel = confined(Sandbox::for_code().by(Means::Kernel)).await;
    vec![match (wrapped, kernel) {
        (Ok(()), Ok(())) => ok("sandbox", "bubblewrap; Landlock and seccomp"),
        (Ok(()), Err(_)) => ok("sandbox", "bubblewrap"),
        (Err(wrapped), Ok(())) => warning(
            "sandbox",
            format!("Landlock and seccomp for code; none for programs that start others ({wrapped})"),
            INSTALL,
        ),
        (Err(wrapped), Err(kernel)) => {
            warning("sandbox", format!("none, so code nodes are refused ({wrapped}; {kernel})"), INSTALL)
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
fn watches() -> Option<FindingView> {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").ok()?;
    let limit: u64 = limit.trim().parse().ok()?;
    Some(if limit < FEW_WATCHES {
        warning(
            "watches",
            format!("the system allows {limit} watched folders"),
            format!(
                "sysctl fs.inotify.max_user_watches={FEW_WATCHES}; until then `guard` looks at large trees by a timer"
            ),
        )
    } else {
        ok("watches", format!("up to {limit} watched folders"))
    })
}
