//! A session that is reported about event by event, as hooks do: brackets that outlive the process. W7.

use piton_types::{RunStatus, Value};
use piton_workspace::{Goal, Reports, RestoreOptions, ToolFailure};

use crate::undo::run_id;
use crate::world::World;

async fn reports(world: &World) -> Reports {
    Reports::of(&world.workspace(), &run_id(7), "agent", Value::Null, None).await.unwrap()
}

/// One tool call from its beginning to its end, each told by a process that knows nothing of the other.
async fn tool(world: &World, call: &str, work: impl FnOnce()) -> piton_types::CheckpointRef {
    reports(world).await.tool_begins("Edit", Some(call), Value::from(call)).await.unwrap();
    work();
    reports(world).await.tool_ended("Edit", Some(call), Ok(Value::Null)).await.unwrap().unwrap()
}

/// Taking a turn back takes back what its tools did, and nothing that was typed while the agent thought.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_what_its_tools_did() {
    let world = World::new();
    world.write("a", "1\n2\n3\n4\n5\n");
    reports(&world).await.turn_begins("\n  please\nand thank you").await.unwrap();
    tool(&world, "one", || world.write("a", "one\n2\n3\n4\n5\n")).await;
    world.write("mine", "typed");
    world.write("a", "one\n2\n3\n4\nmine\n");
    let second = tool(&world, "two", || world.write("b", "made")).await;
    let turn = reports(&world).await.turn_ended().await.unwrap().unwrap();
    world.reach(Goal::Undo(Some(second)), RestoreOptions::default()).await.unwrap();
    assert!(!world.has("b") && world.has("mine"));
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    assert!(world.has("b"));
    world.reach(Goal::Undo(Some(turn)), RestoreOptions::default()).await.unwrap();
    assert_eq!((world.read("a"), world.read("mine")), ("1\n2\n3\n4\nmine\n".to_owned(), "typed".to_owned()));
    assert!(!world.has("b"), "a step that was taken back and brought again goes with its turn");
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    assert_eq!(world.read("a"), "one\n2\n3\n4\nmine\n");
    let timeline = world.workspace().timeline().await.unwrap();
    assert!(timeline.moments.iter().any(|moment| moment.label == "please"));
}

/// What is written after a tool's end that was never told: if the user interrupted the tool and spoke, it is the
/// user's. If the agent went on without a word about the tool, it is the tool's.
#[tokio::test(flavor = "multi_thread")]
async fn what_came_after_an_end_that_nobody_told_is_the_users_if_he_spoke() {
    for interrupted in [true, false] {
        let world = World::new();
        world.write("a", "0");
        reports(&world).await.turn_begins("first").await.unwrap();
        reports(&world).await.tool_begins("Bash", Some("lost"), Value::Null).await.unwrap();
        world.write("a", "1");
        if interrupted {
            reports(&world).await.turn_begins("second").await.unwrap();
        }
        tool(&world, "next", || world.write("b", "made")).await;
        let turn = reports(&world).await.turn_ended().await.unwrap().unwrap();
        world.reach(Goal::Undo(Some(turn)), RestoreOptions::default()).await.unwrap();
        assert_eq!(world.read("a"), if interrupted { "1" } else { "0" });
        assert!(!world.has("b"));
    }
}

/// Ends are told to beginnings by what the agent calls them, in whatever order they come; an end without a beginning,
/// or a second one, is nothing.
#[tokio::test(flavor = "multi_thread")]
async fn calls_side_by_side_are_kept_apart_by_their_names() {
    let world = World::new();
    for call in ["one", "two"] {
        reports(&world).await.tool_begins("Bash", Some(call), Value::from(call)).await.unwrap();
    }
    let failure = ToolFailure { message: "it broke".to_owned(), recoverable: true };
    let one = reports(&world).await.tool_ended("Bash", Some("one"), Err(failure)).await.unwrap();
    assert!(one.is_some());
    assert_eq!(reports(&world).await.tool_ended("Bash", Some("one"), Ok(Value::Null)).await.unwrap(), None);
    assert_eq!(reports(&world).await.tool_ended("Bash", Some("three"), Ok(Value::Null)).await.unwrap(), None);
    assert!(reports(&world).await.tool_ended("Bash", None, Ok(Value::Null)).await.unwrap().is_some(), "the last one");
    assert_eq!(reports(&world).await.turn_ended().await.unwrap(), None, "no turn is known to have begun");
}

/// At its end the whole session can be taken back; if it goes on later, that is a run of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ended_can_be_taken_back_and_go_on() {
    let world = World::new();
    world.write("a", "0");
    reports(&world).await.turn_begins("first").await.unwrap();
    tool(&world, "one", || world.write("a", "1")).await;
    reports(&world).await.turn_begins("second").await.unwrap();
    reports(&world).await.tool_begins("Bash", Some("two"), Value::Null).await.unwrap();
    world.write("a", "2");
    let first = reports(&world).await;
    let id = first.run().clone();
    first.end().await.unwrap();
    let summary = world.store.summary(&id).await.unwrap().unwrap();
    assert_eq!(summary.status, RunStatus::Completed);
    world.undo().await.unwrap();
    assert_eq!(world.read("a"), "0");
    let again = reports(&world).await;
    assert_eq!(again.run().to_string(), format!("{id}-2"));
}
