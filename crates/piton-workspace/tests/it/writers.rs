//! Programs that write while their files are restored. Promise 21.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_log::upkeep::check;
use piton_log::{Draft, RunLog};
use piton_store::{Store, Sweep};
use piton_testing::level::by_level;
use piton_testing::{CrashStore, Fault};
use piton_types::{EntryKind, Timestamp};
use piton_workspace::{Goal, Rescued, RestoreOptions, Side, SnapshotReach, Workspace, WorkspaceError};

use crate::merging::Dice;
use crate::world::{World, context};

/// A large file, so that to read it takes a while.
const SIZE: usize = 4 << 20;

/// A whole content that says which it is from its first to its last byte.
fn content(number: usize) -> Vec<u8> {
    format!("{number:07}\n").into_bytes().repeat(SIZE / 8)
}

/// How a program writes a file.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// A new one takes its place, as editors do.
    Replaced,
    /// In place.
    Rewritten,
}

fn write(path: &Path, bytes: &[u8], way: Way) {
    match way {
        Way::Replaced => {
            let beside = path.with_extension("new");
            std::fs::write(&beside, bytes).unwrap();
            std::fs::rename(beside, path).unwrap();
        }
        Way::Rewritten => {
            let mut file = File::create(path).unwrap();
            for piece in bytes.chunks(256 << 10) {
                file.write_all(piece).unwrap();
            }
        }
    }
}

/// Where a content is: in the file, or with what was rescued.
fn on_disk(root: &Path, bytes: &[u8]) -> Option<PathBuf> {
    let rescues = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let rescues = rescues.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("piton-recovered-"));
    let kept = rescues.flat_map(|folder| std::fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    kept.chain([root.join("large")]).find(|path| std::fs::read(path).is_ok_and(|found| found == bytes))
}

async fn in_a_checkpoint(world: &World, bytes: &[u8]) -> bool {
    let workspace = world.workspace();
    let timeline = workspace.timeline().await.unwrap();
    let first = timeline.moments[0].snapshot;
    for moment in &timeline.moments {
        let changes = workspace.detect_changes(first, Side::Stored(moment.snapshot), &Arc::default()).await.unwrap();
        for entry in changes.changes.iter().filter_map(|change| change.new.as_ref()) {
            if workspace.read(entry).await.unwrap().is_some_and(|found| found == bytes) {
                return true;
            }
        }
    }
    false
}

/// Every write that was completed during a restore is in the file, in a checkpoint, or in the folder that the outcome names.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_written_to_a_large_file_during_its_restore_is_not_lost() {
    let dice = Dice::new(23);
    let trials = by_level(30, 100, 2000);
    let (mut takes, mut counts) = (Duration::from_millis(100), [0; 4]);
    for trial in 0..trials {
        let world = World::new();
        world.write("large", content(0));
        let start = world.save("").await;
        world.write("large", content(1));
        // In half of the trials it is settled: its time alone says that it didn't change.
        if dice.below(2) == 0 {
            std::thread::sleep(Duration::from_millis(30));
        }
        let way = [Way::Replaced, Way::Rewritten][dice.below(2)];
        let (path, mine) = (world.path("large"), content(2 + trial));
        let wait = takes.mul_f64(dice.below(1000) as f64 / 1000.0);
        let writer = std::thread::spawn(move || {
            std::thread::sleep(wait);
            write(&path, &mine, way);
        });
        let began = Instant::now();
        let outcome = world.restore(&start.checkpoint).await;
        takes = (takes * 3 + began.elapsed()) / 4;
        writer.join().unwrap();
        let mine = content(2 + trial);
        let rescued: Vec<Rescued> = match outcome {
            Ok(restored) => restored.rescued,
            Err(WorkspaceError::Incomplete { rescued, .. }) => rescued,
            Err(error) => panic!("{error:?}"),
        };
        match on_disk(&world.root(), &mine) {
            Some(path) if path == world.path("large") => counts[0] += 1,
            Some(path) => {
                let is_it = |one: &Rescued| world.root().join(one.kept.as_path()) == path;
                let named = rescued.iter().find(|one| is_it(one)).unwrap_or_else(|| panic!("{path:?}: {rescued:?}"));
                assert_eq!(named.path.as_ref().unwrap().to_string(), "large");
                counts[1] += 1;
            }
            None if in_a_checkpoint(&world, &mine).await => counts[2] += 1,
            None => counts[3] += 1,
        }
    }
    let [file, rescued, checkpoint, lost] = counts;
    println!("{trials} writes: {file} in the file, {rescued} rescued, {checkpoint} in a checkpoint, {lost} lost");
    assert_eq!(lost, 0);
}

