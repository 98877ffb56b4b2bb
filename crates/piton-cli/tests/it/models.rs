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
