//! Processes that aren't: each has an id that no process can have, so to the others it is dead.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use piton_log::RunLog;
use piton_runtime::{Context, OpenRun, RetryPolicy, WholeHistory, this_process};
use piton_store::{Registry, Store};
use piton_store_objects::{CloudDriver, CloudKind, ObjectStore, RedisDriver};
use piton_testing::level::by_level;
use piton_testing::redis::RedisServer;
use piton_testing::s3::{BUCKET, S3Server};
use piton_testing::{ManualClock, SeededRandom};
use piton_types::{Holder, RunId, Value};

/// Above the largest process id of Linux.
static NEXT_PID: AtomicU32 = AtomicU32::new(5_000_000);

/// A process of this host and boot that doesn't run.
pub(crate) fn dead_process() -> Holder {
    Holder { pid: NEXT_PID.fetch_add(1, Ordering::Relaxed), started: 1, ..this_process() }
}

/// A new process, which all other processes take for dead.
pub(crate) fn process(store: &Arc<dyn Store>) -> Context {
    let holder = dead_process();
    let random = Arc::new(SeededRandom::new(holder.pid.into()));
    Context { store: Arc::clone(store), clock: Arc::new(ManualClock::default()), random, holder }
}

/// A new process with this clock.
pub(crate) fn process_at(store: &Arc<dyn Store>, clock: &Arc<ManualClock>) -> Context {
    Context { clock: Arc::clone(clock) as _, ..process(store) }
}

/// A clock that sleepers move, shared by all processes of one host.
pub(crate) fn flowing() -> Arc<ManualClock> {
    Arc::new(ManualClock::default().flowing().booted())
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(ObjectStore::in_memory())
}

pub(crate) fn run_id() -> RunId {
    "a-run".parse().unwrap()
}

pub(crate) fn open() -> OpenRun {
    OpenRun {
        id: Some(run_id()),
        name: "a run".into(),
        body: Value::from("the input"),
        retry: RetryPolicy::NONE,
        ..OpenRun::default()
    }
}

pub(crate) async fn history(store: &Arc<dyn Store>) -> WholeHistory {
    WholeHistory::read(&RunLog::open(Arc::clone(store), &run_id()).await.unwrap()).await.unwrap()
}

/// How many entries the log has.
pub(crate) async fn entries(store: &Arc<dyn Store>) -> u32 {
    store.head(&run_id()).await.unwrap().map_or(0, |head| head.seq.0 + 1)
}

/// On which store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum On {
    Memory,
    Sqlite,
    Postgres,
    S3,
    Redis,
}

impl On {
    /// Out of how many calls one is chosen, where each call asks a server: the whole product takes an hour.
    pub(crate) fn step(self, quick: usize, standard: usize) -> usize {
        match self {
            Self::Memory | Self::Sqlite | Self::Postgres => 1,
            Self::S3 => by_level(quick, standard, 3),
            Self::Redis => by_level(quick, standard / 4, 1),
        }
    }
}

/// A new store on a server of this test's.
pub(crate) async fn on_a_server(on: On) -> Arc<dyn Store> {
    static S3: LazyLock<S3Server> = LazyLock::new(S3Server::start);
    static REDIS: LazyLock<RedisServer> = LazyLock::new(RedisServer::durable);
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("store-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let registry = match on {
        On::S3 => {
            let settings = S3Server::settings_at(S3.port()).into_iter();
            let settings = settings.map(|(name, value)| (name.to_owned(), value)).collect();
            Registry::default().with("s3", CloudDriver { kind: CloudKind::S3, create: true, settings })
        }
        _ => Registry::default().with("redis", RedisDriver { secure: false, create: true, password: None }),
    };
    let url = if on == On::S3 { format!("s3://{BUCKET}/{name}") } else { REDIS.url(&name) };
    registry.open(&url).await.unwrap()
}
