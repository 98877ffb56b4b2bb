//! Servers that vanish, connections that are cut at any message, writers that were overtaken (promises 30 and 32).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use piton_log::{Draft, NewRun, RunLog};
use piton_store::conformance::{next, runtime};
use piton_store::{Cursor, Head, Log as _, Span, Store, StoreError};
use piton_store_postgres::{PostgresStore, PostgresUrl};
use piton_testing::postgres::Server;
use piton_testing::{Line, id};
use piton_types::{EntryKind, Fence, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{SERVER, open, schema};

/// Passes messages on between clients and the server, and cuts the connection at a chosen one.
struct Proxy {
    address: SocketAddr,
    /// How many messages pass until a cut; `usize::MAX` for never.
    left: Arc<AtomicUsize>,
}

impl Proxy {
    async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let counted = Arc::clone(&left);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                tokio::spawn(pass(client, server, Arc::clone(&counted)));
            }
        });
        Self { address, left }
    }
}

/// Passes what comes from either side on, piece by piece, until the count is used up.
async fn pass(mut client: TcpStream, mut server: TcpStream, left: Arc<AtomicUsize>) {
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let (read, to) = tokio::select! {
            read = client.read(&mut up) => (read.map(|length| &up[..length]), &mut server),
            read = server.read(&mut down) => (read.map(|length| &down[..length]), &mut client),
        };
        let Ok(piece) = read else { return };
        let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            usize::MAX => Some(usize::MAX),
            left => Some(left.saturating_sub(1)),
        });
        if before == Ok(0) {
            // Once: the next connection lives.
            left.store(usize::MAX, Ordering::SeqCst);
            return;
        }
        if piece.is_empty() || to.write_all(piece).await.is_err() {
            return;
        }
    }
}

/// Promise 32: the connection is cut at each message of a commit, in either direction. Each commit is there as a whole or not at
/// all, and the writer is told which.
#[test]
fn a_commit_that_is_cut_at_any_message_is_whole_or_absent() {
    runtime().block_on(async {
        let schema = schema();
        let direct = open(&SERVER.url(&schema)).await;
        let mut cuts = 0;
        for at in 0..12 {
            let proxy = Proxy::start(SERVER.port()).await;
            let store = open(&SERVER.url_at(proxy.address.port(), &schema)).await;
            let mut line = Line::new(&format!("cut-{at}"));
            line.grow(&store, 2).await;
            proxy.left.store(at, Ordering::SeqCst);
            let commit = line.next();
            let appended = store.append(vec![commit.clone()]).await;
            cuts += usize::from(proxy.left.load(Ordering::SeqCst) == usize::MAX);
            let head = direct.head(&line.run).await.unwrap().unwrap();
            match appended {
                Ok(()) => assert_eq!(head, Head { seq: commit.seq, hash: commit.hash, fence: commit.fence }),
                Err(StoreError::Unavailable { .. }) => assert!(head.seq <= commit.seq),
                Err(error) => panic!("{error}"),
            }
            let entries = direct.read(&line.run, Span::ALL).await.unwrap();
            assert_eq!(entries.len() as u32, head.seq.0 + 1, "no gaps");
        }
        println!("{cuts} of 12 commits were cut");
        assert!(cuts >= 2, "the request and the answer were cut");
    });
}

