//! A store in S3, as moto's server speaks it: the suite that every store must pass, connections that break, a server that
//! ignores conditions, credentials that must not be told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use piton_store::conformance::{Fixture, next, runtime};
use piton_store::{Blobs as _, Driver as _, Head, Log as _, PackId, Pin, Span, Store, StoreError, async_trait};
use piton_store_objects::{CloudDriver, CloudKind, CloudObjects, CloudPlace, ObjectStore, Objects, Part};
use piton_testing::proxy::Proxy;
use piton_testing::s3::{BUCKET, KEY, S3Server};
use piton_types::{Durability, Fence};

use crate::support::{Line, id};

static SERVER: LazyLock<S3Server> = LazyLock::new(S3Server::start);

/// A place of a test's own in the bucket.
pub(crate) fn prefix() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("store-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

fn driver(port: u16) -> CloudDriver {
    let settings = S3Server::settings_at(port).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    CloudDriver { kind: CloudKind::S3, create: true, settings }
}

fn objects_at(port: u16, prefix: &str) -> Result<Arc<CloudObjects>, StoreError> {
    let place = CloudPlace::parse(&format!("s3://{BUCKET}/{prefix}"), &driver(port).settings)?;
    CloudObjects::new(place).map(Arc::new)
}

/// The objects under a prefix.
pub(crate) fn objects(prefix: &str) -> Arc<dyn Objects> {
    objects_at(SERVER.port(), prefix).unwrap()
}

async fn open_at(port: u16, prefix: &str) -> Result<ObjectStore, StoreError> {
    ObjectStore::open(objects_at(port, prefix)?, true).await
}

struct S3(String);

#[async_trait]
impl Fixture for S3 {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(open_at(SERVER.port(), &self.0).await.unwrap())
    }
}

piton_store::conformance!(S3(prefix()));
piton_log::conformance!(S3(prefix()));

/// A name that an object would have, on other clouds too, isn't another place's: two prefixes that begin alike are two
/// stores.
#[test]
fn a_url_opens_a_store_of_its_own() {
    runtime().block_on(async {
        let driver = driver(SERVER.port());
        let (one, two) = (prefix(), prefix());
        let (one, two) = (format!("{one}/team"), format!("{two}/team-2"));
        let open = async |prefix: &str| driver.open(&format!("//{BUCKET}/{prefix}")).await;
        let [first, other] = [open(&one).await.unwrap(), open(&two).await.unwrap()];
        Line::new("one").grow(&*first, 1).await;
        assert!(first.head(&id("one")).await.unwrap().is_some() && other.head(&id("one")).await.unwrap().is_none());
        assert_eq!(first.url(), format!("s3://{BUCKET}/{one}"));
        assert!(first.capabilities().shared && first.capabilities().persistent);
        let closed = CloudDriver { create: false, ..driver.clone() };
        let missing = closed.open(&format!("//{BUCKET}/{}", prefix())).await.err().unwrap();
        assert!(matches!(missing, StoreError::NotFound { .. }), "{missing}");
        let missing = driver.open("//no-such-bucket/x").await.err().unwrap();
        assert!(missing.to_string().contains("bucket of s3://no-such-bucket/x"), "{missing}");
        // What is no store is left as it is.
        let foreign = prefix();
        objects(&foreign).create("other.txt", "theirs".into(), Durability::Durable).await.unwrap();
        assert!(matches!(open(&foreign).await.err(), Some(StoreError::Invalid { .. })));
        assert_eq!(objects(&foreign).list("", None, 9).await.unwrap().len(), 1);
    });
}

