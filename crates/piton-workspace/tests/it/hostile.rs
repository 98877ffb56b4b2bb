//! Snapshots and disks that mean harm. Promises 4, 16, 21.

use std::sync::Arc;

use piton_log::{Content, ContentWriter, Draft, DraftPart, RunLog};
use piton_testing::scratch::tiny_tmpfs;
use piton_types::{BlobId, CheckpointRef, EntryKind, PartName, Timestamp, Value};
use piton_workspace::{ExportOptions, Goal, RestoreOptions, WorkspaceError, WorkspaceOptions};

use crate::world::{Plain, World, look};

/// Commits a snapshot whose tree is `node`, as an attacker who can write the store would.
async fn forge(world: &World, node: Vec<u8>) -> CheckpointRef {
    world.write("seed", "x");
    let run = world.save("").await.checkpoint.run;
    let (store, runtime) = (Arc::clone(&world.store), tokio::runtime::Handle::current());
    let (id, staged): (BlobId, _) = tokio::task::spawn_blocking(move || {
        let writer = ContentWriter::new(store, runtime, piton_store::Pin::new());
        let id = writer.put(&node).unwrap();
        writer.put(b"owned").unwrap();
        (id, writer.finish().unwrap())
    })
    .await
    .unwrap();
    let mut log = RunLog::open(Arc::clone(&world.store), &run).await.unwrap();
    let field = |name: &str, value: Value| (name.to_owned(), value);
    let value = Value::Map(
        [
            field("tree", Value::from(id.to_string())),
            field("files", Value::from(1)),
            field("bytes", Value::from(1)),
            field("excluded", Value::from(0)),
        ]
        .into(),
    );
    let content = Content::Value(&value);
    let part =
        DraftPart { name: PartName::WORKSPACE.into(), schema: "piton.workspace".to_owned(), version: 1, content };
    let at = Timestamp::from_millis(4_000_000_000_000);
    let draft = Draft { parts: vec![part], staged, ..Draft::new(EntryKind::Checkpoint, at) };
    let seq = log.append(draft).await.unwrap();
    CheckpointRef { run, seq }
}

/// A leaf with entries of these names, each a file with the content `owned`.
fn leaf(world: &World, names: &[&[u8]]) -> Vec<u8> {
    leaf_with(world, names, 0o644)
}

fn leaf_with(world: &World, names: &[&[u8]], mode: u16) -> Vec<u8> {
    let mut node = vec![1, u8::try_from(names.len()).unwrap()];
    let [low, high] = [mode & 0x7f | 0x80, mode >> 7].map(|part| u8::try_from(part).unwrap());
    for name in names {
        node.push(u8::try_from(name.len()).unwrap());
        node.extend_from_slice(name);
        node.extend_from_slice(&[1, low, high, 5]);
        node.extend_from_slice(world.store.hashing().blob(b"owned").as_bytes());
    }
    node
}

/// Promise 16: no name in a snapshot leads outside.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_lead_out_are_refused_and_nothing_is_written() {
    for names in [
        &[&b".."[..]][..],
        &[b"../canary"],
        &[b"/canary"],
        &[b"a/../../canary"],
        &[b"."],
        &[b""],
        &[b"a\0b"],
        &[b"same", b"same"],
        &[b"b", b"a"],
        &[b".git"],
        &[b".GIT"],
        &[b".g\xe2\x80\x8cit"],
        &[b"git~1"],
        &[b".piton"],
        &[b".piton-tmp-7"],
    ] {
        let world = World::new();
        std::fs::write(world.scratch.join("canary"), "alive").unwrap();
        let checkpoint = forge(&world, leaf(&world, names)).await;
        let before = look(&world.root());
        let refused = world.restore(&checkpoint).await.map(|_| ());
        assert!(matches!(refused, Err(WorkspaceError::Snapshot { .. })), "{names:?}: {refused:?}");
        assert_eq!(look(&world.root()), before);
        assert_eq!(std::fs::read_to_string(world.scratch.join("canary")).unwrap(), "alive");
    }
    // The control: an honest one of the same make is restored.
    let world = World::new();
    let checkpoint = forge(&world, leaf(&world, &[b"fine"])).await;
    world.restore(&checkpoint).await.unwrap();
    assert_eq!(world.read("fine"), "owned");
}

