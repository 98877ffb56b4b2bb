//! Large packs in an object store (`blobs=`): whatever dies between the two, no pack lacks its bytes, and nothing is left over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use piton_store::conformance::runtime;
use piton_store::{Blobs as _, Bytes, PackId, PackPlace, PackState, Pin, StoreError, Sweep, Upkeep as _, async_trait};
use piton_store_objects::{MemoryObjects, ObjectPacks};
use piton_store_postgres::{OutsidePacks, PostgresStore, PostgresUrl};
use piton_testing::Line;
use piton_types::{BlobId, Timestamp};

use crate::support::{SERVER, open, schema};

/// What goes wrong at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The process dies before it.
    Before,
    /// It dies after it.
    After,
    /// The negative control: the place says that it did it, and didn't.
    Lies,
}

/// A place at which the process dies at a chosen call; from then on nothing reaches it.
struct Dying {
    inner: ObjectPacks,
    fault: Mutex<Option<(usize, Fault)>>,
    calls: AtomicUsize,
}

impl Dying {
    fn new(objects: &Arc<MemoryObjects>) -> Arc<Self> {
        let inner = ObjectPacks::new(Arc::clone(objects) as _);
        Arc::new(Self { inner, fault: Mutex::default(), calls: AtomicUsize::new(0) })
    }

    /// From now on counted from 0.
    fn at(&self, call: usize, fault: Fault) {
        self.calls.store(0, Ordering::SeqCst);
        *self.fault.lock().unwrap() = Some((call, fault));
    }

    async fn pass<T: Default>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let fault = *self.fault.lock().unwrap();
        let died = || StoreError::Unavailable { detail: "it died".to_owned() };
        match fault {
            Some((at, Fault::Before)) if number >= at => Err(died()),
            Some((at, Fault::After)) if number > at => Err(died()),
            Some((at, Fault::After)) if number == at => call.await.and_then(|_| Err(died())),
            Some((at, Fault::Lies)) if number == at => Ok(T::default()),
            _ => call.await,
        }
    }
}

#[async_trait]
impl PackPlace for Dying {
    async fn write(&self, name: &str, pack: Bytes) -> Result<(), StoreError> {
        self.pass(self.inner.write(name, pack)).await
    }

    async fn read(&self, name: &str, part: Option<(u64, usize)>) -> Result<Bytes, StoreError> {
        self.pass(self.inner.read(name, part)).await
    }

    async fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.pass(self.inner.delete(name)).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<(String, u64)>, StoreError> {
        self.pass(self.inner.list(after, limit)).await
    }

    fn url(&self) -> String {
        self.inner.url()
    }
}

async fn open_at(url: &str, place: Arc<dyn PackPlace>) -> PostgresStore {
    let outside = OutsidePacks::new(place).larger_than(100);
    PostgresStore::open_with(PostgresUrl::parse(url).unwrap(), true, Some(outside)).await.unwrap()
}

fn large(n: u8) -> Bytes {
    Bytes::from(vec![n; 1000])
}

async fn stage(store: &PostgresStore, n: u8) -> Result<PackId, StoreError> {
    piton_store::stage(store, large(n), &[BlobId::new([n; 32])], Pin::new()).await
}

/// What is there of one side is there of the other, and nothing else.
async fn is_settled(store: &PostgresStore, objects: &Arc<MemoryObjects>, schema: &str) {
    assert_eq!(store.inspect().await.unwrap(), []);
    let place = ObjectPacks::new(Arc::clone(objects) as _);
    let listed: Vec<String> = place.list(None, 99).await.unwrap().into_iter().map(|(name, _)| name).collect();
    let rows =
        SERVER.sql(&format!("SELECT object FROM {schema}.pack WHERE object IS NOT NULL ORDER BY object COLLATE \"C\""));
    assert_eq!(listed, rows.lines().collect::<Vec<_>>());
    assert_eq!(SERVER.sql(&format!("SELECT count(*) FROM {schema}.loose")), "0");
}