/// The negative control: a restore that doesn't look a second time loses a write between its look and its replacement, and
/// the search says so.
#[test]
fn a_restore_without_a_second_look_is_found_out() {
    for way in [Way::Replaced, Way::Rewritten] {
        let world = World::new();
        world.write("large", content(1));
        let looked = std::fs::read(world.path("large")).unwrap();
        write(&world.path("large"), &content(2), way);
        assert_eq!(looked, content(1));
        std::fs::write(world.path("restored"), content(0)).unwrap();
        std::fs::rename(world.path("restored"), world.path("large")).unwrap();
        assert_eq!(on_disk(&world.root(), &content(2)), None);
    }
}

/// A program that has a file open for writing goes on with the file that it has, which is kept and named.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_has_open_for_writing_is_kept() {
    for settled in [false, true] {
        let world = World::new();
        world.write("log", "one\n");
        world.write("gone", "");
        let start = world.save("").await;
        world.remove("gone");
        world.write("log", "one\ntwo\n");
        world.write("fresh", "fresh\n");
        if settled {
            std::thread::sleep(Duration::from_millis(50));
        }
        let open = |name: &str| File::options().write(true).open(world.path(name)).unwrap();
        let (log, fresh) = (open("log"), open("fresh"));
        let restored = world.restore(&start.checkpoint).await.unwrap();
        assert_eq!(world.read("log"), "one\n");
        assert!(!world.has("fresh") && world.has("gone"));
        log.write_all_at(b"three\n", 8).unwrap();
        fresh.write_all_at(b"more\n", 6).unwrap();
        let kept: Vec<(String, String)> = restored
            .rescued
            .iter()
            .map(|one| (one.path.as_ref().unwrap().to_string(), world.read(&one.kept.to_string())))
            .collect();
        assert_eq!(kept, [("fresh", "fresh\nmore\n"), ("log", "one\ntwo\nthree\n")].map(|(a, b)| (a.into(), b.into())));
        drop((log, fresh));
        // Without one nothing is kept.
        world.write("log", "four\n");
        assert_eq!(world.restore(&start.checkpoint).await.unwrap().rescued, []);
    }
}

/// The folder with a change to take back, and the checkpoint to go to; the store as the process of the test has it.
async fn changed(world: &World) -> piton_types::CheckpointRef {
    world.write("a", "1");
    world.write("b", "1");
    let start = world.save("").await.checkpoint;
    world.write("a", "2");
    world.remove("b");
    start
}

