//! Stopping and giving up, from this process and from others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use piton_runtime::{Context, Outcome, Requested, Run, RunError, StepError, WholeHistory, cancel, stop};
use piton_store::Store;
use piton_types::{Durability, RunState, RunStatus};

use crate::support::{dead_process, entries, history, memory, open, process, run_id};

fn here(store: &Arc<dyn Store>) -> Context {
    Context::system(Arc::clone(store))
}

/// The request is an entry of the log; the process that drives the run finds it at its next write, and stops at the
/// step boundary. What ran is recorded.
#[tokio::test]
async fn a_run_is_stopped_at_a_step_boundary() {
    let store = memory();
    let context = here(&store);
    let mut run = Run::open(&context, open()).await.unwrap();
    let asked = run
        .step("asks", (), async |()| {
            let asked = stop(&context, &run_id(), "enough", None).await.unwrap();
            Ok::<_, String>(matches!(asked, Requested::Asked(_)))
        })
        .await;
    assert!(asked.unwrap(), "the step that ran is recorded");
    let stopped = run.step("next", (), async |()| -> Result<(), String> { panic!("it ran") }).await;
    assert!(
        matches!(stopped, Err(StepError::Run(RunError::Stopped { ref reason, .. })) if reason == "enough"),
        "{stopped:?}"
    );
    let RunState::Paused(paused) = history(&store).await.state.clone() else { panic!("it isn't paused") };
    assert_eq!(paused.reason, "enough");
    assert!(store.lease(&run_id()).await.unwrap().is_none());
    assert_eq!(stop(&context, &run_id(), "again", None).await.unwrap(), Requested::Already);
    // Resumable, while the stopped handle still exists.
    let mut again = Run::resume(&here(&store), &run_id(), Durability::Durable, Default::default()).await.unwrap();
    assert!(again.step("asks", (), async |()| -> Result<bool, String> { panic!("it ran") }).await.unwrap());
    again.step("next", (), async |()| Ok::<_, String>(())).await.unwrap();
    again.complete(()).await.unwrap();
}

/// With branches, those that run end first.
#[tokio::test]
async fn the_last_branch_that_runs_stops_the_run() {
    let store = memory();
    let mut run = Run::open(&here(&store), open()).await.unwrap();
    let (mut slow, mut quick) = (run.branch("slow").unwrap(), run.branch("quick").unwrap());
    let stopper = run.stopper();
    let go = tokio::sync::Notify::new();
    let (slow, quick) = tokio::join!(
        slow.step("s", (), async |()| {
            go.notified().await;
            Ok::<_, String>(1)
        }),
        async {
            quick.step("q", (), async |()| Ok::<_, String>(())).await.unwrap();
            stopper.stop("enough", None);
            let refused = quick.step("r", (), async |()| Ok::<_, String>(())).await;
            assert_eq!(history(&store).await.state.status(), RunStatus::InProgress, "one still runs");
            go.notify_one();
            refused
        }
    );
    assert!(matches!(quick, Err(StepError::Run(RunError::Stopped { .. }))));
    assert_eq!(slow.unwrap(), 1);
    assert_eq!(history(&store).await.state.status(), RunStatus::Paused);
    assert_eq!(history(&store).await.steps.len(), 2);
}

/// A step that doesn't end in the time that it is given is cut short; so is every step of a run that is given
/// up, which goes through paused.
#[tokio::test]
async fn steps_are_cut_short() {
    for order in ["stop", "cancel"] {
        let store = memory();
        let context = here(&store);
        let started = AtomicBool::new(false);
        let driven = Run::drive(&context, open(), |mut run| {
            let started = &started;
            async move {
                run.step("endless", (), async |()| {
                    started.store(true, Ordering::SeqCst);
                    std::future::pending::<Result<(), String>>().await
                })
                .await?;
                Ok(())
            }
        });
        let (outcome, ()) = tokio::join!(driven, async {
            while !started.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            let asked = match order {
                "stop" => stop(&context, &run_id(), order, Some(Duration::ZERO)).await,
                _ => cancel(&context, &run_id(), order).await,
            };
            assert!(matches!(asked.unwrap(), Requested::Asked(_)));
        });
        let reason = order.to_owned();
        let expected = if order == "stop" { Outcome::Paused { reason } } else { Outcome::Cancelled { reason } };
        assert_eq!(outcome.unwrap(), expected);
        let history = history(&store).await;
        assert!(history.steps.is_empty(), "what was cut short is in no entry");
        let status = if order == "stop" { RunStatus::Paused } else { RunStatus::Cancelled };
        assert_eq!(history.state.status(), status);
        assert_eq!(store.summary(&run_id()).await.unwrap().unwrap().status, status);
    }
}

