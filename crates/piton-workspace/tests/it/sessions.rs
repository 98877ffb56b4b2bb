//! Agents and their tools between checkpoints. W7, W8.

use std::sync::Arc;
use std::time::Duration;

use piton_types::Value;
use piton_workspace::{Goal, RestoreOptions, SessionOptions, ToolCall, ToolFailure, ToolOutcome, WorkspaceError};

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
    let (given, problem) = session.run_with_checkpoints(options, agent).await;
    assert!(given == 7 && problem.is_none(), "{problem:?}");
    session.end(Ok(Value::Null)).await.unwrap();
    let timeline = world.workspace().timeline().await.unwrap();
    let automatic = timeline.moments.iter().filter(|moment| moment.label == "files changed").count();
    assert!((2..=4).contains(&automatic), "{automatic} checkpoints");
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
