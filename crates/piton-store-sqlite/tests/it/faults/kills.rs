//! Promise 1: `SIGKILL` at any system call that changes something loses no acknowledged checkpoint and
//! leaves none unreadable, while saving, folding and closing as well as while recovering.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use piton_store::StoreError;
use piton_testing::process;
use piton_testing::scratch::{Scratch, copy_tree};
use piton_testing::strace::{self, CHANGING, KillAt, KillPoints};

use super::saver::{How, LAST, Said, verify};
use super::{by_level, sample};

/// A place for one case at a time.
struct Place {
    scratch: Scratch,
}

impl Place {
    fn new() -> Self {
        Self { scratch: Scratch::in_memory() }
    }

    fn folder(&self) -> PathBuf {
        self.scratch.join("store")
    }

    /// The folder anew, with what `start` holds.
    fn prepare(&self, start: Option<&Path>) -> PathBuf {
        let folder = self.folder();
        if folder.exists() {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        std::fs::create_dir(&folder).unwrap();
        if let Some(start) = start {
            copy_tree(start, &folder).unwrap();
        }
        folder
    }
}

/// What came of the kills.
#[derive(Debug, Default)]
struct Tally {
    killed: usize,
    missed: usize,
    lost: Vec<String>,
}

/// Where a run can be killed.
struct Points {
    points: Vec<KillAt>,
    /// Calls that can't be named; see `strace`.
    unnamed: usize,
    /// What the run says at its end.
    root: String,
}

/// Traces one run. Where the threads took turns so that many calls can't be named, once more.
fn points(how: How, start: Option<&Path>, place: &Place) -> Points {
    let traced = |_| {
        let folder = place.prepare(start);
        let trace = strace::trace(&how.command(&folder), CHANGING, 32);
        (Said::new(&trace.finished.lines()), trace.kill_points(&folder))
    };
    let is_named = |(_, found): &(Said, KillPoints)| found.unnamed * 10 < found.points.len();
    let (said, found) = (0..5).map(traced).find(is_named).expect("too many calls can't be named");
    let root = said.done.expect("an undisturbed run gets to its end");
    Points { points: found.points, unnamed: found.unnamed, root }
}

/// Kills the program at each of `chosen`, looks at what is left, and lets it go on to the end.
fn campaign(how: How, start: Option<&Path>, traced: &Path, chosen: &[KillAt], root: &str) -> Tally {
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let place = Place::new();
                while let Some(point) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let folder = place.prepare(start);
                    let mut here = point.clone();
                    here.path = here.path.map(|path| match path.strip_prefix(traced) {
                        Ok(rest) if rest.as_os_str().is_empty() => folder.clone(),
                        Ok(rest) => folder.join(rest),
                        Err(_) => path,
                    });
                    let first = strace::run(&how.command(&folder), here);
                    let said = Said::new(&first.lines());
                    assert!(said.failures.is_empty(), "{point:?}: {said:?}");
                    let outcome = verify(&folder, &said);
                    let killed = first.killed();
                    assert!(killed || first.success(), "{point:?}: {first:?}");
                    match outcome {
                        Ok(newest) => {
                            let limit = said.newest().map_or(0, |seq| seq + 1);
                            // From a start of its own nothing but one entry under way may be ahead.
                            assert!(start.is_some() || newest.is_none_or(|newest| newest <= limit), "{point:?}");
                            let second = process::run(&mut how.command(&folder));
                            let again = Said::new(&second.lines());
                            assert_eq!(again.done.as_deref(), Some(root), "{point:?}: {second:?}");
                            assert_eq!(verify(&folder, &again).unwrap(), Some(LAST), "{point:?}");
                        }
                        Err(error) => tally.lock().unwrap().lost.push(format!("{point:?}: {error}")),
                    }
                    let mut tally = tally.lock().unwrap();
                    if killed { tally.killed += 1 } else { tally.missed += 1 }
                }
            });
        }
    });
    tally.into_inner().unwrap()
}

#[test]
fn kill_at_every_changing_system_call() {
    let place = Place::new();
    let Points { points, unnamed, root } = points(How::Well, None, &place);
    let chosen = sample(&points, by_level(25, 150, usize::MAX));
    let tally = campaign(How::Well, None, &place.folder(), &chosen, &root);
    println!(
        "kills while saving: {} of {} points ({unnamed} more without a name), {} killed, {} not met, {} lost",
        chosen.len(),
        points.len(),
        tally.killed,
        tally.missed,
        tally.lost.len()
    );
    assert_eq!(tally.lost, [""; 0]);
    assert!(tally.killed * 10 >= chosen.len() * 9, "{tally:?}");
}

#[test]
fn kill_at_every_changing_system_call_of_recovery() {
    // A WAL of some thirty commits that no checkpoint has moved into the database.
    let killed = Place::new();
    let folder = killed.prepare(None);
    let finished = strace::run(&How::Well.command(&folder), KillAt::new(&["fdatasync"], 30));
    assert!(finished.killed() && folder.join("store.db-wal").exists());
    let before = Said::new(&finished.lines());
    assert!(before.acks.len() > 15, "{before:?}");
    let place = Place::new();
    let Points { points, unnamed, root } = points(How::Well, Some(&folder), &place);
    let chosen = sample(&points, by_level(10, 60, usize::MAX));
    let tally = campaign(How::Well, Some(&folder), &place.folder(), &chosen, &root);
    println!(
        "kills while recovering: {} of {} points ({unnamed} more without a name), {} killed, {} not met, {} lost",
        chosen.len(),
        points.len(),
        tally.killed,
        tally.missed,
        tally.lost.len()
    );
    assert_eq!(tally.lost, [""; 0]);
    assert!(tally.killed * 10 >= chosen.len() * 9, "{tally:?}");
}

/// The negative control: a program that acknowledges before it saves is caught.
#[test]
fn kills_find_what_is_acknowledged_too_early() {
    let place = Place::new();
    let Points { points, root, .. } = points(How::Early, None, &place);
    let chosen = sample(&points, 24);
    let tally = campaign(How::Early, None, &place.folder(), &chosen, &root);
    println!("acknowledged too early: {} of {} kills lost something", tally.lost.len(), tally.killed);
    assert!(!tally.lost.is_empty(), "the harness would not have noticed");
    let lost = StoreError::NotFound { what: "acknowledged entry".to_owned() }.to_string();
    let lost = lost.strip_suffix(" doesn't exist").unwrap();
    assert!(tally.lost.iter().all(|what| what.contains(lost)), "{tally:?}");
}
