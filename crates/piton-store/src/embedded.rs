//! An embedder's [`CheckpointStore`] as a [`Store`]. Such a store keeps one byte string per run, so the
//! log behind it is cut to what resuming needs: the entries, in which the results of steps are, and the
//! state of the newest checkpoint alone. Every save therefore costs the whole state, and what needs more than
//! that (history, listing, leases) is `Unsupported`.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{BlobId, EntryKind, Fence, Holder, RunId, RunSummary, Seq, Timestamp};
use tokio::sync::{Mutex, MutexGuard};

use crate::codec::{Reader, put_bytes, put_varint, references};
use crate::pack::{Pack, deflate, inflate};
use crate::state::grammar::Malformed;
use crate::state::{Fresh, IdMap};
use crate::{
    Blobs, Capabilities, CheckpointError, CheckpointStore, Commit, Defect, Era, Expected, Hashing, Head, Lease, Log,
    PackId, PackInfo, Record, Reliance, RunIndex, RunQuery, Section, Segment, SegmentInfo, Span, Store, StoreError,
    Sweep, Swept, Totals, Upkeep, Usage, sealed,
};

/// First byte of a saved run.
const FORM: u8 = 6;

/// Somebody waits for each save.
const LEVEL: i32 = 1;

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
    staged: HashMap<PackId, (Bytes, Vec<BlobId>)>,
    packs: u64,
}

/// What is kept of a run.
#[derive(Clone)]
struct Kept {
    /// What the next save expects to find.
    version: Option<u64>,
    summary: RunSummary,
    records: Vec<Record>,
    nodes: IdMap<Bytes>,
}

impl Kept {
    fn head(&self) -> Head {
        let newest = self.records.last().expect("there is always one");
        Head { seq: newest.seq, hash: newest.hash, fence: newest.fence }
    }

    /// Drops the checkpoints before the newest one, and the nodes that nothing reaches any more. An entry that says
    /// something besides, as that a step ended, stays: whoever resumes goes by those.
    fn trim(&mut self, run: &RunId) -> Result<(), StoreError> {
        let open = |record: &Record| sealed::open(&Hashing::PLAIN, run, record);
        let entries = self.records.iter().map(open).collect::<Result<Vec<_>, _>>()?;
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
        Ok(())
    }

    fn pack(&self) -> Result<Bytes, StoreError> {
        let mut nodes: Vec<_> = self.nodes.iter().map(|(id, node)| Fresh::said(*id, node.clone())).collect();
        nodes.sort_by_key(|fresh| fresh.id);
        Ok(Pack::build(&Hashing::PLAIN, &nodes)?.1)
    }

    fn encode(&self) -> Result<Bytes, StoreError> {
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
        let plain = inflate(FORM, bytes)?;
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
        Ok(Self { version: Some(version), summary, records, nodes: pack.nodes(|_| None)?.into_iter().collect() })
    }
}

impl EmbeddedStore {
    /// A store over `inner`.
    pub fn new(inner: Arc<dyn CheckpointStore>) -> Self {
        Self { inner, state: Mutex::default() }
    }

    /// The state, with `run` loaded if it is saved.
    async fn with(&self, run: &RunId) -> Result<MutexGuard<'_, State>, StoreError> {
        let mut state = self.state.lock().await;
        if !state.runs.contains_key(run)
            && let Some(saved) = self.inner.load(run.as_str()).await.map_err(|error| failed(run, error))?
        {
            let kept = Kept::decode(run, saved.version, &saved.bytes)?;
            state.runs.insert(run.clone(), kept);
        }
        Ok(state)
    }

    async fn save(&self, run: &RunId, kept: &Kept) -> Result<u64, StoreError> {
        let expected = match kept.version {
            _ if !self.inner.compares() => Expected::Any,
            None => Expected::Absent,
            Some(version) => Expected::Version(version),
        };
        self.inner.save(run.as_str(), kept.encode()?, expected).await.map_err(|error| failed(run, error))
    }
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
    async fn append(&self, commit: Commit) -> Result<(), StoreError> {
        let run = commit.run.clone();
        let mut state = self.with(&run).await?;
        let old = state.runs.get(&run).cloned();
        commit.check(old.as_ref().map(Kept::head))?;
        let mut kept = match old {
            Some(kept) => kept,
            None => Kept {
                version: None,
                summary: commit.index.clone().expect("checked: entry 0 has an index row"),
                records: Vec::new(),
                nodes: IdMap::default(),
            },
        };
        if let Some(summary) = commit.index {
            kept.summary = summary;
        }
        kept.summary.updated_at = commit.at;
        let mut packs = vec![commit.pack].into_iter().filter(|pack| !pack.is_empty()).collect::<Vec<_>>();
        for id in &commit.staged {
            let Some((pack, _)) = state.staged.get(id) else {
                return Err(StoreError::NotFound { what: format!("staged pack {}", id.0) });
            };
            packs.push(pack.clone());
        }
        for pack in packs {
            kept.nodes.extend(Pack::open(pack)?.nodes(|_| None)?);
        }
        let (seq, hash, fence) = (commit.seq, commit.hash, commit.fence);
        kept.records.push(Record { seq, hash, fence, entry: commit.entry, pack: Bytes::new() });
        kept.trim(&run)?;
        if kept.summary.status.is_final() {
            // Nothing is left to resume. That it can't be cleaned up is no reason to fail a run that is done.
            if let Err(error) = self.inner.delete(run.as_str()).await {
                tracing::warn!(%run, %error, "the checkpoint of a finished run could not be deleted");
            }
            kept.version = None;
        } else {
            match self.save(&run, &kept).await {
                Ok(version) => kept.version = Some(version),
                Err(error) => {
                    // Somebody else may have saved: what is there now decides.
                    state.runs.remove(&run);
                    return Err(error);
                }
            }
        }
        state.staged.retain(|id, _| !commit.staged.contains(id));
        state.runs.insert(run, kept);
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

    async fn segments(&self, _: &RunId) -> Result<Vec<SegmentInfo>, StoreError> {
        Ok(Vec::new())
    }

    async fn section(&self, run: &RunId, segment: SegmentInfo, _: Section) -> Result<Bytes, StoreError> {
        Err(StoreError::NotFound { what: format!("segment {segment} of run {run}") })
    }

    async fn fold(&self, _: &RunId, _: Segment) -> Result<(), StoreError> {
        unsupported("fold a log")
    }
}

