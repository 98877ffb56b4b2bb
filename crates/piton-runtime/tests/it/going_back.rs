//! Retry from a step, roll back, fork, one step alone. Nothing is rewritten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use piton_log::RunLog;
use piton_runtime::recovery::{ResumeNotice, newest_whole};
use piton_runtime::{
    Context, EffectOptions, ForkRun, History, OpenRun, Origin, Run, RunError, StartAt, Wait, Waits, WholeHistory,
    answer, fork,
};
use piton_store::{Store, StoreError};
use piton_types::{CheckpointRef, PartName, RunStatus, Seq, Value};

use crate::support::{On, entries, history, memory, on_a_server, open, process, run_id};

/// Three steps that count how often they ran, and a state.
async fn program(context: &Context, open: OpenRun, ran: &AtomicU32) -> Result<u32, RunError> {
    let mut run = Run::open(context, open).await?;
    let mut sum = 0;
    for n in 1..=3_u32 {
        let work = async |n| {
            ran.fetch_add(1, Ordering::SeqCst);
            Ok::<_, String>(n * 10)
        };
        sum += run.step("add", n, work).await?;
        run.save(PartName::APP, &Value::from(sum)).await?;
    }
    Ok(sum)
}

fn at(at: StartAt) -> OpenRun {
    OpenRun { at, ..open() }
}

/// R5: completed steps before the step are skipped, the step and what follows run again, on the state of
/// then; the log keeps everything, and says what was undone.
#[tokio::test]
async fn a_run_is_retried_from_a_step() {
    let (store, ran) = (memory(), AtomicU32::new(0));
    program(&process(&store), open(), &ran).await.unwrap();
    let before = history(&store).await;
    let again = at(StartAt::Step("add#2".parse().unwrap()));
    let run = Run::open(&process(&store), again.clone()).await.unwrap();
    assert_eq!(run.part(PartName::APP).await.unwrap(), Some(Value::from(10)), "the state of then");
    drop(run);
    assert_eq!(program(&process(&store), open(), &ran).await.unwrap(), 60);
    assert_eq!(ran.load(Ordering::SeqCst), 3 + 2);
    let after = history(&store).await;
    assert_eq!((after.steps.len(), after.epoch, after.restores.len()), (5, 1, 1));
    assert_eq!(after.steps[..3], before.steps[..], "nothing was rewritten");
    let undone: Vec<_> = after.step_entries.iter().map(|seq| after.is_undone(*seq)).collect();
    assert_eq!(undone, [false, true, true, false, false]);
    assert_eq!(after.checkpoints.iter().filter(|checkpoint| checkpoint.undone).count(), 2);

    let missing = Run::open(&process(&store), at(StartAt::Step("nothing".parse().unwrap()))).await.unwrap_err();
    assert_eq!(missing.to_string(), "run a-run has no step nothing");
}

/// R4: how often a run went on after something went wrong counts each time once.
#[tokio::test]
async fn each_recovery_counts_once() {
    let store = memory();
    let mut run = Run::open(&process(&store), open()).await.unwrap();
    let error = run.step("flaky", 1, async |_| Err::<u32, _>("no")).await.unwrap_err();
    run.fail(&error).await.unwrap();
    // It is tried again, and with it the step that it failed of.
    let mut run = Run::open(&process(&store), open()).await.unwrap();
    run.step("flaky", 1, async |n| Ok::<u32, String>(n)).await.unwrap();
    assert_eq!(history(&store).await.recovery_attempts(), 1);
    drop(run);
    // A process takes it over from one that died, lets go of it, and takes it again.
    let one = process(&store);
    drop(Run::open(&one, open()).await.unwrap());
    let run = Run::open(&one, open()).await.unwrap();
    run.complete(()).await.unwrap();
    assert_eq!(history(&store).await.recovery_attempts(), 2);
}

/// R5, V1: a run that was put back goes on from a checkpoint that counts, and says what counts.
#[tokio::test]
async fn a_run_that_was_put_back_says_what_it_really_goes_on_from() {
    let (store, ran) = (memory(), AtomicU32::new(0));
    program(&process(&store), open(), &ran).await.unwrap();
    let notice = async || {
        let context = process(&store);
        let log = RunLog::open(Arc::clone(&store), &run_id()).await.unwrap();
        let (search, history) =
            (newest_whole(&context.store, &run_id()).await.unwrap(), History::read(&log).await.unwrap());
        ResumeNotice::new(&run_id(), "", &search, Some(&history)).to_string()
    };
    assert_eq!(notice().await, "run a-run goes on from checkpoint a-run@7, 3 steps done; last: step add#3 finished");
    drop(Run::open(&process(&store), at(StartAt::Step("add#2".parse().unwrap()))).await.unwrap());
    let back = "run a-run goes on from checkpoint a-run@9 (again from add#2), 1 step done; last: step add finished";
    assert_eq!(notice().await, back);
    // Before the first checkpoint there is none.
    drop(Run::open(&process(&store), at(StartAt::Step("add".parse().unwrap()))).await.unwrap());
    assert_eq!(notice().await, "run a-run goes on from its finished steps");
}

