//! PostgreSQL: a durable save and a durable step beside a bare insert-commit on the same server, what a commit there consists
//! of, and the bytes of a thousand conversations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use piton_log::Content;
use piton_log::state::State;
use piton_runtime::{Context, Run};
use piton_store::{Log as _, Store};
use piton_types::{Durability, Path, Value};
use tokio_postgres::types::Type;

use crate::conversation::{MESSAGE, checkpoint, create, empty, message, spoken};
use crate::corpus;
use crate::database::Database;
use crate::measure::{Samples, middle, quantile, ratio, report};
use crate::steps::{opening, steps};

const SAVES: usize = 1_000;
/// Piton and the limits take turns in blocks of so many.
const BLOCK: usize = 20;
const ROUNDS: usize = 3;
const CONVERSATIONS: usize = 1_000;
/// Steps of each of them; each adds two messages.
const EACH: usize = 20;
/// Conversations that are saved at once.
const AT_ONCE: usize = 4;

pub(crate) async fn run(url: &str) -> anyhow::Result<()> {
    let database = Database::at(url).await?;
    saves(&database).await?;
    durable_steps(&database).await?;
    conversations(&database).await
}

/// A growing conversation, saved after each step.
async fn saves(database: &Database) -> anyhow::Result<()> {
    let text = corpus::text(SAVES * 2 * MESSAGE)?;
    database.fresh("bench_saves").await?;
    database.bare_table().await?;
    let store = Arc::new(database.store("bench_saves").await?);
    let insert = database.client.prepare("INSERT INTO bare(b) VALUES ($1)").await?;
    let nothing = database.client.prepare("SELECT 1").await?;
    let relaxed = database.another().await?;
    relaxed.batch_execute("SET synchronous_commit = off").await?;
    let without_sync = relaxed.prepare("INSERT INTO bare(b) VALUES ($1)").await?;

    let path: Path = "/messages".parse()?;
    let (mut ours, mut theirs, mut unprepared, mut no_sync, mut trip) =
        <(Samples, Samples, Samples, Samples, Samples)>::default();
    let (mut growth, mut all, mut wal) = (Vec::new(), Vec::new(), [0, 0]);
    for round in 0..ROUNDS {
        let mut log = create(&store, &format!("conversation-{round}"), Durability::Durable).await?;
        let mut state = State::new(store.hashing(), &empty())?;
        for block in 0..SAVES / BLOCK {
            let rows = (block * BLOCK..(block + 1) * BLOCK).map(|step| {
                let pair = [message(&text, 2 * step), message(&text, 2 * step + 1)];
                let bytes = pair.iter().map(|message| Ok(piton_types::to_json(message)?.to_string()));
                Ok((bytes.collect::<anyhow::Result<String>>()?.into_bytes(), pair))
            });
            let rows = rows.collect::<anyhow::Result<Vec<(Vec<u8>, [Value; 2])>>>()?;
            let begin = database.wal().await?;
            for (_, pair) in &rows {
                let start = Instant::now();
                state.extend(&path, pair.to_vec()).await?;
                log.append(checkpoint(Content::State(&mut state), Durability::Durable)).await?;
                ours.0.push(start.elapsed());
            }
            let middle = database.wal().await?;
            for (bytes, _) in &rows {
                let start = Instant::now();
                database.client.execute(&insert, &[bytes]).await?;
                theirs.0.push(start.elapsed());
            }
            wal = [wal[0] + middle - begin, wal[1] + database.wal().await? - middle];
            for (bytes, _) in &rows {
                let start = Instant::now();
                database.client.query_typed("INSERT INTO bare(b) VALUES ($1)", &[(bytes as _, Type::BYTEA)]).await?;
                unprepared.0.push(start.elapsed());
                let start = Instant::now();
                relaxed.execute(&without_sync, &[bytes]).await?;
                no_sync.0.push(start.elapsed());
                let start = Instant::now();
                database.client.query(&nothing, &[]).await?;
                trip.0.push(start.elapsed());
            }
        }
        log.close().await?;
        let (mine, bare) = (&ours.0[round * SAVES..], &theirs.0[round * SAVES..]);
        growth.push(grown(mine, bare));
        all.push(sum(mine) / sum(bare));
    }
    ensure!(store.head(&"conversation-0".parse()?).await?.is_some_and(|head| head.seq.0 as usize == SAVES));
    let line = |what: &str| format!("postgres: {what}");
    let micros = |samples: &Samples| format!("{:.0} us", samples.quantile(0.5));
    report(&line("a save, median"), &micros(&ours), "");
    report(&line("a bare insert-commit, prepared, median"), &micros(&theirs), "");
    report(&line("save / bare commit, medians"), &ratio(ours.quantile(0.5), theirs.quantile(0.5)), "1.5 x");
    report(&line("all saves / all bare commits"), &ratio(middle(all), 1.0), "");
    report(&line("last 100 saves / saves 100 to 200, each beside bare commits"), &ratio(middle(growth), 1.0), "1.15 x");
    report(&line("what limits it: an empty round trip"), &micros(&trip), "");
    report(&line("what limits it: a bare insert that isn't synced"), &micros(&no_sync), "");
    report(&line("what limits it: a bare insert-commit that isn't prepared"), &micros(&unprepared), "");
    let count = (SAVES * ROUNDS) as f64;
    let figure = |bytes: i64| format!("{:.0} bytes", bytes as f64 / count);
    report(&line("WAL of a save"), &figure(wal[0]), "");
    report(&line("WAL of a bare commit of the same text"), &figure(wal[1]), "");
    Ok(store.close().await?)
}

