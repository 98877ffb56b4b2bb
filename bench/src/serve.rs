//! The server: 10,000 runs listed and a run of 10,000 steps opened over HTTP, beside a bare answer of the same bytes, and 200
//! open pages that follow one live run. The server is the `piton` that lies beside this program, in a process of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use piton_runtime::{Context, Run};
use piton_store::Store;
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::Durability;
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::measure::{Samples, ratio, report};
use crate::steps::{opening, steps};

const RUNS: usize = 10_000;
const STEPS: usize = 10_000;
const PAGES: usize = 200;
/// Entries that are written while the pages follow.
const EVENTS: usize = 30;
const ROUNDS: usize = 20;

pub(crate) async fn run(scratch: &Path) -> anyhow::Result<()> {
    let (home, work) = (scratch.join("home"), scratch.join("work"));
    std::fs::create_dir_all(&work)?;
    let file = scratch.join("runs.db");
    let store = Arc::new(SqliteStore::open(&file, SqliteOptions::default())?);
    let context = Context::system(Arc::clone(&store) as Arc<dyn Store>);
    for n in 0..RUNS {
        let mut run = Run::open(&context, opening(&format!("run-{n:05}"), Durability::Relaxed)?).await?;
        steps(&mut run, 0, 1, |_| ()).await?;
        run.complete(()).await?;
    }
    let mut long = Run::open(&context, opening("long", Durability::Relaxed)?).await?;
    steps(&mut long, 0, STEPS, |_| ()).await?;
    long.complete(()).await?;

    let server = Server::start(&file, &home, &work)?;
    report("serve: memory of the server before a request", &megabytes(server.memory()?), "");
    let first = "/api/runs?limit=50".to_owned();
    server.beside("the first 50 of 10,000 runs", &[first]).await?;
    let all = server.pages("/api/runs?limit=500", "runs", "cursor", RUNS).await?;
    server.beside("10,000 runs, all pages", &all).await?;
    let opened = ["/api/runs/long", "/api/runs/long/steps?limit=500", "/api/runs/long/log?limit=1000"];
    server.beside("a run of 10,000 steps, opened", &opened.map(str::to_owned)).await?;
    let small = ["/api/runs/run-00007", "/api/runs/run-00007/steps?limit=500", "/api/runs/run-00007/log?limit=1000"];
    server.beside("a run of one step, opened", &small.map(str::to_owned)).await?;
    let all = server.pages("/api/runs/long/steps?limit=500", "steps", "before", STEPS).await?;
    server.beside("all of 10,000 steps", &all).await?;
    report("serve: memory of the server after that", &megabytes(server.memory()?), "");
    follow(&server, &context).await?;
    Ok(store.close().await?)
}

/// Open pages that follow a run that goes on elsewhere.
async fn follow(server: &Server, context: &Context) -> anyhow::Result<()> {
    let mut run = Run::open(context, opening("live", Durability::Durable)?).await?;
    let before = (server.memory()?, server.cpu()?, Instant::now());
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut pages = Vec::new();
    for _ in 0..PAGES {
        let mut stream = server.asked("/api/runs/live/events", "text/event-stream", "keep-alive").await?;
        let tell = tell.clone();
        pages.push(tokio::spawn(async move {
            let (mut text, mut buffer) = (String::new(), vec![0; 16 << 10]);
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                text.push_str(&String::from_utf8_lossy(&buffer[..count]));
                while let Some((event, rest)) = text.split_once("\n\n") {
                    let seen = event.lines().find_map(|line| line.strip_prefix("id: ")?.parse::<u32>().ok());
                    if seen.is_some_and(|seen| tell.send((Instant::now(), seen)).is_err()) {
                        return;
                    }
                    text = rest.to_owned();
                }
            }
        }));
    }
    // Each page has what was there when it was opened.
    let mut arrived = async |seq: u32| -> anyhow::Result<(Instant, Instant)> {
        let (mut first, mut count) = (None, 0);
        loop {
            let (at, seen) = told.recv().await.context("a page was closed")?;
            if seen == seq {
                first.get_or_insert(at);
                count += 1;
                if count == PAGES {
                    return Ok((first.unwrap_or(at), at));
                }
            }
        }
    };
    let newest = async || anyhow::Ok(context.store.head(&"live".parse()?).await?.context("it is there")?.seq.0);
    arrived(newest().await?).await?;
    report("serve: 200 open pages: until all have what was there", &millis(before.2.elapsed()), "");
    let (idle, start) = (server.cpu()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let busy = (server.cpu()? - idle) / start.elapsed().as_secs_f64();
    report("serve: 200 open pages: CPU while nothing happens", &format!("{:.0} % of one", busy * 100.0), "");
    let (mut first, mut last) = <(Samples, Samples)>::default();
    for n in 0..EVENTS {
        tokio::time::sleep(Duration::from_millis(200 + (n as u64 * 37) % 200)).await;
        let start = Instant::now();
        steps(&mut run, n, n + 1, |_| ()).await?;
        let (one, all) = arrived(newest().await?).await?;
        first.0.push(one.saturating_duration_since(start));
        last.0.push(all.saturating_duration_since(start));
    }
    let millis = |micros: f64| format!("{:.0} ms", micros / 1e3);
    report("serve: 200 open pages: a step until the first has it, median", &millis(first.quantile(0.5)), "");
    report("serve: 200 open pages: a step until all have it, median", &millis(last.quantile(0.5)), "");
    report("serve: 200 open pages: a step until all have it, slowest", &millis(last.quantile(1.0)), "");
    report("serve: what limits it: how often the log is looked at", "200 ms", "");
    let more = server.memory()?.saturating_sub(before.0);
    report("serve: 200 open pages: memory of the server", &megabytes(server.memory()?), "");
    report("serve: 200 open pages: memory for each", &format!("{} KB", more / PAGES as u64 / 1000), "");
    drop(told);
    run.complete(()).await?;
    for page in pages {
        page.await?;
    }
    Ok(())
}

