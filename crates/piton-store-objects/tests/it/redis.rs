//! A store in a Redis: the suite that every store must pass, servers that end or aren't what they should be, connections
//! that break.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use piton_store::conformance::{Fixture, next, runtime};
use piton_store::{Driver as _, Head, Log as _, Span, Store, StoreError, async_trait};
use piton_store_objects::{ObjectStore, Objects, RedisDriver, RedisObjects, RedisUrl, Secret};
use piton_testing::proxy::Proxy;
use piton_testing::redis::{PASSWORD, RedisServer};
use piton_types::{Durability, Fence};

use crate::support::{Line, id};

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::durable);

/// A store's prefix of a test's own.
pub(crate) fn prefix() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("store-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

async fn connect(url: &str) -> Result<Arc<RedisObjects>, StoreError> {
    RedisObjects::connect(RedisUrl::parse(url).unwrap()).await.map(Arc::new)
}

/// The objects under a prefix.
pub(crate) async fn objects(prefix: &str) -> Arc<dyn Objects> {
    connect(&SERVER.url(prefix)).await.unwrap()
}

async fn open(url: &str) -> Result<ObjectStore, StoreError> {
    ObjectStore::open(connect(url).await?, true).await
}

struct Redis(String);

#[async_trait]
impl Fixture for Redis {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(open(&SERVER.url(&self.0)).await.unwrap())
    }
}

piton_store::conformance!(Redis(prefix()));
piton_log::conformance!(Redis(prefix()));

/// Promise 33: a server that may lose what it acknowledged is refused, unless the URL says that this is accepted; then the
/// store's own URL says it. The same server set to keep everything isn't refused.
#[test]
fn a_server_without_persistence_is_refused() {
    runtime().block_on(async {
        let shown = |store: &ObjectStore| store.url();
        let none = RedisServer::start(&["--appendonly", "no", "--save", ""]);
        for asked in ["", "&durability=full", "&durability=second"] {
            let refused = open(&format!("{}{asked}", none.url("x"))).await.err().unwrap();
            assert!(matches!(refused, StoreError::Invalid { .. }), "{refused}");
            assert!(refused.to_string().contains("appendonly no") && refused.to_string().contains("durability=none"));
            assert_eq!(none.command(&["DBSIZE"]).as_deref(), Some("0"), "nothing was written");
        }
        let accepted = open(&format!("{}&durability=none", none.url("x"))).await.unwrap();
        assert!(shown(&accepted).ends_with("?prefix=x&durability=none"), "{}", shown(&accepted));
        // Set otherwise while it runs.
        none.command(&["CONFIG", "SET", "appendonly", "yes"]).unwrap();
        let refused = open(&none.url("x")).await.err().unwrap();
        assert!(refused.to_string().contains("appendfsync everysec"), "{refused}");
        let second = open(&format!("{}&durability=second", none.url("x"))).await.unwrap();
        assert!(shown(&second).ends_with("&durability=second"));
        none.command(&["CONFIG", "SET", "appendfsync", "always"]).unwrap();
        assert!(shown(&open(&none.url("x")).await.unwrap()).ends_with("?prefix=x"));
        none.command(&["CONFIG", "SET", "maxmemory", "100mb"]).unwrap();
        none.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
        let refused = open(&format!("{}&durability=none", none.url("x"))).await.err().unwrap();
        assert!(refused.to_string().contains("allkeys-lru"), "{refused}");
    });
}

/// The negative control of the refusal: what a server without persistence acknowledged is gone when it ends.
#[test]
fn without_persistence_an_acknowledgement_means_nothing() {
    runtime().block_on(async {
        for (options, is_there) in [
            (&["--appendonly", "no", "--save", ""][..], false),
            (&["--appendonly", "yes", "--appendfsync", "always", "--save", ""], true),
        ] {
            let server = RedisServer::start(options);
            let url = format!("{}&durability=none", server.url("x"));
            Line::new("one").grow(&open(&url).await.unwrap(), 3).await;
            server.kill();
            server.go();
            let head = open(&url).await.unwrap().head(&id("one")).await.unwrap();
            assert_eq!(head.is_some(), is_there, "{options:?}");
        }
    });
}

