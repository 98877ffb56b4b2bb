//! Promises 1 to 4 on the folder store: kills at system calls, power cuts, failing syncs, no space.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use piton_testing::power::{Names, Recording};
use piton_testing::process;
use piton_testing::scratch::{Scratch, tiny_tmpfs};
use piton_testing::strace::{self, CHANGING, FailAt, KillAt, When};

use super::saver::{How, LAST, Said, verify};
use super::{SEED, by_level, open, sample};
use crate::support::{Line, block_on};

fn fresh(scratch: &Scratch) -> PathBuf {
    let folder = scratch.join("store");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    folder
}

/// Promise 1. Killed at each chosen call, looked at, and gone on with to the end.
#[test]
fn a_folder_store_survives_kills_at_system_calls() {
    let scratch = Scratch::in_memory();
    let traced = fresh(&scratch);
    let trace = strace::trace(&How::Well.command(&traced), CHANGING, 32);
    assert!(Said::new(&trace.finished.lines()).done, "{:?}", trace.finished);
    let found = trace.kill_points(&traced);
    let chosen = sample(&found.points, by_level(25, 120, usize::MAX));
    let (next, killed, wrong) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let scratch = Scratch::in_memory();
                while let Some(point) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let folder = fresh(&scratch);
                    let mut here = point.clone();
                    here.path = here.path.map(|path| match path.strip_prefix(&traced) {
                        Ok(rest) if rest.as_os_str().is_empty() => folder.clone(),
                        Ok(rest) => folder.join(rest),
                        Err(_) => path,
                    });
                    let first = strace::run(&How::Well.command(&folder), here);
                    killed.fetch_add(usize::from(first.killed()), Ordering::Relaxed);
                    let said = Said::new(&first.lines());
                    if let Err(error) = verify(&folder, &said) {
                        wrong.lock().unwrap().push(format!("{point:?}: {error}"));
                        continue;
                    }
                    let again = process::run(&mut How::Well.command(&folder));
                    let end = verify(&folder, &Said::new(&again.lines()));
                    if !Said::new(&again.lines()).done || end != Ok(Some(LAST)) {
                        wrong.lock().unwrap().push(format!("{point:?}, gone on: {end:?} {again:?}"));
                    }
                }
            });
        }
    });
    let (killed, wrong) = (killed.into_inner(), wrong.into_inner().unwrap());
    println!("folder store: {} of {} kill points, {killed} killed", chosen.len(), found.points.len());
    assert_eq!(wrong, [""; 0]);
    assert!(killed * 10 >= chosen.len() * 5, "{killed} of {}: too few were met", chosen.len());
}

fn cut(recording: &Recording, count: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    for (cut, seed) in recording.cuts(count, SEED) {
        let image = recording.materialise(cut, seed);
        let checked = std::panic::catch_unwind(|| verify(image.dir.path(), &Said::new(&image.acknowledged)));
        match checked {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => wrong.push(format!("cut {cut}, seed {seed}, after {}: {error}", image.last)),
            Err(_) => wrong.push(format!("cut {cut}, seed {seed}, after {}: wrong content", image.last)),
        }
    }
    wrong
}

fn record(how: How) -> Recording {
    let scratch = Scratch::in_memory();
    let folder = scratch.join("store");
    std::fs::create_dir(&folder).unwrap();
    let recording = Recording::record(&how.command(&folder), &folder);
    assert!(Said::new(&recording.finished.lines()).done, "{:?}", recording.finished);
    recording
}

/// Promise 2.
#[test]
fn a_folder_store_survives_power_cuts() {
    let mut recording = record(How::Well);
    for names in [Names::DirectorySync, Names::Journal] {
        recording = recording.with_names(names);
        let count = by_level(30, 100, 1000);
        let wrong = cut(&recording, count);
        println!("folder store, {names:?}: {count} cuts over {} steps, {} syncs", recording.steps(), recording.syncs());
        assert_eq!(wrong, [""; 0]);
    }
}

/// The negative control: a store that never syncs is caught.
#[test]
fn power_cuts_find_a_folder_store_that_does_not_sync() {
    let wrong = cut(&record(How::Careless), by_level(10, 30, 100));
    println!("folder store that never syncs: {} cuts found it", wrong.len());
    assert!(wrong.iter().any(|error| error.contains("lost")), "the harness would not have noticed: {wrong:?}");
}

