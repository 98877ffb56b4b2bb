//! A session that is reported about event by event, as hooks do: brackets that outlive the process. W7.

use piton_runtime::calling_program;
use piton_types::{RunStatus, Value};
use piton_workspace::{Goal, Maker, RelPath, Reports, RestoreOptions, ToolFailure};

use crate::undo::run_id;
use crate::world::World;

async fn reports(world: &World) -> Reports {
    Reports::of(&world.workspace(), &run_id(7), "agent", Value::Null, calling_program()).await.unwrap()
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

/// Decision 12: what changed during a turn and outside its tool calls is shown as unattributed, and goes with the turn only
/// if the user says so. What changed outside every turn is the user's, whatever is said.
#[tokio::test(flavor = "multi_thread")]
async fn what_changed_between_the_tool_calls_of_a_turn_is_unattributed() {
    let world = World::new();
    let made_by = async |place: usize| world.workspace().timeline().await.unwrap().maker(place);
    world.write("a", "1\n2\n3\n4\n5\n");
    reports(&world).await.turn_begins("first").await.unwrap();
    tool(&world, "one", || world.write("a", "one\n2\n3\n4\n5\n")).await;
    world.write("a", "one\n2\n3\n4\nfive\n");
    world.write("between", "whose");
    assert_eq!(world.workspace().maker_now().await.unwrap(), Maker::Unattributed(vec![run_id(7)]));
    let turn = reports(&world).await.turn_ended().await.unwrap().unwrap();
    world.write("mine", "typed");
    assert_eq!(world.workspace().maker_now().await.unwrap(), Maker::User, "the turn has ended");
    reports(&world).await.turn_begins("second").await.unwrap();
    let timeline = world.workspace().timeline().await.unwrap();
    let named = world.workspace().unattributed(&timeline, 0, timeline.moments.len()).await.unwrap();
    assert_eq!(names(named), ["a", "between"]);
    assert_eq!(
        [made_by(2).await.as_str(), made_by(3).await.as_str(), made_by(4).await.as_str()],
        ["agent", "unattributed", "user"]
    );
    let history = world.workspace().history_of(vec![RelPath::new(b"a").unwrap()]).await.unwrap();
    assert_eq!(history.iter().map(|one| one.made_by.as_str()).collect::<Vec<_>>(), ["user", "agent", "unattributed"]);

    let with = RestoreOptions { unattributed: true, ..RestoreOptions::default() };
    let plan = world.plan(Goal::Undo(Some(turn.clone())), RestoreOptions::default()).await.unwrap().plan;
    assert_eq!(names(plan.unattributed), ["a", "between"]);
    assert_eq!(names(plan.changes.into_iter().map(|change| change.path)), ["a"]);
    world.reach(Goal::Undo(Some(turn.clone())), RestoreOptions::default()).await.unwrap();
    assert_eq!((world.read("a"), world.has("between")), ("1\n2\n3\n4\nfive\n".to_owned(), true));
    // Said later, it is still done; and what is brought again is what was taken back last.
    world.reach(Goal::Undo(Some(turn.clone())), with.clone()).await.unwrap();
    assert_eq!((world.read("a"), world.has("between")), ("1\n2\n3\n4\n5\n".to_owned(), false));
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    assert_eq!((world.read("a"), world.has("between")), ("1\n2\n3\n4\nfive\n".to_owned(), true));
    world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
    assert_eq!((world.read("a"), world.has("between")), ("one\n2\n3\n4\nfive\n".to_owned(), true));
    assert_eq!(world.read("mine"), "typed");
}

/// Decision 12: what went with its turn doesn't come back when something older is taken back, and a return to a checkpoint
/// leaves what is unattributed unless the user says otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn what_went_with_its_turn_stays_gone() {
    let with = RestoreOptions { unattributed: true, ..RestoreOptions::default() };
    for unattributed in [true, false] {
        let world = World::new();
        world.write("a", "0");
        let start = world.save("start").await.checkpoint;
        reports(&world).await.turn_begins("first").await.unwrap();
        let first = tool(&world, "one", || world.write("a", "1")).await;
        let options = RestoreOptions { unattributed, ..RestoreOptions::default() };
        reports(&world).await.turn_begins("second").await.unwrap();
        tool(&world, "two", || world.write("b", "made")).await;
        world.write("between", "whose");
        let second = reports(&world).await.turn_ended().await.unwrap().unwrap();
        world.reach(Goal::Undo(Some(second)), options.clone()).await.unwrap();
        world.reach(Goal::Undo(Some(first)), RestoreOptions::default()).await.unwrap();
        assert_eq!((world.read("a"), world.has("b"), world.has("between")), ("0".to_owned(), false, !unattributed));
        // Both undos taken back, then everything since the start.
        world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
        world.reach(Goal::Redo, RestoreOptions::default()).await.unwrap();
        assert!(world.has("b") && world.has("between"));
        let options = if unattributed { with.clone() } else { RestoreOptions::default() };
        world.reach(Goal::Checkpoint(start), options).await.unwrap();
        assert_eq!((world.read("a"), world.has("b"), world.has("between")), ("0".to_owned(), false, !unattributed));
    }
}

fn names(paths: impl IntoIterator<Item = RelPath>) -> Vec<String> {
    let mut names: Vec<String> = paths.into_iter().map(|path| path.to_string()).collect();
    names.sort();
    names
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
