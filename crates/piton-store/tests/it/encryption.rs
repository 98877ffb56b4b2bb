//! Encryption at rest: what is hidden, what is refused, and what a key can and can't do. Promises 5 and 26, F11.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_store::{
    EncryptedStore, Key, Pin, Section, Segment, SegmentInfo, Span, Store, StoreError, Upkeep as _, is_encrypted,
};
use piton_store_objects::{FolderOptions, ObjectStore};
use piton_testing::SeededRandom;
use piton_types::{EntryKind, Random, Seq, Timestamp, Value};

use crate::support::{Line, block_on, id};

const CANARY: &str = "the canary sings at 4 o'clock";

fn random() -> Arc<SeededRandom> {
    Arc::new(SeededRandom::new(11))
}

async fn encrypted(below: Arc<dyn Store>, key: &Key) -> Arc<dyn Store> {
    Arc::new(EncryptedStore::create(below, key, random()).await.unwrap())
}

/// A run with the canary everywhere that content can be.
async fn sing(store: &Arc<dyn Store>, run: &str) {
    let text = Value::from(CANARY);
    let new = NewRun {
        name: CANARY.into(),
        folder: Some(format!("/home/{CANARY}")),
        labels: [CANARY.into()].into(),
        body: Value::map([("input", text.clone())]),
        ..NewRun::new(id(run), Timestamp::from_millis(1))
    };
    let mut log = RunLog::create(Arc::clone(store), new).await.unwrap();
    for n in 0..150 {
        let value = Value::List((0..n).map(|n| Value::from(format!("{CANARY} {n} ").repeat(20))).collect());
        let content = Content::Value(&value);
        log.append(Draft {
            label: CANARY.into(),
            body: text.clone(),
            parts: vec![DraftPart { name: "app".into(), schema: "test".into(), version: 1, content }],
            ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(2))
        })
        .await
        .unwrap();
    }
    log.close().await.unwrap();
    let large = Bytes::from(CANARY.repeat(5_000));
    piton_store::stage(&**store, large.clone(), &[store.hashing().blob(&large)], Pin::new()).await.unwrap();
}

fn files(folder: &Path, found: &mut BTreeMap<std::path::PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
}

fn sings(bytes: &[u8]) -> bool {
    use base64::Engine as _;
    let decoded = |text: &[u8]| base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    let has = |bytes: &[u8]| bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
    // The file store writes records as base64 in JSON, so what is inside them is looked at too.
    let texts = bytes.split(|byte| *byte == b'"').filter(|text| text.len() > 20);
    has(bytes) || texts.map(decoded).any(|inner| has(&inner))
}

/// Nothing of the content is in any file, and without encryption the same search finds it.
#[test]
fn no_content_reaches_the_disk_in_clear() {
    for encrypt in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        block_on(async {
            let below: Arc<dyn Store> =
                Arc::new(ObjectStore::in_folder(folder.path(), &FolderOptions::default()).unwrap());
            let key = Key::generate(&*random());
            let store = if encrypt { encrypted(Arc::clone(&below), &key).await } else { below };
            sing(&store, "loud").await;
            store.close().await.unwrap();
        });
        let mut found = BTreeMap::new();
        files(folder.path(), &mut found);
        let singing = found.iter().filter(|(_, bytes)| sings(bytes)).count();
        assert!(found.len() > 5);
        assert_eq!(singing > 0, !encrypt, "{singing} of {} files have it in clear", found.len());
    }
}

