//! `submit` and `worker`: runs that wait in the queue of a store, and the workers that drive them (promises 11 and 31).

use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use piton_runtime::retention::set_rules;
use piton_store::{Store, WorkerInfo};
use piton_store_postgres::{PostgresStore, PostgresUrl};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::Retention;
use serde_json::Value as Json;

use crate::postgres::{SERVER, name};
use crate::world::{World, wait_until};

/// Says outside that it began, waits there for a file of its name, and counts that it ended.
const FLOW: &str = r#"
nodes:
  - {id: in, data: {type: start, variables: [{variable: name, required: true}]}}
  - {id: work, data: {type: command, command: [sh, -c, 'echo "$0" >> begun; while ! test -e "go-$0"; do sleep 0.05; done; echo "$0" >> counted', '{{#in.name#}}']}}
  - {id: out, data: {type: end, outputs: [{variable: said, value_selector: [in, name]}]}}
edges: [{source: in, target: work}, {source: work, target: out}]
"#;

/// Each of these is a test on SQLite and one on PostgreSQL.
macro_rules! on_each_store {
    ($($test:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[test]
            fn $test() {
                super::$test(&super::World::new());
            })*
        }

        mod on_postgresql {
            $(#[test]
            fn $test() {
                super::$test(&super::World::on(&super::SERVER.url(&super::name())));
            })*
        }
    };
}

on_each_store! {
    workers_drive_what_is_queued_once,
    a_run_whose_worker_was_killed_goes_on,
    a_worker_that_drains_hands_its_runs_on,
    a_worker_that_is_terminated_ends_in_peace,
    a_key_is_one_run_and_an_answer_wakes_it,
    what_fails_too_often_waits_for_a_person,
    a_schedule_goes_on_until_its_next_run_is_cancelled,
    what_no_worker_can_drive_is_among_those_that_failed,
    an_idle_worker_keeps_house,
    a_command_leaves_the_house_to_a_worker,
}

fn submit(world: &World, name: &str, more: &[&str]) -> String {
    let input = format!("name={name}");
    let said = world.piton([&["submit", "flow.yml", "--json", "-i", &input], more].concat());
    assert_eq!(said.code, Some(0), "{}", said.whole());
    said.json()["run"].as_str().unwrap().to_owned()
}

fn worker(world: &World, more: &[&str]) -> Child {
    world.command([&["worker", "run", "--hold", "2"], more].concat()).spawn().unwrap()
}

fn status(world: &World, run: &str) -> String {
    let shown = world.piton(["show", run, "--json"]).json();
    shown["status"].as_str().unwrap().to_owned()
}

/// Everything that is queued is driven once, by the worker that has what it asks for.
fn workers_drive_what_is_queued_once(world: &World) {
    world.write("flow.yml", FLOW);
    let runs: Vec<String> = (0..6).map(|n| submit(world, &format!("n{n}"), &[])).collect();
    let special = submit(world, "special", &["--label", "gpu"]);
    (0..6).for_each(|n| world.write(&format!("go-n{n}"), ""));
    world.write("go-special", "");
    let workers = [worker(world, &["--until-empty"]), worker(world, &["--until-empty", "--concurrency", "2"])];
    for worker in workers {
        let said = world.wait(worker);
        assert_eq!(said.code, Some(0), "{}", said.whole());
    }
    assert!(runs.iter().all(|run| status(world, run) == "completed"));
    let mut counted = world.lines("counted");
    counted.sort_unstable();
    assert_eq!(counted, ["n0", "n1", "n2", "n3", "n4", "n5"]);
    assert_eq!(status(world, &special), "queued");
    assert_eq!(world.wait(worker(world, &["--until-empty", "--labels", "gpu,eu"])).code, Some(0));
    assert_eq!(status(world, &special), "completed");
    assert_eq!(world.piton(["worker", "ls", "--json"]).stdout, "", "who ended is gone");
}

