//! Lists over many runs.

use piton_store::{Log as _, RunIndex as _, RunQuery, Span, Store as _};
use piton_types::{RunStatus, RunSummary, Timestamp};

use crate::support::{Line, block_on, open};

/// Ten thousand finished runs and some in progress, one of them with a long log.
#[test]
fn lists_do_not_depend_on_what_is_finished() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        let mut expected: Vec<RunSummary> = Vec::new();
        for number in 0..10_000_i64 {
            let mut commit = Line::relaxed(&format!("run-{number:05}")).next();
            let status = RunStatus::ALL[usize::try_from(number % 7).unwrap()];
            let status = if status == RunStatus::InProgress && number > 300 { RunStatus::Completed } else { status };
            let index = commit.index.as_mut().unwrap();
            index.status = status;
            // Not in the order of creation, and with ties.
            index.updated_at = Timestamp::from_millis(number * 7919 % 5000);
            commit.at = index.updated_at;
            expected.push(index.clone());
            store.append(vec![commit]).await.unwrap();
        }
        let mut line = Line::relaxed("run-00001");
        line.head = store.head(&line.run).await.unwrap();
        line.size = 0;
        line.grow(&store, 3000).await;
        expected[1].updated_at = Timestamp::from_millis(4000);
        expected.sort_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
        store.close().await.unwrap();
        let store = open(&folder);

        let started = std::time::Instant::now();
        for page in [0, 20, 3000] {
            let after = expected.get(page).map(|run| (run.updated_at, run.id.clone()));
            let query = RunQuery { after, limit: Some(20), ..RunQuery::default() };
            assert_eq!(store.list(query).await.unwrap(), expected[page + 1..page + 21]);
        }
        println!("three pages of 20 in {:?}", started.elapsed());
        for status in RunStatus::ALL {
            let query = RunQuery { status: vec![status, RunStatus::Paused], limit: Some(100), ..RunQuery::default() };
            let runs = expected.iter().filter(|run| run.status == status || run.status == RunStatus::Paused);
            assert!(store.list(query).await.unwrap().iter().eq(runs.take(100)));
        }
        let query = RunQuery { id_prefix: "run-000".into(), limit: Some(50), ..RunQuery::default() };
        let runs = expected.iter().filter(|run| run.id.as_str().starts_with("run-000"));
        assert!(store.list(query).await.unwrap().iter().eq(runs.take(50)));
        let started = std::time::Instant::now();
        let newest = store.read(&line.run, Span::newest(10)).await.unwrap();
        assert_eq!(newest[0].seq, line.head.unwrap().seq);
        println!("the newest of 3001 entries in {:?}", started.elapsed());
        assert_eq!(store.list(RunQuery::default()).await.unwrap(), expected);
        assert_eq!(store.usage().await.unwrap().runs, 10_000);
    });
}

/// The row of a run follows its log, whatever its state.
#[test]
fn times_follow_the_log() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        for status in RunStatus::ALL {
            let mut line = Line::relaxed(status.as_str().replace('_', "-").as_str());
            let mut first = line.next();
            first.index.as_mut().unwrap().status = status;
            store.append(vec![first.clone()]).await.unwrap();
            line.advance(&first);
            line.grow(&store, 2).await;
            let summary = store.summary(&line.run).await.unwrap().unwrap();
            assert_eq!((summary.status, summary.updated_at), (status, Timestamp::from_millis(1002)));
            assert_eq!(summary.created_at, Timestamp::from_millis(1000));
            let listed = store.list(RunQuery { status: vec![status], ..RunQuery::default() }).await.unwrap();
            assert_eq!(listed, [summary]);
        }
    });
}