/// The time that a dead writer had is over.
fn much_later(schema: &str) {
    SERVER.sql(&format!("UPDATE {schema}.loose SET until = 0; UPDATE {schema}.pin SET until = 0"));
}

async fn sweep(store: &PostgresStore, packs: Vec<(PackId, Timestamp)>) -> Result<(), StoreError> {
    store.sweep(Sweep { packs, bytes: u64::MAX }).await.map(drop)
}

/// Small packs are in the database and large ones outside, whole and in parts.
#[test]
fn large_packs_are_outside_and_small_ones_are_not() {
    runtime().block_on(async {
        let (schema, objects) = (schema(), Arc::new(MemoryObjects::new()));
        let store = open_at(&SERVER.url(&schema), Dying::new(&objects)).await;
        let small = piton_store::stage(&store, Bytes::from_static(b"small"), &[BlobId::new([99; 32])], Pin::new())
            .await
            .unwrap();
        let pack = stage(&store, 1).await.unwrap();
        assert_eq!(stage(&store, 1).await.unwrap(), pack, "it is there once");
        assert_eq!(piton_store::pack(&store, pack).await.unwrap(), large(1));
        assert_eq!(store.pack(small).await.unwrap(), "small");
        assert_eq!(store.pack_part(pack, 990, 99).await.unwrap().unwrap().len(), 10);
        assert_eq!(
            SERVER.sql(&format!("SELECT count(*), sum(size) FROM {schema}.pack WHERE object IS NOT NULL")),
            "1|1000"
        );
        let listed = store.packs(None, 9).await.unwrap();
        assert_eq!(listed.iter().map(|info| info.size).sum::<u64>(), 1005);
        assert_eq!(store.totals().await.unwrap().pack_bytes, 1005);
        is_settled(&store, &objects, &schema).await;
    });
}

/// The writer dies at each call to the place, before it and after it, and so does the sweeper. Afterwards each pack is there with its
/// bytes or not at all, and a sweep leaves nothing over.
#[test]
fn a_death_between_the_two_leaves_nothing_wrong() {
    runtime().block_on(async {
        let mut deaths = 0;
        for at in 0..3 {
            for fault in [Fault::Before, Fault::After] {
                let (schema, objects) = (schema(), Arc::new(MemoryObjects::new()));
                let url = SERVER.url(&schema);
                let sound = open_at(&url, Dying::new(&objects)).await;
                let kept = stage(&sound, 0).await.unwrap();
                let place = Dying::new(&objects);
                let writer = open_at(&url, Arc::clone(&place) as _).await;
                place.at(at, fault);
                let mut staged = Vec::new();
                for n in 1..4 {
                    match stage(&writer, n).await {
                        Ok(pack) => staged.push((pack, n)),
                        Err(error) => {
                            assert!(error.is_retryable(), "{error}");
                            deaths += 1;
                            break;
                        }
                    }
                }
                assert_eq!(sound.inspect().await.unwrap(), []);
                for (pack, n) in &staged {
                    assert_eq!(sound.pack(*pack).await.unwrap(), large(*n), "what was said to be there is");
                }
                // A sweep right after it takes nothing from a writer that may live.
                sweep(&sound, Vec::new()).await.unwrap();
                much_later(&schema);
                sweep(&sound, Vec::new()).await.unwrap();
                is_settled(&sound, &objects, &schema).await;

                // The sweeper dies at the same call.
                let all: Vec<PackId> = staged.iter().map(|(pack, _)| *pack).chain([kept]).collect();
                much_later(&schema);
                let since = Timestamp::from_millis(5);
                assert_eq!(sound.condemn(&all, since).await.unwrap() as usize, all.len());
                let due: Vec<_> = all.iter().map(|pack| (*pack, since)).collect();
                let place = Dying::new(&objects);
                let sweeper = open_at(&url, Arc::clone(&place) as _).await;
                place.at(at, fault);
                deaths += usize::from(sweep(&sweeper, due.clone()).await.is_err());
                assert_eq!(sound.inspect().await.unwrap(), []);
                sweep(&sound, due).await.unwrap();
                assert_eq!(sound.packs(None, 9).await.unwrap(), []);
                is_settled(&sound, &objects, &schema).await;
            }
        }
        println!("{deaths} deaths between the database and the place for large packs");
        assert!(deaths >= 8, "{deaths}");
    });
}

