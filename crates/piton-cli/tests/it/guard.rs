//! Guarded programs in daily use: what is promised on the terminal holds when it is pasted.

use crate::world::{World, wait_until};

/// git in the working folder, with nothing of the machine's configuration.
fn git(world: &World, arguments: &[&str]) {
    let mut words = vec!["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=master"];
    words.extend(arguments);
    let output = world.program("git", words).env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A repository with one commit of `a`.
fn repository() -> World {
    let world = World::new();
    world.write("a", "1\n");
    git(&world, &["init", "-q"]);
    git(&world, &["add", "."]);
    git(&world, &["commit", "-qm", "first"]);
    world
}

/// W7: an agent that writes without rest and then throws everything away takes none of the user's lines along: a
/// checkpoint has them, and the summary says how much may be in none.
#[test]
fn a_users_line_survives_an_agent_that_never_rests() {
    let world = repository();
    let script = "while ! test -e ../go; do echo x >> noise; sleep 0.2; done; git checkout -q .; rm noise";
    let arguments = ["guard", "--quiet-for", "60", "--at-least", "1", "--", "sh", "-c", script];
    let guard = world.command(arguments).spawn().unwrap();
    wait_until(|| !world.lines("noise").is_empty());
    world.write("a", "1\nthe user's line\n");
    let log = || world.piton(["log", "--json", "--", "a"]).stdout;
    // How it was found, and the user's line.
    wait_until(|| log().lines().count() == 2);
    let newest: serde_json::Value = serde_json::from_str(log().lines().next().unwrap()).unwrap();
    let kept = newest["id"].as_str().unwrap();
    std::fs::write(world.root().join("go"), "").unwrap();
    let said = world.wait(guard);
    assert_eq!((said.code, world.lines("a").len()), (Some(0), 1), "{}", said.whole());
    assert!(said.stderr.contains("while it ran; what came and went within"), "{}", said.stderr);
    assert_eq!(world.piton(["restore", kept, "a", "--exact", "--yes"]).code, Some(0));
    assert_eq!(world.lines("a"), ["1", "the user's line"]);
}

/// C6: a check of a checkpoint says which files of the folder differ from it, and calls it well only if none does.
#[test]
fn a_check_of_a_checkpoint_compares_the_folder_with_it() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.write(name, "1\n");
    }
    let id = world.piton(["save", "--json"]).json()["id"].as_str().unwrap().to_owned();
    let well = world.piton(["check", &id]);
    assert!(well.code == Some(0) && well.stdout.contains("all well"), "{}", well.whole());
    world.write("a", "2\n");
    std::fs::remove_file(world.work().join("b")).unwrap();
    world.write("d", "of another size\n");
    let differs = world.piton(["check", &id]);
    assert_eq!(differs.code, Some(0), "it is whole: {}", differs.whole());
    assert!(!differs.stdout.contains("all well"), "{}", differs.stdout);
    for part in ["\"a\" has changed", "\"b\" isn't in the folder any more", "it doesn't have \"d\""] {
        assert!(differs.stdout.contains(part), "{part}: {}", differs.stdout);
    }
    assert_eq!(world.piton(["check", &id, "--json"]).json()["findings"].as_array().unwrap().len(), 3);
}

/// A guard whose program makes a file, and goes on until `go` is there.
fn guard_until_go(world: &World, file: &str) -> std::process::Child {
    let script = format!("echo its > {file}; while ! test -e ../go; do sleep 0.05; done");
    let child = world.command(["guard", "--json", "--", "sh", "-c", &script]).spawn().unwrap();
    wait_until(|| world.work().join(file).exists());
    child
}

/// W5: what two guards did at the same time can't be told apart. An undo of either says so with exit 4 and the command
/// that takes it back all the same, and that command does.
#[test]
fn what_two_guards_did_at_once_is_named_and_taken_back_on_request() {
    let world = World::new();
    world.write("base", "0");
    let (one, two) = (guard_until_go(&world, "one"), guard_until_go(&world, "two"));
    std::fs::write(world.root().join("go"), "").unwrap();
    let ended = [world.wait(one), world.wait(two)].map(|said| said.json());
    let run = ended[1]["run"].as_str().unwrap();
    assert_eq!(ended[1]["shared_with"], serde_json::json!([ended[0]["run"]]), "the summary says it: {}", ended[1]);
    world.write("mine", "later");
    let planned = world.piton(["undo", run, "--dry-run"]);
    assert_eq!(planned.code, Some(4), "{}", planned.whole());
    let refused = world.piton(["undo", run, "--yes"]);
    assert_eq!(refused.code, Some(4), "{}", refused.whole());
    assert!(refused.stderr.contains("two: it changed while"), "{}", refused.stderr);
    let offered = refused.stderr.split("`piton ").nth(1).unwrap().split('`').next().unwrap();
    let done = world.wait(world.shell(&format!("piton {offered}")).spawn().unwrap());
    assert_eq!(done.code, Some(0), "{offered}: {}", done.whole());
    assert!(!world.work().join("two").exists() && world.work().join("mine").exists());
    assert_eq!(world.piton(["redo", "--yes"]).code, Some(0));
    assert!(world.work().join("two").exists());
}

