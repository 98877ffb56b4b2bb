//! The README's first minute, as a newcomer types it, killed in between.

use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use crate::world::{BINARY, Said, World};

const README: &str = include_str!("../../../../README.md");

/// The commands of the console block: each begins at a prompt and has the lines up to the next.
fn commands() -> Vec<String> {
    let (_, chapter) = README.split_once("## A durable workflow").unwrap();
    let (_, block) = chapter.split_once("```console\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let commands = format!("\n{block}");
    // The one change is what a test has no time for: building, and sleeping for long.
    commands
        .split("\n$ ")
        .skip(1)
        .map(|command| {
            command.replace("cargo run --release --", &format!("exec {BINARY}")).replace("sleep 5", "sleep 1")
        })
        .collect()
}

fn shell(world: &World, command: &str) -> Said {
    world.wait(world.program("sh", ["-c", command]).spawn().unwrap())
}

/// How often `fetch` really ran.
fn calls(world: &World) -> usize {
    std::fs::read_to_string(world.work().join("calls")).unwrap_or_default().lines().count()
}

/// Runs the commands; `kill_at` kills the first run once it has said that.
fn follow(kill_at: Option<&str>) -> World {
    let world = World::new();
    let commands = commands();
    let [write, run, resume, look @ ..] = &commands[..] else { panic!("{commands:?}") };
    assert!(write.contains("checkpoint: true") && run.contains(" run ") && resume.contains(" resume "));
    assert_eq!(shell(&world, write).code, Some(0));
    if let Some(moment) = kill_at {
        let mut child = world.program("sh", ["-c", run]).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(said.any(|line| line == moment), "it never said {moment:?}");
        let patience = Instant::now() + Duration::from_secs(10);
        while calls(&world) == 0 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    } else {
        let said = shell(&world, run);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    }
    let said = shell(&world, resume);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains(r#""report": "Report: facts on bees\n""#), "{}", said.stdout);

    let looked: Vec<_> = look.iter().map(|command| shell(&world, command)).collect();
    for said in &looked {
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    }
    let [log, show] = &looked[..] else { panic!("{look:?}") };
    let fetched = log.stdout.lines().filter(|line| line.ends_with(" fetch")).count();
    assert_eq!(fetched, 1, "{}", log.stdout);
    for known in [r#""stdout": "facts on bees\n""#, r#""topic": "bees""#] {
        assert!(show.stdout.contains(known), "{}", show.stdout);
    }
    world
}

#[test]
fn the_first_minute_works() {
    let world = follow(None);
    assert_eq!(calls(&world), 1);
    let mut left: Vec<_> = std::fs::read_dir(world.work())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["calls", "pipeline.yml"], "the store is outside the folder");
}

#[test]
fn killed_while_the_command_runs_it_runs_that_again() {
    assert_eq!(calls(&follow(Some("Fetch: started"))), 2);
}

#[test]
fn killed_after_the_command_it_does_not_run_that_again() {
    assert_eq!(calls(&follow(Some("Fetch: finished"))), 1);
}
