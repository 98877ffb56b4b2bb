//! Workflows on a store: a checkpoint after every node of a line of 100, beside as many bare commits, and what that
//! takes besides the store; going on with a run that has 10 MB of state; a thousand runs that wait; how exactly a stop
//! keeps to its time.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use piton_flow::{
    Document, ExecutionStatus, Flow, Format, Host, Inputs, Kinds, RunJournal, SafeStopSignal, Services, WorkflowRunner,
    run as run_flow,
};
use piton_runtime::{Context, LeaseOptions, OpenRun, RetryPolicy, Run, StepDone};
use piton_store::Store;
use piton_store_objects::ObjectStore;
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{Durability, Event, RunKind, Value};

use crate::alloc::Watch;
use crate::conversation::Bare;
use crate::flow::{Counter, line};
use crate::measure::{Samples, ratio, report};

/// Nodes of a line, with its start and end.
const NODES: usize = 98;
const ROUNDS: usize = 100;
const STATE: usize = 10 << 20;

pub(crate) async fn run(scratch: &Path) -> anyhow::Result<()> {
    checkpoints(scratch).await?;
    work().await?;
    resume(scratch).await?;
    waiting(scratch).await?;
    stops(scratch).await
}

/// What a node takes on a store in memory: nothing but our own work. Allocations are the same on every machine.
async fn work() -> anyhow::Result<()> {
    let flow = Flow::build(&Document::parse(&line(NODES), Format::Json)?, &Kinds::builtin())?;
    let (services, ids) = (Services::default(), Counter::default());
    let mut cases = Vec::new();
    for everywhere in [false, true] {
        let context = Context::system(Arc::new(ObjectStore::in_memory()));
        let (mut times, mut allocations) = (Samples::default(), 0);
        for round in 0..ROUNDS {
            let run = Run::open(&context, opening(&format!("run-{round}"), Durability::Durable)?).await?;
            let journal = RunJournal::new(&run, &flow, &services, &*context.clock);
            let journal = if everywhere { journal.with_checkpoints_everywhere() } else { journal };
            let host = Host::new(&journal, &*context.clock, &ids);
            // What is counted isn't timed.
            let watch = (round + 1 == ROUNDS).then(Watch::start);
            let start = Instant::now();
            run_flow(&flow, given(), &host).await?;
            match watch {
                Some(watch) => allocations = watch.count() / (NODES as u64 + 2),
                None => times.0.push(start.elapsed() / (NODES as u32 + 2)),
            }
            run.complete(()).await?;
        }
        cases.push((times.quantile(0.5), allocations));
    }
    for ((time, allocations), what) in cases.into_iter().zip(["", ", each a checkpoint"]) {
        report(&format!("a node{what}, in memory: time, median"), &format!("{time:.0} us"), "");
        report(&format!("a node{what}, in memory: allocations"), &allocations.to_string(), "");
    }
    Ok(())
}

const ASKING: &str = r#"{"nodes":[{"id":"in","data":{"type":"start"}},{"id":"ask","data":{"type":"human-input","prompt":"Ship it?","variables":[{"name":"ok","type":"boolean","required":true}]}},{"id":"out","data":{"type":"end","outputs":[]}}],"edges":[{"source":"in","target":"ask"},{"source":"ask","target":"out"}]}"#;
const SLOW: &str = r#"{"nodes":[{"id":"in","data":{"type":"start"}},{"id":"slow","data":{"type":"command","command":["sleep","600"]}},{"id":"out","data":{"type":"end","outputs":[]}}],"edges":[{"source":"in","target":"slow"},{"source":"slow","target":"out"}]}"#;

const WAITING: usize = 1_000;