/// 1,000 trivial steps beside 1,000 bare commits.
async fn durable_steps(database: &Database) -> anyhow::Result<()> {
    database.fresh("bench_steps").await?;
    database.bare_table().await?;
    let store = Arc::new(database.store("bench_steps").await?);
    let context = Context::system(Arc::clone(&store) as Arc<dyn Store>);
    let insert = database.client.prepare("INSERT INTO bare(b) VALUES ($1)").await?;
    let (mut ours, mut theirs) = <(Samples, Samples)>::default();
    let mut growth = Vec::new();
    for round in 0..ROUNDS {
        let mut run = Run::open(&context, opening(&format!("steps-{round}"), Durability::Durable)?).await?;
        for block in 0..SAVES / BLOCK {
            let (from, to) = (block * BLOCK, (block + 1) * BLOCK);
            steps(&mut run, from, to, |time| ours.0.push(time)).await?;
            for n in from..to {
                let bytes = format!("{{\"step\":\"trivial\",\"input\":{n},\"output\":{}}}", n + 1).into_bytes();
                let start = Instant::now();
                database.client.execute(&insert, &[&bytes]).await?;
                theirs.0.push(start.elapsed());
            }
        }
        run.complete(()).await?;
        let (mine, bare) = (&ours.0[round * SAVES..], &theirs.0[round * SAVES..]);
        growth.push(grown(mine, bare));
    }
    report("postgres: a durable step, median", &format!("{:.0} us", ours.quantile(0.5)), "");
    report("postgres: step / bare commit, medians", &ratio(ours.quantile(0.5), theirs.quantile(0.5)), "1.5 x");
    report("postgres: all steps / all bare commits", &ratio(sum(&ours.0), sum(&theirs.0)), "1.5 x");
    report(
        "postgres: last 100 steps / steps 100 to 200, each beside bare commits",
        &ratio(middle(growth), 1.0),
        "1.15 x",
    );
    Ok(store.close().await?)
}

/// What a thousand conversations take.
async fn conversations(database: &Database) -> anyhow::Result<()> {
    let text: Arc<str> = corpus::text(2 << 20)?.into();
    database.fresh("bench_sizes").await?;
    let store = Arc::new(database.store("bench_sizes").await?);
    let (wal, start) = (database.wal().await?, Instant::now());
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|lane| {
            let (store, text) = (Arc::clone(&store), Arc::clone(&text));
            tokio::spawn(async move {
                for n in (lane..CONVERSATIONS).step_by(AT_ONCE) {
                    converse(&store, &text, n).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let took = start.elapsed();
    let characters = (CONVERSATIONS * EACH * 2 * MESSAGE) as f64;
    let line = |what: &str| format!("postgres: 1,000 conversations of {EACH} saves: {what}");
    let bytes = database.bytes("bench_sizes", "").await?;
    report(&line("bytes"), &format!("{:.1} MB", bytes as f64 / 1e6), "");
    report(&line("bytes / text"), &ratio(bytes as f64, characters), "");
    report(&line("WAL / text"), &ratio((database.wal().await? - wal) as f64, characters), "");
    let rate = (CONVERSATIONS * EACH) as f64 / took.as_secs_f64();
    report(&line("saves a second, four at once"), &format!("{rate:.0}"), "");
    Ok(store.close().await?)
}

async fn converse<S: Store + 'static>(store: &Arc<S>, text: &str, n: usize) -> anyhow::Result<()> {
    let mut log = create(store, &format!("conversation-{n}"), Durability::Durable).await?;
    let mut state = State::new(store.hashing(), &empty())?;
    let path: Path = "/messages".parse()?;
    for step in 0..EACH {
        let messages = [0, 1].map(|half| {
            let number = (n * EACH + step) * 2 + half;
            let from = number * 577 % (text.len() - MESSAGE);
            spoken(2 * step + half, &text[from..from + MESSAGE])
        });
        state.extend(&path, messages.to_vec()).await?;
        log.append(checkpoint(Content::State(&mut state), Durability::Durable)).await?;
    }
    Ok(log.close().await?)
}

/// How much longer the last ones take than early ones, if bare commits at the same time took the same.
fn grown(ours: &[Duration], bare: &[Duration]) -> f64 {
    let at = |from: usize| quantile(&ours[from..from + 100], 0.5) / quantile(&bare[from..from + 100], 0.5);
    at(SAVES - 100) / at(100)
}

fn sum(times: &[Duration]) -> f64 {
    times.iter().map(Duration::as_secs_f64).sum()
}