/// A wrong key, a wrong kind of key, no encryption at all: each says so, and the store stays as it was.
#[test]
fn wrong_keys_are_refused_and_change_nothing() {
    block_on(async {
        let random = random();
        let (right, wrong) = (Key::generate(&*random), Key::generate(&*random));
        let folder = tempfile::tempdir().unwrap();
        let open = || -> Arc<dyn Store> {
            Arc::new(ObjectStore::in_folder(folder.path(), &FolderOptions::default()).unwrap())
        };
        let plain = EncryptedStore::open(open(), &right, random.clone()).await;
        assert!(matches!(plain, Err(StoreError::Invalid { .. })), "{plain:?}");
        sing(&encrypted(open(), &right).await, "locked").await;
        let mut before = BTreeMap::new();
        files(&folder.path().join("runs"), &mut before);
        let passphrase = Key::weak_passphrase(b"guess");
        for (key, expected) in [
            (&wrong, "the store is encrypted: this key doesn't open it"),
            (&passphrase, "the store is encrypted: it is opened by a key file, and a passphrase was given"),
        ] {
            let error = EncryptedStore::open(open(), key, random.clone()).await.unwrap_err();
            assert!(matches!(error, StoreError::Locked { .. }));
            assert_eq!(error.to_string(), expected);
            assert!(EncryptedStore::rotate(&*open(), key, &right, &*random).await.is_err());
        }
        let again = EncryptedStore::create(open(), &right, random.clone()).await;
        assert!(matches!(again, Err(StoreError::Invalid { .. })), "{again:?}");
        let mut after = BTreeMap::new();
        files(&folder.path().join("runs"), &mut after);
        assert!(before == after && before.len() > 5, "nothing has changed");
        // Without a key its runs are there, but none of them can be read.
        let bare = RunLog::open(open(), &id("locked")).await.map(drop);
        assert!(matches!(bare, Err(StoreError::Corrupt { .. })), "{bare:?}");
    });
}

/// Bytes of any encoding; the empty one isn't a passphrase.
#[test]
fn a_passphrase_is_its_bytes() {
    block_on(async {
        let latin = b"gr\xfc\xdfe";
        let below: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
        encrypted(Arc::clone(&below), &Key::weak_passphrase(latin)).await;
        let open = |bytes: &'static [u8]| {
            let below = Arc::clone(&below);
            async move { EncryptedStore::open(below, &Key::weak_passphrase(bytes), random()).await }
        };
        assert!(open(latin).await.is_ok());
        let unicode = open("grüße".as_bytes()).await;
        assert!(matches!(unicode, Err(StoreError::Locked { .. })), "{unicode:?}");
        assert!(Key::passphrase("").is_err());
        // The real work factor, once: the store says which it is, not the key that asks.
        assert!(EncryptedStore::open(below, &Key::passphrase(&latin[..]).unwrap(), random()).await.is_ok());
    });
}

/// Rotation leaves the records alone, shuts the old key out, and nothing in the store is opened by it.
#[test]
fn rotation_rewraps_and_the_old_key_opens_nothing() {
    block_on(async {
        let random = random();
        let (old, new) = (Key::generate(&*random), Key::weak_passphrase(b"new"));
        let folder = tempfile::tempdir().unwrap();
        let open = || -> Arc<dyn Store> {
            Arc::new(ObjectStore::in_folder(folder.path(), &FolderOptions::default()).unwrap())
        };
        sing(&encrypted(open(), &old).await, "kept").await;
        let ring = folder.path().join("runs/piton.keys");
        let mut before = BTreeMap::new();
        files(&folder.path().join("runs/kept"), &mut before);
        for _ in 0..2 {
            EncryptedStore::rotate(&*open(), &old, &new, &*random).await.unwrap();
            EncryptedStore::rotate(&*open(), &new, &old, &*random).await.unwrap();
        }
        EncryptedStore::rotate(&*open(), &old, &new, &*random).await.unwrap();
        let mut after = BTreeMap::new();
        files(&folder.path().join("runs/kept"), &mut after);
        assert!(before == after);
        assert_eq!(std::fs::read_dir(ring.join("entries")).unwrap().count(), 1, "old wrappings are gone");
        let refused = EncryptedStore::open(open(), &old, random.clone()).await;
        assert!(matches!(refused, Err(StoreError::Locked { .. })), "{refused:?}");
        let store: Arc<dyn Store> = Arc::new(EncryptedStore::open(open(), &new, random).await.unwrap());
        let log = RunLog::open(Arc::clone(&store), &id("kept")).await.unwrap();
        assert_eq!(log.entries(Span::ALL).await.unwrap().len(), 151);
        assert_eq!(store.summary(&id("kept")).await.unwrap().unwrap().name, CANARY);
    });
}

