//! Several entries in one commit, as an engine writes them: in order, each with the state that belongs to it, and never
//! half.

use std::sync::Arc;
use std::time::Duration;

use piton_log::state::State;
use piton_log::{Content, Draft, DraftPart, RunLog};
use piton_runtime::{Run, RunError, StepDone, Uncertain};
use piton_store::{Span, Store, StoreError};
use piton_testing::{CrashStore, Fault};
use piton_types::{Durability, EntryKind, PartName, Seq, StepPath, Timestamp, Value};

use crate::support::{memory, open, process, run_id};

/// Keeps a list of the steps that were written, as a part of every checkpoint.
#[derive(Default)]
struct Keeper {
    list: Option<State>,
    again: usize,
}

impl Keeper {
    /// Writes steps in one commit, each a checkpoint with the names of all steps until then, and returns their entries.
    async fn write(&mut self, run: &Run, numbers: std::ops::Range<usize>) -> Result<Vec<Seq>, RunError> {
        let root = "".parse().unwrap();
        let mut turn = run.turn().await?;
        let mut entries = Vec::new();
        for number in numbers {
            let done = StepDone::new(name(number), Value::Null, Ok(Value::from("x".repeat(number))));
            entries.push((name(number), turn.ended(done)?));
        }
        let (mut rest, mut seqs) = (&entries[..], Vec::new());
        while !rest.is_empty() {
            for (at, (step, entry)) in rest.iter().enumerate() {
                if self.list.is_none() {
                    let mut before = Vec::new();
                    let mut state = turn.part_state_or("steps", &Value::List(Vec::new()))?;
                    if let Value::List(known) = state.get(&root).await?.unwrap_or_default() {
                        before.extend(known);
                    }
                    let since = turn.steps_behind(None).await?;
                    let since =
                        since.iter().map(|step| &step.path).chain(rest[..at].iter().map(|(earlier, _)| earlier));
                    for step in since.map(|step| Value::from(step.as_str())) {
                        if !before.contains(&step) {
                            before.push(step);
                        }
                    }
                    state.set(&root, Value::List(before)).await?;
                    self.list = Some(state);
                }
                let state = self.list.as_mut().unwrap();
                state.push(&root, Value::from(step.as_str())).await?;
                let content = Content::State(state);
                let part = DraftPart { name: "steps".into(), schema: "test.steps".to_owned(), version: 1, content };
                seqs.push(turn.add(entry, vec![part], Durability::Durable).await?);
            }
            let count = turn.commit().await?;
            if count < rest.len() {
                seqs.truncate(entries.len() - rest.len() + count);
                (self.list, self.again) = (None, self.again + 1);
            }
            rest = &rest[count..];
        }
        Ok(seqs)
    }
}

fn name(number: usize) -> StepPath {
    format!("s{number:03}").parse().unwrap()
}

fn names(count: usize) -> Vec<StepPath> {
    (0..count).map(name).collect()
}

/// The steps that the log has, each of which is a checkpoint with exactly those until then.
async fn check(store: &Arc<dyn Store>) -> Vec<StepPath> {
    let log = RunLog::open(Arc::clone(store), &run_id()).await.unwrap();
    let mut steps = Vec::new();
    for entry in log.entries(Span::ALL).await.unwrap() {
        if entry.kind == EntryKind::StepDone {
            steps.push(Value::from(entry.label.as_str()));
            let part = log.load(&entry.parts[&PartName::from("steps")]).await.unwrap();
            assert_eq!(part, Value::List(steps.clone()), "entry {}", entry.seq);
        }
    }
    steps.iter().map(|step| step.as_str().unwrap().parse().unwrap()).collect()
}

/// How many calls it takes to open a new run.
async fn calls_to_open() -> u64 {
    let store = Arc::new(CrashStore::new(memory(), Fault::None));
    Run::open(&process(&(Arc::clone(&store) as _)), open()).await.unwrap();
    store.calls()
}

#[tokio::test]
async fn several_entries_are_one_commit() {
    let store = Arc::new(CrashStore::new(memory(), Fault::None).with_chains());
    let run = Run::open(&process(&(Arc::clone(&store) as _)), open()).await.unwrap();
    let mut keeper = Keeper::default();
    // It looks once what the log has.
    let mut seqs = keeper.write(&run, 0..1).await.unwrap();
    let before = store.calls();
    seqs.extend(keeper.write(&run, 1..40).await.unwrap());
    assert_eq!(store.names()[before as usize..], ["append_several"]);
    assert_eq!(seqs, (2..42).map(Seq).collect::<Vec<_>>(), "behind created and claimed");
    let saved = run.save("count", &Value::from(1)).await.unwrap();
    assert_eq!(saved.seq, Seq(42));
    assert_eq!(check(store.inner()).await, names(40));
}

/// Another process writes to the run just before any call of ours: each entry is where it belongs, once, with the state
/// that it should have.
#[tokio::test]
async fn entries_of_others_may_come_between() {
    let mut met = 0;
    let first = calls_to_open().await + 1;
    for call in first..first + 15 {
        let store = Arc::new(CrashStore::new(memory(), Fault::StopBefore(call)).with_chains());
        let mut keeper = Keeper::default();
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
        let mut seqs = Vec::new();
        for burst in 0..15 {
            seqs.extend(keeper.write(&run, burst * 4..burst * 4 + 4).await.unwrap());
        }
        other.abort();
        assert_eq!(check(store.inner()).await, names(60), "call {call}");
        let log = RunLog::open(Arc::clone(store.inner()), &run_id()).await.unwrap();
        let entries = log.entries(Span::ALL).await.unwrap();
        assert_eq!(seqs.len(), 60);
        for (number, seq) in seqs.into_iter().enumerate() {
            assert_eq!(entries[seq.0 as usize].label, name(number).as_str());
        }
        met += keeper.again;
    }
    assert!(met >= 15, "only {met} commits met entries of others");
}

