//! Taking a snapshot, as a checkpoint or only to look.
//!
//! In this order: scan, stage what is new, commit the entry that names it, and only then let the cache
//! speak of it. A crash in between leaves packs that no entry refers to, or a cache that is behind; both are
//! harmless.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use piton_log::upkeep::Sharing;
use piton_log::{Content as Part, ContentWriter, Draft, DraftPart, RunLog};
use piton_store::{Hashing, PackId, Pin, Redaction, Span, StoreError};
use piton_types::{
    BlobId, CheckpointRef, Durability, EntryKind, Fence, PartName, Seq, Timestamp, Value, from_value, to_value,
};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::cache::{Base, Cache, Totals};
use crate::content::Sink;
use crate::record::Record;
use crate::rules::Then;
use crate::scan::{Progress, Scanned, Scanner};
use crate::threads::Threads;
use crate::workspace::{Inner, Workspace, blocking};
use crate::{RelPath, WorkspaceError};

/// How often a save is begun again because what it shares with others was being removed.
pub(crate) const ATTEMPTS: u32 = 3;

/// The shape of the part.
const SCHEMA: &str = "piton.workspace";
const VERSION: u32 = 1;

/// A snapshot: the part `workspace` of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The tree.
    pub tree: BlobId,
    /// The times beside it, if they were taken.
    #[serde(default)]
    pub times: Option<BlobId>,
    /// Files and links.
    pub files: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// Names that were seen and not captured.
    pub excluded: u64,
}

impl Snapshot {
    pub(crate) fn new(scanned: &Scanned) -> Self {
        let root = &scanned.root;
        let Totals { files, bytes, excluded } = root.totals;
        Self { tree: root.tree, times: Some(root.times), files, bytes, excluded }
    }

    /// The one that an entry has.
    pub(crate) async fn load(log: &RunLog, seq: Seq, part: &piton_types::Part) -> Result<Self, WorkspaceError> {
        let damaged = |error: String| StoreError::corrupt(format!("the snapshot of {}@{seq}", log.run()), error);
        Ok(from_value(log.load(part).await?).map_err(|error| damaged(error.to_string()))?)
    }

    pub(crate) fn to_value(self) -> Value {
        to_value(&self).expect("numbers and texts are values")
    }
}

/// A checkpoint of the files.
#[derive(Debug, Clone)]
pub struct Saved {
    /// Its name.
    pub checkpoint: CheckpointRef,
    /// When.
    pub at: Timestamp,
    /// What it has.
    pub snapshot: Snapshot,
    /// Whether it differs from the snapshot before; `None` if it is the first.
    pub changed: Option<bool>,
    /// Files that changed each time they were read; what was read last was captured.
    pub unsteady: Vec<RelPath>,
    /// Files that were read for this one and have secrets in them, if the store has a policy for that. Whether they
    /// were captured is the policy's part.
    pub secrets: Vec<RelPath>,
    /// Most of the files that the checkpoint before had would not be captured now.
    pub collapsed: Option<Collapsed>,
    /// The ignore files that held so far can't be read any more, because their checkpoint was removed: those in the
    /// folder held for this one.
    pub rules_lost: bool,
}

/// Most of the captured files are suddenly ignored or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collapsed {
    /// How many files the checkpoint before had.
    pub before: u64,
    /// How many the ignore files hide now. They were captured all the same, by the ignore files of the checkpoint before.
    pub hidden: u64,
    /// How many are gone.
    pub gone: u64,
}

impl Collapsed {
    /// What to say of two snapshots, one after the other, if there is something; `hidden` were captured by older rules.
    pub(crate) fn between(before: &Snapshot, after: &Snapshot, hidden: u64) -> Option<Self> {
        let gone = before.files.saturating_sub(after.files);
        (before.files >= FEW && (gone + hidden) * 2 > before.files).then_some(Self {
            before: before.files,
            hidden,
            gone,
        })
    }
}

impl std::fmt::Display for Collapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { before, hidden, gone } = self;
        write!(f, "of {before} files that were captured before, {gone} are gone")?;
        match hidden {
            0 => Ok(()),
            _ => write!(f, ", and ignore files hide {hidden} now; those were captured all the same"),
        }
    }
}

/// Fewer files than this don't collapse: they are deleted.
const FEW: u64 = 10;

