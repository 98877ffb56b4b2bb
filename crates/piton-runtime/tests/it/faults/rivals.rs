//! Processes that race for one run, and one that is frozen while another takes over.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use piton_runtime::{Context, LeaseOptions, OpenRun, Run, RunError, this_process};
use piton_store::Store;
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::level::by_level;
use piton_testing::process::signal_process;
use piton_types::Holder;

use crate::support::{dead_process, run_id};

const ROLE: &str = "PITON_TEST_RIVAL";
const STORE: &str = "PITON_TEST_RIVAL_STORE";
const TTL: Duration = Duration::from_millis(400);

fn open() -> OpenRun {
    OpenRun { id: Some(run_id()), lease: LeaseOptions { ttl: TTL, wait: None }, ..OpenRun::default() }
}

fn store(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
}

struct Rival {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Rival {
    fn start(role: &str, store: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["faults::rivals::entrance", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(STORE, store).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended without a word");
            if let Some((_, said)) = line.split_once("said: ") {
                return said.trim().to_owned();
            }
        }
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn signal(&self, signal: rustix::process::Signal) {
        signal_process(rustix::process::Pid::from_child(&self.child), signal);
    }

    /// Whether all of its threads stand still.
    fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks.into_iter().all(|task| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        })
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[expect(clippy::print_stdout, reason = "a child process answers its parent so")]
fn say(text: &str) {
    println!("said: {text}");
}

fn wait() {
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(future)
}

/// What a second process does; nothing, if this is the first.
#[test]
fn entrance() {
    let (Ok(role), Ok(path)) = (std::env::var(ROLE), std::env::var(STORE)) else { return };
    block_on(async {
        let mut context = Context::system(store(Path::new(&path)));
        match role.as_str() {
            // Opens the run when it is told to, and keeps it.
            "race" => {
                say("ready");
                wait();
                let opened = Run::open(&context, open()).await;
                say(match &opened {
                    Ok(_) => "won",
                    Err(RunError::Held { .. }) => "held",
                    Err(error) => panic!("{error}"),
                });
                wait();
            }
            // Drives the run as if from another host, and writes when it is told to.
            "hold" => {
                context.holder.host = "elsewhere".to_owned();
                let mut run = Run::open(&context, open()).await.unwrap();
                say("ready");
                wait();
                match run.step("late", (), async |()| Ok::<_, String>(())).await.map_err(RunError::from) {
                    Ok(()) => say("wrote"),
                    Err(error) if error.is_fenced() => say("fenced"),
                    Err(RunError::Broken { cause, .. }) if cause.contains("taken over") => say("fenced"),
                    Err(error) => panic!("{error}"),
                }
                wait();
            }
            role => panic!("no such role: {role}"),
        }
    });
}

/// Promise 11: of fifty processes that resume a run whose holder died, one gets it.
#[test]
fn of_fifty_racing_resumes_one_wins() {
    let rounds = by_level(1, 3, 20);
    for _ in 0..rounds {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let dead = Holder { ..dead_process() };
        block_on(async {
            drop(Run::open(&Context { holder: dead, ..Context::system(store(&path)) }, open()).await.unwrap());
        });
        let mut rivals: Vec<_> = (0..50).map(|_| Rival::start("race", &path)).collect();
        rivals.iter_mut().for_each(|rival| assert_eq!(rival.hear(), "ready"));
        rivals.iter_mut().for_each(Rival::go);
        let answers: Vec<_> = rivals.iter_mut().map(Rival::hear).collect();
        let won = answers.iter().filter(|answer| *answer == "won").count();
        assert_eq!((won, answers.len()), (1, 50), "{answers:?}");
        let fence = block_on(async { store(&path).head(&run_id()).await.unwrap().unwrap().fence });
        assert_eq!(fence.0, 2, "one claim, no silent fork");
    }
    println!("racing resumes: {rounds} rounds of 50 processes, one winner each");
}

/// Promise 12: a holder elsewhere is frozen past its time, another takes over, and the thawed one can't write.
/// Without the take-over it can: the negative control.
#[test]
fn a_frozen_holder_cannot_commit_after_a_takeover() {
    let rounds = by_level(1, 3, 20);
    for taken_over in [true, false].repeat(rounds) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let mut holder = Rival::start("hold", &path);
        assert_eq!(holder.hear(), "ready");
        block_on(async {
            let context = Context::system(store(&path));
            let held = Run::open(&context, open()).await.unwrap_err();
            assert!(
                matches!(&held, RunError::Held { holder, .. } if holder.host == "elsewhere" && *holder != this_process())
            );
            // As long as it beats it isn't given up, however long one waits.
            let patient = |wait| OpenRun { lease: LeaseOptions { ttl: TTL, wait: Some(wait) }, ..open() };
            assert!(matches!(Run::open(&context, patient(2 * TTL)).await, Err(RunError::Held { .. })));
            // A process that is stopped in the middle of a commit would keep all others out of the store.
            loop {
                holder.signal(rustix::process::Signal::STOP);
                while !holder.is_stopped() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let (id, me) = (run_id(), this_process());
                let probe = context.store.beat(&id, piton_types::Fence(1), &me);
                if matches!(tokio::time::timeout(Duration::from_millis(200), probe).await, Ok(Ok(_))) {
                    break;
                }
                holder.signal(rustix::process::Signal::CONT);
            }
            let taken = if taken_over { Some(Run::open(&context, patient(20 * TTL)).await.unwrap()) } else { None };
            holder.go();
            holder.signal(rustix::process::Signal::CONT);
            assert_eq!(holder.hear(), if taken_over { "fenced" } else { "wrote" });
            if let Some(mut taken) = taken {
                taken.step("late", (), async |()| Ok::<_, String>(())).await.unwrap();
                taken.complete(()).await.unwrap();
            }
        });
    }
    println!("frozen holders: {rounds} fenced, {rounds} let through without a take-over");
}
