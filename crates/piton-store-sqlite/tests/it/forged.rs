//! Entries that no writer made, put into a real store by its own front door, so that the pages and the rows
//! are sound and only the records aren't. Each is a typed error, never a wrong entry.

use std::sync::Arc;

use bytes::Bytes;
use piton_log::{Draft, NewRun, RunLog};
use piton_store::{Commit, Hashing, Head, Log as _, Record, Span, Store, StoreError};
use piton_testing::id;
use piton_types::{Durability, EntryHash, EntryKind, Fence, RunId, Seq, Timestamp, Value};

use crate::SqliteStore;
use crate::support::{block_on, open};

/// What the hash of an entry is, by `docs/format.md`.
fn hash(run: &RunId, seq: u32, entry: &[u8]) -> EntryHash {
    let length = [u8::try_from(run.as_str().len()).unwrap()];
    Hashing::PLAIN.entry(&[b"piton entry", &length, run.as_str().as_bytes(), &seq.to_le_bytes(), entry])
}

struct Forge {
    _folder: tempfile::TempDir,
    store: Arc<SqliteStore>,
    run: RunId,
    /// Three entries as they should be.
    genuine: Vec<Record>,
}

impl Forge {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(open(&folder));
        let run = id("genuine");
        let mut log = create(&store, &run).await;
        for label in ["one", "two"] {
            let body = Value::from(label);
            let draft =
                Draft { label: label.to_owned(), body, ..Draft::new(EntryKind::StepDone, Timestamp::from_millis(9)) };
            log.append(draft).await.unwrap();
        }
        let genuine = store.read(&run, Span::ALL).await.unwrap();
        Self { _folder: folder, store, run, genuine }
    }

    /// Appends `entry` to a run of its own as number 1, under `hash` or the one that it should have, and
    /// gives what comes of reading it.
    async fn read(&self, name: &str, entry: Vec<u8>, given: Option<EntryHash>) -> Result<usize, StoreError> {
        let run = id(name);
        let log = create(&self.store, &run).await;
        let hash = given.unwrap_or_else(|| hash(&run, 1, &entry));
        append(&self.store, &run, log.head(), entry, hash).await;
        let log = RunLog::open(Arc::clone(&self.store) as Arc<dyn Store>, &run).await?;
        log.entries(Span::ALL).await.map(|entries| entries.len())
    }
}

async fn create(store: &Arc<SqliteStore>, run: &RunId) -> RunLog {
    let new = NewRun { durability: Durability::Relaxed, ..NewRun::new(run.clone(), Timestamp::from_millis(1)) };
    RunLog::create(Arc::clone(store) as Arc<dyn Store>, new).await.unwrap()
}

async fn append(store: &SqliteStore, run: &RunId, head: Head, entry: Vec<u8>, hash: EntryHash) -> Head {
    let commit = Commit {
        run: run.clone(),
        seq: head.seq.next(),
        parent: head.hash,
        hash,
        fence: Fence(1),
        at: Timestamp::from_millis(2),
        entry: entry.into(),
        pack: Bytes::new(),
        staged: Vec::new(),
        owner: piton_store::Owner(0),
        index: None,
        durability: Durability::Relaxed,
    };
    store.append(vec![commit]).await.unwrap();
    Head { seq: head.seq.next(), hash, fence: Fence(1) }
}

fn is_corrupt<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Corrupt { .. }))
}