/// Promise 10, with several entries in one commit: at whatever call the process dies, the log has the first of the
/// steps, each whole, and the handle takes no more.
#[tokio::test]
async fn a_crash_at_any_call_leaves_the_first_of_them() {
    let work = async |store: &Arc<dyn Store>| -> Result<(), RunError> {
        let mut keeper = Keeper::default();
        let run = Run::open(&process(store), open()).await?;
        for burst in 0..5 {
            keeper.write(&run, burst * 10..burst * 10 + 10).await?;
        }
        run.complete(Value::Null).await?;
        Ok(())
    };
    for chains in [false, true] {
        let over = |below, fault| -> Arc<CrashStore> {
            let store = CrashStore::new(below, fault);
            Arc::new(if chains { store.with_chains() } else { store })
        };
        let counting = over(memory(), Fault::None);
        work(&(Arc::clone(&counting) as _)).await.unwrap();
        let together = counting.names().iter().filter(|name| **name == "append_several").count();
        assert_eq!(together, if chains { 5 } else { 0 });
        for call in 1..=counting.calls() {
            for fault in [Fault::CrashBefore(call), Fault::CrashAfter(call)] {
                let below = memory();
                let failed = work(&(over(Arc::clone(&below), fault) as _)).await;
                let Err(error) = failed else {
                    // Only what is done after the end may go wrong unnoticed.
                    assert_eq!(check(&below).await, names(50), "{fault:?}");
                    continue;
                };
                assert!(matches!(&error, RunError::Store(StoreError::Unavailable { .. })), "{fault:?}: {error:?}");
                if below.head(&run_id()).await.unwrap().is_none() {
                    continue;
                }
                let steps = check(&below).await;
                assert_eq!(steps, names(steps.len()), "{fault:?}");
                assert!(!chains || steps.len() % 10 == 0, "{fault:?}: all of a commit or none");
                // A process that goes on finds those, and does the others again.
                let run = Run::open(&process(&below), open()).await.unwrap();
                let mut first = 0;
                while first < 50 && run.recorded(&name(first)).await.unwrap().is_some() {
                    first += 1;
                }
                Keeper::default().write(&run, first..50).await.unwrap();
                assert_eq!(check(&below).await, names(50), "{fault:?}");
            }
        }
    }
}

/// What went wrong is told to the writer, and nothing is written behind it.
#[tokio::test]
async fn a_commit_that_fails_breaks_the_run() {
    let store = Arc::new(CrashStore::new(memory(), Fault::None));
    let mut keeper = Keeper::default();
    let run = Run::open(&process(&(Arc::clone(&store) as _)), open()).await.unwrap();
    keeper.write(&run, 0..1).await.unwrap();
    store.set_away(true);
    let first = keeper.write(&run, 1..4).await.unwrap_err();
    assert!(matches!(first, RunError::Store(StoreError::Unavailable { .. })), "{first:?}");
    store.set_away(false);
    for again in [keeper.write(&run, 4..5).await.map(drop), run.save("count", &Value::from(1)).await.map(drop)] {
        assert!(matches!(again, Err(RunError::Broken { .. })), "{again:?}");
    }
    assert_eq!(check(store.inner()).await, names(1));
}

/// What can't be stored is told at once, and doesn't count.
#[tokio::test]
async fn a_step_that_cannot_be_stored_does_not_count() {
    let store = memory();
    let run = Run::open(&process(&store), open()).await.unwrap();
    let deep = (0..200).fold(Value::Null, |inside, _| Value::List(vec![inside]));
    let refused = run.turn().await.unwrap().ended(StepDone::new(name(0), Value::Null, Ok(deep)));
    assert!(refused.is_err() && run.recorded(&name(0)).await.unwrap().is_none(), "{refused:?}");
    Keeper::default().write(&run, 1..2).await.unwrap();
}

/// An attempt that ended and the intent of the next one, in one commit: the second follows from the first.
#[tokio::test]
async fn an_entry_counts_for_those_behind_it_in_its_commit() {
    let store = memory();
    let run = Run::open(&process(&store), open()).await.unwrap();
    let mut turn = run.turn().await.unwrap();
    let (first, intent) = turn.intended(&name(0), &Value::Null, Uncertain::Ask, None).unwrap();
    let failed = StepDone {
        retry: Some(Duration::ZERO),
        ..StepDone::new(name(0), Value::Null, Err("the service said no".to_owned()))
    };
    let failed = turn.ended(failed).unwrap();
    let (second, again) = turn.intended(&name(0), &Value::Null, Uncertain::Ask, None).unwrap();
    assert!(again.is_some() && first != second, "another attempt with another key: {first:?}, {second:?}");
    for entry in [intent.unwrap(), failed, again.unwrap()] {
        turn.add(&entry, Vec::new(), Durability::Durable).await.unwrap();
    }
    assert_eq!(turn.commit().await.unwrap(), 3);
    drop(turn);
    let run = Run::open(&process(&store), open()).await.unwrap();
    assert_eq!(run.recorded(&name(0)).await.unwrap().unwrap().attempt, 1);
}
