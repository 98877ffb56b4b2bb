//! An embedder's [`CheckpointStore`] as a [`Store`]. Such a store keeps one document per run, so the
//! log behind it is cut to what resuming needs: the entries, in which the results of steps are, and the
//! state of the newest checkpoint alone. Every save therefore costs the whole state, and what needs more than
//! that (history, forks, listing, leases) is `Unsupported`.
//!
//! A workflow is saved where a checkpoint is due: with every entry that carries state, and with those after which the
//! run isn't in progress any more (it waits, was stopped, or failed). What its driver writes in between stays in memory
//! until the next save, so a crash costs the nodes since the last checkpoint. A process that goes on with a workflow
//! saves its claim at once: of two that resume, one wins. Runs of every other kind are saved with every entry.
//!
//! Where the embedder's store compares versions, other processes may write too: what is remembered of a run is held
//! against what is saved before it is read, and a save that loses the comparison is a `Conflict`. A store that doesn't
//! compare them declares that it has a single writer, and what that writer remembers is what is there. The memory of a
//! workflow's driver is ahead of what is saved: another process can only claim the run, after which the old driver's
//! next save is `Fenced`.

mod document;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{BlobId, EntryKind, Fence, RunId, RunKind, RunStatus, RunSummary, Seq};
use tokio::sync::{Mutex, MutexGuard};

use crate::codec::{Reader, put_bytes, put_varint, references};
use crate::pack::{Pack, deflate, inflate};
use crate::sealed::{self, SealedEntry};
use crate::state::grammar::Malformed;
use crate::state::{Fresh, IdMap};
use piton_store::{
    Blobs, Capabilities, CheckpointError, CheckpointStore, Commit, Expected, Hashing, Head, Log, Owner, PackId, Pin,
    Record, RunIndex, RunQuery, Span, Store, StoreError, Usage,
};

/// First byte of a saved log.
const FORM: u8 = 6;

/// Fast, because the caller waits for each save.
const LEVEL: i32 = 1;

/// Runs that ended and are remembered: nothing is saved of them any more, and the process that drove one may still look
/// at it.
const ENDED: usize = 16;

const NAME: &str = "an embedder's checkpoint store";

/// A [`Store`] over a [`CheckpointStore`].
///
/// When a run completes, its entry is deleted there: nothing is left to resume.
pub struct EmbeddedStore {
    inner: Arc<dyn CheckpointStore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: HashMap<RunId, Kept>,
    /// Those that ended, in that order.
    ended: VecDeque<RunId>,
    staged: HashMap<PackId, StagedPack>,
}

/// A pack that waits for the commits of those that staged it.
struct StagedPack {
    pack: Bytes,
    ids: Vec<BlobId>,
    owners: Vec<Owner>,
}

impl State {
    /// Remembers a run that ended, and forgets one that ended long ago.
    fn remember_ended(&mut self, run: RunId, kept: Kept) {
        self.runs.insert(run.clone(), kept);
        self.ended.push_back(run);
        if self.ended.len() > ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.runs.remove(&oldest);
        }
    }
}

/// What is kept of a run.
#[derive(Clone)]
struct Kept {
    /// What the next save expects to find.
    version: Option<u64>,
    summary: RunSummary,
    records: Vec<Record>,
    nodes: IdMap<Bytes>,
    /// The newest entries are of this process: what is remembered is what is there, or ahead of it.
    is_own: bool,
}

impl Kept {
    /// Whether the run is saved at checkpoints only, and a process drives it.
    fn is_ahead(&self) -> bool {
        self.summary.kind == RunKind::Workflow
            && matches!(self.summary.status, RunStatus::Queued | RunStatus::InProgress)
    }

    fn is_ended(&self) -> bool {
        self.summary.status.is_final()
    }

    fn head(&self) -> Head {
        let newest = self.records.last().expect("there is always one");
        Head { seq: newest.seq, hash: newest.hash, fence: newest.fence }
    }

