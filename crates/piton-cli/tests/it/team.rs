//! Workers on several machines that have nothing in common but a store in PostgreSQL (promises 30, 31 and 32): each has a home, a
//! folder and a host name of its own, so that no process can find out whether another one lives but by the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

use piton_flow::{FlowOptions, StartFlow, create_durable};
use piton_runtime::{Context, Submission, submit};
use piton_store::Store;
use piton_store_postgres::{PostgresStore, PostgresUrl};
use piton_testing::SeededRandom;
use piton_testing::level::by_level;
use piton_testing::postgres::Server;
use piton_types::{RunId, Value};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;

use crate::postgres::{SERVER, name, with_store};
use crate::world::{BINARY, World, wait_until};

/// Says outside that it began, waits there for a file of its name, and counts that it ended.
const WAITS: &str = r#"
nodes:
  - {id: in, data: {type: start, variables: [{variable: name, required: true}, {variable: outside, required: true}]}}
  - {id: work, data: {type: command, command: [sh, -c, 'cd "$1"; echo "$0" >> begun; while ! test -e "go-$0"; do sleep 0.05; done; echo "$0" >> counted', '{{#in.name#}}', '{{#in.outside#}}']}}
  - {id: out, data: {type: end}}
edges: [{source: in, target: work}, {source: work, target: out}]
"#;

/// Three steps that each leave their key outside.
const THREE: &str = r#"
nodes:
  - {id: in, data: {type: start, variables: [{variable: outside, required: true}]}}
  - {id: one, data: {type: command, command: [sh, -c, 'echo "$PITON_IDEMPOTENCY_KEY" >> "$0/counted"', '{{#in.outside#}}']}}
  - {id: two, data: {type: command, command: [sh, -c, 'echo "$PITON_IDEMPOTENCY_KEY" >> "$0/counted"', '{{#in.outside#}}']}}
  - {id: three, data: {type: command, command: [sh, -c, 'echo "$PITON_IDEMPOTENCY_KEY" >> "$0/counted"', '{{#in.outside#}}']}}
  - {id: out, data: {type: end}}
edges: [{source: in, target: one}, {source: one, target: two}, {source: two, target: three}, {source: three, target: out}]
"#;

/// A machine with a name of its own.
pub(crate) struct Machine {
    world: World,
    host: String,
    url: String,
}

impl Machine {
    pub(crate) fn new(host: &str, url: &str) -> Self {
        Self { world: World::new(), host: host.to_owned(), url: url.to_owned() }
    }

    /// A worker on it.
    pub(crate) fn worker(&self, arguments: &[&str]) -> Child {
        let line = format!("hostname {} && exec \"$0\" --quiet worker run \"$@\"", self.host);
        let own_name = ["-r", "-u", "sh", "-c", line.as_str(), BINARY];
        let mut command: Command = self.world.program("unshare", [&own_name[..], arguments].concat());
        command.env("PITON_STORE", &self.url).spawn().unwrap()
    }

    fn piton(&self, arguments: &[&str]) -> crate::world::Said {
        let said = with_store(&self.world, &self.url, arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.whole());
        said
    }

    fn status(&self, run: &str) -> String {
        self.piton(&["show", run, "--json"]).json()["status"].as_str().unwrap().to_owned()
    }

    fn submit(&self, document: &str, inputs: &[&str]) -> String {
        let mut arguments = vec!["submit", document, "--json"];
        inputs.iter().for_each(|input| arguments.extend(["-i", *input]));
        self.piton(&arguments).json()["run"].as_str().unwrap().to_owned()
    }
}

/// The world outside of all machines.
pub(crate) struct Outside(tempfile::TempDir);

