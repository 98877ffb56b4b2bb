//! Several agents in one folder: merging, reservations. W9, W11.

use crate::world::World;

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
    // Whoever works under a guard is his run.
    let guarded = world.piton(["guard", "--", crate::world::BINARY, "lease", "take", "c", "--json"]);
    let taken: serde_json::Value = serde_json::from_str(guarded.stdout.lines().next().unwrap()).unwrap();
    let runs = world.piton(["ls", "--json"]).stdout;
    assert!(runs.contains(taken["owner"].as_str().unwrap()), "{runs}");
}
