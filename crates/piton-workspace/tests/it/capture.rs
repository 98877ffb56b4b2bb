//! What a snapshot takes in, and what it says of the rest. Promise 20, decision 11.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use piton_store::{Blobs, Call, Fold, Leases, Log, MeteredStore, RunIndex, Store, StoreError, Upkeep, forward};
use piton_store_objects::ObjectStore;
use piton_workspace::{
    Progress, Reason, Record, RelPath, ReserveMode, Saved, Side, Take, Workspace, WorkspaceError, WorkspaceOptions,
};

use crate::reservations::path;
use crate::world::{World, look};

async fn excluded(world: &World, saved: &Saved) -> BTreeMap<String, Reason> {
    let found = world.workspace().excluded(saved.snapshot).await.unwrap();
    found.into_iter().map(|(path, reason)| (path.to_string(), reason)).collect()
}

/// How many files a save opens to read.
async fn files_read(world: &World) -> u64 {
    let progress = Arc::new(Progress::default());
    world.workspace().save(Record::manual(""), &progress).await.unwrap();
    progress.files.load(Ordering::Relaxed)
}

fn settle() {
    std::thread::sleep(Duration::from_millis(40));
}

/// A save of what didn't change reads as little after hundreds of such saves as after the first, and an edit is found all
/// the same: in a folder whose cache is written as a whole, and in one whose cache is patched.
#[tokio::test(flavor = "multi_thread")]
async fn saves_without_changes_stay_cheap() {
    for files in [3, 2_000] {
        let store = Arc::new(MeteredStore::new(Arc::new(ObjectStore::in_memory())));
        let metrics = store.metrics();
        let world = World::with_store(store);
        for number in 0..files {
            world.write(&format!("{}/{number}", number % 7), number.to_string());
        }
        settle();
        world.save("").await;
        let read = || metrics.of(Call::Read).bytes + metrics.of(Call::Section).bytes;
        let mut of_each = Vec::new();
        for _ in 0..100 {
            let before = read();
            assert_eq!(files_read(&world).await, 0);
            of_each.push(read() - before);
        }
        // Now and then one folds what the others wrote.
        let median = |of_some: &[u64]| {
            let mut sorted = of_some.to_vec();
            sorted.sort_unstable();
            sorted[sorted.len() / 2]
        };
        assert!(median(&of_each[80..]) <= median(&of_each[..20]) * 2, "{of_each:?}");
        world.write("3/3", "another");
        settle();
        assert_eq!(files_read(&world).await, 1);
        assert_eq!(files_read(&world).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ignore_files_hide_is_left_out_and_named() {
    let world = World::new();
    world.write(".gitignore", "target/\n*.log\n.env\n!keep.log\n");
    world.write(".env", "SECRET=1");
    world.write("small.log", "x");
    world.write("keep.log", vec![b'x'; 2_000_000]);
    world.write("large.log", vec![b'x'; 2_000_000]);
    world.write("target/a", "x");
    world.write("sub/.gitignore", "/only-here\n");
    world.write("sub/only-here/a", "x");
    world.write("only-here/a", "x");
    world.write(".pitonignore", "private\n");
    world.write("private", "x");
    world.write(".git/HEAD", "ref: refs/heads/main");
    let saved = world.save("").await;
    let expected: BTreeMap<String, Reason> = [
        (".git", Reason::Git),
        ("large.log", Reason::IgnoredFile),
        ("private", Reason::Pitonignore),
        ("sub/only-here", Reason::IgnoredFolder),
        ("target", Reason::IgnoredFolder),
    ]
    .map(|(path, reason)| (path.to_owned(), reason))
    .into();
    assert_eq!(excluded(&world, &saved).await, expected);
    // .gitignore, .pitonignore, .env, both small logs, sub/.gitignore, only-here/a.
    assert_eq!(saved.snapshot.files, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_files_are_captured_if_asked_for() {
    let mut world = World::new();
    world.write(".gitignore", "target/\n");
    world.write("target/a", "x");
    world.options.include_ignored = true;
    assert_eq!(world.save("").await.snapshot.files, 2);
    world.options.include_ignored = false;
    assert_eq!(world.save("").await.snapshot.files, 1, "the cache of other options isn't believed");
}

/// An ignore file that changes is seen by the folders below it, whose own look hasn't changed.
#[tokio::test(flavor = "multi_thread")]
async fn changed_rules_reach_unchanged_folders() {
    let world = World::new();
    world.write("a/b/c.tmp", "x");
    world.write("a/b/d", "x");
    world.write("a/.gitignore", "nothing\n");
    settle();
    assert_eq!(world.save("").await.snapshot.files, 3);
    settle();
    world.write("a/.gitignore", "b/\n");
    let saved = world.save("").await;
    assert_eq!(excluded(&world, &saved).await, [("a/b".to_owned(), Reason::IgnoredFolder)].into());
    settle();
    world.remove("a/.gitignore");
    assert_eq!(world.save("").await.snapshot.files, 2);
    settle();
    world.write(".gitignore", "b/\n");
    let saved = world.save("").await;
    assert_eq!(excluded(&world, &saved).await, [("a/b".to_owned(), Reason::IgnoredFolder)].into(), "a new one counts");
}

/// Promise 20: never blocks, never follows, never reads a device, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn odd_things_have_a_defined_outcome() {
    let world = World::new();
    let fifo = std::process::Command::new("mkfifo").arg(world.path("pipe")).status().unwrap();
    assert!(fifo.success());
    let _socket = std::os::unix::net::UnixListener::bind(world.path("socket")).unwrap();
    world.link("loop", "loop");
    world.link("up", "..");
    world.link("dangling", "nowhere");
    let name = std::ffi::OsStr::from_bytes(b"not \xff text");
    std::fs::write(world.root().join(name), "x").unwrap();
    world.write(&"n".repeat(255), "x");
    std::fs::hard_link(world.path(&"n".repeat(255)), world.path("twin")).unwrap();
    let saved = world.save("").await;
    let expected = [("pipe", Reason::Special), ("socket", Reason::Special)];
    assert_eq!(excluded(&world, &saved).await, expected.map(|(path, reason)| (path.to_owned(), reason)).into());
    assert_eq!(saved.snapshot.files, 6);

    let before = look(&world.root());
    std::fs::remove_file(world.root().join(name)).unwrap();
    world.remove("loop");
    world.remove("twin");
    world.restore(&saved.checkpoint).await.unwrap();
    assert_eq!(look(&world.root()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_is_not_read() {
    let world = World::new();
    let made = std::process::Command::new("mknod").arg(world.path("zero")).args(["c", "1", "5"]).status().unwrap();
    assert!(made.success(), "making a device needs root");
    let saved = world.save("").await;
    assert_eq!(excluded(&world, &saved).await, [("zero".to_owned(), Reason::Special)].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_folders_are_captured_up_to_a_limit_that_is_named() {
    let world = World::new();
    let deepest = world.path(&"d/".repeat(900));
    std::fs::create_dir_all(&deepest).unwrap();
    std::fs::write(deepest.join("bottom"), "x").unwrap();
    let saved = world.save("").await;
    assert_eq!((saved.snapshot.files, saved.snapshot.excluded), (1, 0));
    std::fs::create_dir_all(world.path(&"d/".repeat(1_100))).unwrap();
    let saved = world.save("").await;
    let excluded = excluded(&world, &saved).await;
    assert_eq!(excluded.values().collect::<Vec<_>>(), [&Reason::TooDeep]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_inside_the_folder_is_not_stored() {
    let mut world = World::new();
    world.options.state = world.path(".piton/files");
    world.options.own = vec![world.path(".piton"), world.path("my.db")];
    world.write("a", "x");
    world.write("my.db", "x");
    world.write("my.db-wal", "x");
    world.write("my.dbx", "x");
    world.write(".pitonignore", "");
    let saved = world.save("").await;
    assert_eq!(saved.snapshot.files, 3, "what only looks alike is captured");
    let excluded = excluded(&world, &saved).await;
    assert_eq!(excluded.keys().collect::<Vec<_>>(), [".piton", "my.db", "my.db-wal"]);
    assert!(excluded.values().all(|reason| *reason == Reason::Store));
}

#[test]
fn roots_that_are_too_much_are_refused() {
    let mut world = World::new();
    world.options.home = Some(world.root());
    assert!(matches!(world.try_workspace(), Err(WorkspaceError::Root { reason: "your home folder", .. })));
    world.options.wide = true;
    assert!(world.try_workspace().is_ok());
    let link = world.scratch.join("link");
    std::os::unix::fs::symlink(world.root(), &link).unwrap();
    let open = |root: &Path| {
        let options = WorkspaceOptions { wide: false, ..world.options.clone() };
        Workspace::open(&crate::world::context(&world.store), root, options)
    };
    assert!(matches!(open(&link), Err(WorkspaceError::Root { reason: "a symbolic link", .. })));
    assert!(matches!(open(Path::new("/")), Err(WorkspaceError::Root { .. })));
    assert!(matches!(open(Path::new("work")), Err(WorkspaceError::Root { .. })));
}

/// No unchanged file is opened, and every kind of change is found, also with size and mtime put back.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_changed_is_read() {
    let world = World::new();
    for name in ["a", "b/c", "b/d/e"] {
        world.write(name, name);
    }
    settle();
    assert_eq!(files_read(&world).await, 3);
    assert_eq!(files_read(&world).await, 0, "nothing changed");
    settle();
    world.write("b/c", "C/b");
    assert_eq!(files_read(&world).await, 1);
    settle();
    files_read(&world).await;
    let path = world.path("a");
    let times = path.metadata().unwrap();
    std::fs::write(&path, "A").unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_times(std::fs::FileTimes::new().set_modified(times.modified().unwrap())).unwrap();
    drop(file);
    let progress = Arc::new(Progress::default());
    let saved = world.workspace().save(Record::manual(""), &progress).await.unwrap();
    assert_eq!((progress.files.load(Ordering::Relaxed), saved.changed), (1, Some(true)));
}

/// Promise 20: a file modified in the same tick as the snapshot is hashed again next time.
#[tokio::test(flavor = "multi_thread")]
async fn what_changed_in_the_last_ticks_is_read_again() {
    let world = World::new();
    world.write("a", "x");
    let file = std::fs::File::options().write(true).open(world.path("a")).unwrap();
    // Stamped later than any snapshot that is made now, however busy the machine is.
    file.set_modified(std::time::SystemTime::now() + Duration::from_secs(60)).unwrap();
    assert_eq!(files_read(&world).await, 1);
    assert_eq!(files_read(&world).await, 1, "racily clean");
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
    settle();
    files_read(&world).await;
    assert_eq!(files_read(&world).await, 0);
}

/// A damaged or foreign cache is ignored, never believed.
#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_is_not_whole_or_not_ours_is_not_believed() {
    let world = World::new();
    world.write("a", "x");
    settle();
    world.save("").await;
    let cache = world.options.state.join("stat.cache");
    let whole = std::fs::read(&cache).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&cache, damaged).unwrap();
        assert_eq!(files_read(&world).await, 1, "byte {at}");
    }
    for length in [0, 1, 39, 40, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&cache, &whole[..length]).unwrap();
        assert_eq!(files_read(&world).await, 1, "{length} bytes");
    }
    std::fs::write(&cache, &whole).unwrap();
    assert_eq!(files_read(&world).await, 0, "the negative control: the whole one is believed");
    // The same folder with another store, which has none of the contents.
    let other = World { store: World::new().store, ..world };
    assert_eq!(files_read(&other).await, 1);
}

/// F11: beside an encrypted store no file has the names of the folder's files, and the cache works all the same. The
/// negative control is a plain store, where the same search finds them.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_files_are_in_no_file_beside_an_encrypted_store() {
    for is_encrypted in [true, false] {
        let mut world = World::new();
        if is_encrypted {
            let random = Arc::new(piton_testing::SeededRandom::new(1));
            let key = piton_store::Key::generate(&*random);
            let store = piton_store::EncryptedStore::create(Arc::clone(&world.store), &key, random).await.unwrap();
            world.store = Arc::new(store);
        }
        for n in 0..300 {
            world.write(&format!("d{}/canary-{n}", n % 30), n.to_string());
        }
        settle();
        world.save("").await;
        world.write("d7/canary-7", "changed");
        settle();
        assert_eq!(files_read(&world).await, 1, "it is believed");
        assert_eq!(files_read(&world).await, 0, "and says what changed");
        let book = world.workspace().reservations(Arc::new(|_| false));
        let wanted = [(path("d7/canary-7"), ReserveMode::Write)];
        book.take(&wanted, &Take::by("me")).await.unwrap();
        assert_eq!(book.list().await.unwrap().len(), 1);
        let mut found = Vec::new();
        for file in std::fs::read_dir(&world.options.state).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() && std::fs::read(&path).unwrap().windows(7).any(|window| window == b"canary-") {
                found.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
        found.sort();
        let expected: &[&str] = if is_encrypted { &[] } else { &["reservations", "stat.cache"] };
        assert_eq!(found, expected);
        // Damage, or another file in its place, is as good as none.
        std::fs::copy(world.options.state.join("reservations"), world.options.state.join("stat.cache")).unwrap();
        assert_eq!(files_read(&world).await, 300);
    }
}

/// How many files are read to see what changed, without a word to the cache.
async fn files_read_by_looking(world: &World) -> u64 {
    let progress = Arc::new(Progress::default());
    let workspace = world.workspace();
    let newest = workspace.newest().await.unwrap().unwrap();
    workspace.detect_changes(newest.snapshot, Side::Now, &progress).await.unwrap();
    progress.files.load(Ordering::Relaxed)
}

/// Many small changes, one cache after the other: each tree is what a look without a cache finds.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_by_a_cache_is_the_tree_without_one() {
    let world = World::new();
    for n in 0..400 {
        world.write(&format!("a{}/b{}/{n}", n % 7, n % 11), n.to_string());
    }
    settle();
    world.save("").await;
    let mut dice = Dice(20_261_116);
    for round in 0..40 {
        for _ in 0..=dice.up_to(3) {
            let n = dice.up_to(400);
            let name = format!("a{}/b{}/{n}", n % 7, n % 11);
            match dice.up_to(6) {
                0 if world.has(&name) => world.remove(&name),
                1 => world.write(&format!("new{}/{n}", round % 5), round.to_string()),
                2 if world.has(&name) => world.mode(&name, 0o700 + u32::try_from(dice.up_to(8)).unwrap()),
                3 => drop(std::fs::remove_dir_all(world.path(&format!("new{}", round % 5)))),
                _ => world.write(&name, format!("{round} {n}")),
            }
        }
        let saved = world.save("").await.snapshot;
        let bare = World::with_store(Arc::clone(&world.store));
        let options = WorkspaceOptions { state: bare.options.state.clone(), ..world.options.clone() };
        let other = Workspace::open(&crate::world::context(&world.store), &world.root(), options).unwrap();
        let found = other.save(Record::manual(""), &Arc::default()).await.unwrap().snapshot;
        assert_eq!((saved.tree, saved.files, saved.bytes), (found.tree, found.files, found.bytes), "round {round}");
    }
}

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn up_to(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % most as u64).unwrap()
    }
}

/// A store that takes notes only once the files of the moment have settled. A restore writes down what it shares between
/// its last rename and the look at what it wrote.
struct Settling {
    inner: ObjectStore,
}

#[async_trait]
impl Log for Settling {
    forward! { append head read }
}

#[async_trait]
impl Fold for Settling {
    forward! { segments section fold }
}

#[async_trait]
impl Blobs for Settling {
    forward! { stage pin locate pack pack_part }
}

#[async_trait]
impl Upkeep for Settling {
    forward! { remove packs pack_ids condemn pardon sweep note notes inspect run_ids totals }

    async fn set_note(&self, key: &str, note: Option<bytes::Bytes>) -> Result<(), StoreError> {
        settle();
        self.inner.set_note(key, note).await
    }
}

#[async_trait]
impl RunIndex for Settling {
    forward! { summary list }
}

#[async_trait]
impl Leases for Settling {
    forward! { lease beat release }
}

#[async_trait]
impl Store for Settling {
    forward! { capabilities hashing redaction syncs url usage close folding leases upkeep changes queue }
}

/// After a restore the cache knows what it wrote: the next look reads none of it again, once it has settled.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_restore_wrote_is_known_to_the_cache() {
    let world = World::with_store(Arc::new(Settling { inner: ObjectStore::in_memory() }));
    for n in 0..300 {
        world.write(&format!("d{}/{n}", n % 50), n.to_string());
    }
    let start = world.save("").await;
    for n in 0..300 {
        world.write(&format!("d{}/{n}", n % 50), "changed");
    }
    assert_eq!(files_read_by_looking(&world).await, 300);
    let restored = world.restore(&start.checkpoint).await.unwrap();
    assert_eq!(restored.files_restored, 300);
    assert_eq!(files_read_by_looking(&world).await, 0);
    let found = world.save("").await;
    assert_eq!((found.snapshot.tree, found.changed), (start.snapshot.tree, Some(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_folders_have_equal_trees_whatever_led_to_them() {
    let (a, b) = (World::new(), World::new());
    for n in 0..700 {
        a.write(&format!("wide/{n}"), n.to_string());
        b.write(&format!("wide/{}", 699 - n), (699 - n).to_string());
    }
    b.write("gone", "x");
    b.save("").await;
    b.remove("gone");
    assert_eq!(a.save("").await.snapshot.tree, b.save("").await.snapshot.tree);
}

/// Bad input of the issue: 10 GB of nothing costs nothing, and comes back as nothing.
#[tokio::test(flavor = "multi_thread")]
async fn sparse_files_cost_what_is_in_them() {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};
    let world = World::new();
    let file = std::fs::File::create(world.path("sparse")).unwrap();
    file.set_len(10 << 30).unwrap();
    file.write_all_at(b"in the middle", 5 << 30).unwrap();
    drop(file);
    let saved = world.save("").await;
    assert!(world.store.usage().await.unwrap().bytes < 1 << 20);
    world.remove("sparse");
    world.restore(&saved.checkpoint).await.unwrap();
    let metadata = world.path("sparse").metadata().unwrap();
    assert_eq!(metadata.len(), 10 << 30);
    assert!(metadata.blocks() * 512 < 16 << 20, "{} blocks", metadata.blocks());
    let mut middle = [0; 13];
    std::fs::File::open(world.path("sparse")).unwrap().read_exact_at(&mut middle, 5 << 30).unwrap();
    assert_eq!(&middle, b"in the middle");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insertion_into_a_large_file_stores_a_piece() {
    let world = World::new();
    let mut random = piton_testing::SeededRandom::new(7);
    let mut bytes = vec![0; 8 << 20];
    piton_types::Random::fill(&random, &mut bytes);
    let _ = &mut random;
    world.write("large", &bytes);
    world.save("").await;
    let before = world.store.usage().await.unwrap().bytes;
    bytes.splice(4_000_000..4_000_000, *b"inserted");
    world.write("large", &bytes);
    let saved = world.save("").await;
    let grown = world.store.usage().await.unwrap().bytes - before;
    assert!(grown < 3 << 20, "{grown}");
    world.write("large", "");
    world.restore(&saved.checkpoint).await.unwrap();
    assert_eq!(std::fs::read(world.path("large")).unwrap(), bytes);
}

/// Whether a file was like that while it was written from its beginning on: some of one letter, the rest of the one before it. A
/// writer that doesn't get its turn on a busy machine may leave it so for as long as it is read.
fn was_so(bytes: &[u8]) -> bool {
    let newer = bytes[0];
    let older = if newer == b'a' { b'z' } else { newer - 1 };
    let turn = bytes.iter().position(|byte| *byte != newer).unwrap_or(bytes.len());
    bytes[turn..].iter().all(|byte| *byte == older)
}

/// Promise 20: a file that changes while it is read is captured whole, or named; and read again next time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn files_that_change_while_they_are_read_are_captured_whole_or_named() {
    assert!(was_so(b"bbaa") && was_so(b"bbbb"));
    assert!(!was_so(b"aabb") && !was_so(b"bbab"), "the negative control: no writer leaves it so");
    let world = World::new();
    let path = world.path("log");
    std::fs::write(&path, vec![b'a'; 6 << 20]).unwrap();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (stop, busy) = (Arc::clone(&done), path.clone());
    let writer = std::thread::spawn(move || {
        use std::os::unix::fs::FileExt as _;
        let file = std::fs::File::options().write(true).open(busy).unwrap();
        for letter in (b'a'..=b'z').cycle() {
            for piece in 0..96 {
                file.write_all_at(&[letter; 64 << 10], piece << 16).unwrap();
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    let (mut named, mut whole) = (0, 0);
    // On a busy machine the writer may not get to run while the file is read: until it did.
    while named == 0 || named + whole < 6 {
        let saved = world.save("").await;
        if saved.unsteady.is_empty() {
            whole += 1;
            let history = world.workspace().history_of(vec![RelPath::new(b"log").unwrap()]).await.unwrap();
            let entry = history.last().unwrap().changes[0].new.clone().unwrap();
            let bytes = world.workspace().read(&entry).await.unwrap().unwrap();
            assert!(was_so(&bytes), "what the file never was is captured and not named");
        } else {
            named += 1;
            assert_eq!(saved.unsteady[0].to_string(), "log");
        }
    }
    done.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    println!("{named} named, {whole} whole");
    world.save("").await;
    let now = std::fs::read(&path).unwrap();
    let saved = world.save("").await;
    world.remove("log");
    world.restore(&saved.checkpoint).await.unwrap();
    assert!(std::fs::read(&path).unwrap() == now, "what was unsteady is read again");
}

/// Bad input of the issue: names that differ in case only.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_differ_in_case_only_are_different_names() {
    let world = World::new();
    for name in ["Readme", "README", "readme/x", "README.d/x"] {
        world.write(name, name);
    }
    let before = look(&world.root());
    let saved = world.save("").await;
    world.remove("Readme");
    world.write("README", "changed");
    std::fs::remove_dir_all(world.path("readme")).unwrap();
    world.write("readme", "a file now");
    world.restore(&saved.checkpoint).await.unwrap();
    assert_eq!(look(&world.root()), before);
}

/// A small folder is asked for by paths, a larger one is opened: either way every change is found.
#[tokio::test(flavor = "multi_thread")]
async fn changes_are_found_in_folders_of_every_size() {
    let world = World::new();
    for size in [1, 3, 14, 15, 16, 17, 40] {
        for n in 0..size {
            world.write(&format!("d{size}/inner/{n}"), "0");
        }
        world.link(&format!("d{size}/link"), "inner");
    }
    settle();
    world.save("").await;
    settle();
    assert_eq!(files_read(&world).await, 0);
    for size in [1, 3, 14, 15, 16, 17, 40] {
        world.write(&format!("d{size}/inner/0"), "1");
        assert_eq!(files_read(&world).await, 1, "d{size}: changed");
        settle();
        world.save("").await;
        world.mode(&format!("d{size}/inner"), 0o700);
        let before = world.save("").await;
        assert_eq!(before.changed, Some(true), "d{size}: mode of a folder");
        world.remove(&format!("d{size}/link"));
        world.link(&format!("d{size}/link"), "other");
        assert_eq!(world.save("").await.changed, Some(true), "d{size}: a link");
        world.write(&format!("d{size}/inner/.gitignore"), "0\n");
        world.write(&format!("d{size}/inner/0"), vec![0; 2_000_000]);
        let saved = world.save("").await;
        assert_eq!(excluded(&world, &saved).await.len(), 1, "d{size}: new rules");
        world.remove(&format!("d{size}/inner/.gitignore"));
        world.write(&format!("d{size}/inner/0"), "0");
        settle();
        let saved = world.save("").await;
        assert!(excluded(&world, &saved).await.is_empty(), "d{size}: no rules any more");
        settle();
    }
}
