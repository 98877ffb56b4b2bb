//! Questions outlive the process; each answer is used once.

use std::sync::Arc;
use std::time::Duration;

use piton_log::RunLog;
use piton_runtime::{Context, OpenRun, Run, RunError, Wait, Waits, answer, cancel};
use piton_store::Store;
use piton_testing::{CrashStore, Fault, ManualClock};
use piton_types::{Durability, EntryKind, RunState, RunStatus, StepPath, Value};

use crate::support::{entries, history, memory, open, process, process_at, run_id};

fn leaving() -> OpenRun {
    OpenRun { waits: Waits::Leave, ..open() }
}

async fn ask(context: &Context, names: &[&str]) -> Result<Vec<String>, RunError> {
    let mut run = Run::open(context, leaving()).await?;
    let mut answers = Vec::new();
    for name in names {
        answers.push(run.wait_for(name, Wait::new(format!("{name}?"))).await?);
    }
    Ok(answers)
}

/// R1, decision 5 (5): waiting, with no process alive, answered by another process, used by the call that asked.
#[tokio::test]
async fn each_answer_is_used_once() {
    let store = memory();
    for (round, text) in ["one", "two"].into_iter().enumerate() {
        let waiting = ask(&process(&store), &["same", "same"]).await.unwrap_err();
        assert!(matches!(waiting, RunError::Waiting { .. }), "{waiting}");
        let RunState::Waiting(data) = history(&store).await.state.clone() else { panic!("it doesn't wait") };
        assert_eq!(data.prompt, "same?");
        let path = answer(&process(&store), &run_id(), None, text, "Ada").await.unwrap();
        assert_eq!(path.as_str(), ["same", "same#2"][round]);
        let second = answer(&process(&store), &run_id(), None, "again", "Bob").await.unwrap_err();
        assert!(matches!(second, RunError::NotAsked { .. }), "{second}");
    }
    for _ in 0..2 {
        assert_eq!(ask(&process(&store), &["same", "same"]).await.unwrap(), ["one", "two"]);
    }
    assert_eq!(history(&store).await.answers.len(), 2);
}

/// Promise 11: a process that lets go of a run says so once more in its log, and an answer may have come just before.
/// At every call to the store.
#[tokio::test]
async fn an_answer_given_while_the_run_is_let_go_of_is_kept() {
    let (path, wait): (StepPath, _) = ("go".parse().unwrap(), Wait::new("go?"));
    let mut given = 0;
    for (by_engine, call) in (1..20).flat_map(|call| [(false, call), (true, call)]) {
        let store = Arc::new(CrashStore::new(memory(), Fault::StopBefore(call)));
        let context = process(&(Arc::clone(&store) as Arc<dyn Store>));
        let (path, wait) = (path.clone(), wait.clone());
        let asking = tokio::spawn(async move {
            if !by_engine {
                return ask(&context, &["go"]).await.is_err();
            }
            let run = Run::open(&context, leaving()).await.unwrap();
            run.ask(&path, &wait, &Value::Null).await.unwrap();
            run.leave(std::slice::from_ref(&path)).await.unwrap()
        });
        while !store.is_stopped() && !asking.is_finished() {
            tokio::task::yield_now().await;
        }
        let is_given = answer(&process(store.inner()), &run_id(), None, "yes", "Ada").await.is_ok();
        let was_stopped = store.is_stopped();
        store.let_go_on();
        let left = asking.await.unwrap();
        if !is_given {
            continue;
        }
        given += u32::from(was_stopped);
        let log = RunLog::open(Arc::clone(store.inner()), &run_id()).await.unwrap();
        let newest = log.entry(log.head().seq).await.unwrap().kind;
        assert!(!(by_engine && left) || newest == EntryKind::Answer, "it let go of a run that goes on, call {call}");
        let history = history(store.inner()).await;
        assert_eq!((history.answers.len(), history.questions.len()), (1, 0), "call {call}");
        let again = answer(&process(store.inner()), &run_id(), None, "no", "Bob").await;
        assert!(again.is_err(), "it is answered, call {call}");
    }
    assert!(given >= 4, "{given} answers came in between");
}

