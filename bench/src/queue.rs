//! The queue of PostgreSQL: runs of three steps through 1, 2, 4 and 8 workers beside as many bare commits at the same
//! concurrency, how soon an idle worker begins with what is submitted, what a claim takes among many that wait, and how the
//! tables grow under steady load.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use piton_log::{NewRun, RunLog};
use piton_runtime::{Context, OpenRun, Programs, Run, Submission, WorkerOptions, submit_program};
use piton_store::{Store, Waiting, WorkerInfo};
use piton_types::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::database::Database;
use crate::measure::{Samples, middle, ratio, report};

const WORKERS: [usize; 4] = [1, 2, 4, 8];
/// Runs that go through the queue for each number of workers, in each round.
const RUNS: usize = 200;
const ROUNDS: usize = 3;
/// Runs that are submitted while workers have nothing to do.
const SUBMITTED: usize = 60;
const MANY: usize = 100_000;
const FEW: usize = 100;
const CLAIMS: usize = 500;
/// Under steady load: workers, and runs that wait or are driven.
const STEADY_WORKERS: usize = 4;
const STEADY: u64 = 20;

pub(crate) async fn run(scratch: &Path, url: &str, minutes: f64) -> anyhow::Result<()> {
    let database = Database::at(url).await?;
    throughput(scratch, &database).await?;
    starts(&database).await?;
    claims(&database).await?;
    steady(&database, minutes).await
}

/// Workers of their own connections each, like as many processes.
struct Workers {
    drain: watch::Sender<bool>,
    working: Vec<JoinHandle<anyhow::Result<u64>>>,
}

impl Workers {
    /// Begins some; each tells `began` of each run when it has opened it.
    async fn begin(
        database: &Database,
        schema: &str,
        count: usize,
        until_empty: bool,
        began: &mpsc::UnboundedSender<Instant>,
    ) -> anyhow::Result<Self> {
        let (drain, drained) = watch::channel(false);
        let mut working = Vec::new();
        for n in 0..count {
            let store = Arc::new(database.store(schema).await?);
            let context = Context::system(Arc::clone(&store) as Arc<dyn Store>);
            let began = began.clone();
            let programs = Programs::new(&context).with("three", move |run: Run| {
                // Once the bench has what it wants it doesn't listen any more.
                let _ = began.send(Instant::now());
                three_steps(run)
            });
            let options = WorkerOptions { until_empty, ..WorkerOptions::new(format!("worker-{n}")) };
            let drained = drained.clone();
            working.push(tokio::spawn(async move {
                let driven = programs.work(options, drained).await?;
                store.close().await?;
                Ok(driven)
            }));
        }
        Ok(Self { drain, working })
    }

    /// Waits for their ends. Says how many runs they drove.
    async fn end(self) -> anyhow::Result<u64> {
        let mut driven = 0;
        for worker in self.working {
            driven += worker.await??;
        }
        Ok(driven)
    }
}

async fn three_steps(mut run: Run) -> Result<(), piton_runtime::RunError> {
    for name in ["one", "two", "three"] {
        let _: usize = run.step(name, 1, async |n: usize| Ok::<_, std::io::Error>(n + 1)).await?;
    }
    run.complete(3).await
}

async fn submitted(context: &Context, id: &str) -> anyhow::Result<()> {
    let open = OpenRun { id: Some(id.parse()?), ..OpenRun::default() };
    submit_program(context, "three", open, Submission::default()).await?;
    Ok(())
}

