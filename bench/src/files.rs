//! Snapshots of a folder beside shadow git, tuned git and restic, in interleaved rounds on one tree.
//!
//! The tree is made of the sources of the crates that this workspace is built from, copied with a line of
//! their own until there are enough, or given with `PITON_BENCH_TREE`. Every figure is of the whole command.
//!
//! Beside the time by the clock stands the time that the processors were at work for it: on a machine that
//! others use too, only that says something.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::measure::{Samples, ratio, report};

/// How many files the tree has at least.
const FILES: usize = 50_000;
/// How often the short operations are repeated.
const ROUNDS: usize = 7;
/// How often ten changed files are compared with none.
const PAIRS: usize = 31;

pub(crate) fn run(scratch: &Path) -> anyhow::Result<()> {
    let tree = scratch.join("tree");
    std::fs::create_dir(&tree)?;
    let files = make_tree(&tree)?;
    let bytes: u64 = files.iter().map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum();
    report("files", &files.len().to_string(), &format!("at least {FILES}"));
    report("bytes", &format!("{} MB", bytes / 1_000_000), "");
    std::thread::sleep(Duration::from_millis(100));

    let mut peers: Vec<Box<dyn Peer>> = vec![Box::new(Piton::new(scratch, &tree)?)];
    peers.push(Box::new(Git::new(scratch, &tree, false)?));
    peers.push(Box::new(Git::new(scratch, &tree, true)?));
    if Command::new("restic").arg("version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        peers.push(Box::new(Restic::new(scratch, &tree)?));
    } else {
        report("restic", "not installed", "");
    }
    // Everything is read once, so that no program pays for a cold disk. Then in turns, and the best of each counts.
    read_hash_compress(&files)?;
    let mut limit = Duration::MAX;
    let mut first = BTreeMap::from([("piton", Duration::MAX)]);
    for round in 0..2 {
        limit = limit.min(read_hash_compress(&files)?);
        let folder = scratch.join(format!("first-{round}"));
        let mut fresh = Piton::new(&folder, &tree)?;
        settle()?;
        first.insert("piton", first["piton"].min(time(|| fresh.save())?));
        std::fs::remove_dir_all(folder)?;
    }
    limit = limit.min(read_hash_compress(&files)?);
    report("reading, hashing, compressing (2 threads)", &seconds(limit), "");
    for peer in &mut peers {
        settle()?;
        let took = time(|| peer.save())?;
        let best = first.entry(peer.name()).or_insert(took);
        *best = took.min(*best);
    }
    for peer in &mut peers {
        peer.save()?;
    }
    let mut times: BTreeMap<(&'static str, &'static str), Cost> = BTreeMap::new();
    let mut round = 0;
    // In turns: nothing has changed, ten have, nothing has again.
    for _ in 0..ROUNDS {
        settle()?;
        for peer in &mut peers {
            times.entry((peer.name(), "none")).or_default().of(|| peer.save())?;
            times.entry((peer.name(), "add")).or_default().of(|| peer.add())?;
            times.entry((peer.name(), "status")).or_default().of(|| peer.status())?;
        }
        save_changes(&mut peers, &files, "10", &mut round, &mut times)?;
    }
    // How much ten take beyond none is little beside either, so that is measured more often, and without the others.
    let (mut ten, mut none) = <(Cost, Cost)>::default();
    for _ in 0..PAIRS {
        settle()?;
        none.of(|| peers[0].save())?;
        round += 1;
        touch(&files, 10, round)?;
        std::thread::sleep(Duration::from_millis(50));
        ten.of(|| peers[0].save())?;
    }
    for _ in 0..3 {
        save_changes(&mut peers, &files, "1000", &mut round, &mut times)?;
    }
    // Each brings back the same: 500 edited, 500 deleted.
    for _ in 0..3 {
        for peer in &mut peers {
            round += 1;
            let damaged = touch(&files, 1_000, round)?;
            damaged.iter().skip(500).try_for_each(std::fs::remove_file)?;
            settle()?;
            std::thread::sleep(Duration::from_millis(50));
            times.entry((peer.name(), "restore")).or_default().of(|| peer.restore())?;
            ensure!(damaged.iter().all(|file| file.exists()), "{} brought not all back", peer.name());
        }
        // What one of them brought back is newer than the snapshot of the others.
        for peer in &mut peers {
            peer.save()?;
        }
    }
    for (peer, time) in &first {
        report(&format!("first snapshot, {peer}"), &seconds(*time), "");
    }
    for ((peer, what), cost) in times.iter().filter(|(_, cost)| cost.wall() > 100.0) {
        let figure = format!("{:.1} ms, cpu {:.1} ms", cost.wall() / 1_000.0, cost.cpu() / 1_000.0);
        report(&format!("{what}, {peer}"), &figure, "");
    }
    let cost = |peer: &'static str, what: &'static str| &times[&(peer, what)];
    let compare = |what: &str, (a, b): (&Cost, &Cost), bound: &str| {
        report(what, &format!("{}, cpu {}", ratio(a.wall(), b.wall()), ratio(a.cpu(), b.cpu())), bound);
    };
    let (piton, tuned) = ("piton", "git tuned");
    compare("no change / tuned git add -A", (cost(piton, "none"), cost(tuned, "add")), "0.35 x");
    compare("no change / tuned git add -A, write-tree, commit-tree", (cost(piton, "none"), cost(tuned, "none")), "");
    compare("no change / tuned git status", (cost(piton, "none"), cost(tuned, "status")), "0.7 x");
    let more = ((ten.wall() - none.wall()) / 1_000.0, (ten.cpu() - none.cpu()) / 1_000.0);
    report("10 changed - no change", &format!("{:.1} ms, cpu {:.1} ms", more.0, more.1), "10 ms");
    compare("1,000 changed / tuned git", (cost(piton, "1000"), cost(tuned, "1000")), "0.6 x");
    let limit = limit.as_secs_f64();
    report("first / reading, hashing, compressing", &ratio(first["piton"].as_secs_f64(), limit), "1.5 x");
    compare("restore of 1,000 / tuned git", (cost(piton, "restore"), cost(tuned, "restore")), "0.7 x");
    let sizes: BTreeMap<_, _> = peers.iter().map(|peer| (peer.name(), size(&peer.store()))).collect();
    for (peer, bytes) in &sizes {
        report(&format!("store, {peer}"), &format!("{:.1} MB", *bytes as f64 / 1e6), "");
    }
    if let Some(restic) = sizes.get("restic") {
        report("store / restic's", &ratio(sizes["piton"] as f64, *restic as f64), "1.05 x");
    }
    memory(scratch, &tree, files.len())?;
    tiny(scratch)
}

