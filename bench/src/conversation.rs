//! The growing conversation: 1,000 steps, each adds two messages of 600 characters, one checkpoint per
//! step, all of them kept and loadable.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path as FilePath;
use std::sync::Arc;

use anyhow::ensure;
use piton_log::state::State;
use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_store::{Span, Store};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::{Durability, EntryKind, Path, Timestamp, Value};

use crate::corpus;
use crate::measure::{Samples, disk, middle, quantile, ratio, report};

const STEPS: usize = 1_000;
pub(crate) const MESSAGE: usize = 600;
/// Piton and the limit take turns in blocks of so many steps.
const BLOCK: usize = 20;
/// Conversations that are timed, one after the other.
const ROUNDS: usize = 3;

pub(crate) async fn run(scratch: &FilePath) -> anyhow::Result<()> {
    let text = corpus::text(STEPS * 2 * MESSAGE)?;
    size(scratch, &text).await?;
    time(scratch, &text).await
}

pub(crate) fn message(text: &str, n: usize) -> Value {
    spoken(n, &text[n * MESSAGE..(n + 1) * MESSAGE])
}

/// Message `n` of a conversation.
pub(crate) fn spoken(n: usize, words: &str) -> Value {
    Value::map([
        ("role", Value::from(if n.is_multiple_of(2) { "user" } else { "assistant" })),
        ("id", Value::from(format!("00000000-0000-0000-0000-{n:012}"))),
        ("content", Value::from(words)),
    ])
}

pub(crate) async fn create<S: Store + 'static>(
    store: &Arc<S>,
    id: &str,
    durability: Durability,
) -> anyhow::Result<RunLog> {
    let new = NewRun { durability, ..NewRun::new(id.parse()?, Timestamp::from_millis(1_700_000_000_000)) };
    Ok(RunLog::create(Arc::clone(store) as Arc<dyn Store>, new).await?)
}

pub(crate) fn checkpoint(content: Content<'_>, durability: Durability) -> Draft<'_> {
    Draft {
        parts: vec![DraftPart { name: "conversation".into(), schema: "chat".into(), version: 1, content }],
        durability,
        ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(1_700_000_000_000))
    }
}

pub(crate) fn empty() -> Value {
    Value::map([("messages", Value::List(Vec::new()))])
}

/// How many bytes are left after a clean close.
async fn size(scratch: &FilePath, text: &str) -> anyhow::Result<()> {
    let folder = scratch.join("size");
    std::fs::create_dir(&folder)?;
    let store = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
    let mut log = create(&store, "conversation", Durability::Relaxed).await?;
    let mut state = State::new(store.hashing(), &empty())?;
    let path: Path = "/messages".parse()?;
    for step in 0..STEPS {
        let new = vec![message(text, 2 * step), message(text, 2 * step + 1)];
        state.extend(&path, new).await?;
        log.append(checkpoint(Content::State(&mut state), Durability::Relaxed)).await?;
    }
    let run = log.run().clone();
    log.close().await?;
    store.close().await?;
    drop(store);
    let bytes = disk(&folder)?;
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let figure = ratio(bytes as f64, text.len() as f64);
    report("conversation: bytes after a clean close / text", &figure, "0.55 x");

    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
    let log = RunLog::open(Arc::clone(&store), &run).await?;
    let mut loaded = 0;
    for entry in log.entries(Span::ALL).await? {
        if let Some(part) = entry.parts.values().next() {
            let value = log.load(part).await?;
            let messages = value.field("messages").and_then(Value::as_list).unwrap_or_default();
            ensure!(messages.len() == 2 * entry.seq.0 as usize, "checkpoint {} is not what was saved", entry.seq);
            ensure!(messages.last() == Some(&message(text, messages.len() - 1)), "checkpoint {} differs", entry.seq);
            loaded += 1;
        }
    }
    ensure!(loaded == STEPS, "{loaded} of {STEPS} checkpoints load");
    report("conversation: checkpoints that load and equal what was saved", &loaded.to_string(), "1000");
    Ok(())
}

/// One bare row per commit, on a WAL that has already wrapped, like Piton's.
pub(crate) struct Bare(rusqlite::Connection);

impl Bare {
    pub(crate) fn open(path: &FilePath) -> anyhow::Result<Self> {
        let connection = rusqlite::Connection::open(path)?;
        connection.execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB);
             BEGIN; INSERT INTO t(b) VALUES(zeroblob(6000000)); DELETE FROM t; COMMIT;
             PRAGMA wal_checkpoint(PASSIVE);",
        )?;
        Ok(Self(connection))
    }

    pub(crate) fn commit(&self, bytes: &[u8]) -> anyhow::Result<()> {
        self.0.prepare_cached("INSERT INTO t(b) VALUES(?1)")?.execute([bytes])?;
        Ok(())
    }
}

