//! The traits that a store implements. A store keeps opaque bytes in order; what they mean is decided
//! above it, by `piton_log::RunLog` and the state encoding, once for all stores.
//!
//! A [`Store`] is [`Log`] + [`Blobs`] + [`RunIndex`]: what is asked of every store. What it can do beyond that it offers
//! by accessors: [`Fold`], [`Leases`], [`Upkeep`], [`Changes`], [`Queue`]. All are dyn-safe, and a decorator (encryption, metrics) is
//! itself a store, which offers what the store below it does.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{
    BlobId, Durability, EntryHash, Fence, Holder, PackId, RunId, RunKind, RunStatus, RunSummary, Seq, Timestamp,
};

use crate::{Hashing, Queue, StoreError};

/// Where a run's log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The newest entry.
    pub seq: Seq,
    /// Its hash.
    pub hash: EntryHash,
    /// Its fence, the highest of the log.
    pub fence: Fence,
}

/// One entry to be appended to a log, with everything that comes into being together with it.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The run.
    pub run: RunId,
    /// The entry's number: one more than the head's, 0 for a new run.
    pub seq: Seq,
    /// The hash of the entry before it; [`EntryHash::ROOT`] for a new run.
    pub parent: EntryHash,
    /// The entry's hash.
    pub hash: EntryHash,
    /// The writer's fence: at least the head's.
    pub fence: Fence,
    /// When it was written.
    pub at: Timestamp,
    /// The sealed entry.
    pub entry: Bytes,
    /// The raw pack of the values that are new with this entry; may be empty.
    pub pack: Bytes,
    /// Staged packs that the entry relies on. The commit fails with `PackGone` if one isn't there, and otherwise takes
    /// them off the condemned list.
    pub staged: Vec<PackId>,
    /// The writer whose pins of those packs end with the commit.
    pub owner: Owner,
    /// The run's new index row. Required for entry 0; otherwise `None` leaves the row as it is, except
    /// that `updated_at` follows `at`.
    pub index: Option<RunSummary>,
    /// What the acknowledgement must survive.
    pub durability: Durability,
}

impl Commit {
    /// Whether this commit may follow `head`: the rules of [`Log::append`], for stores to share.
    pub fn check(&self, head: Option<Head>) -> Result<(), StoreError> {
        if let Some(head) = head.filter(|head| head.fence > self.fence) {
            return Err(StoreError::Fenced { run: self.run.clone(), held: self.fence, current: head.fence });
        }
        let (next, parent) = head.map_or((Seq(0), EntryHash::ROOT), |head| (head.seq.next(), head.hash));
        if (self.seq, self.parent) != (next, parent) {
            return Err(StoreError::Conflict { run: self.run.clone(), wanted: self.seq, head });
        }
        if head.is_none() && self.index.is_none() {
            return Err(StoreError::Invalid {
                what: format!("the first entry of run {}", self.run),
                detail: "it has no index row".to_owned(),
            });
        }
        Ok(())
    }

    /// Whether these may be [appended](Log::append) together, whatever the log ends with: the rules of that, for stores
    /// to share.
    pub fn check_together(commits: &[Self]) -> Result<(), StoreError> {
        for pair in commits.windows(2) {
            let follows = pair[1].run == pair[0].run && pair[1].fence == pair[0].fence;
            if !follows || (pair[1].seq, pair[1].parent) != (pair[0].seq.next(), pair[0].hash) {
                let what = format!("entry {} of run {}", pair[1].seq, pair[1].run);
                let detail = "it doesn't follow the one that it is appended with".to_owned();
                return Err(StoreError::Invalid { what, detail });
            }
        }
        Ok(())
    }
}

/// One entry as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub seq: Seq,
    /// Its hash, as given to the commit. The reader checks it; the store doesn't.
    pub hash: EntryHash,
    /// Its fence.
    pub fence: Fence,
    /// The sealed entry.
    pub entry: Bytes,
    /// Its raw pack; empty if the read didn't ask for packs.
    pub pack: Bytes,
}