#[test]
fn forged_entries_are_refused() {
    block_on(async {
        let forge = Forge::new().await;
        // The forge itself is good: an entry with its own parent's hash in it passes.
        let mut sound = forge.genuine[1].entry.to_vec();
        let parent = create(&forge.store, &id("sound")).await.head();
        sound[1..33].copy_from_slice(parent.hash.as_bytes());
        append(&forge.store, &id("sound"), parent, sound.clone(), hash(&id("sound"), 1, &sound)).await;
        let log = RunLog::open(Arc::clone(&forge.store) as Arc<dyn Store>, &id("sound")).await.unwrap();
        assert_eq!(log.entries(Span::ALL).await.unwrap().len(), 2);

        // Cut short anywhere, with nothing left, or too long, though the hash was made to fit.
        let mut cases = 0;
        for length in 0..sound.len() {
            let answer = forge.read(&format!("cut-{length}"), sound[..length].to_vec(), None).await;
            assert!(is_corrupt(&answer), "cut to {length}: {answer:?}");
            cases += 1;
        }
        let answer = forge.read("long", [&sound[..], b"x"].concat(), None).await;
        assert!(is_corrupt(&answer), "{answer:?}");
        // Counts and lengths that are larger than all that follows.
        for at in 33..sound.len() {
            let mut huge = sound[..at].to_vec();
            huge.extend([0xff; 9]);
            huge.push(0x01);
            let answer = forge.read(&format!("huge-{at}"), huge, None).await;
            assert!(is_corrupt(&answer), "huge at {at}: {answer:?}");
            cases += 1;
        }
        // A byte changed under the hash that it had.
        for at in 0..sound.len() {
            let name = format!("changed-{at}");
            let mut changed = sound.clone();
            let genuine = hash(&id(&name), 1, &changed);
            changed[at] ^= 0x40;
            let answer = forge.read(&name, changed, Some(genuine)).await;
            assert!(is_corrupt(&answer), "changed at {at}: {answer:?}");
            cases += 1;
        }
        // From another run or another place.
        for record in &forge.genuine {
            let answer = forge.read(&format!("moved-{}", record.seq), record.entry.to_vec(), Some(record.hash)).await;
            assert!(is_corrupt(&answer), "{answer:?}");
        }
        // Kinds that don't exist.
        for kind in [9, 200] {
            let mut unknown = sound.clone();
            unknown[33] = kind;
            assert!(is_corrupt(&forge.read(&format!("kind-{kind}"), unknown, None).await), "kind {kind}");
        }
        println!("forged entries: {} refused", cases + 6);
    });
}

#[test]
fn entries_of_the_future_are_told_from_damaged_ones() {
    block_on(async {
        let forge = Forge::new().await;
        for version in [2, 3, 255] {
            let mut newer = forge.genuine[1].entry.to_vec();
            newer[0] = version;
            let answer = forge.read(&format!("newer-{version}"), newer.clone(), None).await;
            let Err(StoreError::TooNew { found, known: 1, .. }) = answer else { panic!("{answer:?}") };
            assert_eq!(found, u64::from(version));
            let answer = forge.read(&format!("wrong-{version}"), newer, Some(forge.genuine[1].hash)).await;
            assert!(is_corrupt(&answer), "{answer:?}");
        }
        let mut never = forge.genuine[1].entry.to_vec();
        never[0] = 0;
        assert!(is_corrupt(&forge.read("version-0", never, None).await));
    });
}

/// Two entries in each other's place, and entries whose parents are not those before them: a later one (as
/// near to a cycle as hashes allow), themselves under another name, none.
#[test]
fn broken_chains_are_refused() {
    block_on(async {
        let forge = Forge::new().await;
        let run = id("swapped");
        let mut head = create(&forge.store, &run).await.head();
        for record in forge.genuine[1..].iter().rev() {
            head = append(&forge.store, &run, head, record.entry.to_vec(), record.hash).await;
        }
        assert!(is_corrupt(&RunLog::open(Arc::clone(&forge.store) as Arc<dyn Store>, &run).await));

        for (number, parent) in [EntryHash::ROOT, forge.genuine[2].hash, forge.genuine[1].hash].into_iter().enumerate()
        {
            let run = id(&format!("chain-{number}"));
            let mut head = create(&forge.store, &run).await.head();
            for seq in 1..=3 {
                let mut entry = forge.genuine[1].entry.to_vec();
                let above = if seq == 2 { parent } else { head.hash };
                entry[1..33].copy_from_slice(above.as_bytes());
                let hash = hash(&run, seq, &entry);
                head = append(&forge.store, &run, head, entry, hash).await;
            }
            let log = RunLog::open(Arc::clone(&forge.store) as Arc<dyn Store>, &run).await.unwrap();
            for newest_first in [false, true] {
                let answer = log.entries(Span { newest_first, ..Span::ALL }).await;
                assert!(is_corrupt(&answer), "{number}: {answer:?}");
            }
            // What the damage doesn't concern can still be read.
            assert_eq!(log.entries(Span { to: Seq(1), ..Span::ALL }).await.unwrap().len(), 2);
        }
        let log = RunLog::open(Arc::clone(&forge.store) as Arc<dyn Store>, &forge.run).await.unwrap();
        assert_eq!(log.entries(Span::ALL).await.unwrap().len(), 3);
    });
}
