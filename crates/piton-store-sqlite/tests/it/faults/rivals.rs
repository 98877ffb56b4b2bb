//! Promises 11 and 12: of the processes that race for one entry exactly one wins, and a process whose run was taken
//! over while it stood still can't write when it goes on. On the SQLite store and, since the processes are the same, on
//! the file store.

use std::path::Path;
use std::sync::Arc;

use piton_log::{Draft, NewRun, RunLog};
use piton_store::{Span, Store, StoreError};
use piton_store_objects::{FolderOptions, ObjectStore};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::id;
use piton_testing::process::signal_process;
use piton_types::{EntryKind, Fence, Timestamp, Value};
use rustix::process::{Pid, Signal};

use super::by_level;
use super::saver::kind;
use crate::child::{Process, command, say, wait};
use crate::support::block_on;

const MANNER: &str = "PITON_TEST_MANNER";

/// How the racers go about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// One attempt a round, with an entry of one's own.
    Fair,
    /// The same, but all append the very same entry.
    Alike,
    /// Looks again after a conflict, and tries until it wins.
    Insistent,
}

/// The stores, by the names that they get.
const STORES: [&str; 2] = ["store.db", "store.files"];

fn store(path: &Path) -> Arc<dyn Store> {
    if path.ends_with(STORES[1]) {
        return Arc::new(ObjectStore::in_folder(path, &FolderOptions::default()).unwrap());
    }
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
}

async fn create(path: &Path) -> RunLog {
    let new = NewRun::new(id("contended"), Timestamp::from_millis(1));
    RunLog::create(store(path), new).await.unwrap()
}

/// An answer that says whose it is, or doesn't.
fn draft(signed: bool) -> Draft<'static> {
    let body = if signed { Value::from(i64::from(std::process::id())) } else { Value::Null };
    Draft { body, ..Draft::new(EntryKind::Answer, Timestamp::from_millis(2)) }
}

/// The role: one attempt each time it is told to, from where the log was seen to end before.
pub(crate) async fn contend(path: &Path) {
    let manner = std::env::var(MANNER).unwrap();
    let (insists, signed) = (manner == "Insistent", manner != "Alike");
    let mut log = RunLog::open(store(path), &id("contended")).await.unwrap();
    loop {
        say("ready");
        if !wait() {
            return;
        }
        let outcome = loop {
            match log.append(draft(signed)).await {
                Err(StoreError::Conflict { .. }) if insists => drop(log.refresh().await.unwrap()),
                other => break other,
            }
        };
        say(match &outcome {
            Ok(_) => "won".to_owned(),
            Err(error) => kind(error),
        });
        if !wait() {
            return;
        }
        log.refresh().await.unwrap();
    }
}

/// The role: appends with the fence that it was given, once it is told to.
pub(crate) async fn hold(path: &Path) {
    let mut log = RunLog::open(store(path), &id("contended")).await.unwrap();
    say("ready");
    if wait() {
        let outcome = log.append(Draft { fence: Some(Fence(1)), ..draft(true) }).await;
        say(outcome.map_or_else(|error| kind(&error), |_| "won".to_owned()));
    }
}

/// How many of `racers` won in each round, and what the others got.
fn race(name: &str, racers: usize, rounds: usize, manner: Manner) -> Vec<(usize, Vec<String>)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let log = block_on(create(&path));
    let mut command = command("contend", &path);
    command.env(MANNER, format!("{manner:?}"));
    let mut processes: Vec<_> = (0..racers).map(|_| Process::spawn(&mut command)).collect();
    let mut results = Vec::new();
    for _ in 0..rounds {
        for process in &mut processes {
            assert_eq!(process.hear().as_deref(), Some("ready"));
        }
        for process in &mut processes {
            process.go();
        }
        let answers: Vec<_> = processes.iter_mut().map(|process| process.hear().unwrap()).collect();
        let won = answers.iter().filter(|answer| *answer == "won").count();
        results.push((won, answers.into_iter().filter(|answer| answer != "won").collect()));
        for process in &mut processes {
            process.go();
        }
    }
    let entries = block_on(log.entries(Span::ALL)).unwrap();
    let won = results.iter().map(|(won, _)| won).sum::<usize>();
    assert_eq!(entries.len() - 1, won, "so many won");
    results
}

#[test]
fn fifty_processes_race_for_one_entry() {
    let rounds = by_level(1, 3, 20);
    for (name, (won, others)) in STORES
        .iter()
        .flat_map(|name| race(name, 50, rounds, Manner::Fair).into_iter().map(move |result| (name, result)))
    {
        assert_eq!(won, 1, "{name}");
        assert!(others.len() == 49 && others.iter().all(|answer| answer == "Conflict"), "{name}: {others:?}");
    }
    println!("races: {rounds} rounds of 50 processes, one winner each");
}

/// The same when nothing in the entries tells the racers apart.
#[test]
fn racers_for_the_same_entry_have_one_winner() {
    for (won, others) in STORES.iter().flat_map(|name| race(name, 8, 3, Manner::Alike)) {
        assert_eq!((won, others.len()), (1, 7));
    }
}

/// The negative control: racers that look again and insist are counted as what they are, several winners.
#[test]
fn several_winners_would_be_noticed() {
    let results = race(STORES[0], 6, 1, Manner::Insistent);
    assert_eq!(results, [(6, Vec::new())]);
}

/// The signal stops a process only once one of its threads gets to run; until then the others go on, and one
/// of them could be stopped in the middle of its commit, with the lock that all other processes wait for.
fn wait_until_stopped(pid: Pid) {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let stopped = || {
        std::fs::read_dir(&tasks).unwrap().all(|task| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        })
    };
    let start = std::time::Instant::now();
    while !stopped() {
        assert!(start.elapsed() < std::time::Duration::from_secs(30), "the process doesn't stop");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_frozen_holder_cannot_write_after_a_take_over() {
    let rounds = by_level(2, 5, 50);
    for (n, taken_over) in [true, false].repeat(rounds).into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(STORES[n / 2 % 2]);
        block_on(async {
            let mut log = create(&path).await;
            let mut holder = Process::start("hold", &path);
            assert_eq!(holder.hear().as_deref(), Some("ready"));
            signal_process(holder.pid(), Signal::STOP);
            wait_until_stopped(holder.pid());
            holder.go();
            if taken_over {
                let claim =
                    Draft { fence: Some(Fence(2)), ..Draft::new(EntryKind::Claimed, Timestamp::from_millis(3)) };
                log.append(claim).await.unwrap();
            }
            signal_process(holder.pid(), Signal::CONT);
            // Without the take-over it does get through: the negative control.
            assert_eq!(holder.hear().as_deref(), Some(if taken_over { "Fenced" } else { "won" }));
            log.refresh().await.unwrap();
            assert_eq!((log.head().seq.0, log.head().fence), (1, Fence(if taken_over { 2 } else { 1 })));
        });
    }
    println!("frozen holders: {rounds} fenced, {rounds} let through without a take-over");
}