/// Changes so many files as `count` says, and has each program save them.
fn save_changes(
    peers: &mut [Box<dyn Peer>],
    files: &[PathBuf],
    count: &'static str,
    round: &mut usize,
    times: &mut BTreeMap<(&'static str, &'static str), Cost>,
) -> anyhow::Result<()> {
    *round += 1;
    settle()?;
    touch(files, count.parse()?, *round)?;
    std::thread::sleep(Duration::from_millis(50));
    for peer in peers {
        times.entry((peer.name(), count)).or_default().of(|| peer.save())?;
    }
    Ok(())
}

/// How long something takes.
fn time(call: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let start = Instant::now();
    call()?;
    Ok(start.elapsed())
}

/// Has the disk take what is left to be written, so that no program pays for what another has left.
fn settle() -> anyhow::Result<()> {
    execute(&mut Command::new("sync")).map(drop)
}

/// What one operation took, each time.
#[derive(Default)]
struct Cost {
    wall: Samples,
    cpu: Vec<Duration>,
}

impl Cost {
    fn of(&mut self, call: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let before = cpu()?;
        self.wall.time(call)?;
        self.cpu.push(cpu()?.saturating_sub(before));
        Ok(())
    }

    /// The median by the clock, in microseconds.
    fn wall(&self) -> f64 {
        self.wall.quantile(0.5)
    }

    /// The mean of the processors' time, in microseconds: the system counts it in steps of 10 ms, which only
    /// the mean evens out.
    fn cpu(&self) -> f64 {
        let sum: Duration = self.cpu.iter().sum();
        sum.as_secs_f64() * 1e6 / self.cpu.len() as f64
    }
}

/// What the processes that this one started and that have ended took of the processors.
fn cpu() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in parentheses, may have anything in it.
    let rest = stat.rsplit_once(')').context("no name in /proc/self/stat")?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: u64 = fields[13].parse::<u64>()? + fields[14].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// A tree of sources; gives its files.
fn make_tree(tree: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("no home folder")?;
    let given = std::env::var_os("PITON_BENCH_TREE").map(PathBuf::from);
    let source = given.unwrap_or_else(|| home.join("registry/src"));
    let mut sources = Vec::new();
    collect(&source, &mut sources);
    sources.sort();
    ensure!(!sources.is_empty(), "{} has no files", source.display());
    let mut files = Vec::new();
    for copy in 0.. {
        for from in &sources {
            let relative = from.strip_prefix(&source)?;
            let to = tree.join(format!("copy-{copy}")).join(relative);
            std::fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
            let mut bytes = std::fs::read(from)?;
            if copy > 0 {
                bytes.extend_from_slice(format!("\n// copy {copy} of {}\n", relative.display()).as_bytes());
            }
            std::fs::write(&to, bytes)?;
            // Not all of a registry is wanted by git, and the peers should see the same.
            files.push(to);
            if copy > 0 && files.len() >= FILES {
                return Ok(files);
            }
        }
        if files.len() >= FILES {
            return Ok(files);
        }
    }
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        // Ignore files would hide things from some and not from others.
        if name == ".gitignore" || name == ".git" || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else if path.metadata().is_ok_and(|metadata| metadata.len() < 1_000_000) {
            files.push(path);
        }
    }
}