/// Promise 31: a run whose worker was killed goes on with another one, and what had finished isn't done again.
fn a_run_whose_worker_was_killed_goes_on(world: &World) {
    world.write("flow.yml", FLOW);
    let run = submit(world, "a", &[]);
    let mut first = worker(world, &["--name", "first"]);
    wait_until(|| world.lines("begun") == ["a"]);
    let listed = world.piton(["ls", "--json"]).json();
    assert_eq!(listed["queue"]["worker"], "first", "{listed}");
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(world.lines("counted"), Vec::<String>::new());
    world.write("go-a", "");
    let said = world.wait(worker(world, &["--name", "second", "--until-empty"]));
    assert_eq!(said.code, Some(0), "{}", said.whole());
    assert_eq!(status(world, &run), "completed");
    assert_eq!(world.piton(["ls", "--json"]).json()["queue"], Json::Null);
}

/// A worker that is asked to end stops in peace, and what it had goes to another one.
fn a_worker_that_drains_hands_its_runs_on(world: &World) {
    world.write("flow.yml", FLOW);
    let run = submit(world, "a", &[]);
    let first = worker(world, &["--name", "first"]);
    wait_until(|| world.lines("begun") == ["a"]);
    let refused = world.piton(["worker", "drain", "unknown"]);
    assert_eq!(refused.code, Some(1), "{}", refused.whole());
    assert_eq!(world.piton(["worker", "drain", "first"]).code, Some(0));
    world.write("go-a", "");
    let said = world.wait(first);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    assert_eq!(world.wait(worker(world, &["--until-empty"])).code, Some(0));
    assert_eq!(status(world, &run), "completed");
    assert_eq!(world.lines("counted"), ["a"]);
}

/// SIGTERM: the step that runs is finished and counted once, nothing is taken any more, and the rest goes to another worker at once,
/// not when the hold ends.
fn a_worker_that_is_terminated_ends_in_peace(world: &World) {
    world.write("flow.yml", FLOW);
    let (run, other) = (submit(world, "a", &[]), submit(world, "b", &[]));
    let first = world.command(["worker", "run", "--hold", "600", "--name", "first"]).spawn().unwrap();
    wait_until(|| world.lines("begun") == ["a"]);
    rustix::process::kill_process(rustix::process::Pid::from_child(&first), rustix::process::Signal::TERM).unwrap();
    world.write("go-a", "");
    world.write("go-b", "");
    let said = world.wait(first);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    assert_eq!(world.lines("counted"), ["a"], "it finished what it was at, and took no more");
    assert_eq!(world.wait(worker(world, &["--until-empty"])).code, Some(0));
    assert_eq!([status(world, &run), status(world, &other)], ["completed", "completed"]);
    assert_eq!(world.lines("counted"), ["a", "b"]);
}

/// One key is one run; a question takes no worker while it waits, and its answer queues the run again.
fn a_key_is_one_run_and_an_answer_wakes_it(world: &World) {
    world.write(
        "flow.yml",
        "
nodes:
  - {id: in, data: {type: start, variables: [{variable: name, required: true}]}}
  - {id: ask, data: {type: human-input, prompt: 'Which title?', variables: [{name: title, type: string, required: true}]}}
  - {id: out, data: {type: end, outputs: [{variable: title, value_selector: [ask, title]}]}}
edges: [{source: in, target: ask}, {source: ask, target: out}]
",
    );
    let run = submit(world, "a", &["--dedupe", "tonight"]);
    assert_eq!(submit(world, "a", &["--dedupe", "tonight"]), run);
    assert_ne!(submit(world, "a", &["--dedupe", "tomorrow", "--in", "1h"]), run);
    let said = world.wait(worker(world, &["--until-empty"]));
    assert_eq!(said.code, Some(0), "{}", said.whole());
    assert_eq!(status(world, &run), "waiting");
    let waited = world.piton(["submit", "flow.yml", "-i", "name=a", "--dedupe", "tonight", "--wait"]);
    assert_eq!(waited.code, Some(3), "{}", waited.whole());
    let answered = world.piton(["answer", &run, "--set", "title=Bees"]);
    assert_eq!(answered.code, Some(0), "{}", answered.whole());
    assert_eq!(world.wait(worker(world, &["--until-empty"])).code, Some(0));
    let waited = world.piton(["submit", "flow.yml", "-i", "name=a", "--dedupe", "tonight", "--wait", "--json"]);
    assert_eq!((waited.code, &waited.json()["outputs"]["title"]), (Some(0), &Json::from("Bees")), "{}", waited.whole());
}