/// W1: what no checkpoint has is said before the program begins and when it has ended, with the way to protect it, and
/// that way works.
#[test]
fn what_is_not_protected_is_said_with_the_way() {
    let world = World::new();
    world.write(".gitignore", "data/\n");
    std::fs::create_dir(world.work().join("data")).unwrap();
    world.write("data/table", "1\n");
    let said = world.piton(["guard", "--", "sh", "-c", "echo began >&2; echo x > data/table"]);
    let line = "piton: not protected: data; `--include-ignored` protects what ignore files hide";
    let (before, after) = said.stderr.split_once("began").unwrap();
    assert!(before.contains(line) && after.contains(line), "{}", said.stderr);
    let failing =
        ["guard", "--include-ignored", "--rollback-on-failure", "--", "sh", "-c", "echo y > data/table; false"];
    let said = world.piton(failing);
    assert!(
        !said.stderr.contains("not protected") && said.stderr.contains("all of that was taken back"),
        "{}",
        said.stderr
    );
    assert_eq!(world.lines("data/table"), ["x"]);
}

/// Decision 11: what is refused leaves nothing behind, in the folder and where stores are.
#[test]
fn a_refusal_leaves_no_store_behind() {
    let world = World::new();
    let home = world.root().join("home");
    std::fs::create_dir(&home).unwrap();
    for arguments in [&["guard", "--", "true"][..], &["save"]] {
        let refused = world.piton_in(&home, arguments);
        assert!(refused.code == Some(4) && refused.stderr.contains("your home folder"), "{}", refused.whole());
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0, "{arguments:?}");
    }
    let refused = world.piton(["drift"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("repository"), "{}", refused.whole());
    assert_eq!(std::fs::read_dir(&home).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(world.work()).unwrap().count(), 0);
}

/// 25.4: what a guarded program moves in git is recorded and shown, and the command that is printed puts it back; git is
/// never written by Piton.
#[test]
fn what_moves_in_git_is_shown_with_the_command_that_puts_it_back() {
    let world = repository();
    git(&world, &["tag", "v1"]);
    assert_eq!(world.piton(["save"]).code, Some(0));
    let state = || {
        let output = world.program("git", ["for-each-ref"]).output().unwrap();
        let head = world.program("git", ["symbolic-ref", "HEAD"]).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(head.stdout).unwrap())
    };
    let before = state();
    let script = "git checkout -q -b agent-branch && git branch -q -D master && git tag -d v1 >&2 && git gc -q";
    let said = world.piton(["guard", "--", "sh", "-c", script]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let hash = &before.0[..7];
    for part in
        ["HEAD master → agent-branch", &format!("master deleted, was {hash}"), &format!("tag v1 deleted, was {hash}")]
    {
        assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
    }
    let log = world.piton(["checkpoint", "list", "--json"]).stdout;
    assert!(log.contains("HEAD master → agent-branch"), "{log}");
    assert_ne!(state(), before, "git wasn't written");
    let line = said.stderr.lines().find(|line| line.ends_with("puts that back")).unwrap();
    let command = line.split('`').nth(1).unwrap();
    assert!(world.shell(command).status().unwrap().success(), "{command}");
    git(&world, &["branch", "-q", "-D", "agent-branch"]);
    assert_eq!(state(), before);
    // What is as it was is no move.
    let said = world.piton([
        "guard",
        "--json",
        "--",
        "sh",
        "-c",
        "git checkout -q -b b && git checkout -q master && git branch -q -d b",
    ]);
    assert!(said.json().get("git").is_none(), "{}", said.whole());
}

/// A guard whose program makes a file and goes on for good; and the process of that program.
fn guard_for_good(world: &World, options: &[&str]) -> (std::process::Child, String) {
    let script = "echo its > made; echo $$ > ../pid.new; mv ../pid.new ../pid; while :; do sleep 0.1; done";
    let arguments = [&["guard", "--quiet-for", "0.1"][..], options, &["--", "sh", "-c", script]].concat();
    let child = world.command(arguments).spawn().unwrap();
    wait_until(|| world.root().join("pid").exists());
    let pid = std::fs::read_to_string(world.root().join("pid")).unwrap().trim().to_owned();
    // It tells what it did in a checkpoint.
    wait_until(|| world.piton(["log", "made", "--json"]).stdout.contains("made"));
    (child, pid)
}

