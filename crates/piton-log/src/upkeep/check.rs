//! Finding damage, and what it affects: everything that is stored is read and held against its hashes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use piton_types::{BlobId, PartName, RunId, Seq};
use tokio::runtime::Handle;

use super::Reach;
use super::ahead::Ahead;
use super::graph::{Nodes, Packs, RunGraph, damage};
use super::outline;
use super::tolerant::Tolerant;
use crate::RunLog;
use crate::codec::references;
use crate::framed::{self, FramedPack};
use crate::pack::Pack;
use crate::state::IdMap;
use piton_store::{Defect, PackId, Store, StoreError};

/// A checkpoint that can't be read as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedCheckpoint {
    /// Which.
    pub seq: Seq,
    /// The parts that are affected; `body` for its record.
    pub parts: Vec<String>,
    /// Files of its snapshot that can't be restored.
    pub files: Vec<String>,
}

/// What a check found out about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReport {
    /// The run.
    pub run: RunId,
    /// Its entries that can be read.
    pub entries: u64,
    /// Its checkpoints that can be read.
    pub whole: u64,
    /// Checkpoints that were removed: that isn't damage.
    pub removed: u64,
    /// What can't be read.
    pub defects: Vec<Defect>,
    /// The checkpoints that this affects.
    pub damaged: Vec<DamagedCheckpoint>,
    /// The newest checkpoint of which everything can be read.
    pub newest_whole: Option<Seq>,
}

impl RunReport {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.defects.is_empty() && self.damaged.is_empty()
    }
}

/// What a check found out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// What is wrong with the store's own structures.
    pub defects: Vec<Defect>,
    /// Packs that can't be read.
    pub packs: Vec<(PackId, Defect)>,
    /// The runs.
    pub runs: Vec<RunReport>,
    /// Bytes of packs that were read.
    pub pack_bytes: u64,
    /// How much is stored how often.
    pub sizes: Sizes,
}

/// What deduplication and compression are worth, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// All entries and checkpoints, if each were stored by itself.
    pub logical: u64,
    /// What is different in them.
    pub unique: u64,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.defects.is_empty() && self.packs.is_empty() && self.runs.iter().all(RunReport::is_whole)
    }

    /// Whether another look found the same to be wrong.
    fn agrees(&self, other: &Self) -> bool {
        let broken = |report: &Self| report.runs.iter().filter(|run| !run.is_whole()).cloned().collect::<Vec<_>>();
        self.defects == other.defects && self.packs == other.packs && broken(self) == broken(other)
    }
}

/// How often a store is looked through at most.
const LOOKS: u32 = 4;

/// Checks a whole store. `deep` inflates every pack of file contents and hashes every blob; otherwise the checksums of
/// its index and its frames have to do, which cover the same bytes.
///
/// Packs and runs are read on as many threads as the machine has cores, a few at a time. If something is wrong, all is
/// looked through again: retention or a fold of another process may have taken away what was listed a moment before,
/// but what is damaged stays so.
pub async fn check(store: &Arc<dyn Store>, reach: &dyn Reach, deep: bool) -> Result<CheckReport, StoreError> {
    until_certain(store, Kind::Contents { reach, deep }).await
}

/// What is looked at.
#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    /// All that is stored.
    Contents { reach: &'a dyn Reach, deep: bool },
    /// The logs, or that of one run.
    Outline { only: Option<&'a RunId> },
}

impl Kind<'_> {
    async fn look(self, store: &Arc<dyn Store>) -> Result<CheckReport, StoreError> {
        match self {
            Self::Contents { reach, deep } => look(store, reach, deep).await,
            Self::Outline { only } => outline::look(store, only).await,
        }
    }
}

/// Looks again if something is wrong, until two looks agree.
pub(super) async fn until_certain(store: &Arc<dyn Store>, kind: Kind<'_>) -> Result<CheckReport, StoreError> {
    let mut found = kind.look(store).await;
    for _ in 1..LOOKS {
        let again = match &found {
            Ok(report) if report.is_whole() => break,
            Ok(_) | Err(StoreError::NotFound { .. } | StoreError::PackGone { .. }) => kind.look(store).await,
            Err(_) => break,
        };
        let is_certain = matches!((&found, &again), (Ok(before), Ok(after)) if after.agrees(before));
        found = again;
        if is_certain {
            break;
        }
    }
    found
}

