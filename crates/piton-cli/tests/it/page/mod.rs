//! The page of `piton serve` in a real headless Chromium, against a real server: what it shows, and each act that it has,
//! over a store in SQLite and over one in PostgreSQL. `driver` speaks to the browser, `site` starts the server.

/// Stamps a test for each store out of functions that take a world.
macro_rules! on_each_store {
    ($($name:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[test] fn $name() { super::$name(&crate::world::World::new()); })*
        }
        mod on_postgresql {
            use crate::postgres::{SERVER, name};
            $(#[test] fn $name() { super::$name(&crate::world::World::on(&SERVER.url(&name()))); })*
        }
    };
}

/// Stamps tests in which the server is killed and started again under the open page before anything is done there.
macro_rules! over_a_killed_server {
    ($($name:ident),* $(,)?) => {
        mod over_a_killed_server {
            $(#[test] fn $name() {
                crate::page::site::kill_under_the_page();
                super::$name(&crate::world::World::new());
            })*
        }
    };
}

mod debug;
mod driver;
mod files;
mod look;
mod pictures;
mod run;
mod site;
mod steer;
mod store;

use crate::world::{World, wait_until};

/// A question with a form, and a command behind it.
const ASKS: &str = r"
nodes:
  - {id: in, data: {type: start, title: Begin, variables: [{variable: name, required: true}]}}
  - {id: review, data: {type: human-input, title: Approve the refund, prompt: 'Refund {{#in.name#}}?', variables: [{variable: approved, type: boolean, required: true}, {variable: amount, type: number, required: true}]}}
  - {id: pay, data: {type: command, title: Pay, command: [sh, -c, 'echo paid $0 >> paid; echo $0', '{{#review.amount#}}']}}
  - {id: out, data: {type: end, title: Done, outputs: [{variable: amount, value_selector: [review, amount]}]}}
edges:
  - {source: in, target: review}
  - {source: review, target: pay}
  - {source: pay, target: out}
";

/// The second command fails until there is a file `ready`; the first leaves a line for each time it ran.
const FLAKY: &str = r"
nodes:
  - {id: in, data: {type: start, title: Begin, variables: [{variable: name, required: true}]}}
  - {id: fetch, data: {type: command, title: Fetch, checkpoint: true, command: [sh, -c, 'echo $0 >> calls; echo hello $0', '{{#in.name#}}']}}
  - {id: check, data: {type: command, title: Check, command: [test, -e, ready]}}
  - {id: out, data: {type: end, title: Done, outputs: [{variable: greeting, value_selector: [fetch, stdout]}]}}
edges:
  - {source: in, target: fetch}
  - {source: fetch, target: check}
  - {source: check, target: out}
";

/// A command that says that it runs, and ends when there is a file `go`.
const SLOW: &str = r"
nodes:
  - {id: in, data: {type: start, title: Begin}}
  - {id: wait, data: {type: command, title: Wait for it, command: [sh, -c, 'echo x >> begun; while ! test -e go; do sleep 0.05; done']}}
  - {id: more, data: {type: command, title: More, command: [sh, -c, 'echo x >> more; cat more']}}
  - {id: out, data: {type: end, title: Done, outputs: [{variable: said, value_selector: [more, stdout]}]}}
edges:
  - {source: in, target: wait}
  - {source: wait, target: more}
  - {source: more, target: out}
";

/// Gives a world a run of each kind of trouble: `good` completed, `bad` failed, `asks` waits, `dead` was killed.
fn troubled(world: &World) {
    world.write("flaky.yml", FLAKY);
    world.write("asks.yml", ASKS);
    world.write("slow.yml", SLOW);
    assert_eq!(world.piton(["run", "flaky.yml", "-i", "name=Ada", "--id", "bad"]).code, Some(1));
    world.write("ready", "");
    assert_eq!(world.piton(["run", "flaky.yml", "-i", "name=Bob", "--id", "good"]).code, Some(0));
    assert_eq!(world.piton(["run", "asks.yml", "-i", "name=Eve", "--id", "asks"]).code, Some(3));
    let mut dead = world.command(["run", "slow.yml", "--id", "dead"]).spawn().unwrap();
    wait_until(|| world.lines("begun") == ["x"]);
    dead.kill().unwrap();
    dead.wait().unwrap();
}
