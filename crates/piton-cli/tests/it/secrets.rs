//! Promise 26: secrets named by policy reach no disk, log, error or event in clear.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use piton_testing::web::{Answer, Web};

use crate::world::World;

const CANARY: &str = "canary/songs+7-of-the-yellow-bird";
const KEY: &str = "sk-canary-0123456789abcdef";

/// Every form in which a secret may turn up. Base64 has three, without the characters that others have a part in.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned(), secret.bytes().map(|byte| format!("{byte:02x}")).collect()];
    for offset in 0..3 {
        let padded = STANDARD_NO_PAD.encode([vec![0; offset], secret.as_bytes().to_vec()].concat());
        forms.push(padded[(offset * 8_usize).div_ceil(6)..(offset + secret.len()) * 8 / 6].to_owned());
    }
    forms
}

fn search(place: &str, bytes: &[u8], found: &mut Vec<String>) {
    for secret in [CANARY, KEY] {
        // Also what is broken into lines, in clear or as JSON says it.
        let text = String::from_utf8_lossy(bytes).replace("\\n", "");
        let joined: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'\\').collect();
        for form in forms(secret) {
            let is_in = |bytes: &[u8]| bytes.windows(form.len()).any(|window| window == form.as_bytes());
            if is_in(bytes) || is_in(&joined) {
                found.push(format!("{place}: {form}"));
            }
        }
    }
}

fn search_folder(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            search_folder(&path, found);
        } else {
            search(&path.display().to_string(), &std::fs::read(&path).unwrap(), found);
        }
    }
}

/// It takes the canary in, hands it to a program, writes it to a server, gets it back from a model piece by piece, and
/// fails with it in the error, in clear and encoded.
const LEAKING: &str = r#"
nodes:
  - {id: in, data: {type: start, variables: [{variable: note, type: string}]}}
  - {id: echo, data: {type: command, command: [echo, '{{#in.note#}}']}}
  - {id: encode, data: {type: code, language: javascript, code: "function main(i) { const hex = [...i.note].map((c) => c.charCodeAt(0).toString(16)).join(''); const lines = (t) => t.replace(/(.{11})/g, '$1\\n'); return {b64: btoa('x' + i.note), list: [i.note], lines: [lines(btoa('xy' + i.note)), lines(hex), JSON.stringify(JSON.stringify({a: lines(hex), b: i.note}).replace('/', '\\/'))], url: encodeURIComponent(i.note).toLowerCase()}; }", variables: [{variable: note, value_selector: [in, note]}]}}
  - {id: ask, data: {type: llm, model: {provider: openai, name: m}, prompt_template: [{role: user, text: 'Say {{#in.note#}}'}], checkpoint: true}}
  - {id: fail, data: {type: command, command: [sh, -c, 'test -e ready || { echo "$0 $1" >&2; exit 3; }', '{{#in.note#}}', '{{#encode.b64#}}']}}
  - {id: out, data: {type: end, outputs: [{variable: said, value_selector: [ask, text]}, {variable: echoed, value_selector: [echo, stdout]}]}}
edges: [{source: in, target: echo}, {source: echo, target: encode}, {source: encode, target: ask}, {source: ask, target: fail}, {source: fail, target: out}]
"#;

/// Runs it until it fails and then to its end; where the secrets were found.
fn leaks(with_policy: bool) -> Vec<String> {
    let world = World::new();
    let model = Web::start(|asked| Answer::chat(asked, &["I say: can", "ary/songs+7-of-the-", "yellow-bird", "."]));
    world.write("flow.yml", LEAKING);
    let secrets = if with_policy { "[secrets]\nCANARY = \"env:CANARY\"\n" } else { "" };
    let config = format!(
        "audit = \"audit.jsonl\"\n{secrets}[providers.openai]\nbase_url = \"{}/v1\"\napi_key = \"{KEY}\"\n",
        model.address
    );
    std::fs::write(world.root().join("config.toml"), config).unwrap();
    let mut found = Vec::new();
    let run = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        let output = command.env("CANARY", CANARY).output().unwrap();
        (output.status.code(), output.stdout, output.stderr)
    };
    let config = ["--config", "../config.toml"];
    let note = format!("note={CANARY}");
    let (code, stdout, stderr) = run(&[&["run", "flow.yml", "--id", "a", "-i", &note, "--json"][..], &config].concat());
    assert_eq!(code, Some(1), "{}", String::from_utf8_lossy(&stderr));
    search("stdout of the failed run", &stdout, &mut found);
    search("stderr of the failed run", &stderr, &mut found);
    for look in [&["show", "a", "--steps"][..], &["show", "a"], &["log", "a"], &["events", "a"], &["ls"]] {
        let (_, stdout, stderr) = run(look);
        search(&look.join(" "), &[stdout, stderr].concat(), &mut found);
    }
    std::fs::write(world.work().join("ready"), "").unwrap();
    let (code, stdout, stderr) = run(&[&["resume", "a", "--json"][..], &config].concat());
    assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&stderr));
    search("stderr of the resumed run", &stderr, &mut found);
    // The caller gets what the run gives, and that is what it would have given without a store.
    let outputs: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(outputs["outputs"]["said"], format!("I say: {CANARY}."));
    assert_eq!(outputs["outputs"]["echoed"], format!("{CANARY}\n"));
    search_folder(&world.state(), &mut found);
    search("audit.jsonl", &std::fs::read(world.work().join("audit.jsonl")).unwrap(), &mut found);
    found
}

