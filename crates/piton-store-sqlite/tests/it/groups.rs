//! What a commit costs, and who wins a race.

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use piton_store::{Log as _, Span, Store as _, StoreError};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::strace;
use piton_types::{Durability, Seq};

use crate::child::{self, Process};
use crate::support::{Line, block_on, open};

/// What is in the database, seen by a plain connection.
fn count(path: &Path, sql: &str) -> i64 {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.query_row(sql, (), |row| row.get(0)).unwrap()
}

#[test]
fn an_append_is_one_row_in_one_transaction() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::new("run");
        line.durability = Durability::Durable;
        line.grow(&store, 50).await;
        let counters = store.counters();
        assert_eq!((counters.commits, counters.groups, counters.syncs, counters.inline), (50, 50, 50, 50));
        assert_eq!(counters.wal_grown, 0, "short work doesn't pay for the log");
        let before = counters.wal_pages;
        line.grow(&store, 10).await;
        // A row of some 200 bytes changes the page that it goes to, and now and then begins one.
        let pages = store.counters().wal_pages - before;
        assert!((10..=14).contains(&pages), "{pages} pages for 10 appends");
        drop(store);
        assert_eq!(count(&folder.path().join("store.db"), "SELECT count(*) FROM entry"), 60);
    });
}

#[test]
fn relaxed_appends_do_not_wait_for_the_disk() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::new("run");
        line.grow(&store, 20).await;
        assert_eq!(store.counters().syncs, 0);
        line.durability = Durability::Durable;
        line.grow(&store, 1).await;
        line.durability = Durability::Relaxed;
        line.grow(&store, 20).await;
        assert_eq!((store.counters().syncs, store.counters().commits), (1, 41));
    });
}

/// A sync without a commit: one for all who ask at once, and whoever appends meanwhile goes on.
#[test]
fn a_sync_is_shared_and_holds_nobody_up() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::new("run");
        line.grow(&store, 20).await;
        let mut asked: Vec<_> = (0..50).map(|_| store.sync()).collect();
        // Each is begun, and those that aren't done at once are waited for later.
        let begin = |cx: &mut Context<'_>| {
            asked.retain_mut(|sync| match sync.as_mut().poll(cx) {
                Poll::Ready(synced) => synced.is_err(),
                Poll::Pending => true,
            });
            Poll::Ready(())
        };
        std::future::poll_fn(begin).await;
        line.grow(&store, 40).await;
        for sync in asked {
            sync.await.unwrap();
        }
        let counters = store.counters();
        assert!((1..50).contains(&counters.syncs), "{counters:?}");
        assert_eq!((counters.commits, counters.inline), (60, 60), "{counters:?}");
        store.close().await.unwrap();
        assert!(matches!(store.sync().await, Err(StoreError::Unavailable { .. })));
    });
}

/// Locks are most of what a commit asks of the system: two, one to write and its end, once a writer is at work.
#[test]
fn a_commit_of_a_busy_writer_takes_few_system_calls() {
    let calls = |many: u32| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = child::command("many", &folder.path().join("store.db"));
        let trace = strace::trace(command.env(child::MANY, many.to_string()), &["fcntl", "pwrite64"], 0);
        let locking = |thread| trace.calls.iter().filter(|call| call.name == "fcntl" && call.thread == thread).count();
        let writer = trace.calls.iter().map(|call| call.thread).max_by_key(|thread| locking(*thread)).unwrap();
        let writes = trace.calls.iter().filter(|call| call.name == "pwrite64" && call.thread == writer).count();
        (locking(writer), writes)
    };
    let (few, many) = (calls(200), calls(600));
    let (locks, writes) = (many.0 - few.0, many.1 - few.1);
    println!("400 commits: {locks} locks, {writes} writes");
    // A mark is raised now and then, there may be a moment without a commit, and some are made by another thread while
    // the log is looked after.
    assert!((600..1100).contains(&locks), "{locks} locks for 400 commits");
    assert!((300..480).contains(&writes), "{writes} writes for 400 commits");
}

/// How many marks of the log's index a process holds. Their locks are on these bytes of the file.
fn marks(process: &Process) -> usize {
    let pid = process.pid().as_raw_nonzero().to_string();
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let fields = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let held = fields.filter(|fields| fields.get(4) == Some(&&*pid) && fields.get(3) == Some(&"READ"));
    held.filter(|fields| fields.get(6).and_then(|start| start.parse().ok()).is_some_and(|n| (124..128).contains(&n)))
        .count()
}

