//! The process dies at every call that it makes to the store, before it and after it: its memory is gone, the
//! store is what it was then.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use piton_log::RunLog;
use piton_runtime::{Context, RunError, WholeHistory};
use piton_store::{Span, Store};
use piton_store_postgres::{PostgresStore, PostgresUrl};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::level::by_level;
use piton_testing::postgres::Server;
use piton_testing::{CrashStore, Fault};
use piton_types::{RunId, Seq, Value};

use super::program::{Counter, Flaw, check, expected, finish, reply, run};
use crate::support::{On, flowing, memory, on_a_server, process_at, run_id};

fn process(store: &Arc<dyn Store>) -> Context {
    process_at(store, &flowing())
}

struct Place {
    folder: tempfile::TempDir,
    store: Arc<dyn Store>,
}

/// The server of this process, and a schema for each place on it.
static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
static SCHEMAS: AtomicU32 = AtomicU32::new(0);

impl Place {
    async fn new(on: On) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let store = match on {
            On::Memory => memory(),
            On::Sqlite => {
                Arc::new(SqliteStore::open(folder.path().join("store.db"), SqliteOptions::default()).unwrap()) as _
            }
            On::Postgres => {
                let schema = format!("place{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
                let url = PostgresUrl::parse(&SERVER.url(&schema)).unwrap();
                Arc::new(PostgresStore::open(url, true).await.unwrap()) as _
            }
            On::S3 | On::Redis => on_a_server(on).await,
        };
        Self { folder, store }
    }

    fn counter(&self) -> Counter {
        Counter::new(self.folder.path().join("counter"))
    }
}

/// How many calls an undisturbed run makes, up to the question and after it.
async fn calls(flaw: Flaw) -> [u64; 2] {
    let place = Place::new(On::Memory).await;
    let mut calls = [0; 2];
    for part in &mut calls {
        let counting = Arc::new(CrashStore::new(Arc::clone(&place.store), Fault::None));
        drop(run(&process(&(Arc::clone(&counting) as _)), &place.counter(), flaw).await);
        *part = counting.calls();
        reply(&process(&place.store)).await.unwrap();
    }
    calls
}

/// Runs until the fault strikes, then goes on without one; says what is wrong, if anything is.
async fn crash(place: &Place, part: usize, fault: Fault, flaw: Flaw) -> (bool, Result<Value, String>) {
    let counter = place.counter();
    if part == 1 {
        assert!(matches!(run(&process(&place.store), &counter, flaw).await, Err(RunError::Waiting { .. })));
        reply(&process(&place.store)).await.unwrap();
    }
    let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&place.store), fault));
    let died = match run(&process(&crashing), &counter, flaw).await {
        Ok(_) | Err(RunError::Waiting { .. }) => false,
        Err(RunError::Store(_) | RunError::Broken { .. }) => true,
        // A child's store is its parent's.
        Err(other) => return (true, Err(other.to_string())),
    };
    let before = prefix(&place.store).await;
    let output = match finish(|| process(&place.store), &counter, flaw).await {
        Ok(output) => output,
        Err(error) => return (died, Err(error.to_string())),
    };
    let after = prefix(&place.store).await;
    if after[..before.len()] != before[..] {
        return (died, Err("the resumed run isn't a continuation".to_owned()));
    }
    let checked = check(&process(&place.store), &counter, 1).await;
    (died, checked.map(|()| output))
}

/// The hashes of the log: each covers everything before it.
async fn prefix(store: &Arc<dyn Store>) -> Vec<String> {
    match RunLog::open(Arc::clone(store), &run_id()).await {
        Ok(log) => log.entries(Span::ALL).await.unwrap().iter().map(|entry| entry.hash.to_string()).collect(),
        Err(_) => Vec::new(),
    }
}

/// Crashes at every call of both halves, and what went wrong.
async fn campaign(on: On, flaw: Flaw, step: usize) -> (usize, usize, Vec<String>) {
    let (mut crashes, mut died, mut wrong) = (0, 0, Vec::new());
    for (part, calls) in calls(flaw).await.into_iter().enumerate() {
        for at in (1..=calls).step_by(step) {
            for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
                let place = Place::new(on).await;
                let (fatal, outcome) = crash(&place, part, fault, flaw).await;
                crashes += 1;
                died += usize::from(fatal);
                match outcome {
                    Ok(output) if output == expected() => {}
                    Ok(other) => wrong.push(format!("{part} {fault:?}: it gave {other:?}")),
                    Err(problem) => wrong.push(format!("{part} {fault:?}: {problem}")),
                }
            }
        }
    }
    (crashes, died, wrong)
}

