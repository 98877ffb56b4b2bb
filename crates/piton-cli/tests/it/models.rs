//! `run --config`: a workflow that asks a model, which here is a server on loopback that speaks the protocol.

use piton_testing::web::{Answer, Web};

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

/// A model that answers every request the same. It wants the key `sk-canary`.
fn model() -> Web {
    Web::start(|asked| match asked.head.iter().any(|line| line == "authorization: bearer sk-canary") {
        true => Answer::chat(asked, &["Bees ", "hum."]),
        false => Answer { status: "401 Unauthorized", ..Answer::json("{}") },
    })
}

/// Promise 10: the answer that was paid for is there when the run goes on, and isn't asked for again.
#[test]
fn a_model_is_asked_once_though_the_run_fails_behind_it() {
    let (world, model) = (World::new(), model());
    world.write("flow.yml", ASKING);
    let config = format!("[providers.openai]\nbase_url = \"{}/v1\"\napi_key = \"sk-canary\"\n", model.address);
    world.write("models.toml", &config);

    let failed = world.piton(["run", "flow.yml", "-i", "topic=bees", "--id", "a", "--config", "models.toml"]);
    assert_eq!(failed.code, Some(1), "{}", failed.whole());
    assert_eq!(model.asked(), 1, "{}", failed.whole());
    world.write("ready", "");
    let resumed = world.piton(["resume", "a", "--config", "models.toml", "--json"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.whole());
    assert_eq!(resumed.json()["outputs"]["text"], "Bees hum.");
    assert_eq!(model.asked(), 1);

    let again = world.piton(["run", "flow.yml", "-i", "topic=ants", "--config", "models.toml", "--json"]);
    assert_eq!((again.code, again.json()["usage"]["total"].as_u64()), (Some(0), Some(7)), "{}", again.whole());

    let said = [failed.whole(), resumed.whole(), world.piton(["show", "a", "--steps"]).whole()].concat();
    assert!(!said.contains("sk-canary"), "{said}");
}

/// R4, C1: what a finished run used is in `ls` and `show`, in sum and by step; what was undone is marked and not in the sum.
#[test]
fn what_a_run_used_is_shown_when_it_is_over() {
    let (world, model) = (World::new(), model());
    world.write("flow.yml", ASKING);
    let price = "[providers.openai.prices.m]\ninput = 1.0\noutput = 2.0\n";
    let config = format!("[providers.openai]\nbase_url = \"{}/v1\"\napi_key = \"sk-canary\"\n{price}", model.address);
    world.write("models.toml", &config);
    let run = |verb: &[&str]| world.piton(verb.iter().copied().chain(["--config", "models.toml", "--json"]));
    assert_eq!(run(&["run", "flow.yml", "-i", "topic=bees", "--id", "a"]).code, Some(1));
    // The answer is asked for again: the first is undone.
    let told = world.piton(["retry", "a", "--from", "ask", "--yes", "--config", "models.toml"]);
    assert_eq!((told.code, model.asked()), (Some(1), 2), "{}", told.whole());
    world.write("ready", "");
    let done = run(&["resume", "a"]);
    assert_eq!((done.code, model.asked()), (Some(0), 2), "{}", done.whole());
    let usage = &done.json()["usage"];
    assert_eq!(usage["total"], 7);
    assert!(usage["cost"].as_f64().unwrap() > 0.0, "{usage}");

    let shown = world.piton(["show", "a", "--steps", "--json"]).json();
    assert_eq!(shown["usage"], *usage);
    let steps: Vec<_> = shown["steps"].as_array().unwrap().iter().collect();
    let asked: Vec<_> = steps.iter().filter(|step| step["step"] == "ask").collect();
    assert_eq!((&asked[0]["undone"], &asked[1]["undone"]), (&true.into(), &false.into()));
    assert_eq!((&asked[0]["usage"], &asked[1]["usage"]), (usage, usage));
    assert!(steps.iter().all(|step| step["step"] == "ask" || step["usage"]["total"] == 0), "{shown}");
    assert_eq!(shown["recovery_attempts"], 2, "it failed twice, and was tried again twice: {shown}");
    let listed = world.piton(["ls", "--json"]);
    assert_eq!(listed.json()["usage"], *usage, "{}", listed.whole());
    let texts = [world.piton(["show", "a", "--steps"]), world.piton(["show", "a/ask"])].map(|said| said.stdout);
    assert!(texts[0].contains("TOKENS") && texts[0].contains("undone"), "{}", texts[0]);
    assert!(texts[1].contains("used     7 tokens"), "{}", texts[1]);
    let log = world.piton(["log", "a", "--all"]).stdout;
    assert!(log.contains("ask (undone)"), "{log}");
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

/// An MCP server, by hand: it has one tool, which says what it got and which key its environment has.
const SERVER: &str = r#"
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        text = asked["params"]["arguments"]["q"] + " " + os.environ["SERVER_KEY"]
        result = {"content": [{"type": "text", "text": text}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

/// F1: a document uses a tool server of the user's configuration by its name; what the server gets of our environment is what
/// the configuration says.
#[test]
fn a_server_of_the_configuration_is_there_by_its_name() {
    let world = World::new();
    world.write("server.py", SERVER);
    world.write(
        "flow.yml",
        "
nodes:
  - {id: in, data: {type: start}}
  - {id: it, data: {type: tool, mcp_server_ref: ours, tool_name: echo, arguments: {q: bees}}}
  - {id: out, data: {type: end, outputs: [{variable: said, value_selector: [it, text]}]}}
edges: [{source: in, target: it}, {source: it, target: out}]
",
    );
    world.write(
        "piton.toml",
        "[mcp_servers.ours]\ncommand = 'python3'\nargs = ['server.py']\nenv = { SERVER_KEY = 'env:OUR_KEY' }\n",
    );
    let run = ["run", "flow.yml", "--json", "--config", "piton.toml"];
    let refused = world.piton(run);
    assert_eq!(refused.code, Some(1), "{}", refused.whole());
    assert!(refused.stderr.contains("OUR_KEY is not set"), "{}", refused.whole());
    let said = world.command(run).env("OUR_KEY", "k-17").output().unwrap();
    let said: serde_json::Value =
        serde_json::from_slice(said.stdout.split(|byte| *byte == b'\n').rev().find(|line| !line.is_empty()).unwrap())
            .unwrap();
    assert_eq!(said["outputs"]["said"], "bees k-17", "{said}");
    world.write("piton.toml", "[mcp_servers.ours]\ntransport = 'http'\ncommand = 'python3'\n");
    let refused = world.piton(run);
    assert_eq!(refused.code, Some(1), "{}", refused.whole());
    assert!(refused.stderr.contains("mcp_servers.ours"), "{}", refused.whole());
}
