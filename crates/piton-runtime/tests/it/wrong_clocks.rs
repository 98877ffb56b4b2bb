//! Workers whose clocks are wrong by an hour, on a real server: what decides is the server's clock (promises 14 and 31).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use piton_runtime::retention::by_the_store;
use piton_runtime::{Context, OpenRun, Programs, Run, Submission, WorkerOptions, submit_program};
use piton_store_postgres::{PostgresStore, PostgresUrl};
use piton_testing::postgres::Server;
use piton_types::{Clock, Holder, RunId, RunStatus, Sleep, Timestamp};
use tokio::sync::watch;

use crate::support::dead_process;

const HOUR: i64 = 3_600_000;

/// The system's clock, wrong by so many milliseconds.
struct Wrong {
    by: i64,
    right: Arc<dyn Clock>,
}

impl Clock for Wrong {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.right.now().as_millis() + self.by)
    }

    fn monotonic(&self) -> Duration {
        self.right.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep<'_> {
        self.right.sleep(duration)
    }
}

/// A machine of its own with such a clock.
async fn machine(url: &str, host: &str, by: i64) -> Context {
    let store = Arc::new(PostgresStore::open(PostgresUrl::parse(url).unwrap(), true).await.unwrap());
    let right = Context::system(store);
    let holder = Holder { host: host.to_owned(), ..dead_process() };
    Context { clock: Arc::new(Wrong { by, right: Arc::clone(&right.clock) }), holder, ..right }
}

/// When each run began, by the server's clock, how often, and whether they may go on.
#[derive(Clone, Default)]
struct Seen {
    begun: Arc<Mutex<BTreeMap<RunId, Vec<Timestamp>>>>,
    may_go_on: Arc<AtomicBool>,
    ended: Arc<AtomicUsize>,
}

fn programs(context: &Context, seen: &Seen) -> Programs {
    let (seen, store) = (seen.clone(), Arc::clone(&context.store));
    Programs::new(context).with("work", move |mut run: Run| {
        let (seen, store) = (seen.clone(), Arc::clone(&store));
        async move {
            let now = store.queue().unwrap().now().await.unwrap();
            seen.begun.lock().unwrap().entry(run.id().clone()).or_default().push(now);
            let may_go_on = Arc::clone(&seen.may_go_on);
            run.step("wait", (), async |()| {
                while !may_go_on.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok::<_, std::io::Error>(())
            })
            .await?;
            seen.ended.fetch_add(1, Ordering::SeqCst);
            run.complete(()).await
        }
    })
}

/// One worker is an hour ahead and one an hour behind. What is due later begins when it is due and not before, though the one is
/// past that time already; what one of them holds the other doesn't take, far past its hold; and both together do each run once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_whose_clocks_are_wrong_by_an_hour_do_no_harm() {
    let server = Server::start();
    let url = server.url("clocks");
    let hold = Duration::from_secs(5);
    let (ahead, behind) = (machine(&url, "ahead", HOUR).await, machine(&url, "behind", -HOUR).await);
    let queue = ahead.store.queue().unwrap();
    let now = queue.now().await.unwrap();
    // The control: the clocks are wrong, and the store's time puts each right.
    for (context, by) in [(&ahead, HOUR), (&behind, -HOUR)] {
        let off = context.clock.now().as_millis() - queue.now().await.unwrap().as_millis();
        assert!((off - by).abs() < HOUR / 4, "{off}");
        let right = by_the_store(context).await.unwrap().clock.now();
        assert!((right.as_millis() - queue.now().await.unwrap().as_millis()).abs() < HOUR / 4, "{right}");
    }
    let seen = Seen::default();
    let mut due = BTreeMap::new();
    for n in 0..6_u64 {
        let later = Duration::from_millis(if n < 3 { 0 } else { 2500 });
        let at = now.after(later);
        let submission = Submission { due: Some(at), ..Submission::default() };
        let id: RunId = format!("run-{n}").parse().unwrap();
        let open = OpenRun { id: Some(id.clone()), ..OpenRun::default() };
        submit_program([&ahead, &behind][n as usize % 2], "work", open, submission).await.unwrap();
        due.insert(id, at);
    }
    let mut workers = Vec::new();
    let (drain, drained) = watch::channel(false);
    for context in [&ahead, &behind] {
        let mut options = WorkerOptions { hold, ..WorkerOptions::new(context.holder.host.clone()) };
        options.info.concurrency = 3;
        let work = programs(context, &seen).work(options, drained.clone());
        workers.push(tokio::spawn(work));
    }
    // All are held, for longer than a hold.
    while seen.begun.lock().unwrap().len() < 6 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(hold * 3 / 2).await;
    seen.may_go_on.store(true, Ordering::SeqCst);
    while seen.ended.load(Ordering::SeqCst) < 6 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drain.send(true).unwrap();
    for worker in workers {
        worker.await.unwrap().unwrap();
    }
    let begun = seen.begun.lock().unwrap().clone();
    for (run, begun) in begun {
        assert_eq!(begun.len(), 1, "{run} was driven once");
        assert!(begun[0] >= due[&run], "{run} began at {} and was due at {}", begun[0], due[&run]);
        assert_eq!(ahead.store.summary(&run).await.unwrap().unwrap().status, RunStatus::Completed);
    }
}
