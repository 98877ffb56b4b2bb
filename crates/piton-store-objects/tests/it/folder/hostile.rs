//! What else may be in the place of a file, and ids that want to be paths. Promises 20, 22 and 28.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use piton_store::{Hashing, RunQuery, Span, StoreError};
use piton_store_objects::{FolderOptions, ObjectStore};
use piton_testing::scratch::Scratch;
use rustix::fs::{CWD, Mode, mkfifoat};

use super::{open, try_open};
use crate::support::{Line, block_on, id};

/// Something else than a file with content.
type Put = (&'static str, fn(&Path));

const PUT: [Put; 6] = [
    ("a pipe", |path| mkfifoat(CWD, path, Mode::RWXU).unwrap()),
    ("a link to a file", |path| std::os::unix::fs::symlink("/etc/hostname", path).unwrap()),
    ("a link to nothing", |path| std::os::unix::fs::symlink("nowhere", path).unwrap()),
    ("a folder", |path| std::fs::create_dir(path).unwrap()),
    ("an empty file", |path| drop(std::fs::File::create(path).unwrap())),
    ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
];

fn replace(path: &Path, put: fn(&Path)) {
    std::fs::remove_file(path).unwrap();
    put(path);
}

/// Nothing waits, nothing is followed, and each says what is wrong.
#[test]
fn something_else_in_the_place_of_a_file_is_refused() {
    for (what, put) in PUT {
        for file in
            ["store.json", "runs/one/entries/0000000002.json", "runs/one/entries/0000000001.json", "packs/PACK.pack"]
        {
            let scratch = Scratch::in_memory();
            let folder = scratch.join("store");
            block_on(async {
                let store = open(&folder);
                let mut line = Line::new("one");
                line.grow(&*store, 3).await;
                let pack = piton_store::stage(&*store, "p".into(), &[], piton_store::Pin::new()).await.unwrap();
                store.append(vec![piton_store::Commit { staged: vec![pack], ..line.next() }]).await.unwrap();
                store.close().await.unwrap();
            });
            // The newest entry is number 3, and whole.
            replace(&folder.join(file.replace("PACK", &Hashing::PLAIN.pack(b"p").to_string())), put);
            let error = block_on(async {
                let store = try_open(&folder)?;
                store.read(&id("one"), Span::ALL).await?;
                store.pack(store.hashing().pack(b"p")).await.map(drop)
            });
            let refused = matches!(
                error,
                Err(StoreError::Corrupt { .. } | StoreError::Invalid { .. } | StoreError::Unavailable { .. })
            );
            assert!(refused, "{what} for {file}: {error:?}");
        }
    }
}

/// A path for the store that leads to something else.
#[test]
fn a_place_that_is_no_store_is_refused_and_left_alone() {
    let scratch = Scratch::in_memory();
    let file = scratch.join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(matches!(try_open(&file), Err(StoreError::Invalid { .. })));
    let folder = scratch.join("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("mine"), "mine").unwrap();
    assert!(matches!(try_open(&folder), Err(StoreError::Invalid { .. })));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    let missing = ObjectStore::in_folder(scratch.join("none"), &FolderOptions::default().with_create(false));
    assert!(matches!(missing, Err(StoreError::NotFound { .. })), "{missing:?}");
    assert!(!scratch.join("none").exists());
    assert!(matches!(try_open(&scratch.join("none/deep")), Err(StoreError::NotFound { .. })));
    let empty = scratch.join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert!(try_open(&empty).is_ok(), "an empty folder becomes a store");
}

/// A newer format is said to be newer, and nothing is changed.
#[test]
fn files_of_a_newer_format_are_told_from_damage() {
    let scratch = Scratch::in_memory();
    let folder = scratch.join("store");
    block_on(async {
        let store = open(&folder);
        Line::new("one").grow(&*store, 2).await;
        store.close().await.unwrap();
    });
    for file in ["store.json", "runs/one/entries/0000000001.json"] {
        let path = folder.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let newer = text.replacen("\"format\":1", "\"format\":2", 1);
        let checksum = blake3::hash(&newer.as_bytes()[79..]).to_hex();
        let newer = format!("{{\"checksum\":\"{checksum}\",{}", &newer[79..]);
        std::fs::write(&path, &newer).unwrap();
        let error = block_on(async { try_open(&folder)?.read(&id("one"), Span::ALL).await });
        assert!(matches!(error, Err(StoreError::TooNew { found: 2, known: 1, .. })), "{file}: {error:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), newer);
        std::fs::write(&path, text).unwrap();
    }
}

/// Every id that a run may have gets a folder of its own, in its place; names of others are left alone.
#[test]
fn ids_become_folders_of_their_own() {
    let scratch = Scratch::in_memory();
    let folder = scratch.join("store");
    let ids = ["a", "A", "a.", "a..b", "0-9_", "CON", "x.json", &"L".repeat(64)];
    block_on(async {
        let store = open(&folder);
        for id in ids {
            Line::new(id).grow(&*store, 2).await;
        }
        std::fs::create_dir(folder.join("runs/not ours")).unwrap();
        std::fs::write(folder.join("runs/.hidden"), "x").unwrap();
        assert_eq!(store.list(RunQuery::default()).await.unwrap().len(), ids.len());
        for id in ids {
            assert_eq!(store.read(&crate::support::id(id), Span::ALL).await.unwrap().len(), 2, "{id}");
        }
    });
    assert_eq!(std::fs::read_dir(folder.join("runs")).unwrap().count(), ids.len() + 2);
}

/// Promise 28, also for a folder that was made with other rights.
#[test]
fn a_folder_store_is_its_owners_alone() {
    let scratch = Scratch::in_memory();
    let folder = scratch.join("store");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    block_on(async {
        let store = open(&folder);
        Line::new("one").grow(&*store, 3).await;
        piton_store::stage(&*store, "p".into(), &[], piton_store::Pin::new()).await.unwrap();
        store
            .beat(
                &id("one"),
                piton_types::Fence(1),
                &piton_types::Holder { host: "h".into(), boot: "b".into(), pid: 1, started: 1 },
            )
            .await
            .unwrap();
    });
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => assert_eq!(mode(&path), 0o600, "{}", path.display()),
            }
        }
    }
}

