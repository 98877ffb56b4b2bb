//! Where the store is, from outside.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::world::World;

fn runs(world: &World, folder: &Path) -> Option<u64> {
    let said = world.piton_in(folder, ["init", "--json"]);
    (said.code == Some(0)).then(|| said.json()["runs"].as_u64().unwrap())
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn init_says_where_the_store_is_and_can_be_repeated() {
    let world = World::new();
    insta::assert_snapshot!(world.piton(["init"]).whole(), @r"
    --- stdout
    store  sqlite:[ROOT]/home/.local/state/piton/[HASH]/store.db
    size   107 KB
    runs   0
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["init", "--json"]).whole(), @r#"
    --- stdout
    {"store":"sqlite:[ROOT]/home/.local/state/piton/[HASH]/store.db","location":"state","bytes":106496,"runs":0,"encrypted":false}
    --- exit 0
    "#);
    insta::assert_snapshot!(world.piton(["log"]).whole(), @r"
    --- stderr
    nothing to show
    --- exit 0
    ");
}

/// What `init` prints is how the store is named.
#[test]
fn what_is_printed_can_be_given_back() {
    let world = World::with_run();
    let said = world.command(["init", "--json"]).output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let url = said["store"].as_str().unwrap();
    assert!(url.starts_with("sqlite:/") && !url.starts_with("sqlite://"), "{url}");
    let elsewhere = world.piton_in(&world.root(), ["show", "first", "--json", "--store", url]);
    assert_eq!(elsewhere.json()["status"], "completed");
    let again = world.piton_in(&world.root(), ["init", "--json", "--store", url]).json();
    assert_eq!(again["runs"], 1);
}

#[test]
fn only_the_owner_can_read_it() {
    let world = World::with_run();
    let mut folders = vec![world.state()];
    while let Some(folder) = folders.pop() {
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{}", folder.display());
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
            }
        }
    }
}

#[test]
fn inside_the_folder_git_ignores_it() {
    let world = World::new();
    git(&world.work(), &["init", "-q"]);
    insta::assert_snapshot!(world.piton(["init", "--here"]).whole(), @r"
    --- stdout
    store  sqlite:[ROOT]/work/.piton/store.db
    size   107 KB
    runs   0
    --- stderr
    It is inside the folder: git ignores it, but `git clean -fdx` and `rm -rf` take it away.
    --- exit 0
    ");
    assert_eq!(git(&world.work(), &["status", "--porcelain"]), "");
    let outside: Vec<_> = std::fs::read_dir(world.state()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(outside, [".inside"], "only that it was made here");
    // From a subfolder it is the same store.
    let sub = world.work().join("a/b");
    std::fs::create_dir_all(&sub).unwrap();
    assert_eq!(world.piton_in(&sub, ["log"]).code, Some(0));
}

#[test]
fn going_inside_says_where_the_runs_so_far_are() {
    let world = World::with_run();
    let said = world.piton(["init", "--here"]);
    assert!(said.stderr.contains("the runs so far stay in sqlite:[ROOT]/home/"), "{}", said.stderr);
    assert_eq!(world.piton(["show", "first"]).code, Some(1));
}

#[test]
fn cleaning_or_deleting_the_folder_does_not_take_it_away() {
    let world = World::with_run();
    git(&world.work(), &["init", "-q"]);
    git(&world.work(), &["clean", "-fdxq"]);
    assert_eq!(std::fs::read_dir(world.work()).unwrap().count(), 1, "all but .git is gone");
    assert_eq!(world.piton(["show", "first"]).code, Some(0));
    std::fs::remove_dir_all(world.work()).unwrap();
    std::fs::create_dir(world.work()).unwrap();
    assert_eq!(world.piton(["show", "first"]).code, Some(0));
}

#[test]
fn a_moved_folder_keeps_its_store() {
    let world = World::with_run();
    let moved = world.root().join("moved");
    std::fs::rename(world.work(), &moved).unwrap();
    std::fs::create_dir(world.work()).unwrap();
    assert_eq!(runs(&world, &moved), Some(1));
    assert_eq!(world.piton(["log"]).code, Some(1), "another folder at the old place has none");
    assert_eq!(runs(&world, &world.work()), Some(0));
    assert_eq!(runs(&world, &moved), Some(1));
}

/// 25.12: as in git, a folder belongs to the nearest store above: names of files are meant from where one is, and the whole
/// folder is what is worked on. Only `init` makes a store of its own.
#[test]
fn a_folder_below_belongs_to_the_store_above() {
    let world = World::new();
    let sub = world.work().join("sub/deep");
    std::fs::create_dir_all(&sub).unwrap();
    world.write("a", "1");
    world.write("sub/deep/b", "1");
    let saved = world.piton(["save", "--json"]).json()["id"].as_str().unwrap().to_owned();
    world.write("a", "2");
    world.write("sub/deep/b", "2");
    let status = world.piton_in(&sub, ["status", "--json"]).json();
    assert_eq!(
        (&status["folder"], status["changes"].as_array().unwrap().len()),
        (&"[ROOT]/work".into(), 2),
        "{status}"
    );
    assert_eq!(world.piton_in(&sub, ["restore", "@", "b", "--yes"]).code, Some(0));
    assert_eq!((world.lines("a"), world.lines("sub/deep/b")), (vec!["2".to_owned()], vec!["1".to_owned()]));
    assert_eq!(world.piton_in(&sub, ["restore", &saved, "../../a", "--exact", "--yes"]).code, Some(0));
    assert_eq!(world.lines("a"), ["1"]);
    let log = world.piton_in(&sub, ["log", "b", "--json"]);
    assert!(log.code == Some(0) && log.stdout.contains("sub/deep/b"), "{}", log.whole());
    let guarded = world.piton_in(&sub, ["guard", "--json", "--", "sh", "-c", "echo 3 > b"]).json();
    assert_eq!(guarded["changes"][0]["path"], "sub/deep/b", "{guarded}");
    assert_eq!(std::fs::read_dir(world.state()).unwrap().count(), 1, "it is one store");

    assert_eq!(runs(&world, &sub), Some(0), "init makes its own");
    assert_eq!(world.piton_in(&sub, ["log", "--json"]).stdout, "");
    assert!(!world.piton_in(&world.work().join("sub"), ["log", "--json"]).stdout.is_empty());
}

/// 25.12: stores are listed with their folders, given to another folder, and removed after a plan that was agreed to.
#[test]
fn stores_are_listed_moved_and_removed() {
    let world = World::with_run();
    let other = world.root().join("other");
    std::fs::create_dir(&other).unwrap();
    let stores = || {
        let listed = world.piton(["store", "ls", "--json"]).stdout;
        listed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()).collect::<Vec<_>>()
    };
    let listed = stores();
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["folder"], &listed[0]["runs"]), (&"[ROOT]/work".into(), &1.into()), "{listed:?}");
    assert!(listed[0]["bytes"].as_u64().unwrap() > 0 && listed[0]["is_there"] == true, "{listed:?}");

    // The folder came to another disk: here another folder has its files, and the old one is gone.
    std::fs::remove_dir_all(world.work()).unwrap();
    assert_eq!(stores_in(&world, &other)[0]["is_there"], false);
    assert_eq!(world.piton_in(&other, ["show", "first"]).code, Some(1));
    let old = world.root().join("work");
    assert_eq!(world.piton_in(&other, ["store", "mv", old.to_str().unwrap()]).code, Some(0));
    assert_eq!(world.piton_in(&other, ["show", "first"]).code, Some(0));
    assert_eq!(stores_in(&world, &other)[0]["folder"], "[ROOT]/other");
    let again = world.piton_in(&other, ["store", "mv", "."]);
    assert!(again.code == Some(1) && again.stderr.contains("has a store already"), "{}", again.whole());

    let name = stores_in(&world, &other)[0]["name"].as_str().unwrap().to_owned();
    let refused = world.piton_in(&other, ["store", "rm", &name]);
    assert_eq!(refused.code, Some(4), "no person can be asked: {}", refused.whole());
    assert_eq!(world.piton_in(&other, ["store", "rm", &name, "--dry-run"]).code, Some(0));
    assert_eq!(world.piton_in(&other, ["show", "first"]).code, Some(0), "nothing was done so far");
    assert_eq!(world.piton_in(&other, ["store", "rm", &name[..6], "--yes"]).code, Some(0));
    assert!(stores_in(&world, &other).is_empty());
    assert_eq!(world.piton_in(&other, ["show", "first"]).code, Some(1));
    let unknown = world.piton_in(&other, ["store", "rm", &name, "--yes"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("there is no store"), "{}", unknown.whole());
}