/// Promise 33, with its negative control: the same server behind a proxy that takes a condition away is refused, and the
/// store that is there stays as it is. Without the proxy it isn't.
#[test]
fn a_server_that_ignores_conditions_is_refused() {
    runtime().block_on(async {
        let prefix = prefix();
        let sound = open_at(SERVER.port(), &prefix).await.unwrap();
        Line::new("one").grow(&sound, 2).await;
        for (condition, harmless) in [("if-none-match", "x-none-match0"), ("if-match", "x-match0")] {
            let proxy = Proxy::start(SERVER.port());
            assert!(open_at(proxy.port(), &prefix).await.is_ok(), "the proxy alone does no harm");
            let proxy = Proxy::start(SERVER.port());
            proxy.rewrite(condition, harmless);
            let refused = open_at(proxy.port(), &prefix).await.err().unwrap();
            assert!(matches!(refused, StoreError::Invalid { .. }), "{condition}: {refused}");
            assert!(refused.to_string().contains("doesn't keep the condition"), "{refused}");
            // Also one that isn't there yet.
            assert!(open_at(proxy.port(), &crate::cloud::prefix()).await.is_err());
        }
        let again = open_at(SERVER.port(), &prefix).await.unwrap();
        assert_eq!(again.read(&id("one"), Span::ALL).await.unwrap().len(), 2);
    });
}