/// W5: what was spent stays spent when a run goes back, unless that is to go back too.
#[tokio::test]
async fn token_usage_goes_back_only_if_asked_for() {
    for (usage_back, expected) in [(false, 7), (true, 3)] {
        let store = memory();
        let run = Run::open(&process(&store), open()).await.unwrap();
        run.save(PartName::USAGE, &Value::from(3)).await.unwrap();
        let then = run.save(PartName::CONVERSATION, &Value::from("then")).await.unwrap();
        run.save(PartName::CONVERSATION, &Value::from("now")).await.unwrap();
        run.save(PartName::USAGE, &Value::from(7)).await.unwrap();
        drop(run);
        let back = OpenRun { usage_back, ..at(StartAt::Entry(then.seq)) };
        let run = Run::open(&process(&store), back).await.unwrap();
        assert_eq!(run.part(PartName::CONVERSATION).await.unwrap(), Some(Value::from("then")));
        assert_eq!(run.part(PartName::USAGE).await.unwrap(), Some(Value::from(expected)));
    }
}

/// Back to an entry, and from there to one that was undone: an undone future can be brought back.
#[tokio::test]
async fn going_back_can_itself_be_undone() {
    let (store, ran) = (memory(), AtomicU32::new(0));
    program(&process(&store), open(), &ran).await.unwrap();
    let end = history(&store).await.head;
    drop(Run::open(&process(&store), at(StartAt::Entry(Seq(3)))).await.unwrap());
    assert_eq!(history(&store).await.checkpoint.clone().unwrap().0, history(&store).await.head);
    let back = Run::open(&process(&store), at(StartAt::Entry(end))).await.unwrap();
    assert_eq!(back.part(PartName::APP).await.unwrap(), Some(Value::from(60)));
    assert_eq!(history(&store).await.finished().len(), 3);
    drop(back);
    assert_eq!(program(&process(&store), open(), &ran).await.unwrap(), 60);
    assert_eq!(ran.load(Ordering::SeqCst), 3, "nothing ran again");
    let ahead = Run::open(&process(&store), at(StartAt::Entry(Seq(900)))).await.unwrap_err();
    assert!(matches!(ahead, RunError::Store(StoreError::NotFound { .. })), "{ahead}");
}

#[tokio::test]
async fn a_completed_run_does_not_go_back() {
    let store = memory();
    Run::open(&process(&store), open()).await.unwrap().complete(()).await.unwrap();
    let before = entries(&store).await;
    let refused = Run::open(&process(&store), at(StartAt::Entry(Seq(0)))).await.unwrap_err();
    assert!(matches!(refused, RunError::Illegal { .. }));
    assert_eq!(entries(&store).await, before);
}

fn reference(seq: u32) -> CheckpointRef {
    CheckpointRef { run: run_id(), seq: Seq(seq) }
}

/// A fork is a new run with a parent, from any entry, with changes; its parent isn't touched.
#[tokio::test]
async fn a_fork_goes_on_differently() {
    let (store, ran) = (memory(), AtomicU32::new(0));
    program(&process(&store), open(), &ran).await.unwrap();
    let before = entries(&store).await;
    let changed = ForkRun {
        id: Some("b-run".parse().unwrap()),
        parts: [(PartName::from(PartName::APP), Value::from(999))].into(),
        outputs: [("add".parse().unwrap(), Value::from(100))].into(),
        ..ForkRun::default()
    };
    // Entry 3 is the checkpoint after the first step.
    let id = fork(&process(&store), &reference(3), changed.clone()).await.unwrap();
    let branched = OpenRun { id: Some(id.clone()), ..open() };
    let run = Run::open(&process(&store), branched.clone()).await.unwrap();
    assert_eq!(run.part(PartName::APP).await.unwrap(), Some(Value::from(999)));
    drop(run);
    assert_eq!(program(&process(&store), branched, &ran).await.unwrap(), 100 + 20 + 30);
    assert_eq!(ran.load(Ordering::SeqCst), 3 + 2);
    assert_eq!(entries(&store).await, before);
    let summary = store.summary(&id).await.unwrap().unwrap();
    assert_eq!(summary.parent, Some(reference(3)));
    let theirs = WholeHistory::of(&process(&store), &id).await.unwrap();
    assert!(matches!(theirs.origin, Some(Origin::Fork { epoch: 1, .. })));

    let twice = fork(&process(&store), &reference(3), changed).await.unwrap_err();
    assert!(matches!(twice, RunError::Store(StoreError::Conflict { .. })), "{twice}");
    for (seq, id) in [(900, "x"), (2, "y")] {
        let bad = ForkRun {
            id: Some(id.parse().unwrap()),
            outputs: [("add#3".parse().unwrap(), Value::Null)].into(),
            ..ForkRun::default()
        };
        fork(&process(&store), &reference(seq), bad).await.unwrap_err();
        assert!(store.summary(&id.parse().unwrap()).await.unwrap().is_none(), "nothing was made");
    }
}

