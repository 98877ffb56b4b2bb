//! The debugger as a page would use it: commands and stops as data, nothing of the command line.

use std::path::Path;

use piton_app::debug::{Breaks, Command, Console, Debugging};
use piton_app::runs::resume::{self, ResumeRun};
use piton_app::runs::start::{self, StartRun};
use piton_app::views::debug::StopReason;
use piton_app::{App, FailureKind};
use piton_runtime::Listener;
use piton_types::RunStatus;
use serde_json::Value as Json;

use crate::{NoPerson, json, open};

const FLOW: &str = "
nodes:
  - {id: in, data: {type: start, variables: [{variable: topic, required: true}]}}
  - {id: title, data: {type: template-transform, template: 'On {{ t }}', variables: [{variable: t, value_selector: [in, topic]}]}}
  - {id: ask, data: {type: human-input, prompt: 'Go?', variables: [{name: sure, type: boolean, required: true}]}}
  - {id: out, data: {type: end, outputs: [{variable: title, value_selector: [title, output]}]}}
edges:
  - {source: in, target: title}
  - {source: title, target: ask}
  - {source: ask, target: out}
";

async fn say(console: &Console, command: Json) -> Json {
    let command: Command = serde_json::from_value(command).unwrap();
    json(&console.say(command).await.unwrap())
}

async fn started(root: &Path) -> (App, Debugging, Console) {
    let app = open(root);
    let document = app.folder().join("flow.yml");
    std::fs::write(&document, FLOW).unwrap();
    let inputs = [("topic".to_owned(), "bees".into())].into();
    let wanted = StartRun { id: Some("r".parse().unwrap()), inputs, ..StartRun::of(document) };
    let prepared = start::prepare(&app, wanted).await.unwrap();
    let breaks = Breaks { at_start: true, ..Breaks::default() };
    let (debugging, console) = Debugging::prepare(&app, prepared, breaks, Listener::default()).await.unwrap();
    (app, debugging, console)
}

/// R7: breaks, looks, sets and goes back, by commands as data; a run that waits for a person is told of as such.
#[tokio::test]
async fn a_page_steps_looks_sets_and_goes_back() {
    let root = tempfile::tempdir().unwrap();
    let (app, mut debugging, mut console) = started(root.path()).await;
    let page = async move {
        let stop = console.next_stop().await.unwrap();
        assert_eq!(
            json(&stop),
            json!({"run": "r", "reason": "initial", "phase": "before", "node": "in", "step": "in", "type": "start"})
        );
        let added = say(
            &console,
            json!({"command": "break", "node": "title", "phase": "after", "if": "title.output contains bees"}),
        )
        .await;
        assert_eq!(
            added["breakpoints"],
            json!([{"node": "title", "phase": "after", "if": "title.output contains bees"}])
        );
        say(&console, json!({"command": "continue"})).await;
        let stop = json(&console.next_stop().await.unwrap());
        assert_eq!((&stop["reason"], &stop["gave"]), (&json!("breakpoint"), &json!({"output": "On bees"})));
        assert_eq!(
            say(&console, json!({"command": "variables", "name": "in"})).await["variables"],
            json!({"topic": "bees"})
        );

        let wrong = Command::To { node: "titel".to_owned() };
        let refused = console.say(wrong).await.unwrap_err();
        assert_eq!(refused.kind(), FailureKind::NotFound);
        assert!(refused.advice().unwrap().to_string().contains("\"title\""));

        let back = say(&console, json!({"command": "back"})).await;
        assert_eq!(back["to"], "before title");
        assert_eq!(console.next_stop().await.unwrap().reason, StopReason::Back);
        say(&console, json!({"command": "set", "variables": {"in.topic": "wasps"}})).await;
        // The condition doesn't hold any more.
        say(&console, json!({"command": "continue"})).await;
        let stop = json(&console.next_stop().await.unwrap());
        assert_eq!((&stop["reason"], &stop["questions"][0]["prompt"]), (&json!("waiting"), &json!("Go?")));
        let refused = console.say(Command::Variables { name: None }).await.unwrap_err();
        assert_eq!(refused.kind(), FailureKind::Refused);
        assert_eq!(say(&console, json!({"command": "quit"})).await["answer"], "quits");
    };
    let work = async {
        let ended = debugging.go(&app).await;
        debugging.finish(&app, ended).await.unwrap()
    };
    let (debugged, ()) = tokio::join!(work, page);
    assert_eq!(debugged.outcome.status, RunStatus::Waiting);
}

/// R8: a page that goes away leaves the run paused where it stood; the next session goes on there.
#[tokio::test]
async fn a_page_that_goes_away_leaves_the_run_where_it_stood() {
    let root = tempfile::tempdir().unwrap();
    let (app, mut debugging, mut console) = started(root.path()).await;
    let page = async move {
        console.next_stop().await.unwrap();
        say(&console, json!({"command": "to", "node": "title"})).await;
        assert_eq!(console.next_stop().await.unwrap().reason, StopReason::Reached);
    };
    let work = async {
        let ended = debugging.go(&app).await;
        debugging.finish(&app, ended).await.unwrap()
    };
    let (debugged, ()) = tokio::join!(work, page);
    assert_eq!((debugged.outcome.status, debugged.quit), (RunStatus::Paused, true));

    let prepared = resume::prepare(&app, &ResumeRun::of("r".parse().unwrap()), &NoPerson).await.unwrap();
    let breaks = Breaks { at_start: true, ..Breaks::default() };
    let (mut debugging, mut console) = Debugging::prepare(&app, prepared, breaks, Listener::default()).await.unwrap();
    let page = async move { console.next_stop().await.unwrap() };
    let (debugged, stop) = tokio::join!(debugging.go(&app), page);
    assert_eq!((stop.node.as_deref(), stop.reason), (Some("title"), StopReason::Initial));
    debugging.finish(&app, debugged).await.unwrap();
}
