//! Who may make Piton write: not a folder that brings a store along, and no verb that only looks.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use piton_testing::strace::{self, KillAt};

use crate::world::{THREE_NODES, World};

const FILES: [&str; 4] = ["a", "b", "c", "d"];

/// What there is below some folders: of files the bytes and the time, of all the permissions. SQLite's index of its WAL is
/// made anew by each first reader.
fn all_of(folders: &[PathBuf]) -> BTreeMap<PathBuf, (Vec<u8>, i128, u32)> {
    let mut found = BTreeMap::new();
    let mut left = folders.to_vec();
    while let Some(path) = left.pop() {
        let data = path.symlink_metadata().unwrap();
        if data.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            found.insert(path, (Vec::new(), 0, data.mode()));
        } else if !path.to_string_lossy().ends_with("-shm") {
            let time = i128::from(data.mtime()) * 1_000_000_000 + i128::from(data.mtime_nsec());
            found.insert(path.clone(), (std::fs::read(path).unwrap(), time, data.mode()));
        }
    }
    found
}

fn has_mark(folder: &Path) -> bool {
    all_of(&[folder.to_owned()]).keys().any(|path| path.ends_with("restoring"))
}

/// A folder with a run, two checkpoints and a restore that was killed when some files were old and some new.
fn unfinished(here: bool) -> World {
    for when in 1..40 {
        let world = World::new();
        if here {
            assert_eq!(world.piton(["init", "--here"]).code, Some(0));
        }
        world.write("flow.yml", THREE_NODES);
        assert_eq!(world.piton(["run", "flow.yml", "-i", "name=Ada", "--id", "first"]).code, Some(0));
        for text in ["one", "two"] {
            FILES.iter().for_each(|name| world.write(name, text));
            assert_eq!(world.piton(["save"]).code, Some(0));
        }
        let killed =
            strace::run(&world.command(["restore", "@-", "--yes"]), KillAt::new(&["renameat2"], when)).killed();
        assert!(killed, "the restore ended before it could be killed in the middle");
        let is_old = |name: &&str| std::fs::read_to_string(world.work().join(name)).unwrap() == "one";
        let old = FILES.iter().filter(|name| is_old(name)).count();
        if has_mark(&world.root()) && (1..FILES.len()).contains(&old) {
            return world;
        }
    }
    panic!("no kill left a restore half done");
}

const LOOKS: &[&[&str]] = &[
    &["status"],
    &["status", "--excluded", "--json"],
    &["ls"],
    &["ls", "--all"],
    &["ls", "--waiting"],
    &["show", "first"],
    &["show", "first", "--steps"],
    &["show", "@"],
    &["log"],
    &["log", "--", "a"],
    &["diff"],
    &["diff", "@", "@"],
    &["check"],
    &["check", "first"],
    &["events", "first"],
    &["graph", "flow.yml"],
    &["validate", "flow.yml"],
    &["resume", "first", "--explain"],
    &["lease", "ls"],
    &["lease", "check", "a"],
    &["hook", "show"],
    &["doctor"],
];

/// Nothing is finished, repaired or written by a verb that only looks, in the folder or beside it; and it is said what is
/// unfinished, and what finishes it.
#[test]
fn verbs_that_only_look_write_nothing() {
    for (here, cut_short) in [(false, true), (true, true), (false, false)] {
        let world = unfinished(here);
        if !cut_short {
            assert_eq!(world.piton(["save"]).code, Some(0));
        }
        let folders = [world.work(), world.root().join("home")];
        let before = all_of(&folders);
        let same = |what: &[&str]| {
            let after = all_of(&folders);
            let differ = |path: &&PathBuf| before.get(*path) != after.get(*path);
            let changed: Vec<_> = before.keys().chain(after.keys()).filter(differ).collect();
            assert!(changed.is_empty(), "{what:?} changed {changed:?}");
        };
        for verb in LOOKS {
            let said = world.piton(*verb);
            assert!(matches!(said.code, Some(0 | 4)), "{verb:?}: {}", said.whole());
            same(verb);
            let about_files = matches!(verb[0], "status" | "diff" | "lease") || *verb == ["log", "--", "a"];
            let says = said.stderr.contains("was cut short") && said.stderr.contains("`piton save` finishes it");
            assert_eq!(says, cut_short && about_files, "{verb:?}: {}", said.whole());
        }
        // The negative control: a verb that writes is noticed.
        assert_eq!(world.piton(["save"]).code, Some(0));
        assert_ne!(all_of(&folders), before);
        assert!(!has_mark(&world.root()), "and finishes what was unfinished");
    }
}

/// Drift is noted in the log; the folder stays as it is, and an unfinished restore stays unfinished.
#[test]
fn a_look_at_drift_finishes_no_restore() {
    let world = unfinished(false);
    let before = all_of(&[world.work()]);
    let _ = world.piton(["drift", "--no-fetch"]);
    assert_eq!(all_of(&[world.work()]), before);
    assert!(has_mark(&world.root()));
}

/// Brings what another user made into the working folder of a new world, as a clone or an archive would.
fn received(from: &World) -> World {
    let world = World::new();
    std::fs::remove_dir(world.work()).unwrap();
    let copied = world.program("cp", ["-a", from.work().to_str().unwrap(), world.work().to_str().unwrap()]);
    assert!({ copied }.current_dir("/").status().unwrap().success());
    // As git would make it.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(world.work().join(".piton"), open).unwrap();
    world
}