/// A server in a process of its own, which ends with this value.
struct Server {
    child: Child,
    address: String,
    token: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(store: &Path, home: &Path, work: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.with_file_name("piton");
        let mut command = Command::new(&program);
        let store = format!("sqlite:{}", store.canonicalize()?.display());
        command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--store", &store]);
        command.current_dir(work).env("HOME", home).env_remove("PITON_STORE").stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{} is needed", program.display()))?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().context("it is a pipe")?).read_line(&mut said)?;
        let said: Json = serde_json::from_str(&said).context("piton serve says where it listens")?;
        let text = |name: &str| said[name].as_str().map(str::to_owned).with_context(|| format!("no {name} in {said}"));
        let address = text("url")?.trim_start_matches("http://").to_owned();
        let token = std::fs::read_to_string(Path::new(&text("tokens")?).join("look.token"))?.trim().to_owned();
        Ok(Self { child, address, token })
    }

    async fn asked(&self, path: &str, accept: &str, connection: &str) -> anyhow::Result<TcpStream> {
        asked(&self.address, &self.token, path, accept, connection).await
    }

    /// The paths of all pages of a list.
    async fn pages(&self, path: &str, list: &str, cursor: &str, expected: usize) -> anyhow::Result<Vec<String>> {
        let (mut paths, mut next, mut count) = (Vec::new(), path.to_owned(), 0);
        loop {
            let (_, body) = answer(&self.address, &self.token, &next).await?;
            paths.push(next);
            let page: Json = serde_json::from_slice(&body)?;
            count += page[list].as_array().with_context(|| format!("no {list}"))?.len();
            match page["next"].as_str() {
                Some(place) => next = format!("{path}&{cursor}={}", place.replace('~', "%7E")),
                None => break,
            }
        }
        ensure!(count >= expected, "{count} of {expected}");
        Ok(paths)
    }

    /// Times some requests, one after the other, beside bare answers of the same bytes.
    async fn beside(&self, what: &str, paths: &[String]) -> anyhow::Result<()> {
        let mut bodies = Vec::new();
        for path in paths {
            bodies.push(answer(&self.address, &self.token, path).await?);
        }
        let bytes: usize = bodies.iter().map(|(_, body)| body.len()).sum();
        let bare = bare(bodies.into_iter().map(|(head, body)| [head, body].concat()).collect()).await?;
        let (mut ours, mut theirs) = <(Samples, Samples)>::default();
        let rounds = if paths.len() > 5 { ROUNDS / 4 } else { ROUNDS };
        for _ in 0..rounds {
            let start = Instant::now();
            for path in paths {
                answer(&self.address, &self.token, path).await?;
            }
            ours.0.push(start.elapsed());
            let start = Instant::now();
            for n in 0..paths.len() {
                answer(&bare, &self.token, &format!("/{n}")).await?;
            }
            theirs.0.push(start.elapsed());
        }
        let line = |more: &str| format!("serve: {what}: {more}");
        report(&line("bytes"), &format!("{} KB", bytes / 1000), "");
        report(&line("requests"), &paths.len().to_string(), "");
        report(&line("time, median"), &format!("{:.1} ms", ours.quantile(0.5) / 1e3), "");
        report(&line("time / bare answers of the same bytes"), &ratio(ours.quantile(0.5), theirs.quantile(0.5)), "");
        Ok(())
    }

    /// Bytes of memory that the server has.
    fn memory(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("the server lives")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }

    /// Seconds of CPU that it has taken.
    fn cpu(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields.iter().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap_or(0)).sum();
        Ok(ticks as f64 / 100.0)
    }
}

/// A server that answers `GET /n` with answer `n`, whatever else is asked.
async fn bare(answers: Vec<Vec<u8>>) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let answers = Arc::new(answers);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answers = Arc::clone(&answers);
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let count = stream.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..count]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let number: usize = path.trim_start_matches('/').parse().unwrap_or(0);
                // A client that goes away is none of our concern.
                let _ = stream.write_all(&answers[number]).await;
            });
        }
    });
    Ok(address)
}

async fn asked(address: &str, token: &str, path: &str, accept: &str, connection: &str) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nAccept: {accept}\r\nConnection: {connection}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// The head and the body of an answer.
async fn answer(address: &str, token: &str, path: &str) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let mut stream = asked(address, token, path, "application/json", "close").await?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await?;
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").context("an answer has a head")? + 4;
    let body = all.split_off(end);
    let head = String::from_utf8_lossy(&all).into_owned();
    ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {head}{}", String::from_utf8_lossy(&body));
    Ok((all, body))
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}