/// A writer that was slower than its time adds no pack, because a sweep may have deleted its object; the same one staged anew is there.
#[test]
fn a_writer_that_is_too_slow_adds_nothing() {
    /// While it writes, the time is over and a sweep comes by.
    struct Slow {
        inner: Arc<Dying>,
        schema: String,
        sweeper: PostgresStore,
        once: AtomicUsize,
    }

    #[async_trait]
    impl PackPlace for Slow {
        async fn write(&self, name: &str, pack: Bytes) -> Result<(), StoreError> {
            self.inner.write(name, pack).await?;
            if self.once.fetch_add(1, Ordering::SeqCst) == 1 {
                much_later(&self.schema);
                sweep(&self.sweeper, Vec::new()).await?;
            }
            Ok(())
        }

        async fn read(&self, name: &str, part: Option<(u64, usize)>) -> Result<Bytes, StoreError> {
            self.inner.read(name, part).await
        }

        async fn delete(&self, name: &str) -> Result<(), StoreError> {
            self.inner.delete(name).await
        }

        async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<(String, u64)>, StoreError> {
            self.inner.list(after, limit).await
        }

        fn url(&self) -> String {
            self.inner.url()
        }
    }

    runtime().block_on(async {
        let (schema, objects) = (schema(), Arc::new(MemoryObjects::new()));
        let url = SERVER.url(&schema);
        let sweeper = open_at(&url, Dying::new(&objects)).await;
        let slow = Slow { inner: Dying::new(&objects), schema: schema.clone(), sweeper, once: AtomicUsize::new(1) };
        let writer = open_at(&url, Arc::new(slow)).await;
        let refused = stage(&writer, 1).await;
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
        assert_eq!(writer.packs(None, 9).await.unwrap(), []);
        is_settled(&writer, &objects, &schema).await;
        let pack = stage(&writer, 1).await.unwrap();
        assert_eq!(writer.pack(pack).await.unwrap(), large(1));
        is_settled(&writer, &objects, &schema).await;
    });
}

/// The negative control: a place that doesn't keep what it says it has is found out by a look at names alone.
#[test]
fn a_place_that_loses_packs_is_found_out() {
    runtime().block_on(async {
        let (schema, objects) = (schema(), Arc::new(MemoryObjects::new()));
        let place = Dying::new(&objects);
        let store = open_at(&SERVER.url(&schema), Arc::clone(&place) as _).await;
        place.at(0, Fault::Lies);
        let pack = stage(&store, 1).await.unwrap();
        let defects = store.inspect().await.unwrap();
        assert_eq!(defects.len(), 1, "{defects:?}");
        assert!(defects[0].what.contains(&pack.to_string()) && defects[0].detail.contains("missing"), "{defects:?}");
        assert!(matches!(store.pack(pack).await, Err(StoreError::NotFound { .. })));
    });
}