/// What fails is tried again after a pause; then it stays as a dead letter until a person tries it again.
fn what_fails_too_often_waits_for_a_person(world: &World) {
    world.write(
        "flow.yml",
        &FLOW.replace("echo \"$0\" >> begun; while", "echo \"$0\" >> begun; test -e fine || exit 1; while"),
    );
    world.write("go-a", "");
    let run = submit(world, "a", &[]);
    assert_eq!(world.wait(worker(world, &["--until-empty"])).code, Some(0));
    assert_eq!(world.lines("begun").len(), 4, "three retries are four attempts (R6)");
    let failed = world.piton(["ls", "--failed", "--json"]).json();
    assert_eq!((failed["run"].as_str(), failed["queue"]["due"].is_null()), (Some(&*run), true), "{failed}");
    world.write("fine", "");
    let again = world.piton(["retry", &run]);
    assert_eq!(again.code, Some(0), "{}", again.whole());
    assert_eq!(world.wait(worker(world, &["--until-empty"])).code, Some(0));
    assert_eq!(status(world, &run), "completed");
}

/// A store without a queue is said to have none, and nothing is created.
#[test]
fn a_store_without_a_queue_is_refused() {
    let world = World::new();
    world.write("flow.yml", FLOW);
    let said = world.piton(["submit", "flow.yml", "-i", "name=a", "--store", "file:store"]);
    assert_eq!(said.code, Some(1), "{}", said.whole());
    assert!(said.stderr.contains("has no queue"), "{}", said.whole());
    assert_eq!(world.piton(["ls", "--store", "file:store", "--json"]).stdout, "");
    assert_eq!(world.piton(["submit", "flow.yml", "-i", "name=a", "--limit", "x"]).code, Some(2));
}

/// A schedule is its next run: the worker that takes one creates the one after it, once; cancelling that one ends it.
fn a_schedule_goes_on_until_its_next_run_is_cancelled(world: &World) {
    world.write("flow.yml", FLOW);
    world.write("go-a", "");
    let every = ["--every", "* * * * * *"];
    let first = submit(world, "a", &every);
    let queue = world.piton(["show", &first, "--json"]);
    assert_eq!(queue.code, Some(0), "{}", queue.whole());
    // Every second: the worker finds one that is due soon until the schedule is at its end.
    let taker = worker(world, &["--name", "taker"]);
    wait_until(|| world.lines("counted").len() >= 3);
    wait_until(|| {
        let queued = world.piton(["ls", "--json"]).stdout;
        for line in queued.lines() {
            let listed: Json = serde_json::from_str(line).unwrap();
            if listed["status"] == "queued" {
                world.piton(["cancel", listed["run"].as_str().unwrap(), "--yes"]);
            }
        }
        world.piton(["ls", "--json"]).stdout.lines().all(|line| {
            let listed: Json = serde_json::from_str(line).unwrap();
            ["completed", "cancelled"].contains(&listed["status"].as_str().unwrap())
        })
    });
    assert_eq!(world.piton(["worker", "drain", "taker"]).code, Some(0));
    assert_eq!(world.wait(taker).code, Some(0));
    let (begun, counted) = (world.lines("begun").len(), world.lines("counted").len());
    assert_eq!(begun, counted, "each began once and ended");
    for wrong in ["", "61 * * * *", "hourly", "0 0 31 2 *"] {
        let said = world.piton(["submit", "flow.yml", "-i", "name=a", "--every", wrong]);
        assert_eq!(said.code, Some(2), "{wrong:?}: {}", said.whole());
    }
}

