//! Servers that vanish, connections that are cut at any message, writers that were overtaken (promises 30 and 32).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use piton_store::conformance::{next, runtime};
use piton_store::{Cursor, Head, Log as _, Span, Store, StoreError};
use piton_store_postgres::{PostgresStore, PostgresUrl};
use piton_testing::postgres::Server;
use piton_testing::{Line, id};
use piton_types::Fence;
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
        SERVER.sql(&format!("UPDATE {name}.meta SET value = '2' WHERE key = 'format'"));
        let url = || PostgresUrl::parse(&SERVER.url(&name)).unwrap();
        let newer = PostgresStore::open(url(), true).await.err().unwrap();
        assert!(matches!(newer, StoreError::TooNew { found: 2, known: 1, .. }), "{newer}");
        SERVER.sql("CREATE ROLE hasty LOGIN PASSWORD 'h'; ALTER ROLE hasty SET synchronous_commit = off");
        let hasty = SERVER.url(&name).replacen(piton_testing::postgres::USER, "hasty", 1);
        let hasty = PostgresUrl::parse(&hasty).unwrap().with_password("h");
        let refused = PostgresStore::open(hasty, true).await.err().unwrap();
        assert!(refused.to_string().contains("synchronous_commit = off"), "{refused}");
    });
}
