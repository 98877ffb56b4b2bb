//! Effects: intent, key, receipt; done, not done, uncertain (decision 4).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use piton_runtime::{
    Compensation, Context, EffectAnswer, EffectFailure, EffectOptions, EffectStatus, Failure, Probed, RetryPolicy, Run,
    RunError, StartAt, Uncertain, Waits, Witness, answer, roll_back, undone_effects,
};
use piton_store::Store;
use piton_types::{BlobId, RunStatus, Value};

use crate::support::{entries, flowing, history, memory, open, process, process_at, run_id};

/// The world: how often each key was called, and which it knows.
#[derive(Default)]
struct World(Mutex<BTreeMap<BlobId, u32>>);

impl World {
    fn act(&self, key: BlobId) -> u32 {
        let mut calls = self.0.lock().unwrap();
        let count = calls.entry(key).or_insert(0);
        *count += 1;
        *count
    }

    fn keys(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn calls(&self) -> u32 {
        self.0.lock().unwrap().values().sum()
    }
}

fn calling_again() -> EffectOptions {
    EffectOptions { uncertain: Uncertain::CallAgain, ..EffectOptions::default() }
}

/// Dies between the act and its receipt: the write of the receipt finds the store gone.
async fn die_after_the_act(store: &Arc<dyn Store>, world: &World, options: EffectOptions) {
    let crashing = Arc::new(piton_testing::CrashStore::new(Arc::clone(store), piton_testing::Fault::None));
    let mut run = Run::open(&process(&(Arc::clone(&crashing) as _)), open()).await.unwrap();
    let died = run
        .effect("order", options, "coffee", async |_, key| {
            crashing.set_away(true);
            Ok::<_, EffectFailure>(world.act(key))
        })
        .await;
    assert!(matches!(died, Err(RunError::Store(_))), "{died:?}");
    assert_eq!(history(store).await.effects[0].status(), EffectStatus::Uncertain);
}

#[tokio::test]
async fn an_effect_costs_two_commits_and_is_done_once() {
    let (store, world) = (memory(), World::default());
    for _ in 0..2 {
        let mut run = Run::open(&process(&store), open()).await.unwrap();
        let done = run.effect("order", EffectOptions::default(), "coffee", async |_, key| Ok(world.act(key))).await;
        assert_eq!(done.unwrap(), 1);
    }
    assert_eq!((world.calls(), entries(&store).await), (1, 1 + 2 + 2));
}

/// Uncertain, declared idempotent: called again with the same key.
#[tokio::test]
async fn an_idempotent_effect_is_called_again_with_its_key() {
    let (store, world) = (memory(), World::default());
    die_after_the_act(&store, &world, calling_again()).await;
    let mut run = Run::open(&process(&store), open()).await.unwrap();
    let done = run.effect("order", calling_again(), "coffee", async |_, key| Ok(world.act(key))).await.unwrap();
    assert_eq!((done, world.keys(), world.calls()), (2, 1, 2));
    assert_eq!(history(&store).await.effects[0].intent.attempt, 2);
}

/// Uncertain, with a probe: done isn't called again, not done is, and the ledger says who said so.
#[tokio::test]
async fn a_probe_decides() {
    for (took_place, calls) in [(true, 1), (false, 2)] {
        let (store, world) = (memory(), World::default());
        die_after_the_act(&store, &world, EffectOptions::default()).await;
        let mut run = Run::open(&process(&store), open()).await.unwrap();
        let probe = async |_: &str, key: BlobId| {
            assert_eq!(world.0.lock().unwrap()[&key], 1, "it asks after the key that was used");
            Ok(if took_place { Probed::Done(70) } else { Probed::NotDone })
        };
        let call = async |_: &str, key: BlobId| Ok(world.act(key));
        let done = run.effect_with_probe("order", EffectOptions::default(), "coffee", call, probe).await.unwrap();
        assert_eq!((done, world.calls(), world.keys()), (if took_place { 70 } else { 2 }, calls, 1));
        let by = history(&store).await.effects[0].receipt.clone().unwrap().by;
        assert_eq!(by, if took_place { Witness::Probe } else { Witness::Call });
    }
}

/// Uncertain, and only a person can tell: the run waits, and does what that person says.
#[tokio::test]
async fn a_person_is_asked() {
    for (said, expected) in [
        (EffectAnswer::Done(Value::from(70)), Some(70)),
        (EffectAnswer::NotDone, Some(2)),
        (EffectAnswer::GiveUp, None),
    ] {
        let (store, world) = (memory(), World::default());
        die_after_the_act(&store, &world, EffectOptions::default()).await;
        let perform = async || {
            let leaving = piton_runtime::OpenRun { waits: Waits::Leave, ..open() };
            let mut run = Run::open(&process(&store), leaving).await.unwrap();
            run.effect("order", EffectOptions::default(), "coffee", async |_, key| Ok(world.act(key))).await
        };
        assert!(matches!(perform().await, Err(RunError::Waiting { .. })));
        assert_eq!((history(&store).await.state.status(), world.calls()), (RunStatus::Waiting, 1));
        answer(&process(&store), &run_id(), None, &said, "Ada").await.unwrap();
        match (perform().await, expected) {
            (Ok(done), Some(expected)) => assert_eq!(done, expected),
            (Err(RunError::Effect { status: EffectStatus::Uncertain, .. }), None) => {}
            (other, _) => panic!("{said:?}: {other:?}"),
        }
        assert_eq!(world.keys(), 1);
        let again = perform().await;
        assert_eq!(again.ok(), expected, "{said:?}: whoever goes on finds the same");
    }
}

/// Uncertain, and given up: the run fails of it. Tried again, it finds out once more and fails of it again.
#[tokio::test]
async fn what_was_given_up_is_looked_at_once_when_the_run_is_tried_again() {
    let giving_up = || EffectOptions { uncertain: Uncertain::GiveUp, ..EffectOptions::default() };
    let (store, world) = (memory(), World::default());
    die_after_the_act(&store, &world, giving_up()).await;
    for _ in 0..3 {
        let mut run = Run::open(&process(&store), open()).await.unwrap();
        let before = entries(&store).await;
        let done = run.effect("order", giving_up(), "coffee", async |_, key| Ok(world.act(key))).await;
        let Err(error @ RunError::Effect { status: EffectStatus::Uncertain, .. }) = done else { panic!("{done:?}") };
        assert_eq!(entries(&store).await, before + 1, "one receipt");
        run.fail(Failure::from(&error)).await.unwrap();
    }
    assert_eq!(world.calls(), 1);
}

/// Certainly not done: tried again with the same key as the policy says, and no more.
#[tokio::test]
async fn what_was_not_done_is_tried_again() {
    let (store, world, clock) = (memory(), World::default(), flowing());
    let context: Context = process_at(&store, &clock);
    let mut run = Run::open(&context, open()).await.unwrap();
    let options = EffectOptions { retry: Some(RetryPolicy::default()), ..EffectOptions::default() };
    let done = run.effect("order", options.clone(), (), async |(), key| match world.act(key) {
        n @ 1..3 => Err(EffectFailure::not_done(n)),
        n => Ok(n),
    });
    assert_eq!((done.await.unwrap(), world.keys()), (3, 1));
    let refused =
        run.effect("never", options, (), async |(), key| Err::<(), _>(EffectFailure::not_done(world.act(key)))).await;
    assert!(matches!(refused, Err(RunError::Effect { status: EffectStatus::NotDone, .. })), "{refused:?}");
    assert_eq!(world.calls(), 3 + 4);
    // An uncertain one is not tried again without a key that the other side knows, a probe or a word.
    let uncertain = run.effect(
        "maybe",
        EffectOptions { retry: Some(RetryPolicy::default()), ..EffectOptions::default() },
        (),
        async |(), key| Err::<(), _>(EffectFailure::uncertain(world.act(key))),
    );
    assert!(matches!(uncertain.await, Err(RunError::Effect { status: EffectStatus::Uncertain, .. })));
    assert_eq!(world.calls(), 7 + 1);
}

/// Going back says what the world keeps, takes back what it can, and what is done again has another key.
#[tokio::test]
async fn going_back_takes_back_what_it_can() {
    let (store, world) = (memory(), World::default());
    let program = async || {
        let mut run = Run::open(&process(&store), open()).await?;
        run.step("first", (), async |()| Ok::<_, String>(())).await?;
        let back = Compensation { name: "cancel".into(), arguments: Value::from("coffee") };
        let options = EffectOptions { compensation: Some(back), ..EffectOptions::default() };
        run.effect("order", options, (), async |(), key| Ok(world.act(key))).await?;
        run.effect("mail", EffectOptions::default(), (), async |(), key| Ok(world.act(key))).await?;
        run.step("last", (), async |()| Ok::<_, String>(())).await
    };
    program().await.unwrap();
    let to = StartAt::Step("order".parse().unwrap());
    let left = undone_effects(&process(&store), &run_id(), &to).await.unwrap();
    let paths: Vec<_> = left.iter().map(|left| left.effect.intent.path.as_str()).collect();
    assert_eq!(paths, ["mail", "order"], "newest first");

    // The first attempt at taking it back fails: nothing is changed, and it isn't lost.
    let refuse = async |_: Compensation, _: BlobId| Err::<Value, _>("not now");
    let failed = roll_back(&process(&store), &run_id(), to.clone(), refuse).await;
    assert!(matches!(failed, Err(RunError::Effect { .. })), "{failed:?}");
    assert_eq!(history(&store).await.epoch, 0);

    let taken = Mutex::new(Vec::new());
    let cancel = async |compensation: Compensation, key: BlobId| {
        taken.lock().unwrap().push((compensation.name, key));
        Ok::<_, String>(Value::Null)
    };
    let done = roll_back(&process(&store), &run_id(), to, cancel).await.unwrap();
    assert_eq!((done.compensated.len(), done.left.len()), (1, 1));
    assert_eq!(done.left[0].effect.intent.path.as_str(), "mail");
    let (name, key) = taken.lock().unwrap().pop().unwrap();
    assert_eq!(name, "cancel");
    assert_ne!(key, done.compensated[0], "taking back has a key of its own");

    let after = history(&store).await;
    assert_eq!((after.state.status(), after.epoch, after.effects.len()), (RunStatus::Paused, 1, 0));
    program().await.unwrap();
    assert_eq!((world.keys(), world.calls()), (4, 4), "what is done again has other keys");
}
