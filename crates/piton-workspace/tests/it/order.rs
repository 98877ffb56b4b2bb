//! The order of a folder's checkpoints is that in which they were made, whatever any clock says. Promise 14, decision 1.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use piton_runtime::{Context, OpenRun, Run};
use piton_store::Store;
use piton_testing::{CrashStore, Fault};
use piton_types::{CheckpointRef, Clock, RunKind, Timestamp, Value};
use piton_workspace::{Goal, Record, RestoreOptions, Session, Workspace};

use crate::undo::run_id;
use crate::world::{SETTLED, World, context};

/// A wall clock that goes back by an hour whenever it is asked.
struct Backwards(AtomicI64);

impl Clock for Backwards {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.fetch_sub(3_600_000, Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        piton_runtime::SystemClock::new().monotonic()
    }

    fn since_boot(&self) -> Option<Duration> {
        None
    }

    fn sleep(&self, time: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// A workspace whose clock runs backwards.
fn backwards(world: &World) -> Workspace {
    let clock = Arc::new(Backwards(AtomicI64::new(1_900_000_000_000)));
    let context = Context { clock, ..context(&world.store) };
    Workspace::open(&context, &world.root(), world.options.clone()).unwrap()
}

/// Two sessions and the user, one after the other.
async fn three_who_work(world: &World, workspace: &Workspace) -> Vec<CheckpointRef> {
    let mut made = Vec::new();
    world.write("a", "0\n");
    made.push(workspace.save(Record::manual("start"), &Arc::default()).await.unwrap().checkpoint);
    for n in 1..=2 {
        let session = Session::begin_as(workspace, run_id(n), "agent", Value::Null, &Arc::default()).await.unwrap();
        made.push(session.opened().checkpoint.clone());
        world.write("a", format!("agent {n}\n"));
        made.push(session.end(Ok(Value::Null)).await.unwrap().closed);
        world.write("mine", format!("{n}\n"));
        made.push(workspace.save(Record::manual("mine"), &Arc::default()).await.unwrap().checkpoint);
    }
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_runs_backwards_changes_no_order() {
    let world = World::new();
    let workspace = backwards(&world);
    let made = three_who_work(&world, &workspace).await;
    let moments = workspace.timeline().await.unwrap().moments;
    let order: Vec<_> = moments.iter().map(|moment| moment.checkpoint.clone()).collect();
    assert_eq!(order, made);
    let mut by_time = moments.clone();
    by_time.sort_by_key(|moment| moment.at);
    let by_time: Vec<_> = by_time.into_iter().map(|moment| moment.checkpoint).collect();
    assert_ne!(by_time, made, "the negative control: the clock says otherwise");
    assert_eq!(workspace.newest().await.unwrap().unwrap().checkpoint, made[made.len() - 1]);
    // So the newest session is the one that is taken back, and what the user did stays.
    let done = workspace.restore_to(&Goal::Undo(None), &RestoreOptions::default(), &Arc::default()).await.unwrap();
    assert_eq!((world.read("a"), world.read("mine")), ("agent 1\n".to_owned(), "2\n".to_owned()));
    assert_eq!(workspace.newest().await.unwrap().unwrap().checkpoint, done.checkpoint.unwrap());
}

/// The file with the newest number is only a copy: without it, or with one of before a power cut, the logs tell.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_may_be_old_is_not_believed() {
    let world = World::new();
    let workspace = backwards(&world);
    let mut made = three_who_work(&world, &workspace).await;
    let file = world.options.state.join("moment");
    let kept = std::fs::read_to_string(&file).unwrap();
    let (number, rest) = kept.split_once(' ').unwrap();
    assert_eq!(number.parse::<usize>().unwrap(), made.len());
    let (boot, store) = rest.split_once(' ').unwrap();
    for old in [None, Some(String::new()), Some(format!("1 another-boot {store}")), Some(format!("1 {boot} other\n"))] {
        match old {
            Some(old) => std::fs::write(&file, old).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        assert_eq!(workspace.newest().await.unwrap().unwrap().checkpoint, made[made.len() - 1]);
        made.push(workspace.save(Record::manual(""), &Arc::default()).await.unwrap().checkpoint);
        let moments = workspace.timeline().await.unwrap().moments;
        assert_eq!(moments.into_iter().map(|moment| moment.checkpoint).collect::<Vec<_>>(), made);
    }
    std::fs::write(&file, kept.replacen(number, "1", 1)).unwrap();
    made.push(workspace.save(Record::manual(""), &Arc::default()).await.unwrap().checkpoint);
    let moments = workspace.timeline().await.unwrap().moments;
    let order: Vec<_> = moments.into_iter().map(|moment| moment.checkpoint).collect();
    assert_ne!(order, made, "the negative control: an old number that is believed spoils the order");
}

/// What the history of a folder takes doesn't grow with the runs of other folders.
#[tokio::test(flavor = "multi_thread")]
async fn runs_of_other_folders_cost_nothing() {
    let mut counts = Vec::new();
    for foreign in [1, 200] {
        let mut world = World::new();
        for n in 0..foreign {
            let open = OpenRun {
                id: Some(format!("foreign-{n}").parse().unwrap()),
                kind: RunKind::Guard,
                folder: Some("/somewhere/else".to_owned()),
                ..OpenRun::default()
            };
            let run = Run::open(&context(&world.store), open).await.unwrap();
            run.complete(()).await.unwrap();
        }
        three_who_work(&world, &world.workspace()).await;
        // A file of the last ticks is read and stored once more: here none is, however long that took.
        tokio::time::sleep(SETTLED).await;
        world.save("settled").await;
        let counting = Arc::new(CrashStore::new(Arc::clone(&world.store), Fault::None));
        world.store = Arc::clone(&counting) as Arc<dyn Store>;
        let workspace = world.workspace();
        let mut calls = Vec::new();
        workspace.newest().await.unwrap().unwrap();
        calls.push(counting.names().len());
        let timeline = workspace.timeline().await.unwrap();
        calls.push(counting.names().len());
        let (goal, options) = (Goal::Undo(None), RestoreOptions::default());
        let planned = workspace.plan_restore(&timeline, &goal, &options, &Arc::default()).await.unwrap();
        calls.push(counting.names().len());
        workspace.restore(planned, &Arc::default()).await.unwrap();
        calls.push(counting.names().len());
        println!("{foreign} foreign runs: {calls:?} store calls after newest, timeline, plan, restore");
        counts.push(calls);
    }
    assert_eq!(counts[0], counts[1]);
}
