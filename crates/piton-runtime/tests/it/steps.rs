//! Steps run once, wherever the run goes on.

use std::sync::atomic::{AtomicU32, Ordering};

use piton_runtime::{Context, Failure, Run, RunError, StepError};
use piton_store::StoreError;
use piton_types::{Durability, IllegalMove, RunState, RunStatus, Value};

use crate::support::{entries, history, memory, open, process, run_id};

/// Squares of 1, 2 and 3, each a step of the same name; how many really ran.
async fn squares(context: &Context, upto: u32, ran: &AtomicU32) -> Result<(Run, Vec<u32>), RunError> {
    let mut run = Run::open(context, open()).await?;
    let mut found = Vec::new();
    for n in 1..=upto {
        let square = run
            .step("square", n, async |n| {
                ran.fetch_add(1, Ordering::SeqCst);
                Ok::<_, String>(n * n)
            })
            .await?;
        found.push(square);
    }
    Ok((run, found))
}

#[tokio::test]
async fn finished_steps_do_not_run_again_in_another_process() {
    let store = memory();
    let ran = AtomicU32::new(0);
    let (run, found) = squares(&process(&store), 2, &ran).await.unwrap();
    assert_eq!((found, ran.load(Ordering::SeqCst)), (vec![1, 4], 2));
    drop(run);

    let (run, found) = squares(&process(&store), 3, &ran).await.unwrap();
    assert_eq!((found.clone(), ran.load(Ordering::SeqCst)), (vec![1, 4, 9], 3));
    assert_eq!(run.input(), &Value::from("the input"));
    run.complete(&found).await.unwrap();

    let history = history(&store).await;
    let paths: Vec<_> = history.steps.iter().map(|step| (step.path.as_str(), step.attempt)).collect();
    assert_eq!(paths, [("square", 1), ("square#2", 1), ("square#3", 1)]);
    assert_eq!(history.claim.as_ref().unwrap().0.0, 2, "each claim raises the fence");
}

/// A run of N steps that no other process disturbs is N + 3 commits: created, claimed, the steps, completed.
#[tokio::test]
async fn a_step_costs_one_commit() {
    for steps in [0, 1, 7] {
        let store = memory();
        let (run, _) = squares(&process(&store), steps, &AtomicU32::new(0)).await.unwrap();
        run.complete(()).await.unwrap();
        assert_eq!(entries(&store).await, steps + 3);
    }
}

#[tokio::test]
async fn a_completed_run_opens_finished() {
    let store = memory();
    let ran = AtomicU32::new(0);
    let (run, found) = squares(&process(&store), 3, &ran).await.unwrap();
    run.complete(&found).await.unwrap();
    let before = entries(&store).await;

    let (mut run, found) = squares(&process(&store), 3, &ran).await.unwrap();
    assert_eq!((found, ran.load(Ordering::SeqCst)), (vec![1, 4, 9], 3), "its steps can be read");
    assert_eq!(run.outcome(), Some(Value::from(vec![Value::from(1), Value::from(4), Value::from(9)])));
    let fourth = run.step("another", (), async |()| Ok::<_, String>(())).await;
    let illegal = IllegalMove { from: RunStatus::Completed, to: RunStatus::InProgress };
    assert!(matches!(fourth, Err(StepError::Run(RunError::Illegal { cause, .. })) if cause == illegal));
    assert!(matches!(run.complete(1).await, Err(RunError::Illegal { .. })));
    assert_eq!(entries(&store).await, before, "nothing was written");
}

#[tokio::test]
async fn a_failed_step_runs_again_on_resume() {
    let store = memory();
    for attempt in 1..=3 {
        let mut run = Run::open(&process(&store), open()).await.unwrap();
        let tried = run.step("flaky", attempt, async |n| if n < 3 { Err(format!("no {n}")) } else { Ok(n) }).await;
        if attempt < 3 {
            let error = tried.unwrap_err();
            assert_eq!(error.to_string(), format!("step flaky failed: no {attempt}"));
            assert!(
                matches!(&error, StepError::Failed { attempt: counted, error, .. } if *counted == attempt && error.starts_with("no"))
            );
            run.fail(&error).await.unwrap();
            let again = run.step("flaky", attempt, async |n| Ok::<_, String>(n)).await;
            assert!(matches!(again, Err(StepError::Run(RunError::Illegal { .. }))), "a failed run runs nothing");
        } else {
            assert_eq!(tried.unwrap(), 3);
            run.complete("done").await.unwrap();
        }
    }
    let history = history(&store).await;
    let attempts: Vec<_> = history.steps.iter().map(|step| (step.attempt, step.error.as_deref())).collect();
    assert_eq!(attempts, [(1, Some("no 1")), (2, Some("no 2")), (3, None)]);
    assert_eq!(history.retries, 2);
}