/// Which entries to read.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// The first.
    pub from: Seq,
    /// The last, included.
    pub to: Seq,
    /// From the newest to the oldest.
    pub newest_first: bool,
    /// At most so many.
    pub limit: usize,
    /// With their packs.
    pub packs: bool,
}

impl Span {
    /// Every entry, oldest first, without packs.
    pub const ALL: Self =
        Self { from: Seq(0), to: Seq(u32::MAX), newest_first: false, limit: usize::MAX, packs: false };

    /// The newest `limit` entries, newest first, without packs.
    pub const fn newest(limit: usize) -> Self {
        Self { newest_first: true, limit, ..Self::ALL }
    }
}

/// Consecutive entries and their values, folded into one.
#[derive(Debug, Clone)]
pub struct Segment {
    /// What it covers.
    pub info: SegmentInfo,
    /// The sealed entries.
    pub entries: Bytes,
    /// Which blobs it holds.
    pub index: Bytes,
    /// The blobs.
    pub nodes: Bytes,
}

/// What a segment covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentInfo {
    /// The first entry.
    pub first: Seq,
    /// The last entry.
    pub last: Seq,
}

impl SegmentInfo {
    /// How many entries it covers.
    #[expect(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub fn len(&self) -> u64 {
        u64::from(self.last.0.saturating_sub(self.first.0)) + 1
    }
}

impl std::fmt::Display for SegmentInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..={}", self.first, self.last)
    }
}

/// One of the three sections of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    /// The sealed entries.
    Entries,
    /// Which blobs it holds.
    Index,
    /// The blobs.
    Nodes,
}

/// The append-only logs of runs.
///
/// A log is numbered from 0 without gaps. Its older entries may be folded into segments; the newest
/// entry never is.
#[async_trait]
pub trait Log: Send + Sync {
    /// Creates one entry or several that follow each other, with their packs and index rows, all or none. Several are of
    /// one run and have one fence, and cost little more than one.
    ///
    /// When it returns `Ok`, the entries are visible to every process and survive what the strictest
    /// `commit.durability` of them says, together with every entry that was visible before. It returns
    /// [`StoreError::Fenced`] if the head's fence is higher than that of the commits, [`StoreError::Conflict`] if the log
    /// doesn't end just before the first of them with the hash that it names as its parent, and [`StoreError::Invalid`]
    /// if they don't follow each other. Of several callers that race for one number, exactly one wins. After any other
    /// error, and if the future is dropped, all of the entries are there or none: read the head to know. Without any
    /// commit nothing is done.
    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError>;

    /// Where the log ends; `None` if there is no such run.
    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError>;

    /// The entries of `span` that are not in a segment, in the order it asks for.
    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError>;
}

/// Logs whose older entries can be folded into segments, which take less space and are read faster.
#[async_trait]
pub trait Fold: Send + Sync {
    /// What the run's segments cover, in ascending order. Logs are folded into segments of some 2,000 entries, so there are
    /// few of them even for a long run.
    async fn segments(&self, run: &RunId) -> Result<Vec<SegmentInfo>, StoreError>;

    /// One section of a segment. `NotFound` if it has been folded into a larger one meanwhile.
    async fn section(&self, run: &RunId, segment: SegmentInfo, section: Section) -> Result<Bytes, StoreError>;

    /// Adds `segment`, then removes the entries and the smaller segments that it covers; readers prefer the segment and
    /// ignore what it covers, so the two may be one change but need not be. At every moment each entry is in a segment, or is
    /// [read](Log::read) by itself, or both: a reader that lists the entries and then the segments misses none. `Conflict` if what it covers isn't exactly that any more;
    /// the newest entry is never covered. A segment may take the place of one of the same extent.
    ///
    /// Durability comes with the next durable commit: until then a crash may bring the old form back.
    async fn fold(&self, run: &RunId, segment: Segment) -> Result<(), StoreError>;
}

