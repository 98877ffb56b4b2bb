//! Promises 3 and 4: after a failed sync nothing is acknowledged and the handle takes no more writes;
//! without space, inodes or file handles the error names the cause, what was saved stays readable, and
//! work goes on when there is room again.

use std::process::Command;
use std::sync::Arc;

use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_store::{Span, Store, StoreError, Upkeep as _};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::id;
use piton_testing::process;
use piton_testing::scratch::{Scratch, TinyFs, tiny_tmpfs};
use piton_testing::strace::{self, CHANGING, FailAt, When};
use piton_types::{EntryKind, PartName, Timestamp, Value};

use super::saver::{How, LAST, Said, kind, verify};
use super::{by_level, sample};
use crate::support::block_on;

/// How often the most active thread makes such a call in an undisturbed run.
fn most_calls(syscall: &str) -> u32 {
    let scratch = Scratch::in_memory();
    let trace = strace::trace(&How::Well.command(scratch.path()), CHANGING, 32);
    let mut threads = std::collections::HashMap::<u32, u32>::new();
    for call in trace.calls.iter().filter(|call| call.name == syscall) {
        *threads.entry(call.thread).or_default() += 1;
    }
    threads.into_values().max().unwrap_or(0)
}

/// Runs the program with one failing call, then again without; the two must get to the end.
fn fail_once(how: How, fault: FailAt) -> (Said, Result<Option<u32>, StoreError>) {
    let scratch = Scratch::in_memory();
    let finished = strace::run(&how.command(scratch.path()), fault.clone());
    assert!(finished.success(), "{fault:?}: {finished:?}");
    let said = Said::new(&finished.lines());
    let found = verify(scratch.path(), &said);
    if found.is_ok() && how != How::Deaf {
        let again = process::run(&mut How::Well.command(scratch.path()));
        assert!(Said::new(&again.lines()).done.is_some(), "{fault:?}: {again:?}");
        assert_eq!(verify(scratch.path(), &said).unwrap(), Some(LAST), "{fault:?}");
    }
    (said, found)
}

#[test]
fn a_failed_sync_acknowledges_nothing() {
    let (mut tried, mut reported) = (0, 0);
    for syscall in ["fdatasync", "fsync"] {
        let all: Vec<u32> = (1..=most_calls(syscall)).collect();
        for at in sample(&all, by_level(6, 25, usize::MAX)) {
            let (said, found) = fail_once(How::Stubborn, FailAt::new(syscall, "EIO", When::Only(at)));
            tried += 1;
            found.unwrap_or_else(|error| panic!("{syscall} {at}: {error}: {said:?}"));
            let Some((place, first, text, acks)) = said.failures.first() else {
                assert!(said.done.is_some(), "{syscall} {at}: {said:?}");
                continue;
            };
            reported += 1;
            println!("{syscall} {at}: {place} {first} {text}");
            assert_eq!(said.acks.len(), *acks, "{syscall} {at}: nothing is acknowledged after it: {said:?}");
            assert!(said.done.is_none(), "{syscall} {at}: {said:?}");
            if place == "append" {
                assert_eq!(said.failures.len(), 4, "it tried three more times: {said:?}");
                assert!(said.failures.iter().all(|(_, kind, ..)| kind == "Poisoned"), "{syscall} {at}: {said:?}");
            }
        }
    }
    println!("failed syncs: {tried} tried, {reported} reported, the others not waited for by anyone");
    assert!(reported * 2 > tried, "{reported} of {tried}");
}

/// The same for the sync at the end of a burst: nothing of the burst is acknowledged.
#[test]
fn a_failed_sync_acknowledges_nothing_of_a_burst() {
    let mut reported = 0;
    for at in [1, 2, 3, 7, 12] {
        let (said, found) = fail_once(How::Burst, FailAt::new("fdatasync", "EIO", When::Only(at)));
        found.unwrap_or_else(|error| panic!("{at}: {error}: {said:?}"));
        let Some((place, kind, text, acks)) = said.failures.first() else { continue };
        assert_eq!((kind.as_str(), said.acks.len()), ("Poisoned", *acks), "{at}: {place} {text}: {said:?}");
        reported += u32::from(place == "append");
    }
    assert!(reported >= 3, "{reported} of 5");
}