#[test]
fn a_secret_of_the_configuration_is_stored_and_shown_nowhere() {
    assert_eq!(leaks(true), Vec::<String>::new());
}

/// The control: a secret that the configuration doesn't name is found by the same search, in the store and in what is
/// shown. The key is never found.
#[test]
fn without_a_policy_the_search_finds_it() {
    let found = leaks(false);
    assert!(found.iter().any(|place| place.contains("store") || place.contains(".db")), "{found:?}");
    assert!(found.iter().any(|place| place.starts_with("show a --steps")), "{found:?}");
    assert!(found.iter().all(|place| !place.contains(KEY)), "{found:?}");
}

/// What a person is asked is shown without secrets too, the form included; the answer that it proposes is the secret all the
/// same. The control is the run without a policy.
#[test]
fn questions_show_no_secrets() {
    for with_policy in [true, false] {
        let world = World::new();
        world.write(
            "flow.yml",
            "nodes:\n  - {id: in, data: {type: start, variables: [{variable: note, type: string}]}}\n  - {id: ask, data: {type: human-input, prompt: 'Send {{#in.note#}}?', form_fields: [{variable: word, type: string, default_value_selector: [in, note]}]}}\n  - {id: out, data: {type: end, outputs: [{variable: word, value_selector: [ask, word]}]}}\nedges: [{source: in, target: ask}, {source: ask, target: out}]\n",
        );
        let secrets = if with_policy { format!("[secrets]\nCANARY = \"{CANARY}\"\n") } else { String::new() };
        world.write("config.toml", &secrets);
        let note = format!("note={CANARY}");
        let mut found = Vec::new();
        for look in [
            &["run", "flow.yml", "--id", "a", "-i", &note, "--config", "config.toml"][..],
            &["resume", "a", "--config", "config.toml"],
            &["resume", "a", "--config", "config.toml", "--json"],
            &["ls", "--waiting"],
            &["ls", "--waiting", "--json"],
            &["show", "a", "--json"],
        ] {
            let shown = world.piton(look);
            assert!(shown.whole().contains("Send "), "{look:?}: {}", shown.whole());
            search(&look.join(" "), shown.whole().as_bytes(), &mut found);
        }
        search_folder(&world.state(), &mut found);
        assert_eq!(found.is_empty(), with_policy, "{found:?}");
        if with_policy {
            assert_eq!(world.piton(["answer", "a", "--set", "x=1"]).code, Some(1));
            let answered = world.piton(["answer", "a", "--value", "{}"]);
            assert_eq!(answered.code, Some(0), "{}", answered.whole());
            let resumed = world.piton(["resume", "a", "--config", "config.toml", "--json"]);
            assert_eq!(resumed.json()["outputs"]["word"], CANARY, "{}", resumed.whole());
        }
    }
}

/// The keys of a store reach no program that Piton starts for a user or a document. Other variables do: that is the control.
#[test]
fn key_variables_reach_no_program() {
    let world = World::new();
    world.write("flow.yml", "nodes:\n  - {id: in, data: {type: start}}\n  - {id: all, data: {type: command, command: [env]}}\n  - {id: out, data: {type: end, outputs: [{variable: env, value_selector: [all, stdout]}]}}\nedges: [{source: in, target: all}, {source: all, target: out}]\n");
    for arguments in [&["guard", "--", "env"][..], &["run", "flow.yml", "--json"]] {
        let mut command = world.command(arguments);
        for name in ["PITON_PASSPHRASE", "PITON_KEY_FILE", "PITON_KEY_COMMAND", "ORDINARY"] {
            command.env(name, format!("{name}-canary"));
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("ORDINARY-canary"), "{said}");
        assert!(!said.contains("PITON_PASSPHRASE") && !said.contains("PITON_KEY_"), "{said}");
    }
}

/// A user who writes the name of a secret doesn't get the secret, not even in a run that began before there was one.
#[test]
fn a_text_that_names_a_secret_stays_a_text() {
    let world = World::new();
    world.write(
        "flow.yml",
        "nodes:\n  - {id: in, data: {type: start, variables: [{variable: x}]}}\n  - {id: wait, data: {type: command, command: [test, -e, ready]}}\n  - {id: out, data: {type: end, outputs: [{variable: x, value_selector: [in, x]}]}}\nedges: [{source: in, target: wait}, {source: wait, target: out}]\n",
    );
    world.write("config.toml", &format!("[secrets]\nCANARY = \"{CANARY}\"\n"));
    assert_eq!(world.piton(["run", "flow.yml", "--id", "a", "-i", "x=secret:CANARY"]).code, Some(1));
    world.write("ready", "");
    let resumed = world.piton(["resume", "a", "--config", "config.toml", "--json"]);
    assert_eq!(resumed.json()["outputs"]["x"], "secret:CANARY", "{}", resumed.whole());
    assert!(world.piton(["show", "a", "--json"]).stdout.contains("\"secret:CANARY\""));
    world.write("short.toml", "[secrets]\nPIN = \"1234\"\n");
    let refused = world.piton(["run", "flow.yml", "-i", "x=1", "--config", "short.toml"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("PIN") && !refused.stderr.contains("1234"), "{}", refused.stderr);
}