/// A writer that stages packs: what is staged or found is pinned in its name until its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(pub u64);

impl Owner {
    /// One that no other writer has.
    #[expect(clippy::new_without_default, reason = "each one is another")]
    pub fn new() -> Self {
        Self(RandomState::new().hash_one(()))
    }
}

/// Keeps packs from being condemned until their writer has committed, or for as long as it may take to do so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// In whose name.
    pub owner: Owner,
    /// For how long, by the store's clock, if no commit ends it before.
    pub life: Duration,
}

impl Pin {
    /// How long a writer has for its commit. What a dead one leaves is pinned no longer.
    pub const LIFE: Duration = Duration::from_secs(60 * 60);

    /// A pin in the name of a new owner.
    #[expect(clippy::new_without_default, reason = "each one is another's")]
    pub fn new() -> Self {
        Self { owner: Owner::new(), life: Self::LIFE }
    }
}

/// Large data that is stored ahead of the commit that refers to it.
///
/// A pack is named by the hash of its bytes, keyed where the store is encrypted. The caller names it and the reader
/// checks the name ([`stage`](crate::stage) and [`pack`](crate::pack) do); the store doesn't.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Stores a pack if it isn't there, and pins it. Blobs with these ids are in it. A later durable commit makes it
    /// durable too. Staging what is there costs little and takes it off the condemned list.
    async fn stage(&self, id: PackId, pack: Bytes, ids: &[BlobId], pin: Pin) -> Result<(), StoreError>;

    /// Pins packs that are there and takes them off the condemned list: a writer does that with what it found, before it
    /// relies on it. `PackGone` if one isn't there.
    async fn pin(&self, packs: &[PackId], pin: Pin) -> Result<(), StoreError>;

    /// In which staged pack each blob is, if any. If it is in several, in one that isn't condemned.
    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError>;

    /// A staged pack.
    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError>;

    /// A part of a staged pack: `length` bytes from `from` on, or as many as there are. `None` if the store gives packs
    /// only as a whole, as an encrypted one does.
    async fn pack_part(&self, pack: PackId, from: u64, length: usize) -> Result<Option<Bytes>, StoreError> {
        let _ = (pack, from, length);
        Ok(None)
    }
}

/// What became of a staged pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackState {
    /// A writer has staged or found it, and has time left for its commit.
    Pinned,
    /// A writer's pin ran out before a commit ended it.
    Abandoned,
    /// Committed.
    Kept,
    /// No run was found to need it, as of then.
    Condemned(Timestamp),
}

/// A staged pack, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackInfo {
    /// Its name.
    pub id: PackId,
    /// What became of it.
    pub state: PackState,
    /// How many bytes it has.
    pub size: u64,
}

/// What may be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Of these packs, those that are condemned since just then and not pinned.
    pub packs: Vec<(PackId, Timestamp)>,
    /// About so many bytes and no more.
    pub bytes: u64,
}

/// What was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Packs.
    pub packs: u64,
    /// Bytes of packs, entries and segments.
    pub bytes: u64,
    /// Whether something is left that may be deleted.
    pub more: bool,
}

/// Something wrong with a store's own structures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defect {
    /// Where.
    pub what: String,
    /// How it shows.
    pub detail: String,
}

/// How much of each kind a store holds. Bytes are those of the records; what the store itself needs comes on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Totals {
    /// Entries that aren't folded.
    pub entries: u64,
    /// Their bytes, with their packs.
    pub entry_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Staged packs.
    pub packs: u64,
    /// Their bytes.
    pub pack_bytes: u64,
}