/// Another writer of the folder's log is first, whenever that is: the restore looks again and is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_meets_another_writer_tries_again() {
    let mut met = 0;
    for call in 1.. {
        let world = World::new();
        let start = changed(&world).await;
        let store = Arc::new(CrashStore::new(Arc::clone(&world.store), Fault::StopBefore(call)));
        let dying: Arc<dyn Store> = store.clone();
        let workspace = Workspace::open(&context(&dying), &world.root(), world.options.clone()).unwrap();
        let goal = Goal::Checkpoint(start.clone());
        let restoring =
            tokio::spawn(async move { workspace.restore_to(&goal, &RestoreOptions::default(), &Arc::default()).await });
        while !store.is_stopped() && !restoring.is_finished() {
            tokio::task::yield_now().await;
        }
        let stopped = store.is_stopped();
        if stopped {
            let mut log = RunLog::open(Arc::clone(&world.store), &start.run).await.unwrap();
            log.append(Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(1))).await.unwrap();
            met += 1;
        }
        store.let_go_on();
        let restored = restoring.await.unwrap();
        assert!(restored.is_ok(), "at call {call} of {:?}: {restored:?}", store.names());
        assert_eq!((world.read("a"), world.read("b")), ("1".to_owned(), "1".to_owned()));
        assert!(world.workspace().recover(&Arc::default()).await.unwrap().is_none(), "all of it was done");
        if !stopped {
            break;
        }
    }
    println!("met another writer at {met} calls");
    assert!(met > 5);
}

/// A folder whose restore was killed when its backup was written and no file changed, and where its contents wait.
async fn killed() -> (World, PathBuf) {
    let world = World::new();
    let start = changed(&world).await;
    let calls = {
        let scratch = World::new();
        let start = changed(&scratch).await;
        let store = Arc::new(CrashStore::new(Arc::clone(&scratch.store), Fault::None));
        let dying: Arc<dyn Store> = store.clone();
        let workspace = Workspace::open(&context(&dying), &scratch.root(), scratch.options.clone()).unwrap();
        workspace.restore_to(&Goal::Checkpoint(start), &RestoreOptions::default(), &Arc::default()).await.unwrap();
        store.names().iter().position(|name| *name == "append").unwrap() as u64 + 1
    };
    let dying: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&world.store), Fault::CrashAfter(calls)));
    let workspace = Workspace::open(&context(&dying), &world.root(), world.options.clone()).unwrap();
    workspace.restore_to(&Goal::Checkpoint(start), &RestoreOptions::default(), &Arc::default()).await.unwrap_err();
    let staging = std::fs::read_dir(&world.options.state).unwrap().map(|entry| entry.unwrap().path());
    let staging = staging.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(".piton-tmp-"));
    let staging = staging.last().expect("contents wait there");
    (world, staging)
}

/// The contents of a restore that was killed are lost, with the folder that they waited in: it ends with what is there, says so,
/// and nothing is wedged. The negative control: with the contents it is finished.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_whose_contents_are_lost_ends_and_says_so() {
    for lost in [true, false] {
        let (world, staging) = killed().await;
        std::fs::remove_dir_all(staging).unwrap();
        if lost {
            let one = world.store.hashing().blob(b"1");
            let packs = world.store.locate(&[one]).await.unwrap().into_iter().flatten().collect::<Vec<_>>();
            let at = Timestamp::from_millis(1);
            world.store.condemn(&packs, at).await.unwrap();
            let packs = packs.into_iter().map(|pack| (pack, at)).collect();
            assert_eq!(world.store.sweep(Sweep { packs, bytes: u64::MAX }).await.unwrap().packs, 1);
        }
        let recovered = world.workspace().recover(&Arc::default()).await.unwrap().unwrap();
        let left: Vec<String> = recovered.left.iter().map(|(path, _)| path.to_string()).collect();
        assert_eq!(left, if lost { vec!["a", "b"] } else { vec![] }, "{recovered:?}");
        assert_eq!((world.read("a"), world.has("b")), if lost { ("2".into(), false) } else { ("1".into(), true) });
        assert!(world.workspace().recover(&Arc::default()).await.unwrap().is_none());
        let saved = world.save("").await;
        world.write("a", "3");
        world.restore(&saved.checkpoint).await.unwrap();
        assert_eq!(world.read("a"), if lost { "2" } else { "1" });
    }
}