    /// Drops the checkpoints before the newest one, and the nodes that nothing reaches any more. An entry that says
    /// something besides, as that a step ended, stays: the process that resumes the run goes by those. Returns the newest
    /// checkpoint.
    fn trim(&mut self) -> Result<Option<SealedEntry>, StoreError> {
        let open = |record: &Record| sealed::open(&Hashing::PLAIN, &self.summary.id, record);
        let mut entries = self.records.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let newest = entries.iter().rposition(|entry| !entry.parts.is_empty());
        let mut open = Vec::new();
        let mut kept = Vec::with_capacity(entries.len());
        for (place, (entry, record)) in entries.iter().zip(self.records.drain(..)).enumerate() {
            if Some(place) == newest {
                open.extend(entry.parts.values().map(|part| part.root));
            } else if entry.kind == EntryKind::Checkpoint {
                continue;
            }
            open.extend(references(&entry.body)?);
            kept.push(record);
        }
        self.records = kept;
        let mut reached = IdMap::default();
        while let Some(id) = open.pop() {
            if let Some((id, node)) = self.nodes.remove_entry(&id) {
                open.extend(references(&node)?);
                reached.insert(id, node);
            }
        }
        self.nodes = reached;
        Ok(newest.map(|place| entries.swap_remove(place)))
    }

    /// Adds an entry that fits.
    fn add(&mut self, commit: &Commit, state: &State) -> Result<SealedEntry, StoreError> {
        if let Some(summary) = &commit.index {
            self.summary = summary.clone();
        }
        self.summary.updated_at = commit.at;
        let mut packs = vec![&commit.pack];
        for id in &commit.staged {
            let Some(StagedPack { pack, .. }) = state.staged.get(id) else {
                return Err(StoreError::PackGone { pack: *id });
            };
            packs.push(pack);
        }
        for pack in packs.into_iter().filter(|pack| !pack.is_empty()) {
            self.nodes.extend(Pack::open(pack.clone())?.nodes(|_| None)?);
        }
        let Commit { seq, hash, fence, .. } = *commit;
        let record = Record { seq, hash, fence, entry: commit.entry.clone(), pack: Bytes::new() };
        let entry = sealed::open(&Hashing::PLAIN, &commit.run, &record)?;
        self.records.push(record);
        Ok(entry)
    }

    fn pack(&self) -> Result<Bytes, StoreError> {
        let mut nodes: Vec<_> = self.nodes.iter().map(|(id, node)| Fresh::whole(*id, node.clone())).collect();
        nodes.sort_by_key(|fresh| fresh.id);
        Ok(Pack::build(&Hashing::PLAIN, &nodes)?.1)
    }

    /// What is saved of it, cut to what resuming needs.
    async fn encode(&mut self) -> Result<Bytes, StoreError> {
        let checkpoint = self.trim()?;
        let log = self.log()?;
        document::write(&self.summary, checkpoint.as_ref(), &self.nodes, &log).await
    }

    fn log(&self) -> Result<Bytes, StoreError> {
        let invalid = |detail: String| StoreError::Invalid { what: "a run's index row".to_owned(), detail };
        let summary = piton_types::to_value(&self.summary).map_err(|error| invalid(error.to_string()))?;
        let summary = piton_types::to_json(&summary).map_err(|error| invalid(error.to_string()))?;
        let mut out = Vec::new();
        put_bytes(&mut out, summary.to_string().as_bytes());
        put_varint(&mut out, self.records.len() as u64);
        for record in &self.records {
            put_varint(&mut out, record.seq.0.into());
            out.extend_from_slice(record.hash.as_bytes());
            put_varint(&mut out, record.fence.0);
            put_bytes(&mut out, &record.entry);
        }
        put_bytes(&mut out, &self.pack()?);
        deflate(FORM, &out, LEVEL)
    }

