//! What encryption costs: the same saves and loads on a plain and an encrypted SQLite store, in turns.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use piton_log::state::State;
use piton_log::{Content, NewRun, RunLog};
use piton_runtime::SystemRandom;
use piton_store::{EncryptedStore, Key, Store};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{Durability, Path, RunId, Timestamp, Value};

use crate::conversation::{checkpoint, message};
use crate::corpus;
use crate::measure::{Samples, ratio, report};

pub(crate) async fn run(scratch: &FilePath) -> anyhow::Result<()> {
    let text = corpus::text(2_000_000)?;
    let plain: Arc<dyn Store> = Arc::new(SqliteStore::open(scratch.join("plain.db"), SqliteOptions::default())?);
    let below: Arc<dyn Store> = Arc::new(SqliteStore::open(scratch.join("encrypted.db"), SqliteOptions::default())?);
    let random = Arc::new(SystemRandom);
    let key = Key::generate(&*random);
    let encrypted: Arc<dyn Store> = Arc::new(EncryptedStore::create(below, &key, random).await?);
    saves(&[&plain, &encrypted], &text).await?;
    for kib in [10, 100, 1_000, 10_000] {
        loads(&[&plain, &encrypted], &text, kib).await?;
    }
    Ok(())
}

async fn create(store: &Arc<dyn Store>, name: &str) -> anyhow::Result<RunLog> {
    let new = NewRun::new(name.parse()?, Timestamp::from_millis(1));
    Ok(RunLog::create(Arc::clone(store), new).await?)
}

/// A conversation that grows by a message a save.
async fn saves(stores: &[&Arc<dyn Store>; 2], text: &str) -> anyhow::Result<()> {
    const SAVES: usize = 600;
    let path: Path = "/messages".parse()?;
    let empty = Value::map([("messages", Value::List(Vec::new()))]);
    let mut sides = Vec::new();
    for store in stores {
        let log = create(store, "saves").await?;
        sides.push((log, State::new(store.hashing(), &empty)?, Samples::default()));
    }
    for n in 0..SAVES {
        // Who goes first changes, so that neither always finds the disk as the other left it.
        for side in [n % 2, 1 - n % 2] {
            let (log, state, samples) = &mut sides[side];
            state.push(&path, message(text, n)).await?;
            let start = Instant::now();
            log.append(checkpoint(Content::State(state), Durability::Durable)).await?;
            samples.0.push(start.elapsed());
        }
    }
    let median = |side: usize| sides[side].2.quantile(0.5);
    report("a durable save: encrypted / plain", &ratio(median(1), median(0)), "1.15 x");
    report("  plain", &format!("{:.0} us", median(0)), "");
    for (log, ..) in sides {
        log.close().await?;
    }
    Ok(())
}

async fn newest(store: &Arc<dyn Store>, run: &RunId) -> anyhow::Result<Value> {
    let log = RunLog::open(Arc::clone(store), run).await?;
    let entry = log.newest_checkpoint().await?.context("there is a checkpoint")?;
    let part = entry.parts.values().next().context("it has a part")?;
    Ok(log.load(part).await?)
}

/// The newest checkpoint, as a process that has just opened the run gets it.
async fn loads(stores: &[&Arc<dyn Store>; 2], text: &str, kib: usize) -> anyhow::Result<()> {
    let entry = |n: usize| {
        let at = n * 1_009 % (text.len() - 1_100);
        (format!("k{n}"), Value::from(&text[at..at + 1_000]))
    };
    let value = Value::map((0..kib).map(entry));
    let run: RunId = format!("load-{kib}").parse()?;
    for store in stores {
        let mut log = create(store, run.as_str()).await?;
        log.append(checkpoint(Content::Value(&value), Durability::Durable)).await?;
        ensure!(newest(store, &run).await? == value, "what is loaded differs from what was saved");
    }
    let mut samples = [Samples::default(), Samples::default()];
    for round in 0..if kib < 1_000 { 200 } else { 40 } {
        for side in [round % 2, 1 - round % 2] {
            let start = Instant::now();
            std::hint::black_box(newest(stores[side], &run).await?);
            samples[side].0.push(start.elapsed());
        }
    }
    let [plain, encrypted] = samples.map(|samples| samples.quantile(0.5));
    report(&format!("load {kib} KB: encrypted / plain"), &ratio(encrypted, plain), "1.15 x");
    report("  plain", &format!("{plain:.0} us"), "");
    Ok(())
}
