//! Several agents in several processes, killed at any moment: no write is lost silently. W9, W10.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use piton_runtime::Context;
use piton_store_objects::ObjectStore;
use piton_testing::process::Running;
use piton_types::Holder;
use piton_workspace::{ReserveMode, Take, Workspace, WorkspaceOptions, WriteError};

use crate::merging::{Dice, full};
use crate::reservations::path;
use crate::world::World;

/// How many agents there are in a schedule.
const AGENTS: usize = 3;
/// How many lines each wants to write.
const LINES: usize = 4;

fn holder() -> Holder {
    Holder { host: "here".into(), boot: "first".into(), pid: std::process::id(), started: 0 }
}

/// Whether a process is gone, or about to be buried.
fn is_dead(holder: &Holder) -> bool {
    match std::fs::read_to_string(format!("/proc/{}/stat", holder.pid)) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    }
}

/// The agent itself; started by the test below, in a process of its own. Adds lines to the two files, sometimes
/// with a reservation and sometimes without, and prints each line once its write is acknowledged.
#[test]
fn an_agent_of_a_schedule() {
    let Ok(folder) = std::env::var("PITON_AGENT") else { return };
    let (seed, name) = (std::env::var("PITON_SEED").unwrap(), std::env::var("PITON_NAME").unwrap());
    let broken = std::env::var("PITON_BROKEN").is_ok();
    let folder = std::path::PathBuf::from(folder);
    let options = WorkspaceOptions { state: folder.join("state"), ..WorkspaceOptions::default() };
    let context = Context { holder: holder(), ..Context::system(Arc::new(ObjectStore::in_memory())) };
    let workspace = Workspace::open(&context, &folder.join("work"), options).unwrap();
    let dice = Dice::new(seed.parse::<u64>().unwrap() ^ blake3::hash(name.as_bytes()).as_bytes()[0] as u64);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let book = workspace.reservations(Arc::new(is_dead));
        for number in 0..LINES {
            let file = path(["one", "two"][dice.below(2)]);
            let line = format!("{name}-{number}\n");
            if broken {
                // The negative control: read, then write, without a check.
                let target = folder.join("work").join(file.as_path());
                let text = std::fs::read_to_string(&target).unwrap();
                std::thread::sleep(Duration::from_millis(1));
                std::fs::write(&target, text + &line).unwrap();
                println!("\nwrote {file} {name}-{number}");
                continue;
            }
            let mut lock = workspace.optimistic();
            let mut held = Vec::new();
            if dice.below(2) == 0 {
                let how = Take {
                    wait: Duration::from_secs(20),
                    holder: Some(holder()),
                    lasting: Duration::from_secs(20),
                    owner: name.clone(),
                };
                held = book.take(&[(file.clone(), ReserveMode::Write)], &how).await.unwrap();
                lock = lock.by(&book, &held[0]);
            }
            let mut version = lock.acquire(&file).await.unwrap();
            let mut text = [&version.content[..], line.as_bytes()].concat();
            loop {
                match lock.check_and_commit(&version, text.clone()).await {
                    Ok(_) => break,
                    Err(WriteError::Conflict { conflict }) => {
                        version = conflict.current;
                        text = [&version.content[..], line.as_bytes()].concat();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            println!("\nwrote {file} {name}-{number}");
            book.give_back(&held).await.unwrap();
        }
    });
}

/// Runs one schedule, and gives the lines that were acknowledged and those that are there.
fn schedule(seed: u64, broken: bool) -> (BTreeSet<String>, BTreeSet<String>, usize) {
    let world = World::new();
    world.write("one", "");
    world.write("two", "");
    let dice = Dice::new(seed);
    let mut agents: Vec<Running> = (0..AGENTS)
        .map(|agent| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "agents::an_agent_of_a_schedule", "--nocapture", "--test-threads=1"])
                .env("PITON_AGENT", world.scratch.path())
                .env("PITON_SEED", seed.to_string())
                .env("PITON_NAME", format!("agent{agent}"));
            if broken {
                command.env("PITON_BROKEN", "1");
            }
            Running::spawn(&mut command)
        })
        .collect();
    let victim = dice.below(AGENTS);
    let mut killed = 0;
    if !broken {
        std::thread::sleep(Duration::from_micros(3_000 + dice.below(15_000) as u64));
        agents[victim].kill();
    }
    let mut said = BTreeSet::new();
    for (agent, running) in agents.drain(..).enumerate() {
        let finished = running.wait(Duration::from_secs(60));
        if finished.killed() {
            killed += 1;
        } else {
            assert!(finished.success(), "seed {seed}, agent {agent}: {}{}", finished.stdout, finished.stderr);
        }
        said.extend(
            finished.lines().iter().filter_map(|line| line.strip_prefix("wrote ")).map(|line| line.replace(' ', "/")),
        );
    }
    let there = ["one", "two"]
        .into_iter()
        .flat_map(|file| world.read(file).lines().map(|line| format!("{file}/{line}")).collect::<Vec<_>>());
    let there: Vec<String> = there.collect();
    let distinct: BTreeSet<String> = there.iter().cloned().collect();
    assert_eq!(there.len(), distinct.len(), "seed {seed}: a line is there twice");
    (said, distinct, killed)
}

/// Every line whose write was acknowledged is there, once, whichever agent was killed at whatever moment; and an agent
/// that wasn't killed got all of its lines in. The book of reservations can be read afterwards, and the dead hold
/// nothing.
#[test]
fn random_schedules_of_agents_with_kills_lose_no_write() {
    let seeds = if full() { 2_000 } else { 300 };
    let (mut killed, mut acknowledged, mut unsaid) = (0, 0, 0);
    for seed in 0..seeds {
        let (said, there, dead) = schedule(seed, false);
        let lost: Vec<_> = said.difference(&there).collect();
        assert!(lost.is_empty(), "seed {seed}: {lost:?} were acknowledged and are gone");
        // A write may be there that its killed writer could not acknowledge any more: at most one each.
        assert!(there.len() - said.len() <= dead, "seed {seed}");
        assert!(said.len() >= (AGENTS - dead) * LINES, "seed {seed}: {said:?}");
        killed += dead;
        acknowledged += said.len();
        unsaid += there.len() - said.len();
    }
    println!(
        "{seeds} schedules, {killed} killed, {acknowledged} writes acknowledged, {unsaid} there that no longer could be"
    );
    assert!(killed * 4 > usize::try_from(seeds).unwrap(), "{killed} of {seeds} were killed in time: no test");
}

/// The negative control: without the check, the same schedules lose writes, and are seen to.
#[test]
fn writes_without_a_check_are_seen_to_be_lost() {
    let lost = (0..20).any(|seed| {
        let (said, there, _) = schedule(seed, true);
        !said.is_subset(&there)
    });
    assert!(lost);
}
