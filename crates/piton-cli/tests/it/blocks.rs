//! Every command block of the README and the book is run as a reader would: page by page, from top to bottom, in a
//! project with some history, with `piton` installed.
//!
//! A block of `console` has commands after `$ `, and what is said between them; a block of `sh` is a script. A command must end with 0 unless its comment
//! says `ends with N`. What the page takes for granted stands before a block as `<!-- test: COMMAND -->`. A block that
//! can't be run has `Not run by the tests: REASON` before it, for the reader to see.

use crate::book::{pages, repository};
use crate::postgres::{SERVER, name};
use crate::world::{Said, World};

/// Stands before a block that isn't run.
const NOT_RUN: &str = "Not run by the tests: ";
const PREPARE: &str = "<!-- test: ";

/// What stands for a coding agent: it works on the files of the folder and knows nothing of Piton.
const AGENT: &str = "#!/bin/sh\necho '// the agent was here' >> src/main.rs\necho made > made-by-the-agent.txt\n";

/// A block of a page.
#[derive(Debug, Default)]
struct Block {
    line: usize,
    prepare: Vec<String>,
    commands: Vec<String>,
    is_run: bool,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut prepare = Vec::new();
    let mut reason = false;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(command) = line.trim().strip_prefix(PREPARE) {
            prepare.push(command.trim_end_matches("-->").trim().to_owned());
        }
        if line.contains(NOT_RUN) {
            reason = true;
        }
        let Some(language) = line.trim_start().strip_prefix("```") else {
            if !line.trim().is_empty() && !line.contains(NOT_RUN) && !line.trim().starts_with(PREPARE) {
                // The reason stands right before its block, in the paragraph before it.
                reason &= !line.starts_with('#');
            }
            continue;
        };
        let body: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| !line.trim_start().starts_with("```")).collect();
        let commands = match language {
            "console" => prompts(&body),
            "sh" | "bash" | "shell" => vec![body.join("\n")],
            _ => continue,
        };
        found.push(Block { line: number + 1, prepare: std::mem::take(&mut prepare), commands, is_run: !reason });
        reason = false;
    }
    found
}

/// The commands of a console block: a line after a prompt, with the text that it reads (`<<'END'`) and its continuations.
fn prompts(body: &[&str]) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut until: Option<String> = None;
    let mut goes_on = false;
    for line in body {
        if let Some(command) = line.strip_prefix("$ ").filter(|_| until.is_none()) {
            until = command.split_once("<<'").and_then(|(_, rest)| rest.split('\'').next()).map(str::to_owned);
            goes_on = command.ends_with('\\');
            commands.push(command.to_owned());
        } else if until.is_some() || goes_on {
            let command = commands.last_mut().unwrap();
            command.push('\n');
            command.push_str(line);
            goes_on = line.ends_with('\\');
            if until.as_deref() == Some(line) {
                until = None;
            }
        }
    }
    commands
}

/// A project as a reader may have it: a repository with a commit, an agent in the path, the examples beside it.
fn project() -> World {
    let world = World::new();
    let said = run(
        &world,
        "mkdir src && echo 'fn main() {}' > src/main.rs && echo '// a' > src/a.rs && echo '# Notes' > notes.md \
        && git init -q -b main . && git add -A && git -c user.name=a -c user.email=a@b commit -q -m first && rm -f piton-demo",
    );
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let agent = world.root().join("bin/claude");
    std::fs::write(&agent, AGENT).unwrap();
    std::fs::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(repository().join("examples"), world.root().join("examples")).unwrap();
    world
}

fn run(world: &World, command: &str) -> Said {
    let mut shell = world.shell(command);
    shell.env("USER", "ada").env("TMPDIR", world.root());
    world.wait(shell.spawn().unwrap())
}

/// The database of the pages; a test has a server of its own.
const TEAM: &str = "postgres://ada:secret@localhost/team";

/// What a test has no time for: building, and sleeping for long. `./test` is what runs this. A server that root starts is there.
fn in_a_test(command: &str) -> Option<String> {
    if command.starts_with("./test") {
        return None;
    }
    let command = command.replace("cargo run --release --", "piton").replace("sleep 5", "sleep 0.2");
    if !command.contains(TEAM) {
        return Some(command);
    }
    let mine = command.lines().filter(|line| !line.starts_with("sudo ")).collect::<Vec<_>>().join("\n");
    Some(mine.replace(TEAM, &format!("'{}'", SERVER.url(&name()))))
}

fn expected(command: &str) -> i32 {
    let comment = command.lines().next().and_then(|line| line.rsplit_once("ends with ")).map(|(_, code)| code);
    comment.and_then(|code| code.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).unwrap_or(0)
}

fn follow(page: &str) {
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let world = project();
    for block in blocks(&text).iter().filter(|block| block.is_run) {
        for command in &block.prepare {
            let said = run(&world, command);
            assert_eq!(said.code, Some(0), "{page}:{}: {command}\n{}", block.line, said.whole());
        }
        for command in block.commands.iter().filter_map(|command| in_a_test(command)) {
            let said = run(&world, &command);
            assert_eq!(said.code, Some(expected(&command)), "{page}:{}: {command}\n{}", block.line, said.whole());
        }
    }
}

/// One test a page, and none left out.
macro_rules! pages {
    ($($name:ident: $page:literal),* $(,)?) => {
        $(#[test]
        fn $name() {
            follow($page);
        })*

        #[test]
        fn every_page_with_commands_is_followed() {
            let followed = [$($page),*];
            for (page, text) in pages() {
                if !blocks(&text).is_empty() {
                    assert!(followed.contains(&page.as_str()), "{page} has commands that no test runs");
                }
            }
        }
    };
}

pages! {
    the_commands_of_the_readme_work: "README.md",
    the_commands_of_the_guide_for_coding_agents_work: "docs/coding-agent.md",
    the_commands_of_the_guide_for_workflows_work: "docs/workflow-guide.md",
    the_commands_of_the_guide_for_rust_work: "docs/rust.md",
    the_commands_of_the_guide_for_operators_work: "docs/operators.md",
    the_commands_of_the_concepts_work: "docs/concepts.md",
    the_commands_about_workflows_work: "docs/workflows.md",
    the_commands_about_security_work: "docs/security.md",
    the_commands_about_proofs_work: "docs/proofs.md",
    the_commands_of_the_comparison_work: "docs/comparison.md",
    the_commands_of_the_examples_work: "examples/README.md",
    the_commands_of_the_benches_work: "bench/README.md",
}

#[test]
fn blocks_are_taken_apart_as_they_are_read() {
    let text = "a\n```console\n$ one <<'E'\nx\nE\nsaid\n$ two \\\n  more   # ends with 3\n```\nNot run by the tests: why.\n\n```sh\nthree\n```\n<!-- test: zero -->\n```sh\nfour\n```\n";
    let found = blocks(text);
    assert_eq!(found[0].commands, ["one <<'E'\nx\nE", "two \\\n  more   # ends with 3"]);
    assert!(found[0].is_run && !found[1].is_run && found[2].is_run);
    assert_eq!(found[2].prepare, ["zero"]);
    assert_eq!((expected("two   # ends with 3: x"), expected("two")), (3, 0));
}