async fn throughput(scratch: &Path, database: &Database) -> anyhow::Result<()> {
    database.fresh("bench_queue").await?;
    database.bare_table().await?;
    let store = Arc::new(database.store("bench_queue").await?);
    let context = Context::system(Arc::clone(&store) as Arc<dyn Store>);
    let (began, _listening) = mpsc::unbounded_channel();
    let (mut rates, mut ratios) = (vec![Vec::new(); WORKERS.len()], vec![Vec::new(); WORKERS.len()]);
    let (mut writes, mut statements, mut runs) = (0, 0, 0);
    for round in 0..ROUNDS {
        for (place, &workers) in WORKERS.iter().enumerate() {
            for n in 0..RUNS {
                submitted(&context, &format!("run-{round}-{workers}-{n}")).await?;
            }
            let before = (database.writes().await?, transactions(database).await?);
            let start = Instant::now();
            let working = Workers::begin(database, "bench_queue", workers, true, &began).await?;
            ensure!(working.end().await? == RUNS as u64, "every run is driven once");
            let took = start.elapsed().as_secs_f64();
            let wrote = database.writes().await? - before.0;
            writes += wrote;
            runs += RUNS;
            statements += transactions(database).await? - before.1;
            let bare = wrote as f64 / database.bare_rate(scratch, workers, wrote as usize)?;
            rates[place].push(RUNS as f64 / took);
            ratios[place].push(took / bare);
        }
    }
    for (place, workers) in WORKERS.iter().enumerate() {
        let line = |what: &str| format!("queue: {workers} workers, runs of three steps: {what}");
        report(&line("runs a second"), &format!("{:.0}", middle(rates[place].clone())), "");
        report(&line("time / as many bare commits by pgbench"), &ratio(middle(ratios[place].clone()), 1.0), "");
    }
    let each = |count: i64| format!("{:.1}", count as f64 / runs as f64);
    report("queue: what limits it: commits of one run", &each(writes), "");
    report("queue: what limits it: round trips of one run, reading ones too", &each(statements), "");
    Ok(store.close().await?)
}

/// Transactions that the server has ended so far. Its processes tell of theirs with a delay.
async fn transactions(database: &Database) -> anyhow::Result<i64> {
    tokio::time::sleep(Duration::from_millis(1500)).await;
    database.number("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").await
}

async fn starts(database: &Database) -> anyhow::Result<()> {
    for workers in [1, 4] {
        database.fresh("bench_starts").await?;
        let store = Arc::new(database.store("bench_starts").await?);
        let context = Context::system(Arc::clone(&store) as Arc<dyn Store>);
        let (began, mut begins) = mpsc::unbounded_channel();
        let working = Workers::begin(database, "bench_starts", workers, false, &began).await?;
        let (mut waits, mut submits) = <(Samples, Samples)>::default();
        for n in 0..SUBMITTED {
            // At a moment that has nothing to do with when they look.
            tokio::time::sleep(Duration::from_millis(300 + (n as u64 * 37) % 250)).await;
            let start = Instant::now();
            submitted(&context, &format!("run-{n}")).await?;
            submits.0.push(start.elapsed());
            if let Some(began) = begins.recv().await {
                waits.0.push(began.saturating_duration_since(start));
            }
        }
        working.drain.send_replace(true);
        ensure!(working.end().await? == SUBMITTED as u64);
        let line = |what: &str| format!("queue: {workers} idle workers: {what}");
        let millis = |micros: f64| format!("{:.1} ms", micros / 1e3);
        report(&line("from submit to start, median"), &millis(waits.quantile(0.5)), "");
        report(&line("from submit to start, of 100 the slowest 5"), &millis(waits.quantile(0.95)), "");
        report(&line("submit alone, median"), &millis(submits.quantile(0.5)), "");
        store.close().await?;
    }
    report("queue: what limits the start: how often an idle worker looks", "250 to 310 ms", "");
    Ok(())
}

/// A claim among 100,000 runs that wait, beside one among 100.
async fn claims(database: &Database) -> anyhow::Result<()> {
    let worker = WorkerInfo { name: "claims".to_owned(), labels: Vec::new(), concurrency: 1, holder: None };
    let mut stores = Vec::new();
    for (schema, count) in [("bench_few", FEW), ("bench_many", MANY)] {
        database.fresh(schema).await?;
        let store = Arc::new(database.store(schema).await?);
        fill(&store, count).await?;
        stores.push(store);
    }
    let (mut looks, mut takes) = (vec![Samples::default(); 2], vec![Samples::default(); 2]);
    for _ in 0..CLAIMS {
        for (place, store) in stores.iter().enumerate() {
            let Some(queue) = store.queue() else { continue };
            let start = Instant::now();
            ensure!(queue.next_due(&[]).await? == Some(Duration::ZERO));
            looks[place].0.push(start.elapsed());
            let start = Instant::now();
            let taken = queue.take(&worker, Duration::from_secs(60)).await?;
            takes[place].0.push(start.elapsed());
            let Some(taken) = taken else { anyhow::bail!("nothing was taken") };
            // It goes back to the end, so that as many wait as before.
            queue.enqueue(Waiting { due: Some(queue.now().await?), attempts: 0, ..taken }).await?;
        }
    }
    let figure = |samples: &[Samples]| ratio(samples[1].quantile(0.5), samples[0].quantile(0.5));
    report("queue: a claim among 100, median", &format!("{:.0} us", takes[0].quantile(0.5)), "");
    report("queue: a claim among 100,000 / among 100, medians", &figure(&takes), "1.2 x");
    report("queue: a look for the next among 100,000 / among 100, medians", &figure(&looks), "1.2 x");
    for store in stores {
        store.close().await?;
    }
    Ok(())
}

