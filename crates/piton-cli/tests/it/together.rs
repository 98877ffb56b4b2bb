//! Several agents in one folder, and a repository that moves. W9, W11, D1 to D5.

use crate::world::{World, wait_until};

/// The exit codes are those of `git merge-file`, and OURS becomes the merged text.
#[test]
fn merge_file_ends_as_git_does() {
    let world = World::new();
    for (name, text) in [("base", "1\n2\n3\n4\n5\n"), ("ours", "a\n2\n3\n4\n5\n"), ("theirs", "1\n2\n3\n4\nb\n")] {
        world.write(name, text);
    }
    let said = world.piton(["merge-file", "-p", "ours", "base", "theirs"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "a\n2\n3\n4\nb\n"));
    world.write("theirs", "c\n2\n3\n4\nb\n");
    let said =
        world.piton(["merge-file", "-L", "mine", "-L", "before", "-L", "his", "--diff3", "ours", "base", "theirs"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(1), "", ""));
    insta::assert_snapshot!(std::fs::read_to_string(world.work().join("ours")).unwrap(), @"
    <<<<<<< mine
    a
    ||||||| before
    1
    =======
    c
    >>>>>>> his
    2
    3
    4
    b
    ");
    world.write("same", "a\n");
    let said = world.piton(["merge-file", "-p", "same", "/dev/null", "same"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "a\n"), "nothing is a version too");
    assert_eq!(
        world.piton(["merge-file", "/dev/null", "same", "same"]).code,
        Some(255),
        "but none that can be written"
    );
    world.write("theirs", "\0");
    insta::assert_snapshot!(world.piton(["merge-file", "ours", "base", "theirs"]).whole(), @r"
    --- stderr
    error: can't merge ours
      caused by: binary files can't be merged
    --- exit 255
    ");
    insta::assert_snapshot!(world.piton(["merge-file", "ours", "nothing", "theirs"]).whole(), @r"
    --- stderr
    error: can't read nothing
      caused by: No such file or directory (os error 2)
    --- exit 255
    ");
}

/// git calls it as a merge driver, and takes its exit code.
#[test]
fn git_can_use_it_as_a_merge_driver() {
    let world = World::new();
    let git = |arguments: &[&str]| {
        let name = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"];
        let output = world.program("git", name.iter().chain(arguments)).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    git(&["init", "-qb", "main"]);
    let driver = format!("{} merge-file -L %X -L %S -L %Y --marker-size %L %A %O %B", crate::world::BINARY);
    git(&["config", "merge.piton.driver", &driver]);
    world.write(".gitattributes", "* merge=piton\n");
    world.write("a", "1\n2\n3\n4\n5\n");
    git(&["add", "-A"]);
    git(&["commit", "-qm", "base"]);
    git(&["checkout", "-qb", "side"]);
    world.write("a", "1\n2\n3\n4\nside\n");
    git(&["commit", "-qam", "side"]);
    git(&["checkout", "-q", "main"]);
    world.write("a", "main\n2\n3\n4\n5\n");
    git(&["commit", "-qam", "main"]);
    assert_eq!(git(&["merge", "-q", "--no-edit", "side"]).0, Some(0));
    assert_eq!(std::fs::read_to_string(world.work().join("a")).unwrap(), "main\n2\n3\n4\nside\n");
    git(&["checkout", "-q", "side"]);
    world.write("a", "SIDE\n2\n3\n4\nside\n");
    git(&["commit", "-qam", "again"]);
    git(&["checkout", "-q", "main"]);
    assert_eq!(git(&["merge", "-q", "--no-edit", "side"]).0, Some(1), "a conflict");
    let text = std::fs::read_to_string(world.work().join("a")).unwrap();
    assert!(text.starts_with("<<<<<<< HEAD\nmain\n=======\nSIDE\n>>>>>>> side\n"), "{text}");
}

#[test]
fn files_are_reserved_for_one_owner_at_a_time() {
    let world = World::new();
    world.write("a", "");
    let taken = world.piton(["lease", "take", "a", "--owner", "ann", "--json"]).json();
    assert_eq!(
        (taken["path"].as_str(), taken["mode"].as_str(), taken["fence"].as_u64()),
        (Some("a"), Some("write"), Some(1))
    );
    let refused = world.piton(["lease", "take", "a", "--owner", "bob"]);
    assert_eq!(refused.code, Some(4));
    assert!(refused.stderr.starts_with("error: a is reserved by ann\n"), "{}", refused.stderr);
    assert_eq!(world.piton(["lease", "check", "a", "--owner", "bob"]).code, Some(4));
    assert_eq!(world.piton(["lease", "check", "a", "--owner", "ann"]).code, Some(0));
    assert_eq!(world.piton(["lease", "take", "b", "--owner", "bob", "--for", "0.1"]).code, Some(0));
    assert_eq!(world.piton(["lease", "take", "b", "--owner", "ann", "--wait", "20"]).code, Some(0), "bob's was over");
    assert_eq!(world.piton(["lease", "ls", "--json"]).stdout.lines().count(), 2);
    assert_eq!(world.piton(["lease", "drop", "--owner", "ann", "--json"]).stdout.lines().count(), 2);
    assert_eq!(world.piton(["lease", "ls"]).whole(), "--- exit 0");
    assert_eq!(world.piton(["lease", "take", "d", "./d", "--json"]).stdout.lines().count(), 1, "a path counts once");
    assert_eq!(world.piton(["lease", "drop"]).code, Some(0));
    assert_eq!(world.piton(["lease", "take", "/etc/passwd"]).code, Some(2));
    // With the process that it was bound to it ends.
    let mut child = world.program("sleep", ["60"]).spawn().unwrap();
    let pid = child.id().to_string();
    assert_eq!(world.piton(["lease", "take", "a", "--owner", "child", "--pid", &pid]).code, Some(0));
    assert_eq!(world.piton(["lease", "check", "a", "--owner", "ann"]).code, Some(4));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(world.piton(["lease", "take", "a", "--owner", "ann"]).code, Some(0));
    assert_eq!(world.piton(["lease", "take", "a", "--pid", &pid]).code, Some(1), "there is no such process");
    // The owner of what a command reserves under a guard is the guarded run.
    let guarded = world.piton(["guard", "--", crate::world::BINARY, "lease", "take", "c", "--json"]);
    let taken: serde_json::Value = serde_json::from_str(guarded.stdout.lines().next().unwrap()).unwrap();
    let runs = world.piton(["ls", "--json"]).stdout;
    assert!(runs.contains(taken["owner"].as_str().unwrap()), "{runs}");
}

/// A remote, a clone of it that is the working folder, and a way to push from elsewhere.
struct Cloned {
    world: World,
}

impl Cloned {
    fn new() -> Self {
        let cloned = Self { world: World::new() };
        let root = cloned.world.root();
        cloned.git(&root, &["init", "-q", "--bare", "-b", "main", "remote.git"]);
        cloned.git(&root, &["clone", "-q", "remote.git", "other"]);
        cloned.push("1\n2\n3\n4\n5\n");
        std::fs::remove_dir(cloned.world.work()).unwrap();
        cloned.git(&root, &["clone", "-q", "remote.git", "work"]);
        cloned
    }

    fn git(&self, folder: &std::path::Path, arguments: &[&str]) -> String {
        let settings = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main"];
        let output = self.world.program("git", settings.iter().chain(arguments)).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn push(&self, text: &str) {
        let other = self.world.root().join("other");
        std::fs::write(other.join("a"), text).unwrap();
        self.git(&other, &["add", "-A"]);
        self.git(&other, &["commit", "-qm", "theirs"]);
        self.git(&other, &["push", "-qf", "origin", "HEAD:main"]);
    }
}

/// D1 to D4: the exit code is for hooks.
#[test]
fn drift_refuses_when_the_same_lines_changed() {
    let cloned = Cloned::new();
    let world = &cloned.world;
    assert_eq!(world.piton(["drift"]).whole(), "--- stdout\nupstream has nothing new\n--- exit 0");
    cloned.push("theirs\n2\n3\n4\n5\n");
    let low = world.piton(["drift", "--json"]).json();
    assert_eq!((low["severity"].as_str(), low["advice"].as_str()), (Some("low"), Some("continue")));
    assert_eq!(world.piton(["drift", "--strict"]).code, Some(4));
    world.write("a", "1\n2\n3\n4\nmine\n");
    assert_eq!(world.piton(["drift", "--json"]).json()["advice"], "rebase");
    world.write("a", "mine\n2\n3\n4\n5\n");
    let high = world.piton(["drift", "--progress", "10"]);
    assert_eq!(high.code, Some(4));
    assert!(high.stdout.contains("  high   a: both changed the same lines\n"), "{}", high.stdout);
    assert!(high.stderr.contains("advice: pause, and begin anew"), "{}", high.stderr);
    assert_eq!(world.piton(["drift", "--no-fetch", "--json"]).json()["advice"], "merge", "what is known stays known");
    let other = world.root().join("other");
    cloned.git(&other, &["reset", "-q", "--hard", "HEAD~1"]);
    cloned.push("rewritten\n");
    let rewritten = world.piton(["drift", "--json"]);
    assert_eq!(rewritten.code, Some(4));
    assert!(rewritten.json()["backup"].is_string(), "the work is backed up");
    assert_eq!(world.piton(["drift"]).code, Some(4), "until it is seen to");
    assert_eq!(world.piton(["drift", "--resolve", "user-handled"]).code, Some(0));
    std::fs::remove_dir_all(world.work().join(".git")).unwrap();
    assert_eq!(world.piton(["drift"]).code, Some(1), "no repository");
}

/// D3: never without a word; with one, and a test that passes, the branch is moved, and back.
#[test]
fn a_rebase_needs_permission_and_a_passing_test() {
    let cloned = Cloned::new();
    let world = &cloned.world;
    let head = || cloned.git(&world.work(), &["rev-parse", "HEAD"]);
    for (key, value) in [("user.name", "t"), ("user.email", "t@example.invalid")] {
        cloned.git(&world.work(), &["config", key, value]);
    }
    world.write("b", "mine\n");
    cloned.git(&world.work(), &["add", "-A"]);
    cloned.git(&world.work(), &["commit", "-qm", "mine"]);
    cloned.push("theirs\n");
    let before = head();
    assert_eq!(world.piton(["drift", "--rebase"]).code, Some(4), "nobody can be asked");
    assert_eq!(world.piton(["drift", "--rebase", "--dry-run"]).code, Some(0));
    assert_eq!(world.piton(["drift", "--rebase", "--yes", "--test", "grep -q nothing a"]).code, Some(4));
    assert_eq!(head(), before);
    let done = world.piton(["drift", "--rebase", "--yes", "--test", "grep -q theirs a", "--json"]).json();
    assert_eq!((done["old"].as_str(), done["commits"].as_u64()), (Some(&before[..]), Some(1)));
    assert_ne!(head(), before);
    assert_eq!(world.piton(["drift", "--undo-rebase", "--yes"]).code, Some(0));
    assert_eq!(head(), before);
}

/// D1, D2: a guarded program stands still while the same lines changed upstream, if that was wanted.
#[test]
fn a_guarded_program_stands_still_until_drift_is_seen_to() {
    let cloned = Cloned::new();
    let world = &cloned.world;
    world.write("a", "mine\n2\n3\n4\n5\n");
    let script = "touch started; while ! test -f go; do sleep 0.05; done";
    let arguments = ["guard", "--drift-every", "0.2", "--pause-on-drift", "--", "sh", "-c", script];
    let guard = world.command(arguments).spawn().unwrap();
    let until = |what: &str, is: &dyn Fn() -> bool| {
        let start = std::time::Instant::now();
        while !is() {
            assert!(start.elapsed().as_secs() < 60, "{what} never came");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    until("the start", &|| world.work().join("started").exists());
    cloned.push("theirs\n2\n3\n4\n5\n");
    let stopped = || {
        let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        all.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok()).any(|stat| {
            let rest = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>();
            rest.first() == Some(&"T") && rest.get(1) == Some(&guard.id().to_string().as_str())
        })
    };
    until("the stop", &stopped);
    // 25.6: it is said wherever one looks, with the command that lets it go on.
    let status = world.piton(["status"]);
    assert!(status.stdout.contains("guard-1 stands still"), "{}", status.whole());
    let listed = world.piton(["ls"]);
    assert!(listed.stdout.contains("standing still"), "{}", listed.whole());
    let runs = world.piton(["ls", "--json"]).stdout;
    let mut runs = runs.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let run = runs.find(|run| run["name"].as_str().is_some_and(|name| name.starts_with("sh -c"))).unwrap();
    let run = run["id"].as_str().unwrap();
    assert!(run.len() == 26, "{run}");
    let command = listed.stderr.split('`').find(|code| code.starts_with("piton drift")).unwrap();
    let thawed = world.wait(world.shell(command).spawn().unwrap());
    assert_eq!(thawed.code, Some(0), "{}", thawed.whole());
    world.write("go", "");
    let said = world.wait(guard);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains(command) && said.stderr.contains("the program goes on"), "{}", said.stderr);
}

/// The files of a checkpoint in a folder of their own, with what is ignored on request; the folder they came from
/// isn't touched.
#[test]
fn a_fork_into_a_folder_has_the_files_of_its_checkpoint() {
    let world = World::new();
    let at = |name: &str| std::fs::read_to_string(world.root().join(name)).unwrap();
    world.write("a", "1\n");
    world.write(".gitignore", "build/\n");
    std::fs::create_dir_all(world.work().join("build")).unwrap();
    world.write("build/out", "made\n");
    let saved = world.piton(["save", "--json"]).json();
    let id = saved["id"].as_str().unwrap();
    world.write("a", "2\n");
    let said = world.piton(["fork", id, "--into", "../try", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!((said.json()["files"].as_u64(), said.json()["ignored"].as_u64()), (Some(2), Some(0)));
    assert_eq!((at("try/a"), at("work/a")), ("1\n".to_owned(), "2\n".to_owned()));
    assert!(!world.root().join("try/build").exists());
    let said = world.piton(["fork", id, "--into", "../with", "--include-ignored", "--json"]);
    assert_eq!((said.json()["ignored"].as_u64(), at("with/build/out")), (Some(1), "made\n".to_owned()));
    assert_eq!(world.piton(["fork", id, "--into", "../try"]).code, Some(4), "it isn't empty");
    assert_eq!(world.piton(["fork", id, "--into", "inside"]).code, Some(4), "it is in the folder itself");
    assert_eq!(world.piton(["fork", id, "--into", "../no/where"]).code, Some(4));
}

/// The programs of a run work in its folder: in the new one if it was forked into that, and where the folder is now if it
/// was moved.
#[test]
fn programs_work_where_the_folder_is() {
    let world = World::new();
    world.write(
        "flow.yml",
        "nodes:
  - {id: in, data: {type: start}}
  - {id: where, data: {type: command, command: [sh, -c, 'pwd; test -e ready']}}
  - {id: out, data: {type: end, outputs: [{variable: where, value_selector: [where, stdout]}]}}
edges: [{source: in, target: where}, {source: where, target: out}]
",
    );
    assert_eq!(world.piton(["run", "flow.yml", "--id", "r", "--files"]).code, Some(1));
    let (into, moved) = (world.root().join("into"), world.root().join("moved"));
    assert_eq!(world.piton(["fork", "r", "--into", "../into", "--id", "f"]).code, Some(0));
    let inside = world.piton(["fork", "r", "--into", "below"]);
    assert!(inside.code == Some(4) && inside.stderr.contains("outside of this one"), "{}", inside.whole());
    let listed = world.piton_in(&into, ["ls", "--json"]);
    assert_eq!(listed.json()["folder"], "[ROOT]/into", "it is a run of that folder: {}", listed.whole());
    std::fs::write(into.join("ready"), "").unwrap();
    let forked = world.piton_in(&into, ["resume", "f", "--json", "-q"]);
    assert_eq!(forked.json()["outputs"]["where"], "[ROOT]/into\n", "{}", forked.whole());

    std::fs::rename(world.work(), &moved).unwrap();
    std::fs::write(moved.join("ready"), "").unwrap();
    let tried = world.piton_in(&moved, ["fork", "r", "--only", "where", "--in-place", "--json"]);
    assert_eq!(tried.json()["output"]["stdout"], "[ROOT]/moved\n", "{}", tried.whole());
    let resumed = world.piton_in(&moved, ["resume", "r", "--json", "-q"]);
    assert_eq!(resumed.json()["outputs"]["where"], "[ROOT]/moved\n", "{}", resumed.whole());
    assert_eq!(world.piton_in(&moved, ["restore", "@", "../moved/flow.yml", "--yes"]).code, Some(0));
}

/// Files and state together, and what to tell the agent.
#[test]
fn a_restore_has_a_note_for_the_agent() {
    let world = World::new();
    world.write("a", "1\n");
    let saved = world.piton(["save", "--json"]).json();
    let id = saved["id"].as_str().unwrap().to_owned();
    let guarded = world.piton(["guard", "--", "sh", "-c", "echo 2 > a; echo new > b"]);
    assert_eq!(guarded.code, Some(0));
    let said = world.piton(["restore", &id, "--yes", "--note"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let note = said.stdout.split_once("\n\n").unwrap().1;
    let expected = format!(
        "The files of this folder were returned to checkpoint {id}. Read a file again before you rely on it:\n- a: as it was\n- b: gone\n"
    );
    assert_eq!(note, expected);
    assert_eq!(world.piton(["restore", &id, "--conflict", "resolve"]).code, Some(2), "there is no model");
}

/// A run that changes two files, then asks.
const CHANGES_AND_ASKS: &str = r"
nodes:
  - {id: in, data: {type: start}}
  - {id: work, data: {type: command, command: [sh, -c, 'echo work >> ../calls; printf agent > made; printf agent > b; echo worked']}}
  - {id: review, data: {type: human-input, prompt: 'Publish it?', variables: [{name: word, type: string, required: true}]}}
  - {id: out, data: {type: end, outputs: [
      {variable: word, value_selector: [review, word]}, {variable: work, value_selector: [work, stdout]}]}}
edges: [{source: in, target: work}, {source: work, target: review}, {source: review, target: out}]
";

/// V2, D1: `run --files` captures the files with the run. What others modified and deleted meanwhile, and commits that
/// came upstream, are found when it goes on: nothing is done unless a flag, the configuration or a person says what.
#[test]
fn a_run_with_files_finds_what_others_changed_meanwhile() {
    let cloned = Cloned::new();
    let world = &cloned.world;
    std::fs::write(world.root().join("flow.yml"), CHANGES_AND_ASKS).unwrap();
    world.write("b", "mine");
    world.write("c", "mine");
    let said = world.piton(["run", "../flow.yml", "--id", "r", "--files"]);
    assert_eq!(said.code, Some(3), "{}", said.stderr);
    assert_eq!(std::fs::read_to_string(world.work().join("b")).unwrap(), "agent");
    // Nothing has changed since: it goes on, and asks again.
    let said = world.piton(["resume", "r"]);
    assert_eq!(said.code, Some(3), "{}", said.stderr);

    world.write("b", "after");
    world.write("a", "after\n");
    std::fs::remove_file(world.work().join("c")).unwrap();
    let said = world.piton(["resume", "r"]);
    assert_eq!(said.code, Some(4), "{}", said.stderr);
    for part in ["\"a\" was modified", "\"b\" was modified", "\"c\" was deleted"] {
        assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
    }
    assert_eq!(std::fs::read_to_string(world.work().join("b")).unwrap(), "after", "nothing was done");
    // By the configuration, by a flag, and for one path.
    std::fs::write(world.root().join("config.yml"), "recovery: {modified: abort, deleted: restore}\n").unwrap();
    let said = world.piton(["resume", "r", "--config", "../config.yml"]);
    assert_eq!(said.code, Some(4), "the configuration says so: {}", said.stderr);
    let flags = ["--on-modified", "use_checkpoint", "--on-path", "a=use_current"];
    let said = world.piton([&["resume", "r", "--config", "../config.yml"][..], &flags].concat());
    assert_eq!(said.code, Some(3), "{}", said.stderr);
    let read = |name: &str| std::fs::read_to_string(world.work().join(name)).unwrap();
    assert_eq!((read("a"), read("b"), read("c")), ("after\n".into(), "agent".into(), "mine".into()));

    cloned.push("1\n2\n3\n4\n5\n6\n");
    let said = world.piton(["resume", "r"]);
    assert_eq!(said.code, Some(4), "{}", said.stderr);
    assert!(said.stderr.contains("upstream"), "{}", said.stderr);
    assert_eq!(world.piton(["resume", "r", "--on-upstream", "abort"]).code, Some(4));
    let said = world.piton(["resume", "r", "--on-upstream", "ignore"]);
    assert_eq!(said.code, Some(3), "{}", said.stderr);

    // The state of the run is what it was, through all of that.
    assert_eq!(world.piton(["answer", "r", "--set", "word=yes"]).code, Some(0));
    let said = world.piton(["resume", "r", "--on-upstream", "ignore", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(said.json()["outputs"], serde_json::json!({"word": "yes", "work": "worked\n"}));
    assert_eq!(std::fs::read_to_string(world.root().join("calls")).unwrap(), "work\n", "it ran once");
}

/// Decision 9: what a run did to the files is taken back by its name, and what its user did stays.
#[test]
fn what_a_run_did_to_the_files_is_taken_back_by_its_name() {
    let world = World::new();
    std::fs::write(world.root().join("flow.yml"), CHANGES_AND_ASKS).unwrap();
    world.write("b", "mine");
    world.write("d", "mine");
    assert_eq!(world.piton(["run", "../flow.yml", "--id", "r", "--files"]).code, Some(3));
    world.write("d", "mine, later");
    let said = world.piton(["undo", "r", "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let read = |name: &str| std::fs::read_to_string(world.work().join(name)).unwrap();
    assert_eq!((read("b"), read("d")), ("mine".into(), "mine, later".into()));
    assert!(!world.work().join("made").exists());
}

/// Decision 9: an undo of a run takes back what all of its drives did, not only the last; a redo brings all of it again.
#[test]
fn an_undo_of_a_run_takes_all_of_its_drives_back() {
    let world = World::new();
    let more = "  - {id: more, data: {type: command, command: [sh, -c, 'printf more > second; printf more > b']}}\n";
    let flow = CHANGES_AND_ASKS
        .replace("  - {id: out,", &format!("{more}  - {{id: out,"))
        .replace("{source: review, target: out}", "{source: review, target: more}, {source: more, target: out}");
    std::fs::write(world.root().join("flow.yml"), flow).unwrap();
    world.write("b", "mine");
    assert_eq!(world.piton(["run", "../flow.yml", "--id", "r", "--files"]).code, Some(3));
    world.write("between", "mine");
    assert_eq!(world.piton(["answer", "r", "--set", "word=yes"]).code, Some(0));
    let said = world.piton(["resume", "r", "--on-modified", "use-current"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let has = |name: &str| world.work().join(name).exists();
    assert!(has("made") && has("second"));
    let said = world.piton(["undo", "r", "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    assert!(!has("made") && !has("second") && has("between"), "{}", said.whole());
    assert_eq!(world.lines("b"), ["mine"]);
    assert_eq!(world.piton(["undo", "--yes"]).code, Some(1), "nothing is left to undo");
    let said = world.piton(["redo", "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    assert!(has("made") && has("second") && world.lines("b") == ["more"]);
    assert_eq!(world.piton(["undo", "r", "--yes"]).code, Some(0));
    assert!(!has("made") && !has("second") && world.lines("b") == ["mine"]);
}

/// Without git there is no drift to find: it is said, and a run with files goes on all the same.
#[test]
fn without_git_nothing_drifts_and_runs_go_on() {
    let cloned = Cloned::new();
    let world = &cloned.world;
    std::fs::write(world.root().join("flow.yml"), CHANGES_AND_ASKS).unwrap();
    let bin = world.root().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/bin/sh", bin.join("sh")).unwrap();
    let without_git = |arguments: &[&str]| {
        let output = world.command(arguments).env("PATH", &bin).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = without_git(&["drift"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("git"), "{stderr}");
    let (code, stderr) = without_git(&["run", "../flow.yml", "--id", "r", "--files"]);
    assert_eq!(code, Some(3), "{stderr}");
    let (code, stderr) = without_git(&["resume", "r"]);
    assert_eq!(code, Some(3), "{stderr}");
    let (code, stderr) = without_git(&["guard", "--", "sh", "-c", "exit 7"]);
    assert_eq!(code, Some(7), "{stderr}");
}

/// V2, D3: new upstream commits are rebased onto when a run goes on, if that is permitted, and not otherwise.
#[test]
fn a_run_that_goes_on_is_rebased_only_if_permitted() {
    let cloned = Cloned::new();
    let world = &cloned.world;
    std::fs::write(world.root().join("flow.yml"), CHANGES_AND_ASKS).unwrap();
    cloned.git(&world.work(), &["config", "user.name", "t"]);
    cloned.git(&world.work(), &["config", "user.email", "t@example.invalid"]);
    world.write("mine", "mine\n");
    cloned.git(&world.work(), &["add", "mine"]);
    cloned.git(&world.work(), &["commit", "-qm", "mine"]);
    assert_eq!(world.piton(["run", "../flow.yml", "--id", "r", "--files"]).code, Some(3));
    let before = cloned.git(&world.work(), &["rev-parse", "HEAD"]);
    cloned.push("1\n2\n3\n4\n5\n6\n");
    assert_eq!(world.piton(["resume", "r"]).code, Some(4));
    assert_eq!(cloned.git(&world.work(), &["rev-parse", "HEAD"]), before, "nobody permitted it");
    let said = world.piton(["resume", "r", "--on-upstream", "rebase"]);
    assert_eq!(said.code, Some(3), "{}", said.stderr);
    assert_eq!(std::fs::read_to_string(world.work().join("a")).unwrap(), "1\n2\n3\n4\n5\n6\n");
    let subjects = cloned.git(&world.work(), &["log", "--format=%s", "-2"]);
    assert_eq!(subjects, "mine\ntheirs");
    // It is up to date now, and goes on without a question.
    assert_eq!(world.piton(["resume", "r"]).code, Some(3));
}

/// D2, of a run: it is stopped as `piton stop` would, keeps what it has done, and can be resumed.
#[test]
fn a_run_is_stopped_while_the_same_lines_changed_upstream() {
    let cloned = Cloned::new();
    let world = &cloned.world;
    world.write("a", "mine\n2\n3\n4\n5\n");
    world.write(
        "flow.yml",
        "nodes:\n  - {id: in, data: {type: start}}\n  - {id: first, data: {type: command, command: [sh, -c, 'echo first >> calls; \
         while [ ! -e pushed ]; do sleep 0.05; done; sleep 2']}}\n  - {id: second, data: {type: command, command: [sh, -c, \
         'echo second >> calls']}}\n  - {id: out, data: {type: end, outputs: []}}\nedges: [{source: in, target: first}, \
         {source: first, target: second}, {source: second, target: out}]\n",
    );
    let arguments = ["run", "flow.yml", "--id", "r", "--files", "--drift-every", "0.2", "--pause-on-drift", "--json"];
    let running = world.command(arguments).spawn().unwrap();
    wait_until(|| world.lines("calls").len() == 1);
    cloned.push("theirs\n2\n3\n4\n5\n");
    world.write("pushed", "");
    let said = world.wait(running);
    assert_eq!(said.json()["status"], "paused", "{}", said.whole());
    assert_eq!(world.lines("calls"), ["first"]);
    assert_eq!(world.piton(["drift", "--run", "r", "--resolve", "ignored"]).code, Some(0));
    let resumed =
        world.piton(["resume", "r", "--on-modified", "use-current", "--on-upstream", "ignore", "--drift-every", "0"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.whole());
    assert_eq!(world.lines("calls"), ["first", "second"]);
}
