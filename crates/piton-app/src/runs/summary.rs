//! How the runs of a store stand, at a glance, and what waits for workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_log::RunLog;
use piton_runtime::recovery::stalled;
use piton_runtime::{Context, History, LeaseOptions, LeaseWatch, place_in_queue};
use piton_store::{RunQuery, Store};
use piton_types::{RunKind, RunStatus, RunSummary, Timestamp, TokenUsage};

use crate::app::App;
use crate::failure::Failure;
use crate::runs::queue::no_queue;
use crate::views::page::{QueuePage, QueuedRun, StoreView, SummaryView, TodayView};
use crate::views::run::{RunView, WorkerView};

/// What counts as today, in milliseconds.
const DAY: i64 = 24 * 60 * 60 * 1000;
/// Of how many runs of today it is counted what they used.
const COUNTED: usize = 500;
/// How many runs of a queue are named.
const NAMED: usize = 500;
/// Those that are counted one by one. Completed are all others: they are the many.
const FEW: [RunStatus; 6] = [
    RunStatus::Queued,
    RunStatus::InProgress,
    RunStatus::Paused,
    RunStatus::Waiting,
    RunStatus::Failed,
    RunStatus::Cancelled,
];

/// What is counted: everything but the files of folders.
const WORK: [RunKind; 4] = [RunKind::Steps, RunKind::Workflow, RunKind::Guard, RunKind::Embedded];

/// How the store stands.
pub async fn summary(app: &App) -> Result<SummaryView, Failure> {
    let store = app.look().await?;
    let usage = store.usage().await?;
    let mut counts = BTreeMap::new();
    // The files of a folder are a run that never ends: that one is nobody's work.
    let folders = RunQuery { kinds: vec![RunKind::Workspace], ..RunQuery::default() };
    let mut rest = usage.runs.saturating_sub(store.list(folders).await?.len() as u64);
    for status in FEW {
        let query = RunQuery { status: vec![status], kinds: WORK.to_vec(), ..RunQuery::default() };
        let count = store.list(query).await?.len() as u64;
        rest = rest.saturating_sub(count);
        counts.insert(status.as_str(), count);
    }
    counts.insert(RunStatus::Completed.as_str(), rest);
    let context = Context::system(Arc::clone(&store));
    let dead = stalled(&context, &mut LeaseWatch::default(), LeaseOptions::default().ttl).await?;
    let (queue, workers) = match store.queue() {
        Some(queue) => {
            let workers = queue.workers().await?.into_iter().map(WorkerView::from).collect();
            (Some(queue.depth().await?), workers)
        }
        None => (None, Vec::new()),
    };
    let view = SummaryView {
        counts,
        stalled: dead.found.len(),
        today: today(app, &store).await?,
        bytes: usage.bytes,
        budget: app.surroundings.budget,
        queue,
        workers,
    };
    store.close().await?;
    Ok(view)
}

async fn today(app: &App, store: &Arc<dyn Store>) -> Result<TodayView, Failure> {
    let since = Timestamp::from_millis(app.now().as_millis() - DAY);
    let query = RunQuery { since: Some(since), limit: Some(COUNTED + 1), kinds: WORK.to_vec(), ..RunQuery::default() };
    let mut runs: Vec<RunSummary> = store.list(query).await?;
    let more = runs.len() > COUNTED;
    runs.truncate(COUNTED);
    let mut used = TokenUsage::default();
    for run in &runs {
        let log = RunLog::open(Arc::clone(store), &run.id).await?;
        used += History::recent_usage(&log).await?.unwrap_or_default();
    }
    Ok(TodayView { runs: runs.len(), usage: used.into(), more })
}

/// The store as a whole.
pub async fn store(app: &App) -> Result<StoreView, Failure> {
    let store = app.look().await?;
    let usage = store.usage().await?;
    let totals = match store.upkeep() {
        Some(upkeep) => Some(upkeep.totals().await?),
        None => None,
    };
    let view = StoreView {
        store: store.url(),
        folder: app.folder().to_string_lossy().into_owned(),
        bytes: usage.bytes,
        budget: app.surroundings.budget,
        runs: usage.runs,
        totals,
    };
    store.close().await?;
    Ok(view)
}

/// What waits for workers.
pub async fn queue(app: &App) -> Result<QueuePage, Failure> {
    let store = app.look().await?;
    let depth = store.queue().ok_or_else(|| no_queue(&store))?.depth().await?;
    let status = vec![RunStatus::Queued, RunStatus::InProgress, RunStatus::Failed, RunStatus::Waiting];
    let context = Context::system(Arc::clone(&store));
    let mut queued = Vec::new();
    for run in store.list(RunQuery { status, limit: Some(NAMED), ..RunQuery::default() }).await? {
        if let Some(place) = place_in_queue(&context, &run.id).await? {
            queued.push(QueuedRun { run: RunView::from(run), queue: place.into() });
        }
    }
    store.close().await?;
    Ok(QueuePage { depth, queue: queued })
}
