//! Values that are spread over several segments.

use std::sync::Arc;
use std::task::{Context, Waker};

use piton_log::state::State;
use piton_log::{Content, Draft, DraftPart, NewRun, RunLog};
use piton_store::Store;
use piton_store_objects::ObjectStore;
use piton_types::{Durability, EntryKind, Path, Seq, Timestamp, Value};
use tokio::runtime::{Builder, Runtime};

const SAVES: usize = 700;

fn text(n: usize) -> Value {
    // Too long for the list itself, so each is a node of its own.
    Value::from(format!("{n}: {}", "words that make an item of their own ".repeat(10)))
}

fn messages(count: usize) -> Value {
    Value::map([("messages", Value::List((0..count).map(text).collect()))])
}

/// A list that grew by two items a save, folded as far as it goes.
async fn grown() -> (Arc<dyn Store>, RunLog) {
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let new = NewRun::new("grown".parse().unwrap(), Timestamp::from_millis(7));
    let mut log = RunLog::create(Arc::clone(&store), new).await.unwrap();
    let mut state = State::new(store.hashing(), &messages(0)).unwrap();
    let path: Path = "/messages".parse().unwrap();
    for n in 0..SAVES {
        state.extend(&path, vec![text(2 * n), text(2 * n + 1)]).await.unwrap();
        let content = Content::State(&mut state);
        let parts = vec![DraftPart { name: "s".into(), schema: "s".into(), version: 1, content }];
        let durability = Durability::Relaxed;
        let draft = Draft { parts, durability, ..Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(7)) };
        log.append(draft).await.unwrap();
    }
    log.close().await.unwrap();
    let log = RunLog::open(Arc::clone(&store), &"grown".parse().unwrap()).await.unwrap();
    assert!(store.segments(log.run()).await.unwrap().len() > 1, "one segment leaves nothing to open ahead");
    (store, log)
}

async fn load(log: &RunLog, seq: usize) -> Value {
    let entry = log.entry(Seq(u32::try_from(seq).unwrap())).await.unwrap();
    log.load(entry.parts.values().next().unwrap()).await.unwrap()
}

fn runtimes() -> [Runtime; 2] {
    [Builder::new_current_thread().build().unwrap(), Builder::new_multi_thread().worker_threads(2).build().unwrap()]
}

/// What is opened ahead for one load doesn't get into the way of the next, also if the runtime that was to open it is
/// gone, or isn't driven any more.
#[test]
fn a_log_is_read_by_one_runtime_after_the_other() {
    let [first, second] = runtimes();
    let (_store, log) = first.block_on(grown());
    for seq in [SAVES, 1, SAVES / 2, SAVES] {
        assert_eq!(first.block_on(load(&log, seq)), messages(2 * seq));
        assert_eq!(second.block_on(load(&log, seq)), messages(2 * seq));
        for runtime in runtimes() {
            assert_eq!(runtime.block_on(load(&log, seq)), messages(2 * seq));
        }
    }
}

/// A load that is given up leaves nothing behind that the next one would wait for.
#[test]
fn a_load_that_is_given_up_does_not_disturb_the_next() {
    for runtime in runtimes() {
        let (_store, log) = runtime.block_on(grown());
        for polls in 1..12 {
            runtime.block_on(async {
                let mut loading = Box::pin(load(&log, SAVES));
                for _ in 0..polls {
                    if loading.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            });
            assert_eq!(runtimes()[0].block_on(load(&log, SAVES)), messages(2 * SAVES));
        }
    }
}
