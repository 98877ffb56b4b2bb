//! Durable steps: what one costs beside a bare commit, what many unfinished runs cost the one that is
//! resumed, and how throughput grows when many runs go on at once.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use piton_runtime::{Context, History, LeaseOptions, OpenRun, RetryPolicy, Run};
use piton_store::{RunIndex, RunQuery, Store};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{Durability, RunStatus};

use crate::conversation::Bare;
use crate::measure::{Samples, ratio, report};

const STEPS: usize = 1_000;
/// Piton and the limit take turns in blocks of so many steps.
const BLOCK: usize = 20;
const UNFINISHED: usize = 10_000;
const AT_ONCE: usize = 100;

pub(crate) async fn run(scratch: &FilePath) -> anyhow::Result<()> {
    one(scratch).await?;
    at_once(scratch).await?;
    unfinished(scratch).await
}

fn open_store(folder: &FilePath) -> anyhow::Result<(Arc<SqliteStore>, Context)> {
    std::fs::create_dir_all(folder)?;
    let store = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
    let context = Context::system(Arc::clone(&store) as Arc<dyn Store>);
    Ok((store, context))
}

/// A sign of life now and then would be a commit more.
pub(crate) fn opening(id: &str, durability: Durability) -> anyhow::Result<OpenRun> {
    let lease = LeaseOptions { ttl: Duration::from_secs(36_000), wait: None };
    Ok(OpenRun { id: Some(id.parse()?), durability, lease, retry: RetryPolicy::NONE, ..OpenRun::default() })
}

pub(crate) async fn steps(run: &mut Run, from: usize, to: usize, mut each: impl FnMut(Duration)) -> anyhow::Result<()> {
    for n in from..to {
        let start = Instant::now();
        let got = run.step("trivial", n as u64, async |n| Ok::<_, std::io::Error>(n + 1)).await?;
        each(start.elapsed());
        ensure!(got == n as u64 + 1);
    }
    Ok(())
}

/// 1,000 trivial steps, each durable before the next begins, beside 1,000 bare commits.
async fn one(scratch: &FilePath) -> anyhow::Result<()> {
    let folder = scratch.join("steps");
    let (store, context) = open_store(&folder)?;
    let bare = Bare::open(&folder.join("bare.db"))?;
    // Both WALs have wrapped once before anything is measured.
    let mut warm = Run::open(&context, opening("warm-up", Durability::Relaxed)?).await?;
    steps(&mut warm, 0, 2 * STEPS, |_| ()).await?;
    warm.complete(()).await?;
    let mut run = Run::open(&context, opening("measured", Durability::Durable)?).await?;
    let (mut ours, mut theirs) = <(Samples, Samples)>::default();
    let before = store.counters();
    for block in 0..STEPS / BLOCK {
        let (from, to) = (block * BLOCK, (block + 1) * BLOCK);
        steps(&mut run, from, to, |time| ours.0.push(time)).await?;
        for n in from..to {
            theirs.time(|| {
                bare.commit(format!("{{\"step\":\"trivial\",\"input\":{n},\"output\":{}}}", n + 1).as_bytes())
            })?;
        }
    }
    let after = store.counters();
    // A step is a commit, and every 128 entries one more has the index of what counts.
    let (steps, commits) = (STEPS as u64, after.commits - before.commits);
    ensure!((steps..=steps + steps / 100).contains(&commits), "{commits} commits");
    run.complete(()).await?;
    let line = |what: &str| format!("1,000 steps: {what}");
    report(&line("a step, median"), &format!("{:.0} us", ours.quantile(0.5)), "");
    report(&line("a bare commit, median"), &format!("{:.0} us", theirs.quantile(0.5)), "");
    report(&line("step / bare commit, medians"), &ratio(ours.quantile(0.5), theirs.quantile(0.5)), "1.5 x");
    let sum = |samples: &Samples| samples.0.iter().map(Duration::as_secs_f64).sum::<f64>();
    report(&line("all steps / all bare commits"), &ratio(sum(&ours), sum(&theirs)), "1.5 x");
    report(&line("commits, indexes included"), &commits.to_string(), "1010");
    store.close().await?;
    Ok(())
}

/// 100 runs at once, beside as many steps in one run.
async fn at_once(scratch: &FilePath) -> anyhow::Result<()> {
    let each = 20;
    let folder = scratch.join("at-once");
    let (store, context) = open_store(&folder)?;
    let (mut single, mut many) = <(Samples, Samples)>::default();
    for round in 0..5 {
        let mut run = Run::open(&context, opening(&format!("single-{round}"), Durability::Durable)?).await?;
        let start = Instant::now();
        steps(&mut run, 0, AT_ONCE * each, |_| ()).await?;
        single.0.push(start.elapsed());
        run.complete(()).await?;
        let mut runs = Vec::new();
        for n in 0..AT_ONCE {
            runs.push(Run::open(&context, opening(&format!("many-{round}-{n}"), Durability::Durable)?).await?);
        }
        let before = store.counters();
        let start = Instant::now();
        let tasks: Vec<_> = runs
            .into_iter()
            .map(|mut run| tokio::spawn(async move { steps(&mut run, 0, each, |_| ()).await }))
            .collect();
        for task in tasks {
            task.await??;
        }
        many.0.push(start.elapsed());
        let after = store.counters();
        ensure!(after.commits - before.commits == (AT_ONCE * each) as u64, "a step is a commit");
    }
    report("100 runs at once: throughput / that of one run", &ratio(single.quantile(0.5), many.quantile(0.5)), "");
    store.close().await?;
    Ok(())
}

/// 10,000 unfinished runs: listing some and resuming one, beside the same among ten.
async fn unfinished(scratch: &FilePath) -> anyhow::Result<()> {
    let (mut list, mut resume) = <([Samples; 2], [Samples; 2])>::default();
    let mut stores = Vec::new();
    for (place, count) in [10, UNFINISHED].into_iter().enumerate() {
        let (store, context) = open_store(&scratch.join(format!("unfinished-{count}")))?;
        for n in 0..count {
            let mut run = Run::open(&context, opening(&format!("run-{n}"), Durability::Relaxed)?).await?;
            steps(&mut run, 0, 2, |_| ()).await?;
            run.pause("for now").await?;
        }
        stores.push((place, count, store, context));
    }
    for round in 0..30 {
        for (place, count, store, context) in &stores {
            let start = Instant::now();
            let query = RunQuery { status: vec![RunStatus::Paused], limit: Some(10), ..RunQuery::default() };
            ensure!(store.list(query).await?.len() == 10);
            list[*place].0.push(start.elapsed());
            let start = Instant::now();
            let id = format!("run-{}", round * count / 30);
            let run = Run::open(context, opening(&id, Durability::Relaxed)?).await?;
            resume[*place].0.push(start.elapsed());
            ensure!(History::of(context, run.id()).await?.finished == 2);
            run.pause("for now").await?;
        }
    }
    let figure = |samples: &[Samples; 2]| ratio(samples[1].quantile(0.5), samples[0].quantile(0.5));
    report("10,000 unfinished runs: listing ten / the same among ten runs", &figure(&list), "");
    report("10,000 unfinished runs: resuming one / the same among ten runs", &figure(&resume), "");
    for (_, _, store, _) in stores {
        store.close().await?;
    }
    Ok(())
}
