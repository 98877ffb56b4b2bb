//! Steps that are recorded later: in order, before everything else, and never half.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use piton_runtime::{EndedStep, Later, Run, RunError, StepDone, Turn};
use piton_store::state::State;
use piton_store::{Content, Draft, DraftPart, RunLog, Store, StoreError};
use piton_testing::{CrashStore, Fault};
use piton_types::{EntryKind, PartName, Seq, StepPath, Timestamp, Value};
use tokio::sync::Mutex;

use crate::support::{entries, memory, open, process, run_id};

/// Keeps a list of the steps that were written, as a part of every checkpoint.
#[derive(Default)]
struct Keeper {
    list: Mutex<Option<State>>,
    again: AtomicU32,
    written: std::sync::Mutex<Vec<(StepPath, Seq)>>,
}

struct Kept(Arc<Keeper>, StepPath);

#[async_trait]
impl Later for Kept {
    async fn write(&mut self, turn: &mut Turn<'_>, step: &EndedStep) -> Result<(), RunError> {
        let mut list = self.0.list.lock().await;
        if list.is_none() {
            let mut state = turn.part_state_or("steps", &Value::List(Vec::new()))?;
            state.set(&"".parse().unwrap(), Value::List(Vec::new())).await?;
            let mut before = Vec::new();
            turn.for_each_step(|step| before.push(Value::from(step.path.as_str())));
            state.extend(&"".parse().unwrap(), before).await?;
            *list = Some(state);
        }
        let state = list.as_mut().unwrap();
        state.push(&"".parse().unwrap(), Value::from(step.record().path.as_str())).await?;
        let content = Content::State(state);
        let part = DraftPart { name: "steps".into(), schema: "test.steps".to_owned(), version: 1, content };
        turn.write(step, vec![part]).await
    }

    fn again(&mut self) {
        self.0.again.fetch_add(1, Ordering::SeqCst);
        *self.0.list.try_lock().unwrap() = None;
    }

    fn written(self: Box<Self>, seq: Seq) {
        self.0.written.lock().unwrap().push((self.1, seq));
    }
}

fn name(number: usize) -> StepPath {
    format!("s{number:03}").parse().unwrap()
}

async fn later(run: &Run, keeper: &Arc<Keeper>, number: usize) -> Result<(), RunError> {
    let done = StepDone::new(name(number), Value::Null, Ok(Value::from("x".repeat(number))));
    run.record_later(done, |_| Ok(Box::new(Kept(Arc::clone(keeper), name(number))))).await
}

/// The steps that the log has, each of which is a checkpoint with exactly those until then.
async fn check(store: &Arc<dyn Store>) -> Vec<StepPath> {
    let log = RunLog::open(Arc::clone(store), &run_id()).await.unwrap();
    let mut steps = Vec::new();
    for entry in log.entries(piton_store::Span::ALL).await.unwrap() {
        if entry.kind == EntryKind::StepDone {
            steps.push(Value::from(entry.label.as_str()));
            let part = log.load(&entry.parts[&PartName::from("steps")]).await.unwrap();
            assert_eq!(part, Value::List(steps.clone()), "entry {}", entry.seq);
        }
    }
    steps.iter().map(|step| step.as_str().unwrap().parse().unwrap()).collect()
}

fn names(count: usize) -> Vec<StepPath> {
    (0..count).map(name).collect()
}

/// How many calls it takes to open a new run.
async fn calls_to_open() -> u64 {
    let store = Arc::new(CrashStore::new(memory(), Fault::None));
    Run::open(&process(&(Arc::clone(&store) as _)), open()).await.unwrap();
    store.calls()
}

/// They count at once, and everything else that is written comes behind them.
#[tokio::test]
async fn nothing_overtakes_what_is_recorded_later() {
    let store = memory();
    let keeper = Arc::default();
    let run = Run::open(&process(&store), open()).await.unwrap();
    for number in 0..40 {
        later(&run, &keeper, number).await.unwrap();
        assert!(run.recorded(&name(number)).is_some(), "it counts at once");
    }
    assert!(entries(&store).await < 42, "not all of them are in the log yet");
    let saved = run.save("count", &Value::from(1)).await.unwrap();
    assert_eq!(saved.seq, Seq(42), "created, claimed, and 40 steps");
    assert_eq!(check(&store).await, names(40));
    let written = keeper.written.lock().unwrap().clone();
    let expected: Vec<_> = names(40).into_iter().zip((2..).map(Seq)).collect();
    assert_eq!(written, expected);
    for number in 40..50 {
        later(&run, &keeper, number).await.unwrap();
    }
    run.complete(Value::Null).await.unwrap();
    assert_eq!(check(&store).await, names(50));
}

