//! Real kills and failed system calls.

use std::fs;
use std::path::Path;

use piton_testing::process::{Ending, run};
use piton_testing::scratch::{Scratch, tiny_tmpfs};
use piton_testing::strace::{self, CHANGING, FailAt, KillAt, When};

use crate::journal::Flaw;
use crate::{verdict, victim};

struct Kills {
    points: usize,
    killed: usize,
    broken: Vec<String>,
}

/// Kills the victim at every call that changes something, each time in a new folder.
fn kill_everywhere(flaw: Flaw) -> Kills {
    let probe = Scratch::in_memory();
    let trace = strace::trace(&victim(flaw, probe.path(), 3), CHANGING, 64);
    assert!(trace.finished.success(), "{:?}", trace.finished);
    let found = trace.kill_points(probe.path());
    assert_eq!(found.unnamed, 0, "a single thread: every call has a number");
    let mut kills = Kills { points: found.points.len(), killed: 0, broken: Vec::new() };
    for point in found.points {
        let dir = Scratch::in_memory();
        let finished = strace::run(&victim(flaw, dir.path(), 3), point.clone());
        kills.killed += usize::from(finished.killed());
        if let Err(what) = verdict(dir.path(), flaw, &finished.lines()) {
            kills.broken.push(format!("{point:?}: {what}"));
            continue;
        }
        // Recovery: whatever the kill left, the journal goes on.
        assert!(run(&mut victim(flaw, dir.path(), 1)).success());
    }
    println!("{flaw:?}: {} points, {} killed, {} broken", kills.points, kills.killed, kills.broken.len());
    kills
}

#[test]
fn the_good_journal_survives_every_kill() {
    let kills = kill_everywhere(Flaw::None);
    assert!(kills.points >= 18, "{} points", kills.points);
    assert_eq!(kills.killed, kills.points, "every point is met");
    assert_eq!(kills.broken, [""; 0]);
}

#[test]
fn kills_find_an_early_acknowledgement() {
    assert!(!kill_everywhere(Flaw::EarlyAck).broken.is_empty());
}

#[test]
fn kills_find_a_missing_checksum() {
    assert!(!kill_everywhere(Flaw::NoChecksum).broken.is_empty());
}

/// What the kernel has, it keeps: only power cuts find a missing sync.
#[test]
fn kills_do_not_find_a_missing_sync() {
    assert_eq!(kill_everywhere(Flaw::NoFsync).broken, [""; 0]);
}

/// Threads that are behind in their counts are named by their files.
#[test]
fn calls_of_trailing_threads_are_met_by_their_file() {
    let command = |dir: &Path| {
        let mut command = victim(Flaw::None, dir, 2);
        command.arg("3");
        command
    };
    let dir = Scratch::in_memory();
    let trace = strace::trace(&command(dir.path()), CHANGING, 64);
    let found = trace.kill_points_where(|call| call.name == "pwrite64");
    let by_file = found.points.iter().filter(|point| point.path.is_some()).count();
    assert_eq!((found.points.len(), by_file, found.unnamed), (3 * 4, 2 * 4, 0));
    let said = trace.kill_points_where(|call| trace.says(call));
    assert!(said.unnamed > 0, "the threads share one pipe, so what they say can't be told apart");
    for (point, acknowledged) in found.points.iter().zip([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]) {
        // The same folder again, since the point names its files.
        for entry in fs::read_dir(dir.path()).unwrap() {
            fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
        let finished = strace::run(&command(dir.path()), point.clone());
        assert!(finished.killed(), "{point:?}");
        assert_eq!(finished.lines().len(), acknowledged, "{point:?}");
    }
}

/// Promise 3: after a failed sync nothing is acknowledged.
#[test]
fn failed_syncs_are_told_and_a_deaf_journal_is_found() {
    let acknowledged = |flaw, at| {
        let dir = Scratch::in_memory();
        let finished = strace::run(&victim(flaw, dir.path(), 3), FailAt::new("fdatasync", "EIO", When::Only(at)));
        assert_eq!(verdict(dir.path(), flaw, &[]), Ok(()));
        (finished.ending, finished.lines().len())
    };
    for (at, before) in [(1, 0), (2, 1), (3, 2)] {
        assert_eq!(acknowledged(Flaw::None, at), (Ending::Code(1), before), "sync {at}");
        assert_eq!(acknowledged(Flaw::IgnoredError, at), (Ending::Code(0), 3), "the control must be found out");
    }
}

/// Promise 4: no space, by injection and on a disk that is really full.
#[test]
fn a_full_disk_harms_nothing_and_passes() {
    let dir = Scratch::in_memory();
    let full = FailAt::new("pwrite64", "ENOSPC", When::From(4));
    let finished = strace::run(&victim(Flaw::None, dir.path(), 3), full);
    assert!(finished.stderr.contains("No space left"), "{finished:?}");
    assert_eq!(verdict(dir.path(), Flaw::None, &finished.lines()), Ok(()));

    let disk = tiny_tmpfs(16 << 10);
    let finished = run(&mut victim(Flaw::None, disk.path(), 100));
    assert!(finished.stderr.contains("No space left"), "{finished:?}");
    assert!(finished.lines().len() > 5, "{finished:?}");
    assert_eq!(verdict(disk.path(), Flaw::None, &finished.lines()), Ok(()));
    disk.resize(1 << 20);
    assert!(run(&mut victim(Flaw::None, disk.path(), 10)).success());
}

#[test]
fn a_point_that_is_not_met_changes_nothing() {
    let dir = Scratch::in_memory();
    let finished = strace::run(&victim(Flaw::None, dir.path(), 2), KillAt::new(&["pwrite64", "fdatasync"], 100));
    assert!(finished.success() && !finished.killed());
    assert_eq!(finished.lines(), ["ack 0", "ack 1"]);
}

#[test]
#[should_panic(expected = "strace refuses")]
fn a_program_that_is_not_there_is_no_success() {
    strace::run(&std::process::Command::new("/nowhere/to/be/found"), KillAt::new(&["write"], 1));
}
