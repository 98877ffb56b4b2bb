//! Several agents and a repository that moves: a merge beside `git merge-file`, a drift check beside the plumbing that
//! it calls, reservations from four processes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use piton_runtime::Context;
use piton_store_objects::ObjectStore;
use piton_workspace::{DriftOptions, MergeOptions, RelPath, ReserveMode, Take, Workspace, WorkspaceOptions, merge};

use crate::measure::{Samples, ratio, report};

/// How many lines the merged file has.
const LINES: usize = 40_000;

/// A merge of a large file.
pub(crate) fn merging(dir: &Path) -> anyhow::Result<()> {
    let line = |n: usize| format!("    let value_{n} = compute({}, \"{}\");\n", n * 7 % 1000, n % 97);
    let text = |change: &dyn Fn(usize) -> Option<String>| -> String {
        (0..LINES).map(|n| change(n).unwrap_or_else(|| line(n))).collect()
    };
    let base = text(&|_| None);
    let ours = text(&|n| (n % 400 == 7).then(|| format!("ours {n}\n")));
    let theirs = text(&|n| (n % 400 == 207 || n % 4000 == 7).then(|| format!("theirs {n}\n")));
    for (name, text) in [("base", &base), ("ours", &ours), ("theirs", &theirs)] {
        std::fs::write(dir.join(name), text)?;
    }
    let (mut git, mut whole, mut inside) = (Samples::default(), Samples::default(), Samples::default());
    let piton = std::env::current_exe()?.with_file_name("piton");
    let run = |program: &Path, first: &[&str]| -> anyhow::Result<Vec<u8>> {
        let output =
            Command::new(program).args(first).args(["-p", "ours", "base", "theirs"]).current_dir(dir).output()?;
        Ok(output.stdout)
    };
    let mut texts = (Vec::new(), Vec::new());
    for _ in 0..30 {
        texts.0 = git.time(|| run(Path::new("git"), &["merge-file"]))?;
        texts.1 = whole.time(|| run(&piton, &["merge-file"]))?;
        inside.time(|| merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes(), &MergeOptions::default()))?;
    }
    ensure!(texts.0 == texts.1 && !texts.0.is_empty(), "the two merges differ");
    let at = |samples: &Samples| samples.quantile(0.5);
    report("merge of 40,000 lines, git merge-file", &format!("{:.1} ms", at(&git) / 1e3), "");
    report("  piton merge-file", &ratio(at(&whole), at(&git)), "1.5 x");
    report("  in the library", &ratio(at(&inside), at(&git)), "");
    Ok(())
}

/// A check of a large repository, without a network.
pub(crate) async fn drift(dir: &Path) -> anyhow::Result<()> {
    let number = |name: &str, or: usize| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or);
    let (files, commits) = (number("PITON_BENCH_FILES", 75_000), number("PITON_BENCH_COMMITS", 50_000));
    let work = dir.join("work");
    import(&work, files, commits)?;
    let git = |arguments: &[&str], input: &[u8]| ask(&work, arguments, input);
    git(&["update-ref", "refs/heads/upstream", "HEAD"], b"")?;
    git(&["reset", "-q", "--hard", "HEAD~100"], b"")?;
    git(&["branch", "-q", "--set-upstream-to=upstream", "main"], b"")?;
    // Changed on both sides, and here alone.
    std::fs::write(work.join("d0/f0"), "mine\n")?;
    std::fs::write(work.join("d1/f1"), "mine\n")?;
    let options = WorkspaceOptions { state: dir.join("state"), ..WorkspaceOptions::default() };
    let context = Context::system(Arc::new(ObjectStore::in_memory()));
    let workspace = Workspace::open(&context, &work.canonicalize()?, options)?;
    let (mut plumbing, mut ours) = (Samples::default(), Samples::default());
    let mut seen = None;
    for _ in 0..5 {
        let report = {
            let start = Instant::now();
            let report = workspace.check_drift(None, DriftOptions::default()).await?;
            ours.0.push(start.elapsed());
            report
        };
        plumbing.time(|| calls(git))?;
        seen = Some(report);
    }
    let seen = seen.context("it was checked")?;
    ensure!(seen.behind == 100 && seen.uncommitted.len() == 2, "{} behind, {:?}", seen.behind, seen.uncommitted);
    let at = |samples: &Samples| samples.quantile(0.5);
    report(
        &format!("drift, {files} files, {commits} commits: git's plumbing alone"),
        &format!("{:.0} ms", at(&plumbing) / 1e3),
        "",
    );
    report("  piton", &ratio(at(&ours), at(&plumbing)), "1.2 x");
    report("  files whose lines were compared", &seen.compared.to_string(), "those that both changed");
    Ok(())
}