/// Changes files that lie far apart; gives those.
fn touch(files: &[PathBuf], count: usize, round: usize) -> anyhow::Result<Vec<PathBuf>> {
    let step = files.len() / count;
    let changed: Vec<_> = files.iter().skip(round % step).step_by(step).take(count).cloned().collect();
    for file in &changed {
        let mut bytes = std::fs::read(file).unwrap_or_default();
        bytes.extend_from_slice(format!("// changed in round {round}\n").as_bytes());
        std::fs::write(file, bytes)?;
    }
    Ok(changed)
}

/// The least that a first snapshot has to do.
fn read_hash_compress(files: &[PathBuf]) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = std::fs::read(file).map(|bytes| {
                        std::hint::black_box(blake3::hash(&bytes));
                        std::hint::black_box(zstd::bulk::compress(&bytes, 1).map(|packed| packed.len()))
                    });
                    if let Err(error) = outcome {
                        *failed.lock().expect("nobody panics with it") = Some(error);
                    }
                }
            });
        }
    });
    match failed.into_inner()? {
        Some(error) => Err(error.into()),
        None => Ok(start.elapsed()),
    }
}

/// Bytes of everything below a folder.
fn size(folder: &Path) -> u64 {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

fn execute(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

trait Peer {
    fn name(&self) -> &'static str;
    fn save(&mut self) -> anyhow::Result<()>;
    fn restore(&mut self) -> anyhow::Result<()>;
    fn store(&self) -> PathBuf;

    /// The part of a save that looks at the folder, where that is a command of its own.
    fn add(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn status(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The binary beside this program.
fn binary() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("piton");
    ensure!(path.exists(), "{} isn't there: cargo build --release -p piton-cli", path.display());
    Ok(path)
}

struct Piton {
    binary: PathBuf,
    store: PathBuf,
    tree: PathBuf,
    last: String,
}

impl Piton {
    fn new(scratch: &Path, tree: &Path) -> anyhow::Result<Self> {
        let store = scratch.join("piton");
        std::fs::create_dir_all(&store)?;
        Ok(Self { binary: binary()?, store, tree: tree.to_owned(), last: String::new() })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("--store").arg(format!("sqlite:{}", self.store.join("store.db").display()));
        command.args(arguments).current_dir(&self.tree).env("PITON_BUDGET", "0");
        command
    }
}

impl Peer for Piton {
    fn name(&self) -> &'static str {
        "piton"
    }

    fn save(&mut self) -> anyhow::Result<()> {
        let said = execute(&mut self.command(&["save", "-q"]))?;
        self.last = said.split_whitespace().next().unwrap_or_default().to_owned();
        Ok(())
    }

    fn restore(&mut self) -> anyhow::Result<()> {
        execute(&mut self.command(&["restore", "--yes", "-q", &self.last])).map(drop)
    }

    fn status(&mut self) -> anyhow::Result<()> {
        execute(&mut self.command(&["status", "-q"])).map(drop)
    }

    fn store(&self) -> PathBuf {
        self.store.clone()
    }
}

struct Git {
    store: PathBuf,
    tree: PathBuf,
    tuned: bool,
    head: Option<String>,
}

impl Git {
    fn new(scratch: &Path, tree: &Path, tuned: bool) -> anyhow::Result<Self> {
        let store = scratch.join(if tuned { "git-tuned" } else { "git" });
        let git = Self { store, tree: tree.to_owned(), tuned, head: None };
        execute(&mut git.command(&["init", "-q"]))?;
        let mut settings =
            vec![("gc.auto", "0"), ("maintenance.auto", "false"), ("user.name", "b"), ("user.email", "b@b")];
        if tuned {
            settings.extend([
                ("feature.manyFiles", "true"),
                ("core.untrackedCache", "true"),
                ("core.preloadIndex", "true"),
                ("index.threads", "true"),
                ("index.skipHash", "true"),
            ]);
        }
        for (name, value) in settings {
            execute(&mut git.command(&["config", name, value]))?;
        }
        Ok(git)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.arg(format!("--git-dir={}", self.store.display())).arg(format!("--work-tree={}", self.tree.display()));
        command.args(arguments).current_dir(&self.tree);
        command
    }
}

impl Peer for Git {
    fn name(&self) -> &'static str {
        if self.tuned { "git tuned" } else { "git" }
    }

    fn save(&mut self) -> anyhow::Result<()> {
        execute(&mut self.command(&["add", "-A", "--ignore-errors", "."]))?;
        if !self.tuned {
            return execute(&mut self.command(&["commit", "-q", "--allow-empty", "--no-verify", "-m", "x"])).map(drop);
        }
        let tree = execute(&mut self.command(&["write-tree"]))?;
        let mut arguments = vec!["commit-tree", &tree, "-m", "x"];
        if let Some(head) = &self.head {
            arguments.extend(["-p", head]);
        }
        let head = execute(&mut self.command(&arguments))?;
        execute(&mut self.command(&["update-ref", "HEAD", &head]))?;
        self.head = Some(head);
        Ok(())
    }

    fn restore(&mut self) -> anyhow::Result<()> {
        execute(&mut self.command(&["clean", "-qfd"]))?;
        execute(&mut self.command(&["reset", "-q", "--hard", "HEAD"])).map(drop)
    }

    fn store(&self) -> PathBuf {
        self.store.clone()
    }

    fn add(&mut self) -> anyhow::Result<()> {
        execute(&mut self.command(&["add", "-A", "--ignore-errors", "."])).map(drop)
    }

    fn status(&mut self) -> anyhow::Result<()> {
        execute(&mut self.command(&["status", "--porcelain"])).map(drop)
    }
}

struct Restic {
    store: PathBuf,
    tree: PathBuf,
}

impl Restic {
    fn new(scratch: &Path, tree: &Path) -> anyhow::Result<Self> {
        let restic = Self { store: scratch.join("restic"), tree: tree.to_owned() };
        execute(&mut restic.command(&["init", "-q"]))?;
        Ok(restic)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("restic");
        command.arg("-r").arg(&self.store).args(arguments).current_dir(&self.tree).env("RESTIC_PASSWORD", "x");
        command
    }
}

impl Peer for Restic {
    fn name(&self) -> &'static str {
        "restic"
    }

    fn save(&mut self) -> anyhow::Result<()> {
        execute(&mut self.command(&["backup", "-q", "."])).map(drop)
    }

    fn restore(&mut self) -> anyhow::Result<()> {
        execute(&mut self.command(&["restore", "-q", "latest", "--target", "."])).map(drop)
    }

    fn store(&self) -> PathBuf {
        self.store.clone()
    }
}

/// The most memory that a command takes, for each file of the tree.
fn memory(scratch: &Path, tree: &Path, files: usize) -> anyhow::Result<()> {
    let cold = scratch.join("cold");
    std::fs::create_dir(&cold)?;
    let small = scratch.join("small");
    std::fs::create_dir(&small)?;
    std::fs::write(small.join("a"), "x")?;
    let peak = |tree: &Path, store: &str| -> anyhow::Result<f64> {
        let mut command = Command::new(binary()?);
        command.arg("--store").arg(format!("sqlite:{}", cold.join(store).display())).args(["save", "-q"]);
        command.current_dir(tree).env("PITON_BUDGET", "0").stdout(Stdio::null());
        let mut child = command.spawn()?;
        let mut most = 0_u64;
        while child.try_wait()?.is_none() {
            let text = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
            most = most.max(kilobytes.unwrap_or(0) * 1024);
            std::thread::sleep(Duration::from_micros(300));
        }
        Ok(most as f64)
    };
    let base = peak(&small, "small.db")?;
    let first = peak(tree, "large.db")?;
    let again = peak(tree, "large.db")?;
    let each = |peak: f64| format!("{:.0} bytes", (peak - base).max(0.0) / files as f64);
    report("memory of a first snapshot, for each file (packs included)", &each(first), "");
    report("memory of a snapshot without change, for each file", &each(again), "300 bytes and the cache");
    Ok(())
}

/// A command on a tiny tree, from start to exit.
fn tiny(scratch: &Path) -> anyhow::Result<()> {
    let (tree, store) = (scratch.join("tiny"), scratch.join("tiny-store"));
    std::fs::create_dir(&tree)?;
    std::fs::create_dir(&store)?;
    for n in 0..10 {
        std::fs::write(tree.join(format!("{n}.txt")), n.to_string())?;
    }
    let mut piton = Piton { binary: binary()?, store, tree, last: String::new() };
    piton.save()?;
    std::thread::sleep(Duration::from_millis(100));
    piton.save()?;
    settle()?;
    let (mut save, mut status) = (Samples::default(), Samples::default());
    for _ in 0..21 {
        save.time(|| piton.save())?;
        status.time(|| execute(&mut piton.command(&["status", "-q"])))?;
    }
    for (what, samples) in [("save on a tiny tree", save), ("status on a tiny tree", status)] {
        report(what, &format!("{:.1} ms", samples.quantile(0.5) / 1_000.0), "10 ms");
    }
    Ok(())
}