/// A name that is git's or Piton's own is refused below the root too, and in what a snapshot is exported into; a file of the
/// folder that has such a name is named and not captured.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_into_a_repository_from_a_snapshot() {
    let world = World::new();
    // The leaf that lies below is put into the store like a file.
    let below = leaf(&world, &[b".git"]);
    world.write("leaf", &below);
    let mut node = vec![1, 1, 3, b's', b'u', b'b', 4, 0xed, 0x03];
    node.extend_from_slice(world.store.hashing().blob(&below).as_bytes());
    let checkpoint = forge(&world, node).await;
    let before = look(&world.root());
    let refused = world.restore(&checkpoint).await.map(|_| ());
    assert!(matches!(refused, Err(WorkspaceError::Snapshot { .. })), "{refused:?}");
    assert_eq!(look(&world.root()), before);
    let log = RunLog::open(Arc::clone(&world.store), &checkpoint.run).await.unwrap();
    let snapshot = piton_workspace::Workspace::snapshot_of(&log, checkpoint.seq).await.unwrap().unwrap();
    let into = world.scratch.join("exported");
    let refused = world.workspace().export(snapshot, &into, ExportOptions::default()).await;
    assert!(matches!(refused, Err(WorkspaceError::Snapshot { .. })), "{refused:?}");
    assert!(!into.exists());

    world.write("sub/.Git/config", "mine");
    world.write("sub/.gitignore", "nothing");
    let saved = world.save("").await;
    world.write("sub/.Git/config", "changed");
    world.remove("sub/.gitignore");
    world.restore(&saved.checkpoint).await.unwrap();
    assert_eq!((world.read("sub/.Git/config"), world.read("sub/.gitignore")), ("changed".into(), "nothing".into()));
}

/// A file that comes from a snapshot never runs as its owner: setuid, setgid and sticky are left out, whatever the snapshot
/// says; of a folder they stay as they are.
#[tokio::test(flavor = "multi_thread")]
async fn setuid_is_not_restored() {
    let world = World::new();
    let forged = forge(&world, leaf_with(&world, &[b"fine"], 0o6755)).await;
    world.restore(&forged).await.unwrap();
    assert_eq!(look(&world.root())[std::path::Path::new("fine")], Plain::File(b"owned".into(), 0o755));

    let world = World::new();
    world.write("folder/tool", "tool");
    world.mode("folder/tool", 0o4755);
    world.mode("folder", 0o2755);
    let start = world.save("").await;
    world.write("folder/tool", "other");
    world.mode("folder", 0o2700);
    world.restore(&start.checkpoint).await.unwrap();
    let tree = look(&world.root());
    assert_eq!(tree[std::path::Path::new("folder/tool")], Plain::File(b"tool".into(), 0o755));
    assert_eq!(tree[std::path::Path::new("folder")], Plain::Folder(0o2755));
    // One that was set since is taken away again.
    let start = world.save("").await;
    world.mode("folder/tool", 0o4755);
    world.restore(&start.checkpoint).await.unwrap();
    assert_eq!(look(&world.root()), tree);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_tree_are_refused() {
    for node in [vec![], vec![9], vec![1, 200], vec![2, 0], vec![1, 1, 1, b'a', 7], vec![1, 1, 1, b'a', 3, 0]] {
        let world = World::new();
        let checkpoint = forge(&world, node.clone()).await;
        let refused = world.restore(&checkpoint).await.map(|_| ());
        assert!(matches!(refused, Err(WorkspaceError::Snapshot { .. })), "{node:?}: {refused:?}");
    }
}

/// A disk that fills up in the middle: nothing has changed, nothing is left, and it works when there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_noticed_before_anything_changes() {
    let disk = tiny_tmpfs(8 << 20);
    let world = World::new();
    let root = disk.path().join("work");
    std::fs::create_dir(&root).unwrap();
    let open = || {
        let options = WorkspaceOptions { state: world.options.state.clone(), ..WorkspaceOptions::default() };
        piton_workspace::Workspace::open(&crate::world::context(&world.store), &root, options).unwrap()
    };
    std::fs::write(root.join("small"), "0").unwrap();
    std::fs::write(root.join("large"), vec![7; 3 << 20]).unwrap();
    let record = piton_workspace::Record::manual("");
    let saved = open().save(record, &Arc::default()).await.unwrap();
    std::fs::write(root.join("small"), "1").unwrap();
    std::fs::remove_file(root.join("large")).unwrap();
    std::fs::write(root.join("filler"), vec![0; 6 << 20]).unwrap();
    let before = look(&root);
    let goal = Goal::Checkpoint(saved.checkpoint);
    let full = open().restore_to(&goal, &RestoreOptions::default(), &Arc::default()).await.map(|_| ());
    assert!(matches!(full, Err(WorkspaceError::File { .. })), "{full:?}");
    assert_eq!(look(&root), before);
    disk.resize(32 << 20);
    open().restore_to(&goal, &RestoreOptions::default(), &Arc::default()).await.unwrap();
    assert_eq!(std::fs::read(root.join("large")).unwrap(), vec![7; 3 << 20]);
    assert!(!root.join("filler").exists());
}

