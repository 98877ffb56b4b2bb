//! Agents and their tools between checkpoints. W7, W8.

use std::sync::Arc;
use std::time::Duration;

use piton_types::Value;
use piton_workspace::{
    Goal, RelPath, RestoreOptions, SessionOptions, ToolCall, ToolFailure, ToolOutcome, WorkspaceError,
};

use crate::undo::begin;
use crate::world::World;

fn call(step: &str) -> ToolCall {
    ToolCall { step: step.parse().unwrap(), tool: "shell".to_owned(), input: Value::from("rm -rf") }
}

fn failure(recoverable: bool) -> ToolFailure {
    ToolFailure { message: "it broke".to_owned(), recoverable }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_fails_for_good_is_rolled_back_and_the_users_edits_stay() {
    let world = World::new();
    world.write("a", "0");
    let mut session = begin(&world, 1).await;
    let tool = async {
        world.write("a", "tool");
        world.write("b", "tool");
        Err::<((), Value), _>(failure(false))
    };
    let outcome = session.execute_with_checkpoint(call("first"), tool).await.unwrap();
    assert!(matches!(outcome, ToolOutcome::RolledBack { .. }), "{outcome:?}");
    assert!(world.read("a") == "0" && !world.has("b"));

    let tool = async {
        world.write("a", "tool");
        Err::<((), Value), _>(failure(true))
    };
    let outcome = session.execute_with_checkpoint(call("second"), tool).await.unwrap();
    let ToolOutcome::Failed { step, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(world.read("a"), "tool", "the rollback is offered, not made");
    world.write("mine", "1");
    session.roll_back(&step).await.unwrap();
    assert_eq!((world.read("a"), world.read("mine")), ("0".to_owned(), "1".to_owned()));
    session.end(Ok(Value::Null)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_step_of_several_is_taken_back() {
    let world = World::new();
    world.write("a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    let mut session = begin(&world, 1).await;
    let mut steps = Vec::new();
    for (name, text) in [("one", "one\n2\n3\n4\n5\n6\n7\n8\n9\n"), ("two", "one\n2\n3\n4\n5\n6\n7\n8\ntwo\n")] {
        let pre = session.create_pre_tool_checkpoint(call(name)).await.unwrap();
        world.write("a", text);
        world.write(name, "made");
        steps.push(session.record_tool_execution(pre, Ok(Value::from("ok"))).await.unwrap());
    }
    session.end(Ok(Value::Null)).await.unwrap();
    let undone = world.reach(Goal::Undo(Some(steps[0].clone())), RestoreOptions::default()).await.unwrap();
    assert_eq!(world.read("a"), "1\n2\n3\n4\n5\n6\n7\n8\ntwo\n");
    assert!(!world.has("one") && world.has("two"));
    assert_eq!(undone.files_restored, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_under_later_work_says_why_it_cannot_be_taken_back() {
    let world = World::new();
    world.write("a", "0\n");
    let mut session = begin(&world, 1).await;
    let pre = session.create_pre_tool_checkpoint(call("one")).await.unwrap();
    world.write("a", "1\n");
    let step = session.record_tool_execution(pre, Ok(Value::Null)).await.unwrap();
    let pre = session.create_pre_tool_checkpoint(call("two")).await.unwrap();
    world.write("a", "2\n");
    session.record_tool_execution(pre, Ok(Value::Null)).await.unwrap();
    let refused = session.roll_back(&step).await.map(|_| ());
    let Err(WorkspaceError::Conflicts { conflicts }) = refused else { panic!("{refused:?}") };
    assert_eq!(conflicts[0].reason, "it was changed since, in the same place or a way that can't be merged");
    assert_eq!(world.read("a"), "2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_made_when_files_come_to_rest() {
    let world = World::new();
    world.write("a", "0");
    let mut session = begin(&world, 1).await;
    let options = SessionOptions { quiet_for: Duration::from_millis(60), at_least: Duration::from_secs(60) };
    let agent = async {
        for text in ["1", "2"] {
            world.write("a", text);
            world.write(&format!("folder-{text}/b"), text);
            tokio::time::sleep(Duration::from_millis(900)).await;
            world.write(&format!("folder-{text}/b"), "in a new folder");
            tokio::time::sleep(Duration::from_millis(900)).await;
        }
        7
    };
    let (given, coverage) = session.run_with_checkpoints(options, agent).await;
    assert!(given == 7 && coverage.problem.is_none(), "{coverage:?}");
    session.end(Ok(Value::Null)).await.unwrap();
    let timeline = world.workspace().timeline().await.unwrap();
    let automatic = timeline.moments.iter().filter(|moment| moment.label == "files changed").count();
    assert!((2..=4).contains(&automatic), "{automatic} checkpoints");
}

/// How many checkpoints were made by themselves, and whether one of them has a file.
async fn automatic(world: &World, name: &str) -> (usize, bool) {
    let (workspace, path) = (world.workspace(), RelPath::new(name.as_bytes()).unwrap());
    let timeline = workspace.timeline().await.unwrap();
    let (mut count, mut is_there) = (0, false);
    for moment in timeline.moments.iter().filter(|moment| moment.label == "files changed") {
        count += 1;
        is_there |= workspace.has(moment.snapshot, path.clone()).await.unwrap();
    }
    (count, is_there)
}

/// W7: an agent that writes without rest is checkpointed all the same, and with it what its user writes meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_never_rests_is_checkpointed_all_the_same() {
    let world = World::new();
    world.write("a", "0");
    let mut session = begin(&world, 1).await;
    let options = SessionOptions { quiet_for: Duration::from_secs(600), at_least: Duration::from_millis(300) };
    let agent = async {
        let mut writes = 0;
        let mut has_user = false;
        while !has_user {
            writes += 1;
            world.write("a", writes.to_string());
            if writes == 3 {
                world.write("mine", "the user's");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            if writes % 20 == 0 {
                has_user = automatic(&world, "mine").await.1;
            }
        }
        world.remove("mine");
    };
    let ((), coverage) = session.run_with_checkpoints(options, agent).await;
    assert!(coverage.checkpoints > 0 && coverage.problem.is_none(), "{coverage:?}");
    assert!(coverage.longest_gap >= options.at_least, "{coverage:?}");
    session.end(Ok(Value::Null)).await.unwrap();
    assert!(!world.has("mine") && automatic(&world, "mine").await.1, "it is gone, and a checkpoint has it");
}

/// W7: when git moves HEAD, its index or a branch, no rest is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_of_gits_is_checkpointed_at_once() {
    for moved in [".git/HEAD", ".git/index", ".git/refs/heads/deep/branch"] {
        let world = World::new();
        world.write(".git/HEAD", "ref: refs/heads/main\n");
        world.write(".git/refs/heads/deep/main", "0000\n");
        let mut session = begin(&world, 1).await;
        let long = Duration::from_secs(600);
        let options = SessionOptions { quiet_for: long, at_least: long };
        let agent = async {
            world.write("mine", "the user's");
            world.write(&format!("{moved}.lock"), "moved");
            std::fs::rename(world.path(&format!("{moved}.lock")), world.path(moved)).unwrap();
            while !automatic(&world, "mine").await.1 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ((), coverage) = session.run_with_checkpoints(options, agent).await;
        assert!(coverage.problem.is_none(), "{moved}: {coverage:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_over_its_budget_takes_no_more_and_says_so() {
    let mut world = World::new();
    world.write("a", vec![7; 100_000]);
    world.save("").await;
    world.options.budget = Some(100);
    let refused = world.workspace().save(piton_workspace::Record::manual(""), &Arc::default()).await.map(|_| ());
    assert!(matches!(refused, Err(WorkspaceError::OverBudget { budget: 100, .. })), "{refused:?}");
    world.options.budget = Some(0);
    world.save("").await;
}
