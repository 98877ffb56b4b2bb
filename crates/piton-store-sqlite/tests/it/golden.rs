//! Promise 8: every released format still loads. `tests/golden/1/store.db` is a store as format 1 writes it,
//! and `expected.json` all that it says.
//!
//! `PITON_WRITE_GOLDEN=1` writes both anew; until the first release a change of the format may. Without it,
//! the same test makes the store once more and compares what it says, roots and hashes included.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_log::{Content, Draft, DraftPart, NewRun, RunLog, SealedEntry};
use piton_store::{RunQuery, Span, Store, StoreError};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::id;
use piton_types::{
    CheckpointRef, Durability, EntryKind, Fence, Holder, PartName, RunId, RunKind, RunStatus, RunSummary, Seq,
    Timestamp, Value, to_json,
};
use serde_json::{Value as Json, json};

use crate::support::block_on;

/// Values whose JSON is longer are represented by its hash.
const SHOWN: usize = 500;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/1").join(name)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + second * 1000)
}

fn new_run(run: &str, kind: RunKind) -> NewRun {
    NewRun {
        id: id(run),
        name: format!("the run {run}"),
        kind,
        status: RunStatus::InProgress,
        parent: None,
        folder: Some("/a/folder".to_owned()),
        labels: ["nightly".to_owned()].into(),
        parts: Default::default(),
        staged: Vec::new(),
        body: Value::map([("document", Value::from("…")), ("input", Value::from(1))]),
        at: at(0),
        fence: Fence(1),
        durability: Durability::Durable,
    }
}

fn part(name: &str, content: &'static Value) -> DraftPart<'static> {
    DraftPart {
        name: PartName(name.to_owned()),
        schema: format!("{name}.v"),
        version: 3,
        content: Content::Value(content),
    }
}

/// A value for the life of the test.
fn keep(value: Value) -> &'static Value {
    Box::leak(Box::new(value))
}

/// One of everything that a value can be.
fn everything() -> Value {
    Value::map([
        ("null", Value::Null),
        ("bools", Value::List(vec![Value::Bool(false), Value::Bool(true)])),
        ("integers", [0, 1, -1, i64::MIN, i64::MAX].into_iter().map(Value::from).collect::<Vec<_>>().into()),
        ("unsigned", Value::UInt(u64::MAX)),
        ("floats", [0.0, -0.0, 1.5, f64::MIN_POSITIVE, 1e300].into_iter().map(Value::from).collect::<Vec<_>>().into()),
        ("text", Value::from("Grüße, 世界 \u{0}")),
        ("bytes", Value::Bytes((0..=255).collect())),
        ("long text", Value::from("A line that repeats. ".repeat(400))),
        ("long bytes", Value::Bytes((0..9000_u32).map(|n| (n % 251) as u8).collect())),
        ("list", (0..300).map(Value::from).collect::<Vec<_>>().into()),
        ("map", Value::map((0..200).map(|n| (format!("key {n}"), Value::from(n))))),
        ("nested", (0..20).fold(Value::Null, |inner, _| Value::List(vec![inner]))),
    ])
}

/// More than goes into a commit, though it compresses well.
fn large() -> Value {
    let line = |n: u32| format!("{n:06} {}\n", "the same words again and again ".repeat(9));
    Value::from((0..950).map(line).collect::<String>())
}

