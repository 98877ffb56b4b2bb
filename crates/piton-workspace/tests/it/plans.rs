//! What is shown is what is done: a plan is carried out as it is, or refused. Decision 11.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use piton_types::Value;
use piton_workspace::{
    Ask, Conflict, ConflictResolution, ContestedText, Goal, Resolver, RestoreOptions, RestorePlan, Session,
    WorkspaceError,
};

use crate::undo::begin;
use crate::world::{World, look};

/// An agent's work between two edits of the user's, and the plan to take it back.
async fn planned(world: &World) -> RestorePlan {
    world.write("agent", "0\n");
    world.write("both", "1\n2\n3\n4\n5\n");
    let session = begin(world, 1).await;
    world.write("agent", "1\n");
    world.write("both", "1\n2\n3\n4\nagent\n");
    session.end(Ok(Value::Null)).await.unwrap();
    world.write("both", "me\n2\n3\n4\nagent\n");
    world.plan(Goal::Undo(None), RestoreOptions::default()).await.unwrap()
}

async fn assert_outdated(world: &World, plan: RestorePlan) {
    let before = look(&world.root());
    let refused = world.workspace().restore(plan, &Arc::default()).await.map(|_| ());
    assert!(matches!(refused, Err(WorkspaceError::Outdated { .. })), "{refused:?}");
    assert_eq!(look(&world.root()), before, "nothing was written");
}

/// Also the negative control of the others: with nothing changed in between, the plan is carried out.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_carried_out_as_it_was_shown() {
    let world = World::new();
    let plan = planned(&world).await;
    let shown = plan.plan.changes.clone();
    assert_eq!(shown.iter().map(|change| change.path.to_string()).collect::<Vec<_>>(), ["agent", "both"]);
    let done = world.workspace().restore(plan.clone(), &Arc::default()).await.unwrap();
    assert_eq!(done.plan.changes, shown);
    assert_eq!((world.read("agent"), world.read("both")), ("0\n".to_owned(), "me\n2\n3\n4\n5\n".to_owned()));
    // It is for once: the restore itself is a checkpoint that the plan doesn't know.
    assert_outdated(&world, plan).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changed_since_makes_a_plan_void() {
    let world = World::new();
    let plan = planned(&world).await;
    world.write("both", "me too\n2\n3\n4\nagent\n");
    assert_outdated(&world, plan.clone()).await;
    world.write("both", "me\n2\n3\n4\nagent\n");
    world.write("other", "a file that the plan doesn't speak of");
    assert_outdated(&world, plan.clone()).await;
    world.remove("other");
    world.mode("agent", 0o600);
    assert_outdated(&world, plan).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_was_made_since_makes_a_plan_void() {
    let world = World::new();
    let plan = planned(&world).await;
    world.save("the same files").await;
    assert_outdated(&world, plan).await;
}

/// What is decided about a conflict when the plan is made is asked once.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_with_conflicts_writes_nothing() {
    let world = World::new();
    planned(&world).await;
    world.write("agent", "mine\n");
    let goal = || Goal::Undo(None);
    let plan = world.plan(goal(), RestoreOptions::default()).await.unwrap();
    assert_eq!(plan.plan.conflicts.len(), 1);
    let before = look(&world.root());
    let refused = world.workspace().restore(plan, &Arc::default()).await.map(|_| ());
    assert!(matches!(refused, Err(WorkspaceError::Conflicts { .. })), "{refused:?}");
    assert_eq!(look(&world.root()), before);
    let options = RestoreOptions { resolution: ConflictResolution::PreferCheckpoint, ..RestoreOptions::default() };
    let plan = world.plan(goal(), options).await.unwrap();
    world.workspace().restore(plan, &Arc::default()).await.unwrap();
    assert_eq!(world.read("agent"), "0\n");
}

