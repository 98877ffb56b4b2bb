//! The debugger over HTTP: a run stands, is looked at, changed, put back, and goes on, by requests alone.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value as Json, json};

use crate::world::{GREETS, LOOK, World, said, sending};

/// Starts a run that stands before its first node.
async fn standing(world: &World, stops: Json) -> Json {
    let start = json!({ "document": GREETS, "inputs": { "name": "Ada" }, "id": "d", "debug": stops });
    let (status, started) = world.post("/api/runs", start).await;
    assert_eq!(status, 202, "{started}");
    stands(world, "d").await
}

/// How the session of a run stands, once its run does.
async fn stands(world: &World, run: &str) -> Json {
    let patience = Instant::now();
    loop {
        let (status, seen) = world.get(&format!("/api/runs/{run}/debug")).await;
        if status == 200 && seen["standing"] == true {
            return seen;
        }
        assert!(patience.elapsed() < Duration::from_secs(60), "{seen}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn say(world: &World, run: &str, command: Json) -> (u16, Json) {
    world.post(&format!("/api/runs/{run}/debug/commands"), command).await
}

/// Steps, looks, sets, goes back and goes on; what is wrong names its field, and the run stands as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_debugged_by_requests() {
    let world = World::new().await;
    let stops = json!({ "breakpoints": [{ "node": "greet", "phase": "after", "if": "greet.output contains Ada" }] });
    let seen = standing(&world, stops).await;
    assert_eq!((&seen["stop"]["reason"], &seen["stop"]["node"]), (&json!("initial"), &json!("in")), "{seen}");
    let (_, run) = world.get("/api/runs/d").await;
    assert_eq!((&run["debugged"], &run["status"]), (&json!(true), &json!("in_progress")), "{run}");

    let (_, reply) = say(&world, "d", json!({ "command": "continue" })).await;
    assert_eq!(reply["answer"], "goes_on");
    let seen = stands(&world, "d").await;
    assert_eq!(
        (&seen["stop"]["reason"], &seen["stop"]["gave"]),
        (&json!("breakpoint"), &json!({ "output": "Hello Ada!" })),
        "{seen}"
    );
    let (_, reply) = say(&world, "d", json!({ "command": "variables", "name": "in.name" })).await;
    assert_eq!(reply["variables"], "Ada");

    for (command, status, field) in [
        (json!({ "command": "jump" }), 400, None),
        (json!({ "command": "break", "node": "greeet" }), 404, Some("node")),
        (json!({ "command": "break", "node": "greet", "if": "nonsense" }), 400, None),
        (json!({ "command": "to", "node": "nowhere" }), 404, Some("node")),
        (json!({ "command": "set", "variables": { "x": 1 } }), 400, Some("variables")),
        (json!({ "command": "variables", "name": "in.nothing" }), 404, Some("name")),
        (json!({ "command": "back", "to": "d@9999" }), 404, Some("to")),
    ] {
        let (found, problem) = say(&world, "d", command.clone()).await;
        assert_eq!((found, problem["field"].as_str()), (status, field), "{command}: {problem}");
    }
    let as_looker = world.by(LOOK, Method::POST, "/api/runs/d/debug/commands");
    assert_eq!(said(sending(as_looker, &json!({ "command": "continue" }))).await.0, 403);
    assert_eq!(stands(&world, "d").await["stop"], seen["stop"], "it stands as before");

    let (_, reply) = say(&world, "d", json!({ "command": "back", "to": "greet" })).await;
    assert_eq!((&reply["answer"], &reply["to"]), (&json!("goes_back"), &json!("before greet")), "{reply}");
    assert_eq!(stands(&world, "d").await["stop"]["reason"], "back");
    let (status, reply) = say(&world, "d", json!({ "command": "set", "variables": { "in.name": "Bob" } })).await;
    assert_eq!(status, 200, "{reply}");
    // The condition doesn't hold any more, so it goes on to its end.
    say(&world, "d", json!({ "command": "continue" })).await;
    let seen = stands(&world, "d").await;
    assert_eq!(
        (&seen["stop"]["reason"], &seen["stop"]["outputs"]["greeting"]),
        (&json!("completed"), &json!("Hello Bob!")),
        "{seen}"
    );

    // From its end it goes back in another run, which the session is then of.
    say(&world, "d", json!({ "command": "back", "to": "greet" })).await;
    let other = {
        let patience = Instant::now();
        loop {
            let (_, summary) = world.get("/api/summary").await;
            if let Some(other) = summary["here"].as_array().unwrap().iter().find(|run| *run != "d") {
                break other.as_str().unwrap().to_owned();
            }
            assert!(patience.elapsed() < Duration::from_secs(60), "{summary}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert_eq!(stands(&world, &other).await["stop"]["run"], json!(other));
    assert_eq!(world.get("/api/runs/d/debug").await.0, 404);
    let (_, reply) = say(&world, &other, json!({ "command": "quit" })).await;
    assert_eq!(reply["answer"], "quits");
    assert_eq!(world.settled(&other).await["status"], "paused");
    assert_eq!(world.get("/api/runs/d").await.1["status"], "completed");
    let (_, audit) = world.get("/api/audit").await;
    assert!(audit["acts"].as_array().unwrap().iter().any(|act| act["act"] == "debug_command"), "{audit}");
    assert!(!audit.to_string().contains("Bob"), "what is set isn't written there");
}

/// A session is told as a stream; breakpoints are taken while the run is at work, other commands are refused.
#[tokio::test(flavor = "multi_thread")]
async fn stops_are_told_and_a_run_at_work_takes_breakpoints_only() {
    let world = World::new().await;
    let hold = world.work().join("hold");
    std::fs::write(&hold, "").unwrap();
    let document = format!(
        "nodes:\n  - {{id: in, data: {{type: start}}}}\n  - {{id: work, data: {{type: command, command: [sh, -c, 'while test -e {}; do sleep 0.05; done']}}}}\n  - {{id: out, data: {{type: end, outputs: []}}}}\nedges: [{{source: in, target: work}}, {{source: work, target: out}}]\n",
        hold.display()
    );
    let (status, _) = world.post("/api/runs", json!({ "document": document, "id": "w", "debug": {} })).await;
    assert_eq!(status, 202);
    stands(&world, "w").await;
    say(&world, "w", json!({ "command": "continue" })).await;
    let (status, problem) = say(&world, "w", json!({ "command": "variables" })).await;
    assert_eq!((status, problem["kind"].as_str()), (409, Some("refused")), "{problem}");
    let (status, reply) = say(&world, "w", json!({ "command": "break", "node": "out" })).await;
    assert_eq!((status, reply["breakpoints"][0]["node"].as_str()), (200, Some("out")), "{reply}");
    let mut stream =
        world.by(LOOK, Method::GET, "/api/runs/w/debug").header("accept", "text/event-stream").send().await.unwrap();
    std::fs::remove_file(&hold).unwrap();
    let mut told = String::new();
    while !told.contains("\"reason\":\"breakpoint\"") {
        told.push_str(std::str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap());
    }
    assert!(told.starts_with("retry: 1000\n\nevent: seen\ndata: {"), "{told}");
    say(&world, "w", json!({ "command": "quit" })).await;
    while !told.contains("event: end") {
        told.push_str(std::str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap());
    }
    let none = world.by(LOOK, Method::GET, "/api/runs/w/debug").header("accept", "text/event-stream").send().await;
    assert!(none.unwrap().text().await.unwrap().contains("event: end"), "there is no session any more");
}

/// A server that stops leaves its debugged runs paused where they stand, also those that stand at no node; the next one
/// goes on with them under a debugger.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_server_and_the_run_is_left() {
    let world = World::new().await;
    standing(&world, json!({})).await;
    say(&world, "d", json!({ "command": "next" })).await;
    stands(&world, "d").await;
    let start = json!({ "document": GREETS, "inputs": { "name": "Eve" }, "id": "ended", "debug": {} });
    world.post("/api/runs", start).await;
    stands(&world, "ended").await;
    say(&world, "ended", json!({ "command": "continue" })).await;
    assert_eq!(stands(&world, "ended").await["stop"]["reason"], "completed");
    let world = world.restarted().await;
    let (_, run) = world.get("/api/runs/d").await;
    assert_eq!((&run["status"], &run["debugged"]), (&json!("paused"), &json!(false)), "{run}");
    assert_eq!(world.get("/api/runs/ended").await.1["status"], "completed");

    let wrong = json!({ "stops": { "breakpoints": [{ "node": "nothing" }] } });
    let (status, problem) = world.post("/api/runs/d/debug", wrong).await;
    assert_eq!((status, problem["field"].as_str()), (404, Some("breakpoints")), "{problem}");
    let (status, started) = world.post("/api/runs/d/debug", json!({ "stops": { "on_error": true } })).await;
    assert_eq!(status, 202, "{started}");
    let seen = stands(&world, "d").await;
    assert_eq!((&seen["stop"]["node"], &seen["on_error"]), (&json!("greet"), &json!(true)), "{seen}");
    let (status, problem) = world.post("/api/runs/d/debug", json!({})).await;
    assert_eq!(status, 409, "{problem}");
    say(&world, "d", json!({ "command": "continue" })).await;
    assert_eq!(stands(&world, "d").await["stop"]["outputs"]["greeting"], "Hello Ada!");
    say(&world, "d", json!({ "command": "quit" })).await;
    assert_eq!(world.settled("d").await["status"], "completed");

    // One that is over stands at its end, from which it can go back.
    let (status, started) = world.post("/api/runs/ended/debug", json!({})).await;
    assert_eq!(status, 202, "{started}");
    assert_eq!(stands(&world, "ended").await["stop"]["reason"], "completed");
    say(&world, "ended", json!({ "command": "quit" })).await;
}