/// The negative control: a program that takes no notice of a failed sync, on a disk that then loses the
/// data, is caught.
#[test]
fn failed_syncs_find_who_ignores_them() {
    let all: Vec<u32> = (1..=most_calls("pwrite64")).collect();
    let mut caught = 0;
    for at in sample(&all, 10) {
        let (said, found) = fail_once(How::Deaf, FailAt::new("pwrite64", "EIO", When::Only(at)));
        caught += usize::from(matches!(found, Err(StoreError::NotFound { .. })));
        println!("{at}: {:?} {:?}", said.newest(), found);
    }
    assert!(caught > 0, "the harness would not have noticed");
}

#[test]
fn no_space_at_any_write() {
    let all: Vec<u32> = (1..=most_calls("pwrite64")).collect();
    let (mut full, mut poisoned, mut unnoticed) = (0, 0, 0);
    let chosen = sample(&all, by_level(8, 40, usize::MAX));
    for at in &chosen {
        let (said, found) = fail_once(How::Stubborn, FailAt::new("pwrite64", "ENOSPC", When::Only(*at)));
        found.unwrap_or_else(|error| panic!("{at}: {error}: {said:?}"));
        let Some((place, first, text, _)) = said.failures.first() else {
            assert!(said.done.is_some(), "{at}: {said:?}");
            unnoticed += 1;
            continue;
        };
        match first.as_str() {
            "Full" => {
                full += 1;
                assert!(text.starts_with("no space is left"), "{text}");
                // There is space again at once, so the next attempt on the same handle goes well.
                let goes_on = place != "append" || (said.failures.len() == 1 && said.done.is_some());
                assert!(goes_on, "{at}: {said:?}");
            }
            "Poisoned" => poisoned += 1,
            other => panic!("{at}: {other} at {place}: {text}"),
        }
    }
    println!(
        "no space: {} of {} writes, {full} full, {poisoned} poisoned, {unnoticed} unnoticed",
        chosen.len(),
        all.len()
    );
    assert!(full > 0);
}

/// A run with an item of 20 KiB for each entry.
struct Growing {
    log: RunLog,
    items: Vec<Value>,
}

impl Growing {
    async fn create(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let new = NewRun::new(id("growing"), Timestamp::from_millis(1));
        Ok(Self { log: RunLog::create(store, new).await?, items: Vec::new() })
    }

    async fn save(&mut self) -> Result<(), StoreError> {
        let mut items = self.items.clone();
        let random = piton_testing::SeededRandom::new(items.len() as u64);
        items.push(Value::Bytes((0..2560).flat_map(|_| random.next_u64().to_le_bytes()).collect()));
        let value = Value::List(items);
        let part = DraftPart {
            name: PartName("state".to_owned()),
            schema: String::new(),
            version: 1,
            content: Content::Value(&value),
        };
        let draft = Draft { parts: vec![part], ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(2)) };
        self.log.append(draft).await?;
        let Value::List(items) = value else { unreachable!("it was made above") };
        self.items = items;
        Ok(())
    }

    async fn check(store: Arc<dyn Store>, items: &[Value]) {
        let log = RunLog::open(store, &id("growing")).await.unwrap();
        let entries = log.entries(Span::ALL).await.unwrap();
        assert_eq!(entries.len(), items.len() + 1);
        for entry in &entries[1..] {
            let value = log.load(&entry.parts[&PartName("state".to_owned())]).await.unwrap();
            assert_eq!(value, Value::List(items[..entry.seq.0 as usize].to_vec()));
        }
    }
}

#[test]
fn work_goes_on_when_a_full_disk_is_made_larger() {
    let disk = tiny_tmpfs(2 << 20);
    let path = disk.path().join("store.db");
    block_on(async {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        let mut growing = Growing::create(Arc::clone(&store)).await.unwrap();
        let error = loop {
            if let Err(error) = growing.save().await {
                break error;
            }
        };
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        let saved = growing.items.len();
        assert!(saved > 10, "{saved}");
        Growing::check(Arc::clone(&store), &growing.items).await;
        assert!(matches!(growing.save().await, Err(StoreError::Full { .. })), "it is still full");
        disk.resize(8 << 20);
        for _ in 0..20 {
            growing.save().await.unwrap();
        }
        Growing::check(Arc::clone(&store), &growing.items).await;
        store.close().await.unwrap();
        drop(growing.log);
        let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        Growing::check(store, &growing.items).await;
        println!("full disk: {saved} entries before, {} in the end", growing.items.len());
    });
}

