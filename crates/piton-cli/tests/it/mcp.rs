//! `piton mcp` as a process that an agent starts: nothing but the protocol on its pipes, and it ends with them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value as Json, json};

use crate::world::World;

#[test]
fn an_agent_starts_it_and_ends_it_by_closing_the_pipe() {
    let world = World::new();
    world.write("notes.txt", "words\n");
    let mut child = world.command(["mcp", "--role", "operate"]).stdin(Stdio::piped()).spawn().unwrap();
    let (mut writes, mut reads) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    let mut ask = |message: Json| -> Json {
        writeln!(writes, "{message}").unwrap();
        // Every line is a message: anything else would end the conversation.
        serde_json::from_str(&reads.next().unwrap().unwrap()).unwrap()
    };
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let said = ask(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }));
    assert_eq!(said["result"]["serverInfo"]["name"], "piton");
    let call = |name: &str, id: u32| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name, "arguments": {} } });
    let saved = ask(call("save", 2));
    let id = saved["result"]["structuredContent"]["id"].as_str().unwrap().to_owned();
    // Another process sees what it did.
    assert_eq!(world.piton(["show", "@", "--json"]).json()["id"], id.as_str());
    drop((writes, reads));
    assert!(child.wait().unwrap().success());
    let audit = std::fs::read_to_string(world.state().join("server/audit.jsonl")).unwrap();
    assert!(audit.contains(r#""act":"save""#) && audit.contains(r#""from":"pipe""#), "{audit}");
}

#[test]
fn a_person_who_starts_it_is_told_what_it_is_for() {
    let world = World::new();
    let said = world.piton(["mcp"]);
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    assert!(said.stderr.contains("Model Context Protocol") && said.stderr.contains("hint: "), "{}", said.stderr);
    assert!(world.state().join("stores").read_dir().is_err(), "no store is made by it");
    assert_eq!(world.piton(["mcp", "--role", "root"]).code, Some(2));
}