/// A run that no worker can drive is a dead letter among those that failed, and a retry brings it back.
fn what_no_worker_can_drive_is_among_those_that_failed(world: &World) {
    world.write(
        "flow.yml",
        "
nodes:
  - {id: in, data: {type: start}}
  - {id: it, data: {type: tool, mcp_server_ref: ours, tool_name: echo, arguments: {q: bees}}}
  - {id: out, data: {type: end}}
edges: [{source: in, target: it}, {source: it, target: out}]
",
    );
    world.write("piton.toml", "[mcp_servers.ours]\ncommand = 'false'\n");
    let said = world.piton(["submit", "flow.yml", "--json", "--config", "piton.toml"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let run = said.json()["run"].as_str().unwrap().to_owned();
    assert_eq!(world.wait(worker(world, &["--until-empty"])).code, Some(0));
    let failed = world.piton(["ls", "--failed", "--json"]).json();
    assert_eq!(failed["run"], run, "{failed}");
    assert!(failed["error"].as_str().unwrap().contains("ours"), "{failed}");
    let again = world.piton(["retry", &run]);
    assert_eq!(again.code, Some(0), "{}", again.whole());
    let place = world.piton(["ls", "--json"]).json();
    assert_eq!((&place["queue"]["attempts"], place["queue"]["due"].is_string()), (&Json::from(0), true), "{place}");
}

/// The store of a world as a program opens it.
async fn store_of(world: &World) -> Arc<dyn Store> {
    match world.url() {
        Some(url) => Arc::new(PostgresStore::open(PostgresUrl::parse(url).unwrap(), true).await.unwrap()),
        None => {
            let mut folders = std::fs::read_dir(world.state()).unwrap().map(|folder| folder.unwrap().path());
            let path = folders.find_map(|folder| Some(folder.join("store.db")).filter(|path| path.exists())).unwrap();
            Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
        }
    }
}

/// What needn't be kept goes though no command writes: one of the workers looks after the store, also when there is nothing to
/// drive. Without a worker it stays.
fn an_idle_worker_keeps_house(world: &World) {
    world.write("flow.yml", FLOW);
    world.write("go-a", "");
    let run = submit(world, "a", &[]);
    assert_eq!(world.wait(worker(world, &["--until-empty"])).code, Some(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = store_of(world).await;
        // Completed runs are kept for no time, and house was never kept.
        set_rules(&*store, &Retention { completed: Duration::ZERO, ..Retention::default() }).await.unwrap();
        store.set_note("retention/last", None).await.unwrap();
        store.close().await.unwrap();
    });
    assert_eq!(status(world, &run), "completed", "it is still there");
    let workers = [worker(world, &["--name", "one"]), worker(world, &["--name", "two"])];
    wait_until(|| world.piton(["ls", "--json"]).stdout.is_empty());
    assert_eq!(world.piton(["worker", "drain", "--all"]).code, Some(0));
    for worker in workers {
        let said = world.wait(worker);
        assert_eq!(said.code, Some(0), "{}", said.whole());
    }
    let checked = world.piton(["check", "--deep"]);
    assert_eq!(checked.code, Some(0), "{}", checked.whole());
}

/// A command does what is due only if there is no worker that does it: on a large store that takes long.
fn a_command_leaves_the_house_to_a_worker(world: &World) {
    world.write("flow.yml", crate::world::THREE_NODES);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let is_kept_after_a_run = |id: &str, is_there: bool| {
        runtime.block_on(async {
            let store = store_of(world).await;
            let queue = store.queue().unwrap();
            let labels = vec!["document".to_owned()];
            let info = WorkerInfo { name: "a-worker".to_owned(), labels, concurrency: 1, holder: None };
            if is_there {
                queue.alive(&info, &[], Duration::from_secs(60)).await.unwrap();
            } else {
                queue.leave(&info.name).await.unwrap();
            }
            store.set_note("retention/last", None).await.unwrap();
            store.close().await.unwrap();
        });
        let said = world.piton(["run", "flow.yml", "-i", "name=a", "--id", id]);
        assert_eq!(said.code, Some(0), "{}", said.whole());
        runtime.block_on(async {
            let store = store_of(world).await;
            let note = store.note("retention/last").await.unwrap();
            store.close().await.unwrap();
            note.is_some()
        })
    };
    assert_eq!(world.piton(["init"]).code, Some(0));
    assert!(!is_kept_after_a_run("first", true));
    assert!(is_kept_after_a_run("second", false));
}