#[tokio::test]
async fn a_failure_says_how_often_it_was_retried() {
    let store = memory();
    for retries in 0..3 {
        let run = Run::open(&process(&store), open()).await.unwrap();
        run.fail(Failure::new("test", "again")).await.unwrap();
        let RunState::Failed(failed) = run.state() else { panic!("{:?}", run.state()) };
        assert_eq!((failed.retry_count, failed.message.as_str(), failed.recoverable), (retries, "again", true));
        assert_eq!(store.summary(&run_id()).await.unwrap().unwrap().status, RunStatus::Failed);
    }
}

#[tokio::test]
async fn changed_code_is_noticed() {
    let store = memory();
    let mut run = Run::open(&process(&store), open()).await.unwrap();
    run.step("fetch", "https://a", async |url| Ok::<_, String>(url.len())).await.unwrap();
    drop(run);

    let mut run = Run::open(&process(&store), open()).await.unwrap();
    let changed = run.step("fetch", "https://b", async |_| -> Result<usize, String> { panic!("it ran") }).await;
    let error = changed.unwrap_err();
    let StepError::Run(RunError::Changed { expected, got, .. }) = &error else { panic!("{error}") };
    assert_eq!((expected.step.as_str(), got.step.as_str()), ("fetch", "fetch"));
    insta::assert_snapshot!(error, @r#"the log of run a-run has step fetch with "https://a" where the program calls step fetch with "https://b"; they differ: "https://a" then, "https://b" now: the program or its inputs changed since the run began"#);

    let mut run = {
        drop(run);
        Run::open(&process(&store), open()).await.unwrap()
    };
    let wrong = run.step("fetch", "https://a", async |_| Ok::<_, String>(String::new())).await;
    assert!(matches!(wrong, Err(StepError::Run(RunError::Value { .. }))), "the output has another type");
}

/// What a step returns is what the log has, from the first time on.
#[tokio::test]
async fn outputs_survive_exactly() {
    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Output {
        large: u64,
        tiny: f64,
        #[serde(with = "bytes")]
        raw: Vec<u8>,
        nothing: Option<()>,
        #[serde(skip)]
        lost: u8,
    }
    mod bytes {
        pub(super) fn serialize<S: serde::Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
            to.serialize_bytes(bytes)
        }
        pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
            match serde::Deserialize::deserialize(from)? {
                piton_types::Value::Bytes(bytes) => Ok(bytes),
                other => Err(serde::de::Error::custom(other.kind())),
            }
        }
    }
    let store = memory();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut run = Run::open(&process(&store), open()).await.unwrap();
        let work = async |()| {
            Ok::<_, String>(Output { large: u64::MAX, tiny: 5e-324, raw: vec![0, 255], nothing: None, lost: 9 })
        };
        seen.push(run.step("make", (), work).await.unwrap());
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!((seen[0].large, seen[0].raw.as_slice(), seen[0].lost), (u64::MAX, &[0, 255][..], 0));
}

/// Branches have names of their own; who gets there first changes nothing.
#[tokio::test]
async fn steps_may_run_side_by_side() {
    let store = memory();
    let mut run = Run::open(&process(&store), open()).await.unwrap();
    let both = tokio::sync::Barrier::new(2);
    let (mut a, mut b) = (run.branch("a").unwrap(), run.branch("b").unwrap());
    let work = async |n: u32| {
        both.wait().await;
        Ok::<_, String>(n)
    };
    let (one, two) = tokio::join!(a.step("same", 1, work), b.step("same", 2, work));
    assert_eq!((one.unwrap(), two.unwrap()), (1, 2));
    run.complete(()).await.unwrap();
    assert_eq!(entries(&store).await, 5);
}

#[tokio::test]
async fn hostile_names_are_refused_before_anything_runs() {
    let store = memory();
    let mut run = Run::open(&process(&store), open()).await.unwrap();
    for name in ["", "a//b", "a/b", "a#2", "a\nb", &"x".repeat(600)] {
        let refused = run.step(name, (), async |()| -> Result<(), String> { panic!("it ran") }).await;
        assert!(matches!(refused, Err(StepError::Run(RunError::Name(_)))), "{name:?}");
    }
}

#[tokio::test]
async fn resuming_never_creates() {
    let store = memory();
    let absent = Run::resume(&process(&store), &run_id(), Durability::Durable, Default::default()).await;
    assert!(matches!(absent, Err(RunError::Store(StoreError::NotFound { .. }))));
    let generated = Run::open(&process(&store), Default::default()).await.unwrap();
    assert_eq!(generated.id().as_str().len(), 26);
}