/// Promise 32: the server is killed again and again while a writer writes, also while it looks what became of its last
/// commit. What was acknowledged is there afterwards, and the writer goes on by itself.
#[test]
fn a_server_that_is_killed_loses_nothing_that_it_acknowledged() {
    let server = RedisServer::durable();
    runtime().block_on(async {
        let store = Arc::new(open(&server.url("killed")).await.unwrap());
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let (failures, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (writing, counted) = (Arc::clone(&store), Arc::clone(&acknowledged));
        let (failed, over) = (Arc::clone(&failures), Arc::clone(&done));
        let writer = tokio::spawn(async move {
            let (run, mut head) = (id("goes-on"), None);
            while !over.load(Ordering::SeqCst) {
                let commit = next(&run, head, 1);
                let after = Head { seq: commit.seq, hash: commit.hash, fence: commit.fence };
                match writing.append(vec![commit]).await {
                    Ok(()) => head = Some(after),
                    Err(error) => {
                        assert!(error.is_retryable(), "{error}");
                        failed.fetch_add(1, Ordering::SeqCst);
                        // As a run's log does: the head tells.
                        while let Err(error) = writing.head(&run).await.map(|now| head = now) {
                            assert!(error.is_retryable(), "{error}");
                        }
                    }
                }
                counted.store(head.map_or(0, |head: Head| head.seq.0 as usize + 1), Ordering::SeqCst);
            }
        });
        // Three times, and until the server ended under some commit.
        let mut round = 0;
        while round < 3 || failures.load(Ordering::SeqCst) == 0 {
            round += 1;
            let enough = acknowledged.load(Ordering::SeqCst) + 30;
            while acknowledged.load(Ordering::SeqCst) < enough {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            server.kill();
            let before = acknowledged.load(Ordering::SeqCst);
            server.go();
            let head = open(&server.url("killed")).await.unwrap().head(&id("goes-on")).await.unwrap().unwrap();
            assert!(head.seq.0 as usize + 1 >= before, "{} of {before}", head.seq.0 + 1);
        }
        done.store(true, Ordering::SeqCst);
        writer.await.unwrap();
        let all = store.read(&id("goes-on"), Span::ALL).await.unwrap().len();
        assert_eq!(all, acknowledged.load(Ordering::SeqCst));
        assert_eq!(store.upkeep().unwrap().inspect().await.unwrap(), []);
    });
}

/// Promise 32: the connection is cut at each message of a commit, in either direction. The commit is there as a whole or
/// not at all, and the writer is told which or that it is unknown.
#[test]
fn a_commit_that_is_cut_at_any_message_is_whole_or_absent() {
    runtime().block_on(async {
        let prefix = prefix();
        let direct = open(&SERVER.url(&prefix)).await.unwrap();
        let (mut cuts, mut lost) = (0, 0);
        for at in 0..10 {
            let proxy = Proxy::start(SERVER.port());
            let store = open(&SERVER.url_at(proxy.port(), &prefix)).await.unwrap();
            let mut line = Line::new(&format!("cut-{at}"));
            line.grow(&store, 2).await;
            proxy.cut_after(at);
            let commit = line.next();
            let appended = store.append(vec![commit.clone()]).await;
            cuts += usize::from(proxy.has_cut());
            let head = direct.head(&line.run).await.unwrap().unwrap();
            match appended {
                Ok(()) => assert_eq!(head, Head { seq: commit.seq, hash: commit.hash, fence: commit.fence }),
                Err(StoreError::Unavailable { .. }) => {
                    lost += 1;
                    assert!(head.seq <= commit.seq, "{at}");
                }
                Err(error) => panic!("{error}"),
            }
            let entries = direct.read(&line.run, Span::ALL).await.unwrap();
            assert_eq!(entries.len() as u32, head.seq.0 + 1, "no gaps");
        }
        println!("{cuts} of 10 commits were cut, of {lost} the writer wasn't told");
        assert!(cuts >= 4 && lost >= 1, "requests and answers were cut");
        assert_eq!(direct.upkeep().unwrap().inspect().await.unwrap(), []);
    });
}

/// Slow answers change nothing but the time. A writer that was overtaken meanwhile commits nothing (promise 30).
#[test]
fn an_overtaken_writer_on_a_slow_line_commits_nothing() {
    runtime().block_on(async {
        let prefix = prefix();
        let proxy = Proxy::start(SERVER.port());
        let slow = open(&SERVER.url_at(proxy.port(), &prefix)).await.unwrap();
        let other = open(&SERVER.url(&prefix)).await.unwrap();
        let mut line = Line::new("taken-over");
        line.grow(&slow, 3).await;
        proxy.set_delay(Duration::from_millis(60));
        line.grow(&slow, 2).await;
        let late = line.next();
        let mut claim = line.next();
        claim.fence = Fence(claim.fence.0 + 1);
        other.append(vec![claim]).await.unwrap();
        assert!(matches!(slow.append(vec![late]).await, Err(StoreError::Fenced { .. })));
        assert_eq!(other.read(&line.run, Span::ALL).await.unwrap().len(), 6);
    });
}

/// A server that is full says so, and has what it had; when there is room again the writer goes on (promise 4).
#[test]
fn a_full_server_keeps_what_it_has() {
    let server = RedisServer::durable();
    runtime().block_on(async {
        let store = open(&server.url("full")).await.unwrap();
        let mut line = Line::new("one");
        line.grow(&store, 3).await;
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        let refused = store.append(vec![line.next()]).await;
        assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
        assert_eq!(store.read(&line.run, Span::ALL).await.unwrap().len(), 3);
        server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        line.grow(&store, 1).await;
        assert_eq!(store.read(&line.run, Span::ALL).await.unwrap().len(), 4);
    });
}

/// A cluster has the keys of a store on one node: all have its hash tag, whatever the names of runs are (promise 22).
#[test]
fn every_key_has_the_tag_of_its_store() {
    let server = RedisServer::durable();
    runtime().block_on(async {
        let store = open(&server.url("tagged")).await.unwrap();
        for run in ["one", "Two", "a.b", "c_d-e"] {
            Line::new(run).grow(&store, 2).await;
        }
        for key in ["{other}", "a b", "../../x", "a\u{202e}*\0\n", "'; DROP", "<script>", &"x".repeat(300)] {
            store.upkeep().unwrap().set_note(key, Some("note".into())).await.unwrap();
            assert_eq!(store.upkeep().unwrap().note(key).await.unwrap(), Some("note".into()));
        }
        let count = server.command(&["DBSIZE"]).unwrap();
        let tagged = server.command(&["EVAL", "return #redis.call('KEYS', '{tagged}:*')", "0"]).unwrap();
        assert_eq!(count, tagged);
        assert!(count.parse::<u32>().unwrap() > 15, "{count}");
    });
}

/// Promise 26: no error and nothing that is shown tells the password, wherever it came from.
#[test]
fn no_error_tells_the_password() {
    runtime().block_on(async {
        let prefix = prefix();
        let place = format!("//127.0.0.1:{}/0?prefix={prefix}", SERVER.port());
        let driver = |password: Option<&str>| RedisDriver {
            secure: false,
            create: true,
            password: password.map(|password| Secret(password.to_owned())),
        };
        let store = driver(Some(PASSWORD)).open(&place).await.unwrap();
        let mut texts =
            vec![store.url(), format!("{:?} {:?}", driver(Some(PASSWORD)), connect(&SERVER.url(&prefix)).await)];
        let missing = driver(None).open(&place).await.err().unwrap();
        assert!(matches!(missing, StoreError::Denied { .. }), "{missing}");
        let wrong = driver(Some("r3dis+other")).open(&place).await.err().unwrap();
        assert!(matches!(wrong, StoreError::Denied { .. }), "{wrong}");
        texts.extend([format!("{wrong} {wrong:?}").replace("r3dis+other", PASSWORD)]);
        let gone = driver(Some(PASSWORD)).open("//127.0.0.1:1/0").await.err().unwrap();
        assert!(gone.is_retryable(), "{gone}");
        texts.push(format!("{gone} {gone:?}"));
        for text in texts {
            assert!(!text.contains(PASSWORD), "{text}");
        }
    });
}

/// A database that holds something else isn't taken for a store, and beside it there is room for one.
#[test]
fn what_lies_beside_is_left_alone() {
    let server = RedisServer::durable();
    runtime().block_on(async {
        server.command(&["SET", "theirs", "1"]).unwrap();
        assert!(open(&server.url("mine")).await.is_ok());
        let foreign = connect(&server.url("other")).await.unwrap();
        foreign.create("other.txt", "theirs".into(), Durability::Durable).await.unwrap();
        assert!(matches!(open(&server.url("other")).await.err(), Some(StoreError::Invalid { .. })));
        assert_eq!(server.command(&["GET", "theirs"]).as_deref(), Some("1"));
    });
}