/// What the files share with the newest checkpoint vanishes while a restore is under way, whenever that is: it looks again and
/// is done, and says so only if all of it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_meets_a_collection_tries_again() {
    let mut met = 0;
    for call in 1.. {
        let world = World::new();
        for file in ["d/1", "d/2", "e/1"] {
            world.write(file, "0");
        }
        let start = world.save("").await.checkpoint;
        world.write("d/1", "shared with what is removed");
        // Settled, so that the next look takes the cache's word for it.
        std::thread::sleep(Duration::from_millis(50));
        let removed = world.save("").await.checkpoint;
        world.write("e/1", "2");
        let store = Arc::new(CrashStore::new(Arc::clone(&world.store), Fault::StopBefore(call)));
        let dying: Arc<dyn Store> = store.clone();
        let workspace = Workspace::open(&context(&dying), &world.root(), world.options.clone()).unwrap();
        let goal = Goal::Checkpoint(start.clone());
        let restoring =
            tokio::spawn(async move { workspace.restore_to(&goal, &RestoreOptions::default(), &Arc::default()).await });
        while !store.is_stopped() && !restoring.is_finished() {
            tokio::task::yield_now().await;
        }
        let stopped = store.is_stopped();
        if stopped {
            let mut log = RunLog::open(Arc::clone(&world.store), &start.run).await.unwrap();
            log.remove_checkpoints(&[removed.seq].into(), "for a test").await.unwrap();
            world.collect().await;
            met += 1;
        }
        store.let_go_on();
        let restored = restoring.await.unwrap();
        let names = store.names();
        let restored = restored.unwrap_or_else(|error| panic!("at call {call} of {names:?}: {error:?}"));
        assert_eq!((world.read("d/1"), world.read("e/1")), ("0".to_owned(), "0".to_owned()));
        assert!(world.workspace().recover(&Arc::default()).await.unwrap().is_none(), "all of it was done");
        let report = check(&world.store, &SnapshotReach, true).await.unwrap();
        assert!(report.is_whole(), "at call {call}: {report:?}");
        world.restore(&restored.backup.unwrap()).await.unwrap();
        assert_eq!(world.read("d/1"), "shared with what is removed", "at call {call}");
        if !stopped {
            break;
        }
    }
    println!("met a collection at {met} calls");
    assert!(met > 5);
}

/// A restore that was killed is finished whatever lies in the place of what waited for it; what is there by then is named.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_in_the_place_of_a_staged_file_stops_the_recovery() {
    for kind in ["folder", "link", "file", "whole folder gone", "link instead of the folder"] {
        let (world, staging) = killed().await;
        let staged: Vec<PathBuf> = std::fs::read_dir(&staging).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(staged.len(), 2);
        let outside = world.scratch.join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("canary"), "alive").unwrap();
        std::fs::remove_file(&staged[0]).unwrap();
        match kind {
            "folder" => std::fs::create_dir_all(staged[0].join("mine")).unwrap(),
            "link" => std::os::unix::fs::symlink(outside.join("canary"), &staged[0]).unwrap(),
            "file" => std::fs::write(&staged[0], "mine").unwrap(),
            "whole folder gone" => std::fs::remove_dir_all(&staging).unwrap(),
            _ => {
                std::fs::remove_dir_all(&staging).unwrap();
                std::os::unix::fs::symlink(&outside, &staging).unwrap();
            }
        }
        let recovered = world.workspace().recover(&Arc::default()).await.unwrap().unwrap();
        assert_eq!((world.read("a"), world.read("b")), ("1".to_owned(), "1".to_owned()), "{kind}");
        assert_eq!(recovered.left, [], "{kind}");
        assert_eq!(recovered.rescued.len(), usize::from(matches!(kind, "folder" | "link" | "file")), "{kind}");
        assert!(recovered.rescued.iter().all(|one| world.has(&one.kept.to_string())));
        assert_eq!(std::fs::read_to_string(outside.join("canary")).unwrap(), "alive");
        world.save("").await;
        world.undo().await.unwrap();
        assert_eq!(world.read("a"), "2", "{kind}");
        assert!(!world.has("b"));
    }
}