/// What a save costs, beside a bare commit of the same new bytes and beside the disk's own limit.
async fn time(scratch: &FilePath, text: &str) -> anyhow::Result<()> {
    let durability = Durability::Durable;
    let folder = scratch.join("time");
    std::fs::create_dir(&folder)?;
    let store = Arc::new(SqliteStore::open(folder.join("store.db"), SqliteOptions::default())?);
    let bare = Bare::open(&folder.join("bare.db"))?;
    let mut limit = OpenOptions::new().create_new(true).read(true).write(true).open(folder.join("limit"))?;
    limit.write_all(&vec![0; STEPS * 4096])?;
    limit.sync_all()?;
    warm(&store, text).await?;

    let path: Path = "/messages".parse()?;
    let (mut ours, mut whole, mut theirs, mut floor) = <(Samples, Samples, Samples, Samples)>::default();
    let mut growth = Vec::new();
    let before = store.counters();
    for round in 0..ROUNDS {
        let mut log = create(&store, &format!("conversation-{round}"), durability).await?;
        let mut state = State::new(store.hashing(), &empty())?;
        limit.seek(SeekFrom::Start(0))?;
        for block in 0..STEPS / BLOCK {
            for step in block * BLOCK..(block + 1) * BLOCK {
                let new = vec![message(text, 2 * step), message(text, 2 * step + 1)];
                let start = std::time::Instant::now();
                state.extend(&path, new).await?;
                log.append(checkpoint(Content::State(&mut state), durability)).await?;
                ours.0.push(start.elapsed());
            }
            for step in block * BLOCK..(block + 1) * BLOCK {
                let bytes = [message(text, 2 * step), message(text, 2 * step + 1)]
                    .iter()
                    .map(|message| Ok(piton_types::to_json(message)?.to_string()))
                    .collect::<anyhow::Result<String>>()?;
                theirs.time(|| bare.commit(bytes.as_bytes()))?;
            }
            for _ in 0..BLOCK {
                floor.time(|| limit.write_all(&[7; 4096]).and_then(|()| limit.sync_data()))?;
            }
        }
        log.close().await?;
        let mine = &ours.0[round * STEPS..];
        growth.push(quantile(&mine[STEPS - 100..], 0.5) / quantile(&mine[100..200], 0.5));
    }
    let mut value = empty();
    // The other entrance, whole values, at a tenth of the rate.
    let mut values = create(&store, "values", durability).await?;
    for step in (0..STEPS).step_by(10) {
        if let Value::Map(map) = &mut value
            && let Some(Value::List(messages)) = map.get_mut("messages")
        {
            messages.extend((messages.len()..2 * step + 2).map(|n| message(text, n)));
        }
        let start = std::time::Instant::now();
        values.append(checkpoint(Content::Value(&value), durability)).await?;
        whole.0.push(start.elapsed());
    }
    let after = store.counters();
    values.close().await?;
    let expected = (ROUNDS * (STEPS + 1) + STEPS / 10 + 1) as u64;
    ensure!(after.commits - before.commits == expected, "{} commits", after.commits - before.commits);

    let line = |what: &str| format!("conversation: {what}");
    report(&line("save, median"), &format!("{:.0} us", ours.quantile(0.5)), "");
    report(&line("bare commit, median"), &format!("{:.0} us", theirs.quantile(0.5)), "");
    report(&line("save / bare commit, medians"), &ratio(ours.quantile(0.5), theirs.quantile(0.5)), "1.25 x");
    report(&line("last 100 saves / steps 100-200, medians"), &ratio(middle(growth), 1.0), "1.15 x");
    report(
        &line("whole value of up to 2,000 messages / bare commit"),
        &ratio(whole.quantile(0.5), theirs.quantile(0.5)),
        "",
    );
    report(
        &line("bare commit / preallocated fdatasync of 4 KiB"),
        &ratio(theirs.quantile(0.5), floor.quantile(0.5)),
        "",
    );
    report(&line("save / preallocated fdatasync of 4 KiB"), &ratio(ours.quantile(0.5), floor.quantile(0.5)), "");
    store.close().await?;
    Ok(())
}

/// Fills the WAL of the database until SQLite has begun it again at least once.
async fn warm(store: &Arc<SqliteStore>, text: &str) -> anyhow::Result<()> {
    let mut log = create(store, "warm-up", Durability::Relaxed).await?;
    let mut state = State::new(store.hashing(), &empty())?;
    let path: Path = "/messages".parse()?;
    for step in 0..STEPS {
        state.extend(&path, vec![message(text, step)]).await?;
        log.append(checkpoint(Content::State(&mut state), Durability::Relaxed)).await?;
    }
    log.close().await?;
    let counters = store.counters();
    ensure!(counters.checkpoints > 0, "the WAL has not been moved yet: {counters:?}");
    Ok(())
}