/// What retention, checks and copies need.
///
/// Packs are deleted in three steps. What no run seems to need is condemned; the logs are read again, all of them after
/// that; what is still condemned and still not needed is swept. Staging, pinning and naming a pack in a commit take it off
/// the list at once, so a writer that came to need it in between has it. Who needs a pack is found out above.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Takes a run out of the store, all or nothing: no reader sees it afterwards. `Conflict` if its log doesn't end at
    /// `head`, `NotFound` if there is no such run. Its space is given back by `sweep`. A run of the same id may be created
    /// at once, and has nothing of the old one.
    async fn remove(&self, run: &RunId, head: Head) -> Result<(), StoreError>;

    /// Staged packs behind `after` in the order of their names, at most so many.
    async fn packs(&self, after: Option<PackId>, limit: usize) -> Result<Vec<PackInfo>, StoreError>;

    /// The ids of the blobs in a pack, ascending.
    async fn pack_ids(&self, pack: PackId) -> Result<Vec<BlobId>, StoreError>;

    /// Condemns those of the packs that are neither pinned nor condemned; says how many.
    async fn condemn(&self, packs: &[PackId], at: Timestamp) -> Result<u64, StoreError>;

    /// Takes packs off the condemned list, and pins off them that ran out.
    async fn pardon(&self, packs: &[PackId]) -> Result<(), StoreError>;

    /// Deletes condemned packs and what removed runs held, in short transactions that let others write in between.
    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError>;

    /// What was written down under keys that begin so, ascending.
    async fn notes(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError>;

    /// What retention wrote down under a key.
    async fn note(&self, key: &str) -> Result<Option<Bytes>, StoreError>;

    /// Writes something down, or forgets it. At most a few kilobytes; as durable as the next commit.
    async fn set_note(&self, key: &str, note: Option<Bytes>) -> Result<(), StoreError>;

    /// Every run that can be found in any way, also those whose rows in the index are damaged; ascending.
    async fn run_ids(&self) -> Result<Vec<RunId>, StoreError>;

    /// How much of each kind there is, without looking into any of it.
    async fn totals(&self) -> Result<Totals, StoreError>;

    /// Reads all that the store keeps for itself, and says what is wrong with it. What entries, packs and segments
    /// contain is not looked at.
    async fn inspect(&self) -> Result<Vec<Defect>, StoreError>;
}

/// A place in the order in which runs moved. What it means is the store's own affair; the default is before everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Cursor(pub u64, pub u64);

/// What moved: one call for a server or a worker instead of one per run.
#[async_trait]
pub trait Changes: Send + Sync {
    /// The runs to which entries were appended since `after`, each once, in the order in which they last were, at most so
    /// many; and the cursor behind the last of them. A run that was removed isn't told of. Every append that returned
    /// before this call is seen by it, by whichever process it was made.
    async fn changed(&self, after: Cursor, limit: usize) -> Result<(Vec<RunId>, Cursor), StoreError>;

    /// The cursor behind everything that moved so far.
    async fn now(&self) -> Result<Cursor, StoreError>;
}

/// Which runs to list.
#[derive(Debug, Clone, Default)]
pub struct RunQuery {
    /// Only these states; empty for all.
    pub status: Vec<RunStatus>,
    /// Only ids that start so.
    pub id_prefix: String,
    /// Only runs that belong to one of these folders; empty for all.
    pub folders: Vec<String>,
    /// Only these kinds; empty for all.
    pub kinds: Vec<RunKind>,
    /// Only runs whose name or id has this in it, whatever the case of ASCII letters; empty for all.
    pub text: String,
    /// Only runs that have all of these labels.
    pub labels: BTreeSet<String>,
    /// Only runs whose log last grew at or after this.
    pub since: Option<Timestamp>,
    /// Only runs whose log last grew before this.
    pub until: Option<Timestamp>,
    /// Only runs that come after this one in the list.
    pub after: Option<(Timestamp, RunId)>,
    /// At most so many; `None` for all.
    pub limit: Option<usize>,
}

/// Whether a text has another in it.
fn has(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    part.is_empty() || text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}