/// A checkpoint to be made.
#[derive(Debug, Clone)]
pub(crate) struct NewMoment {
    pub(crate) record: Record,
    /// What its entry records besides: a finished step, or a restore of files.
    pub(crate) kind: EntryKind,
    /// Fields that the body has beside those of the record.
    pub(crate) more: Vec<(String, Value)>,
    /// The fence of the run's driver, if it is the driver who makes the checkpoint.
    pub(crate) fence: Option<Fence>,
}

impl NewMoment {
    pub(crate) fn new(record: Record) -> Self {
        Self { record, kind: EntryKind::Checkpoint, more: Vec::new(), fence: None }
    }

    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.more.push((name.to_owned(), value));
        self
    }
}

/// Contents and nodes on their way into the store. Nodes have packs of their own: they are read together.
struct Stage {
    hashing: Hashing,
    contents: ContentWriter,
    nodes: ContentWriter,
    redaction: Option<Arc<Redaction>>,
}

impl Stage {
    fn new(inner: &Inner, runtime: &Handle, pin: Pin) -> Self {
        let writer = || ContentWriter::new(Arc::clone(&inner.store), runtime.clone(), pin);
        let (hashing, redaction) = (inner.store.hashing().clone(), inner.store.redaction().cloned());
        Self { hashing, contents: writer(), nodes: writer(), redaction }
    }

    fn finish(self) -> Result<Vec<PackId>, WorkspaceError> {
        let (contents, nodes) = Threads::both(|| self.contents.finish(), || self.nodes.finish());
        let mut packs = contents?;
        packs.extend(nodes?);
        Ok(packs)
    }

    /// What a scan found, and all of it staged.
    fn end(
        self,
        inner: &Inner,
        scanned: Scanned,
        pin: Pin,
        (cache, sharing): (Option<Arc<Cache>>, Option<Sharing>),
    ) -> Result<Staged, WorkspaceError> {
        let is_much = scanned.root.totals.are_many() && !scanned.is_cached;
        let packs = inner.threads.run_if(is_much, || self.finish())??;
        Ok(Staged { scanned, packs, pin, sharing, cache })
    }
}

