//! `piton serve` as a process: what it shows is what the commands say, and it may be killed under an open page.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::world::{THREE_NODES, World, wait_until};

/// A server, which ends with it.
pub(crate) struct Server {
    child: Child,
    host: String,
    token: String,
}

impl Server {
    pub(crate) fn start(world: &World, listen: &str) -> Self {
        let mut child = world.command(["serve", "--listen", listen, "--json"]).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Json = serde_json::from_str(&line).unwrap();
        let host = said["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        let token = std::fs::read_to_string(world.state().join("server/operate.token")).unwrap().trim().to_owned();
        Self { child, host, token }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The token for every act.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Json>) -> (u16, Json) {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(&self.host).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.host,
            self.token,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_else(|_| body.into()))
    }

    /// What is shown.
    pub(crate) fn get(&self, path: &str) -> Json {
        let (status, said) = self.ask("GET", path, None);
        assert_eq!(status, 200, "{path}: {said}");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The views of the server are those of the commands.
#[test]
fn a_server_shows_what_the_commands_say() {
    let world = World::with_run();
    world.write("a.txt", "one\n");
    assert_eq!(world.piton(["save", "-m", "first"]).code, Some(0));
    world.write("a.txt", "two\n");
    assert_eq!(world.piton(["run", "flow.yml", "-i", "name=Bob", "--id", "second"]).code, Some(0));
    let server = Server::start(&world, "127.0.0.1:0");
    let raw = |arguments: &[&str]| -> Vec<Json> {
        let output = world.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let one = |arguments: &[&str]| raw(arguments).remove(0);
    // How long it has taken until now is another time for each look.
    let at_rest = |runs: &Json| -> Vec<Json> {
        let mut runs = runs.as_array().unwrap().clone();
        for run in runs.iter_mut().filter(|run| run["status"] == "in_progress") {
            run["duration_ms"] = json!(0);
            run["worked_ms"] = json!(0);
        }
        runs
    };
    assert_eq!(at_rest(&server.get("/api/runs")["runs"]), at_rest(&json!(raw(&["ls", "--json"]))));
    let mut shown = server.get("/api/runs/first?steps=true");
    for own in ["stalled", "driven_here", "debugged"] {
        assert_eq!(shown.as_object_mut().unwrap().remove(own), Some(json!(false)));
    }
    assert_eq!(shown, one(&["show", "first", "--steps", "--json"]));
    for reference in ["first/greet", "first@0", "first"] {
        assert_eq!(
            server.get(&format!("/api/show?ref={reference}")),
            one(&["show", reference, "--json"]),
            "{reference}"
        );
    }
    assert_eq!(server.get("/api/runs/first/log")["entries"], json!(raw(&["log", "first", "--all", "--json"])));
    assert_eq!(server.get("/api/runs/first/events")["events"], json!(raw(&["events", "first", "--json"])));
    assert_eq!(server.get("/api/diff/runs?from=first&to=second"), one(&["diff", "first", "second", "--json"]));
    assert_eq!(server.get("/api/diff/files?lines=true"), one(&["diff", "--json"]));
    let checked = server.ask("POST", "/api/documents/check", Some(&json!({ "document": THREE_NODES }))).1;
    assert_eq!(checked, one(&["validate", "flow.yml", "--json"]));
    let problem = server.ask("GET", "/api/runs/none", None);
    let said = world.piton(["show", "none", "--json"]).json();
    assert_eq!((problem.0, &problem.1["title"], &problem.1["hint"]), (404, &said["error"], &said["hint"]));
}

/// Promises 10 and 27: a server is killed while it drives a run. The run goes on in the next one, which a page that was open
/// follows behind the last event that it had.
#[test]
fn a_server_that_is_killed_strands_no_run_and_no_page() {
    let world = World::new();
    let server = Server::start(&world, "127.0.0.1:0");
    world.write("hold", "");
    let document = "nodes:\n  - {id: in, data: {type: start}}\n  - {id: first, data: {type: command, command: [sh, -c, 'echo first >> calls']}}\n  - {id: work, data: {type: command, command: [sh, -c, 'touch begun; while test -e hold; do sleep 0.05; done; echo done']}}\n  - {id: out, data: {type: end, outputs: [{variable: said, value_selector: [work, stdout]}]}}\nedges: [{source: in, target: first}, {source: first, target: work}, {source: work, target: out}]\n";
    let (status, said) = server.ask("POST", "/api/runs", Some(&json!({ "document": document, "id": "r" })));
    assert_eq!(status, 202, "{said}");
    let patience = Instant::now();
    while !world.work().join("begun").exists() {
        assert!(patience.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    let seen = server.get("/api/runs/r/events")["events"].as_array().unwrap().len() - 1;
    let host = server.host.clone();
    drop(server);
    let server = Server::start(&world, &host);
    // It goes on by itself.
    let patience = Instant::now();
    while server.get("/api/runs/r")["driven_here"] != true {
        assert!(patience.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_file(world.work().join("hold")).unwrap();
    let mut stream = TcpStream::connect(&host).unwrap();
    write!(
        stream,
        "GET /api/runs/r/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nAccept: text/event-stream\r\n\
         Last-Event-ID: {seen}\r\nConnection: close\r\n\r\n",
        server.token
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let ids: Vec<usize> = text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(ids.first(), Some(&(seen + 1)), "{text}");
    assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ids:?}");
    assert!(text.contains("event: end\ndata: {\"status\":\"completed\"}"), "{text}");
    assert_eq!(world.lines("calls"), ["first"], "what finished never runs again");
    assert_eq!(server.get("/api/runs/r")["outputs"]["said"], "done\n");
    let audit = server.get("/api/audit");
    assert_eq!((&audit["acts"][0]["act"], &audit["acts"][0]["by"]), (&json!("resume"), &json!("server")), "{audit}");
    let patience = Instant::now();
    while std::fs::read_dir(world.state().join("server/driven")).unwrap().count() > 0 {
        assert!(patience.elapsed() < Duration::from_secs(60), "what is over isn't taken up");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A run that its servers die of is not taken up for ever; one that another process drives isn't taken from it, and one
/// that was stopped in peace stays so.
#[test]
fn a_server_takes_up_what_it_may_and_not_for_ever() {
    let world = World::new();
    let marks = world.state().join("server/driven");
    let mut server = Server::start(&world, "127.0.0.1:0");
    world.write("hold", "");
    let document = "nodes:\n  - {id: in, data: {type: start}}\n  - {id: work, data: {type: command, command: [sh, -c, 'echo x >> begun; while test -e hold; do sleep 0.05; done']}}\n  - {id: out, data: {type: end, outputs: []}}\nedges: [{source: in, target: work}, {source: work, target: out}]\n";
    let (status, said) = server.ask("POST", "/api/runs", Some(&json!({ "document": document, "id": "deadly" })));
    assert_eq!(status, 202, "{said}");
    for times in 1..=4 {
        wait_until(|| world.lines("begun").len() == times);
        drop(server);
        server = Server::start(&world, "127.0.0.1:0");
    }
    wait_until(|| std::fs::read_dir(&marks).unwrap().count() == 0);
    assert_eq!(server.get("/api/runs/deadly")["stalled"], true);
    assert_eq!(world.lines("begun").len(), 4);

    let (status, said) = server.ask("POST", "/api/runs/deadly/resume", Some(&json!({})));
    assert_eq!(status, 202, "{said}");
    wait_until(|| world.lines("begun").len() == 5);
    let beside = Server::start(&world, "127.0.0.1:0");
    assert_eq!(beside.get("/api/runs/deadly")["stalled"], false, "it is the other server's");
    assert_eq!(std::fs::read_dir(&marks).unwrap().count(), 1);
    let (status, said) = server.ask("POST", "/api/runs/deadly/stop", Some(&json!({ "grace_s": 0 })));
    assert_eq!(status, 200, "{said}");
    wait_until(|| server.get("/api/runs/deadly")["status"] == "paused");
    wait_until(|| std::fs::read_dir(&marks).unwrap().count() == 0);
    assert_eq!(world.lines("begun").len(), 5);
}
