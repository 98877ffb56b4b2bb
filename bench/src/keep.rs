//! Looking after a store with 100,000 checkpoints and a gigabyte: what giving space back and a check take, what memory
//! they need, and what a writer beside them has to wait.

use std::io::Read as _;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use piton_log::state::State;
use piton_log::upkeep::check;
use piton_log::{Content, ContentWriter, Draft, NewRun, RunLog};
use piton_runtime::retention::{Bounds, Keeper};
use piton_runtime::{Context, SystemRandom};
use piton_store::{RunQuery, Store};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{
    Durability, EntryKind, Fence, Path, Random as _, Retention, RunId, RunStatus, RunSummary, Timestamp, Value,
};
use piton_workspace::SnapshotReach;
use tokio::runtime::Handle;

use crate::alloc::Watch;
use crate::conversation::checkpoint;
use crate::measure::{Samples, ratio, report};

/// Runs, the checkpoints of each, and the bytes that each has besides.
const RUNS: usize = 100;
const EACH: usize = 1_000;
const BYTES: usize = 10 << 20;

fn open(path: &FilePath) -> anyhow::Result<Arc<dyn Store>> {
    Ok(Arc::new(SqliteStore::open(path, SqliteOptions::default())?))
}

/// A run that ended in 1970, and so may go when it is wanted.
async fn fill_run(store: &Arc<dyn Store>, id: &str) -> anyhow::Result<()> {
    let new = NewRun { durability: Durability::Relaxed, ..NewRun::new(id.parse()?, Timestamp::from_millis(1)) };
    let mut log = RunLog::create(Arc::clone(store), new).await?;
    let mut state = State::new(store.hashing(), &Value::map([("messages", Value::List(Vec::new()))]))?;
    let path: Path = "/messages".parse()?;
    let mut noise = vec![0; 64 << 10];
    for n in 0..EACH {
        SystemRandom.fill(&mut noise[..32]);
        state.push(&path, Value::from(format!("message {n} {:?}", &noise[..32]))).await?;
        log.append(checkpoint(Content::State(&mut state), Durability::Relaxed)).await?;
    }
    let (below, handle) = (Arc::clone(store), Handle::current());
    let staged = tokio::task::spawn_blocking(move || {
        let writer = ContentWriter::new(below, handle, piton_store::Pin::new());
        for _ in 0..BYTES / noise.len() {
            SystemRandom.fill(&mut noise);
            writer.put(&noise)?;
        }
        writer.finish()
    });
    let summary = RunSummary { status: RunStatus::Completed, ..log.summary().await? };
    let draft = Draft {
        staged: staged.await??,
        index: Some(summary),
        ..Draft::new(EntryKind::StateChanged, Timestamp::from_millis(2))
    };
    log.append(draft).await?;
    Ok(log.close().await?)
}

fn now() -> Timestamp {
    piton_types::Clock::now(&piton_runtime::SystemClock::new())
}