/// A disk so full that SQLite can't even make the index of its WAL: a process that only reads does without.
#[test]
fn a_store_on_a_full_disk_can_be_read() {
    let disk = tiny_tmpfs(2 << 20);
    let path = disk.path().join("store.db");
    let items = block_on(async {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        let mut growing = Growing::create(Arc::clone(&store)).await.unwrap();
        for _ in 0..5 {
            growing.save().await.unwrap();
        }
        store.close().await.unwrap();
        growing.items
    });
    assert!(!disk.path().join("store.db-shm").exists());
    let ballast = disk.path().join("ballast");
    assert!(std::fs::write(&ballast, vec![1; 4 << 20]).is_err(), "the disk is full");
    let before = std::fs::read(&path).unwrap();
    let refused = SqliteStore::open(&path, SqliteOptions::default()).map(drop);
    assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
    let reading = || SqliteStore::open(&path, SqliteOptions::default().with_read_when_full(true));
    block_on(async {
        let store: Arc<dyn Store> = Arc::new(reading().unwrap());
        Growing::check(Arc::clone(&store), &items).await;
        let written = store.set_note("a note", Some("of something".into())).await;
        let Err(error @ StoreError::Poisoned { .. }) = written else { panic!("{written:?}") };
        assert!(error.to_string().contains("no space is left"), "{error}");
        // No other process writes what this one would miss.
        let patience = std::time::Duration::from_millis(20);
        let other = SqliteStore::open(&path, SqliteOptions::default().with_patience(patience)).map(drop);
        assert!(matches!(other, Err(StoreError::Unavailable { .. })), "{other:?}");
        store.close().await.unwrap();
    });
    assert_eq!(std::fs::read(&path).unwrap(), before);
    std::fs::remove_file(&ballast).unwrap();
    block_on(reading().unwrap().set_note("a note", Some("of something".into()))).unwrap();
}

#[test]
fn no_inodes_is_said_so() {
    for free in 0..4 {
        // The root, and the files that a store needs: itself, the WAL, its index and the lock.
        let disk = TinyFs::new(4 << 20, Some(1 + free + 4));
        let ballast: Vec<_> = (0..4).map(|n| disk.path().join(format!("ballast-{n}"))).collect();
        for file in &ballast {
            std::fs::write(file, b"").unwrap();
        }
        let path = disk.path().join("store.db");
        let attempt = || {
            let store = SqliteStore::open(&path, SqliteOptions::default())?;
            block_on(async {
                let mut growing = Growing::create(Arc::new(store)).await?;
                growing.save().await
            })
        };
        let error = attempt().unwrap_err();
        println!("{free} inodes free: {error}");
        assert!(matches!(error, StoreError::Full { .. }), "{free}: {error:?}");
        for file in ballast {
            std::fs::remove_file(file).unwrap();
        }
        attempt().unwrap();
    }
}

#[test]
fn no_file_handles_is_said_so() {
    let scratch = Scratch::in_memory();
    // Something is there already.
    let finished = strace::run(&How::Well.command(scratch.path()), strace::KillAt::new(&["fdatasync"], 12));
    let before = Said::new(&finished.lines());
    assert!(before.acks.len() > 3, "{finished:?}");
    let (mut refused, mut done) = (0, 0);
    for limit in 5..20 {
        let saver = How::Well.command(scratch.path());
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {limit} && exec \"$0\" \"$@\"")]);
        limited.arg(saver.get_program()).args(saver.get_args());
        limited.envs(saver.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let finished = process::run(&mut limited);
        let said = Said::new(&finished.lines());
        if !finished.success() && said.acks.is_empty() && said.failures.is_empty() {
            println!("{limit} handles: the program itself can't start");
            continue;
        }
        if let [(place, kind, text, _)] = &said.failures[..] {
            println!("{limit} handles: {place} {kind} {text}");
            assert_eq!(kind, "Unavailable", "{limit}: {text}");
            assert!(text.contains("file handles") || text.contains("open files"), "{limit}: {text}");
            refused += 1;
        } else {
            assert!(said.done.is_some(), "{limit}: {finished:?}");
            done += 1;
        }
        let mut acks = before.clone();
        acks.acks.extend(said.acks);
        verify(scratch.path(), &acks).unwrap();
    }
    println!("file handles: refused with {refused} limits, done with {done}");
    assert!(refused > 0 && done > 0);
    assert_eq!(kind(&StoreError::Unavailable { detail: String::new() }), "Unavailable");
}