/// A store that came with a folder is not used, from a subfolder neither: whatever verb is tried, nothing is written.
#[test]
fn a_store_that_came_with_a_folder_is_not_used() {
    let world = received(&unfinished(true));
    let sub = world.work().join("sub/sub");
    std::fs::create_dir_all(&sub).unwrap();
    let before = all_of(&[world.work()]);
    let changing: [&[&str]; 7] = [
        &["save"],
        &["undo", "--yes"],
        &["restore", "@-", "--yes"],
        &["run", "flow.yml", "-i", "name=Ada"],
        &["guard", "--", "true"],
        &["init", "--here"],
        &["gc", "--yes"],
    ];
    let needs_store = |verb: &&&[&str]| !matches!(verb[0], "graph" | "validate" | "hook" | "doctor");
    for verb in LOOKS.iter().filter(needs_store).copied().chain(changing) {
        for folder in [world.work(), sub.clone()] {
            // These are about that very folder.
            if matches!(verb[0], "init" | "run") && folder == sub {
                continue;
            }
            let said = world.piton_in(&folder, verb);
            let refused = said.stderr.contains("error: [ROOT]/work/.piton isn't a store that you made here")
                && said.stderr.contains("`piton -C [ROOT]/work init --adopt`");
            assert!(said.code == Some(4) && refused, "{verb:?}: {}", said.whole());
        }
    }
    assert_eq!(all_of(&[world.work()]), before);
    // A hook says so, and the agent goes on.
    let event = r#"{"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "tidy up"}"#;
    let line = format!("echo '{event}' | piton hook call claude-code");
    let said = world.shell(&line).output().unwrap();
    assert!(said.status.success() && String::from_utf8_lossy(&said.stdout).contains("isn't a store that you made"));
    assert_eq!(all_of(&[world.work()]), before);
}

/// Adopting shows what there is, drops what is unfinished, and leaves the files alone.
#[test]
fn an_adopted_store_is_ones_own_without_what_was_unfinished() {
    let world = received(&unfinished(true));
    let before = all_of(&[world.work()]);
    let shown = world.piton(["init", "--adopt", "--dry-run"]);
    assert_eq!(shown.code, Some(0), "{}", shown.whole());
    for line in ["it holds 2 runs", "run first (flow.yml): completed", "1 unfinished restore is dropped"] {
        assert!(shown.stdout.contains(line), "{}", shown.whole());
    }
    assert_eq!(all_of(&[world.work()]), before, "a plan changes nothing");
    assert_eq!(world.piton(["init", "--adopt"]).code, Some(4), "without a person to ask nothing is done");
    let adopted = world.piton(["init", "--adopt", "--yes"]);
    assert_eq!(adopted.code, Some(0), "{}", adopted.whole());
    assert!(!has_mark(&world.work()));
    let status = world.piton(["status"]);
    assert!(status.code == Some(0) && !status.stderr.contains("cut short"), "{}", status.whole());
    assert_eq!(world.piton(["save"]).code, Some(0));
    for name in FILES {
        let path = world.work().join(name);
        assert_eq!(std::fs::read(&path).unwrap(), before[&path].0, "{name} stays as it came");
    }
    assert_eq!(world.piton(["show", "first"]).code, Some(0));
    let again = world.piton(["init", "--adopt", "--yes"]);
    assert!(again.code == Some(0) && again.stderr.contains("yours already"), "{}", again.whole());
}

/// It is the id that counts: one's own folder may be moved and copied. Without a state directory there is a way out.
#[test]
fn ones_own_store_inside_a_folder_goes_where_the_folder_goes() {
    let world = World::new();
    assert_eq!(world.piton(["init", "--here"]).code, Some(0));
    world.write("a", "one");
    assert_eq!(world.piton(["save"]).code, Some(0));
    let (copy, moved) = (world.root().join("copy"), world.root().join("moved"));
    let copied = world.program("cp", ["-a", world.work().to_str().unwrap(), copy.to_str().unwrap()]).status().unwrap();
    assert!(copied.success());
    std::fs::rename(world.work(), &moved).unwrap();
    for folder in [&copy, &moved] {
        let said = world.piton_in(folder, ["status", "--json"]);
        assert_eq!(said.code, Some(0), "{}", said.whole());
    }
    // A new machine with the same folder, and one without any state directory.
    let elsewhere = |home: Option<&str>, arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.current_dir(&moved).env_remove("HOME");
        if let Some(home) = home {
            command.env("HOME", world.root().join(home));
        }
        world.wait(command.spawn().unwrap())
    };
    let new = elsewhere(Some("new"), &["status"]);
    assert!(new.code == Some(4) && new.stderr.contains("In CI or a container"), "{}", new.whole());
    let none = elsewhere(None, &["status"]);
    assert!(none.code == Some(1) && none.stderr.contains("set HOME, or name a store"), "{}", none.whole());
    let named = format!("sqlite:{}/.piton/store.db", moved.display());
    for home in [None, Some("new")] {
        let said = elsewhere(home, &["--store", &named, "status"]);
        assert_eq!(said.code, Some(0), "{}", said.whole());
    }
}
