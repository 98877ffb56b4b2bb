//! Children.

use std::process::Command;
use std::time::{Duration, Instant};

use piton_testing::process::{Ending, Running};
use piton_testing::scratch::{Scratch, TinyFs};

const SOON: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(20);

fn ticking() -> Running {
    Running::spawn(Command::new(env!("CARGO_BIN_EXE_journal-victim")).args(["--slow", "."]))
}

#[test]
fn lines_come_one_by_one_and_a_stopped_child_says_nothing() {
    let mut child = ticking();
    assert_eq!(child.line(LATE).as_deref(), Some("tick 0"));
    assert_eq!(child.line(LATE).as_deref(), Some("tick 1"));
    child.stop();
    while child.line(SOON).is_some() {}
    child.cont();
    assert!(child.line(LATE).is_some());
    child.kill();
    assert!(child.wait(LATE).killed());
}

#[test]
fn a_child_is_killed_after_a_while() {
    let finished = ticking().kill_after(Duration::from_millis(300));
    assert!(finished.killed() && finished.lines().len() > 2, "{finished:?}");
}

#[test]
fn a_child_that_does_not_end_is_no_hang() {
    let start = Instant::now();
    assert_eq!(ticking().wait(SOON).ending, Ending::TimedOut);
    // A grandchild that keeps the output open doesn't hold us either.
    let finished =
        Running::spawn(Command::new("sh").args(["-c", "sleep 60 & echo said; printf half; exit 3"])).wait(LATE);
    assert_eq!((finished.ending, finished.lines()), (Ending::Code(3), vec!["said".to_owned()]));
    assert!(start.elapsed() < LATE);
}

#[test]
fn a_tiny_disk_runs_out_of_files_and_is_gone_afterwards() {
    let disk = TinyFs::new(1 << 20, Some(4));
    let path = disk.path().to_owned();
    let made = (0..10).take_while(|n| std::fs::write(path.join(n.to_string()), "").is_ok()).count();
    assert_eq!(made, 3);
    drop(disk);
    assert!(!path.exists());
}

#[test]
fn scratch_folders_vanish() {
    let (disk, memory) = (Scratch::new(), Scratch::in_memory());
    let paths = [disk.path().to_owned(), memory.path().to_owned()];
    assert!(paths.iter().all(|path| path.is_dir()));
    drop((disk, memory));
    assert!(!paths.iter().any(|path| path.exists()));
}