    fn decode(run: &RunId, version: u64, bytes: &[u8]) -> Result<Self, StoreError> {
        let plain = inflate(FORM, &document::read(bytes)?)?;
        let corrupt = |detail: String| StoreError::corrupt(format!("the saved run {run}"), detail);
        let mut reader = Reader::new(&plain);
        let summary = piton_types::from_json(reader.sized()?).map_err(|error| corrupt(error.to_string()))?;
        let summary: RunSummary = piton_types::from_value(summary).map_err(|error| corrupt(error.to_string()))?;
        let mut records = Vec::new();
        for _ in 0..reader.count_of(35)? {
            let seq = u32::try_from(reader.varint()?).map_err(|_| Malformed("a number is out of range"))?;
            let hash = piton_types::EntryHash::new(reader.array()?);
            let fence = Fence(reader.varint()?);
            let entry = Bytes::copy_from_slice(reader.sized()?);
            records.push(Record { seq: Seq(seq), hash, fence, entry, pack: Bytes::new() });
        }
        let pack = Pack::open(Bytes::copy_from_slice(reader.sized()?))?;
        reader.end()?;
        if records.is_empty() || summary.id != *run {
            return Err(corrupt("it is another run's, or empty".to_owned()));
        }
        let nodes = pack.nodes(|_| None)?.into_iter().collect();
        Ok(Self { version: Some(version), summary, records, nodes, is_own: false })
    }
}

impl EmbeddedStore {
    /// A store over `inner`.
    pub fn new(inner: Arc<dyn CheckpointStore>) -> Self {
        Self { inner, state: Mutex::default() }
    }

    /// The state, with `run` as it is saved now.
    async fn with(&self, run: &RunId) -> Result<MutexGuard<'_, State>, StoreError> {
        let mut state = self.state.lock().await;
        if self.inner.compares() || !state.runs.contains_key(run) {
            self.look(&mut state, run).await?;
        }
        Ok(state)
    }

    /// Takes in what is saved of `run`, unless it is known already.
    async fn look(&self, state: &mut State, run: &RunId) -> Result<(), StoreError> {
        let known = state.runs.get(run);
        if known.is_some_and(|kept| kept.is_ended() || (kept.is_own && kept.is_ahead())) {
            return Ok(());
        }
        let version = known.and_then(|kept| kept.version);
        match self.inner.load(run.as_str()).await.map_err(|error| failed(run, error))? {
            Some(saved) if Some(saved.version) == version => {}
            Some(saved) => {
                state.runs.insert(run.clone(), Kept::decode(run, saved.version, &saved.bytes)?);
            }
            // It ended elsewhere.
            None => drop(state.runs.remove(run)),
        }
        Ok(())
    }

    async fn save(&self, run: &RunId, kept: &mut Kept) -> Result<u64, SaveError> {
        let expected = match kept.version {
            _ if !self.inner.compares() => Expected::Any,
            None => Expected::Absent,
            Some(version) => Expected::Version(version),
        };
        let bytes = kept.encode().await.map_err(SaveError::Failed)?;
        self.inner.save(run.as_str(), bytes, expected).await.map_err(|error| match error {
            CheckpointError::Conflict(_) => SaveError::Lost,
            other => SaveError::Failed(failed(run, other)),
        })
    }

    /// Deletes a run that ended: nothing is left to resume. That it can't be cleaned up is no reason to fail a run that is
    /// done. A process that was overtaken deletes nothing: it looks first. One that takes the run over between the look and
    /// the deletion can't save any more, as the run is over.
    async fn end(&self, run: &RunId, kept: &Kept) -> Result<(), SaveError> {
        if self.inner.compares() {
            let saved = self.inner.load(run.as_str()).await.map_err(|error| SaveError::Failed(failed(run, error)))?;
            if saved.map(|saved| saved.version) != kept.version {
                return Err(SaveError::Lost);
            }
        }
        if let Err(error) = self.inner.delete(run.as_str()).await {
            tracing::warn!(%run, %error, "the checkpoint of a finished run could not be deleted");
        }
        Ok(())
    }
}

/// Why a run isn't saved.
enum SaveError {
    /// Another process has saved it meanwhile. Nothing was written.
    Lost,
    Failed(StoreError),
}

fn failed(run: &RunId, error: CheckpointError) -> StoreError {
    match error {
        CheckpointError::Corrupted(detail) => StoreError::corrupt(format!("the saved run {run}"), detail),
        other => StoreError::Unavailable { detail: other.to_string() },
    }
}

const fn unsupported<T>(what: &'static str) -> Result<T, StoreError> {
    Err(StoreError::Unsupported { store: NAME, what })
}

