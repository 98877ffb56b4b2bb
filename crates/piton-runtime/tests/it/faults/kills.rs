//! The same program in a process of its own, on SQLite, killed with `SIGKILL` at random moments.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use piton_runtime::{Context, RunError};
use piton_store::Store;
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::SeededRandom;
use piton_testing::level::by_level;
use piton_testing::process::Running;

use super::program::{Counter, Flaw, check, expected, reply, run};

const FOLDER: &str = "PITON_TEST_FOLDER";
const FLAW: &str = "PITON_TEST_FLAW";
const SEED: u64 = 20_261_116;

fn context(folder: &Path) -> Context {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default()).unwrap());
    Context::system(store)
}

/// What the second process does: drives the program to its end, answering on the way. Nothing, if this is the
/// first.
#[test]
fn entrance() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let folder = Path::new(&folder);
    let flaw = if std::env::var(FLAW).is_ok() { Flaw::BlindProbe } else { Flaw::None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let context = context(folder);
        let counter = Counter::new(folder.join("counter"));
        loop {
            match run(&context, &counter, flaw).await {
                Err(RunError::Waiting { .. }) => reply(&context).await.unwrap(),
                Ok(output) => {
                    assert_eq!(output, expected());
                    return;
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
}

fn command(folder: &Path, flaw: Flaw) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["faults::kills::entrance", "--exact", "--nocapture", "--test-threads=1"]).env(FOLDER, folder);
    if flaw == Flaw::BlindProbe {
        command.env(FLAW, "1");
    }
    command
}

struct Tally {
    runs: usize,
    kills: usize,
    wrong: Vec<String>,
}

/// Runs killed at random moments and resumed until they end, two at a time.
fn campaign(kills: usize, flaw: Flaw) -> Tally {
    // How long it takes undisturbed, so that the kills fall into it.
    let whole = {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let start = std::time::Instant::now();
        let finished = Running::spawn(&mut command(folder.path(), flaw)).wait(Duration::from_secs(60));
        assert!(finished.success(), "{}", finished.stderr);
        start.elapsed()
    };
    let (left, tally) = (AtomicUsize::new(kills), Mutex::new(Tally { runs: 0, kills: 0, wrong: Vec::new() }));
    std::thread::scope(|scope| {
        for worker in 0..2_u64 {
            let (left, tally) = (&left, &tally);
            scope.spawn(move || {
                let random = SeededRandom::new(SEED + worker);
                while left.load(Ordering::SeqCst) > 0 {
                    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
                    let mut cuts = 0;
                    loop {
                        let spent = left.load(Ordering::SeqCst) == 0 || cuts >= 12;
                        let moment = random.below(usize::try_from(whole.as_micros()).unwrap());
                        let running = Running::spawn(&mut command(folder.path(), flaw));
                        let finished = if spent {
                            running.wait(Duration::from_secs(60))
                        } else {
                            running.kill_after(Duration::from_micros(moment as u64))
                        };
                        if finished.killed() {
                            cuts += 1;
                            let _ = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                            continue;
                        }
                        let mut tally = tally.lock().unwrap();
                        if !finished.success() {
                            tally.wrong.push(finished.stdout + &finished.stderr);
                        }
                        break;
                    }
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    let counter = Counter::new(folder.path().join("counter"));
                    let checked = runtime.block_on(async { check(&context(folder.path()), &counter, cuts).await });
                    let mut tally = tally.lock().unwrap();
                    tally.runs += 1;
                    tally.kills += cuts as usize;
                    tally.wrong.extend(checked.err());
                }
            });
        }
    });
    tally.into_inner().unwrap()
}

/// Promise 10: killed at random moments, resumed until it ends, recovery killed too.
#[test]
fn killed_at_random_moments_nothing_is_lost_or_done_twice() {
    let wanted = by_level(20, 300, 3_000);
    let Tally { runs, kills, wrong } = campaign(wanted, Flaw::None);
    println!("killed at random moments: {kills} kills in {runs} runs, seed {SEED}, {} wrong", wrong.len());
    assert_eq!(wrong, [""; 0]);
    assert!(kills >= wanted, "{kills}");
}

/// The negative control: an effect that is repeated without asking is caught.
#[test]
fn kills_find_an_effect_that_is_repeated() {
    let Tally { runs, kills, wrong } = campaign(by_level(60, 60, 300), Flaw::BlindProbe);
    println!("repeated without asking: {} of {runs} runs caught after {kills} kills", wrong.len());
    assert!(wrong.iter().any(|wrong| wrong.contains("mail was performed")), "{wrong:?}");
}