/// Promise 32: the server is killed again and again while a writer writes. What was acknowledged is there afterwards, and the writer
/// goes on by itself.
#[test]
fn a_server_that_is_killed_loses_nothing_that_it_acknowledged() {
    let server = Server::start();
    runtime().block_on(async {
        let store = Arc::new(open(&server.url("killed")).await);
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let (writing, counted) = (Arc::clone(&store), Arc::clone(&acknowledged));
        let writer = tokio::spawn(async move {
            let run = id("goes-on");
            let mut head = None;
            while counted.load(Ordering::SeqCst) < 150 {
                let commit = next(&run, head, 1);
                let after = Head { seq: commit.seq, hash: commit.hash, fence: commit.fence };
                match writing.append(vec![commit]).await {
                    Ok(()) => head = Some(after),
                    Err(StoreError::Unavailable { .. }) => {
                        // As a run's log does: the head tells.
                        while let Err(error) = writing.head(&run).await.map(|now| head = now) {
                            assert!(error.is_retryable(), "{error}");
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
                counted.store(head.map_or(0, |head: Head| head.seq.0 as usize + 1), Ordering::SeqCst);
            }
        });
        for round in 1..3 {
            while acknowledged.load(Ordering::SeqCst) < round * 40 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            server.kill();
            let before = acknowledged.load(Ordering::SeqCst);
            server.go();
            let head = open(&server.url("killed")).await.head(&id("goes-on")).await.unwrap().unwrap();
            assert!(head.seq.0 as usize + 1 >= before, "{} of {before}", head.seq.0 + 1);
        }
        writer.await.unwrap();
        assert_eq!(store.read(&id("goes-on"), Span::ALL).await.unwrap().len(), 150);
        assert_eq!(store.upkeep().unwrap().inspect().await.unwrap(), []);
    });
}

/// Promise 30: a writer that was frozen while another one took its run over can't commit, whatever it still has on the way.
#[test]
fn an_overtaken_writer_commits_nothing() {
    runtime().block_on(async {
        let url = SERVER.url(&schema());
        let (frozen, other) = (open(&url).await, open(&url).await);
        let mut line = Line::new("taken-over");
        line.grow(&frozen, 3).await;
        let late = line.next();
        let mut claim = line.next();
        claim.fence = Fence(claim.fence.0 + 1);
        other.append(vec![claim]).await.unwrap();
        assert!(matches!(frozen.append(vec![late]).await, Err(StoreError::Fenced { .. })));
        assert_eq!(other.read(&line.run, Span::ALL).await.unwrap().len(), 4);
    });
}

/// Appends beside each other end in any order, and a reader of changes misses none.
#[test]
fn no_change_is_missed_beside_many_writers() {
    runtime().block_on(async {
        let url = SERVER.url(&schema());
        let reader = open(&url).await;
        let writers: Vec<_> = (0..6)
            .map(|n| {
                let url = url.clone();
                tokio::spawn(async move {
                    let store = open(&url).await;
                    for round in 0..20 {
                        Line::new(&format!("w{n}-{round}")).grow(&store, 2).await;
                    }
                })
            })
            .collect();
        let (mut seen, mut cursor) = (std::collections::BTreeSet::new(), Cursor::default());
        let changes = reader.changes().unwrap();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let (runs, next) = changes.changed(cursor, 5).await.unwrap();
            seen.extend(runs);
            cursor = next;
        }
        for writer in writers {
            writer.await.unwrap();
        }
        loop {
            let (runs, next) = changes.changed(cursor, 50).await.unwrap();
            if runs.is_empty() {
                break;
            }
            seen.extend(runs);
            cursor = next;
        }
        assert_eq!(seen.len(), 120);
    });
}

/// A newer schema, and a server that acknowledges what it may lose, are refused.
#[test]
fn what_does_not_suit_is_refused() {
    runtime().block_on(async {
        let name = schema();
        open(&SERVER.url(&name)).await;
        SERVER.sql(&format!("UPDATE {name}.meta SET value = '4' WHERE key = 'format'"));
        let url = || PostgresUrl::parse(&SERVER.url(&name)).unwrap();
        let newer = PostgresStore::open(url(), true).await.err().unwrap();
        assert!(matches!(newer, StoreError::TooNew { found: 4, known: 3, .. }), "{newer}");
        SERVER.sql("CREATE ROLE hasty LOGIN PASSWORD 'h'; ALTER ROLE hasty SET synchronous_commit = off");
        let hasty = SERVER.url(&name).replacen(piton_testing::postgres::USER, "hasty", 1);
        let hasty = PostgresUrl::parse(&hasty).unwrap().with_password("h");
        let refused = PostgresStore::open(hasty, true).await.err().unwrap();
        assert!(refused.to_string().contains("synchronous_commit = off"), "{refused}");
    });
}

/// Appends again and again, as a run's log does: what is unclear is asked, what can't be reached is waited for. Gives how often an
/// append failed.
async fn write_on(store: &PostgresStore, run: &str, entries: u32, size: usize) -> usize {
    let run = id(run);
    let (mut head, mut failed) = (None::<Head>, 0);
    while head.is_none_or(|head| head.seq.0 + 1 < entries) {
        let mut commit = next(&run, head, 1);
        commit.pack = vec![7; size].into();
        let after = Head { seq: commit.seq, hash: commit.hash, fence: commit.fence };
        match store.append(vec![commit]).await {
            Ok(()) => head = Some(after),
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                failed += 1;
                loop {
                    match store.head(&run).await {
                        Ok(now) => {
                            assert!(
                                now.map(|now| now.seq) >= head.map(|head| head.seq),
                                "what was acknowledged is there"
                            );
                            head = now;
                            break;
                        }
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
    failed
}

/// Promise 32: the server is killed while it recovers from having been killed, again and again. All that it acknowledged is there
/// in the end.
#[test]
fn a_server_that_is_killed_in_its_recovery_loses_nothing() {
    let server = Server::start();
    runtime().block_on(async {
        let store = open(&server.url("recovers")).await;
        for round in 1..4 {
            // Some megabytes to go through in the recovery.
            write_on(&store, &format!("r{round}"), 60, 50_000).await;
            server.kill();
            for after in [5, 40, 120, 400] {
                server.recover_and_kill(after * round);
            }
            server.go();
            for before in 1..=round {
                let entries = store.read(&id(&format!("r{before}")), Span { packs: true, ..Span::ALL }).await.unwrap();
                assert!(entries.len() == 60 && entries.iter().all(|entry| entry.pack == vec![7; 50_000]));
            }
        }
        assert_eq!(store.upkeep().unwrap().inspect().await.unwrap(), []);
    });
}

/// A server without a connection left, and many callers of one handle, which has few: each waits for its turn or is told that
/// there is none now, and all go on. With connections enough no caller is told so.
#[test]
fn callers_wait_for_connections_and_lose_nothing() {
    // Three of them are kept for the administrator.
    let server = Server::start_for(9);
    runtime().block_on(async {
        let schema = "crowded";
        open(&server.url(schema)).await;
        let crowd = |handles: usize, url: String| async move {
            let mut tasks = Vec::new();
            for handle in 0..handles {
                let store = loop {
                    match PostgresStore::open(PostgresUrl::parse(&url).unwrap(), true).await {
                        Ok(store) => break Arc::new(store),
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                };
                for n in 0..16 {
                    let store = Arc::clone(&store);
                    tasks.push(tokio::spawn(async move { write_on(&store, &format!("h{handle}-{n}"), 5, 10).await }));
                }
            }
            let mut failed = 0;
            for task in tasks {
                failed += task.await.unwrap();
            }
            failed
        };
        assert_eq!(crowd(1, SERVER.url(&crate::support::schema())).await, 0, "the control: there is room");
        let failed = crowd(4, server.url(schema)).await;
        println!("{failed} appends were told that the server has no connection left");
        let store = open(&server.url(schema)).await;
        assert_eq!(store.usage().await.unwrap().runs, 64);
        assert_eq!(store.upkeep().unwrap().inspect().await.unwrap(), []);
    });
}

/// Slow answers change nothing but the time, and a writer that was overtaken behind a slow line commits nothing (promise 30).
#[test]
fn an_overtaken_writer_on_a_slow_line_commits_nothing() {
    runtime().block_on(async {
        let schema = schema();
        let proxy = piton_testing::proxy::Proxy::start(SERVER.port());
        let slow = open(&SERVER.url_at(proxy.port(), &schema)).await;
        let other = open(&SERVER.url(&schema)).await;
        let mut line = Line::new("slow");
        line.grow(&slow, 3).await;
        proxy.set_delay(Duration::from_millis(150));
        line.grow(&slow, 3).await;
        let late = line.next();
        let mut claim = line.next();
        claim.fence = Fence(claim.fence.0 + 1);
        other.append(vec![claim]).await.unwrap();
        let overtaken = slow.append(vec![late]).await;
        assert!(matches!(overtaken, Err(StoreError::Fenced { .. })), "{overtaken:?}");
        assert_eq!(other.read(&line.run, Span::ALL).await.unwrap().len(), 7);
    });
}

/// A primary whose last second is lost, as when a standby takes over that lacks it. That what was acknowledged is gone is accepted and
/// documented; the writer is told at its next append, no entry of the two histories is mixed, and it can go on from what is there.
#[test]
fn a_server_that_loses_its_last_second_is_found_out() {
    let server = Server::start();
    runtime().block_on(async {
        let store: Arc<dyn Store> = Arc::new(open(&server.url("lost")).await);
        let mut line = Line::new("run");
        line.grow(&*store, 5).await;
        let draft = |at| Draft::new(EntryKind::Checkpoint, Timestamp::from_millis(at));
        let mut log =
            RunLog::create(Arc::clone(&store), NewRun::new(id("log"), Timestamp::from_millis(1))).await.unwrap();
        server.kill();
        server.remember();
        server.go();
        line.grow(&*store, 4).await;
        for _ in 0..3 {
            log.append(draft(5)).await.unwrap();
        }
        Line::new("newer").grow(&*store, 2).await;
        server.kill();
        server.fall_back();
        server.go();
        let told = store.append(vec![line.next()]).await;
        let Err(StoreError::Conflict { head: Some(head), .. }) = told else { panic!("{told:?}") };
        assert_eq!(head.seq.0, 4, "the one that is there");
        assert_eq!(store.head(&id("newer")).await.unwrap(), None);
        let before = next(&line.run, Some(head), 77);
        store.append(vec![before]).await.unwrap();
        assert_eq!(store.read(&line.run, Span::ALL).await.unwrap().len(), 6);
        // Another writer goes on from there, past where the first one was: that doesn't take the other's entries for its own future.
        let mut other = RunLog::open(Arc::clone(&store), &id("log")).await.unwrap();
        for _ in 0..5 {
            other.append(draft(6)).await.unwrap();
        }
        let told = log.append(draft(7)).await;
        assert!(matches!(told, Err(StoreError::Conflict { .. })), "{told:?}");
        let told = log.refresh().await;
        assert!(matches!(told, Err(StoreError::Conflict { .. })), "{told:?}");
        assert_eq!(other.refresh().await.unwrap().len(), 0, "what didn't lose anything reads on");
        assert_eq!(store.upkeep().unwrap().inspect().await.unwrap(), []);
        // The control: a restart that loses nothing is no reason for a conflict.
        let mut line = Line::new("control");
        line.grow(&*store, 2).await;
        server.kill();
        server.go();
        line.grow(&*store, 1).await;
    });
}

/// The disk of the server is full: the writer is told so, nothing of it is there, reading goes on, and so does writing once there is
/// room.
#[test]
fn a_full_disk_of_the_server_is_told_and_survived() {
    let server = Server::start();
    let disk = piton_testing::scratch::tiny_tmpfs(6 << 20);
    server.give(disk.path());
    server.sql(&format!("CREATE TABLESPACE tiny LOCATION '{}'", disk.path().display()));
    server.sql("ALTER ROLE piton SET default_tablespace = tiny");
    runtime().block_on(async {
        let store = open(&server.url("full")).await;
        let run = id("grows");
        let mut head = None::<Head>;
        let full = loop {
            let mut commit = next(&run, head, 1);
            // It can't be compressed.
            let seed = u64::from(commit.seq.0);
            commit.pack = random(200_000, seed).into();
            let after = Head { seq: commit.seq, hash: commit.hash, fence: commit.fence };
            match store.append(vec![commit]).await {
                Ok(()) => head = Some(after),
                Err(error) => break error,
            }
            assert!(seed < 100, "six mebibytes hold no twenty");
        };
        assert!(matches!(full, StoreError::Full { .. }), "{full}");
        assert_eq!(store.head(&run).await.unwrap(), head, "nothing of it is there");
        let entries = store.read(&run, Span { packs: true, ..Span::ALL }).await.unwrap();
        assert_eq!(entries.len() as u32, head.unwrap().seq.0 + 1);
        disk.resize(64 << 20);
        let commit = next(&run, head, 2);
        store.append(vec![commit]).await.unwrap();
        assert_eq!(store.upkeep().unwrap().inspect().await.unwrap(), []);
        store.close().await.unwrap();
    });
    drop(server);
}

fn random(size: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; size];
    piton_types::Random::fill(&piton_testing::SeededRandom::new(seed), &mut bytes);
    bytes
}
