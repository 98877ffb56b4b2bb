//! The log of one run, typed: entries are sealed and verified, values become nodes, old entries are
//! folded into segments in the background. It is the same over every store.
//!
//! The handle knows where the log ended when it last looked and appends just there. If another writer wrote meanwhile,
//! the append fails with `Conflict` or `Fenced`; [`RunLog::refresh`] looks again.

mod append;
mod blobs;
mod chain;
mod fold;
mod load;
mod removed;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use async_recursion::async_recursion as boxed;
use piton_types::{
    BlobId, CheckpointRef, Durability, EntryHash, EntryKind, Fence, Part, PartName, Parts, RunId, RunKind, RunStatus,
    RunSummary, Seq, Timestamp, Value,
};

pub use append::{Content, Draft, DraftPart};
pub use chain::Chain;
pub use removed::Removed;

use crate::sealed::{self, SealedEntry};
use crate::segment::SegmentEntries;
use crate::state::{NodeSource, State};
pub(crate) use append::GROUP;
use blobs::RunBlobs;
pub(crate) use fold::level_of;
use piton_store::{Head, PackId, Section, Span, Store, StoreError};

/// The log of one run.
pub struct RunLog {
    store: Arc<dyn Store>,
    run: RunId,
    head: Head,
    /// Time never goes back within a log, whatever the wall clock does.
    at: Timestamp,
    /// The entry at the head, if it was read and nothing was appended since.
    newest: Option<SealedEntry>,
    /// The parts of the entry that was appended last.
    parts: Parts,
    /// A commit of which isn't known yet what came of it. The lock is there so that the log may be shared.
    submitted: Mutex<Option<append::Submitted>>,
    blobs: Arc<RunBlobs>,
    /// The ids of the whole values that were saved last, so that the next save stores only what is new.
    known: HashMap<PartName, Vec<BlobId>>,
    folder: fold::Folder,
    /// How often this handle has seen checkpoints being removed. What it knew to be stored before may be gone.
    removals: u32,
}

/// A run to be created.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// What it is called.
    pub name: String,
    /// What kind of work it is.
    pub kind: RunKind,
    /// The state it begins in.
    pub status: RunStatus,
    /// For a fork, where it branched off.
    pub parent: Option<CheckpointRef>,
    /// The working directory it belongs to.
    pub folder: Option<String>,
    /// What it is found by beside its name.
    pub labels: BTreeSet<String>,
    /// The document and the inputs.
    pub body: Value,
    /// The state that it begins with, if any: then entry 0 is a checkpoint.
    pub parts: BTreeMap<PartName, NewPart>,
    /// Packs that were staged for it ahead.
    pub staged: Vec<PackId>,
    /// When.
    pub at: Timestamp,
    /// The fence of the process that creates it.
    pub fence: Fence,
    /// What the acknowledgement must survive.
    pub durability: Durability,
}

/// A part of the state that a run begins with.
#[derive(Debug, Clone)]
pub struct NewPart {
    /// The shape of the value.
    pub schema: String,
    /// The version of that shape.
    pub version: u32,
    /// The value.
    pub value: Value,
}

impl NewRun {
    /// A run of steps in progress, durable, with nothing else to it.
    pub fn new(id: RunId, at: Timestamp) -> Self {
        Self {
            name: id.to_string(),
            id,
            kind: RunKind::Steps,
            status: RunStatus::InProgress,
            parent: None,
            folder: None,
            labels: BTreeSet::new(),
            body: Value::Null,
            parts: BTreeMap::new(),
            staged: Vec::new(),
            at,
            fence: Fence(1),
            durability: Durability::Durable,
        }
    }
}

impl RunLog {
    /// Creates a run. `Conflict` if there is one of that id.
    #[boxed]
    pub async fn create(store: Arc<dyn Store>, new: NewRun) -> Result<Self, StoreError> {
        let shown = |text: &String| match store.redaction() {
            Some(redaction) => redaction.shown(text).into_owned(),
            None => text.clone(),
        };
        let summary = RunSummary {
            id: new.id.clone(),
            name: shown(&new.name),
            kind: new.kind,
            status: new.status,
            created_at: new.at,
            updated_at: new.at,
            parent: new.parent.clone(),
            folder: new.folder.clone(),
            labels: new.labels.iter().map(shown).collect(),
        };
        let blobs = Arc::new(RunBlobs::new(Arc::clone(&store), new.id.clone()));
        let head = append::first(&store, &summary, &new).await?;
        Ok(Self::with(store, new.id, blobs, head, new.at))
    }

