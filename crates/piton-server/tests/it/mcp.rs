//! Agents at the other ends of the pipes, and over HTTP. They speak the protocol as it is on the wire.

use std::path::PathBuf;
use std::sync::Arc;

use piton_app::{App, Silent, Surroundings};
use piton_server::{Role, serve_pipe};
use reqwest::Method;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf, split};
use tokio::task::JoinHandle;

use crate::world::{ANSWER, LOOK, OPERATE, World, said, sending};

/// An agent that speaks to a server of its own.
struct Agent {
    root: tempfile::TempDir,
    reads: BufReader<ReadHalf<DuplexStream>>,
    writes: WriteHalf<DuplexStream>,
    number: u64,
    /// What its user says when asked.
    user: Option<Json>,
    /// What its user was asked.
    asked: Vec<Json>,
    task: JoinHandle<()>,
}

impl Agent {
    /// One that can ask its user, if there is one.
    async fn new(role: Role, user: Option<Json>) -> Self {
        let mut agent = Self::unintroduced(role, user).await;
        let can = if agent.user.is_some() { json!({ "elicitation": {} }) } else { json!({}) };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": can, "clientInfo": { "name": "test", "version": "1" },
        });
        let said = agent.request("initialize", hello).await;
        assert_eq!(said["result"]["serverInfo"]["name"], "piton", "{said}");
        agent.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        agent
    }

    async fn unintroduced(role: Role, user: Option<Json>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("work")).unwrap();
        let surroundings =
            Surroundings { folder: top.join("work"), home: Some(top.join("home")), ..Surroundings::default() };
        let app = App::new(Arc::new(Silent), surroundings, |_| None);
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let task = tokio::spawn(async move { serve_pipe(&app, split(theirs), role, None).await.unwrap() });
        let (reads, writes) = split(ours);
        Self { root, reads: BufReader::new(reads), writes, number: 0, user, asked: Vec::new(), task }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("work").join(name)
    }

    async fn send(&mut self, message: &Json) {
        self.writes.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// What a request gets, with its user's answers in between.
    async fn request(&mut self, method: &str, params: Json) -> Json {
        self.number += 1;
        let number = self.number;
        self.send(&json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": params })).await;
        loop {
            let mut line = String::new();
            assert!(self.reads.read_line(&mut line).await.unwrap() > 0, "the server is gone");
            let message: Json = serde_json::from_str(&line).unwrap();
            if message["method"] == "elicitation/create" {
                self.asked.push(message["params"].clone());
                let user = self.user.clone().expect("who has no user isn't asked");
                self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": user })).await;
            } else if message["id"] == number {
                return message;
            }
        }
    }

    /// What a tool gives.
    async fn tool(&mut self, name: &str, arguments: Json) -> Json {
        let said = self.request("tools/call", json!({ "name": name, "arguments": arguments })).await;
        let result = said["result"].clone();
        assert!(!result["isError"].as_bool().unwrap_or(false), "{name}: {said}");
        result["structuredContent"].clone()
    }

    /// Why a tool does nothing.
    async fn refused(&mut self, name: &str, arguments: Json) -> Json {
        let said = self.request("tools/call", json!({ "name": name, "arguments": arguments })).await;
        assert_eq!(said["result"]["isError"], true, "{name}: {said}");
        serde_json::from_str(said["result"]["content"][0]["text"].as_str().unwrap()).unwrap()
    }

    /// A file in two checkpoints, of which the older one has other words.
    async fn two_checkpoints(&mut self) {
        for words in ["old words\n", "new words\n"] {
            std::fs::write(self.file("notes.txt"), words).unwrap();
            self.tool("save", json!({ "message": words.trim() })).await;
        }
    }

    fn notes(&self) -> String {
        std::fs::read_to_string(self.file("notes.txt")).unwrap()
    }

    /// The pipes are closed, and the server ends.
    async fn leave(self) -> tempfile::TempDir {
        drop((self.reads, self.writes));
        self.task.await.unwrap();
        self.root
    }
}

fn yes() -> Json {
    json!({ "action": "accept", "content": { "do_it": true } })
}

#[tokio::test]
async fn an_agent_saves_and_looks() {
    let mut agent = Agent::new(Role::Operate, None).await;
    assert_eq!(agent.refused("status", json!({})).await["kind"], "not_found", "a look makes no store");
    agent.two_checkpoints().await;
    std::fs::write(agent.file("more.txt"), "more\n").unwrap();
    let status = agent.tool("status", json!({})).await;
    assert!(status.to_string().contains("more.txt"), "{status}");
    let diff = agent.tool("diff", json!({ "from": "@-", "to": "@", "lines": true })).await;
    assert!(diff.to_string().contains("+new words"), "{diff}");
    let file = agent.tool("show", json!({ "ref": "@-:notes.txt" })).await;
    assert_eq!(file["text"], "old words\n");
    let runs = agent.tool("list_runs", json!({ "limit": 1 })).await;
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);

    let resources = agent.request("resources/list", json!({})).await;
    let uri = resources["result"]["resources"][0]["uri"].as_str().unwrap().to_owned();
    let read = agent.request("resources/read", json!({ "uri": uri })).await;
    let run: Json = serde_json::from_str(read["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(uri, format!("piton://runs/{}", run["id"].as_str().unwrap()));
    let id = agent.tool("show", json!({ "ref": "@" })).await["id"].as_str().unwrap().to_owned();
    let (run, number) = id.split_once('@').unwrap();
    let read = agent.request("resources/read", json!({ "uri": format!("piton://checkpoints/{run}/{number}") })).await;
    assert!(read["result"]["contents"][0]["text"].as_str().unwrap().contains("notes.txt"), "{read}");
    for wrong in ["piton://runs/none-there", "piton://checkpoints/x", "file:///etc/passwd", "piton://runs/../../x"] {
        let said = agent.request("resources/read", json!({ "uri": wrong })).await;
        assert!(said["error"]["message"].is_string(), "{wrong}: {said}");
    }
    agent.leave().await;
}

#[tokio::test]
async fn what_changes_files_needs_a_second_call_where_no_user_can_be_asked() {
    let mut agent = Agent::new(Role::Operate, None).await;
    agent.two_checkpoints().await;
    let plan = agent.tool("restore", json!({ "to": "@-" })).await;
    assert_eq!((agent.notes().as_str(), &plan["done"]), ("new words\n", &json!(false)), "{plan}");
    assert!(plan["entails"].to_string().contains("notes.txt"), "{plan}");
    let id = plan["id"].as_str().unwrap();
    let shown = agent.tool("plan_diff", json!({ "id": id, "path": "notes.txt" })).await;
    assert!(shown["diff"].as_str().unwrap().contains("+old words"), "{shown}");
    agent.tool("execute", json!({ "id": id })).await;
    assert_eq!(agent.notes(), "old words\n");
    assert_eq!(agent.refused("execute", json!({ "id": id })).await["kind"], "gone", "a plan is done once");
    // What is shown is what is done: the folder has changed since.
    let plan = agent.tool("undo", json!({})).await;
    std::fs::write(agent.file("notes.txt"), "typed meanwhile\n").unwrap();
    agent.refused("execute", json!({ "id": plan["id"] })).await;
    assert_eq!(agent.notes(), "typed meanwhile\n");

    // Promise 27: who did what is written down.
    let root = agent.leave().await;
    let audit = find(root.path(), "audit.jsonl").expect("acts are written down");
    let audit = std::fs::read_to_string(audit).unwrap();
    let acts: Vec<Json> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        acts.iter().any(|act| act["act"] == "execute" && act["from"] == "pipe" && act["by"] == "operate"),
        "{audit}"
    );
}

#[tokio::test]
async fn the_user_is_asked_where_that_can_be_done() {
    for (answer, is_done) in [
        (yes(), true),
        (json!({ "action": "accept", "content": { "do_it": false } }), false),
        (json!({ "action": "accept" }), false),
        (json!({ "action": "decline" }), false),
        (json!({ "action": "cancel" }), false),
    ] {
        let mut agent = Agent::new(Role::Operate, Some(answer.clone())).await;
        agent.two_checkpoints().await;
        agent.tool("restore", json!({ "to": "@-" })).await;
        let notes = if is_done { "old words\n" } else { "new words\n" };
        assert_eq!(agent.notes(), notes, "{answer}");
        assert!(agent.asked[0]["message"].as_str().unwrap().contains("notes.txt"), "{:?}", agent.asked);
        // A plan that was only to be shown isn't a way around the question.
        if !is_done {
            let plan = agent.tool("preview", json!({ "act": "restore", "to": "@-" })).await;
            assert_eq!(agent.asked.len(), 1);
            agent.tool("execute", json!({ "id": plan["id"] })).await;
            assert_eq!((agent.asked.len(), agent.notes().as_str()), (2, notes));
        }
        agent.leave().await;
    }
}

#[tokio::test]
async fn the_user_is_asked_in_the_newer_protocol_too() {
    let mut agent = Agent::unintroduced(Role::Operate, None).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    });
    let found = agent.request("server/discover", json!({ "_meta": meta })).await;
    assert!(found["result"].is_object(), "{found}");
    for words in ["old words\n", "new words\n"] {
        std::fs::write(agent.file("notes.txt"), words).unwrap();
        agent.request("tools/call", json!({ "name": "save", "arguments": {}, "_meta": meta })).await;
    }
    for (action, is_done) in [("decline", false), ("accept", true)] {
        let mut call = json!({ "name": "restore", "arguments": { "to": "@-" }, "_meta": meta });
        let asked = agent.request("tools/call", call.clone()).await["result"].clone();
        assert_eq!(
            (&asked["resultType"], agent.notes().as_str()),
            (&json!("input_required"), "new words\n"),
            "{asked}"
        );
        assert!(asked["inputRequests"]["confirm"].to_string().contains("notes.txt"), "{asked}");
        call["requestState"] = asked["requestState"].clone();
        call["inputResponses"] = json!({ "confirm": { "action": action, "content": { "do_it": true } } });
        let said = agent.request("tools/call", call.clone()).await;
        assert_eq!(agent.notes(), if is_done { "old words\n" } else { "new words\n" }, "{said}");
        // An answer counts once.
        let again = agent.request("tools/call", call).await;
        assert!(!is_done || again["result"]["isError"] == true, "{again}");
    }
    agent.leave().await;
}

