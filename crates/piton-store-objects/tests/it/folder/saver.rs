//! A program that saves, folds and stages, says what was acknowledged, and can go on after any kill; and the look
//! at what it left.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use piton_store::{Hashing, Pin, Section, Segment, SegmentInfo, Span, Store, StoreError};
use piton_store_objects::{FolderOptions, ObjectStore};
use piton_types::{Durability, Seq};

use crate::support::{Line, block_on};

const ROLE: &str = "PITON_FILE_TEST_ROLE";
const STORE: &str = "PITON_FILE_TEST_STORE";

/// The last entry that it writes.
pub(super) const LAST: u32 = 23;
/// Entries that rely on a staged pack.
const WITH_PACK: [u32; 2] = [5, 14];
/// When an entry with the first number is there, everything up to the second is folded.
const FOLDS: [(u32, u32); 3] = [(8, 3), (12, 6), (19, 15)];

/// Entries that begin a burst of three, which is one object.
const BURSTS: [u32; 2] = [9, 20];

/// How it goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Well,
    /// Ends at the first error, which it says.
    Honest,
    /// Never syncs: the negative control.
    Careless,
}

impl How {
    pub(super) fn command(self, folder: &Path) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["folder::saver::entrance", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, format!("{self:?}")).env(STORE, folder);
        command
    }
}

#[expect(clippy::print_stdout, reason = "a child process answers its parent so")]
fn say(text: impl std::fmt::Display) {
    println!("said: {text}");
}

/// What a second process does. Nothing, if this is the first.
#[test]
fn entrance() {
    let (Ok(role), Ok(folder)) = (std::env::var(ROLE), std::env::var(STORE)) else { return };
    let mut options = FolderOptions::default();
    options.careless = role == "Careless";
    let saved = ObjectStore::in_folder(folder, &options).and_then(|store| block_on(save(Arc::new(store))));
    match saved {
        Ok(()) => say("done"),
        Err(error) if role == "Honest" => say(format!("fail {error}")),
        Err(error) => panic!("{error}"),
    }
}

fn pack(seq: u32) -> Bytes {
    Bytes::from(format!("the pack of entry {seq} ").repeat(300))
}

fn segment(last: u32) -> Segment {
    let info = SegmentInfo { first: Seq(0), last: Seq(last) };
    let section = |name: &str| Bytes::from(format!("{name} up to {last} ").repeat(20));
    Segment { info, entries: section("entries"), index: section("index"), nodes: section("nodes") }
}

async fn save(store: Arc<dyn Store>) -> Result<(), StoreError> {
    let mut line = Line::new("saved");
    line.head = store.head(&line.run).await?;
    loop {
        let newest = line.head.map(|head| head.seq.0);
        for (at, last) in FOLDS {
            if newest == Some(at) {
                match store.fold(&line.run, segment(last)).await {
                    // Done before the kill.
                    Ok(()) | Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if newest == Some(LAST) {
            return store.close().await;
        }
        let mut commit = line.next();
        let seq = commit.seq.0;
        if BURSTS.contains(&seq) {
            let mut burst = Vec::new();
            for _ in 0..3 {
                let commit = line.next();
                line.head = Some(piton_store::Head { seq: commit.seq, hash: commit.hash, fence: commit.fence });
                burst.push(commit);
            }
            store.append(burst).await?;
            say(format!("ack {}", seq + 2));
            continue;
        }
        // One in four is durable only with the next.
        let relaxed = seq % 4 == 2;
        commit.durability = if relaxed { Durability::Relaxed } else { Durability::Durable };
        if WITH_PACK.contains(&seq) {
            let bytes = pack(seq);
            commit.staged =
                vec![piton_store::stage(&*store, bytes.clone(), &[Hashing::PLAIN.blob(&bytes)], Pin::new()).await?];
        }
        line.head = Some(piton_store::Head { seq: commit.seq, hash: commit.hash, fence: commit.fence });
        store.append(vec![commit]).await?;
        if !relaxed {
            say(format!("ack {seq}"));
        }
    }
}

/// What it said.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) newest: Option<u32>,
    pub(super) done: bool,
    pub(super) failure: Option<String>,
}

impl Said {
    pub(super) fn new(lines: &[String]) -> Self {
        let mut said = Self::default();
        for line in lines.iter().filter_map(|line| line.split_once("said: ").map(|(_, line)| line)) {
            match line.split_once(' ') {
                Some(("ack", seq)) => said.newest = Some(seq.parse().unwrap()),
                Some(("fail", text)) => said.failure = Some(text.to_owned()),
                _ => said.done = line == "done",
            }
        }
        said
    }
}

/// Opens the store and looks at everything: what was acknowledged is there, what is there is right, and nothing is
/// missing in between. Returns the newest entry.
pub(super) fn verify(folder: &Path, said: &Said) -> Result<Option<u32>, String> {
    let text = |error: StoreError| error.to_string();
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_folder(folder, &FolderOptions::default()).map_err(text)?);
    block_on(async {
        let run = Line::new("saved").run;
        let Some(head) = store.head(&run).await.map_err(text)? else {
            return match said.newest {
                None => Ok(None),
                Some(newest) => Err(format!("lost: the run, of which entry {newest} was acknowledged")),
            };
        };
        if said.newest.is_some_and(|newest| newest > head.seq.0) {
            return Err(format!("lost: {:?} was acknowledged, and the log ends at {}", said.newest, head.seq));
        }
        let mut covered = 0;
        for info in store.segments(&run).await.map_err(text)? {
            let expected = segment(info.last.0);
            for (section, bytes) in [
                (Section::Entries, expected.entries),
                (Section::Index, expected.index),
                (Section::Nodes, expected.nodes),
            ] {
                let found = store.section(&run, info, section).await.map_err(text)?;
                assert_eq!(found, bytes, "segment {info}");
            }
            covered = info.last.0 + 1;
        }
        let mut line = Line::new("saved");
        let records = store.read(&run, Span { packs: true, ..Span::ALL }).await.map_err(text)?;
        assert!(records.iter().map(|record| record.seq.0).eq(covered..=head.seq.0), "no gaps");
        for seq in 0..=head.seq.0 {
            let commit = line.next();
            if let Some(record) = records.iter().find(|record| record.seq.0 == seq) {
                let found = (&record.entry, &record.pack, record.hash, record.fence);
                assert_eq!(found, (&commit.entry, &commit.pack, commit.hash, commit.fence), "entry {seq}");
            }
            if WITH_PACK.contains(&seq) {
                let expected = pack(seq);
                let place = store.locate(&[Hashing::PLAIN.blob(&expected)]).await.map_err(text)?[0];
                let place = place.ok_or_else(|| format!("lost: the pack of entry {seq}"))?;
                assert_eq!(store.pack(place).await.map_err(text)?, expected);
            }
            line.head = Some(piton_store::Head { seq: commit.seq, hash: commit.hash, fence: commit.fence });
        }
        assert_eq!(store.inspect().await.map_err(text)?, []);
        store.close().await.map_err(text)?;
        Ok(Some(head.seq.0))
    })
}