/// The same questions, asked one after the other.
fn calls(git: impl Fn(&[&str], &[u8]) -> anyhow::Result<Vec<u8>>) -> anyhow::Result<()> {
    let filters = ["config", "-z", "--name-only", "--get-regexp", r"^filter\."];
    let _ = git(&filters, b"");
    git(&["rev-parse", "--show-toplevel", "--git-dir", "--git-common-dir", "--show-object-format"], b"")?;
    git(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], b"")?;
    git(&["symbolic-ref", "--quiet", "HEAD"], b"")?;
    let _ = git(&filters, b"");
    git(&["config", "--get", "branch.main.remote"], b"")?;
    git(&["config", "--get", "branch.main.merge"], b"")?;
    git(&["rev-parse", "--verify", "--quiet", "refs/heads/upstream^{commit}"], b"")?;
    git(&["diff-files", "-z", "--raw", "--no-renames", "--ignore-submodules=dirty"], b"")?;
    git(&["hash-object", "--no-filters", "--stdin-paths"], b"d0/f0\nd1/f1\n")?;
    git(&["diff-index", "-z", "--cached", "--name-only", "--no-renames", "HEAD"], b"")?;
    git(&["ls-files", "-z", "--others", "--exclude-standard"], b"")?;
    git(&["rev-list", "--left-right", "--count", "HEAD...upstream"], b"")?;
    git(&["merge-base", "HEAD", "upstream"], b"")?;
    git(&["diff-tree", "-r", "-z", "-M", "--raw", "HEAD", "upstream"], b"")?;
    git(&["diff-tree", "-r", "-z", "-M", "--raw", "HEAD", "HEAD"], b"")?;
    git(&["cat-file", "-s", "HEAD:d0/f0"], b"")?;
    git(&["cat-file", "-s", "upstream:d0/f0"], b"")?;
    git(&["cat-file", "blob", "HEAD:d0/f0"], b"")?;
    git(&["cat-file", "blob", "upstream:d0/f0"], b"")?;
    Ok(())
}

fn ask(folder: &Path, arguments: &[&str], input: &[u8]) -> anyhow::Result<Vec<u8>> {
    use std::io::Write as _;
    let mut child = Command::new("git")
        .args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0"])
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    child.stdin.take().context("it was asked for")?.write_all(input)?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "git {arguments:?}");
    Ok(output.stdout)
}

/// Makes a repository by `git fast-import`: all files in the first commit, then one change each.
fn import(work: &Path, files: usize, commits: usize) -> anyhow::Result<()> {
    std::fs::create_dir_all(work)?;
    ask(work, &["init", "-q", "-b", "main"], b"")?;
    let name = |n: usize| format!("d{}/f{n}", n % 500);
    let mut text = String::new();
    for commit in 0..commits {
        let message = format!("commit {commit}");
        text.push_str("commit refs/heads/main\ncommitter B <b@example.invalid> 1700000000 +0000\n");
        text.push_str(&format!("data {}\n{message}\n", message.len()));
        let mut put = |name: String, body: String| {
            text.push_str(&format!("M 100644 inline {name}\ndata {}\n{body}\n", body.len()));
        };
        if commit == 0 {
            (0..files).for_each(|n| put(name(n), format!("file {n}\nline\n")));
        } else {
            let n = if commit + 1 == commits { 0 } else { commit * 31 % files };
            put(name(n), format!("file {n}\nline of commit {commit}\n"));
        }
    }
    ask(work, &["fast-import", "--quiet"], text.as_bytes())?;
    ask(work, &["checkout", "-q", "-f", "main"], b"")?;
    Ok(())
}

/// Reservations taken and given back by four processes.
pub(crate) async fn leases(dir: &Path) -> anyhow::Result<()> {
    let work = dir.join("work");
    std::fs::create_dir_all(&work)?;
    let program = std::env::current_exe()?;
    let children: Vec<_> = (0..4)
        .map(|number| {
            Command::new(&program)
                .args(["lease-worker", "--dir"])
                .arg(dir)
                .env("PITON_BENCH_WORKER", number.to_string())
                .stdout(Stdio::piped())
                .spawn()
        })
        .collect::<Result<_, _>>()?;
    let mut total = 0.0;
    for child in children {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "a worker failed");
        total += String::from_utf8(output.stdout)?.trim().parse::<f64>()?;
    }
    report("reservations taken and given back, four processes", &format!("{total:.0} a second"), "1,000 a second");
    Ok(())
}

/// One of the four.
#[expect(clippy::print_stdout, reason = "it is read by the process that started this one")]
pub(crate) async fn lease_worker(dir: &Path) -> anyhow::Result<()> {
    let number = std::env::var("PITON_BENCH_WORKER")?;
    let options = WorkspaceOptions { state: dir.join("state"), ..WorkspaceOptions::default() };
    let work = dir.join("work").canonicalize()?;
    let context = Context::system(Arc::new(ObjectStore::in_memory()));
    let workspace = Workspace::open(&context, &work, options)?;
    let (me, book) = (context.holder, workspace.reservations(Arc::new(|_| false)));
    let (start, mut count) = (Instant::now(), 0_u32);
    while start.elapsed() < Duration::from_secs(5) {
        let path = RelPath::new(format!("src/{number}/{count}").as_bytes())?;
        let how = Take { holder: Some(me.clone()), ..Take::by(&number) };
        let held = book.take(&[(path, ReserveMode::Write)], &how).await?;
        book.give_back(&held).await?;
        count += 1;
    }
    println!("{}", f64::from(count) / start.elapsed().as_secs_f64());
    Ok(())
}