/// A store keeps to its place: who names another one, or none, is told which it is. What was in the database stays readable.
#[test]
fn a_store_keeps_to_its_place() {
    /// The same objects under another name.
    struct Elsewhere(Arc<Dying>);

    #[async_trait]
    impl PackPlace for Elsewhere {
        async fn write(&self, name: &str, pack: Bytes) -> Result<(), StoreError> {
            self.0.write(name, pack).await
        }

        async fn read(&self, name: &str, part: Option<(u64, usize)>) -> Result<Bytes, StoreError> {
            self.0.read(name, part).await
        }

        async fn delete(&self, name: &str) -> Result<(), StoreError> {
            self.0.delete(name).await
        }

        async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<(String, u64)>, StoreError> {
            self.0.list(after, limit).await
        }

        fn url(&self) -> String {
            "s3://elsewhere/x".to_owned()
        }
    }

    runtime().block_on(async {
        let (schema, objects) = (schema(), Arc::new(MemoryObjects::new()));
        let url = SERVER.url(&schema);
        let plain = open(&url).await;
        let inside = stage(&plain, 1).await.unwrap();
        let with = |place: Arc<dyn PackPlace>, create| {
            let outside = OutsidePacks::new(place).larger_than(100);
            PostgresStore::open_with(PostgresUrl::parse(&url).unwrap(), create, Some(outside))
        };
        // Who only looks decides nothing.
        let looking = with(Dying::new(&objects), false).await.unwrap();
        stage(&looking, 2).await.unwrap();
        assert_eq!(SERVER.sql(&format!("SELECT count(*) FROM {schema}.pack WHERE object IS NOT NULL")), "0");
        let store = with(Dying::new(&objects), true).await.unwrap();
        let outside = stage(&store, 3).await.unwrap();
        assert_eq!(store.pack(inside).await.unwrap(), large(1));
        assert_eq!(
            store.packs(None, 9).await.unwrap().iter().filter(|info| info.state == PackState::Pinned).count(),
            3
        );
        let none = PostgresStore::open(PostgresUrl::parse(&url).unwrap(), true).await.err().unwrap();
        let other = with(Arc::new(Elsewhere(Dying::new(&objects))), true).await.err().unwrap();
        for refused in [none, other] {
            assert!(matches!(refused, StoreError::Invalid { .. }), "{refused}");
            assert!(refused.to_string().contains("it is memory:"), "{refused}");
        }
        assert_eq!(store.pack(outside).await.unwrap(), large(3));
        // A place that can't be written to is found out before the store relies on it.
        let broken = Dying::new(&objects);
        broken.at(0, Fault::Before);
        let fresh = PostgresUrl::parse(&SERVER.url(&crate::support::schema())).unwrap();
        let refused = PostgresStore::open_with(fresh, true, Some(OutsidePacks::new(broken))).await.err().unwrap();
        assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused}");
    });
}

/// A store that an older version made is brought up to date when it is opened, with what is in it.
#[test]
fn a_store_of_the_format_before_is_brought_up_to_date() {
    runtime().block_on(async {
        let (old, new) = (schema(), schema());
        let store = open(&SERVER.url(&old)).await;
        let pack = stage(&store, 1).await.unwrap();
        drop(store);
        SERVER.sql(&format!(
            "DROP FUNCTION {old}.append; DROP TABLE {old}.loose, {old}.keeper; ALTER TABLE {old}.pack DROP COLUMN object, DROP COLUMN size;
             ALTER TABLE {old}.queue RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
             UPDATE {old}.meta SET value = '1' WHERE key = 'format'"
        ));
        open(&SERVER.url(&new)).await;
        let openers: Vec<_> = (0..4).map(|_| tokio::spawn({ let url = SERVER.url(&old); async move { open(&url).await } })).collect();
        for (n, opener) in openers.into_iter().enumerate() {
            let store = opener.await.unwrap();
            assert_eq!(store.pack(pack).await.unwrap(), large(1));
            Line::new(&format!("after-{n}")).grow(&store, 2).await;
        }
        let shape = |schema: &str| {
            SERVER.sql(&format!(
                "SELECT c.relname, a.attname, a.atttypid, c.reloptions FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                 WHERE n.nspname = '{schema}' AND c.relkind = 'r' ORDER BY 1, 2"
            ))
        };
        assert_eq!(shape(&old), shape(&new));
        assert_eq!(SERVER.sql(&format!("SELECT value FROM {old}.meta WHERE key = 'format'")), "\\x33");
    });
}
