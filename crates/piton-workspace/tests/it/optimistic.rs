//! Optimistic writes. W10.

use piton_workspace::{ContestedText, Resolver, WriteError};

use crate::reservations::path;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_made_only_on_top_of_what_was_read() {
    let world = World::new();
    world.write("a", "1\n2\n3\n4\n5\n");
    world.mode("a", 0o640);
    let lock = world.workspace().optimistic();
    let version = lock.acquire(&path("a")).await.unwrap();
    world.write("a", "1\n2\n3\n4\nmine\n");
    let Err(WriteError::Conflict { conflict }) = lock.check_and_commit(&version, "agent\n2\n3\n4\n5\n").await else {
        panic!("it wrote over what somebody else wrote")
    };
    assert_eq!(world.read("a"), "1\n2\n3\n4\nmine\n");
    assert_eq!(&conflict.base.content[..], b"1\n2\n3\n4\n5\n");
    assert_eq!(&conflict.current.content[..], b"1\n2\n3\n4\nmine\n");
    let merged = conflict.merged.unwrap();
    assert_eq!((merged.conflicts, &merged.text[..]), (0, &b"agent\n2\n3\n4\nmine\n"[..]));
    let written = lock.check_and_commit(&conflict.current, merged.text).await.unwrap();
    assert_eq!(world.read("a"), "agent\n2\n3\n4\nmine\n");
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&world.path("a").metadata().unwrap()) & 0o7777, 0o640);
    // A version leads to the next.
    lock.check_and_commit(&written.version, "next\n").await.unwrap();
    assert_eq!(std::fs::read_dir(world.root()).unwrap().count(), 1, "nothing is left beside it");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_and_deleted_files_are_versions_too() {
    let world = World::new();
    let lock = world.workspace().optimistic();
    let nothing = lock.acquire(&path("deep/er/a")).await.unwrap();
    assert_eq!(nothing.hash, None);
    lock.check_and_commit(&nothing, "new\n").await.unwrap();
    assert_eq!(world.read("deep/er/a"), "new\n");
    let Err(WriteError::Conflict { conflict }) = lock.check_and_commit(&nothing, "again\n").await else { panic!() };
    assert!(conflict.merged.is_none() && &conflict.current.content[..] == b"new\n");
    std::fs::remove_dir_all(world.path("deep")).unwrap();
    let Err(WriteError::Conflict { conflict }) = lock.check_and_commit(&conflict.current, "x").await else { panic!() };
    assert_eq!(conflict.current.hash, None);
    assert!(!world.has("deep"), "a conflict makes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_file_is_refused() {
    let world = World::new();
    world.write("folder/a", "");
    std::fs::write(world.scratch.join("outside"), "canary").unwrap();
    world.link("link", "../outside");
    let lock = world.workspace().optimistic();
    for wrong in ["folder", "link", ""] {
        let outcome = lock.acquire(&path(wrong)).await;
        assert!(matches!(outcome, Err(WriteError::NoFile { .. })), "{wrong}: {outcome:?}");
    }
    // A link that takes a file's place after it was read.
    let version = lock.acquire(&path("folder/a")).await.unwrap();
    world.remove("folder/a");
    world.link("folder/a", "../../outside");
    assert!(lock.check_and_commit(&version, "x").await.is_err());
    assert_eq!(std::fs::read_to_string(world.scratch.join("outside")).unwrap(), "canary");
}

/// A writer that was killed: what it had exchanged out and is stored nowhere else is kept, the rest goes.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_writer_left_is_cleared_or_kept() {
    let world = World::new();
    world.write("a", "new\n");
    let lock = world.workspace().optimistic();
    let hash = |text: &str| blake3::hash(text.as_bytes()).to_hex()[..16].to_owned();
    let whose = hash("a");
    let left = |new: &str, old: &str| format!(".piton-tmp-w-{whose}-{}-{}", hash(new), hash(old));
    // Before the exchange, cut short in the middle: never in its place.
    world.write(&left("unwritten\n", "old\n"), "unwri");
    // After it, with the old content.
    world.write(&left("new\n", "old\n"), "old\n");
    let version = lock.acquire(&path("a")).await.unwrap();
    let written = lock.check_and_commit(&version, "newer\n").await.unwrap();
    assert!(written.recovered.is_empty());
    assert_eq!(std::fs::read_dir(world.root()).unwrap().count(), 1);
    // After it, with what the user wrote that very moment.
    world.write(&left("newer\n", "old\n"), "the user's\n");
    let written = lock.check_and_commit(&written.version, "newest\n").await.unwrap();
    assert_eq!(written.recovered, [path("a.recovered")]);
    assert_eq!(world.read("a.recovered"), "the user's\n");
}

/// W10, W11: a write that is in the way of another may be put together by a resolver, which is told what both were after, and
/// whose answer is checked.
#[tokio::test(flavor = "multi_thread")]
async fn a_contested_write_may_be_resolved() {
    struct Joins;
    impl Resolver for Joins {
        fn resolve(&self, contested: &ContestedText) -> Result<Vec<u8>, String> {
            assert_eq!((&*contested.checkpoint_intent, &*contested.current_intent), ("to greet", "to sign"));
            Ok([&contested.current[..], &contested.checkpoint[..]].concat())
        }
    }
    struct Lies;
    impl Resolver for Lies {
        fn resolve(&self, _: &ContestedText) -> Result<Vec<u8>, String> {
            Ok(b"neither\n".to_vec())
        }
    }
    let world = World::new();
    world.write("a", "0\n");
    let lock = world.workspace().optimistic();
    let version = lock.acquire(&path("a")).await.unwrap();
    world.write("a", "signed\n");
    let Err(WriteError::Conflict { conflict }) = lock.check_and_commit(&version, "hello\n").await else { panic!() };
    assert!(conflict.resolve(&Lies, "", "").unwrap_err().contains("nothing of either"));
    let text = conflict.resolve(&Joins, "to greet", "to sign").unwrap();
    lock.check_and_commit(&conflict.current, text).await.unwrap();
    assert_eq!(world.read("a"), "signed\nhello\n");
}
