//! The index of runs: listing, paging, leases.

use piton_types::{Fence, RunKind, RunStatus, Timestamp};

use super::{Fixture, grow, holder, next, run_id, summary};
use crate::{Head, RunQuery, StoreError};

/// Newest first, by when the log last grew, also for runs whose index row was not rewritten.
pub async fn runs_are_listed_newest_first(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    for (name, at) in [("b", 20), ("c", 30), ("a", 10)] {
        store.append(vec![next(&run_id(name), None, at)]).await.unwrap();
    }
    let order = |runs: Vec<piton_types::RunSummary>| {
        runs.into_iter().map(|run| (run.id.to_string(), run.updated_at.as_millis())).collect::<Vec<_>>()
    };
    let all = || async { order(store.list(RunQuery::default()).await.unwrap()) };
    assert_eq!(all().await, [("c".into(), 30), ("b".into(), 20), ("a".into(), 10)]);
    let grown = next(&run_id("a"), store.head(&run_id("a")).await.unwrap(), 40);
    store.append(vec![grown]).await.unwrap();
    assert_eq!(all().await, [("a".into(), 40), ("c".into(), 30), ("b".into(), 20)]);
    assert_eq!(store.summary(&run_id("a")).await.unwrap().unwrap().updated_at, Timestamp::from_millis(40));
    let tied = next(&run_id("d"), None, 30);
    store.append(vec![tied]).await.unwrap();
    assert_eq!(all().await, [("a".into(), 40), ("d".into(), 30), ("c".into(), 30), ("b".into(), 20)]);
}

/// Filters by state, and a state that changes moves the run.
pub async fn runs_are_listed_by_status(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    for (n, status) in RunStatus::ALL.into_iter().enumerate() {
        let run = run_id(&format!("run-{status}"));
        let mut commit = next(&run, None, i64::try_from(n).unwrap());
        commit.index = Some(summary(&run, status, i64::try_from(n).unwrap()));
        store.append(vec![commit]).await.unwrap();
    }
    for status in RunStatus::ALL {
        let found = store.list(RunQuery { status: vec![status], ..RunQuery::default() }).await.unwrap();
        assert_eq!(found.iter().map(|run| run.id.to_string()).collect::<Vec<_>>(), [format!("run-{status}")]);
        assert_eq!(found[0].status, status);
    }
    let run = run_id("run-in_progress");
    let mut commit = next(&run, store.head(&run).await.unwrap(), 99);
    commit.index = Some(summary(&run, RunStatus::Completed, 99));
    store.append(vec![commit]).await.unwrap();
    let both = RunQuery { status: vec![RunStatus::InProgress, RunStatus::Completed], ..RunQuery::default() };
    let found = store.list(both).await.unwrap();
    assert_eq!(found.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["run-in_progress", "run-completed"]);
    assert!(found.iter().all(|run| run.status == RunStatus::Completed));
    // An entry that leaves the row alone still counts as activity of a run that had ended.
    let after = next(&run_id("run-failed"), store.head(&run_id("run-failed")).await.unwrap(), 120);
    store.append(vec![after]).await.unwrap();
    assert_eq!(
        store.list(RunQuery { limit: Some(1), ..RunQuery::default() }).await.unwrap()[0].id.as_str(),
        "run-failed"
    );
}