/// Whoever is faster than the store waits, and takes no more memory than the steps that may wait.
#[tokio::test]
async fn a_store_that_is_far_behind_is_waited_for() {
    let first = calls_to_open().await + 1;
    let store = Arc::new(CrashStore::new(memory(), Fault::StopBefore(first)).with_chains());
    let keeper = Arc::default();
    let run = Run::open(&process(&(Arc::clone(&store) as _)), open()).await.unwrap();
    let mut accepted = 0;
    let adding = async {
        for number in 0..200 {
            later(&run, &keeper, number).await.unwrap();
            accepted += 1;
        }
    };
    tokio::time::timeout(Duration::from_millis(200), adding).await.unwrap_err();
    assert_eq!(accepted, 64);
    assert!(store.is_stopped());
    let saving = tokio::time::timeout(Duration::from_millis(50), run.save("count", &Value::from(1))).await;
    assert!(saving.is_err(), "nothing overtakes them");
    store.let_go_on();
    run.save("count", &Value::from(1)).await.unwrap();
    assert_eq!(check(store.inner()).await, names(64));
}

/// Others write to the run just before any call of ours: each entry is where it belongs, once, with the state that it
/// should have.
#[tokio::test]
async fn entries_of_others_may_come_between() {
    let mut met = 0;
    let first = calls_to_open().await + 1;
    for chains in [false, true] {
        for call in first..first + 40 {
            let store = CrashStore::new(memory(), Fault::StopBefore(call));
            let store = Arc::new(if chains { store.with_chains() } else { store });
            let keeper: Arc<Keeper> = Arc::default();
            let run = Run::open(&process(&(Arc::clone(&store) as _)), open()).await.unwrap();
            let other = tokio::spawn({
                let store = Arc::clone(&store);
                async move {
                    while !store.is_stopped() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    let mut log = RunLog::open(Arc::clone(store.inner()), &run_id()).await.unwrap();
                    let mut draft = Draft::new(EntryKind::Logged, Timestamp::default());
                    draft.body = Value::map([("log", Value::List(Vec::new()))]);
                    log.append(draft).await.unwrap();
                    store.let_go_on();
                }
            });
            for number in 0..60 {
                later(&run, &keeper, number).await.unwrap();
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            run.turn().await.unwrap();
            other.abort();
            assert_eq!(check(store.inner()).await, names(60), "call {call}, chains {chains}");
            let log = RunLog::open(Arc::clone(store.inner()), &run_id()).await.unwrap();
            let kinds = log.entries(piton_store::Span::ALL).await.unwrap();
            let written = keeper.written.lock().unwrap().clone();
            assert_eq!(written.len(), 60);
            for (step, seq) in written {
                assert_eq!(kinds[seq.0 as usize].label, step.as_str());
            }
            met += keeper.again.load(Ordering::SeqCst);
        }
    }
    assert!(met > 20, "only {met} steps met entries of others in a chain");
}

/// Promise 10, with several entries in one commit: whatever call the process dies at, the log has the first of the
/// steps, each whole, and the handle takes no more.
#[tokio::test]
async fn a_crash_at_any_call_leaves_the_first_of_them() {
    let work = async |store: &Arc<dyn Store>| -> Result<(), RunError> {
        let keeper = Arc::default();
        let run = Run::open(&process(store), open()).await?;
        for number in 0..50 {
            later(&run, &keeper, number).await?;
            if number % 9 == 0 {
                tokio::task::yield_now().await;
            }
        }
        run.complete(Value::Null).await?;
        Ok(())
    };
    let counting = Arc::new(CrashStore::new(memory(), Fault::None).with_chains());
    work(&(Arc::clone(&counting) as _)).await.unwrap();
    assert!(counting.names().iter().filter(|name| **name == "append_chain").count() >= 4, "{:?}", counting.names());
    for call in 1..=counting.calls() {
        for fault in [Fault::CrashBefore(call), Fault::CrashAfter(call)] {
            let below = memory();
            let failed = work(&(Arc::new(CrashStore::new(Arc::clone(&below), fault).with_chains()) as _)).await;
            let Err(error) = failed else {
                // Only what is done after the end may go wrong unnoticed.
                assert_eq!(check(&below).await, names(50), "{fault:?}");
                continue;
            };
            let told = matches!(&error, RunError::Store(StoreError::Unavailable { .. }) | RunError::Broken { .. });
            assert!(told, "{fault:?}: {error:?}");
            if below.head(&run_id()).await.unwrap().is_none() {
                continue;
            }
            let steps = check(&below).await;
            assert_eq!(steps, names(steps.len()), "{fault:?}");
            // Whoever goes on finds those, and does the others again.
            let run = Run::open(&process(&below), open()).await.unwrap();
            let keeper = Arc::default();
            for number in 0..50 {
                if run.recorded(&name(number)).is_none() {
                    later(&run, &keeper, number).await.unwrap();
                }
            }
            run.turn().await.unwrap();
            assert_eq!(check(&below).await, names(50), "{fault:?}");
        }
    }
}

/// What went wrong is told to whoever asks first, and nothing is written behind it.
#[tokio::test]
async fn a_step_that_cannot_be_written_breaks_the_run() {
    let store = Arc::new(CrashStore::new(memory(), Fault::None));
    let keeper = Arc::default();
    let run = Run::open(&process(&(Arc::clone(&store) as _)), open()).await.unwrap();
    later(&run, &keeper, 0).await.unwrap();
    run.turn().await.unwrap();
    store.set_away(true);
    for number in 1..4 {
        later(&run, &keeper, number).await.unwrap();
    }
    let first = run.save("count", &Value::from(1)).await.unwrap_err();
    assert!(matches!(first, RunError::Store(StoreError::Unavailable { .. })), "{first:?}");
    store.set_away(false);
    let second = run.save("count", &Value::from(1)).await.unwrap_err();
    assert!(matches!(second, RunError::Broken { .. }), "{second:?}");
    let third = later(&run, &keeper, 5).await.unwrap_err();
    assert!(matches!(third, RunError::Broken { .. }), "{third:?}");
    assert!(matches!(run.check_written(), Err(RunError::Broken { .. })));
    assert_eq!(check(store.inner()).await, names(1));
}

/// Whoever panics while he writes leaves nobody waiting.
#[tokio::test]
async fn a_writer_that_panics_breaks_the_run() {
    struct Panics;
    #[async_trait]
    impl Later for Panics {
        async fn write(&mut self, _turn: &mut Turn<'_>, _step: &EndedStep) -> Result<(), RunError> {
            panic!("on purpose")
        }
        fn again(&mut self) {}
        fn written(self: Box<Self>, _seq: Seq) {}
    }
    let store = memory();
    let run = Run::open(&process(&store), open()).await.unwrap();
    let done = StepDone::new(name(0), Value::Null, Ok(Value::Null));
    run.record_later(done, |_| Ok(Box::new(Panics))).await.unwrap();
    let error = run.save("count", &Value::from(1)).await.unwrap_err();
    assert!(matches!(error, RunError::Broken { .. }), "{error:?}");
}

/// A run whose steps are written can be let go of at once, and opened again by the same process.
#[tokio::test]
async fn nothing_holds_a_run_whose_steps_are_written() {
    let (store, keeper) = (memory(), Arc::default());
    let context = process(&store);
    let run = Run::open(&context, open()).await.unwrap();
    later(&run, &keeper, 0).await.unwrap();
    run.turn().await.unwrap();
    drop(run);
    let run = Run::open(&context, open()).await.unwrap();
    assert!(run.recorded(&name(0)).is_some());
}

/// Steps count in the order in which the log has them: nothing is recorded later while somebody writes what he knows.
#[tokio::test]
async fn what_counts_first_is_first_in_the_log() {
    let (store, keeper) = (memory(), Arc::default());
    let run = Run::open(&process(&store), open()).await.unwrap();
    let mut turn = run.turn().await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(20), later(&run, &keeper, 1)).await;
    assert!(waiting.is_err() && run.recorded(&name(1)).is_none());
    turn.record(StepDone::new(name(0), Value::Null, Ok(Value::Null)), Vec::new()).await.unwrap();
    drop(turn);
    later(&run, &keeper, 1).await.unwrap();
    run.catch_up().await.unwrap();
    let mut order = Vec::new();
    run.for_each_step(|step| order.push(step.path.clone()));
    assert_eq!(order, names(2));
    assert_eq!(keeper.written.lock().unwrap()[..], [(name(1), Seq(3))]);
}

/// What can't be stored is told at once, and doesn't count.
#[tokio::test]
async fn a_step_that_cannot_be_stored_does_not_count() {
    let (store, keeper) = (memory(), Arc::<Keeper>::default());
    let run = Run::open(&process(&store), open()).await.unwrap();
    let deep = (0..200).fold(Value::Null, |inside, _| Value::List(vec![inside]));
    let done = StepDone::new(name(0), Value::Null, Ok(deep));
    let refused = run.record_later(done, |_| Ok(Box::new(Kept(Arc::clone(&keeper), name(0))))).await;
    assert!(refused.is_err() && run.recorded(&name(0)).is_none(), "{refused:?}");
    later(&run, &keeper, 1).await.unwrap();
    run.catch_up().await.unwrap();
}
