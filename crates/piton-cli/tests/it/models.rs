//! `run --config`: a workflow that asks a model, which here is a server on loopback that speaks the protocol.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::world::World;

const ASKING: &str = r"
nodes:
  - {id: in, data: {type: start, variables: [{variable: topic, type: string, required: true}]}}
  - {id: ask, data: {type: llm, model: {provider: openai, name: m}, prompt_template: [{role: user, text: 'About {{#in.topic#}}'}]}}
  - {id: check, data: {type: command, command: [test, -e, ready]}}
  - {id: out, data: {type: end, outputs: [{variable: text, value_selector: [ask, text]}]}}
edges:
  - {source: in, target: ask}
  - {source: ask, target: check}
  - {source: check, target: out}
";

/// A model that answers every request the same, and counts them. It wants the key `sk-canary`.
struct Model {
    address: String,
    asked: Arc<AtomicUsize>,
}

impl Model {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/v1", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), &counter);
            }
        });
        Self { address, asked }
    }
}

fn answer(mut stream: TcpStream, asked: &AtomicUsize) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut knows_key) = (0, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        knows_key |= line == "authorization: bearer sk-canary";
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    asked.fetch_add(1, Ordering::SeqCst);
    let usage = r#""usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}"#;
    let (kind, body) = if String::from_utf8(body).unwrap().contains("\"stream\":true") {
        let delta = r#"{"choices":[{"delta":{"content":"Bees hum."},"finish_reason":"stop"}],"#;
        ("text/event-stream", format!("data: {delta}{usage}}}\n\ndata: [DONE]\n\n"))
    } else {
        let message = r#"{"choices":[{"message":{"content":"Bees hum."},"finish_reason":"stop"}],"#;
        ("application/json", format!("{message}{usage}}}"))
    };
    let status = if knows_key { "200 OK" } else { "401 Unauthorized" };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
}

/// Promise 10: the answer that was paid for is there when the run goes on, and isn't asked for again.
#[test]
fn a_model_is_asked_once_though_the_run_fails_behind_it() {
    let (world, model) = (World::new(), Model::start());
    world.write("flow.yml", ASKING);
    let config = format!("[providers.openai]\nbase_url = \"{}\"\napi_key = \"sk-canary\"\n", model.address);
    world.write("models.toml", &config);

    let failed = world.piton(["run", "flow.yml", "-i", "topic=bees", "--id", "a", "--config", "models.toml"]);
    assert_eq!(failed.code, Some(1), "{}", failed.whole());
    assert_eq!(model.asked.load(Ordering::SeqCst), 1, "{}", failed.whole());
    world.write("ready", "");
    let resumed = world.piton(["resume", "a", "--config", "models.toml", "--json"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.whole());
    assert_eq!(resumed.json()["outputs"]["text"], "Bees hum.");
    assert_eq!(model.asked.load(Ordering::SeqCst), 1);

    let again = world.piton(["run", "flow.yml", "-i", "topic=ants", "--config", "models.toml", "--json"]);
    assert_eq!((again.code, again.json()["usage"]["total"].as_u64()), (Some(0), Some(7)), "{}", again.whole());

    let said = [failed.whole(), resumed.whole(), world.piton(["show", "a", "--steps"]).whole()].concat();
    assert!(!said.contains("sk-canary"), "{said}");
}

#[test]
fn without_a_provider_nothing_is_run() {
    let world = World::new();
    world.write("flow.yml", ASKING);
    let refused = world.piton(["run", "flow.yml", "-i", "topic=bees", "--id", "a"]);
    assert_eq!(refused.code, Some(1), "{}", refused.whole());
    assert!(refused.stderr.contains("openai"), "{}", refused.stderr);
    assert_ne!(world.piton(["show", "a"]).code, Some(0), "no run was created");
}

#[test]
fn a_configuration_that_is_wrong_is_said_so() {
    let world = World::new();
    world.write("flow.yml", ASKING);
    world.write("models.toml", "[providers.openai]\napi_key = \"env:PITON_NO_SUCH_KEY\"\n");
    let refused = world.piton(["run", "flow.yml", "-i", "topic=bees", "--config", "models.toml"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("PITON_NO_SUCH_KEY"), "{}", refused.stderr);
    let missing = world.piton(["run", "flow.yml", "-i", "topic=bees", "--config", "nowhere.toml"]);
    assert_eq!(missing.code, Some(1));
}

/// What isn't there is said before anything is run, not in the middle.
#[test]
fn a_server_that_nobody_described_is_missed_at_once() {
    let world = World::new();
    let tool = "{type: tool, mcp_server_ref: nowhere, tool_name: search}";
    let (node, missed) = (tool, "nowhere");
    world.write(
            "flow.yml",
            &format!(
                "nodes:\n  - {{id: in, data: {{type: start}}}}\n  - {{id: mark, data: {{type: command, command: [touch, ran]}}}}\n  - {{id: it, data: {node}}}\n  - {{id: out, data: {{type: end}}}}\nedges:\n  - {{source: in, target: mark}}\n  - {{source: mark, target: it}}\n  - {{source: it, target: out}}\n"
            ),
        );
    let refused = world.piton(["run", "flow.yml", "--id", "a"]);
    assert_eq!(refused.code, Some(1), "{}", refused.whole());
    assert!(refused.stderr.contains(missed), "{}", refused.stderr);
    assert_ne!(world.piton(["show", "a"]).code, Some(0), "no run was created");
}