    /// A log that ends so, of which nothing else is known.
    fn with(store: Arc<dyn Store>, run: RunId, blobs: Arc<RunBlobs>, head: Head, at: Timestamp) -> Self {
        Self {
            store,
            run,
            head,
            at,
            newest: None,
            parts: Parts::new(),
            submitted: Mutex::default(),
            blobs,
            known: HashMap::new(),
            folder: fold::Folder::default(),
            removals: 0,
        }
    }

    /// Opens the log of a run that exists.
    #[boxed]
    pub async fn open(store: Arc<dyn Store>, run: &RunId) -> Result<Self, StoreError> {
        let blobs = Arc::new(RunBlobs::new(Arc::clone(&store), run.clone()));
        let Some(newest) = blobs.read_newest().await? else {
            return Err(StoreError::corrupt(format!("run {run}"), "its newest entry is missing"));
        };
        let entry = sealed::open(store.hashing(), run, &newest)?;
        let head = Head { seq: entry.seq, hash: entry.hash, fence: entry.fence };
        Ok(Self {
            at: entry.at,
            newest: Some(entry),
            ..Self::with(store, run.clone(), blobs, head, Timestamp::default())
        })
    }

    /// Opens the log as it was when entry `seq` was its newest, to look at it or to find a way around damage
    /// behind that entry: nothing behind it is read. To append to it is a `Conflict` unless it is the newest
    /// still.
    #[boxed]
    pub async fn open_at(store: Arc<dyn Store>, run: &RunId, seq: Seq) -> Result<Self, StoreError> {
        let blobs = Arc::new(RunBlobs::up_to(Arc::clone(&store), run.clone(), seq));
        let head = Head { seq, hash: EntryHash::ROOT, fence: Fence(0) };
        let mut log = Self::with(store, run.clone(), blobs, head, Timestamp::default());
        let entry = log.entry(seq).await?;
        log.head = Head { seq, hash: entry.hash, fence: entry.fence };
        log.at = entry.at;
        log.newest = Some(entry);
        Ok(log)
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Where the log ends, as far as this handle knows.
    pub fn head(&self) -> Head {
        self.head
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The run's row in the index.
    pub async fn summary(&self) -> Result<RunSummary, StoreError> {
        self.store.summary(&self.run).await?.ok_or_else(|| StoreError::no_run(&self.run))
    }

    /// The parts of the entry that this handle appended last; none if it isn't a checkpoint.
    pub fn appended_parts(&self) -> &Parts {
        &self.parts
    }

    /// [`appended_parts`](Self::appended_parts), once.
    pub fn take_appended_parts(&mut self) -> Parts {
        std::mem::take(&mut self.parts)
    }

    /// Looks where the log ends now, and returns the entries that others have added since.
    #[boxed]
    pub async fn refresh(&mut self) -> Result<Vec<SealedEntry>, StoreError> {
        let added = self.added().await?;
        self.advance(&added);
        Ok(added)
    }

    /// The entries that other writers have added since, for a caller that has to look into them before the log counts
    /// as read up to there by [`advance`](Self::advance). `Conflict` if they don't follow what this handle knows: the server that
    /// keeps the store has lost some of it, and others went on from before.
    #[boxed]
    pub async fn added(&self) -> Result<Vec<SealedEntry>, StoreError> {
        let added = self.entries(Span { from: self.head.seq.next(), ..Span::ALL }).await?;
        if added.first().is_some_and(|first| first.parent != self.head.hash) {
            let (run, head) = (self.run.clone(), self.store.head(&self.run).await?);
            return Err(StoreError::Conflict { run, wanted: self.head.seq.next(), head });
        }
        Ok(added)
    }

    /// The log ends with the last of these now, which are what [`added`](Self::added) gave.
    pub fn advance(&mut self, added: &[SealedEntry]) {
        if added.iter().any(|entry| entry.kind == EntryKind::Removed) {
            self.distrust();
        }
        if let Some(newest) = added.last() {
            self.newest = Some(newest.clone());
            self.head = Head { seq: newest.seq, hash: newest.hash, fence: newest.fence };
            self.at = self.at.max(newest.at);
        }
    }

    /// Entries in the order that `span` asks for, verified, from segments and tail alike. Consecutive
    /// ones are also checked to be parent and child.
    #[boxed]
    pub async fn entries(&self, span: Span) -> Result<Vec<SealedEntry>, StoreError> {
        let hashing = self.store.hashing();
        for _ in 0..RETRIES {
            // Segments first: what is folded between the two reads is then seen in neither, and the gap
            // shows; the other way round it would be seen twice.
            let segments = self.store.segments(&self.run).await?;
            // What is folded is there and nowhere else, so the rest isn't asked, which may be damaged.
            let folded = segments.last().is_some_and(|newest| span.to <= newest.last);
            let tail = match folded {
                true => Vec::new(),
                false => self.store.read(&self.run, Span { packs: false, ..span }).await?,
            };
            let tail =
                tail.iter().map(|record| sealed::open(hashing, &self.run, record)).collect::<Result<Vec<_>, _>>()?;
            let mut wanted = span.limit;
            let mut found = Vec::new();
            let overlapping = segments.iter().filter(|segment| segment.first <= span.to && segment.last >= span.from);
            let ordered: Vec<_> =
                if span.newest_first { overlapping.rev().copied().collect() } else { overlapping.copied().collect() };
            if span.newest_first {
                wanted -= tail.len().min(wanted);
            }
            let mut stale = false;
            for info in ordered {
                if wanted == 0 {
                    break;
                }
                let bytes = match self.store.section(&self.run, info, Section::Entries).await {
                    Err(StoreError::NotFound { .. }) => {
                        stale = true;
                        break;
                    }
                    other => other?,
                };
                let mut part = SegmentEntries::open_some(hashing, &self.run, info, &bytes, span.from..=span.to)?;
                if span.newest_first {
                    part.reverse();
                }
                part.truncate(wanted);
                wanted -= part.len();
                found.extend(part.into_iter().map(|(_, entry)| entry));
            }
            let mut entries = if span.newest_first { [tail, found].concat() } else { [found, tail].concat() };
            entries.truncate(span.limit);
            if stale || self.has_gap(&entries, span)? {
                tokio::task::yield_now().await;
                continue;
            }
            return Ok(entries);
        }
        Err(StoreError::corrupt(format!("run {}", self.run), "entries of its log are missing"))
    }

    /// Whether entries are missing because they were folded while we read. A pair that is consecutive
    /// but not parent and child is damage.
    fn has_gap(&self, entries: &[SealedEntry], span: Span) -> Result<bool, StoreError> {
        for pair in entries.windows(2) {
            let (older, newer) = if span.newest_first { (&pair[1], &pair[0]) } else { (&pair[0], &pair[1]) };
            if older.seq.next() != newer.seq {
                if self.store.capabilities().history {
                    return Ok(true);
                }
                continue;
            }
            if newer.parent != older.hash {
                return Err(StoreError::corrupt(
                    format!("run {}", self.run),
                    format!("entry {} doesn't follow entry {}", newer.seq, older.seq),
                ));
            }
        }
        Ok(false)
    }

    /// Another handle on the same log as far as this one knows it, to read with while this one appends. It shares what
    /// is known of segments and packs.
    pub fn reader(&self) -> Self {
        let blobs = Arc::clone(&self.blobs);
        let new = Self::with(Arc::clone(&self.store), self.run.clone(), blobs, self.head, self.at);
        Self { newest: self.newest.clone(), removals: self.removals, ..new }
    }

    /// One entry. Those of a few segments stay open, so that entries which stand together cost one read.
    pub async fn entry(&self, seq: Seq) -> Result<SealedEntry, StoreError> {
        if let Some(newest) = self.newest.as_ref().filter(|newest| newest.seq == seq) {
            return Ok(newest.clone());
        }
        if let Some(entry) = self.blobs.folded_entry(seq).await? {
            return Ok(entry);
        }
        // One and no more: the next one may be damaged.
        let found = self.entries(Span { from: seq, to: seq, limit: 1, ..Span::ALL }).await?;
        found
            .into_iter()
            .next()
            .ok_or_else(|| StoreError::NotFound { what: format!("entry {seq} of run {}", self.run) })
    }

    /// The newest entry that is a checkpoint, if there is one.
    #[boxed]
    pub async fn newest_checkpoint(&self) -> Result<Option<SealedEntry>, StoreError> {
        if let Some(newest) = self.newest.as_ref().filter(|newest| !newest.parts.is_empty()) {
            return Ok(Some(newest.clone()));
        }
        // Mostly it is the very last, which isn't in a segment yet, or among the last few.
        let mut to = self.head.seq;
        for size in [1, 4, 32].into_iter().chain(std::iter::repeat(256)) {
            let page = self.entries(Span { to, ..Span::newest(size) }).await?;
            let Some(oldest) = page.last().map(|entry| entry.seq) else { return Ok(None) };
            if let Some(found) = page.into_iter().find(|entry| !entry.parts.is_empty()) {
                return Ok(Some(found));
            }
            let Some(before) = oldest.0.checked_sub(1) else { break };
            to = Seq(before);
        }
        Ok(None)
    }

    /// The body of an entry.
    pub async fn body(&self, entry: &SealedEntry) -> Result<Value, StoreError> {
        self.blobs.load_body(entry.seq, entry.body.clone()).await.map(|value| self.outgoing(value))
    }

    /// A whole part.
    pub async fn load(&self, part: &Part) -> Result<Value, StoreError> {
        self.stored_part(part).await.map(|value| self.outgoing(value))
    }

    /// The body of an entry as it is stored, with what was redacted left so.
    #[boxed]
    pub(crate) async fn stored_body(&self, entry: &SealedEntry) -> Result<Value, StoreError> {
        self.blobs.load_body(entry.seq, entry.body.clone()).await
    }

    /// A whole value by its root.
    #[boxed]
    pub async fn load_root(&self, root: BlobId) -> Result<Value, StoreError> {
        self.blobs.load(root).await.map(|value| self.outgoing(value))
    }

    /// A whole part as it is stored.
    #[boxed]
    pub(crate) async fn stored_part(&self, part: &Part) -> Result<Value, StoreError> {
        self.blobs.load(part.root).await
    }

    /// A value as the reader gets it.
    fn outgoing(&self, value: Value) -> Value {
        match self.store.redaction() {
            Some(redaction) => redaction.resolve(value),
            None => value,
        }
    }

    /// A new state for this log, of which nothing is stored.
    pub fn new_state(&self, value: &Value) -> Result<State, StoreError> {
        State::redacted(self.store.hashing(), self.store.redaction(), value)
    }

    /// A part to be edited. What of it is needed is loaded then.
    pub fn state(&self, part: &Part) -> State {
        let mut state = State::open(self.store.hashing().clone(), part.root, None);
        state.set_redaction(self.store.redaction());
        self.settle_state(&mut state);
        state
    }

    /// What tells states that are saved here from those of other runs and stores.
    fn home(&self) -> (usize, &RunId, u32) {
        // Another handle may have missed that checkpoints were removed.
        (Arc::as_ptr(&self.blobs).addr(), &self.run, self.removals)
    }

    /// Says to a state that what is stored of it is here.
    fn settle_state(&self, state: &mut State) {
        let (handle, run, removals) = self.home();
        if !state.is_at_home((handle, run, removals)) {
            state.settle((handle, run.clone(), removals), self.source());
        }
    }

    /// Where the nodes of this run's values come from.
    pub fn source(&self) -> Arc<dyn NodeSource> {
        Arc::clone(&self.blobs) as Arc<dyn NodeSource>
    }

    /// Waits for an append that was given up and for folding in the background, and folds what is due.
    #[boxed]
    pub async fn close(mut self) -> Result<(), StoreError> {
        self.settle().await;
        self.folder.finish().await;
        fold::fold(&self.store, &self.run, &self.blobs, fold::When::Closing).await.map(drop)
    }
}

impl std::fmt::Debug for RunLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunLog").field("run", &self.run).field("head", &self.head).finish_non_exhaustive()
    }
}

/// How often a read is repeated that found the log being folded under it.
const RETRIES: u32 = 20;

/// The kind that only entry 0 has.
const FIRST: EntryKind = EntryKind::Created;