/// Two restores at once: one after the other, and the folder is what one of them wanted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_restores_at_once_do_not_mix() {
    let world = World::new();
    let mut goals = Vec::new();
    for version in ["one", "two", "three"] {
        for n in 0..50 {
            world.write(&format!("{n}"), version);
        }
        goals.push(Goal::Checkpoint(world.save("").await.checkpoint));
    }
    let restore = |goal: Goal| {
        let workspace = world.workspace();
        tokio::spawn(async move { workspace.restore_to(&goal, &RestoreOptions::default(), &Arc::default()).await })
    };
    let (a, b) = (restore(goals[0].clone()), restore(goals[1].clone()));
    a.await.unwrap().unwrap();
    b.await.unwrap().unwrap();
    let all: std::collections::BTreeSet<String> = (0..50).map(|n| world.read(&n.to_string())).collect();
    assert!(all == ["one".to_owned()].into() || all == ["two".to_owned()].into(), "{all:?}");
}

/// A parent that is swapped for a link while the restore runs: nothing outside is touched.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_parent_swapped_for_a_link_during_the_restore_leads_nowhere() {
    let world = World::new();
    let outside = world.scratch.join("outside");
    std::fs::create_dir(&outside).unwrap();
    for n in 0..200 {
        world.write(&format!("folder/{n}"), "0");
        std::fs::write(outside.join(n.to_string()), "canary").unwrap();
    }
    let start = world.save("").await;
    let before = look(&outside);
    for _ in 0..5 {
        for n in 0..200 {
            world.write(&format!("folder/{n}"), "1");
        }
        let (folder, aside, target) = (world.path("folder"), world.path("aside"), outside.clone());
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stop = Arc::clone(&done);
        let swapper = std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = std::fs::rename(&folder, &aside);
                let _ = std::os::unix::fs::symlink(&target, &folder);
                std::thread::yield_now();
                let _ = std::fs::remove_file(&folder);
                let _ = std::fs::rename(&aside, &folder);
            }
        });
        // It may fail, or restore less: what counts is outside.
        let _ = world.restore(&start.checkpoint).await;
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        swapper.join().unwrap();
        assert_eq!(look(&outside), before);
        let _ = world.workspace().recover(&Arc::default()).await;
    }
}

/// Another writer changes the files while they are restored: every version that it wrote is on disk or in a backup.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_written_during_the_restore_is_not_lost() {
    let world = World::new();
    for n in 0..100 {
        world.write(&format!("{n}"), "0");
    }
    let start = world.save("").await;
    for n in 0..100 {
        world.write(&format!("{n}"), "1");
    }
    let root = world.root();
    let writer = std::thread::spawn(move || {
        let mut written = Vec::new();
        for n in (0..100).rev() {
            let path = root.join(n.to_string());
            // In one piece, as editors do.
            std::fs::write(root.join("editor"), format!("mine {n}")).unwrap();
            std::fs::rename(root.join("editor"), path).unwrap();
            written.push(n);
        }
        written
    });
    let outcome = world.restore(&start.checkpoint).await;
    let written = writer.join().unwrap();
    let timeline = world.workspace().timeline().await.unwrap();
    for n in written {
        let mine = format!("mine {n}");
        let mut found = world.read(&n.to_string()) == mine;
        for moment in &timeline.moments {
            let old = piton_workspace::Side::Stored(moment.snapshot);
            let changes = world.workspace().detect_changes(start.snapshot, old, &Arc::default()).await.unwrap();
            for change in changes.changes.iter().filter(|change| change.path.to_string() == n.to_string()) {
                let Some(entry) = &change.new else { continue };
                found |= world.workspace().read(entry).await.unwrap().is_some_and(|bytes| bytes == mine.as_bytes());
            }
        }
        assert!(found, "{mine} is nowhere: {outcome:?}");
    }
}

