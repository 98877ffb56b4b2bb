//! What every store must do, one behaviour a function, over `dyn Store`. A store's tests stamp them into
//! one named test each:
//!
//! ```
//! # use std::sync::Arc;
//! use piton_store::conformance::Fixture;
//! use piton_store::{Store, async_trait};
//! use piton_store_objects::ObjectStore;
//!
//! struct Memory(Arc<ObjectStore>);
//!
//! #[async_trait]
//! impl Fixture for Memory {
//!     async fn open(&self) -> Arc<dyn Store> {
//!         self.0.clone()
//!     }
//! }
//!
//! piton_store::conformance!(Memory(Arc::new(ObjectStore::in_memory())));
//! ```

mod append;
mod checkpoints;
mod index;
mod log;
mod offered;
mod segments;
mod staging;
mod upkeep;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{
    BlobId, CheckpointRef, Durability, EntryHash, Fence, Holder, Random, RunId, RunKind, RunStatus, RunSummary, Seq,
    Timestamp,
};

use crate::{Commit, EncryptedStore, Hashing, Head, Key, Owner, Pin, Store, is_encrypted};

pub use append::*;
pub use checkpoints::{Reopen, checkpoint_store_behaves};
pub use index::*;
pub use log::*;
pub use offered::*;
pub use segments::*;
pub use staging::*;
pub use upkeep::*;

/// Opens the store under test.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Opens it, for the first time or again: what was stored through an earlier handle is there.
    async fn open(&self) -> Arc<dyn Store>;
}

/// Any store, encrypted.
#[expect(missing_debug_implementations, reason = "a fixture of tests")]
pub struct Encrypted<F> {
    below: F,
    key: Key,
    random: Arc<dyn Random>,
}

impl<F: Fixture> Encrypted<F> {
    /// The store of `below`, under a key made of `random`.
    pub fn new(below: F, random: Arc<dyn Random>) -> Self {
        Self { below, key: Key::generate(&*random), random }
    }
}

#[async_trait]
impl<F: Fixture> Fixture for Encrypted<F> {
    async fn open(&self) -> Arc<dyn Store> {
        let (below, random) = (self.below.open().await, Arc::clone(&self.random));
        Arc::new(match is_encrypted(&*below).await.unwrap() {
            true => EncryptedStore::open(below, &self.key, random).await.unwrap(),
            false => EncryptedStore::create(below, &self.key, random).await.unwrap(),
        })
    }
}

/// Stamps behaviours into a test each, with a fixture made by the given expression: those of every store (`core`), and those
/// of what a store offers (`folding`, `leases`, `upkeep`, `changes`, `queue`). Without any named, `core folding leases upkeep`.
/// What run logs must do on every store is in the suite of `piton-log`.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        $crate::conformance!($fixture; core folding leases upkeep);
    };
    ($fixture:expr; $($part:ident)*) => {
        $($crate::conformance!(@ $part $fixture);)*
    };
    (@ core $fixture:expr) => {
        $crate::conformance_each!([$crate::conformance] $fixture;
            a_run_starts_at_entry_zero
            entries_come_back_in_order
            a_used_number_conflicts
            a_skipped_number_conflicts
            a_wrong_parent_conflicts
            a_first_entry_needs_an_index_row
            a_lower_fence_is_fenced
            racing_appends_have_one_winner
            racing_creations_have_one_winner
            parallel_runs_do_not_disturb_each_other
            a_dropped_append_is_whole_or_absent
            a_chain_is_there_as_a_whole_or_not_at_all
            large_entries_come_back
            entries_survive_reopening
            spans_are_honoured
            runs_are_listed_newest_first
            runs_are_listed_by_status
            runs_are_listed_by_folder
            runs_are_listed_by_kind_text_and_time
            runs_are_listed_by_label_and_between_times
            runs_are_listed_in_pages
            hostile_texts_are_only_texts
            staged_packs_are_found
            a_pack_is_staged_once
            a_commit_needs_its_staged_packs
            what_a_store_lacks_is_unsupported
        );
    };
    (@ leases $fixture:expr) => {
        $crate::conformance_each!([$crate::conformance] $fixture; leases_count_beats_and_fence);
    };
    (@ folding $fixture:expr) => {
        $crate::conformance_each!([$crate::conformance] $fixture;
            folding_keeps_every_byte
            folding_refuses_what_does_not_fit
            a_reader_sees_every_entry_during_a_fold
            segments_merge
        );
    };
    (@ upkeep $fixture:expr) => {
        $crate::conformance_each!([$crate::conformance] $fixture;
            a_removed_run_is_gone_and_its_name_is_free
            a_run_that_went_on_is_not_removed
            packs_are_listed
            a_pin_keeps_a_pack_until_its_commit_or_its_end
            a_pack_that_is_condemned_may_be_staged_or_pinned_again
            a_commit_saves_a_condemned_pack
            a_pack_that_was_deleted_may_be_staged_again
            a_sweep_deletes_what_it_is_told_to
            a_sweep_keeps_to_its_measure
            staging_beside_a_sweeper_loses_nothing
            notes_are_kept
            a_sound_store_has_no_defects
        );
    };
    (@ changes $fixture:expr) => {
        $crate::conformance_each!([$crate::conformance] $fixture; changes_are_told_once_and_in_order);
    };
    (@ queue $fixture:expr) => {
        $crate::conformance_each!([$crate::conformance] $fixture;
            runs_are_taken_by_labels_priority_and_time
            what_a_silent_worker_holds_is_due_again
            one_worker_at_a_time_keeps_house
            a_limit_holds_for_all_workers
            no_two_workers_take_the_same_run
        );
    };
}