/// Runs that wait, and nothing else of them.
async fn fill<S: Store + 'static>(store: &Arc<S>, count: usize) -> anyhow::Result<()> {
    let lanes: Vec<_> = (0..8)
        .map(|lane| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for n in (lane..count).step_by(8) {
                    let now = Timestamp::from_millis(1_700_000_000_000 + n as i64);
                    let run = format!("run-{n}").parse()?;
                    let log = RunLog::create(Arc::clone(&store) as Arc<dyn Store>, NewRun::new(run, now)).await?;
                    let waiting = Waiting {
                        run: log.run().clone(),
                        labels: Vec::new(),
                        priority: 0,
                        due: Some(now),
                        limit: None,
                        attempts: 0,
                        problem: None,
                    };
                    if let Some(queue) = store.queue() {
                        queue.enqueue(waiting).await?;
                    }
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for lane in lanes {
        lane.await??;
    }
    Ok(())
}

/// The tables whose rows change and go all the time.
const MOVING: &str = "'queue', 'worker', 'keeper'";

/// Runs without an end: as many wait at any time, whatever the workers manage.
async fn steady(database: &Database, minutes: f64) -> anyhow::Result<()> {
    database.fresh("bench_steady").await?;
    let store = Arc::new(database.store("bench_steady").await?);
    let context = Context::system(Arc::clone(&store) as Arc<dyn Store>);
    let (began, mut begins) = mpsc::unbounded_channel();
    let working = Workers::begin(database, "bench_steady", STEADY_WORKERS, false, &began).await?;
    let (handed_in, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let started = Arc::new(AtomicU64::new(0));
    let counting = {
        let started = Arc::clone(&started);
        tokio::spawn(async move {
            while begins.recv().await.is_some() {
                started.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let submitting = {
        let (handed_in, is_over, started) = (Arc::clone(&handed_in), Arc::clone(&is_over), Arc::clone(&started));
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let count = handed_in.load(Ordering::Relaxed);
                if count >= started.load(Ordering::Relaxed) + STEADY {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    continue;
                }
                submitted(&context, &format!("run-{count}")).await?;
                handed_in.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        })
    };
    let (wal, before) = (database.wal().await?, Instant::now());
    let (mut sizes, mut counts) = (Vec::new(), Vec::new());
    const LOOKS: u32 = 20;
    for look in 1..=LOOKS {
        let until = Duration::from_secs_f64(minutes * 60.0) * look / LOOKS;
        tokio::time::sleep(until.saturating_sub(before.elapsed())).await;
        sizes.push(database.bytes("bench_steady", MOVING).await?);
        counts.push(started.load(Ordering::Relaxed));
    }
    let (wal, all) = (database.wal().await? - wal, database.bytes("bench_steady", "").await?);
    is_over.store(true, Ordering::Relaxed);
    submitting.await??;
    while started.load(Ordering::Relaxed) < handed_in.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    working.drain.send_replace(true);
    working.end().await?;
    drop(began);
    counting.await?;

    let half = sizes.len() / 2;
    let most = |sizes: &[i64]| *sizes.iter().max().unwrap_or(&0);
    let rate = |from: usize, to: usize| (counts[to] - counts[from]) as f64;
    let line = |what: &str| format!("queue: {minutes} minutes of steady load: {what}");
    let runs = counts.last().copied().unwrap_or(1).max(1) as f64;
    report(&line("runs"), &format!("{runs:.0}"), "");
    report(&line("tables of the queue, at most"), &format!("{} KB", most(&sizes) / 1000), "");
    report(
        &line("tables of the queue, second half / first half, at most"),
        &ratio(most(&sizes[half..]) as f64, most(&sizes[..half]) as f64),
        "1.2 x",
    );
    let (first, last) = (rate(0, half), rate(half, sizes.len() - 1));
    report(
        &line("runs a second, second half / first half"),
        &ratio(last / (sizes.len() - 1 - half) as f64, first / half as f64),
        "",
    );
    report(&line("bytes of the store for each run"), &format!("{:.0}", all as f64 / runs), "");
    report(&line("WAL for each run"), &format!("{:.0} bytes", wal as f64 / runs), "");
    Ok(store.close().await?)
}