/// Decision 5 (1) and (2), promises 10 and 15, on memory: the resumed run continues a prefix of the original,
/// no effect repeats except with its key or after a probe, and the outcome is that of the undisturbed run.
#[tokio::test]
async fn property_1_and_2_a_crash_at_every_call_on_memory() {
    let (crashes, died, wrong) = campaign(On::Memory, Flaw::None, 1).await;
    println!("crashes at store calls, memory: {crashes}, of which {died} were fatal; {} wrong", wrong.len());
    assert_eq!(wrong, [""; 0]);
    assert!(died > 80, "only {died} of {crashes} were fatal");
}

/// The same on SQLite.
#[tokio::test]
async fn property_1_and_2_a_crash_at_every_call_on_sqlite() {
    let (crashes, died, wrong) = campaign(On::Sqlite, Flaw::None, by_level(9, 1, 1)).await;
    println!("crashes at store calls, SQLite: {crashes}, of which {died} were fatal; {} wrong", wrong.len());
    assert_eq!(wrong, [""; 0]);
    assert!(died > 8, "only {died} of {crashes} were fatal");
}

/// The same on PostgreSQL, at each of the calls that a run makes of the server (PITON_TEST=full) or at some of them.
#[tokio::test]
async fn property_1_and_2_a_crash_at_every_call_on_postgresql() {
    let (crashes, died, wrong) = campaign(On::Postgres, Flaw::None, by_level(29, 9, 1)).await;
    println!("crashes at store calls, PostgreSQL: {crashes}, of which {died} were fatal; {} wrong", wrong.len());
    assert_eq!(wrong, [""; 0]);
    assert!(died > 1, "only {died} of {crashes} were fatal");
}

/// The same in S3 and in a Redis.
#[tokio::test]
async fn property_1_and_2_a_crash_at_every_call_on_servers() {
    for on in [On::S3, On::Redis] {
        let (crashes, died, wrong) = campaign(on, Flaw::None, on.step(61, 37)).await;
        println!("crashes at store calls, {on:?}: {crashes}, of which {died} were fatal; {} wrong", wrong.len());
        assert_eq!(wrong, [""; 0]);
        assert!(died > 2, "only {died} of {crashes} were fatal");
    }
}

/// The negative controls: an effect that is repeated without asking, and chance that isn't recorded, are both caught.
#[tokio::test]
async fn flawed_programs_are_caught() {
    for (flaw, said) in
        [(Flaw::BlindProbe, "mail was performed 2 times"), (Flaw::NoRecord, "the log of run a-run has step keep")]
    {
        let (crashes, _, wrong) = campaign(On::Memory, flaw, 1).await;
        println!("{flaw:?}: {} of {crashes} crashes caught", wrong.len());
        assert!(wrong.iter().any(|wrong| wrong.contains(said)), "{flaw:?}: {wrong:?}");
    }
}

/// Decision 5 (4): every visible checkpoint is restorable, after a crash at any call.
#[tokio::test]
async fn property_4_every_visible_checkpoint_is_restorable() {
    let (restored, looked) = restorable(On::Memory, 1).await;
    println!("restorable: {restored} checkpoints after {looked} crashes");
    assert!(restored > 30, "{restored}");
}

/// The same on PostgreSQL.
#[tokio::test]
async fn property_4_every_visible_checkpoint_is_restorable_on_postgresql() {
    let (restored, looked) = restorable(On::Postgres, by_level(29, 13, 1)).await;
    println!("restorable on PostgreSQL: {restored} checkpoints after {looked} crashes");
    assert!(restored > 0, "{restored}");
}

/// The same in S3 and in a Redis.
#[tokio::test]
async fn property_4_every_visible_checkpoint_is_restorable_on_servers() {
    for on in [On::S3, On::Redis] {
        let (restored, looked) = restorable(on, on.step(59, 37)).await;
        println!("restorable, {on:?}: {restored} checkpoints after {looked} crashes");
        assert!(restored > 0, "{restored}");
    }
}