/// Promise 32: the connection is cut at each message of a commit, in either direction. The commit is there as a whole or
/// not at all, and the writer is told which or that it is unknown.
#[test]
fn a_commit_that_is_cut_at_any_message_is_whole_or_absent() {
    runtime().block_on(async {
        let prefix = prefix();
        let direct = open_at(SERVER.port(), &prefix).await.unwrap();
        let (mut cuts, mut lost) = (0, 0);
        for at in 0..10 {
            let proxy = Proxy::start(SERVER.port());
            let store = open_at(proxy.port(), &prefix).await.unwrap();
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

/// The same with a pack that is staged and then relied on.
#[test]
fn a_staging_that_is_cut_at_any_message_can_be_repeated() {
    runtime().block_on(async {
        let prefix = prefix();
        let direct = open_at(SERVER.port(), &prefix).await.unwrap();
        for at in (0..24).step_by(3) {
            let proxy = Proxy::start(SERVER.port());
            let store = open_at(proxy.port(), &prefix).await.unwrap();
            let (bytes, pin) = (bytes::Bytes::from(format!("pack {at}").repeat(99)), Pin::new());
            let blobs = [piton_store::Hashing::PLAIN.blob(&bytes)];
            let pack: PackId = piton_store::Hashing::PLAIN.pack(&bytes);
            proxy.cut_after(at);
            while let Err(error) = store.stage(pack, bytes.clone(), &blobs, pin).await {
                assert!(error.is_retryable(), "{error}");
            }
            let mut line = Line::new(&format!("staged-{at}"));
            let mut commit = line.next();
            (commit.staged, commit.owner) = (vec![pack], pin.owner);
            store.append(vec![commit.clone()]).await.unwrap();
            line.advance(&commit);
            assert_eq!(direct.pack(pack).await.unwrap(), bytes);
            assert_eq!(direct.locate(&blobs).await.unwrap(), [Some(pack)]);
        }
        assert_eq!(direct.upkeep().unwrap().inspect().await.unwrap(), []);
    });
}

/// Promises 13 and 32: the server goes away and comes back while a writer writes, and again while another one recovers.
/// Nothing that was acknowledged is lost, and the writer goes on.
#[test]
fn a_server_that_goes_away_and_comes_back_strands_no_run() {
    runtime().block_on(async {
        let prefix = prefix();
        let proxy = Arc::new(Proxy::start(SERVER.port()));
        let store = open_at(proxy.port(), &prefix).await.unwrap();
        let failures = Arc::new(AtomicU32::new(0));
        let (switching, met) = (Arc::clone(&proxy), Arc::clone(&failures));
        let switch = tokio::spawn(async move {
            for round in 1..4 {
                tokio::time::sleep(Duration::from_millis(150)).await;
                switching.set_down(true);
                // Until the writer has met it: a short absence is bridged by trying again.
                while met.load(Ordering::SeqCst) < round {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                switching.set_down(false);
            }
        });
        let run = id("goes-on");
        let (mut head, mut count) = (None::<Head>, 0);
        while count < 40 || !switch.is_finished() {
            let commit = next(&run, head, 1);
            let after = Head { seq: commit.seq, hash: commit.hash, fence: commit.fence };
            match store.append(vec![commit]).await {
                Ok(()) => (head, count) = (Some(after), count + 1),
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    failures.fetch_add(1, Ordering::SeqCst);
                    // As a run's log does: the head tells. A fresh handle is what recovery has.
                    loop {
                        let fresh = open_at(proxy.port(), &prefix).await;
                        if let Ok(fresh) = fresh
                            && let Ok(now) = fresh.head(&run).await
                        {
                            assert!(
                                now.map(|now| now.seq) >= head.map(|head| head.seq),
                                "what was acknowledged is there"
                            );
                            head = now;
                            break;
                        }
                        // It went away again before that.
                        failures.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        }
        switch.await.unwrap();
        println!("{} calls failed, {count} appends were acknowledged", failures.load(Ordering::SeqCst));
        let entries = store.read(&run, Span::ALL).await.unwrap();
        assert_eq!(entries.len() as u32, head.unwrap().seq.0 + 1);
        assert_eq!(store.upkeep().unwrap().inspect().await.unwrap(), []);
    });
}

/// Slow answers change nothing but the time. A writer that was overtaken meanwhile commits nothing (promise 30).
#[test]
fn an_overtaken_writer_on_a_slow_line_commits_nothing() {
    runtime().block_on(async {
        let prefix = prefix();
        let proxy = Proxy::start(SERVER.port());
        let slow = open_at(proxy.port(), &prefix).await.unwrap();
        let other = open_at(SERVER.port(), &prefix).await.unwrap();
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

/// Promise 26: whatever the server answers, no error and nothing that is shown tells a credential.
#[test]
fn no_error_tells_a_credential() {
    runtime().block_on(async {
        let prefix = prefix();
        let store = open_at(SERVER.port(), &prefix).await.unwrap();
        let place = objects_at(SERVER.port(), &prefix).unwrap();
        let mut texts = vec![store.url(), format!("{store:?} {place:?} {:?}", driver(SERVER.port()))];
        let port = crate::support::echo_server();
        for kind in [CloudKind::S3, CloudKind::Google, CloudKind::Azure] {
            let mut settings = driver(port).settings;
            let at = format!("http://127.0.0.1:{port}");
            for (name, value) in [
                ("GOOGLE_BEARER_TOKEN", KEY.1),
                ("GOOGLE_BASE_URL", &at),
                ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
                ("AZURE_STORAGE_TOKEN", KEY.1),
                ("AZURE_STORAGE_ENDPOINT", &at),
            ] {
                settings.insert(name.to_owned(), value.to_owned());
            }
            let driver = CloudDriver { kind, create: true, settings };
            let error = driver.open("//team-bucket/x").await.err().unwrap();
            assert!(matches!(error, StoreError::Denied { .. }), "{kind:?}: {error}");
            assert!(error.to_string().contains('…'), "{kind:?}: the answer had it: {error}");
            texts.push(format!("{error} {error:?}"));
        }
        for text in texts {
            assert!(!text.contains(KEY.1) && !text.contains(KEY.0), "{text}");
        }
    });
}

/// What is deleted if unchanged leaves nothing that a reader sees, and its name can be used again.
#[test]
fn a_name_can_be_used_again() {
    runtime().block_on(async {
        let [one, two] = [(); 2].map(|()| objects("again"));
        for round in 0..3 {
            assert!(one.create("f/x", format!("round {round}").into(), Durability::Durable).await.unwrap());
            assert!(!two.create("f/x", "other".into(), Durability::Durable).await.unwrap());
            let version = two.get("f/x", Part::Whole).await.unwrap().unwrap().version;
            assert!(two.delete("f/x", Some(&version), Durability::Durable).await.unwrap());
            assert!(!one.exists("f/x").await.unwrap());
            assert_eq!(one.get("f/x", Part::Range(0..9)).await.unwrap(), None);
            assert_eq!(one.list("f", None, 9).await.unwrap(), []);
            assert_eq!(one.bytes().await.unwrap(), 0);
        }
    });
}