/// No link and no folder in the place of one of the folder's own files leads a write elsewhere, and none stops the work: not
/// even a hard link. The negative control is a write by path, which does overwrite what a link leads to.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_through_what_lies_in_the_place_of_our_own_files() {
    let names = ["lock", "reports", "reservations", "reservations.lock", "reservations.new", "moment", "moment.new"];
    let more = ["stat.cache", "stat.cache.new", "restoring", "restoring.new"];
    for name in names.into_iter().chain(more) {
        for kind in ["link", "hard link", "folder", "link to nothing"] {
            let world = World::new();
            world.write("a", "1");
            let start = world.save("").await;
            let (canary, place) = (world.scratch.join("canary"), world.options.state.join(name));
            std::fs::write(&canary, "alive").unwrap();
            let _ = std::fs::remove_file(&place);
            match kind {
                "link" => std::os::unix::fs::symlink(&canary, &place).unwrap(),
                "hard link" => std::fs::hard_link(&canary, &place).unwrap(),
                "folder" => std::fs::create_dir_all(place.join("mine")).unwrap(),
                _ => std::os::unix::fs::symlink(world.scratch.join("nothing"), &place).unwrap(),
            }
            let _ = world.workspace().recover(&Arc::default()).await.unwrap();
            world.write("a", "2");
            world.save("").await;
            world.restore(&start.checkpoint).await.unwrap_or_else(|error| panic!("{name} as a {kind}: {error:?}"));
            assert_eq!(world.read("a"), "1");
            let book = world.workspace().reservations(Arc::new(|_| false));
            let wanted = [(crate::reservations::path("a"), piton_workspace::ReserveMode::Write)];
            // A book that isn't one is refused, and is not written over.
            let taken = book.take(&wanted, &piton_workspace::Take::by("me")).await;
            assert_eq!(taken.is_ok(), (name, kind) != ("reservations", "hard link"), "{name} as a {kind}: {taken:?}");
            assert_eq!(std::fs::read_to_string(&canary).unwrap(), "alive", "{name} as a {kind}");
            assert!(!world.scratch.join("nothing").exists(), "{name} as a {kind}");
        }
    }
    let world = World::new();
    let (canary, link) = (world.scratch.join("canary"), world.scratch.join("link"));
    std::fs::write(&canary, "alive").unwrap();
    std::os::unix::fs::symlink(&canary, &link).unwrap();
    std::fs::write(&link, "overwritten").unwrap();
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), "overwritten");
}

/// A link in the place of the folder that they lie in is refused, in the workspace and elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_to_another_folder_is_no_place_for_our_own_files() {
    let mut world = World::new();
    let outside = world.scratch.join("outside");
    std::fs::create_dir(&outside).unwrap();
    for state in [world.scratch.join("link"), world.path("link"), world.path("link/below/it")] {
        let link = if state.starts_with(world.root()) { world.path("link") } else { state.clone() };
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        world.options.state = state;
        assert!(matches!(world.try_workspace(), Err(WorkspaceError::File { .. })));
        std::fs::remove_file(link).unwrap();
        assert!(look(&outside).is_empty());
    }
    world.options.state = world.path("folder/below/it");
    world.save("").await;
}

/// A part of the file system that is mounted in a second place.
struct Bound(std::path::PathBuf);