/// A writer that was away while its number was used, folded and so is no file any more, still conflicts.
#[test]
fn a_number_that_was_folded_is_not_free() {
    let scratch = Scratch::in_memory();
    block_on(async {
        let (store, slow) = (open(&scratch.join("s")), open(&scratch.join("s")));
        let mut line = Line::new("one");
        line.grow(&*store, 3).await;
        assert_eq!(slow.head(&line.run).await.unwrap(), line.head, "it has looked");
        let late = line.next();
        line.grow(&*store, 5).await;
        let info = piton_store::SegmentInfo { first: piton_types::Seq(0), last: piton_types::Seq(5) };
        let segment = piton_store::Segment { info, entries: "e".into(), index: "i".into(), nodes: "n".into() };
        store.fold(&line.run, segment).await.unwrap();
        let refused = slow.append(vec![late]).await;
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
        assert_eq!(slow.head(&line.run).await.unwrap(), line.head);
    });
}

/// A store that is copied while it is in use, and two with the same content: each goes its own way.
#[test]
fn a_copy_of_a_store_in_use_is_a_store() {
    let scratch = Scratch::in_memory();
    let (folder, copy) = (scratch.join("s"), scratch.join("copy"));
    block_on(async {
        let store = open(&folder);
        let mut line = Line::new("one");
        line.grow(&*store, 5).await;
        std::fs::create_dir(&copy).unwrap();
        piton_testing::scratch::copy_tree(&folder, &copy).unwrap();
        let other = open(&copy);
        let mut there = Line::new("one");
        there.head = other.head(&there.run).await.unwrap();
        assert_eq!(there.head, line.head);
        there.grow(&*other, 2).await;
        line.grow(&*store, 1).await;
        assert_eq!(store.read(&line.run, Span::ALL).await.unwrap().len(), 6);
        assert_eq!(other.read(&line.run, Span::ALL).await.unwrap().len(), 7);
        assert_eq!(other.inspect().await.unwrap(), []);
    });
}

/// Several who want a store that isn't there yet all get it.
#[test]
fn a_store_is_made_by_many_at_once() {
    for round in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| try_open(&path).unwrap_or_else(|error| panic!("round {round}: {error}")));
            }
        });
    }
}