impl Sink for Stage {
    fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    fn content(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError> {
        Ok(self.contents.put(bytes)?)
    }

    fn node(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError> {
        Ok(self.nodes.put(bytes)?)
    }

    fn redaction(&self) -> Option<&Redaction> {
        self.redaction.as_deref()
    }
}

/// Contents are only named, and nodes kept: for looking.
struct Look {
    hashing: Hashing,
    nodes: Mutex<HashMap<BlobId, Bytes>>,
    redaction: Option<Arc<Redaction>>,
}

impl Sink for Look {
    fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    fn content(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError> {
        Ok(self.hashing.blob(bytes))
    }

    fn node(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError> {
        let id = self.hashing.blob(bytes);
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Bytes::copy_from_slice(bytes));
        Ok(id)
    }

    fn redaction(&self) -> Option<&Redaction> {
        self.redaction.as_deref()
    }
}

/// The folder as it is now, without anything having been stored.
pub(crate) struct Looked {
    pub(crate) snapshot: Snapshot,
    pub(crate) nodes: HashMap<BlobId, Bytes>,
}

/// A scan whose contents are staged.
pub(crate) struct Staged {
    pub(crate) scanned: Scanned,
    pub(crate) packs: Vec<PackId>,
    /// What the packs are pinned with.
    pub(crate) pin: Pin,
    /// Keeps the snapshot that unchanged folders are shared with.
    sharing: Option<Sharing>,
    /// The one that it began with.
    cache: Option<Arc<Cache>>,
}

impl Staged {
    /// Its commit is done, or there will be none: the snapshot that it shares folders with isn't kept for it any more.
    /// Of one that is dropped without this the note runs out.
    pub(crate) async fn let_go(&mut self) -> Result<(), WorkspaceError> {
        match self.sharing.take() {
            Some(sharing) => Ok(sharing.end().await?),
            None => Ok(()),
        }
    }
}

impl Workspace {
    /// Makes a checkpoint of the files in a run's log; in the folder's own if the record names none.
    #[boxed]
    pub async fn save(&self, record: Record, progress: &Arc<Progress>) -> Result<Saved, WorkspaceError> {
        self.save_moment(NewMoment::new(record), progress).await
    }

    /// Makes a checkpoint of the files.
    pub(crate) async fn save_moment(
        &self,
        moment: NewMoment,
        progress: &Arc<Progress>,
    ) -> Result<Saved, WorkspaceError> {
        let saved = self.save_unless(None, moment, progress).await?;
        Ok(saved.expect("only a tree to compare with leads to nothing"))
    }

    /// Makes a checkpoint of the files unless they are still the tree `last`.
    pub(crate) async fn save_unless(
        &self,
        last: Option<BlobId>,
        mut moment: NewMoment,
        progress: &Arc<Progress>,
    ) -> Result<Option<Saved>, WorkspaceError> {
        let _lock = self.lock(progress).await?;
        self.refuse_unfinished()?;
        self.refuse_over_budget().await?;
        let run = moment.record.run.clone().unwrap_or_else(|| self.run());
        let previous = match &moment.record.run {
            Some(run) => self.newest_of(run, false).await?,
            None => None,
        };
        // A run goes by the ignore files that it began with.
        let mut rules = previous.as_ref().and_then(|previous| previous.record.rules_after(previous.snapshot.tree));
        let before = match previous {
            Some(previous) if Some(previous.record.moment) == self.kept_number() => Some(previous),
            _ => self.newest().await?,
        };
        let (mut hidden, mut attempts, mut rules_lost) = (0, 0, false);
        let (mut staged, snapshot, log, checkpoint, at) = loop {
            let mut staged = self.stage(&HashSet::new(), rules, progress).await?;
            let mut snapshot = Snapshot::new(&staged.scanned);
            if let (None, Some(before), false) = (rules, &before, self.0.options.new_rules)
                && Collapsed::between(&before.snapshot, &snapshot, 0).is_some()
            {
                let old = Some(before.record.rules.unwrap_or(before.snapshot.tree));
                let mut again = self.stage(&HashSet::new(), old, progress).await?;
                let seen = Snapshot::new(&again.scanned);
                rules_lost = again.scanned.rules_lost;
                if seen.files > snapshot.files {
                    hidden = seen.files - snapshot.files;
                    std::mem::swap(&mut staged, &mut again);
                    (snapshot, rules) = (seen, old);
                }
                again.let_go().await?;
            }
            moment.record.rules = rules;
            if last == Some(snapshot.tree) {
                staged.let_go().await?;
                return Ok(None);
            }
            let mut log = self.log(&run).await?;
            if !self.is_still_shared(&mut staged).await? {
                staged.let_go().await?;
                continue;
            }
            let packs = (staged.packs.clone(), Some(staged.pin));
            match self.commit(&mut log, &moment, snapshot, packs).await {
                // What it shares may be gone: it is looked for again.
                Err(error) if error.is_passing() && attempts < ATTEMPTS => {
                    staged.let_go().await?;
                    attempts += 1;
                }
                done => {
                    let (checkpoint, at) = done?;
                    break (staged, snapshot, log, checkpoint, at);
                }
            }
        };
        let changed = staged.cache.as_ref().map(|cache| cache.root.tree != snapshot.tree);
        rules_lost |= staged.scanned.rules_lost;
        let (unsteady, secrets) = (staged.scanned.unsteady.clone(), staged.scanned.secrets.clone());
        staged.let_go().await?;
        let remembered = self.remember(staged, &log);
        let ((), closed) = tokio::join!(remembered, log.close());
        closed?;
        // What was captured by rules that are lost isn't gone.
        let collapsed =
            before.filter(|_| !rules_lost).and_then(|before| Collapsed::between(&before.snapshot, &snapshot, hidden));
        Ok(Some(Saved { checkpoint, at, snapshot, changed, unsteady, secrets, collapsed, rules_lost }))
    }

    /// Appends an entry with a snapshot. The caller has the folder's lock.
    pub(crate) async fn commit(
        &self,
        log: &mut RunLog,
        moment: &NewMoment,
        snapshot: Snapshot,
        (staged, pin): (Vec<PackId>, Option<Pin>),
    ) -> Result<(CheckpointRef, Timestamp), WorkspaceError> {
        let value = snapshot.to_value();
        let part = DraftPart {
            name: PartName::WORKSPACE.into(),
            schema: SCHEMA.to_owned(),
            version: VERSION,
            content: Part::Value(&value),
        };
        let mut parts = vec![part];
        if moment.kind == EntryKind::Checkpoint && *log.run() != self.run() {
            parts.extend(state_of(log).await?);
        }
        let reader = self.clone();
        let (git, names) = blocking(move || Ok(reader.git_moves())).await?;
        let mut body = Record { moment: self.next_number().await?, git, ..moment.record.clone() }.to_value();
        if let Value::Map(fields) = &mut body {
            fields.extend(moment.more.iter().cloned());
        }
        let (at, label, fence) = (self.now(), moment.record.label(), moment.fence);
        let durability = Durability::Durable;
        let draft = Draft { label, body, parts, staged, pin, fence, durability, ..Draft::new(moment.kind, at) };
        let seq = log.append(draft).await?;
        names.iter().for_each(|names| self.git_seen(names));
        Ok((CheckpointRef { run: log.run().clone(), seq }, at))
    }

    /// The tree whose ignore files hold for a look at the folder, if it aren't those in the folder.
    pub(crate) async fn rules_now(&self) -> Result<Option<BlobId>, WorkspaceError> {
        Ok(self.newest().await?.and_then(|newest| newest.record.rules_after(newest.snapshot.tree)))
    }

    fn then(&self, rules: Option<BlobId>) -> Option<Arc<Then>> {
        let (nodes, reader) = (self.nodes(), self.reader());
        rules.map(|tree| {
            Arc::new(Then { nodes, reader, tree, differs: AtomicBool::default(), lost: AtomicBool::default() })
        })
    }

    /// Scans, and stages what the store doesn't have. The ignore files of the tree `rules` hold, if there is one.
    pub(crate) async fn stage(
        &self,
        forced: &HashSet<RelPath>,
        rules: Option<BlobId>,
        progress: &Arc<Progress>,
    ) -> Result<Staged, WorkspaceError> {
        let then = self.then(rules);
        let (cache, sharing) = self.shared_cache().await?;
        let (inner, progress, forced) = (Arc::clone(&self.0), Arc::clone(progress), forced.clone());
        let (runtime, pin) = (Handle::current(), Pin::new());
        blocking(move || {
            let sink = Stage::new(&inner, &runtime, pin);
            let scanned = scanner(&inner, cache.as_deref(), &sink, &forced, then, &progress).scan()?;
            sink.end(&inner, scanned, pin, (cache, sharing))
        })
        .await
    }

    /// The cache, if the log has the checkpoint that it names; until the commit that snapshot is kept.
    async fn shared_cache(&self) -> Result<(Option<Arc<Cache>>, Option<Sharing>), WorkspaceError> {
        let Some(cache) = self.cache().await? else { return Ok((None, None)) };
        // In this order: what is there once the note is written stays there.
        let sharing = self.share(&cache).await?;
        match self.is_believed(&cache).await? {
            true => Ok((Some(cache), Some(sharing))),
            false => {
                sharing.end().await?;
                Ok((None, None))
            }
        }
    }

    async fn share(&self, cache: &Cache) -> Result<Sharing, WorkspaceError> {
        let (tree, times) = (cache.root.tree, Some(cache.root.times));
        let snapshot = Snapshot { tree, times, files: 0, bytes: 0, excluded: 0 };
        Ok(Sharing::begin(&self.0.store, snapshot.to_value()).await?)
    }

    /// Whether what a scan shares folders with is still there. It is looked at again if the scan took long.
    async fn is_still_shared(&self, staged: &mut Staged) -> Result<bool, WorkspaceError> {
        let (Some(cache), Some(sharing)) = (&staged.cache, &mut staged.sharing) else { return Ok(true) };
        if !sharing.is_old() {
            return Ok(true);
        }
        sharing.renew().await?;
        self.is_believed(cache).await
    }

    /// Scans without storing anything.
    pub(crate) async fn look(
        &self,
        forced: &HashSet<RelPath>,
        progress: &Arc<Progress>,
    ) -> Result<Looked, WorkspaceError> {
        let then = self.then(self.rules_now().await?);
        let cache = self.believed_cache().await?;
        let (inner, progress, forced) = (Arc::clone(&self.0), Arc::clone(progress), forced.clone());
        blocking(move || {
            let (hashing, redaction) = (inner.store.hashing().clone(), inner.store.redaction().cloned());
            let sink = Look { hashing, nodes: Mutex::default(), redaction };
            let scanned = scanner(&inner, cache.as_deref(), &sink, &forced, then, &progress).scan()?;
            let snapshot = Snapshot::new(&scanned);
            Ok(Looked { snapshot, nodes: sink.nodes.into_inner().unwrap_or_else(PoisonError::into_inner) })
        })
        .await
    }

    /// The cache, if the log has the checkpoint that it names.
    async fn believed_cache(&self) -> Result<Option<Arc<Cache>>, WorkspaceError> {
        let Some(cache) = self.cache().await? else { return Ok(None) };
        Ok(self.is_believed(&cache).await?.then_some(cache))
    }

    async fn cache(&self) -> Result<Option<Arc<Cache>>, WorkspaceError> {
        let inner = Arc::clone(&self.0);
        Ok(blocking(move || Ok(Cache::read(&inner.state, &inner.binding))).await?.map(Arc::new))
    }

    /// Whether the log has the checkpoint that a cache names.
    async fn is_believed(&self, cache: &Cache) -> Result<bool, WorkspaceError> {
        let Base { run, seq, hash } = &cache.base;
        if self.0.store.summary(run).await?.is_none() {
            return Ok(false);
        }
        let log = RunLog::open(Arc::clone(&self.0.store), run).await?;
        let known = if log.head().seq == *seq {
            log.head().hash == *hash
        } else {
            let since = log.entries(Span { from: *seq, ..Span::ALL }).await?;
            let kept = !log.removed_in(&since).await?.checkpoints.contains(seq);
            since.first().is_some_and(|entry| entry.seq == *seq && entry.hash == *hash) && kept
        };
        Ok(known)
    }

    /// Lets the cache speak of a snapshot that is the newest entry of `log`. A cache that can't be written
    /// costs time, not safety.
    pub(crate) fn remember(&self, staged: Staged, log: &RunLog) -> impl Future<Output = ()> + use<> {
        let head = log.head();
        let base = Base { run: log.run().clone(), seq: head.seq, hash: head.hash };
        let Scanned { root, is_cached, mut taken_at, by_other_rules, .. } = staged.scanned;
        let is_news = match staged.cache {
            // The further its checkpoint is behind, the more has to be read to believe the cache.
            Some(old) if is_cached => {
                taken_at = old.taken_at;
                old.is_far_behind(&base)
            }
            _ => !by_other_rules,
        };
        let inner = Arc::clone(&self.0);
        async move {
            let written = blocking(move || {
                let cache = Cache { base, taken_at, root };
                if is_news && let Err(error) = cache.write(&inner.state, &inner.binding) {
                    tracing::warn!(%error, "the stat cache can't be written; the next snapshot takes longer");
                }
                Ok(())
            });
            drop(written.await);
        }
    }

    /// The snapshot that an entry carries, if any.
    #[boxed]
    pub async fn snapshot_of(log: &RunLog, seq: Seq) -> Result<Option<Snapshot>, WorkspaceError> {
        let entry = log.entry(seq).await?;
        let Some(part) = entry.parts.get(&PartName::from(PartName::WORKSPACE)) else { return Ok(None) };
        Snapshot::load(log, seq, part).await.map(Some)
    }
}

/// The state that a run has by now, as its newest checkpoint says, to be carried on by one of its files: the process
/// that goes on with the run does so from its newest checkpoint. If another process writes meanwhile, the entry is
/// refused, and this is asked again.
async fn state_of(log: &RunLog) -> Result<Vec<DraftPart<'static>>, WorkspaceError> {
    let Some(newest) = log.newest_checkpoint().await? else { return Ok(Vec::new()) };
    let others = newest.parts.into_iter().filter(|(name, _)| *name != PartName::from(PartName::WORKSPACE));
    let carried = others.map(|(name, part)| DraftPart {
        name,
        schema: part.schema,
        version: part.version,
        content: Part::Stored(part.root),
    });
    Ok(carried.collect())
}

fn scanner<'a>(
    inner: &'a Inner,
    cache: Option<&'a Cache>,
    sink: &'a dyn Sink,
    forced: &'a HashSet<RelPath>,
    then: Option<Arc<Then>>,
    progress: &'a Progress,
) -> Scanner<'a> {
    Scanner {
        root: &inner.root,
        folder: &inner.folder,
        cache,
        threads: &inner.threads,
        sink,
        include_ignored: inner.options.include_ignored,
        outer: &inner.options.outer,
        then,
        own: &inner.own,
        forced,
        progress,
    }
}