/// The key ring isn't listed as a run, and no caller can use its id for one.
#[test]
fn the_key_ring_is_not_a_run() {
    block_on(async {
        let store = encrypted(Arc::new(ObjectStore::in_memory()), &Key::generate(&*random())).await;
        let ring = id("piton.keys");
        assert_eq!(store.head(&ring).await.unwrap(), None);
        assert_eq!(store.summary(&ring).await.unwrap(), None);
        assert!(matches!(store.read(&ring, Span::ALL).await, Err(StoreError::NotFound { .. })));
        assert!(matches!(Line::new("piton.keys").append(&*store).await, Err(StoreError::Invalid { .. })));
        assert_eq!(store.usage().await.unwrap().runs, 0);
        Line::new("a").append(&*store).await.unwrap();
        let one = piton_store::RunQuery { limit: Some(1), ..Default::default() };
        assert_eq!(store.list(one).await.unwrap().len(), 1);
    });
}

/// Plaintext, records of another place and records of another store are refused, each as damage.
#[test]
fn records_open_only_where_they_belong() {
    block_on(async {
        let key = Key::generate(&*random());
        let below: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
        let store = encrypted(Arc::clone(&below), &key).await;
        // Another store that the same key opens, with other contents under the same names.
        let foreign_below: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
        let seed = Arc::new(SeededRandom::new(12));
        let foreign: Arc<dyn Store> =
            Arc::new(EncryptedStore::create(Arc::clone(&foreign_below), &key, seed).await.unwrap());
        let (mut here, mut there) = (Line::new("a"), Line::new("a"));
        here.grow(&*store, 3).await;
        there.grow(&*foreign, 3).await;
        let sealed = |store: Arc<dyn Store>, seq: u32| async move {
            let span = Span { from: Seq(seq), to: Seq(seq), packs: true, ..Span::ALL };
            store.read(&id("a"), span).await.unwrap().remove(0)
        };
        let own = sealed(Arc::clone(&below), 1).await;
        let other = sealed(foreign_below, 3 - 1).await;
        let plain = here.next().entry;
        for (what, entry, pack) in [
            ("plaintext", plain.clone(), Bytes::new()),
            ("an entry of another number", own.entry.clone(), Bytes::new()),
            ("an entry of another store", other.entry.clone(), Bytes::new()),
            ("a cut one", own.entry.slice(..20), Bytes::new()),
            ("an empty one", Bytes::new(), Bytes::new()),
        ] {
            let commit = piton_store::Commit { entry, pack, ..here.next() };
            below.append(vec![commit.clone()]).await.unwrap();
            here.head = below.head(&here.run).await.unwrap();
            let span = Span { from: commit.seq, to: commit.seq, packs: true, ..Span::ALL };
            let read = store.read(&here.run, span).await;
            assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{what}: {read:?}");
        }
        let whole = Span { to: Seq(2), ..Span::ALL };
        assert_eq!(store.read(&here.run, whole).await.unwrap().len(), 3, "the rest is as it was");
        // An index row in clear.
        let mut row = here.next().index.unwrap_or_else(|| Line::new("a").next().index.unwrap());
        row.id = id("b");
        below.append(vec![piton_store::Commit { index: Some(row), ..Line::new("b").next() }]).await.unwrap();
        assert!(matches!(store.summary(&id("b")).await, Err(StoreError::Corrupt { .. })));
        // A segment in the place of another.
        let info = |first, last| SegmentInfo { first: Seq(first), last: Seq(last) };
        let segment = |info| Segment { info, entries: "e".into(), index: "i".into(), nodes: "n".into() };
        store.fold(&here.run, segment(info(0, 1))).await.unwrap();
        let section = below.section(&here.run, info(0, 1), Section::Nodes).await.unwrap();
        let forged = Segment { nodes: section.clone(), entries: section.clone(), index: section, info: info(2, 3) };
        below.fold(&here.run, forged).await.unwrap();
        for section in [Section::Entries, Section::Index, Section::Nodes] {
            assert!(store.section(&here.run, info(0, 1), section).await.is_ok());
            let read = store.section(&here.run, info(2, 3), section).await;
            assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{read:?}");
        }
        let staged = piton_store::stage(&*below, plain, &[], Pin::new()).await.unwrap();
        assert!(matches!(store.pack(staged).await, Err(StoreError::Corrupt { .. })));
        // A pack in the place of another.
        let one = piton_store::stage(&*store, "one".into(), &[], Pin::new()).await.unwrap();
        let other = store.hashing().pack(b"other");
        below.stage(other, below.pack(one).await.unwrap(), &[], Pin::new()).await.unwrap();
        assert!(store.pack(one).await.is_ok());
        assert!(matches!(store.pack(other).await, Err(StoreError::Corrupt { .. })));
        // The same pack is the same pack, and its name depends on the key.
        assert_eq!(piton_store::stage(&*store, "one".into(), &[], Pin::new()).await.unwrap(), one);
        assert_ne!(below.hashing().pack(b"one"), one);
    });
}