/// A path that is hidden now and would be overwritten is part of what the plan was made from.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_hidden_and_would_be_overwritten_is_kept_and_compared() {
    let world = World::new();
    world.write("kept/secret", "then");
    let start = world.save("").await;
    world.write(".pitonignore", "kept\n");
    world.write("kept/secret", "now");
    let goal = || Goal::Checkpoint(start.checkpoint.clone());
    let plan = world.plan(goal(), RestoreOptions::default()).await.unwrap();
    world.write("kept/secret", "later");
    assert_outdated(&world, plan).await;
    let plan = world.plan(goal(), RestoreOptions::default()).await.unwrap();
    world.workspace().restore(plan, &Arc::default()).await.unwrap();
    assert_eq!(world.read("kept/secret"), "then");
    world.undo().await.unwrap();
    assert_eq!(world.read("kept/secret"), "later", "the backup has it");
}

/// A plan that meets the restore of another process waits for it. A mark without a process that holds the lock is a restore
/// that was cut short, and is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_waits_for_a_restore_that_is_under_way() {
    let world = World::new();
    world.write("file", "0");
    let goal = Goal::Checkpoint(world.save("").await.checkpoint);
    let mark = world.options.state.join("restoring");
    let lock = std::fs::File::options().write(true).open(world.options.state.join("lock")).unwrap();
    lock.lock().unwrap();
    std::fs::write(&mark, "restoring 9 nowhere").unwrap();
    let progress = Arc::new(piton_workspace::Progress::default());
    let workspace = world.workspace();
    let timeline = workspace.timeline().await.unwrap();
    let planning = {
        let progress = Arc::clone(&progress);
        tokio::spawn(async move {
            workspace.plan_restore(&timeline, &goal, &RestoreOptions::default(), &progress).await.map(|_| ())
        })
    };
    while !progress.waiting.load(Ordering::Relaxed) && !planning.is_finished() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    std::fs::remove_file(&mark).unwrap();
    lock.unlock().unwrap();
    planning.await.unwrap().unwrap();

    std::fs::write(&mark, "restoring 9 nowhere").unwrap();
    let refused = world.plan(Goal::Undo(None), RestoreOptions::default()).await.map(|_| ());
    assert!(matches!(refused, Err(WorkspaceError::Unfinished { .. })), "{refused:?}");
}

/// Counts how often it is asked, and takes both versions.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Resolver for Counting {
    fn resolve(&self, contested: &ContestedText) -> Result<Vec<u8>, String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok([&contested.current[..], &contested.checkpoint].concat())
    }
}

impl Ask for Counting {
    fn ask(&self, _: &Conflict) -> ConflictResolution {
        self.0.fetch_add(1, Ordering::Relaxed);
        ConflictResolution::PreferCheckpoint
    }
}

/// A path that must be captured first, because it is hidden, makes the plan be made again: the resolver and the user are asked
/// once all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_and_a_user_are_asked_once() {
    for planned_first in [true, false] {
        for resolution in [ConflictResolution::Resolve, ConflictResolution::Ask] {
            let world = World::new();
            world.write("contested", "0\n");
            world.write("hidden/secret", "then");
            let start = world.save("").await;
            let session = Session::begin(&world.workspace(), "agent").await.unwrap();
            world.write("contested", "agent\n");
            world.write("hidden/secret", "agent");
            session.end(Ok(Value::Null)).await.unwrap();
            world.write("contested", "mine\n");
            world.write(".pitonignore", "hidden\n");
            let asked = Arc::new(Counting::default());
            let (resolver, ask) = (Some(Arc::clone(&asked) as Arc<dyn Resolver>), Arc::clone(&asked) as Arc<dyn Ask>);
            let options = RestoreOptions { resolution, ask, resolver, ..RestoreOptions::default() };
            let goal = Goal::Checkpoint(start.checkpoint);
            if planned_first {
                let plan = world.plan(goal, options).await.unwrap();
                world.workspace().restore(plan, &Arc::default()).await.unwrap();
            } else {
                world.reach(goal, options).await.unwrap();
            }
            assert_eq!(asked.0.load(Ordering::Relaxed), 1, "{resolution:?}");
            assert_eq!(world.read("hidden/secret"), "then");
            let expected = if resolution == ConflictResolution::Ask { "0\n" } else { "mine\n0\n" };
            assert_eq!(world.read("contested"), expected);
        }
    }
}
