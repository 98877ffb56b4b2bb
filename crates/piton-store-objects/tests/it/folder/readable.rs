//! What a person finds in a folder store.

use std::sync::Arc;

use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_store::Store;
use piton_testing::scratch::Scratch;
use piton_types::{EntryKind, Timestamp, Value};

use super::open;
use crate::support::{block_on, id};

async fn work(store: &Arc<dyn Store>) {
    let new = NewRun { name: "a name".into(), ..NewRun::new(id("Run-1"), Timestamp::from_millis(1_700_000_000_000)) };
    let mut log = RunLog::create(Arc::clone(store), new).await.unwrap();
    for n in 0..3 {
        let value = Value::from(n);
        let part = DraftPart { name: "app".into(), schema: "s".into(), version: 1, content: Content::Value(&value) };
        log.append(Draft {
            label: format!("step {n}"),
            parts: vec![part],
            ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(1_700_000_000_500))
        })
        .await
        .unwrap();
    }
}

/// C1 in files: a folder per run, entries, state and history as JSON that any tool reads.
#[test]
fn a_run_can_be_read_with_any_tool() {
    let scratch = Scratch::in_memory();
    block_on(async { work(&open(&scratch.join("s"))).await });
    let folder = scratch.join("s/runs/~run-1");
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
    };
    let commit = json("entries/0000000002.json");
    let entry = &commit["entries"][0];
    assert_eq!((&commit["run"], &entry["seq"], &commit["format"]), (&"Run-1".into(), &2.into(), &1.into()));
    assert_eq!((&entry["about"]["kind"], &entry["about"]["label"]), (&"checkpoint".into(), &"step 1".into()));
    assert_eq!(entry["about"]["time"], "2023-11-14T22:13:20.500Z");
    assert_eq!(entry["about"]["parts"][0][0], "app");
    assert_eq!(json("state.json")["run"]["name"], "a name");
    let history = std::fs::read_to_string(folder.join("history.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().zip(0..).all(|(line, seq)| line["seq"] == seq));
    assert_eq!(lines[3]["label"], "step 2");
}

/// Lines that a crash kept from being written come with the next entry; a torn one is left behind.
#[test]
fn a_history_that_a_crash_cut_short_is_completed() {
    let scratch = Scratch::in_memory();
    block_on(async { work(&open(&scratch.join("s"))).await });
    let history = scratch.join("s/runs/~run-1/history.jsonl");
    let whole = std::fs::read_to_string(&history).unwrap();
    let first: usize = whole.lines().take(2).map(|line| line.len() + 1).sum();
    std::fs::write(&history, &whole[..first + 9]).unwrap();
    block_on(async {
        let mut log = RunLog::open(open(&scratch.join("s")), &id("Run-1")).await.unwrap();
        log.append(Draft::new(EntryKind::Logged, Timestamp::from_millis(1_700_000_000_900))).await.unwrap();
    });
    let now = std::fs::read_to_string(&history).unwrap();
    let seqs: Vec<_> = now
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .map(|line| line["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, [0, 1, 2, 3, 4]);
}