/// Whether a process does anything; one that has ended and wasn't waited for doesn't.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.split_whitespace().next().is_some_and(|state| state != "Z"))
}

/// 25.6: the program of a guard that is killed ends with it; the run is stalled, and each verb does something sensible.
#[test]
fn a_killed_guard_is_stalled_and_its_program_ends_with_it() {
    for verb in ["undo", "stop", "resume"] {
        let world = World::new();
        world.write("a", "1\n");
        let (mut guard, pid) = guard_for_good(&world, &[]);
        guard.kill().unwrap();
        guard.wait().unwrap();
        wait_until(|| !lives(&pid));
        let listed = world.piton(["ls", "--stalled", "--json"]).json();
        assert_eq!((&listed["short"], &listed["stalled"]), (&"guard-1".into(), &true.into()), "{listed}");
        match verb {
            "undo" => {
                let said = world.piton(["undo", "guard-1", "--yes"]);
                assert!(said.code == Some(0) && !world.work().join("made").exists(), "{}", said.whole());
            }
            "stop" => {
                let said = world.piton(["stop", "guard-1"]);
                assert_eq!(said.code, Some(0), "{}", said.whole());
                assert_eq!(world.piton(["show", "guard-1", "--json"]).json()["status"], "paused");
                assert_eq!(world.piton(["undo", "guard-1", "--yes"]).code, Some(0));
                assert!(!world.work().join("made").exists());
            }
            _ => {
                let said = world.piton(["resume", "guard-1"]);
                assert!(matches!(said.code, Some(1 | 4)), "{}", said.whole());
                let command = said.stderr.split('`').find(|code| code.starts_with("piton ")).unwrap_or_default();
                assert!(command.contains("guard-1"), "it says what can be done: {}", said.stderr);
            }
        }
    }
}

/// 25.6: a program that is to outlive its guard does.
#[test]
fn a_program_outlives_its_guard_if_its_user_wants_that() {
    let world = World::new();
    let (mut guard, pid) = guard_for_good(&world, &["--outlive"]);
    guard.kill().unwrap();
    guard.wait().unwrap();
    let listed = world.piton(["ls", "--stalled", "--json"]).json();
    assert_eq!(listed["short"], "guard-1");
    assert!(lives(&pid));
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// 25.9: what is refused leaves nothing behind, whatever was asked for.
#[test]
fn whatever_is_refused_leaves_nothing_behind() {
    let world = World::new();
    let home = world.root().join("home");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(
        home.join("flow.yml"),
        "nodes: [{id: s, data: {type: start}}, {id: e, data: {type: end}}]\nedges: [{source: s, target: e}]\n",
    )
    .unwrap();
    std::fs::write(home.join("wrong.yml"), "nodes: [{id: s, data: {type: nothing}}]\nedges: []\n").unwrap();
    for arguments in [
        &["save"][..],
        &["guard", "--", "true"],
        &["guard", "--force", "--", "no-such-program"],
        &["run", "flow.yml", "--files"],
        &["run", "wrong.yml"],
        &["run", "flow.yml", "--config", "no-such-file.toml"],
        &["drift"],
        &["undo"],
    ] {
        let said = world.piton_in(&home, arguments);
        assert_ne!(said.code, Some(0), "{arguments:?}: {}", said.whole());
        assert!(!home.join(".local").exists(), "{arguments:?} left something behind: {}", said.whole());
    }
}

/// 25.9: what a restore of today overwrote can be had back, however many checkpoints a folder may keep.
#[test]
fn backups_of_the_last_day_stay() {
    let world = World::new();
    world.write("a", "saved");
    assert_eq!(world.piton(["save", "-m", "base"]).code, Some(0));
    for number in 0..6 {
        world.write("a", &format!("mine {number}"));
        assert_eq!(world.piton(["restore", "@", "--exact", "--yes"]).code, Some(0));
    }
    let said = world.piton(["gc", "--per-folder", "2", "--now", "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let listed = world.piton(["checkpoint", "list", "--json"]).stdout;
    let mut backups: Vec<serde_json::Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    backups.retain(|moment| moment["label"].as_str().unwrap().starts_with("before restore"));
    assert_eq!(backups.len(), 6, "{listed}");
    let oldest = backups.last().unwrap()["id"].as_str().unwrap();
    assert_eq!(world.piton(["restore", oldest, "--exact", "--yes"]).code, Some(0));
    assert_eq!(world.lines("a"), ["mine 0"]);
}