impl Outside {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn input(&self) -> String {
        format!("outside={}", self.path().display())
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn allow(&self, name: &str) {
        std::fs::write(self.path().join(format!("go-{name}")), "").unwrap();
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Promises 30 and 31: a worker that is killed, and one that is frozen past its hold, lose their runs to one on another machine,
/// without a person. The frozen one writes nothing when it goes on, and works on with what it takes afterwards.
#[test]
fn what_dead_and_frozen_workers_held_goes_on_on_another_machine() {
    let url = SERVER.url(&name());
    let (first, second) = (Machine::new("first-host", &url), Machine::new("second-host", &url));
    let outside = Outside::new();
    first.world.write("flow.yml", WAITS);
    let run = first.submit("flow.yml", &["name=a", &outside.input()]);
    let mut killed = first.worker(&["--name", "killed", "--hold", "2"]);
    wait_until(|| outside.lines("begun") == ["a"]);
    killed.kill().unwrap();
    killed.wait().unwrap();

    let frozen = second.worker(&["--name", "frozen", "--hold", "2"]);
    wait_until(|| outside.lines("begun").len() == 2);
    let listed = first.piton(&["ls", "--json"]).json();
    assert_eq!((&listed["queue"]["worker"], listed["queue"]["attempts"].as_u64()), (&Json::from("frozen"), Some(2)));
    signal(&frozen, Signal::STOP);
    let last = first.worker(&["--name", "last", "--hold", "2"]);
    wait_until(|| outside.lines("begun").len() == 3);
    outside.allow("a");
    wait_until(|| first.status(&run) == "completed");
    let before = first.piton(&["log", &run, "--json"]).stdout;
    signal(&frozen, Signal::CONT);

    // It takes what comes next: the other one is gone by then.
    assert_eq!(first.piton(&["worker", "drain", "last"]).code, Some(0));
    assert_eq!(first.world.wait(last).code, Some(0));
    outside.allow("b");
    let next = first.submit("flow.yml", &["name=b", &outside.input()]);
    wait_until(|| first.status(&next) == "completed");
    assert_eq!(first.piton(&["worker", "drain", "frozen"]).code, Some(0));
    let said = second.world.wait(frozen);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    assert_eq!(first.piton(&["log", &run, "--json"]).stdout, before, "the frozen worker wrote nothing");
    assert!(!first.piton(&["ls", "--json"]).stdout.contains("\"queue\""), "nothing is left in the queue");
    first.piton(&["check"]);
}

/// A run that is driven outside of all queues is no worker's to take, however long it takes.
#[test]
fn a_run_that_a_person_drives_is_left_to_them() {
    let url = SERVER.url(&name());
    let machine = Machine::new("worker-host", &url);
    let outside = Outside::new();
    machine.world.write("flow.yml", WAITS);
    let run = machine.submit("flow.yml", &["name=a", &outside.input()]);
    let mut command = machine.world.command(["resume", &run]);
    let person = command.env("PITON_STORE", &url).spawn().unwrap();
    wait_until(|| outside.lines("begun") == ["a"]);
    let worker = machine.worker(&["--name", "w", "--hold", "1"]);
    wait_until(|| machine.piton(&["worker", "ls", "--json"]).stdout.contains("\"name\":\"w\""));
    // It looks at the run again and again, and gives it back.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(outside.lines("begun"), ["a"]);
    outside.allow("a");
    assert_eq!(machine.world.wait(person).code, Some(0));
    assert_eq!(machine.piton(&["worker", "drain", "w"]).code, Some(0));
    assert_eq!(machine.world.wait(worker).code, Some(0));
    assert_eq!((machine.status(&run), outside.lines("counted")), ("completed".to_owned(), vec!["a".to_owned()]));
}

/// What the campaign counts.
#[derive(Debug, Default)]
struct Counts {
    kills: usize,
    stops: usize,
    restarts: usize,
    again: usize,
}

/// Workers on two machines are killed and frozen at random, PostgreSQL is killed and restarted, and all
/// runs end: every step is counted outside, one that finished never again, and nothing is left over. 12 runs; 10,000 with
/// PITON_TEST=full, or as many as PITON_RUNS says.
#[test]
fn runs_end_whatever_happens_to_workers_and_the_server() {
    let asked = std::env::var("PITON_RUNS").ok().and_then(|text| text.parse().ok());
    let runs: usize = asked.unwrap_or_else(|| by_level(8, 12, 10_000));
    let seed = 26;
    let (server, schema, outside) = (Server::start(), "team", Outside::new());
    let url = server.url(schema);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ids: Vec<RunId> = runtime.block_on(submit_many(&url, 0..runs, outside.path()));

    let machines = [Machine::new("left-host", &url), Machine::new("right-host", &url)];
    let concurrency = if runs > 100 { "4" } else { "2" };
    let begin = |place: usize, number: usize| {
        let name = format!("w{number}");
        machines[place % 2].worker(&["--name", &name, "--hold", "3", "--concurrency", concurrency])
    };
    let mut workers: Vec<Child> = (0..4).map(|place| begin(place, place)).collect();
    let (random, mut counts, mut number) = (SeededRandom::new(seed), Counts::default(), workers.len());
    let done = || outside.lines("counted").into_iter().collect::<BTreeSet<_>>().len();
    // Each fault waits until some more steps are counted, so that work goes on between them.
    let faults = by_level(4, 6, 300).min(runs);
    for fault in 0..faults {
        let goal = (fault + 1) * runs * 3 / (faults + 2);
        wait_until_late(|| done() >= goal);
        let place = random.below(workers.len());
        match fault % 3 {
            0 => {
                workers[place].kill().unwrap();
                workers[place].wait().unwrap();
                workers[place] = begin(place, number);
                number += 1;
                counts.kills += 1;
            }
            1 => {
                signal(&workers[place], Signal::STOP);
                std::thread::sleep(std::time::Duration::from_secs(4));
                signal(&workers[place], Signal::CONT);
                counts.stops += 1;
            }
            _ => {
                server.kill();
                server.go();
                counts.restarts += 1;
            }
        }
    }
    let left =
        format!("SELECT (SELECT count(*) FROM {schema}.run WHERE status <> 4) + (SELECT count(*) FROM {schema}.queue)");
    let open = || server.sql(&left);
    wait_until_late(|| done() == runs * 3 && open() == "0");
    for (place, worker) in workers.into_iter().enumerate() {
        signal(&worker, Signal::TERM);
        let said = machines[place % 2].world.wait(worker);
        assert!(said.code.is_some(), "{}", said.whole());
    }

    let counted = outside.lines("counted");
    let mut each: BTreeMap<&str, usize> = BTreeMap::new();
    counted.iter().for_each(|key| *each.entry(key).or_default() += 1);
    counts.again = counted.len() - each.len();
    println!("{runs} runs of three steps, seed {seed}: {counts:?}");
    assert_eq!(each.len(), runs * 3, "each step was counted");
    // Only what was in flight when a worker was killed, frozen or cut off may have run again.
    let in_flight = (counts.kills + counts.stops + counts.restarts * 4) * concurrency.parse::<usize>().unwrap();
    assert!(counts.again <= in_flight, "{counts:?}, and at most {in_flight} were in flight");
    for id in ids.iter().step_by((runs / 12).max(1)) {
        assert_eq!(machines[0].status(id.as_str()), "completed");
    }
    machines[0].piton(&["check"]);
    assert_eq!(
        machines[0]
            .piton(&["worker", "ls", "--json"])
            .stdout
            .lines()
            .filter(|line| line.contains("\"runs\":0"))
            .count(),
        machines[0].piton(&["worker", "ls", "--json"]).stdout.lines().count(),
        "no worker holds anything"
    );
}

/// Submits runs of three steps with these numbers, as a program does that submits many.
pub(crate) async fn submit_many(url: &str, numbers: std::ops::Range<usize>, outside: &Path) -> Vec<RunId> {
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(PostgresUrl::parse(url).unwrap(), true).await.unwrap());
    let context = Context::system(store);
    let outside: PathBuf = outside.to_owned();
    let mut ids = Vec::new();
    for n in numbers {
        let start = StartFlow {
            config: None,
            priority: 0,
            estimated_complexity: None,
            document: THREE.to_owned(),
            format: piton_flow::Format::Yaml,
            inputs: [("outside".to_owned(), Value::from(outside.to_str().unwrap()))].into(),
            system: BTreeMap::new(),
            conversation: BTreeMap::new(),
            id: Some(format!("run-{n}").parse().unwrap()),
            name: "three steps".to_owned(),
            folder: None,
            labels: BTreeSet::new(),
            options: FlowOptions::default(),
        };
        let id = create_durable(&context, start, None).await.unwrap();
        submit(&context, &id, Submission::default()).await.unwrap();
        ids.push(id);
    }
    ids
}

/// Waits for something that may take an hour if there is much to do.
fn wait_until_late(mut done: impl FnMut() -> bool) {
    for _ in 0..36_000 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("it never happened");
}
