//! Names of steps don't depend on who gets there first; nested runs; recorded time and chance.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use piton_runtime::{Origin, Run, RunError, WholeHistory};
use piton_store::Store;
use piton_testing::SeededRandom;
use piton_types::{RunState, RunStatus};

use crate::support::{entries, history, memory, open, process};

/// A loop inside of branches, in tasks that yield at random: the log has the same names and results
/// whatever the order.
async fn scattered(store: &Arc<dyn Store>, seed: u64, ran: &Arc<AtomicU32>) -> BTreeMap<String, u32> {
    let mut run = Run::open(&process(store), open()).await.unwrap();
    let mut tasks = Vec::new();
    for n in 0..4_u32 {
        let mut branch = run.branch("part").unwrap();
        let (random, ran) = (SeededRandom::new(seed * 31 + u64::from(n)), Arc::clone(ran));
        tasks.push(tokio::spawn(async move {
            let mut sum = 0;
            for round in 0..3 {
                for _ in 0..random.below(5) {
                    tokio::task::yield_now().await;
                }
                let work = async |(n, round): (u32, u32)| {
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, String>(n * 10 + round)
                };
                sum += branch.step("same", (n, round), work).await.unwrap();
            }
            sum
        }));
    }
    for (n, task) in tasks.into_iter().enumerate() {
        let n = u32::try_from(n).unwrap();
        assert_eq!(task.await.unwrap(), n * 30 + 3);
    }
    let whole = history(store).await;
    let known = |step: &piton_runtime::StepRecord| u32::try_from(step.output.as_i64().unwrap()).unwrap();
    whole.finished().iter().map(|step| (step.path.to_string(), known(step))).collect()
}

#[tokio::test]
async fn names_do_not_depend_on_the_order_of_tasks() {
    let mut seen = Vec::new();
    for seed in 0..20 {
        let (store, ran) = (memory(), Arc::new(AtomicU32::new(0)));
        seen.push(scattered(&store, seed, &ran).await);
        assert_eq!(ran.load(Ordering::SeqCst), 12);
        let again = scattered(&store, seed + 100, &ran).await;
        assert_eq!((ran.load(Ordering::SeqCst), &again), (12, &seen[0]), "nothing ran again");
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(seen[0]["part#3/same#2"], 21);
}

/// The program changed: another name, another order, a step less. Each is told with both calls.
#[tokio::test]
async fn changed_programs_are_told_where() {
    async fn program(store: &Arc<dyn Store>, names: &[&str]) -> Result<(), RunError> {
        let mut run = Run::open(&process(store), open()).await?;
        for name in names {
            run.step(name, BTreeMap::from([("for", *name)]), async |_| Ok::<_, String>(())).await?;
        }
        Ok(())
    }
    let store = memory();
    program(&store, &["fetch", "parse"]).await.unwrap();
    let before = entries(&store).await;
    for (names, expected) in [
        (
            &["download", "parse"][..],
            "fetch with {\"for\":\"fetch\"} where the program calls step download with {\"for\":\"download\"}",
        ),
        (&["parse"], "fetch with {\"for\":\"fetch\"} where the program calls step parse"),
        (&["fetch", "fetch"], "parse with {\"for\":\"parse\"} where the program calls step fetch#2"),
    ] {
        let error = program(&store, names).await.unwrap_err();
        assert!(matches!(error, RunError::Changed { .. }), "{names:?}: {error}");
        assert!(error.to_string().contains(expected), "{names:?}: {error}");
    }
    program(&store, &["fetch", "parse", "more"]).await.unwrap();
    assert_eq!(entries(&store).await, before + 4 + 1, "four claims, one step");
}

#[tokio::test]
async fn time_chance_and_ids_are_recorded() {
    let store = memory();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut run = Run::open(&process(&store), open()).await.unwrap();
        let drawn: [u8; 8] = run.random().await.unwrap();
        seen.push((run.now().await.unwrap(), drawn, run.new_id().await.unwrap(), run.new_id().await.unwrap()));
        if seen.len() == 2 {
            assert!(run.now().await.is_ok(), "new calls are recorded too");
        }
    }
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0].2, seen[0].3);
    assert_eq!(entries(&store).await, 1 + 2 + 4 + 1);
}

/// A child has a log and an id of its own; its result is recorded once; it goes on with its parent.
#[tokio::test]
async fn a_child_goes_on_with_its_parent() {
    let (store, ran) = (memory(), AtomicU32::new(0));
    for dies in [true, false] {
        let mut run = Run::open(&process(&store), open()).await.unwrap();
        let got = run.child("part", 5, async |mut child| {
            let n: u32 = child
                .step("a", 5, async |n| {
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, String>(n * 2)
                })
                .await?;
            if dies {
                std::future::pending::<()>().await;
            }
            Ok(child.step("b", n, async |n| Ok::<_, String>(n + 1)).await?)
        });
        if dies {
            let mut got = Box::pin(got);
            for _ in 0..100 {
                let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(got.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
                tokio::task::yield_now().await;
            }
        } else {
            assert_eq!(got.await.unwrap(), 11);
        }
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1, "what the child had done stayed done");
    let step = history(&store).await.steps.pop().unwrap();
    let child = step.child.unwrap();
    assert!(child.as_str().starts_with("a-run."));
    let theirs = WholeHistory::of(&process(&store), &child).await.unwrap();
    assert_eq!((theirs.state.status(), theirs.steps.len(), theirs.takeovers), (RunStatus::Completed, 2, 1));
    assert!(matches!(theirs.origin, Some(Origin::Child { ref run, .. }) if run.as_str() == "a-run"));
}

#[tokio::test]
async fn a_child_that_fails_is_tried_again_with_its_parent() {
    let store = memory();
    for works in [false, true] {
        let mut run = Run::open(&process(&store), open()).await.unwrap();
        let got = run
            .child("part", (), async |mut child| {
                Ok(child.step("a", (), async |()| if works { Ok(1) } else { Err("no") }).await?)
            })
            .await;
        match got {
            Ok(n) => assert_eq!((n, works), (1, true)),
            Err(error) => {
                assert_eq!(error.to_string(), "step part failed: step a failed: no");
                run.fail(&error).await.unwrap();
            }
        }
    }
    assert!(matches!(history(&store).await.state, RunState::InProgress(_)));
}