/// What `store ls` says in another folder.
fn stores_in(world: &World, folder: &Path) -> Vec<serde_json::Value> {
    let listed = world.piton_in(folder, ["store", "ls", "--json"]).stdout;
    listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// 25.12: a store in which a run is at work isn't removed.
#[test]
fn a_store_with_a_run_at_work_is_not_removed() {
    let world = World::new();
    let guard = world.command(["guard", "--", "sh", "-c", "touch began; while ! test -e ../go; do sleep 0.05; done"]);
    let guard = { guard }.spawn().unwrap();
    crate::world::wait_until(|| world.work().join("began").exists());
    let said = world.piton(["store", "rm", ".", "--yes"]);
    assert!(said.code == Some(4) && said.stderr.contains("is at work"), "{}", said.whole());
    std::fs::write(world.root().join("go"), "").unwrap();
    assert_eq!(world.wait(guard).code, Some(0));
    assert_eq!(world.piton(["store", "rm", ".", "--yes"]).code, Some(0));
}

#[test]
fn options_and_variables_name_a_store() {
    let world = World::with_run();
    let other = format!("sqlite:{}/other.db", world.root().display());
    assert_eq!(world.piton(["init", "--store", &other, "--json"]).json()["location"], "option");
    assert_eq!(world.piton(["show", "first", "--store", &other]).code, Some(1));
    let said = world.command(["show", "first"]).env("PITON_STORE", &other).output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    let said = world.command(["init", "--json"]).env("XDG_STATE_HOME", world.root().join("xdg")).output().unwrap();
    assert!(
        String::from_utf8(said.stdout).unwrap().contains(":/")
            && std::fs::read_dir(world.root().join("xdg/piton")).unwrap().count() == 1
    );
    let said = world.command(["init"]).env_remove("HOME").output().unwrap();
    assert_eq!(said.status.code(), Some(1));
}

#[test]
fn a_state_directory_that_is_no_folder_is_refused() {
    let world = World::new();
    let state = world.state();
    std::fs::create_dir_all(state.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(world.work(), &state).unwrap();
    insta::assert_snapshot!(world.piton(["init"]).whole(), @r"
    --- stderr
    error: [ROOT]/home/.local/state/piton is not a folder

    hint: piton keeps stores there and follows no links; move it away, or name a store with `--store URL`.
    --- exit 4
    ");
    assert_eq!(std::fs::read_dir(world.work()).unwrap().count(), 0);
}