async fn write(store: Arc<dyn Store>) -> Result<(), StoreError> {
    // Every kind of entry.
    let mut log = RunLog::create(Arc::clone(&store), new_run("every-kind", RunKind::Workflow)).await?;
    for kind in EntryKind::ALL.into_iter().skip(1) {
        let number = kind as i64;
        let mut draft = Draft::new(kind, at(number));
        draft.label = format!("{kind:?} ü");
        draft.body = Value::map([("number", Value::from(number)), ("note", Value::from("x".repeat(100)))]);
        match kind {
            EntryKind::Claimed => draft.fence = Some(Fence(7)),
            EntryKind::Checkpoint => {
                draft.parts = vec![part("all", keep(everything())), part("one", keep(Value::from(1)))];
            }
            EntryKind::Restored => {
                let summary = log.summary().await?;
                draft.index = Some(RunSummary { status: RunStatus::Completed, updated_at: at(number), ..summary });
            }
            _ => {}
        }
        log.append(draft).await?;
    }
    log.close().await?;
    // A segment, with entries behind it.
    let mut log = RunLog::create(Arc::clone(&store), new_run("folded", RunKind::Steps)).await?;
    let mut items = Vec::new();
    for number in 1..=43 {
        items.push(Value::from(format!("item {number}: {}", "words ".repeat(20))));
        let mut draft = Draft::new(EntryKind::Checkpoint, at(number));
        draft.parts = vec![part("items", keep(Value::List(items.clone())))];
        log.append(draft).await?;
        if number == 40 {
            log.close().await?;
            log = RunLog::open(Arc::clone(&store), &id("folded")).await?;
        }
    }
    drop(log);
    // A state that grows by edits, in a segment and behind it.
    let mut log = RunLog::create(Arc::clone(&store), new_run("growing", RunKind::Steps)).await?;
    let mut state = log.new_state(&Value::map([("items", Value::List(Vec::new()))]))?;
    for number in 1..=43 {
        let item = Value::from(format!("item {number}: {}", "words ".repeat(20)));
        state.push(&"/items".parse().unwrap(), item).await?;
        let mut draft = Draft::new(EntryKind::Checkpoint, at(number));
        let (name, schema) = (PartName("items".to_owned()), "items.v".to_owned());
        draft.parts = vec![DraftPart { name, schema, version: 3, content: Content::State(&mut state) }];
        log.append(draft).await?;
    }
    log.close().await?;
    // A staged pack, in a run that branched off.
    let mut new = new_run("staged", RunKind::Guard);
    new.parent = Some(CheckpointRef { run: id("folded"), seq: Seq(40) });
    new.folder = None;
    let mut log = RunLog::create(Arc::clone(&store), new).await?;
    let mut draft = Draft::new(EntryKind::StepDone, at(5));
    draft.parts = vec![part("large", keep(large()))];
    log.append(draft).await?;
    log.close().await?;
    let holder = Holder { host: "host".to_owned(), boot: "boot".to_owned(), pid: 4, started: 5 };
    store.beat(&id("staged"), Fence(1), &holder).await?;
    store.close().await
}

fn shown(value: &Value) -> Json {
    let json = to_json(value).unwrap();
    let text = json.to_string();
    if text.len() <= SHOWN {
        json
    } else {
        json!({ "bytes": text.len(), "blake3": blake3::hash(text.as_bytes()).to_hex().as_str() })
    }
}

async fn entry_json(log: &RunLog, entry: &SealedEntry) -> Result<Json, StoreError> {
    let mut parts = BTreeMap::new();
    for (name, part) in &entry.parts {
        let value = shown(&log.load(part).await?);
        let root = part.root.to_string();
        parts.insert(
            name.0.clone(),
            json!({
                "schema": part.schema,
                "version": part.version,
                "root": root,
                "value": value,
            }),
        );
    }
    Ok(json!({
        "seq": entry.seq.0,
        "parent": entry.parent.to_string(),
        "hash": entry.hash.to_string(),
        "fence": entry.fence.0,
        "at": entry.at.as_millis(),
        "kind": entry.kind as u8,
        "label": entry.label,
        "body": shown(&log.body(entry).await?),
        "parts": parts,
    }))
}

async fn run_json(store: &Arc<dyn Store>, summary: &RunSummary) -> Result<Json, StoreError> {
    let log = RunLog::open(Arc::clone(store), &summary.id).await?;
    let mut entries = Vec::new();
    for entry in log.entries(Span::ALL).await? {
        entries.push(entry_json(&log, &entry).await?);
    }
    let segments: Vec<_> = store.segments(&summary.id).await?.iter().map(ToString::to_string).collect();
    let lease = store.lease(&summary.id).await?;
    Ok(json!({
        "summary": summary,
        "head": { "seq": log.head().seq.0, "hash": log.head().hash.to_string(), "fence": log.head().fence.0 },
        "segments": segments,
        "lease": lease.map(|lease| json!({ "fence": lease.fence.0, "beat": lease.beat, "holder": lease.holder })),
        "entries": entries,
    }))
}

