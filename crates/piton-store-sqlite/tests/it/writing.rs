//! What a commit costs, and who wins a race.

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use piton_store::{Log as _, Span, StoreError};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{Durability, Seq};

use crate::child::Process;
use crate::support::{Line, block_on, open};

/// What is in the database, seen by a plain connection.
fn count(path: &Path, sql: &str) -> i64 {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.query_row(sql, (), |row| row.get(0)).unwrap()
}

#[test]
fn an_append_is_one_transaction() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::relaxed("run");
        line.durability = Durability::Durable;
        let mut first = line.next();
        let row = first.index.as_mut().unwrap();
        (row.folder, row.labels) = (None, Default::default());
        store.append(vec![first.clone()]).await.unwrap();
        line.advance(&first);
        line.grow(&store, 49).await;
        let counters = store.counters();
        assert_eq!((counters.commits, counters.syncs), (50, 50));
        let before = counters.wal_pages;
        line.grow(&store, 10).await;
        // A row of some 200 bytes changes the page that it goes to, and now and then begins one; the time of the run
        // changes its row and the index of lists.
        let pages = store.counters().wal_pages - before;
        assert!((30..=34).contains(&pages), "{pages} pages for 10 appends");
        // A run with a folder is listed by that too, and one with labels by those.
        let mut listed = Line { durability: Durability::Durable, ..Line::relaxed("listed") };
        listed.grow(&store, 50).await;
        let before = store.counters().wal_pages;
        listed.grow(&store, 10).await;
        let pages = store.counters().wal_pages - before;
        assert!((60..=64).contains(&pages), "{pages} pages for 10 appends to a run with a folder and a label");
        drop(store);
        assert_eq!(count(&folder.path().join("store.db"), "SELECT count(*) FROM entry"), 120);
    });
}

#[test]
fn relaxed_appends_do_not_wait_for_the_disk() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::relaxed("run");
        line.grow(&store, 20).await;
        assert_eq!(store.counters().syncs, 0);
        line.durability = Durability::Durable;
        line.grow(&store, 1).await;
        line.durability = Durability::Relaxed;
        line.grow(&store, 20).await;
        assert_eq!((store.counters().syncs, store.counters().commits), (1, 41));
    });
}

/// Threads of one process that write at the same time: each append is acknowledged once it is there.
#[test]
fn concurrent_appends_all_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder));
    let start = Arc::new(Barrier::new(16));
    let threads: Vec<_> = (0..16)
        .map(|number| {
            let (store, start) = (Arc::clone(&store), Arc::clone(&start));
            std::thread::spawn(move || {
                let mut line = Line::relaxed(&format!("run-{number}"));
                line.durability = Durability::Durable;
                start.wait();
                block_on(line.grow(&*store, 40));
                line
            })
        })
        .collect();
    let lines: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let counters = store.counters();
    assert_eq!(counters.commits, 16 * 40);
    assert_eq!(counters.syncs, counters.commits, "{counters:?}");
    for line in lines {
        assert_eq!(block_on(store.head(&line.run)).unwrap(), line.head);
    }
}

/// Appends that are refused leave those that wait with them alone.
#[test]
fn a_refused_append_does_not_disturb_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    for round in 0..20 {
        let line = Line::relaxed(&format!("run-{round}"));
        let good = line.next();
        let mut staged = Line::relaxed(&format!("staged-{round}")).next();
        staged.staged = vec![piton_store::PackId::new([77; 32])];
        let mut ahead = Line::relaxed(&format!("ahead-{round}")).next();
        ahead.seq = Seq(5);
        let tasks: Vec<_> = [good, staged, ahead]
            .into_iter()
            .map(|commit| {
                let store = Arc::clone(&store);
                runtime.spawn(async move { store.append(vec![commit]).await })
            })
            .collect();
        let mut answers = tasks.into_iter().map(|task| runtime.block_on(task).unwrap());
        assert!(answers.next().unwrap().is_ok());
        assert!(matches!(answers.next().unwrap(), Err(StoreError::PackGone { .. })));
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
    let head = block_on(store.head(&piton_testing::id("raced"))).unwrap().unwrap();
    assert_eq!(head.seq.0 + 1, won);
    let entries = block_on(store.read(&piton_testing::id("raced"), Span::ALL)).unwrap();
    assert_eq!(entries.len() as u32, won);
}

#[test]
fn a_dropped_future_is_whole_or_absent() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    for round in 0..30 {
        let line = Line::relaxed(&format!("run-{round}"));
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (store, commit) = (Arc::clone(&store), line.next());
                runtime.spawn(async move { store.append(vec![commit]).await })
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
    runtime.block_on(Line::relaxed("after").grow(&*store, 3));
}

#[test]
fn a_closed_store_says_so() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut line = Line::relaxed("run");
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
    let mut line = Line::relaxed("run");
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
}
