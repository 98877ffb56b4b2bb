//! Finding what is wrong without reading what is stored: the entries of all logs with their hashes, which packs they name, and
//! the store's own structures. For a store on another machine, of which a whole check would fetch everything.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use piton_store::{Defect, PackId, Store, StoreError};
use piton_types::RunId;
use tokio::runtime::Handle;

use super::ahead::Ahead;
use super::check::{CheckReport, Kind, RunReport, until_certain};
use super::graph::{RunGraph, damage};

/// Looks through a whole store, a few runs at a time. What entries, segments and packs contain isn't read, so a checkpoint counts
/// as whole here if all that its log names is there.
pub async fn outline(store: &Arc<dyn Store>) -> Result<CheckReport, StoreError> {
    until_certain(store, Kind::Outline { only: None }).await
}

/// The same for one run.
pub async fn outline_run(store: &Arc<dyn Store>, run: &RunId) -> Result<RunReport, StoreError> {
    let mut report = until_certain(store, Kind::Outline { only: Some(run) }).await?;
    report.runs.pop().ok_or_else(|| StoreError::no_run(run))
}

pub(super) async fn look(store: &Arc<dyn Store>, only: Option<&RunId>) -> Result<CheckReport, StoreError> {
    let mut report = CheckReport::default();
    let mut packs = HashSet::new();
    let mut after = None;
    loop {
        let page = store.packs(after, 1000).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        report.pack_bytes += page.iter().map(|pack| pack.size).sum::<u64>();
        packs.extend(page.into_iter().map(|pack| pack.id));
    }
    let runs = match only {
        Some(run) => vec![run.clone()],
        None => {
            report.defects.extend(store.inspect().await?);
            store.run_ids().await?
        }
    };
    for run in &runs {
        if let Err(error) = store.summary(run).await {
            report.defects.push(Defect { what: format!("the row of run {run}"), ..damage(error)? });
        }
    }
    let items = runs.into_iter().map(|run| (Arc::clone(store), run));
    let mut graphs = Ahead::new(items, |runtime: &Handle, (store, run): (Arc<dyn Store>, RunId)| {
        let graph = runtime.block_on(RunGraph::outline(&store, &run));
        graph.map(|graph| (run, graph))
    });
    while let Some(read) = graphs.next().await {
        let (run, graph) = read?;
        report.runs.push(told(run, graph, &packs));
    }
    Ok(report)
}

fn told(run: RunId, graph: RunGraph, there: &HashSet<PackId>) -> RunReport {
    let mut defects = graph.defects;
    let gone: BTreeSet<PackId> = graph.packs.iter().filter(|pack| !there.contains(pack)).copied().collect();
    defects.extend(
        gone.iter().map(|pack| Defect { what: format!("staged pack {pack}"), detail: "it is missing".to_owned() }),
    );
    let is_whole = |packs: &[PackId]| packs.iter().all(|pack| !gone.contains(pack));
    let mut report = RunReport {
        run,
        entries: graph.entries.len() as u64,
        whole: 0,
        removed: 0,
        defects,
        damaged: Vec::new(),
        newest_whole: None,
    };
    for entry in graph.entries.iter().filter(|entry| !entry.parts.is_empty() && is_whole(&entry.packs)) {
        report.whole += 1;
        report.newest_whole = Some(entry.seq);
    }
    report
}
