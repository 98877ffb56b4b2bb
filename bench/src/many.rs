//! A store with 100,000 checkpoints: opening it, and listing the newest 50.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Instant;

use piton_log::state::State;
use piton_log::{Content, RunLog};
use piton_store::{RunQuery, Span, Store};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{Durability, Path, Value};

use crate::conversation::{checkpoint, create};
use crate::measure::{Samples, disk, ratio, report};

/// 100 runs of 1,000 checkpoints.
const RUNS: usize = 100;
const EACH: usize = 1_000;

pub(crate) async fn run(scratch: &FilePath) -> anyhow::Result<()> {
    let (full, small) = (scratch.join("full"), scratch.join("small"));
    fill(&full, RUNS, EACH).await?;
    fill(&small, 1, 60).await?;
    let empty = scratch.join("empty");
    fill(&empty, 0, 0).await?;
    report("100,000 checkpoints: on disk", &format!("{} KB", disk(&full)? / 1_000), "");

    let (mut open_full, mut open_empty, mut list_full, mut list_small) =
        <(Samples, Samples, Samples, Samples)>::default();
    for _ in 0..50 {
        for (folder, open, list) in [
            (&full, &mut open_full, Some(&mut list_full)),
            (&small, &mut Samples::default(), Some(&mut list_small)),
            (&empty, &mut open_empty, None),
        ] {
            let start = Instant::now();
            let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
            open.0.push(start.elapsed());
            if let Some(list) = list {
                let start = Instant::now();
                let newest = store.list(RunQuery { limit: Some(1), ..RunQuery::default() }).await?;
                let log = RunLog::open(Arc::clone(&store), &newest[0].id).await?;
                anyhow::ensure!(log.entries(Span::newest(50)).await?.len() == 50);
                list.0.push(start.elapsed());
            }
            store.close().await?;
        }
    }
    report(
        "100,000 checkpoints: open / open an empty store",
        &ratio(open_full.quantile(0.5), open_empty.quantile(0.5)),
        "2 x",
    );
    report(
        "100,000 checkpoints: list the newest 50 / the same of 60",
        &ratio(list_full.quantile(0.5), list_small.quantile(0.5)),
        "",
    );
    report("100,000 checkpoints: list the newest 50", &format!("{:.0} us", list_full.quantile(0.5)), "");
    Ok(())
}

async fn fill(folder: &FilePath, runs: usize, each: usize) -> anyhow::Result<()> {
    std::fs::create_dir(folder)?;
    let store = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
    for run in 0..runs {
        let mut log = create(&store, &format!("run-{run}"), Durability::Relaxed).await?;
        let mut state = State::new(store.hashing(), &Value::map([("counter", Value::from(0))]))?;
        let path: Path = "/counter".parse()?;
        for n in 0..each {
            state.set(&path, Value::from(n as u64)).await?;
            log.append(checkpoint(Content::State(&mut state), Durability::Relaxed)).await?;
        }
        log.close().await?;
    }
    store.close().await?;
    Ok(())
}