impl RunQuery {
    /// Whether the filters, other than its place in the list, admit a run.
    pub fn admits(&self, run: &RunSummary) -> bool {
        (self.status.is_empty() || self.status.contains(&run.status))
            && run.id.as_str().starts_with(&self.id_prefix)
            && (self.folders.is_empty() || run.folder.as_ref().is_some_and(|folder| self.folders.contains(folder)))
            && (self.kinds.is_empty() || self.kinds.contains(&run.kind))
            && (has(&run.name, &self.text) || has(run.id.as_str(), &self.text))
            && self.labels.is_subset(&run.labels)
            && self.since.is_none_or(|since| run.updated_at >= since)
            && self.until.is_none_or(|until| run.updated_at < until)
    }
}

/// Which process said last that it is driving a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The fence that it drives the run with.
    pub fence: Fence,
    /// The process.
    pub holder: Holder,
    /// Counts up with every sign of life. A contender watches it stand still by the contender's own clock; no wall
    /// clocks are compared.
    pub beat: u64,
}

/// What a store knows of its runs without opening their logs.
#[async_trait]
pub trait RunIndex: Send + Sync {
    /// One run's row.
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError>;

    /// Runs by `updated_at`, newest first, ties by id, largest first. The filters and the page are the store's work. In SQLite
    /// a page costs what the runs cost that are passed until it is full, along an index of states, folders or labels; in an
    /// object store every run whose id is admitted is looked at.
    async fn list(&self, query: RunQuery) -> Result<Vec<RunSummary>, StoreError>;
}

/// Signs of life of the processes that drive runs.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Who drives the run, as far as the store was told.
    async fn lease(&self, run: &RunId) -> Result<Option<Lease>, StoreError>;

    /// A sign of life: records the holder and counts the beat up. `Fenced` if a higher fence has been
    /// seen. Not durable.
    async fn beat(&self, run: &RunId, fence: Fence, holder: &Holder) -> Result<u64, StoreError>;

    /// The holder let go. Does nothing if another holder has the lease by now.
    async fn release(&self, run: &RunId, fence: Fence) -> Result<(), StoreError>;
}

/// What a store is, beyond what it offers by accessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Data outlives the process.
    pub persistent: bool,
    /// Several processes may use it at once.
    pub shared: bool,
    /// Every entry is kept, not only what resuming needs.
    pub history: bool,
}

impl Capabilities {
    /// All of it.
    pub const ALL: Self = Self { persistent: true, shared: true, history: true };
}

/// How much a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Runs.
    pub runs: u64,
    /// Bytes on disk, or in memory for a store that has no disk.
    pub bytes: u64,
}

/// Where everything lives.
#[async_trait]
pub trait Store: Log + Blobs + RunIndex {
    /// What it is.
    fn capabilities(&self) -> Capabilities;

    /// Folding, if it can.
    fn folding(&self) -> Option<&dyn Fold> {
        None
    }

    /// Leases, if it keeps them.
    fn leases(&self) -> Option<&dyn Leases> {
        None
    }

    /// Upkeep, if it can give space back.
    fn upkeep(&self) -> Option<&dyn Upkeep> {
        None
    }

    /// What moved in it, if it can tell.
    fn changes(&self) -> Option<&dyn Changes> {
        None
    }

    /// Its queue, if it has one.
    fn queue(&self) -> Option<&dyn Queue> {
        None
    }

    /// How its blobs are named and cut. Fixed for the life of the store.
    fn hashing(&self) -> &Hashing;

    /// The policy by which secrets are taken out of values before they are encoded, if there is one.
    fn redaction(&self) -> Option<&std::sync::Arc<crate::Redaction>> {
        None
    }

    /// How often this handle has waited for the disk, as far as it counts that.
    fn syncs(&self) -> u64 {
        0
    }

    /// The store's URL, as a person would write it.
    fn url(&self) -> String;

    /// How much it holds.
    async fn usage(&self) -> Result<Usage, StoreError>;

    /// Waits for work in the background and closes what is open. The store can't be used afterwards.
    async fn close(&self) -> Result<(), StoreError>;
}