/// What a writer waits for each durable save of its own run, until it is told to stop.
async fn write(store: Arc<dyn Store>, stop: Arc<AtomicBool>, id: RunId) -> anyhow::Result<Samples> {
    let mut log = RunLog::create(store, NewRun::new(id, now())).await?;
    let mut samples = Samples::default();
    while !stop.load(Ordering::Relaxed) {
        let value = Value::from(format!("{:?}", samples.0.len()));
        let started = Instant::now();
        log.append(checkpoint(Content::Value(&value), Durability::Durable)).await?;
        samples.0.push(started.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(samples)
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Gives up `gone` runs, and gives their space back, with a writer beside it.
async fn gc(path: &FilePath, gone: usize, name: &str) -> anyhow::Result<f64> {
    let (store, other) = (open(path)?, open(path)?);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write(other, Arc::clone(&stop), format!("beside-{name}").replace(' ', "-").parse()?));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let context = Context::system(Arc::clone(&store));
    let old: Vec<RunId> = store
        .list(RunQuery::default())
        .await?
        .into_iter()
        .filter(|run| run.status == RunStatus::Completed)
        .map(|run| run.id)
        .take(gone)
        .collect();
    // The others are kept, whatever their age: this process drives them.
    for run in store.list(RunQuery::default()).await?.into_iter().filter(|run| !old.contains(&run.id)) {
        let fence = store.head(&run.id).await?.map_or(Fence(0), |head| head.fence);
        store.beat(&run.id, fence, &context.holder).await?;
    }
    let policy = Retention { per_run: u32::MAX, ..Retention::default() };
    let keeper = Keeper { context: &context, policy, grace: Duration::ZERO, reach: &SnapshotReach };
    let watch = Watch::start();
    let started = Instant::now();
    let mut bytes = 0;
    let mut runs = 0;
    // The first finds what no run needs, the second deletes it.
    for _ in 0..2 {
        let kept = keeper.carry_out(&keeper.plan().await?, Bounds::NONE).await?;
        bytes += kept.bytes;
        runs += kept.runs;
    }
    let took = started.elapsed();
    let peak = watch.peak();
    drop(watch);
    stop.store(true, Ordering::Relaxed);
    let waits = writer.await??;
    store.close().await?;
    ensure!(runs == gone as u64, "{runs} runs went");
    report(&format!("gc, {name}: {runs} runs, {} MB", bytes >> 20), &millis(took), "");
    report(&format!("gc, {name}: most memory"), &format!("{} MB", peak >> 20), "");
    report(
        &format!("gc, {name}: the longest wait of a writer, of {}", waits.0.len()),
        &millis(waits.0.iter().max().copied().context("it wrote")?),
        "50 ms",
    );
    report(&format!("gc, {name}: a writer's median"), &format!("{:.0} us", waits.quantile(0.5)), "");
    Ok(took.as_secs_f64() * 1e6)
}

pub(crate) async fn run_gc(scratch: &FilePath) -> anyhow::Result<()> {
    let path = scratch.join("store.db");
    let store = open(&path)?;
    for n in 0..RUNS {
        fill_run(&store, &format!("run-{n}")).await?;
    }
    let usage = store.usage().await?;
    store.close().await?;
    drop(store);
    report("a store with 100,000 checkpoints", &format!("{} MB", usage.bytes >> 20), "");
    let nothing = gc(&path, 0, "nothing to delete").await?;
    let tenth = gc(&path, 10, "a tenth").await?;
    let rest = gc(&path, 45, "half").await?;
    report(
        "gc of 4.5 times as much / of a tenth, one pass over the index aside",
        &ratio(rest - nothing, tenth - nothing),
        "4.5 x",
    );
    Ok(())
}

pub(crate) async fn run_check(scratch: &FilePath) -> anyhow::Result<()> {
    let path = scratch.join("store.db");
    let store = open(&path)?;
    for n in 0..RUNS / 5 {
        fill_run(&store, &format!("run-{n}")).await?;
    }
    store.close().await?;
    drop(store);
    let size = std::fs::metadata(&path)?.len();
    let (mut bare, mut shallow, mut deep) = <(Samples, Samples, Samples)>::default();
    let mut peak = 0;
    for round in 0..10 {
        bare.time(|| -> anyhow::Result<()> {
            let mut file = std::fs::File::open(&path)?;
            let mut buffer = vec![0; 1 << 20];
            let mut hasher = blake3::Hasher::new();
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    read => drop(hasher.update(&buffer[..read])),
                }
            }
            std::hint::black_box(hasher.finalize());
            Ok(())
        })?;
        for (samples, is_deep) in [(&mut shallow, false), (&mut deep, true)] {
            let store = open(&path)?;
            // What is counted isn't timed.
            let watch = (round == 0).then(Watch::start);
            let started = Instant::now();
            ensure!(check(&store, &SnapshotReach, is_deep).await?.is_whole(), "the store is whole");
            match watch {
                Some(watch) => peak = peak.max(watch.peak()),
                None => samples.0.push(started.elapsed()),
            }
            store.close().await?;
        }
    }
    report("a store to check", &format!("{} MB", size >> 20), "");
    report("  reading and hashing its file", &format!("{:.0} ms", bare.quantile(0.5) / 1e3), "");
    report("check / reading and hashing its file", &ratio(shallow.quantile(0.5), bare.quantile(0.5)), "2 x");
    report("check --deep / reading and hashing its file", &ratio(deep.quantile(0.5), bare.quantile(0.5)), "2 x");
    report("check: most memory", &format!("{} MB", peak >> 20), "");
    Ok(())
}
