//! Workflows on a store: a checkpoint after every node of a line of 100, beside as many bare commits; and going on with
//! a run that has 10 MB of state.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use piton_flow::{Document, Flow, Format, Host, Inputs, Kinds, RunJournal, Services, run as run_flow};
use piton_runtime::{Context, LeaseOptions, OpenRun, RetryPolicy, Run, StepDone};
use piton_store::Store;
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{Durability, Event, RunKind, Value};

use crate::conversation::Bare;
use crate::flow::{Counter, line};
use crate::measure::{Samples, ratio, report};

/// Nodes of a line, with its start and end.
const NODES: usize = 98;
const ROUNDS: usize = 30;
const STATE: usize = 10 << 20;

pub(crate) async fn run(scratch: &Path) -> anyhow::Result<()> {
    for durability in [Durability::Durable, Durability::Relaxed] {
        checkpoints(scratch, durability).await?;
    }
    resume(scratch).await
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

/// Every node is a checkpoint; the time of one is that from the node before.
async fn checkpoints(scratch: &Path, durability: Durability) -> anyhow::Result<()> {
    let name = if durability == Durability::Durable { "full sync" } else { "normal sync" };
    let folder = scratch.join(format!("flow-{}", name.replace(' ', "-")));
    std::fs::create_dir_all(&folder)?;
    let store = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
    let context = Context::system(Arc::clone(&store) as Arc<dyn Store>);
    let bare = Bare::open(&folder.join("bare.db"), durability)?;
    let flow = Flow::build(&Document::parse(&line(NODES), Format::Json)?, &Kinds::builtin())?;
    let (services, ids) = (Services::default(), Counter::default());
    let (mut ours, mut early, mut late, mut theirs) = <(Samples, Samples, Samples, Samples)>::default();
    for round in 0..ROUNDS + 3 {
        let run = Run::open(&context, opening(&format!("run-{round}"), durability)?).await?;
        let journal = RunJournal::new(&run, &flow, &services, &*context.clock).with_checkpoints_everywhere();
        let ended = std::sync::Mutex::new(vec![context.clock.monotonic()]);
        let tell = |event: &Event| {
            if matches!(event, Event::CheckpointSaved { .. }) {
                ended.lock().expect("nobody panics").push(context.clock.monotonic());
            }
        };
        let host = Host { events: piton_flow::EventSink::Call(&tell), ..Host::new(&journal, &*context.clock, &ids) };
        let before = store.counters();
        run_flow(&flow, given(), &host).await?;
        let commits = store.counters().commits - before.commits;
        ensure!(commits == NODES as u64 + 2, "{commits} commits for {} nodes", NODES + 2);
        run.complete(()).await?;
        // Both logs have wrapped before anything is measured.
        let is_measured = round >= 3;
        let moments = ended.into_inner().expect("nobody panics");
        let took: Vec<_> = moments.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for n in 0..NODES {
            let time = Instant::now();
            bare.commit(format!("{{\"node\":\"n{n}\",\"output\":\"a bees\"}}").as_bytes())?;
            if is_measured {
                theirs.0.push(time.elapsed());
            }
        }
        if is_measured {
            ours.0.extend(&took);
            early.0.extend(&took[5..15]);
            late.0.extend(&took[took.len() - 10..]);
        }
    }
    let line = |what: &str| format!("100 nodes, each a checkpoint, {name}: {what}");
    report(&line("a node, median"), &format!("{:.0} us", ours.quantile(0.5)), "");
    report(&line("a bare commit, median"), &format!("{:.0} us", theirs.quantile(0.5)), "");
    report(&line("node / bare commit, medians"), &ratio(ours.quantile(0.5), theirs.quantile(0.5)), "1.5 x");
    report(&line("node 90 to 100 / node 5 to 15"), &ratio(late.quantile(0.5), early.quantile(0.5)), "flat");
    report(&line("commits"), &(NODES + 2).to_string(), "100");
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
    let run = Run::open(&context, opening("large", Durability::Durable)?).await?;
    let each = STATE / NODES;
    for (n, step) in std::iter::once("in".to_owned()).chain((0..NODES - 1).map(|n| format!("n{n}"))).enumerate() {
        let text: String =
            (0..each / 8).map(|m| format!("{:08x}", (n * each + m).wrapping_mul(2_654_435_761))).collect();
        let output = Value::map([(if n == 0 { "x" } else { "output" }, text.as_str().into())]);
        run.record(StepDone::new(step.parse()?, Value::Null, Ok(output)), Vec::new()).await?;
    }
    run.pause("for the bench").await?;
    drop(run);
    let (services, ids) = (Services::default(), Counter::default());
    let (mut reading, mut whole) = <(Samples, Samples)>::default();
    for round in 0..10 {
        // What reading alone takes.
        let start = Instant::now();
        let history = piton_runtime::History::of(&context, &"large".parse()?).await?;
        reading.0.push(start.elapsed());
        ensure!(history.steps.len() >= NODES);
        let start = Instant::now();
        let run = Run::open(&context, opening("large", Durability::Durable)?).await?;
        let journal = RunJournal::new(&run, &flow, &services, &*context.clock);
        let begun = std::sync::Mutex::new(None);
        let tell = |event: &Event| {
            if matches!(event, Event::StepStarted { .. }) {
                begun.lock().expect("nobody panics").get_or_insert_with(|| start.elapsed());
            }
        };
        let host = Host { events: piton_flow::EventSink::Call(&tell), ..Host::new(&journal, &*context.clock, &ids) };
        if round == 9 {
            run_flow(&flow, given(), &host).await?;
        } else {
            // Until the first node begins that isn't finished; then the run is put aside again.
            let mut work = std::pin::pin!(run_flow(&flow, given(), &host));
            while begun.lock().expect("nobody panics").is_none() {
                tokio::select! {
                    biased;
                    ended = &mut work => { ended?; }
                    () = tokio::task::yield_now() => {}
                }
            }
        }
        let took = begun.into_inner().expect("nobody panics");
        whole.0.extend(took);
        if round < 9 {
            run.pause("for the bench").await?;
        }
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