async fn look(store: &Arc<dyn Store>, reach: &dyn Reach, deep: bool) -> Result<CheckReport, StoreError> {
    // The store's own structures are looked at beside all of the rest.
    let (below, runtime) = (Arc::clone(store), Handle::current());
    let inspecting = tokio::task::spawn_blocking(move || runtime.block_on(below.inspect()));
    let mut report = CheckReport::default();
    let (packs, lost) = check_packs(store, deep, &mut report).await?;
    let packs = Arc::new(packs);
    match store.run_ids().await {
        Ok(runs) => {
            for run in &runs {
                if let Err(error) = store.summary(run).await {
                    let what = format!("the row of run {run}");
                    report.defects.push(Defect { what, ..damage(error)? });
                }
            }
            let items = runs.into_iter().map(|run| (Arc::clone(store), Arc::clone(&packs), run));
            let mut graphs = Ahead::new(items, |runtime, (store, packs, run)| {
                let graph = runtime.block_on(RunGraph::read(&store, &run, &packs));
                graph.map(|graph| (run, graph))
            });
            while let Some(read) = graphs.next().await {
                let (run, graph) = read?;
                report.runs.push(check_run_with(store, &run, &graph, reach, &lost, &mut report.sizes).await?);
            }
        }
        Err(error) => report.defects.push(damage(error)?),
    }
    let inspected = match inspecting.await {
        Ok(inspected) => inspected?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    report.defects.splice(0..0, inspected);
    Ok(report)
}

/// Checks one run, and the packs that it relies on; as [`check`] does, again if something is wrong.
pub async fn check_run(store: &Arc<dyn Store>, run: &RunId, reach: &dyn Reach) -> Result<RunReport, StoreError> {
    let (mut report, _) = read_and_check(store, run, reach).await?;
    for _ in 1..LOOKS {
        if report.is_whole() {
            break;
        }
        let (again, _) = read_and_check(store, run, reach).await?;
        let is_certain = again == report;
        report = again;
        if is_certain {
            break;
        }
    }
    Ok(report)
}

/// Checks one run, and gives also what was read of it.
pub(super) async fn read_and_check(
    store: &Arc<dyn Store>,
    run: &RunId,
    reach: &dyn Reach,
) -> Result<(RunReport, RunGraph), StoreError> {
    let mut report = CheckReport::default();
    let (packs, lost) = check_packs(store, false, &mut report).await?;
    let graph = RunGraph::read(store, run, &packs).await?;
    let report = check_run_with(store, run, &graph, reach, &lost, &mut report.sizes).await?;
    Ok((report, graph))
}

/// Reads every pack; gives what they are, and the blobs that are lost with those that can't be read.
async fn check_packs(
    store: &Arc<dyn Store>,
    deep: bool,
    report: &mut CheckReport,
) -> Result<(Packs, HashSet<BlobId>), StoreError> {
    let mut lost = HashSet::new();
    let mut packs = Packs::list(store).await?;
    report.defects.extend(packs.defect.clone());
    let items: Vec<_> = packs.all.iter().map(|pack| (Arc::clone(store), *pack, deep)).collect();
    let mut checks = Ahead::new(items.into_iter(), |runtime, (store, pack, deep)| {
        let mut sizes = PackSizes::default();
        let checked = runtime.block_on(check_pack(&store, pack, deep, &mut sizes));
        (pack, sizes, checked)
    });
    while let Some((pack, sizes, checked)) = checks.next().await {
        report.pack_bytes += sizes.stored;
        report.sizes.unique += sizes.contents;
        if sizes.has_contents {
            packs.contents.insert(pack);
        }
        if let Err(error) = checked {
            report.packs.push((pack, damage(error)?));
            lost.extend(store.pack_ids(pack).await.unwrap_or_default());
        }
    }
    Ok((packs, lost))
}

/// What a pack turned out to have.
#[derive(Default)]
struct PackSizes {
    stored: u64,
    /// Bytes of file contents.
    contents: u64,
    has_contents: bool,
}

async fn check_pack(store: &Arc<dyn Store>, pack: PackId, deep: bool, sizes: &mut PackSizes) -> Result<(), StoreError> {
    let corrupt = |detail: &str| StoreError::corrupt(format!("staged pack {pack}"), detail);
    let bytes = piton_store::pack(&**store, pack).await?;
    sizes.stored = bytes.len() as u64;
    let hashing = store.hashing();
    sizes.has_contents = bytes.first() == Some(&framed::FORM);
    let mut ids: Vec<BlobId> = if sizes.has_contents {
        let framed = FramedPack::open(bytes)?;
        sizes.contents = framed.inflated();
        match deep {
            true => framed.verify(hashing)?,
            false => framed.check()?,
        }
        framed.ids()
    } else {
        let nodes = Pack::open(bytes)?.nodes(|_| None)?;
        if deep && nodes.iter().any(|(id, node)| hashing.blob(node) != *id) {
            return Err(corrupt("a node doesn't have its hash"));
        }
        nodes.into_iter().map(|(id, _)| id).collect()
    };
    ids.sort_unstable();
    ids.dedup();
    if ids != store.pack_ids(pack).await? {
        return Err(corrupt("it doesn't have the blobs that are listed for it"));
    }
    match store.locate(&ids).await {
        Ok(places) if places.iter().any(Option::is_none) => Err(corrupt("a blob of it isn't found")),
        Ok(_) => Ok(()),
        // What finds blobs is damaged, which is another defect: the pack has all of its own.
        Err(error) => damage(error).map(drop),
    }
}

async fn check_run_with(
    store: &Arc<dyn Store>,
    run: &RunId,
    graph: &RunGraph,
    reach: &dyn Reach,
    lost: &HashSet<BlobId>,
    sizes: &mut Sizes,
) -> Result<RunReport, StoreError> {
    let store = &Tolerant::over(store);
    let mut report = RunReport {
        run: run.clone(),
        entries: graph.entries.len() as u64,
        whole: 0,
        removed: 0,
        defects: graph.defects.clone(),
        damaged: Vec::new(),
        newest_whole: None,
    };
    sizes.unique += graph.nodes.size();
    let mut verdicts = IdMap::default();
    let mut removed = BTreeSet::new();
    if let Some(last) = graph.entries.last()
        && let Ok(log) = RunLog::open_at(Arc::clone(store), run, last.seq).await
        && let Ok(found) = log.removed_in(&graph.entries).await
    {
        removed = found.checkpoints;
    }
    // Snapshots that are the same, as most are that follow each other, are looked through once.
    let mut snapshots: BTreeMap<BlobId, (u64, Vec<String>)> = BTreeMap::new();
    for entry in &graph.entries {
        let mut parts = Vec::new();
        let mut files = Vec::new();
        let body = references(&entry.body)?.into_iter().map(|id| whole_size(id, &graph.nodes, &mut verdicts));
        match body.sum::<Option<u64>>() {
            Some(size) => sizes.logical += size,
            None => parts.push("body".to_owned()),
        }
        let is_removed = removed.contains(&entry.seq);
        for (name, part) in entry.parts.iter().filter(|_| !is_removed) {
            let Some(size) = whole_size(part.root, &graph.nodes, &mut verdicts) else {
                parts.push(name.0.clone());
                continue;
            };
            sizes.logical += size;
            if name.0 == PartName::WORKSPACE {
                let (bytes, affected) = match snapshots.entry(part.root) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let log = RunLog::open_at(Arc::clone(store), run, entry.seq).await?;
                        new.insert(match log.load(part).await {
                            Ok(snapshot) => (reach.size(&snapshot), reach.affected(store, snapshot, lost).await?),
                            Err(error) => (0, vec![damage(error)?.detail]),
                        })
                    }
                };
                sizes.logical += *bytes;
                if !affected.is_empty() {
                    parts.push(name.0.clone());
                    files.extend(affected.iter().cloned());
                }
            }
        }
        if !parts.is_empty() {
            report.damaged.push(DamagedCheckpoint { seq: entry.seq, parts, files });
        } else if is_removed {
            report.removed += 1;
        } else if !entry.parts.is_empty() {
            report.whole += 1;
            report.newest_whole = Some(entry.seq);
        }
    }
    Ok(report)
}

/// How many bytes a value has, if everything below its node is there. What occurs twice in it counts twice. Nodes
/// can't form cycles: each names others by their hashes.
fn whole_size(root: BlobId, nodes: &Nodes, verdicts: &mut IdMap<Option<u64>>) -> Option<u64> {
    if let Some(known) = verdicts.get(&root) {
        return *known;
    }
    // Nodes that are looked at, how many references of each are done, and the bytes so far.
    let mut stack = vec![(root, 0_usize, Some(0_u64))];
    while let Some((id, done, mut sum)) = stack.pop() {
        let Some((size, refers)) = nodes.get(&id) else {
            verdicts.insert(id, None);
            continue;
        };
        let unknown = refers[done..].iter().position(|child| match verdicts.get(child) {
            Some(known) => {
                sum = sum.zip(*known).map(|(sum, below)| sum + below);
                false
            }
            None => true,
        });
        match unknown {
            Some(ahead) => stack.extend([(id, done + ahead, sum), (refers[done + ahead], 0, Some(0))]),
            None => drop(verdicts.insert(id, sum.map(|below| below + size))),
        }
    }
    verdicts.get(&root).copied().flatten()
}
