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
    size   90 KB
    runs   0
    --- exit 0
    ");
    insta::assert_snapshot!(world.piton(["init", "--json"]).whole(), @r#"
    --- stdout
    {"bytes":90112,"encrypted":false,"location":"state","runs":0,"store":"sqlite:[ROOT]/home/.local/state/piton/[HASH]/store.db"}
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
    size   90 KB
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

#[test]
fn a_folder_below_is_told_of_the_store_above() {
    let world = World::with_run();
    let sub = world.work().join("sub");
    std::fs::create_dir(&sub).unwrap();
    insta::assert_snapshot!(world.piton_in(&sub, ["log"]).whole(), @r"
    --- stderr
    error: there is no store for [ROOT]/work/sub yet

    hint: [ROOT]/work has one: `piton -C [ROOT]/work …` uses it, `piton init` makes one for this folder.
    --- exit 1
    ");
    assert_eq!(world.piton_in(&sub, ["-C", "..", "show", "first"]).code, Some(0));
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