/// A run that was given up stays so if the process that drove it dies before it hears of that; a request to stop ends
/// with the process.
#[tokio::test]
async fn what_was_given_up_is_not_gone_on_with() {
    for order in ["stop", "cancel"] {
        let store = memory();
        let run = Run::open(&here(&store), open()).await.unwrap();
        let asked = match order {
            "stop" => stop(&here(&store), &run_id(), order, None).await,
            _ => cancel(&here(&store), &run_id(), order).await,
        };
        assert!(matches!(asked, Ok(Requested::Asked(_))), "{asked:?}");
        drop(run);
        let again = Run::resume(&here(&store), &run_id(), Durability::Durable, Default::default()).await;
        match (order, again) {
            ("stop", Ok(run)) => run.complete(()).await.unwrap(),
            ("cancel", Err(RunError::Illegal { .. })) => {
                assert_eq!(history(&store).await.state.status(), RunStatus::Cancelled);
            }
            (_, other) => panic!("{order}: {other:?}"),
        }
    }
}

/// R1: where no process drives the run it is done at once, by legal moves only.
#[tokio::test]
async fn nobody_needs_to_drive_a_run_to_stop_it() {
    // In progress, its holder dead.
    let store = memory();
    let dead = Context { holder: dead_process(), ..here(&store) };
    let mut stale = Run::open(&dead, open()).await.unwrap();
    assert_eq!(stop(&here(&store), &run_id(), "enough", None).await.unwrap(), Requested::Done);
    assert_eq!(history(&store).await.state.status(), RunStatus::Paused);
    let fenced = RunError::from(stale.step("a", (), async |()| Ok::<_, String>(())).await.unwrap_err());
    assert!(fenced.is_fenced(), "who drove it can't come back: {fenced}");
    // Paused, then given up for good.
    assert_eq!(cancel(&here(&store), &run_id(), "no").await.unwrap(), Requested::Done);
    assert_eq!(history(&store).await.state.status(), RunStatus::Cancelled);
    let before = entries(&store).await;
    assert_eq!(cancel(&here(&store), &run_id(), "no").await.unwrap(), Requested::Already);
    assert!(matches!(stop(&here(&store), &run_id(), "no", None).await, Ok(Requested::Already)));
    assert_eq!(entries(&store).await, before);

    for (end, legal) in [("fail", true), ("complete", false)] {
        let store = memory();
        let run = Run::open(&process(&store), open()).await.unwrap();
        match end {
            "fail" => run.fail(piton_runtime::Failure::new("test", "x")).await.unwrap(),
            _ => run.complete(()).await.unwrap(),
        }
        assert_eq!(cancel(&here(&store), &run_id(), "no").await.is_ok(), legal, "{end}");
        let stopped = stop(&here(&store), &run_id(), "no", None).await;
        assert_eq!(stopped.is_ok(), legal, "{end}: {stopped:?}");
    }
}

/// A log per run: lines that steps write are kept, in order, without commits of their own.
#[tokio::test]
async fn lines_are_kept_with_the_run() {
    let store = memory();
    let mut run = Run::open(&process(&store), open()).await.unwrap();
    let lines = run.lines();
    for n in 1..=2 {
        run.step("talks", n, async |n| {
            lines.write(format!("line {n}"));
            Ok::<_, String>(())
        })
        .await
        .unwrap();
    }
    assert_eq!(entries(&store).await, 4);
    lines.write("the end".repeat(10_000));
    run.complete(()).await.unwrap();
    let log = WholeHistory::of(&process(&store), &run_id()).await.unwrap().log;
    let texts: Vec<_> = log.iter().map(|line| &line.text[..7.min(line.text.len())]).collect();
    assert_eq!(texts, ["line 1", "line 2", "the end"]);
    assert_eq!(log[2].text.len(), 8 << 10, "a line is cut");
}