/// Promise 11: of several who answer at once, one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_racing_answers_exactly_one_counts() {
    for _ in 0..20 {
        let store = memory();
        ask(&process(&store), &["go"]).await.unwrap_err();
        let tasks: Vec<_> = (0..8)
            .map(|n| {
                let context = process(&store);
                tokio::spawn(async move { answer(&context, &run_id(), None, n.to_string(), "x").await })
            })
            .collect();
        let mut won = Vec::new();
        for (n, task) in tasks.into_iter().enumerate() {
            match task.await.unwrap() {
                Ok(_) => won.push(n.to_string()),
                Err(RunError::NotAsked { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(won.len(), 1);
        assert_eq!(ask(&process(&store), &["go"]).await.unwrap(), won);
    }
}

/// A process that stays goes on as soon as the answer is there; meanwhile its other branches do.
#[tokio::test]
async fn a_process_that_stays_goes_on() {
    let store = memory();
    let context = process(&store);
    let mut run = Run::open(&context, open()).await.unwrap();
    let (mut asks, mut works) = (run.branch("asks").unwrap(), run.branch("works").unwrap());
    let (got, ()) = tokio::join!(asks.wait_for::<u32>("n", Wait::new("How many?")), async {
        while history(&store).await.state.status() != RunStatus::Waiting {
            tokio::task::yield_now().await;
        }
        works.step("beside", (), async |()| Ok::<_, String>(1)).await.unwrap();
        assert_eq!(history(&store).await.state.status(), RunStatus::Waiting);
        answer(&context, &run_id(), None, 7, "Ada").await.unwrap();
    });
    assert_eq!(got.unwrap(), 7);
    assert_eq!(run.state().status(), RunStatus::InProgress);
    works.step("after", (), async |()| Ok::<_, String>(1)).await.unwrap();
    run.complete(()).await.unwrap();
}

#[tokio::test]
async fn several_questions_are_told_apart() {
    let store = memory();
    let mut run = Run::open(&process(&store), leaving()).await.unwrap();
    let (mut a, mut b) = (run.branch("a").unwrap(), run.branch("b").unwrap());
    let (one, two) = tokio::join!(a.wait_for::<u32>("n", Wait::new("?")), b.wait_for::<u32>("n", Wait::new("?")));
    assert!(one.is_err() && two.is_err());
    let which = answer(&process(&store), &run_id(), None, 1, "x").await.unwrap_err();
    assert_eq!(which.to_string(), "run a-run waits for several answers: a/n, b/n");
    let path: StepPath = "b/n".parse().unwrap();
    answer(&process(&store), &run_id(), Some(&path), 2, "x").await.unwrap();
    answer(&process(&store), &run_id(), None, 1, "x").await.unwrap();
    drop((run, a, b));
    let mut run = Run::open(&process(&store), leaving()).await.unwrap();
    let (mut a, mut b) = (run.branch("a").unwrap(), run.branch("b").unwrap());
    assert_eq!(a.wait_for::<u32>("n", Wait::new("?")).await.unwrap(), 1);
    assert_eq!(b.wait_for::<u32>("n", Wait::new("?")).await.unwrap(), 2);
}

/// A wait that times out fails the run with that reason, also if no process was alive; or takes another value.
#[tokio::test]
async fn a_wait_ends_in_time() {
    for otherwise in [None, Some(3)] {
        let (store, clock) = (memory(), Arc::new(ManualClock::default().booted()));
        let wait = Wait { timeout: Some(Duration::from_secs(60)), ..Wait::new("?") };
        let ask = async |store: &Arc<dyn Store>| {
            let mut run = Run::open(&process_at(store, &clock), leaving()).await.unwrap();
            match otherwise {
                None => run.wait_for::<u32>("n", wait.clone()).await,
                Some(value) => run.wait_for_or("n", wait.clone(), value).await,
            }
        };
        assert!(matches!(ask(&store).await, Err(RunError::Waiting { .. })));
        clock.advance(Duration::from_secs(59));
        assert!(matches!(ask(&store).await, Err(RunError::Waiting { .. })), "not early");
        clock.advance(Duration::from_secs(1));
        match otherwise {
            None => {
                assert!(matches!(ask(&store).await, Err(RunError::Unanswered { .. })));
                let RunState::Failed(failed) = history(&store).await.state.clone() else { panic!("it isn't failed") };
                assert_eq!(
                    (failed.error_type.as_str(), failed.message.as_str()),
                    ("timeout", "no answer to n came in time")
                );
            }
            Some(value) => {
                assert_eq!(ask(&store).await.unwrap(), value);
                let late = answer(&process(&store), &run_id(), None, 9, "late").await;
                assert!(matches!(late, Err(RunError::NotAsked { .. })));
                assert_eq!(ask(&store).await.unwrap(), value);
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_asked_of_a_run_that_does_not_wait() {
    let store = memory();
    let run = Run::open(&process(&store), open()).await.unwrap();
    let before = entries(&store).await;
    assert!(matches!(answer(&process(&store), &run_id(), None, 1, "x").await, Err(RunError::NotAsked { .. })));
    assert_eq!(entries(&store).await, before);
    run.complete(()).await.unwrap();
    assert!(matches!(answer(&process(&store), &run_id(), None, 1, "x").await, Err(RunError::NotAsked { .. })));
}

#[tokio::test]
async fn a_run_that_waits_can_be_given_up() {
    let store = memory();
    ask(&process(&store), &["go"]).await.unwrap_err();
    cancel(&process(&store), &run_id(), "never mind").await.unwrap();
    assert_eq!(history(&store).await.state.status(), RunStatus::Cancelled);
    assert!(matches!(ask(&process(&store), &["go"]).await, Err(RunError::Illegal { .. })));
    let resumed = Run::resume(&process(&store), &run_id(), Durability::Durable, Default::default()).await;
    assert!(matches!(resumed, Err(RunError::Illegal { .. })));
}