/// Filters by folder, whatever else is asked for, and pages go on within the filter.
pub async fn runs_are_listed_by_folder(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    for n in 0..12_i64 {
        let run = run_id(&format!("f{n:02}"));
        let mut row = summary(&run, if n % 2 == 0 { RunStatus::InProgress } else { RunStatus::Failed }, n);
        row.folder = [None, Some("/a"), Some("/a/b"), Some("/A")][usize::try_from(n % 4).unwrap()].map(str::to_owned);
        let mut commit = next(&run, None, n);
        commit.index = Some(row);
        store.append(vec![commit]).await.unwrap();
    }
    let list = async |folders: &[&str], query: RunQuery| {
        let folders = folders.iter().map(|folder| (*folder).to_owned()).collect();
        let found = store.list(RunQuery { folders, ..query }).await.unwrap();
        found.iter().map(|run| run.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list(&["/a"], RunQuery::default()).await, ["f09", "f05", "f01"]);
    assert_eq!(list(&["/a", "/a/b", "/a"], RunQuery::default()).await, ["f10", "f09", "f06", "f05", "f02", "f01"]);
    let failed = RunQuery { status: vec![RunStatus::Failed], limit: Some(3), ..RunQuery::default() };
    assert_eq!(list(&["/a", "/A"], failed).await, ["f11", "f09", "f07"]);
    let behind = RunQuery {
        after: Some((Timestamp::from_millis(6), run_id("f06"))),
        limit: Some(2),
        id_prefix: "f0".to_owned(),
        ..RunQuery::default()
    };
    assert_eq!(list(&["/a/b", "/a"], behind).await, ["f05", "f02"]);
    assert!(list(&["/", "%"], RunQuery::default()).await.is_empty());
}

/// Filters by kind, text and time, together with each other, and pages go on within the filter.
pub async fn runs_are_listed_by_kind_text_and_time(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let kinds = [RunKind::Steps, RunKind::Workflow, RunKind::Guard];
    for n in 0..12_i64 {
        let run = run_id(&format!("k{n:02}"));
        let mut row = summary(&run, RunStatus::Completed, n);
        row.kind = kinds[usize::try_from(n % 3).unwrap()];
        row.name = ["Nightly Build", "100% of it", "a_b"][usize::try_from(n % 4 % 3).unwrap()].to_owned();
        let mut commit = next(&run, None, n);
        commit.index = Some(row);
        store.append(vec![commit]).await.unwrap();
    }
    let list = async |query: RunQuery| {
        let found = store.list(query).await.unwrap();
        found.iter().map(|run| run.id.to_string()).collect::<Vec<_>>()
    };
    let of = |kinds: &[RunKind], text: &str| RunQuery {
        kinds: kinds.to_vec(),
        text: text.to_owned(),
        ..RunQuery::default()
    };
    assert_eq!(list(of(&[RunKind::Guard], "")).await, ["k11", "k08", "k05", "k02"]);
    assert_eq!(list(of(&[], "BUILD")).await, ["k11", "k08", "k07", "k04", "k03", "k00"]);
    assert_eq!(list(of(&[], "0%")).await, ["k09", "k05", "k01"]);
    assert_eq!(list(of(&[], "_")).await, ["k10", "k06", "k02"]);
    assert_eq!(list(of(&[], "K1")).await, ["k11", "k10"], "ids too");
    assert!(list(of(&[], "%b%")).await.is_empty());
    let first = RunQuery { limit: Some(1), ..of(&[RunKind::Guard, RunKind::Workflow], "night") };
    assert_eq!(list(first.clone()).await, ["k11"]);
    let after = Some((Timestamp::from_millis(11), run_id("k11")));
    assert_eq!(list(RunQuery { after, limit: Some(2), ..first }).await, ["k08", "k07"]);
    let since = Some(Timestamp::from_millis(5));
    assert_eq!(list(RunQuery { since, ..of(&[RunKind::Guard], "") }).await, ["k11", "k08", "k05"]);
    assert_eq!(list(RunQuery { since, id_prefix: "k0".to_owned(), ..of(&[], "build") }).await, ["k08", "k07"]);
}

/// Filters by labels, all of which a run must have, and by a time with both ends; what labels a run has may change.
pub async fn runs_are_listed_by_label_and_between_times(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    for n in 0..12_i64 {
        let run = run_id(&format!("l{n:02}"));
        let mut row = summary(&run, if n % 2 == 0 { RunStatus::InProgress } else { RunStatus::Failed }, n);
        let labels = [("night", 2), ("it's \"100%\"", 3), ("", 6)];
        row.labels = labels.into_iter().filter(|(_, each)| n % each == 0).map(|(label, _)| label.to_owned()).collect();
        let mut commit = next(&run, None, n);
        commit.index = Some(row.clone());
        store.append(vec![commit]).await.unwrap();
        assert_eq!(store.summary(&run).await.unwrap(), Some(row));
    }
    let list = async |labels: &[&str], query: RunQuery| {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let found = store.list(RunQuery { labels, ..query }).await.unwrap();
        found.iter().map(|run| run.id.to_string()).collect::<Vec<_>>()
    };
    let all = RunQuery::default;
    assert_eq!(list(&["night"], all()).await, ["l10", "l08", "l06", "l04", "l02", "l00"]);
    assert_eq!(list(&["night", "it's \"100%\""], all()).await, ["l06", "l00"]);
    assert_eq!(list(&[""], all()).await, ["l06", "l00"]);
    assert!(list(&["nigh"], all()).await.is_empty() && list(&["NIGHT"], all()).await.is_empty());
    let failed = RunQuery { status: vec![RunStatus::Failed], ..all() };
    assert_eq!(list(&["it's \"100%\""], failed).await, ["l09", "l03"]);
    assert_eq!(list(&["night"], RunQuery { id_prefix: "l0".into(), limit: Some(2), ..all() }).await, ["l08", "l06"]);
    let after = Some((Timestamp::from_millis(8), run_id("l08")));
    assert_eq!(list(&["night"], RunQuery { after, limit: Some(2), ..all() }).await, ["l06", "l04"]);
    let (since, until) = (Some(Timestamp::from_millis(4)), Some(Timestamp::from_millis(8)));
    assert_eq!(list(&[], RunQuery { since, until, ..all() }).await, ["l07", "l06", "l05", "l04"]);
    assert_eq!(list(&["night"], RunQuery { since, until, ..all() }).await, ["l06", "l04"]);
    let folders = vec!["/some/folder".to_owned()];
    assert_eq!(list(&["night"], RunQuery { until: since, folders, ..all() }).await, ["l02", "l00"]);

    // An entry that leaves the row alone moves the run in these lists too; one that changes it may take labels away.
    let moved = next(&run_id("l02"), store.head(&run_id("l02")).await.unwrap(), 20);
    store.append(vec![moved]).await.unwrap();
    let mut changed = next(&run_id("l04"), store.head(&run_id("l04")).await.unwrap(), 21);
    let mut row = summary(&run_id("l04"), RunStatus::Failed, 21);
    row.labels = ["day".to_owned()].into();
    changed.index = Some(row);
    store.append(vec![changed]).await.unwrap();
    assert_eq!(list(&["night"], RunQuery { limit: Some(3), ..all() }).await, ["l02", "l10", "l08"]);
    assert_eq!(list(&["day"], all()).await, ["l04"]);
}

/// Pages cover everything once, whatever their size.
pub async fn runs_are_listed_in_pages(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    for n in 0..23_i64 {
        let run = run_id(&format!("p{n:02}"));
        let mut commit = next(&run, None, n / 3);
        let status = if n % 2 == 0 { RunStatus::InProgress } else { RunStatus::Paused };
        commit.index = Some(summary(&run, status, n / 3));
        store.append(vec![commit]).await.unwrap();
    }
    let all = store.list(RunQuery::default()).await.unwrap();
    assert_eq!(all.len(), 23);
    for size in [1, 4, 22, 23, 50] {
        let mut paged = Vec::new();
        loop {
            let after = paged.last().map(|run: &piton_types::RunSummary| (run.updated_at, run.id.clone()));
            let page = store.list(RunQuery { after, limit: Some(size), ..RunQuery::default() }).await.unwrap();
            assert!(page.len() <= size);
            if page.is_empty() {
                break;
            }
            paged.extend(page);
        }
        assert_eq!(paged, all, "pages of {size}");
    }
    let found = store.list(RunQuery { id_prefix: "p1".into(), ..RunQuery::default() }).await.unwrap();
    assert_eq!(found.len(), 10);
}

/// Promise 22: texts from users are never part of a command, a pattern or a path.
pub async fn hostile_texts_are_only_texts(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let long = "x".repeat(300);
    let hostile = [
        "",
        "../../x",
        "a\0b",
        "a\nb",
        "'; DROP TABLE run; --",
        "*",
        "%",
        "_",
        "-rf",
        "<script>",
        "\u{202e}",
        "\"",
        "\\",
        &long,
    ];
    let mut head: Option<Head> = None;
    let run = run_id("hostile");
    for text in hostile {
        let mut commit = next(&run, head, 1);
        let mut row = summary(&run, RunStatus::InProgress, 1);
        row.name = text.to_owned();
        row.folder = Some(text.to_owned());
        row.labels = [text.to_owned()].into();
        commit.index = Some(row.clone());
        head = Some(Head { seq: commit.seq, hash: commit.hash, fence: commit.fence });
        store.append(vec![commit]).await.unwrap();
        assert_eq!(store.summary(&run).await.unwrap(), Some(row));
        let found = store.list(RunQuery { id_prefix: text.to_owned(), ..RunQuery::default() }).await.unwrap();
        assert_eq!(found.len(), usize::from(text.is_empty()), "{text:?} as a prefix");
        let labels = [text.to_owned()].into();
        let found = store.list(RunQuery { labels, text: text.to_owned(), ..RunQuery::default() }).await.unwrap();
        assert_eq!(found.len(), 1, "{text:?} as a label and in a name");
    }
    assert_eq!(store.list(RunQuery::default()).await.unwrap().len(), 1);
}

/// Signs of life are counted, and a taken-over holder's are refused.
pub async fn leases_count_beats_and_fence(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let run = run_id("leased");
    let unknown = store.beat(&run, Fence(1), &holder()).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { .. })), "{unknown:?}");
    grow(&*store, &run, 1).await;
    assert_eq!(store.lease(&run).await.unwrap(), None);
    let first = store.beat(&run, Fence(1), &holder()).await.unwrap();
    let second = store.beat(&run, Fence(1), &holder()).await.unwrap();
    assert!(second > first);
    let lease = store.lease(&run).await.unwrap().unwrap();
    assert_eq!((lease.fence, lease.holder, lease.beat), (Fence(1), holder(), second));

    let mut other = holder();
    other.pid = 8;
    store.beat(&run, Fence(2), &other).await.unwrap();
    let stale = store.beat(&run, Fence(1), &holder()).await;
    assert!(matches!(stale, Err(StoreError::Fenced { current: Fence(2), .. })), "{stale:?}");
    store.release(&run, Fence(1)).await.unwrap();
    assert_eq!(store.lease(&run).await.unwrap().unwrap().holder, other, "only the holder lets go");
    store.release(&run, Fence(2)).await.unwrap();
    assert_eq!(store.lease(&run).await.unwrap(), None);

    let mut takeover = next(&run, store.head(&run).await.unwrap(), 9);
    takeover.fence = Fence(9);
    store.append(vec![takeover]).await.unwrap();
    let stale = store.beat(&run, Fence(2), &other).await;
    assert!(matches!(stale, Err(StoreError::Fenced { current: Fence(9), .. })), "the log fences too: {stale:?}");
}