/// Names of contents, and where values are cut, can't be predicted without the key.
#[test]
fn names_and_cuts_depend_on_the_key() {
    block_on(async {
        let random = random();
        let key = Key::generate(&*random);
        let stores = [
            encrypted(Arc::new(ObjectStore::in_memory()), &key).await,
            Arc::new(EncryptedStore::create(Arc::new(ObjectStore::in_memory()), &key, random).await.unwrap())
                as Arc<dyn Store>,
            Arc::new(ObjectStore::in_memory()),
        ];
        let names: std::collections::HashSet<_> = stores.iter().map(|store| store.hashing().blob(b"known")).collect();
        let seeds: std::collections::HashSet<_> = stores.iter().map(|store| store.hashing().seed()).collect();
        assert_eq!((names.len(), seeds.len()), (3, 3), "the same key file, and still each store its own");
    });
}

/// Key files: only their owner's, only regular, only whole.
#[test]
fn key_files_that_others_can_read_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let key = Key::generate(&*random());
    key.write_file(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(Key::read_file(&path).unwrap().to_text(), key.to_text());
    assert!(key.write_file(&path).is_err(), "a key that is there is never replaced");
    for mode in [0o644, 0o640, 0o604, 0o660] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let refused = Key::read_file(&path);
        assert!(matches!(refused, Err(StoreError::Denied { .. })), "{mode:o}: {refused:?}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    assert!(Key::read_file(&path).is_ok());
    assert!(matches!(Key::read_file(folder.path()), Err(StoreError::Denied { .. } | StoreError::Invalid { .. })));
    assert!(matches!(Key::read_file(folder.path().join("none")), Err(StoreError::NotFound { .. })));
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    assert!(matches!(Key::read_file(&pipe), Err(StoreError::Invalid { .. })), "it doesn't wait for a writer");
    for text in ["", "PITON-KEY-1-", "PITON-KEY-1-AAAA", "PITON-KEY-2-x", "\0", "PITON-KEY-1-é"] {
        assert!(matches!(Key::from_text(text.as_bytes()), Err(StoreError::Invalid { .. })), "{text:?}");
    }
    assert_eq!(format!("{key:?}"), "Key(file)");
}

/// A store that holds plaintext can't be made an encrypted one.
#[test]
fn encryption_begins_with_an_empty_store() {
    block_on(async {
        let below: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
        Line::new("early").append(&*below).await.unwrap();
        let refused = EncryptedStore::create(Arc::clone(&below), &Key::generate(&*random()), random()).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
        assert!(!is_encrypted(&*below).await.unwrap());
    });
}

/// Two nonces are never the same as long as the random bytes aren't, and sealing is never the same twice.
#[test]
fn equal_records_are_sealed_differently() {
    struct Same;
    impl Random for Same {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(1);
        }
    }
    block_on(async {
        for (random, equal) in [(random() as Arc<dyn Random>, false), (Arc::new(Same), true)] {
            let below: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
            let store = EncryptedStore::create(Arc::clone(&below), &Key::generate(&Same), random).await.unwrap();
            let mut sealed = Vec::new();
            for _ in 0..2 {
                store.set_note("key", Some("the same".into())).await.unwrap();
                sealed.push(below.note("key").await.unwrap());
            }
            assert_eq!(sealed[0] == sealed[1], equal);
        }
    });
}
