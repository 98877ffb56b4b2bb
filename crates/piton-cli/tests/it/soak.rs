//! Promise 29: the memory and the descriptors of processes that go on for ever stay flat, with faults among their work.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use piton_testing::level::by_level;
use piton_testing::postgres::Server as Postgres;
use serde_json::json;

use crate::serve::Server;
use crate::team::{Machine, Outside, submit_many};
use crate::world::{THREE_NODES, World, wait_until};

/// What a process holds at one moment.
#[derive(Debug, Clone, Copy)]
struct Held {
    kib: u64,
    descriptors: u64,
}

impl Held {
    fn by(process: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib = line.trim().trim_end_matches(" kB").parse().unwrap();
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count() as u64;
        Self { kib, descriptors }
    }
}

/// How a process may differ from itself: pages that its allocator hasn't given back yet, connections that are kept.
const SLACK: Held = Held { kib: 8 * 1024, descriptors: 8 };

/// What has grown: the least of the last quarter is above the most of the first half.
fn grown(rounds: &[Held]) -> Option<String> {
    let (half, last) = (rounds.len() / 2, rounds.len() - rounds.len() / 4);
    let grew = |of: fn(&Held) -> u64| {
        let before = rounds[..half].iter().map(of).max().unwrap();
        let after = rounds[last..].iter().map(of).min().unwrap();
        (after > before + of(&SLACK)).then_some((before, after))
    };
    let (memory, descriptors) = (grew(|held| held.kib), grew(|held| held.descriptors));
    (memory.is_some() || descriptors.is_some())
        .then(|| format!("KiB {memory:?}, descriptors {descriptors:?}: {rounds:?}"))
}

/// A worker does run after run while its server is killed and comes back.
#[test]
fn a_worker_stays_as_small_as_it_was() {
    let rounds = by_level(8, 8, 200);
    let (server, outside) = (Postgres::start(), Outside::new());
    let url = server.url("soak");
    let machine = Machine::new("soak-host", &url);
    let mut worker = machine.worker(&["--name", "w", "--hold", "3", "--concurrency", "4"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (each, mut held) = (12, Vec::new());
    for round in 0..rounds {
        runtime.block_on(submit_many(&url, round * each..(round + 1) * each, outside.path()));
        if round % 2 == 1 {
            server.kill();
            server.go();
        }
        wait_until(|| server.sql("SELECT count(*) FROM soak.queue") == "0");
        held.push(Held::by(worker.id()));
    }
    worker.kill().unwrap();
    worker.wait().unwrap();
    println!("{rounds} rounds of {each} runs, a restart in every other: {:?} to {:?}", held[0], held[held.len() - 1]);
    assert_eq!(grown(&held), None);
    assert_eq!(server.sql("SELECT count(*) FROM soak.run WHERE status = 4"), (rounds * each).to_string());
}

/// A server drives runs, and tells of them to clients that go away in the middle.
#[test]
fn a_server_stays_as_small_as_it_was() {
    let rounds = by_level(8, 8, 200);
    let world = World::new();
    let server = Server::start(&world, "127.0.0.1:0");
    let mut held = Vec::new();
    for round in 0..rounds {
        for n in 0..10 {
            let id = format!("r-{round}-{n}");
            let start = json!({ "document": THREE_NODES, "id": id, "inputs": { "name": "Ada" } });
            let (status, said) = server.ask("POST", "/api/runs", Some(&start));
            assert_eq!(status, 202, "{said}");
            // A client that reads nothing and goes away, and one that never sends what it announced.
            let mut gone = server.opened(&format!("GET /api/runs/{id}/events HTTP/1.1\r\nAccept: text/event-stream"));
            gone.write_all(b"\r\n\r\n").unwrap();
            let mut cut = server.opened("POST /api/runs HTTP/1.1\r\nContent-Length: 1000");
            cut.write_all(b"\r\n\r\n{").unwrap();
            wait_until(|| server.get(&format!("/api/runs/{id}"))["status"] == "completed");
            assert_eq!(server.ask("GET", "/api/runs/none", None).0, 404);
        }
        held.push(Held::by(server.process()));
    }
    println!("{rounds} rounds of 10 runs: {:?} to {:?}", held[0], held[held.len() - 1]);
    assert_eq!(grown(&held), None);
}

/// The negative control: a process that keeps a file and a little memory of each piece of work is found out.
#[test]
fn a_process_that_keeps_what_it_had_is_found_out() {
    let keep = |what: &str| {
        let line = format!("import sys\nkept = []\nfor line in sys.stdin:\n  {what}\n  print('done', flush=True)\n");
        let mut child =
            Command::new("python3").args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let held: Vec<Held> = (0..8)
            .map(|_| {
                (0..12).for_each(|_| {
                    child.stdin.as_mut().unwrap().write_all(b"work\n").unwrap();
                    assert_eq!(lines.next().unwrap().unwrap(), "done");
                });
                Held::by(child.id())
            })
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        grown(&held)
    };
    assert_eq!(keep("pass"), None);
    assert!(keep("kept.append(open('/dev/null'))").unwrap().contains("KiB None, descriptors Some"));
    assert!(keep("kept.append(b'x' * 400_000)").unwrap().contains("descriptors None"));
}

impl Server {
    /// A connection on which a request has begun, without the end of its head.
    fn opened(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.host()).unwrap();
        let (line, rest) = request.split_once("\r\n").unwrap();
        write!(stream, "{line}\r\nHost: {}\r\nAuthorization: Bearer {}\r\n{rest}", self.host(), self.token()).unwrap();
        stream
    }
}