/// Decision 5 (3): a fork from the same checkpoint with the same answers gives the same run.
#[tokio::test]
async fn property_3_the_same_fork_with_the_same_answers_gives_the_same_run() {
    async fn asking(store: &Arc<dyn Store>, id: &str, reply: Option<&str>) -> Result<String, RunError> {
        let open = OpenRun { id: Some(id.parse().unwrap()), waits: Waits::Leave, ..open() };
        let mut run = Run::open(&process(store), open.clone()).await?;
        let drawn: [u8; 8] = run.random().await?;
        let first = run.step("first", (), async |()| Ok::<_, String>(7)).await?;
        let asked = run.wait_for::<String>("name", Wait::new("Who?")).await;
        if let (Err(RunError::Waiting { .. }), Some(reply)) = (&asked, reply) {
            drop(run);
            answer(&process(store), &id.parse().unwrap(), None, reply, "x").await?;
            return Box::pin(asking(store, id, None)).await;
        }
        let text = format!("{drawn:?} {first} {}", asked?);
        run.step("last", &text, async |text| Ok::<_, String>(text.len())).await?;
        run.complete(&text).await?;
        Ok(text)
    }
    for store in [memory(), on_a_server(On::S3).await, on_a_server(On::Redis).await] {
        let is_remote = store.capabilities().persistent;
        let original = asking(&store, "a-run", Some("Ada")).await.unwrap();
        let last = history(&store).await.head;
        let mut steps = Vec::new();
        for seq in (1..last.0).step_by(if is_remote { 4 } else { 1 }) {
            for copy in 0..2 {
                let id = format!("fork-{seq}-{copy}");
                let new = ForkRun { id: Some(id.parse().unwrap()), ..ForkRun::default() };
                fork(&process(&store), &reference(seq), new).await.unwrap();
                let text = asking(&store, &id, Some("Ada")).await.unwrap();
                // Before the draw chance falls anew; from then on it is the same.
                assert_eq!(text == original, seq >= 2, "{seq}");
                let theirs = WholeHistory::of(&process(&store), &id.parse().unwrap()).await.unwrap();
                assert_eq!(theirs.state.status(), RunStatus::Completed);
                steps.push(theirs.steps.len());
            }
            let pair = &steps[steps.len() - 2..];
            assert_eq!(pair[0], pair[1]);
        }
        assert!(steps.len() > if is_remote { 3 } else { 10 });
    }
}

/// R7: one step alone, on the data of a checkpoint; neither the history nor the world is touched.
#[tokio::test]
async fn one_step_alone_touches_nothing() {
    let (store, ran) = (memory(), AtomicU32::new(0));
    let program = async |run: &mut Run, factor: u32| {
        let n = run.step("a", 2, async |n: u32| Ok::<_, String>(n)).await?;
        let work = async |n| {
            ran.fetch_add(1, Ordering::SeqCst);
            Ok::<_, String>(n * factor)
        };
        let n = run.step("b", n, work).await?;
        run.effect("order", EffectOptions::default(), n, async |n, _| {
            ran.fetch_add(1, Ordering::SeqCst);
            Ok(n)
        })
        .await
    };
    let mut run = Run::open(&process(&store), open()).await.unwrap();
    program(&mut run, 3).await.unwrap();
    let before = (entries(&store).await, history(&store).await.effects.len());
    ran.store(0, Ordering::SeqCst);

    let mut alone = Run::alone(&process(&store), &reference(2), None).await.unwrap();
    let stopped = program(&mut alone, 5).await.unwrap_err();
    assert!(matches!(&stopped, RunError::Alone { step, .. } if step.as_str() == "order"), "{stopped}");
    let tried = alone.ran_alone().unwrap();
    assert_eq!((tried.path.as_str(), &tried.output), ("b", &Value::from(10)));
    assert_eq!(ran.load(Ordering::SeqCst), 1, "the step, and not the effect");
    let mut other = Run::alone(&process(&store), &reference(2), Some("c".parse().unwrap())).await.unwrap();
    assert!(matches!(program(&mut other, 5).await, Err(RunError::Alone { .. })));
    assert_eq!(ran.load(Ordering::SeqCst), 1, "another step doesn't run");
    assert_eq!((entries(&store).await, history(&store).await.effects.len()), before);
    assert_eq!(store.usage().await.unwrap().runs, 1);
}
