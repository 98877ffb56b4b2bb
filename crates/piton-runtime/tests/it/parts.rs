//! Checkpoints: parts are saved, kept and loaded.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use piton_log::{Content, DraftPart, RunLog};
use piton_runtime::{Recorded, Run, StepDone};
use piton_store::Store;
use piton_testing::{CrashStore, Fault};
use piton_types::{PartName, RunStatus, Seq, Timestamp, Value};

use crate::support::{entries, history, memory, open, process, run_id};

fn part<'a>(name: &str, value: &'a Value) -> DraftPart<'a> {
    DraftPart { name: name.into(), schema: format!("test.{name}"), version: 2, content: Content::Value(value) }
}

#[tokio::test]
async fn parts_that_are_not_given_stay() {
    let store = memory();
    let run = Run::open(&process(&store), open()).await.unwrap();
    let (talk, count) = (Value::from("hello ".repeat(5_000)), Value::from(1));
    let first = run.checkpoint("first", vec![part("talk", &talk), part("count", &count)]).await.unwrap();
    let second = run.save("count", &Value::from(2)).await.unwrap();
    assert_eq!((first.seq.0, second.to_string().as_str()), (2, "a-run@3"));
    drop(run);

    let run = Run::open(&process(&store), open()).await.unwrap();
    assert_eq!(run.part("talk").await.unwrap(), Some(talk));
    assert_eq!(run.part("count").await.unwrap(), Some(Value::from(2)));
    assert_eq!(run.part("other").await.unwrap(), None);
    let (seq, parts) = history(&store).await.checkpoint.clone().unwrap();
    assert_eq!((seq, parts[&PartName::from("talk")].version), (second.seq, 2));
}

#[tokio::test]
async fn a_state_goes_on_after_a_restart() {
    let store = memory();
    let run = Run::open(&process(&store), open()).await.unwrap();
    run.save("talk", &Value::map([("messages", Value::from(vec![Value::from("one")]))])).await.unwrap();
    drop(run);

    let run = Run::open(&process(&store), open()).await.unwrap();
    let mut state = run.part_state("talk").await.unwrap().unwrap();
    state.push(&"/messages".parse().unwrap(), Value::from("two")).await.unwrap();
    let content = Content::State(&mut state);
    let draft = DraftPart { name: "talk".into(), schema: "piton.talk".into(), version: 1, content };
    run.checkpoint("more", vec![draft]).await.unwrap();
    let messages = Value::from(vec![Value::from("one"), Value::from("two")]);
    assert_eq!(run.part("talk").await.unwrap(), Some(Value::map([("messages", messages)])));
    assert!(run.part_state("other").await.unwrap().is_none());
}

fn done(path: &str, output: i64) -> StepDone {
    let started_at = Timestamp::from_millis(1);
    StepDone { started_at, ..StepDone::new(path.parse().unwrap(), Value::Null, Ok(Value::from(output))) }
}

/// A step's entry can be a checkpoint in the same commit; other parts are carried on.
#[tokio::test]
async fn a_step_is_recorded_with_state() {
    let store = memory();
    let run = Run::open(&process(&store), open()).await.unwrap();
    run.save("app", &Value::from("mine")).await.unwrap();
    let before = entries(&store).await;
    assert_eq!(run.record(done("plain", 1), Vec::new()).await.unwrap(), Recorded { seq: Seq(3), attempt: 1 });
    assert_eq!(history(&store).await.checkpoint.clone().unwrap().0, Seq(2), "a plain step carries no state");

    let mut state = run.part_state_or("talk", &Value::map::<&str>([])).await.unwrap();
    for n in 0..3 {
        state.set(&format!("/{n}").parse().unwrap(), Value::from(n)).await.unwrap();
        let content = Content::State(&mut state);
        let part = DraftPart { name: "talk".into(), schema: "test.talk".into(), version: 1, content };
        let recorded = run.record(done(&format!("with/{n}"), n), vec![part]).await.unwrap();
        let (seq, parts) = history(&store).await.checkpoint.clone().unwrap();
        assert_eq!((seq, parts.len()), (recorded.seq, 2));
    }
    assert_eq!(entries(&store).await, before + 4, "one commit each");
    let paths: Vec<_> = history(&store).await.finished().iter().map(|step| step.path.to_string()).collect();
    assert_eq!(paths, ["plain", "with/0", "with/1", "with/2"]);
    drop(run);

    let run = Run::open(&process(&store), open()).await.unwrap();
    let talk = Value::map([("0", Value::from(0)), ("1", Value::from(1)), ("2", Value::from(2))]);
    assert_eq!(run.part("talk").await.unwrap(), Some(talk));
    assert_eq!(run.part("app").await.unwrap(), Some(Value::from("mine")));
    let state = run.part_state_or("talk", &Value::Null).await.unwrap();
    assert_eq!(state.root(), history(&store).await.checkpoint.clone().unwrap().1[&"talk".into()].root);
    run.record(StepDone { result: Err("oh".to_owned()), ..done("bad", 0) }, Vec::new()).await.unwrap();
    assert_eq!(history(&store).await.finished().len(), 4, "a failed step isn't finished");
}

/// A write whose future is dropped while the store is at it, as a time limit does: the next one waits for it, what it
/// wrote counts, and the handle goes on. At every call to the store.
#[tokio::test]
async fn a_write_that_nobody_waits_for_any_more_breaks_nothing() {
    let work = async |store: &Arc<CrashStore>| -> u32 {
        let context = process(&(Arc::clone(store) as Arc<dyn Store>));
        let run = Run::open(&context, open()).await.unwrap();
        let mut given_up = 0;
        for n in 0..3 {
            let count = Value::from(n);
            let saved = async { assert!(run.save("count", &count).await.is_ok()) };
            let recorded = async { assert!(run.record(done(&format!("step/{n}"), n), Vec::new()).await.is_ok()) };
            let writes: [Pin<Box<dyn Future<Output = ()>>>; 2] = [Box::pin(saved), Box::pin(recorded)];
            for write in writes {
                let is_stopped = async {
                    while given_up > 0 || !store.is_stopped() {
                        tokio::task::yield_now().await;
                    }
                };
                let was_given_up = tokio::select! {
                    biased;
                    () = write => false,
                    () = is_stopped => true,
                };
                if was_given_up {
                    given_up += 1;
                    store.let_go_on();
                }
            }
        }
        run.save("last", &Value::Null).await.unwrap();
        run.complete(Value::Null).await.unwrap();
        given_up
    };
    let counting = Arc::new(CrashStore::new(memory(), Fault::None));
    assert_eq!(work(&counting).await, 0);
    let mut given_up = 0;
    for call in 1..=counting.calls() {
        let store = Arc::new(CrashStore::new(memory(), Fault::StopBefore(call)));
        // What isn't given up has to be let go on.
        let helper = tokio::spawn({
            let store = Arc::clone(&store);
            async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    if store.is_stopped() {
                        store.let_go_on();
                    }
                }
            }
        });
        given_up += work(&store).await;
        helper.abort();
        let history = history(store.inner()).await;
        assert_eq!(history.state.status(), RunStatus::Completed, "call {call}");
        let log = RunLog::open(Arc::clone(store.inner()), &run_id()).await.unwrap();
        let (_, parts) = history.checkpoint.clone().unwrap();
        assert_eq!(log.load(&parts[&PartName::from("count")]).await.unwrap(), Value::from(2), "call {call}");
    }
    assert!(given_up >= 6, "{given_up} writes were given up");
}
