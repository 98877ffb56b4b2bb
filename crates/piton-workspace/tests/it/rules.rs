//! Ignore files that an agent writes, and that hide most of what was captured.

use std::sync::Arc;

use piton_log::RunLog;
use piton_types::Value;
use piton_workspace::{Collapsed, Session, WorkspaceOptions};

use crate::world::{World, look};

fn filled() -> World {
    let world = World::new();
    for n in 0..20 {
        world.write(&format!("src/{n}"), format!("{n}"));
    }
    world.write(".gitignore", "out/\n");
    world.write("out/ignored", "mine");
    world
}

/// What an agent writes into ignore files hides nothing from the checkpoints of its own session: all that it did is seen and
/// taken back. What was ignored when it began still is.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_cannot_hide_files_from_its_own_session() {
    for rules in [".gitignore", ".pitonignore", "src/.gitignore", "src/.pitonignore"] {
        for end in [true, false] {
            let world = filled();
            let before = look(&world.root());
            let mut session = Session::begin(&world.workspace(), "agent").await.unwrap();
            world.write(rules, "*\n.*\n/src\n");
            world.write("src/1", "changed");
            world.remove("src/2");
            world.write("src/new/file", "new");
            let saved = session.checkpoint("").await.unwrap().unwrap();
            world.write("src/3", "changed");
            let (opened, after) = match end {
                true => {
                    let end = session.end(Ok(Value::Null)).await.unwrap();
                    (end.before, end.after)
                }
                false => (session.opened().snapshot, session.checkpoint("").await.unwrap().unwrap().snapshot),
            };
            assert!(saved.snapshot.files >= 20 && after.files >= opened.files, "{rules}: {after:?}");
            assert_eq!(after.excluded, opened.excluded, "{rules}");
            if end {
                world.undo().await.unwrap();
            } else {
                world.restore(&saved.checkpoint).await.unwrap();
                assert_eq!(world.read("src/3"), "3", "{rules}");
                let first = world.workspace().timeline().await.unwrap().moments[0].checkpoint.clone();
                world.restore(&first).await.unwrap();
            }
            assert_eq!(look(&world.root()), before, "{rules}");
        }
    }
}

/// Ignore files that suddenly hide most of what was captured don't, and that is told, until the user says that they may.
/// The negative control: a rule that hides little holds at once.
#[tokio::test(flavor = "multi_thread")]
async fn rules_that_hide_most_files_hold_only_if_the_user_says_so() {
    let mut world = filled();
    let start = world.save("").await;
    world.write(".pitonignore", "src/1\n");
    let little = world.save("").await;
    // The ignore file itself has come.
    assert_eq!((little.collapsed, little.snapshot.files), (None, start.snapshot.files));
    world.write(".pitonignore", "*\n");
    for _ in 0..3 {
        let saved = world.save("").await;
        let hidden = Collapsed { before: 21, hidden: 19, gone: 0 };
        assert_eq!((saved.collapsed, saved.snapshot.files), (Some(hidden), little.snapshot.files));
    }
    world.write("src/7", "changed");
    let saved = world.save("").await;
    world.write("src/7", "again");
    world.restore(&saved.checkpoint).await.unwrap();
    assert_eq!(world.read("src/7"), "changed");
    world.options = WorkspaceOptions { new_rules: true, ..world.options };
    let accepted = world.save("").await;
    assert_eq!(accepted.snapshot.files, 2, "the ignore files themselves");
    world.options.new_rules = false;
    let next = world.save("").await;
    assert_eq!((next.collapsed, next.snapshot.files), (None, 2));
}

/// Files that are gone are told too.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_gone_are_told() {
    let world = filled();
    let session = Session::begin(&world.workspace(), "agent").await.unwrap();
    std::fs::remove_dir_all(world.path("src")).unwrap();
    let end = session.end(Ok(Value::Null)).await.unwrap();
    assert_eq!(end.collapsed, Some(Collapsed { before: 21, hidden: 0, gone: 20 }));
}

/// A line of an ignore file that is too long, or one too many, hides nothing and costs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn ignore_files_have_limits() {
    let world = World::new();
    world.write("a", "1");
    world.write("b", "1");
    world.write("c", "1");
    let long = format!("{}a", "[ab]*".repeat(10 << 20));
    let many = "x\n".repeat(10_000);
    world.write(".pitonignore", format!("{long}\nb\n"));
    assert_eq!(world.save("").await.snapshot.excluded, 0, "the part that is read ends in the long line");
    world.write(".pitonignore", format!("{}\nb\n{many}c\n", &long[..5000]));
    assert_eq!(world.save("").await.snapshot.excluded, 1);
}

/// An ignore file with a hole of a terabyte is captured, and read as far as any other by the session that began with it.
#[tokio::test(flavor = "multi_thread")]
async fn an_ignore_file_that_is_a_hole_takes_no_memory() {
    let world = World::new();
    world.write("a", "1");
    std::fs::File::create(world.path(".pitonignore")).unwrap().set_len(1 << 40).unwrap();
    let session = Session::begin(&world.workspace(), "agent").await.unwrap();
    world.write("a", "2");
    let ended = session.end(Ok(Value::Null)).await.unwrap();
    assert_eq!(ended.after.files, 2);
}

/// The ignore files that hold may lie in a checkpoint that is removed: then those in the folder hold, and that is told. The
/// negative control: as long as the checkpoint is there, nothing is told.
#[tokio::test(flavor = "multi_thread")]
async fn rules_that_were_removed_are_told() {
    let world = filled();
    let start = world.save("").await;
    world.write(".pitonignore", "*\n");
    let held = world.save("").await;
    assert_eq!((held.snapshot.files, held.rules_lost), (start.snapshot.files + 1, false));
    world.write("src/1", "changed");
    assert!(!world.save("").await.rules_lost);
    let mut log = RunLog::open(Arc::clone(&world.store), &start.checkpoint.run).await.unwrap();
    log.remove_checkpoints(&[start.checkpoint.seq, held.checkpoint.seq].into(), "for a test").await.unwrap();
    world.collect().await;
    let saved = world.save("").await;
    assert!(saved.rules_lost && saved.snapshot.files < start.snapshot.files, "{saved:?}");
    assert_eq!(saved.collapsed, None, "no file is gone");
}
