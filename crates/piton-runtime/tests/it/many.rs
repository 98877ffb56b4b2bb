//! Many unfinished runs: what one of them costs doesn't depend on the others.

use std::sync::Arc;

use piton_runtime::{Context, OpenRun, Run};
use piton_store::{RunQuery, Store};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::level::by_level;
use piton_testing::{CrashStore, Fault};
use piton_types::{Durability, RunStatus};

use crate::support::{memory, process};

async fn paused(context: &Context, count: usize) {
    for n in 0..count {
        let open = OpenRun {
            id: Some(format!("run-{n}").parse().unwrap()),
            durability: Durability::Relaxed,
            ..OpenRun::default()
        };
        let mut run = Run::open(context, open).await.unwrap();
        run.step("a", (), async |()| Ok::<_, String>(n as u64)).await.unwrap();
        run.pause("for now").await.unwrap();
    }
}

/// The calls that listing ten and resuming one make to the store.
async fn calls(store: &Arc<dyn Store>) -> Vec<&'static str> {
    let counting = Arc::new(CrashStore::new(Arc::clone(store), Fault::None));
    let context = process(&(Arc::clone(&counting) as _));
    let query = RunQuery { status: vec![RunStatus::Paused], limit: Some(10), ..RunQuery::default() };
    let listed = context.store.list(query).await.unwrap();
    assert_eq!(listed.len(), 10);
    let open = OpenRun { id: Some(listed[3].id.clone()), existing: true, ..OpenRun::default() };
    let mut run = Run::open(&context, open).await.unwrap();
    run.step("a", (), async |()| -> Result<u64, String> { panic!("it ran") }).await.unwrap();
    run.complete(()).await.unwrap();
    counting.names()
}

/// Listing some and resuming one makes the same few calls, each of one run, however many others there are. That
/// the statements behind them search and never scan is `list::tests::no_statement_scans` of the SQLite store.
#[tokio::test]
async fn resuming_one_of_many_does_not_look_at_the_others() {
    for sqlite in [false, true] {
        let mut seen = Vec::new();
        for count in [10, by_level(100, 1_000, 10_000)] {
            let folder = tempfile::tempdir().unwrap();
            let store: Arc<dyn Store> = if sqlite {
                Arc::new(SqliteStore::open(folder.path().join("store.db"), SqliteOptions::default()).unwrap())
            } else {
                memory()
            };
            paused(&process(&store), count).await;
            seen.push(calls(&store).await);
        }
        assert_eq!(seen[0], seen[1]);
        assert!(seen[0].len() < 20, "{:?}", seen[0]);
    }
}
