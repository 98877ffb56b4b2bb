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

/// An agent that tells its hooks of two commands, with its user typing into the same file meanwhile.
const AGENT: &str = r#"#!/bin/sh
tell() {
  hook=$(python3 -c 'import json, sys; print(json.load(open(".claude/settings.json"))["hooks"][sys.argv[1]][0]["hooks"][0]["command"])' "$1")
  fields=$(printf '{"session_id":"8c35adc1-5b7e-4a39-9f0c-2d1f6a7b8c9d","transcript_path":"/x.jsonl","cwd":"%s","permission_mode":"default","hook_event_name":"%s",%s}' "$PWD" "$1" "$2")
  printf '%s' "$fields" | CLAUDE_PROJECT_DIR="$PWD" sh -c "$hook"
}
bash() {
  call='"tool_name":"Bash","tool_use_id":"'$1'","tool_input":{"command":"'$2'"}'
  tell PreToolUse "$call"
  sh -c "$2"
  tell PostToolUse "$call,\"tool_response\":{\"success\":true}"
}
tell UserPromptSubmit "\"prompt\":\"$1\""
bash toolu_1 'sed -i s/one/ONE/ notes.md'
echo 'mine' >> notes.md
bash toolu_2 'echo made > made.md'
tell Stop '"stop_hook_active":false'
"#;

/// 'I undid one command of an agent and kept my edit', from a clone, with the five commands of the README.
#[test]
fn from_a_clone_to_the_first_undo_it_is_five_commands() {
    let (_, chapter) = README.split_once("## From a clone to the first undo").unwrap();
    let (_, block) = chapter.split_once("```console\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let commands: Vec<&str> = block.lines().map(|line| line.strip_prefix("$ ").unwrap()).collect();
    let [install, rest @ ..] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!(rest.len(), 4);
    // That is what cargo would build, and takes minutes for; here it is in the path as if it were installed.
    assert!(install.starts_with("cargo install --locked --path crates/piton-cli"), "{install}");
    let world = World::new();
    let project = world.root().join("home/my-project");
    std::fs::create_dir_all(&project).unwrap();
    std::fs::write(project.join("notes.md"), "one\ntwo\nthree\nfour\n").unwrap();
    assert!(world.shell("git init -q ../home/my-project").status().unwrap().success());
    let agent = world.root().join("bin/claude");
    std::fs::write(&agent, AGENT).unwrap();
    std::fs::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // In one shell, as it is typed.
    let said = world.wait(world.shell(&format!("set -e\n{}", rest.join("\n"))).spawn().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let named = rest[3].split_whitespace().nth(2).unwrap();
    let (run, step) = named.split_once('/').unwrap();
    let shown = said.stdout.lines().any(|line| line.starts_with(step) && line.contains("sed -i s/one/ONE/ notes.md"));
    assert!(shown && said.stdout.contains(run), "the commands before show what it is called: {}", said.whole());
    let read = |name: &str| std::fs::read_to_string(project.join(name)).unwrap();
    assert_eq!((read("notes.md").as_str(), read("made.md").as_str()), ("one\ntwo\nthree\nfour\nmine\n", "made\n"));
}
