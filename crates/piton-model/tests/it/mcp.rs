//! MCP over pipes and over HTTP, against servers that speak it by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use piton_model::SecretString;
use piton_model::mcp::{McpError, Server, ServerConfig, Transport};
use piton_model::net::{Client, NetError, NetPolicy};
use piton_types::Value;

use crate::server::{self, Received, Step, json, open, reply};

fn client() -> Client {
    Client::new(NetPolicy::public().trusting("127.0.0.1")).unwrap()
}

/// A server in Python: one tool, whose behaviour its argument chooses.
const PROGRAM: &str = r#"
import json, sys, os, time
def say(id, result): print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        say(id, {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}})
    elif method == "tools/list":
        say(id, {"tools": [{"name": "echo", "description": "Echoes", "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}}]})
    elif method == "tools/call":
        arguments = message["params"]["arguments"]
        if arguments.get("do") == "sleep": time.sleep(60)
        if arguments.get("do") == "die": os._exit(1)
        if arguments.get("do") == "flood": say(id, {"content": [{"type": "text", "text": "x" * (8 << 20)}]}); continue
        if arguments.get("do") == "pid": say(id, {"content": [{"type": "text", "text": str(os.getpid())}]}); continue
        if arguments.get("do") == "env": say(id, {"content": [{"type": "text", "text": ",".join(sorted(os.environ))}]}); continue
        say(id, {"content": [{"type": "text", "text": "echo: " + str(arguments.get("q"))}, {"type": "text", "text": "two"}], "structuredContent": {"n": 1}, "isError": arguments.get("do") == "fail"})
"#;

fn program(script: &str) -> ServerConfig {
    let mut config = ServerConfig::new(Transport::Stdio {
        command: "/usr/bin/python3".to_owned(),
        args: vec!["-I".to_owned(), "-c".to_owned(), script.to_owned()],
        env: BTreeMap::from([("GIVEN".to_owned(), "1".to_owned())]),
        folder: None,
    });
    config.timeout = Duration::from_secs(10);
    config
}

fn doing(what: &str) -> Value {
    Value::map([("do", what.into())])
}

#[tokio::test]
async fn a_program_lists_and_runs_its_tools() {
    let server = Server::connect(&program(PROGRAM), &client()).await.unwrap();
    let tools = server.tools().await.unwrap();
    assert_eq!((tools.len(), tools[0].name.as_str(), tools[0].description.as_str()), (1, "echo", "Echoes"));
    assert_eq!(tools[0].schema.field("type"), Some(&Value::from("object")));
    let output = server.call("echo", &Value::map([("q", "rust".into())]), None).await.unwrap();
    assert_eq!((output.text.as_str(), output.is_error, output.content.len()), ("echo: rust\ntwo", false, 2));
    assert_eq!(output.structured, Some(Value::map([("n", 1.into())])));
    assert!(server.call("echo", &doing("fail"), None).await.unwrap().is_error, "a tool's failure is an answer");
    assert!(matches!(server.call("echo", &Value::from(1), None).await, Err(McpError::Arguments(_))));
}

#[tokio::test]
async fn a_program_sees_only_the_environment_that_it_is_given() {
    let server = Server::connect(&program(PROGRAM), &client()).await.unwrap();
    let names = server.call("echo", &doing("env"), None).await.unwrap().text;
    let names: Vec<&str> = names.split(',').filter(|name| *name != "LC_CTYPE").collect();
    assert_eq!(names, ["GIVEN"], "Python sets LC_CTYPE itself");
}

#[tokio::test]
async fn a_program_that_misbehaves_costs_an_error() {
    let mut config = program(PROGRAM);
    config.timeout = Duration::from_secs(2);
    config.max_message = 1 << 20;
    let server = Server::connect(&config, &client()).await.unwrap();
    assert!(
        matches!(server.call("echo", &doing("flood"), None).await, Err(McpError::Timeout { .. })),
        "a message too long is dropped"
    );
    assert!(matches!(server.call("echo", &doing("sleep"), None).await, Err(McpError::Timeout { .. })));
    let server = Server::connect(&config, &client()).await.unwrap();
    assert!(matches!(server.call("echo", &doing("die"), None).await, Err(McpError::Call(_))));
}

#[tokio::test]
async fn a_program_that_is_no_server_says_why() {
    let complaint = "import sys; sys.stderr.write('no such option'); sys.exit(1)";
    let error = Server::connect(&program(complaint), &client()).await.unwrap_err();
    assert!(error.to_string().contains("no such option"), "{error}");
    let mut config = program("import time; time.sleep(60)");
    config.timeout = Duration::from_millis(500);
    assert!(matches!(Server::connect(&config, &client()).await, Err(McpError::Timeout { .. })));
    let missing = Transport::Stdio { command: "/no/such".to_owned(), args: vec![], env: BTreeMap::new(), folder: None };
    assert!(matches!(Server::connect(&ServerConfig::new(missing), &client()).await, Err(McpError::Start { .. })));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_program_dies_with_its_server() {
    let server = Server::connect(&program(PROGRAM), &client()).await.unwrap();
    let pid = server.call("echo", &doing("pid"), None).await.unwrap().text;
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat"));
    assert!(state().is_ok());
    drop(server);
    for _ in 0..200 {
        match state() {
            Ok(stat) if !stat.contains(") Z ") => tokio::time::sleep(Duration::from_millis(20)).await,
            _ => return,
        }
    }
    panic!("process {pid} lives on");
}

/// The same over HTTP: initialisation as JSON with a session, calls as events.
fn speak(received: &Received) -> Vec<Step> {
    if received.method == "DELETE" {
        return reply(204, &[], "");
    }
    let message = piton_types::from_json(received.body.as_bytes()).unwrap();
    let id = message.field("id").and_then(Value::as_i64).unwrap_or_default();
    let result = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    match message.field("method").and_then(Value::as_str) {
        Some("initialize") => {
            let version = "2025-06-18";
            let body = result(&format!(
                r#"{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"t","version":"1"}}}}"#
            ));
            reply(200, &[("content-type", "application/json"), ("mcp-session-id", "s1")], body)
        }
        Some("tools/list") => json(200, &result(r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}"#)),
        Some("tools/call") => {
            let mut steps = open("text/event-stream");
            let event = format!("data: {}\n\n", result(r#"{"content":[{"type":"text","text":"over http"}]}"#));
            steps.push(Step::Send(event.into_bytes()));
            steps
        }
        _ => reply(202, &[], ""),
    }
}

fn http(url: String) -> ServerConfig {
    let headers = BTreeMap::from([("authorization".to_owned(), SecretString::from("Bearer canary"))]);
    let mut config = ServerConfig::new(Transport::Http { url, headers });
    config.timeout = Duration::from_secs(5);
    config
}

#[tokio::test]
async fn an_endpoint_lists_and_runs_its_tools() {
    let endpoint = server::Server::start(speak).await;
    let config = http(endpoint.url("/mcp"));
    assert!(!format!("{config:?}").contains("canary"));
    let server = Server::connect(&config, &client()).await.unwrap();
    assert_eq!(server.tools().await.unwrap()[0].name, "echo");
    assert_eq!(server.call("echo", &Value::map::<&str>([]), None).await.unwrap().text, "over http");
    let call = endpoint.received().into_iter().find(|received| received.body.contains("tools/call")).unwrap();
    assert_eq!(
        (call.headers["authorization"].as_str(), call.headers["mcp-session-id"].as_str()),
        ("Bearer canary", "s1")
    );
}

#[tokio::test]
async fn the_policy_holds_for_endpoints_too() {
    let endpoint = server::Server::start(speak).await;
    let strict = Client::new(NetPolicy::public()).unwrap();
    let error = Server::connect(&http(endpoint.url("/mcp")), &strict).await.unwrap_err();
    assert!(matches!(error, McpError::Net(NetError::AddressRefused { .. })), "{error:?}");
    assert!(endpoint.received().is_empty());
}

#[tokio::test]
async fn an_endpoint_that_floods_is_cut() {
    let endpoint = server::Server::start(|received| {
        if !received.body.contains("tools/call") {
            return speak(received);
        }
        let mut steps = open("application/json");
        steps.push(Step::Endlessly(vec![b' '; 1 << 16]));
        steps
    })
    .await;
    let mut config = http(endpoint.url("/mcp"));
    config.max_message = 1 << 20;
    let server = Server::connect(&config, &client()).await.unwrap();
    let error = server.call("echo", &Value::map::<&str>([]), None).await.unwrap_err();
    assert!(matches!(error, McpError::Call(_)), "{error:?}");
}