#[async_trait]
impl Blobs for EmbeddedStore {
    /// Held in memory until the commit that takes it: there is nowhere else to put it.
    async fn stage(&self, pack: Bytes, ids: &[BlobId]) -> Result<PackId, StoreError> {
        let mut state = self.state.lock().await;
        state.packs += 1;
        let id = PackId(state.packs);
        state.staged.insert(id, (pack, ids.to_vec()));
        Ok(id)
    }

    async fn locate(&self, ids: &[BlobId]) -> Result<Vec<Option<PackId>>, StoreError> {
        let state = self.state.lock().await;
        let find = |id| state.staged.iter().find(|(_, (_, ids))| ids.contains(id)).map(|(pack, _)| *pack);
        Ok(ids.iter().map(find).collect())
    }

    async fn pack(&self, pack: PackId) -> Result<Bytes, StoreError> {
        let state = self.state.lock().await;
        let found = state.staged.get(&pack).map(|(bytes, _)| bytes.clone());
        found.ok_or_else(|| StoreError::NotFound { what: format!("staged pack {}", pack.0) })
    }

    async fn era(&self) -> Result<Era, StoreError> {
        Ok(Era::default())
    }
}

/// Nothing is kept beyond what resuming needs, so there is nothing to look after.
#[async_trait]
impl Upkeep for EmbeddedStore {
    async fn remove(&self, run: &RunId, head: Head) -> Result<(), StoreError> {
        let mut state = self.with(run).await?;
        match state.runs.get(run).map(Kept::head) {
            None => return Err(StoreError::no_run(run)),
            Some(now) if now != head => {
                return Err(StoreError::Conflict { run: run.clone(), wanted: head.seq, head: Some(now) });
            }
            Some(_) => {}
        }
        self.inner.delete(run.as_str()).await.map_err(|error| failed(run, error))?;
        state.runs.remove(run);
        Ok(())
    }

    async fn packs(&self, _: Option<PackId>, _: usize) -> Result<Vec<PackInfo>, StoreError> {
        Ok(Vec::new())
    }

    async fn pack_ids(&self, pack: PackId) -> Result<Vec<BlobId>, StoreError> {
        Err(StoreError::NotFound { what: format!("staged pack {}", pack.0) })
    }

    async fn rely(&self, _: &RunId, _: Head, _: Reliance) -> Result<(), StoreError> {
        unsupported("say who relies on a pack")
    }

    async fn next_era(&self) -> Result<Era, StoreError> {
        Ok(Era::default())
    }

    async fn condemn(&self, _: &[PackId], _: Timestamp) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn sweep(&self, _: Sweep) -> Result<Swept, StoreError> {
        Ok(Swept::default())
    }

    async fn note(&self, _: &str) -> Result<Option<Bytes>, StoreError> {
        Ok(None)
    }

    async fn set_note(&self, _: &str, _: Option<Bytes>) -> Result<(), StoreError> {
        unsupported("keep notes")
    }

    async fn run_ids(&self) -> Result<Vec<RunId>, StoreError> {
        unsupported("list runs")
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        Ok(Totals::default())
    }

    async fn inspect(&self) -> Result<Vec<Defect>, StoreError> {
        Ok(Vec::new())
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

    /// No lease is kept: an append that compares versions is what stops a second writer.
    async fn lease(&self, _: &RunId) -> Result<Option<Lease>, StoreError> {
        Ok(None)
    }

    async fn beat(&self, _: &RunId, _: Fence, _: &Holder) -> Result<u64, StoreError> {
        unsupported("keep leases")
    }

    async fn release(&self, _: &RunId, _: Fence) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            persistent: true,
            shared: self.inner.compares(),
            history: false,
            index: false,
            fold: false,
            upkeep: false,
            sync: false,
        }
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
    use crate::{Content, Draft, DraftPart, MemoryCheckpointStore, NewRun, RunLog};

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
        assert!(stale.is_err_and(|error| error.is_retryable()));
        assert!(matches!(again.store().list(RunQuery::default()).await, Err(StoreError::Unsupported { .. })));

        let mut row = again.summary().await.unwrap();
        row.status = RunStatus::Completed;
        let done = Draft { index: Some(row), ..draft(EntryKind::StateChanged, None) };
        again.append(done).await.unwrap();
        assert_eq!(inner.load("r").await.unwrap(), None, "after completion nothing is left to resume");
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