#[async_trait]
impl Log for EmbeddedStore {
    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        Commit::check_together(&commits)?;
        let Some(first) = commits.first() else { return Ok(()) };
        let run = first.run.clone();
        let mut state = self.state.lock().await;
        // What is remembered will do if it fits, and if the save finds the same version.
        let fits = |state: &State| first.check(state.runs.get(&run).map(Kept::head));
        if !state.runs.contains_key(&run) || fits(&state).is_err() {
            self.look(&mut state, &run).await?;
            fits(&state)?;
        }
        let mut kept = match state.runs.get(&run).cloned() {
            Some(kept) => kept,
            None => Kept {
                version: None,
                summary: first.index.clone().expect("checked: entry 0 has an index row"),
                records: Vec::new(),
                nodes: IdMap::default(),
                is_own: true,
            },
        };
        let (was_ahead, was_driven) = (kept.is_ahead(), kept.summary.status == RunStatus::InProgress);
        let was_own = std::mem::replace(&mut kept.is_own, true);
        let mut is_due = !was_own;
        for (place, commit) in commits.iter().enumerate() {
            let entry = kept.add(commit, &state)?;
            // The driver's memory is ahead, and can't be put behind what another process writes.
            if place == 0 && !was_own && was_ahead && was_driven && entry.kind != EntryKind::Claimed {
                return unsupported("write to a workflow that another process drives");
            }
            is_due |= !entry.parts.is_empty();
        }
        let is_ended = kept.is_ended();
        let saved = match is_ended {
            true => self.end(&run, &kept).await.map(|()| None),
            false if is_due || !kept.is_ahead() => self.save(&run, &mut kept).await.map(Some),
            false => Ok(kept.version),
        };
        match saved {
            Ok(version) => kept.version = version,
            // What is there now decides.
            Err(error) => {
                state.runs.remove(&run);
                let SaveError::Failed(error) = error else {
                    self.look(&mut state, &run).await?;
                    let head = state.runs.get(&run).map(Kept::head);
                    if was_own && was_ahead {
                        // What this process wrote since its last save doesn't count.
                        let current = head.map_or(first.fence.next(), |head| head.fence.max(first.fence.next()));
                        return Err(StoreError::Fenced { run, held: first.fence, current });
                    }
                    first.check(head)?;
                    return Err(StoreError::Conflict { run, wanted: first.seq, head });
                };
                return Err(error);
            }
        }
        for commit in &commits {
            for id in &commit.staged {
                if let Some(staged) = state.staged.get_mut(id) {
                    staged.owners.retain(|owner| *owner != commit.owner);
                }
            }
        }
        state.staged.retain(|_, staged| !staged.owners.is_empty());
        match kept.summary.status {
            _ if is_ended => state.remember_ended(run, kept),
            RunStatus::Queued | RunStatus::InProgress => drop(state.runs.insert(run, kept)),
            // At rest, perhaps for long: it can be loaded again.
            _ => drop(state.runs.remove(&run)),
        }
        Ok(())
    }

    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError> {
        Ok(self.with(run).await?.runs.get(run).map(Kept::head))
    }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        let state = self.with(run).await?;
        let kept = state.runs.get(run).ok_or_else(|| StoreError::no_run(run))?;
        let newest = kept.head().seq;
        let mut found: Vec<_> = kept
            .records
            .iter()
            .filter(|record| (span.from..=span.to).contains(&record.seq))
            .map(|record| {
                let pack = if span.packs && record.seq == newest { kept.pack()? } else { Bytes::new() };
                Ok(Record { pack, ..record.clone() })
            })
            .collect::<Result<_, StoreError>>()?;
        if span.newest_first {
            found.reverse();
        }
        found.truncate(span.limit);
        Ok(found)
    }
}

#[async_trait]
impl Blobs for EmbeddedStore {
    /// Held in memory until the commit that takes it: there is nowhere else to put it.
    async fn stage(&self, id: PackId, pack: Bytes, ids: &[BlobId], pin: Pin) -> Result<(), StoreError> {
        let mut state = self.state.lock().await;
        let staged =
            state.staged.entry(id).or_insert_with(|| StagedPack { pack, ids: ids.to_vec(), owners: Vec::new() });
        staged.owners.push(pin.owner);
        Ok(())
    }