/// Promise 3: after a failed sync nothing is acknowledged any more, and what was is there.
#[test]
fn a_failed_sync_poisons_a_folder_store() {
    let calls = |path: &Path| {
        let trace = strace::trace(&How::Well.command(path), CHANGING, 32);
        trace.calls.iter().filter(|call| call.name == "fsync").count()
    };
    let scratch = Scratch::in_memory();
    let all: Vec<u32> = (1..=u32::try_from(calls(&fresh(&scratch))).unwrap()).collect();
    let (mut tried, mut reported) = (0, 0);
    for at in sample(&all, by_level(5, 20, usize::MAX)) {
        let folder = fresh(&scratch);
        let finished = strace::run(&How::Honest.command(&folder), FailAt::new("fsync", "EIO", When::Only(at)));
        let said = Said::new(&finished.lines());
        verify(&folder, &said).unwrap_or_else(|error| panic!("{at}: {error}"));
        tried += 1;
        if let Some(failure) = &said.failure {
            assert!(failure.contains("takes no more writes after a failed one"), "{failure}");
            reported += 1;
        }
        process::run(&mut How::Well.command(&folder));
        assert_eq!(verify(&folder, &said), Ok(Some(LAST)), "{at}");
    }
    println!("folder store: {tried} failed syncs, {reported} reported");
    assert!(reported * 2 > tried, "{reported} of {tried}");
}

/// Promise 4: `ENOSPC` at any write is said, what was acknowledged is there, and the next attempt gets to the end.
#[test]
fn no_space_at_any_write_of_a_folder_store() {
    let scratch = Scratch::in_memory();
    let trace = strace::trace(&How::Well.command(&fresh(&scratch)), CHANGING, 32);
    for syscall in ["write", "linkat", "link", "renameat", "rename"] {
        let count = trace.calls.iter().filter(|call| call.name == syscall).count();
        let all: Vec<u32> = (1..=u32::try_from(count).unwrap()).collect();
        for at in sample(&all, by_level(3, 8, usize::MAX)) {
            let folder = fresh(&scratch);
            let finished = strace::run(&How::Honest.command(&folder), FailAt::new(syscall, "ENOSPC", When::Only(at)));
            let said = Said::new(&finished.lines());
            verify(&folder, &said).unwrap_or_else(|error| panic!("{syscall} {at}: {error}"));
            if let Some(failure) = &said.failure {
                assert!(failure.starts_with("no space is left"), "{syscall} {at}: {failure}");
            }
            process::run(&mut How::Well.command(&folder));
            assert_eq!(verify(&folder, &said), Ok(Some(LAST)), "{syscall} {at}");
        }
    }
}

/// Promise 4 on a file system that is really full: it stays readable, and goes on when there is room.
#[test]
fn a_full_disk_leaves_a_folder_store_readable() {
    let disk = tiny_tmpfs(600_000);
    let store = open(&disk.path().join("store"));
    block_on(async {
        let mut line = Line::new("growing");
        line.size = 20_000;
        let error = loop {
            if let Err(error) = line.append(&*store).await {
                break error;
            }
        };
        assert!(matches!(error, piton_store::StoreError::Full { .. }), "{error}");
        let entries = store.read(&line.run, piton_store::Span::ALL).await.unwrap();
        assert_eq!(entries.len() as u32, line.head.unwrap().seq.0 + 1);
        assert!(entries.len() > 5);
        disk.resize(2_000_000);
        line.append(&*store).await.unwrap();
        assert_eq!(store.head(&line.run).await.unwrap(), line.head);
    });
}

/// Kills leave nothing behind that isn't cleared up by the next who opens the store alone.
#[test]
fn leftovers_of_a_kill_are_cleared_up() {
    let scratch = Scratch::in_memory();
    let folder = fresh(&scratch);
    strace::run(&How::Well.command(&folder), KillAt::new(&["linkat", "link"], 7));
    verify(&folder, &Said::default()).unwrap();
    assert_eq!(std::fs::read_dir(folder.join(".scratch")).unwrap().count(), 0);
}
