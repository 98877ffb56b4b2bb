//! Sessions and reports are runs like any other: created, claimed, fenced, ended and found stalled by the runtime.
//! Decisions 1 and 2.

use std::process::Command;
use std::sync::Arc;

use piton_runtime::recovery::stalled;
use piton_runtime::{
    Context, History, LeaseOptions, LeaseWatch, OpenRun, Run, RunError, Standing, WholeHistory, process,
};
use piton_store::{Store, StoreError};
use piton_testing::{CrashStore, Fault};
use piton_types::{Holder, RunId, RunStatus, Value};
use piton_workspace::{Reports, Session, Workspace, WorkspaceError};

use crate::undo::{begin, run_id};
use crate::world::{SETTLED, World, context};

async fn stalled_in(world: &World) -> Vec<RunId> {
    let found = stalled(&context(&world.store), &mut LeaseWatch::default(), LeaseOptions::default().ttl).await;
    found.unwrap().found.into_iter().map(|run| run.id).collect()
}

async fn standing(world: &World, run: &RunId) -> Standing {
    let ttl = LeaseOptions::default().ttl;
    LeaseWatch::default().look(&context(&world.store), run, ttl).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_a_run_of_the_runtime() {
    let world = World::new();
    world.write("a", "0");
    let session = begin(&world, 1).await;
    let id = session.run().clone();
    assert_eq!((standing(&world, &id).await, stalled_in(&world).await), (Standing::Held, vec![]));
    let held = Run::open(&context(&world.store), OpenRun { id: Some(id.clone()), ..OpenRun::default() }).await;
    assert!(matches!(held, Err(RunError::Held { .. })), "{held:?}");
    session.end(Ok(Value::from(7))).await.unwrap();
    let history = History::of(&context(&world.store), &id).await.unwrap();
    assert_eq!((history.state.status(), history.takeovers), (RunStatus::Completed, 0));
    assert!(history.claim.is_some() && world.store.lease(&id).await.unwrap().is_none());

    let killed = begin(&world, 2).await;
    let id = killed.run().clone();
    drop(killed);
    assert_eq!((standing(&world, &id).await, stalled_in(&world).await), (Standing::Stalled, vec![id]));
    let failed = begin(&world, 3).await;
    let id = failed.run().clone();
    failed.end(Err("it broke".to_owned())).await.unwrap();
    assert_eq!(world.store.summary(&id).await.unwrap().unwrap().status, RunStatus::Failed);
}

/// Promise 12: a session whose run was taken over writes nothing any more, neither checkpoints nor its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_taken_over_is_fenced() {
    let world = World::new();
    world.write("a", "0");
    // A process of this host that is dead.
    let holder = Holder { pid: u32::MAX, started: 1, ..context(&world.store).holder };
    let dead = Context { holder, ..context(&world.store) };
    let workspace = Workspace::open(&dead, &world.root(), world.options.clone()).unwrap();
    let mut stale = Session::begin_as(&workspace, run_id(1), "agent", Value::Null, &Arc::default()).await.unwrap();
    world.write("a", "1");
    stale.checkpoint("").await.unwrap().expect("the negative control: before that, it writes");
    let taken = begin(&world, 1).await;
    world.write("a", "2");
    let fenced = |error: &WorkspaceError| matches!(error, WorkspaceError::Store(StoreError::Fenced { .. }));
    assert!(stale.checkpoint("").await.is_err_and(|error| fenced(&error)));
    assert!(stale.end(Ok(Value::Null)).await.is_err_and(|error| fenced(&error)));
    taken.end(Ok(Value::Null)).await.unwrap();
}

/// The run of a session that is reported about is held by the agent's process: it is in progress while that lives,
/// stalled afterwards, and goes on with the next agent.
#[tokio::test(flavor = "multi_thread")]
async fn reports_are_held_by_the_agent() {
    let world = World::new();
    let mut agent = Command::new("sleep").arg("600").spawn().unwrap();
    let holder = process(agent.id());
    let report = async |holder: &Option<Holder>| {
        let reports = Reports::of(&world.workspace(), &run_id(7), "agent", Value::Null, holder.clone()).await.unwrap();
        reports.turn_begins("go on").await.unwrap();
        reports.run().clone()
    };
    let id = report(&holder).await;
    let other = process(std::process::id());
    assert_eq!(report(&other).await, id);
    let claims = async || History::of(&context(&world.store), &id).await.unwrap().takeovers;
    assert_eq!((standing(&world, &id).await, claims().await), (Standing::Held, 0));
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert_eq!((standing(&world, &id).await, stalled_in(&world).await), (Standing::Stalled, vec![id.clone()]));
    assert_eq!(report(&other).await, id);
    assert_eq!(claims().await, 1, "the next agent holds it");
    let reports = Reports::of(&world.workspace(), &id, "agent", Value::Null, other).await.unwrap();
    reports.end().await.unwrap();
    assert_eq!(world.store.summary(&id).await.unwrap().unwrap().status, RunStatus::Completed);
}

/// What a report takes doesn't grow with the reports before it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_report_takes_does_not_grow() {
    let mut world = World::new();
    let below = Arc::clone(&world.store);
    let reports =
        async |world: &World| Reports::of(&world.workspace(), &run_id(7), "agent", Value::Null, None).await.unwrap();
    reports(&world).await.turn_begins("a long turn").await.unwrap();
    let mut calls = Vec::new();
    let compared = |n: usize| (1..12).contains(&n) || (144..165).contains(&n) || n >= 279;
    for n in 0..300 {
        let counting = Arc::new(CrashStore::new(Arc::clone(&below), Fault::None));
        world.store = Arc::clone(&counting) as Arc<dyn Store>;
        reports(&world).await.tool_begins("Edit", Some("one"), Value::Null).await.unwrap();
        world.write("a", n.to_string());
        // A file that was written in the last ticks is read and stored once more, which takes a few calls: those that are
        // compared below are all older than that.
        let written = world.path("a").metadata().unwrap().modified().unwrap();
        while compared(n) && written.elapsed().is_ok_and(|age| age < SETTLED) {
            tokio::time::sleep(SETTLED).await;
        }
        reports(&world).await.tool_ended("Edit", Some("one"), Ok(Value::Null)).await.unwrap().unwrap();
        calls.push(counting.names().len());
    }
    // The very first find no snapshot to share with. Folding takes some more, now and then, and what is folded is found through its segment.
    let least = |calls: &[usize]| *calls.iter().min().unwrap();
    let [first, folded, last] = [least(&calls[2..12]), least(&calls[145..165]), least(&calls[280..])];
    println!("{first} store calls for one of the first tool calls, {folded} with a segment, {last} for the 300th");
    assert!(last <= folded && folded <= first + 8, "{first}, {folded}, {last}");
    let id = reports(&world).await.run().clone();
    let history = WholeHistory::of(&context(&world.store), &id).await.unwrap();
    let places: Vec<u32> = history.steps.iter().map(|step| step.index).collect();
    assert_eq!(places, (0..300).collect::<Vec<_>>());
}