/// What this process has used so far.
pub(crate) fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A thousand runs that wait for people, held by their handles.
async fn waiting(scratch: &Path) -> anyhow::Result<()> {
    let folder = scratch.join("flow-waiting");
    std::fs::create_dir_all(&folder)?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
    let document = Document::parse(ASKING, Format::Json)?;
    let mut handles = Vec::new();
    let mut watch = None;
    for n in 0..=WAITING {
        let runner = WorkflowRunner::builder(document.clone())
            .store(Arc::clone(&store))
            .durability(Durability::Relaxed)
            .workflow_id(format!("run-{n}"));
        let handle = runner.build().run().await?;
        ensure!(matches!(handle.wait_or_paused().await, ExecutionStatus::Paused { .. }));
        handles.push(handle);
        if n == 0 {
            // What there is once, however many wait.
            tokio::time::sleep(Duration::from_millis(300)).await;
            watch = Some(Watch::start());
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let watch = watch.context("it was begun with the first")?;
    let each = watch.held() / WAITING as u64;
    let (start, calls) = (cpu(), watch.count());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (used, calls) = (cpu() - start, watch.count() - calls);
    report("1,000 runs that wait: memory of each", &format!("{:.1} KB", each as f64 / 1e3), "20 KB");
    report("1,000 runs that wait: CPU in 3 s", &format!("{:.1} ms", used.as_secs_f64() * 1e3), "none");
    report("1,000 runs that wait: allocations in 3 s", &calls.to_string(), "none");
    drop(handles);
    store.close().await?;
    Ok(())
}

/// How long after its time a stop is done: with a program that never ends, and with a question that gets no answer.
async fn stops(scratch: &Path) -> anyhow::Result<()> {
    for (what, text, grace, each) in [("a program runs", SLOW, 1, 10), ("it waits for an answer", ASKING, 30, 20)] {
        let folder = scratch.join(format!("flow-stops-{grace}"));
        std::fs::create_dir_all(&folder)?;
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
        let document = Document::parse(text, Format::Json)?;
        let mut late = Samples::default();
        for n in 0..each {
            let signal = SafeStopSignal::new();
            let runner = WorkflowRunner::builder(document.clone())
                .store(Arc::clone(&store))
                .workflow_id(format!("run-{n}"))
                .safe_stop_signal(signal.clone());
            let handle = runner.build().run().await?;
            tokio::time::sleep(Duration::from_millis(150)).await;
            let start = Instant::now();
            signal.trigger(grace);
            let status = handle.wait().await;
            ensure!(matches!(status, ExecutionStatus::SafeStopped { checkpoint_saved: true, .. }), "{status:?}");
            // Who only waits has nothing to wait for.
            let due = if text == SLOW { Duration::from_secs(grace) } else { Duration::ZERO };
            late.0.push(start.elapsed().saturating_sub(due));
        }
        let worst = late.quantile(1.0) / 1e3;
        report(&format!("a stop while {what}: after its time, at most"), &format!("{worst:.1} ms"), "200 ms");
        store.close().await?;
    }
    Ok(())
}

fn opening(id: &str, durability: Durability) -> anyhow::Result<OpenRun> {
    // A sign of life now and then would be a commit more.
    let lease = LeaseOptions { ttl: Duration::from_secs(36_000), wait: None };
    let (kind, retry) = (RunKind::Workflow, RetryPolicy::NONE);
    Ok(OpenRun { id: Some(id.parse()?), durability, lease, retry, kind, ..OpenRun::default() })
}

fn given() -> Inputs {
    [("x".to_owned(), "bees".into())].into()
}

/// Every node is a checkpoint. The time of one is that of the whole run until all of them are durable, divided among
/// them: they share commits.
async fn checkpoints(scratch: &Path) -> anyhow::Result<()> {
    let folder = scratch.join("flow-line");
    std::fs::create_dir_all(&folder)?;
    let store = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
    let context = Context::system(Arc::clone(&store) as Arc<dyn Store>);
    let bare = Bare::open(&folder.join("bare.db"))?;
    let flow = Flow::build(&Document::parse(&line(NODES), Format::Json)?, &Kinds::builtin())?;
    let (services, ids) = (Services::default(), Counter::default());
    let (mut ours, mut theirs) = <(Samples, Samples)>::default();
    let mut synced = Vec::new();
    for round in 0..ROUNDS + 3 {
        let run = Run::open(&context, opening(&format!("run-{round}"), Durability::Durable)?).await?;
        let journal = RunJournal::new(&run, &flow, &services, &*context.clock).with_checkpoints_everywhere();
        let saved = std::sync::atomic::AtomicUsize::new(0);
        let tell = |event: &Event| {
            if matches!(event, Event::CheckpointSaved { .. }) {
                saved.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        };
        let host = Host { events: piton_flow::EventSink::Call(&tell), ..Host::new(&journal, &*context.clock, &ids) };
        let before = store.counters();
        let begun = Instant::now();
        run_flow(&flow, given(), &host).await?;
        let whole = begun.elapsed();
        ensure!(saved.into_inner() == NODES + 2, "not every checkpoint was told of");
        let syncs = store.counters().syncs - before.syncs;
        run.complete(()).await?;
        let begun = Instant::now();
        for n in 0..NODES + 2 {
            bare.commit(format!("{{\"node\":\"n{n}\",\"output\":\"a bees\"}}").as_bytes())?;
        }
        // Both WALs have wrapped before anything is measured.
        if round >= 3 {
            theirs.0.push(begun.elapsed() / (NODES as u32 + 2));
            ours.0.push(whole / (NODES as u32 + 2));
            synced.push(syncs);
        }
    }
    let line = |what: &str| format!("100 nodes, each a checkpoint: {what}");
    synced.sort_unstable();
    report(&line("a node, median of the runs"), &format!("{:.0} us", ours.quantile(0.5)), "");
    report(&line("a bare commit, median of as many"), &format!("{:.0} us", theirs.quantile(0.5)), "");
    report(&line("syncs of a run, median"), &synced[synced.len() / 2].to_string(), "");
    report(&line("node / bare commit"), &ratio(ours.quantile(0.5), theirs.quantile(0.5)), "1 x");
    store.close().await?;
    Ok(())
}

/// A run whose finished nodes gave 10 MB, opened again and gone on with.
async fn resume(scratch: &Path) -> anyhow::Result<()> {
    let folder = scratch.join("flow-resume");
    std::fs::create_dir_all(&folder)?;
    let store = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
    let context = Context::system(Arc::clone(&store) as Arc<dyn Store>);
    let flow = Flow::build(&Document::parse(&line(NODES), Format::Json)?, &Kinds::builtin())?;
    let (services, ids) = (Services::default(), Counter::default());
    let (mut reading, mut whole) = <(Samples, Samples)>::default();
    for round in 0..6 {
        let id = format!("large-{round}");
        let run = Run::open(&context, opening(&id, Durability::Durable)?).await?;
        let each = STATE / NODES;
        for (n, step) in std::iter::once("in".to_owned()).chain((0..NODES - 1).map(|n| format!("n{n}"))).enumerate() {
            let text: String =
                (0..each / 8).map(|m| format!("{:08x}", (n * each + m).wrapping_mul(2_654_435_761))).collect();
            let output = Value::map([(if n == 0 { "x" } else { "output" }, text.as_str().into())]);
            run.record(StepDone::new(step.parse()?, Value::Null, Ok(output)), Vec::new()).await?;
        }
        run.pause("for the bench").await?;
        drop(run);
        // What reading alone takes.
        let start = Instant::now();
        let history = piton_runtime::History::of(&context, &id.parse()?).await?;
        reading.0.push(start.elapsed());
        ensure!(history.totals.attempts >= NODES as u64);
        drop(history);
        let start = Instant::now();
        let run = Run::open(&context, opening(&id, Durability::Durable)?).await?;
        let journal = RunJournal::new(&run, &flow, &services, &*context.clock);
        let begun = std::sync::Mutex::new(None);
        let tell = |event: &Event| {
            if matches!(event, Event::StepStarted { .. }) {
                begun.lock().expect("nobody panics").get_or_insert_with(|| start.elapsed());
            }
        };
        let host = Host { events: piton_flow::EventSink::Call(&tell), ..Host::new(&journal, &*context.clock, &ids) };
        run_flow(&flow, given(), &host).await?;
        let took = begun.into_inner().expect("nobody panics");
        ensure!(took.is_some(), "no node was left to begin");
        whole.0.extend(took);
        run.complete(()).await?;
    }
    report(
        "resume with 10 MB: until the next node begins, median",
        &format!("{:.1} ms", whole.quantile(0.5) / 1e3),
        "",
    );
    report("resume with 10 MB: reading alone, median", &format!("{:.1} ms", reading.quantile(0.5) / 1e3), "");
    let more = whole.quantile(0.5) - reading.quantile(0.5);
    report("resume with 10 MB: beyond reading", &format!("{:.1} ms", more / 1e3), "50 ms");
    store.close().await?;
    Ok(())
}