/// How many checkpoints were gone back to, after how many crashes.
async fn restorable(on: On, step: usize) -> (usize, usize) {
    let [first, _] = calls(Flaw::None).await;
    let (mut looked, mut restored) = (0, 0);
    for at in (1..=first).rev().step_by(step) {
        for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
            let place = Place::new(on).await;
            let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&place.store), fault));
            drop(run(&process(&crashing), &place.counter(), Flaw::None).await);
            let Ok(history) = WholeHistory::of(&process(&place.store), &run_id()).await else { continue };
            looked += 1;
            let entries: Vec<Seq> = history.checkpoints.iter().map(|checkpoint| checkpoint.seq).collect();
            for seq in entries {
                let open = piton_runtime::OpenRun {
                    id: Some(run_id()),
                    at: piton_runtime::StartAt::Entry(seq),
                    ..piton_runtime::OpenRun::default()
                };
                let back = piton_runtime::Run::open(&process(&place.store), open).await.unwrap();
                assert_eq!(back.part("app").await.unwrap(), Some(Value::from(10)));
                restored += 1;
            }
        }
    }
    (restored, looked)
}

/// Decision 5 (5) is `questions::each_answer_is_used_once` and, with crashes, the count of answers in every
/// campaign. Decision 5 (6): recovery is itself crashed at every call, and repeated.
#[tokio::test]
async fn property_6_recovery_can_be_killed_and_repeated() {
    let pairs = recovered(On::Memory, [by_level(23, 7, 1), by_level(17, 5, 2)]).await;
    println!("recovery crashed and repeated: {pairs} pairs");
}

/// The same on PostgreSQL.
#[tokio::test]
async fn property_6_recovery_can_be_killed_and_repeated_on_postgresql() {
    let pairs = recovered(On::Postgres, [by_level(47, 29, 3), by_level(43, 31, 5)]).await;
    println!("recovery crashed and repeated on PostgreSQL: {pairs} pairs");
}

/// The same in S3 and in a Redis.
#[tokio::test]
async fn property_6_recovery_can_be_killed_and_repeated_on_servers() {
    for (on, steps) in [(On::S3, by_level(61, 41, 7)), (On::Redis, by_level(23, 11, 3))] {
        let pairs = recovered(on, [steps; 2]).await;
        println!("recovery crashed and repeated, {on:?}: {pairs} pairs");
    }
}

/// How many pairs of crashes were recovered from.
async fn recovered(on: On, steps: [usize; 2]) -> usize {
    let [first, second] = calls(Flaw::None).await;
    let mut pairs = 0;
    for at in (2..=first).step_by(steps[0]) {
        for again in (1..=first + second).step_by(steps[1]) {
            let place = Place::new(on).await;
            let counter = place.counter();
            for fault in [Fault::CrashAfter(at), Fault::CrashBefore(again)] {
                let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&place.store), fault));
                drop(run(&process(&crashing), &counter, Flaw::None).await);
            }
            let output = finish(|| process(&place.store), &counter, Flaw::None).await.unwrap();
            assert_eq!(output, expected(), "{at} {again}");
            check(&process(&place.store), &counter, 2).await.unwrap();
            pairs += 1;
        }
    }
    pairs
}

/// Promise 13: the store goes away in mid-run, for a few calls, and comes back; the same process opens the run
/// again and goes on.
#[tokio::test]
async fn a_store_that_disappears_and_returns_strands_nothing() {
    comes_back(On::Memory, by_level(5, 1, 1)).await;
}

#[tokio::test]
async fn a_server_that_disappears_and_returns_strands_nothing() {
    for on in [On::S3, On::Redis] {
        comes_back(on, on.step(61, 37)).await;
    }
}

async fn comes_back(on: On, step: usize) {
    let [first, _] = calls(Flaw::None).await;
    for from in (1..=first).step_by(step) {
        for performed in [false, true] {
            let place = Place::new(on).await;
            let fault = Fault::Away { from, calls: 3, performed };
            let context = process(&(Arc::new(CrashStore::new(Arc::clone(&place.store), fault)) as _));
            let mut tries = 0;
            let output = loop {
                match finish(|| context.clone(), &place.counter(), Flaw::None).await {
                    Ok(output) => break output,
                    Err(error) => {
                        assert!(error.is_retryable(), "{fault:?}: {error}");
                        tries += 1;
                        assert!(tries <= 4, "{fault:?}: {error}");
                    }
                }
            };
            assert_eq!(output, expected(), "{fault:?}");
            check(&process(&place.store), &place.counter(), tries).await.unwrap();
        }
    }
}

/// A run's children are runs that every reader can find.
#[tokio::test]
async fn the_child_is_found_under_its_own_id() {
    let place = Place::new(On::Memory).await;
    finish(|| process(&place.store), &place.counter(), Flaw::None).await.unwrap();
    let runs: Vec<RunId> =
        place.store.list(piton_store::RunQuery::default()).await.unwrap().into_iter().map(|run| run.id).collect();
    assert_eq!(runs.len(), 2);
}