/// All that a store says.
fn read(path: &Path) -> Result<Json, StoreError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path, SqliteOptions::default().with_create(false))?);
    block_on(async {
        let mut runs = BTreeMap::new();
        for summary in store.list(RunQuery::default()).await? {
            runs.insert(summary.id.to_string(), run_json(&store, &summary).await?);
        }
        store.close().await?;
        Ok(json!({ "format": 1, "runs": runs }))
    })
}

fn expected() -> Json {
    serde_json::from_slice(&fs::read(golden("expected.json")).unwrap()).unwrap()
}

/// A copy that may be opened, which leaves files beside it.
fn copy(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("store.db");
    fs::copy(golden("store.db"), &path).unwrap();
    path
}

#[test]
fn the_golden_store_still_loads() {
    let folder = tempfile::tempdir().unwrap();
    let read = read(&copy(&folder)).unwrap();
    let expected = expected();
    for (run, expected) in expected["runs"].as_object().unwrap() {
        assert_eq!(&read["runs"][run], expected, "{run}");
    }
    assert_eq!(read, expected);
}

#[test]
fn what_is_written_today_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    block_on(write(Arc::clone(&store))).unwrap();
    drop(store);
    let size = fs::metadata(&path).unwrap().len();
    assert!(size < 500_000, "{size}");
    let said = read(&path).unwrap();
    if std::env::var("PITON_WRITE_GOLDEN").as_deref() == Ok("1") {
        fs::create_dir_all(golden("")).unwrap();
        fs::copy(&path, golden("store.db")).unwrap();
        fs::write(golden("expected.json"), serde_json::to_vec_pretty(&said).unwrap()).unwrap();
    }
    assert_eq!(said, expected());
    let runs: Vec<RunId> = ["every-kind", "folded", "growing", "staged"].map(id).to_vec();
    assert_eq!(said["runs"].as_object().unwrap().len(), runs.len());
    for run in ["folded", "growing"] {
        assert_eq!(said["runs"][run]["segments"], json!(["0..=31"]), "{run}");
    }
    let staged: i64 = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("SELECT count(*) FROM pack", (), |row| row.get(0))
        .unwrap();
    assert!(staged > 0, "nothing was staged");
}

/// The golden store can be written to, and what was in it stays as it was.
#[test]
fn the_golden_store_can_be_continued() {
    let folder = tempfile::tempdir().unwrap();
    let path = copy(&folder);
    let before = expected();
    block_on(async {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        let mut log = RunLog::open(Arc::clone(&store), &id("folded")).await.unwrap();
        let part = part("items", keep(Value::List(vec![])));
        log.append(Draft { parts: vec![part], ..Draft::new(EntryKind::Checkpoint, at(99)) }).await.unwrap();
        log.close().await.unwrap();
        store.close().await.unwrap();
    });
    let after = read(&path).unwrap();
    let (old, new) = (&before["runs"]["folded"]["entries"], &after["runs"]["folded"]["entries"]);
    assert_eq!(new.as_array().unwrap().len(), 45);
    assert_eq!(&new.as_array().unwrap()[..44], &old.as_array().unwrap()[..]);
    assert_eq!(before["runs"]["staged"], after["runs"]["staged"]);
}

#[test]
fn a_newer_format_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = copy(&folder);
    // `user_version` is at 60, and the page has a checksum, which a newer Piton would have written too.
    let mut content = fs::read(&path).unwrap();
    content[60..64].copy_from_slice(&2_u32.to_be_bytes());
    let mut hasher = blake3::Hasher::new();
    hasher.update(&content[..4088]).update(&1_u64.to_le_bytes());
    content[4088..4096].copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    fs::write(&path, &content).unwrap();
    let error = SqliteStore::open(&path, SqliteOptions::default()).unwrap_err();
    assert!(matches!(error, StoreError::TooNew { found: 2, known: 1, .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), content);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else was made");
}