    async fn pin(&self, packs: &[PackId], pin: Pin) -> Result<(), StoreError> {
        let mut state = self.state.lock().await;
        for pack in packs {
            let staged = state.staged.get_mut(pack).ok_or(StoreError::PackGone { pack: *pack })?;
            staged.owners.push(pin.owner);
        }
        Ok(())
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        let state = self.state.lock().await;
        let find = |id| state.staged.iter().find(|(_, staged)| staged.ids.contains(id)).map(|(pack, _)| *pack);
        Ok(ids.iter().map(find).collect())
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        let state = self.state.lock().await;
        let found = state.staged.get(&pack).map(|staged| staged.pack.clone());
        found.ok_or_else(|| StoreError::no_pack(pack))
    }
}

#[async_trait]
impl RunIndex for EmbeddedStore {
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        Ok(self.with(run).await?.runs.get(run).map(|kept| kept.summary.clone()))
    }

    async fn list(&self, _: RunQuery) -> Result<Vec<RunSummary>, StoreError> {
        unsupported("list runs")
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { persistent: true, shared: self.inner.compares(), history: false }
    }

    fn hashing(&self) -> &Hashing {
        &Hashing::PLAIN
    }

    fn url(&self) -> String {
        "embedded:".to_owned()
    }

    async fn usage(&self) -> Result<Usage, StoreError> {
        unsupported("tell how much it holds")
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use piton_types::{EntryKind, RunKind, RunStatus, Timestamp, Value};

    use super::*;
    use crate::{Content, Draft, DraftPart, NewRun, RunLog};
    use piton_store::MemoryCheckpointStore;

    fn new_run(id: &str) -> NewRun {
        NewRun {
            kind: RunKind::Embedded,
            body: Value::from("d".repeat(500)),
            ..NewRun::new(id.parse().unwrap(), Timestamp::from_millis(1))
        }
    }

    fn draft(kind: EntryKind, content: Option<&Value>) -> Draft<'_> {
        let part =
            |value| DraftPart { name: "app".into(), schema: "t".into(), version: 1, content: Content::Value(value) };
        Draft {
            body: Value::from("b".repeat(300)),
            parts: content.map(part).into_iter().collect(),
            ..Draft::new(kind, Timestamp::from_millis(2))
        }
    }

    fn big(n: i64) -> Value {
        Value::List((0..3_000).map(|i| Value::from(format!("item {i} of {n} ").repeat(12))).collect())
    }

    /// F10: a run whose only store is the embedder's resumes from its newest checkpoint.
    #[tokio::test]
    async fn a_run_goes_on_in_another_process() {
        let inner = Arc::new(MemoryCheckpointStore::new());
        let mut log = RunLog::create(Arc::new(EmbeddedStore::new(inner.clone())), new_run("r")).await.unwrap();
        for n in 0..3 {
            log.append(draft(EntryKind::Checkpoint, Some(&big(n)))).await.unwrap();
        }
        log.append(draft(EntryKind::StepDone, None)).await.unwrap();

        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::new(inner.clone()));
        let mut again = RunLog::open(store, &"r".parse().unwrap()).await.unwrap();
        let entries = again.entries(Span::ALL).await.unwrap();
        assert_eq!(entries.iter().map(|entry| entry.seq.0).collect::<Vec<_>>(), [0, 3, 4]);
        assert_eq!(again.body(&entries[0]).await.unwrap(), Value::from("d".repeat(500)));
        assert_eq!(again.load(&entries[1].parts[&"app".into()]).await.unwrap(), big(2));
        again.append(draft(EntryKind::StepDone, None)).await.unwrap();
        // The first handle's copy is out of date: the version it expects isn't there.
        let stale = log.append(draft(EntryKind::Checkpoint, Some(&Value::Null))).await;
        let Err(StoreError::Conflict { head: Some(head), .. }) = stale else { panic!("{stale:?}") };
        assert_eq!(head.seq, Seq(5), "what is there now");
        assert!(matches!(again.store().list(RunQuery::default()).await, Err(StoreError::Unsupported { .. })));

        let mut row = again.summary().await.unwrap();
        row.status = RunStatus::Completed;
        let done = Draft { index: Some(row), ..draft(EntryKind::StateChanged, None) };
        again.append(done).await.unwrap();
        assert_eq!(inner.load("r").await.unwrap(), None, "after completion nothing is left to resume");
    }

    fn done(log: &RunLog, mut row: RunSummary) -> Draft<'static> {
        assert_eq!(row.id, *log.run());
        row.status = RunStatus::Completed;
        Draft { index: Some(row), ..draft(EntryKind::StateChanged, None) }
    }

    /// What another process has written is read, whatever was read before.
    #[tokio::test]
    async fn a_reader_sees_what_another_process_writes() {
        let inner = Arc::new(MemoryCheckpointStore::new());
        let mut log = RunLog::create(Arc::new(EmbeddedStore::new(inner.clone())), new_run("r")).await.unwrap();
        let (run, reader) = ("r".parse().unwrap(), EmbeddedStore::new(inner.clone()));
        for n in 1..4 {
            log.append(draft(EntryKind::Checkpoint, Some(&big(n)))).await.unwrap();
            let seq = Seq(u32::try_from(n).unwrap());
            assert_eq!(reader.head(&run).await.unwrap().unwrap().seq, seq);
            assert_eq!(reader.read(&run, Span::ALL).await.unwrap().last().unwrap().seq, seq);
        }
        let row = log.summary().await.unwrap();
        let end = done(&log, row);
        log.append(end).await.unwrap();
        assert_eq!(reader.head(&run).await.unwrap(), None, "nothing is left of it");
        assert!(reader.summary(&run).await.unwrap().is_none());
        let row = log.store().summary(&run).await.unwrap().unwrap();
        assert_eq!(row.status, RunStatus::Completed, "who ended it may still look at it");
    }

    /// A writer that was overtaken doesn't end the run of the writer that overtook it.
    #[tokio::test]
    async fn who_was_overtaken_ends_nothing() {
        let inner = Arc::new(MemoryCheckpointStore::new());
        let mut log = RunLog::create(Arc::new(EmbeddedStore::new(inner.clone())), new_run("r")).await.unwrap();
        let row = log.summary().await.unwrap();
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::new(inner.clone()));
        let mut other = RunLog::open(store, &"r".parse().unwrap()).await.unwrap();
        other.append(draft(EntryKind::StepDone, None)).await.unwrap();
        let end = done(&log, row);
        let ended = log.append(end).await;
        assert!(matches!(ended, Err(StoreError::Conflict { .. })), "{ended:?}");
        assert!(inner.load("r").await.unwrap().is_some());
        other.append(draft(EntryKind::StepDone, None)).await.unwrap();
    }

    #[tokio::test]
    async fn runs_that_ended_are_forgotten_in_time() {
        let store = Arc::new(EmbeddedStore::new(Arc::new(MemoryCheckpointStore::new())));
        for n in 0..3 * ENDED {
            let mut log = RunLog::create(store.clone(), new_run(&format!("r{n}"))).await.unwrap();
            let row = log.summary().await.unwrap();
            let end = done(&log, row);
            log.append(end).await.unwrap();
            assert_eq!(log.summary().await.unwrap().status, RunStatus::Completed);
        }
        assert_eq!(store.state.lock().await.runs.len(), ENDED);
    }

    #[tokio::test]
    async fn damage_is_noticed() {
        let inner = Arc::new(MemoryCheckpointStore::new());
        let store = Arc::new(EmbeddedStore::new(inner.clone()));
        let mut log = RunLog::create(store, new_run("r")).await.unwrap();
        log.append(draft(EntryKind::Checkpoint, Some(&Value::from(1)))).await.unwrap();
        let saved = inner.load("r").await.unwrap().unwrap();
        for at in 0..saved.bytes.len() {
            let mut bytes = saved.bytes.to_vec();
            bytes[at] ^= 0x10;
            inner.save("r", bytes.into(), Expected::Any).await.unwrap();
            let opened = RunLog::open(Arc::new(EmbeddedStore::new(inner.clone())), &"r".parse().unwrap()).await;
            assert!(matches!(opened, Err(StoreError::Corrupt { .. })), "byte {at}");
        }
    }
}