/// A writer that kept its mark lets go of it when it comes to rest, so that others can begin the log again.
#[test]
fn a_writer_at_rest_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start("rest", &folder.path().join("store.db"));
    assert_eq!(process.hear().as_deref(), Some("at work"));
    let patience = Instant::now();
    while marks(&process) == 0 {
        assert!(patience.elapsed() < Duration::from_secs(20), "a writer at work keeps its mark");
    }
    process.go();
    assert_eq!(process.hear().as_deref(), Some("at rest"));
    let patience = Instant::now();
    while marks(&process) > 0 {
        assert!(patience.elapsed() < Duration::from_secs(20), "it still has its mark");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn concurrent_appends_share_syncs() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder));
    let start = Arc::new(Barrier::new(16));
    let threads: Vec<_> = (0..16)
        .map(|number| {
            let (store, start) = (Arc::clone(&store), Arc::clone(&start));
            std::thread::spawn(move || {
                let mut line = Line::new(&format!("run-{number}"));
                line.durability = Durability::Durable;
                start.wait();
                block_on(line.grow(&store, 40));
                line
            })
        })
        .collect();
    let lines: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let counters = store.counters();
    assert_eq!(counters.commits, 16 * 40);
    assert!(counters.syncs < counters.commits, "{counters:?}");
    println!("{} commits in {} groups", counters.commits, counters.groups);
    for line in lines {
        assert_eq!(block_on(store.head(&line.run)).unwrap(), line.head);
    }
}

/// Members of one group that are refused leave the others alone.
#[test]
fn a_refused_member_does_not_disturb_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    for round in 0..20 {
        let line = Line::new(&format!("run-{round}"));
        let good = line.next();
        let mut staged = Line::new(&format!("staged-{round}")).next();
        staged.staged = vec![piton_store::PackId(77)];
        let mut ahead = Line::new(&format!("ahead-{round}")).next();
        ahead.seq = Seq(5);
        let tasks: Vec<_> = [good, staged, ahead]
            .into_iter()
            .map(|commit| {
                let store = Arc::clone(&store);
                runtime.spawn(async move { store.append(commit).await })
            })
            .collect();
        let mut answers = tasks.into_iter().map(|task| runtime.block_on(task).unwrap());
        assert!(answers.next().unwrap().is_ok());
        assert!(matches!(answers.next().unwrap(), Err(StoreError::NotFound { .. })));
        assert!(matches!(answers.next().unwrap(), Err(StoreError::Conflict { head: None, .. })));
    }
    runtime.block_on(async {
        assert_eq!(piton_store::Store::usage(&*store).await.unwrap().runs, 20, "nothing of a refused one is left");
    });
}

#[test]
fn racing_processes_have_one_winner_per_entry() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&folder);
    let mut racers: Vec<_> = (0..3).map(|_| Process::start("race", &path)).collect();
    for racer in &mut racers {
        assert_eq!(racer.hear().as_deref(), Some("ready"));
    }
    for racer in &mut racers {
        racer.go();
    }
    let won: u32 = racers.iter_mut().map(|racer| racer.hear().unwrap().parse::<u32>().unwrap()).sum();
    let head = block_on(store.head(&crate::support::id("raced"))).unwrap().unwrap();
    assert_eq!(head.seq.0 + 1, won);
    let entries = block_on(store.read(&crate::support::id("raced"), Span::ALL)).unwrap();
    assert_eq!(entries.len() as u32, won);
}

#[test]
fn a_dropped_future_is_whole_or_absent() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    for round in 0..30 {
        let line = Line::new(&format!("run-{round}"));
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (store, commit) = (Arc::clone(&store), line.next());
                runtime.spawn(async move { store.append(commit).await })
            })
            .collect();
        for task in &tasks {
            task.abort();
        }
        let won = tasks.into_iter().filter(|_| true).map(|task| runtime.block_on(task));
        let won = won.filter(|answer| matches!(answer, Ok(Ok(())))).count();
        assert!(won <= 1);
        let head = runtime.block_on(store.head(&line.run)).unwrap();
        assert!(head.is_some() || won == 0);
    }
    // The store is as good as before.
    runtime.block_on(Line::new("after").grow(&store, 3));
}

#[test]
fn a_closed_store_says_so() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::new("run");
        line.grow(&store, 1).await;
        piton_store::Store::close(&store).await.unwrap();
        piton_store::Store::close(&store).await.unwrap();
        assert!(matches!(line.append(&store).await, Err(StoreError::Unavailable { .. })));
        assert!(matches!(store.head(&line.run).await, Err(StoreError::Unavailable { .. })));
    });
}

#[test]
fn a_writer_in_another_process_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let options = SqliteOptions::default().with_patience(Duration::from_millis(100));
    let store = SqliteStore::open(&path, options).unwrap();
    let mut line = Line::new("run");
    block_on(line.grow(&store, 1));
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(matches!(block_on(line.append(&store)), Err(StoreError::Unavailable { .. })));
    let freed = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        other.execute_batch("ROLLBACK").unwrap();
    });
    block_on(line.append(&store)).unwrap();
    freed.join().unwrap();
    assert_eq!(store.counters().inline, 1);
}