/// The part of [`conformance!`] that repeats, for behaviours of any module.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_each {
    (@ [$($module:tt)*] $fixture:expr; $behaviour:ident) => {
        #[test]
        fn $behaviour() {
            let runtime = $crate::conformance::runtime();
            runtime.block_on($($module)*::$behaviour(&$fixture));
        }
    };
    ($module:tt $fixture:expr; $($behaviour:ident)*) => {
        $($crate::conformance_each!(@ $module $fixture; $behaviour);)*
    };
}

/// The runtime that behaviours run on.
#[doc(hidden)]
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime can be built")
}

fn run_id(name: &str) -> RunId {
    name.parse().expect("a valid id")
}

fn holder() -> Holder {
    Holder { host: "host".into(), boot: "boot".into(), pid: 7, started: 1 }
}

fn summary(run: &RunId, status: RunStatus, at: i64) -> RunSummary {
    RunSummary {
        id: run.clone(),
        name: format!("name of {run}"),
        kind: RunKind::Steps,
        status,
        created_at: Timestamp::from_millis(at),
        updated_at: Timestamp::from_millis(at),
        parent: Some(CheckpointRef { run: run_id("parent"), seq: Seq(3) }),
        folder: Some("/some/folder".into()),
        labels: ["some".into(), "such".into()].into(),
    }
}

/// A commit that follows `head`, with content made from its number.
#[doc(hidden)]
pub fn next(run: &RunId, head: Option<Head>, at: i64) -> Commit {
    let seq = head.map_or(Seq(0), |head| head.seq.next());
    let entry = Bytes::from(format!("entry {seq} of {run}").repeat(3));
    Commit {
        run: run.clone(),
        seq,
        parent: head.map_or(EntryHash::ROOT, |head| head.hash),
        hash: Hashing::PLAIN.entry(&[&entry, &at.to_le_bytes()]),
        fence: head.map_or(Fence(1), |head| head.fence),
        at: Timestamp::from_millis(at),
        entry,
        pack: Bytes::from(format!("pack {seq} of {run}").repeat(5)),
        staged: Vec::new(),
        owner: OWNER,
        index: head.is_none().then(|| summary(run, RunStatus::InProgress, at)),
        durability: Durability::Relaxed,
    }
}

/// Appends `count` entries to a new run and returns its head.
async fn grow(store: &dyn Store, run: &RunId, count: u32) -> Head {
    let mut head = store.head(run).await.expect("head");
    for _ in 0..count {
        let commit = next(run, head, 1_000 + i64::from(head.map_or(0, |head| head.seq.0)));
        head = Some(Head { seq: commit.seq, hash: commit.hash, fence: commit.fence });
        store.append(vec![commit]).await.expect("append");
    }
    head.expect("at least one entry")
}

/// The writer of these commits.
const OWNER: Owner = Owner(7);
const PIN: Pin = Pin { owner: OWNER, life: Pin::LIFE };

fn blob(text: &str) -> BlobId {
    Hashing::PLAIN.blob(text.as_bytes())
}