#[tokio::test]
async fn a_role_has_its_tools_and_no_others() {
    let mut agent = Agent::new(Role::Look, None).await;
    let tools = agent.request("tools/list", json!({})).await;
    let names: Vec<_> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"status") && !names.contains(&"save"), "{names:?}");
    for hidden in ["save", "undo", "answer", "execute", "no_such_tool", ""] {
        let said = agent.request("tools/call", json!({ "name": hidden, "arguments": {} })).await;
        assert!(said["error"].is_object(), "{hidden}: {said}");
    }
    agent.leave().await;
}

/// Promise 26: an agent sends what it reads to a model.
#[tokio::test]
async fn no_tool_gives_a_secret() {
    let mut agent = Agent::new(Role::Operate, None).await;
    let (token, password) = ("ghp_0123456789abcdefghijklmnopqrstuvwxyzAB", "correct-horse-battery");
    agent.two_checkpoints().await;
    std::fs::write(agent.file(".env"), format!("DB_PASSWORD={password}\n")).unwrap();
    std::fs::write(agent.file("notes.txt"), format!("the token is {token}\n")).unwrap();
    agent.tool("save", json!({})).await;
    let shown = [
        agent.tool("diff", json!({ "from": "@-", "to": "@", "lines": true })).await,
        agent.tool("show", json!({ "ref": "@:.env" })).await,
        agent.tool("show", json!({ "ref": "@:notes.txt" })).await,
        agent.tool("show", json!({ "ref": "@" })).await,
        agent.tool("restore", json!({ "to": "@-" })).await,
    ];
    for shown in &shown {
        let text = shown.to_string();
        assert!(!text.contains(token) && !text.contains(password), "{text}");
    }
    assert!(shown[0].to_string().contains("the token is "), "the rest of the line is there: {}", shown[0]);
    assert!(shown[1]["withheld"].is_string(), "{}", shown[1]);
    let (plan, path) = (shown[4]["id"].clone(), json!(".env"));
    let diff = agent.tool("plan_diff", json!({ "id": plan, "path": path })).await;
    assert!(!diff.to_string().contains(password), "{diff}");
    // The control: it is there, for the user.
    assert!(std::fs::read_to_string(agent.file(".env")).unwrap().contains(password));
    agent.leave().await;
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    let mut agent = Agent::new(Role::Operate, None).await;
    agent.two_checkpoints().await;
    for (tool, arguments, field) in [
        ("show", json!({}), "ref"),
        ("show", json!({ "ref": { "a": 1 } }), "ref"),
        ("list_runs", json!({ "limit": 100_000 }), "limit"),
        ("list_runs", json!({ "colour": "red" }), "colour"),
        ("save", json!({ "mesage": "x" }), "mesage"),
        ("answer", json!({ "answer": {} }), "run"),
        ("restore", json!({}), "to"),
    ] {
        assert_eq!(agent.refused(tool, arguments.clone()).await["field"], field, "{tool} {arguments}");
    }
    // What is no call at all ends nothing.
    agent.send(&json!({ "jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": [1, 2] })).await;
    agent.writes.write_all(b"{not json\n").await.unwrap();
    agent.tool("status", json!({})).await;
    agent.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_come_over_http_by_the_same_door() {
    let world = World::new().await;
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    } });
    let accepted = "application/json, text/event-stream";
    let (status, problem) = said(sending(world.bare(Method::POST, "/mcp").header("accept", accepted), &hello)).await;
    assert_eq!((status, &problem["kind"]), (401, &json!("unauthenticated")));
    let foreign =
        world.by(OPERATE, Method::POST, "/mcp").header("accept", accepted).header("origin", "http://evil.example");
    assert_eq!(said(sending(foreign, &hello)).await.0, 403);
    let other =
        world.raw(b"POST /mcp HTTP/1.1\r\nhost: evil.example\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    assert!(other.starts_with("HTTP/1.1 421"), "{other}");

    std::fs::write(world.work().join("a.txt"), "a\n").unwrap();
    for role in [LOOK, ANSWER, OPERATE] {
        let answer =
            sending(world.by(role, Method::POST, "/mcp").header("accept", accepted), &hello).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let session = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let call = |by: usize, body: &Json| {
            let request = world.by(by, Method::POST, "/mcp").header("accept", accepted);
            let request = request.header("mcp-session-id", &session).header("mcp-protocol-version", "2025-06-18");
            sending(request, body)
        };
        call(role, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).send().await.unwrap();
        let save =
            json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "save", "arguments": {} } });
        let text = call(role, &save).send().await.unwrap().text().await.unwrap();
        assert_eq!(text.contains("\"isError\":false"), role == OPERATE, "{text}");
        // A session isn't a right: each request has its own.
        let text = call(LOOK, &save).send().await.unwrap().text().await.unwrap();
        assert!(text.contains("no such tool"), "{text}");
    }
}

fn find(folder: &std::path::Path, name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    entries.into_iter().find_map(|path| if path.ends_with(name) { Some(path) } else { find(&path, name) })
}