impl Bound {
    fn new(from: &std::path::Path, to: std::path::PathBuf) -> Self {
        let done = std::process::Command::new("mount").arg("--bind").args([from, &to]).status().unwrap();
        assert!(done.success());
        Self(to)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

/// Promise 16: what is mounted inside the folder is another file system, also if it is a part of the same one: named, not
/// captured, not restored, a file as well as a folder. Without the mount the same paths are.
#[tokio::test(flavor = "multi_thread")]
async fn mounts_inside_the_folder_are_left_alone() {
    let world = World::new();
    let outside = world.scratch.join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("x"), "outside").unwrap();
    world.write("mounted/x", "1");
    world.write("file", "1");
    world.write("deep/er/mounted/x", "1");
    let start = world.save("").await;
    let before = look(&outside);
    {
        let _bound = [
            Bound::new(&outside, world.path("mounted")),
            Bound::new(&outside, world.path("deep/er/mounted")),
            Bound::new(&outside.join("x"), world.path("file")),
        ];
        let saved = world.save("").await;
        assert_eq!((saved.snapshot.files, saved.snapshot.excluded), (0, 3));
        world.write("other", "2");
        let restored = world.restore(&start.checkpoint).await.unwrap();
        assert!(!world.has("other"));
        let left: Vec<String> = restored.plan.left.iter().map(|(path, _)| path.to_string()).collect();
        assert!(["file", "mounted"].iter().all(|name| left.iter().any(|left| left == name)), "{left:?}");
        assert_eq!(look(&outside), before);
    }
    world.write("mounted/x", "2");
    let saved = world.save("").await;
    assert_eq!((saved.snapshot.files, saved.snapshot.excluded), (3, 0));
    world.restore(&start.checkpoint).await.unwrap();
    assert_eq!(world.read("mounted/x"), "1");
}

/// The mode of a file that has another name isn't changed, since that name may lie outside: the file is replaced by a copy.
#[tokio::test(flavor = "multi_thread")]
async fn a_mode_is_not_restored_through_a_hard_link() {
    let world = World::new();
    world.write("linked", "text");
    world.write("alone", "text");
    for name in ["linked", "alone"] {
        world.mode(name, 0o777);
    }
    let start = world.save("").await;
    for name in ["linked", "alone"] {
        world.mode(name, 0o600);
    }
    let (outside, inode) = (world.scratch.join("outside"), world.inode("alone"));
    std::fs::hard_link(world.path("linked"), &outside).unwrap();
    world.restore(&start.checkpoint).await.unwrap();
    let tree = look(&world.root());
    for name in ["linked", "alone"] {
        assert_eq!(tree[std::path::Path::new(name)], Plain::File(b"text".into(), 0o777));
    }
    let mode = std::os::unix::fs::MetadataExt::mode(&outside.metadata().unwrap()) & 0o777;
    assert_eq!(mode, 0o600, "what is outside is as it was");
    assert_eq!(world.inode("alone"), inode, "only the mode of the other one was changed");
}

/// A folder that only has the form of a name of ours, in the workspace or beside the store, is the user's: a restore leaves it,
/// wherever its own contents wait. The negative control: of its own nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_only_looks_like_ours_is_left_alone() {
    let disk = tiny_tmpfs(8 << 20);
    for inside in [true, false] {
        let world = World::new();
        let root = if inside { disk.path().join("work") } else { world.root() };
        std::fs::create_dir_all(&root).unwrap();
        let open = || {
            piton_workspace::Workspace::open(&crate::world::context(&world.store), &root, world.options.clone())
                .unwrap()
        };
        std::fs::write(root.join("a"), "0").unwrap();
        let saved = open().save(piton_workspace::Record::manual(""), &Arc::default()).await.unwrap();
        std::fs::write(root.join("a"), "1").unwrap();
        let name = format!(".piton-tmp-{:032x}", 7);
        let places = [root.join(&name), world.options.state.join(&name)];
        for place in &places {
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join("mine"), "mine").unwrap();
            std::fs::write(place.join(format!("w0-{}", world.store.hashing().blob(b"mine"))), "mine").unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(place, mode).unwrap();
        }
        let before = places.each_ref().map(|place| look(place));
        let goal = Goal::Checkpoint(saved.checkpoint);
        open().restore_to(&goal, &RestoreOptions::default(), &Arc::default()).await.unwrap();
        assert_eq!(std::fs::read_to_string(root.join("a")).unwrap(), "0");
        assert_eq!(places.each_ref().map(|place| look(place)), before);
        let temporary = |folder: &std::path::Path| {
            let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            names.filter(|name| name.to_string_lossy().starts_with(".piton-tmp-")).count()
        };
        assert_eq!((temporary(&root), temporary(&world.options.state)), (1, 1));
    }
}
