//! Loading the newest and an old checkpoint, beside reading and parsing the same state from one JSON
//! file; and saving states of 1 KB to 10 MB.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use piton_log::state::State;
use piton_log::{Content, RunLog};
use piton_store::Store;
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{Durability, Path, RunId, Seq, Value};

use crate::alloc::Watch;
use crate::conversation::{checkpoint, create, message};
use crate::corpus;
use crate::measure::{Samples, disk, ratio, report};

pub(crate) async fn run(scratch: &FilePath) -> anyhow::Result<()> {
    let text = corpus::text(2_000_000)?;
    for kib in [1, 10, 100, 1_000, 10_000] {
        size(scratch, &text, kib).await?;
    }
    conversation(scratch, &text).await
}

/// The newest checkpoint of a run, as a process that has just opened it gets it.
async fn newest(store: &Arc<dyn Store>, run: &RunId) -> anyhow::Result<Value> {
    let log = RunLog::open(Arc::clone(store), run).await?;
    let entry = log.newest_checkpoint().await?.context("there is a checkpoint")?;
    let part = entry.parts.values().next().context("it has a part")?;
    Ok(log.load(part).await?)
}

async fn at(store: &Arc<dyn Store>, run: &RunId, seq: Seq) -> anyhow::Result<Value> {
    let log = RunLog::open(Arc::clone(store), run).await?;
    let entry = log.entry(seq).await?;
    let part = entry.parts.values().next().context("it has a part")?;
    Ok(log.load(part).await?)
}

/// Times a load. What was loaded is dropped afterwards, as that of the peer is.
async fn timed(samples: &mut Samples, load: impl Future<Output = anyhow::Result<Value>>) -> anyhow::Result<()> {
    let start = Instant::now();
    let value = load.await?;
    samples.0.push(start.elapsed());
    drop(std::hint::black_box(value));
    Ok(())
}

fn parse(file: &FilePath) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

/// A map of strings of 1,000 characters, and the same with one of them changed, over and over.
async fn size(scratch: &FilePath, text: &str, kib: usize) -> anyhow::Result<()> {
    let folder = scratch.join(format!("size-{kib}"));
    std::fs::create_dir(&folder)?;
    let store = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
    let mut log = create(&store, "sizes", Durability::Durable).await?;
    // The text is used again and again for the large sizes, never cut at the same place twice.
    let entry = |n: usize, shift: usize| {
        let at = (n * 1_009 + shift) % (text.len() - 1_100);
        (format!("k{n}"), Value::from(&text[at..at + 1_000]))
    };
    let mut value = Value::map((0..kib).map(|n| entry(n, 0)));
    let json = folder.join("state.json");
    std::fs::write(&json, piton_types::to_json(&value)?.to_string())?;

    let rounds = if kib < 1_000 { 60 } else { 15 };
    let (mut again, mut load, mut peer) = <(Samples, Samples, Samples)>::default();
    let (start, watch) = (Instant::now(), Watch::start());
    log.append(checkpoint(Content::Value(&value), Durability::Durable)).await?;
    let (first, allocations) = (start.elapsed(), watch.count());
    drop(watch);
    let run = log.run().clone();
    let shared: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
    ensure!(newest(&shared, &run).await? == value, "what is loaded differs from what was saved");
    for _ in 0..rounds {
        timed(&mut load, newest(&shared, &run)).await?;
        peer.time(|| parse(&json).map(std::hint::black_box))?;
    }
    let bytes = store.counters().bytes;
    for round in 0..rounds {
        if let Value::Map(map) = &mut value {
            map.extend([entry(round % kib, 7 + round)]);
        }
        let start = Instant::now();
        log.append(checkpoint(Content::Value(&value), Durability::Durable)).await?;
        again.0.push(start.elapsed());
    }
    let changed = (store.counters().bytes - bytes) / rounds as u64;
    ensure!(newest(&shared, &run).await? == value, "what is loaded differs from what was saved");
    let mut spread = Samples::default();
    for _ in 0..rounds {
        timed(&mut spread, newest(&shared, &run)).await?;
    }
    log.close().await?;
    store.close().await?;
    let line = |what: &str| format!("{kib} KB: {what}");
    report(&line("load newest / read and parse JSON"), &ratio(load.quantile(0.5), peer.quantile(0.5)), "2 x");
    report(&line("load newest"), &format!("{:.0} us", load.quantile(0.5)), "");
    let changes = format!("the same after {rounds} saves of small changes");
    report(&line(&changes), &ratio(spread.quantile(0.5), peer.quantile(0.5)), "");
    report(&line("first save of the whole value"), &format!("{} us", first.as_micros()), "");
    report(&line("allocations of the first save"), &allocations.to_string(), "");
    report(&line("save of the whole value with one string changed"), &format!("{:.0} us", again.quantile(0.5)), "");
    report(&line("bytes of such a save"), &changed.to_string(), "");
    report(
        &line("on disk after all"),
        &format!("{} KB", (disk(&folder)? - std::fs::metadata(&json)?.len()) / 1_000),
        "",
    );
    Ok(())
}

/// The conversation of 1,000 checkpoints: the newest, and one from the middle.
async fn conversation(scratch: &FilePath, text: &str) -> anyhow::Result<()> {
    let folder = scratch.join("conversation");
    std::fs::create_dir(&folder)?;
    let store = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
    let mut log = create(&store, "conversation", Durability::Relaxed).await?;
    let mut state = State::new(store.hashing(), &Value::map([("messages", Value::List(Vec::new()))]))?;
    let path: Path = "/messages".parse()?;
    let (newest_json, old_json) = (folder.join("newest.json"), folder.join("old.json"));
    for step in 0..1_000 {
        state.extend(&path, vec![message(text, 2 * step), message(text, 2 * step + 1)]).await?;
        log.append(checkpoint(Content::State(&mut state), Durability::Relaxed)).await?;
        let json = [(499, &old_json), (999, &newest_json)].into_iter().find(|(at, _)| *at == step);
        if let Some((_, file)) = json {
            std::fs::write(file, piton_types::to_json(&state.value().await?)?.to_string())?;
        }
    }
    let run = log.run().clone();
    log.close().await?;
    let store: Arc<dyn Store> = store;
    let (mut new, mut old, mut new_peer, mut old_peer) = <(Samples, Samples, Samples, Samples)>::default();
    for _ in 0..30 {
        timed(&mut new, newest(&store, &run)).await?;
        new_peer.time(|| parse(&newest_json).map(std::hint::black_box))?;
        timed(&mut old, at(&store, &run, Seq(500))).await?;
        old_peer.time(|| parse(&old_json).map(std::hint::black_box))?;
    }
    report("conversation: load newest / read and parse JSON", &ratio(new.quantile(0.5), new_peer.quantile(0.5)), "2 x");
    report(
        "conversation: load an old one / read and parse JSON",
        &ratio(old.quantile(0.5), old_peer.quantile(0.5)),
        "3 x",
    );
    store.close().await?;
    Ok(())
}
