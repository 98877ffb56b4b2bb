//! What happens, as it happens.

use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::{Value as Json, json};

use crate::world::{ASKS, GREETS, OPERATE, World};

/// A stream of server-sent events.
struct Events {
    answer: Response,
    text: String,
}

impl Events {
    async fn of(world: &World, path: &str, last: Option<&str>) -> Self {
        let mut request = world.by(OPERATE, Method::GET, path).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), answer.headers()["content-type"].to_str().unwrap()),
            (200, "text/event-stream")
        );
        Self { answer, text: String::new() }
    }

    /// The next event, its id and its data; none at the end of the stream.
    async fn next(&mut self) -> Option<(String, Option<String>, Json)> {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
                };
                let found = field("event").map(|name| (name, field("id"), field("data")));
                self.text = rest.to_owned();
                if let Some((name, id, data)) = found {
                    return Some((name, id, serde_json::from_str(&data.unwrap()).unwrap()));
                }
            }
            let chunk = tokio::time::timeout(Duration::from_secs(60), self.answer.chunk()).await.unwrap();
            self.text.push_str(std::str::from_utf8(&chunk.ok()??).unwrap());
        }
    }

    /// The entries up to the end of the stream, by number.
    async fn rest(&mut self) -> (Vec<u64>, Option<Json>) {
        let mut entries = Vec::new();
        while let Some((name, id, data)) = self.next().await {
            match name.as_str() {
                "entry" => {
                    assert_eq!(id.unwrap(), data["seq"].to_string());
                    entries.push(data["seq"].as_u64().unwrap());
                }
                "end" => return (entries, Some(data)),
                _ => {}
            }
        }
        (entries, None)
    }
}

/// The entries come in order with their numbers as ids, and a page that comes back gets those that it
/// hasn't, also from a server that was started anew.
#[tokio::test(flavor = "multi_thread")]
async fn events_go_on_where_a_page_left_off_after_a_restart() {
    let world = World::new().await;
    world.run(ASKS, json!({}), "asks").await;
    let mut events = Events::of(&world, "/api/runs/asks/events", None).await;
    let (name, id, data) = events.next().await.unwrap();
    assert_eq!((name.as_str(), id.as_deref(), &data["run"]), ("entry", Some("0"), &json!("asks")));
    let mut last = 0;
    while data_of(&world, "asks").await.len() as u64 > last + 1 {
        last = events.next().await.unwrap().2["seq"].as_u64().unwrap();
    }
    let world = world.restarted().await;
    let mut again = Events::of(&world, "/api/runs/asks/events", Some(&last.to_string())).await;
    let (status, answered) = world.post("/api/runs/asks/answer", json!({ "answer": { "amount": 1 } })).await;
    assert_eq!(status, 200, "{answered}");
    let (entries, end) = again.rest().await;
    assert_eq!(entries.first(), Some(&(last + 1)), "none twice, none left out");
    assert!(entries.windows(2).all(|pair| pair[1] == pair[0] + 1), "{entries:?}");
    assert_eq!(end.unwrap()["status"], "completed");
    let all = data_of(&world, "asks").await;
    assert_eq!(all.len() as u64, entries.last().unwrap() + 1, "the end comes after the last entry");
    let (from_address, _) = Events::of(&world, &format!("/api/runs/asks/events?after={last}"), None).await.rest().await;
    assert_eq!(from_address, entries);
}

async fn data_of(world: &World, run: &str) -> Vec<Json> {
    let (_, page) = world.get(&format!("/api/runs/{run}/events")).await;
    page["events"].as_array().unwrap().clone()
}

/// A run that moves is told of, whoever moved it, and a page that comes back hears of what it missed.
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_move_are_told_of() {
    let world = World::new().await;
    let mut changes = Events::of(&world, "/api/changes", None).await;
    let (name, cursor, _) = changes.next().await.unwrap();
    assert_eq!(name, "ready");
    world.run(GREETS, json!({ "name": "Ada" }), "r").await;
    let heard = async |changes: &mut Events| loop {
        let (name, _, run) = changes.next().await.unwrap();
        if name == "ready" {
            continue;
        }
        assert_eq!((name.as_str(), &run["id"]), ("run", &json!("r")));
        if run["status"] == "completed" {
            break;
        }
    };
    heard(&mut changes).await;
    heard(&mut Events::of(&world, "/api/changes", cursor.as_deref()).await).await;
}

/// A check of the store ends with what it found.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_ends_with_what_it_found() {
    let world = World::new().await;
    world.run(GREETS, json!({ "name": "Ada" }), "r").await;
    let mut check = Events::of(&world, "/api/store/check?deep=true", None).await;
    loop {
        let (name, _, data) = check.next().await.unwrap();
        match name.as_str() {
            "progress" => assert!(data["words"].is_string()),
            other => {
                assert_eq!(
                    (other, &data["whole"], &data["runs"][0]["run"]),
                    ("done", &json!(true), &json!("r")),
                    "{data}"
                );
                break;
            }
        }
    }
}
