//! Workers, holds, fences and faults in virtual time, by seeded schedules (promises 10, 12 and 31): the worker loop, the claims and
//! the logs are the real ones, the store and its queue are in memory, and the way to them is slow, cut, frozen or gone.
//!
//! Each schedule checks: a step whose result a program was told of never begins again, and every run completes.

mod machine;
mod queue;
mod time;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use machine::Machine;
use piton_runtime::{
    Context, OpenRun, Programs, RetryPolicy, Run, RunError, Submission, WorkerOptions, submit_program,
};
use piton_store::Store;
use piton_store_objects::ObjectStore;
use piton_testing::SeededRandom;
use piton_testing::level::by_level;
use piton_types::{Holder, RunId, RunStatus};
use queue::SimulatedQueue;
use time::{MachineClock, Time};
use tokio::sync::watch;

/// How long a worker holds what it took.
const HOLD: Duration = Duration::from_secs(30);
const RUNS: usize = 4;
const STEPS: usize = 3;
const MACHINES: usize = 3;
/// Runs that take longer are lost.
const PATIENCE: Duration = Duration::from_secs(6 * 60 * 60);
/// After this nothing goes wrong any more.
const TROUBLE: Duration = Duration::from_secs(8 * 60);

/// What is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The store acknowledges what it doesn't keep.
    Commits,
    /// The queue never gives back what a dead worker held.
    Queue,
}

/// What the world outside of all machines sees.
#[derive(Default)]
struct Outside {
    /// Steps whose result a program was told of.
    finished: BTreeSet<(RunId, usize)>,
    begun: usize,
    /// Finished steps that began again.
    again: usize,
}

#[derive(Default)]
struct Seen {
    completed: usize,
    left_over: usize,
    begun: usize,
    again: usize,
    deaths: usize,
    freezes: usize,
    lost: u64,
}

fn simulate(seed: u64, broken: Broken) -> Seen {
    // What a run does beside its steps has timers of the real time, which is too slow to matter here.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(schedule(seed, broken))
}

async fn schedule(seed: u64, broken: Broken) -> Seen {
    let random = SeededRandom::new(seed);
    let time = Arc::new(Time::default());
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let queue = Arc::new(SimulatedQueue::new(&time, broken == Broken::Queue));
    let outside = Arc::new(Mutex::new(Outside::default()));
    let mut seen = Seen::default();

    // The store has a queue only by way of a machine; this one is never in trouble.
    let clients = Arc::new(Machine::new(&store, &queue, seed ^ 1, false));
    let (_stop, never) = watch::channel(false);
    let submitting = tokio::spawn(async move {
        let context = context(&clients, 999, 0);
        for n in 0..RUNS {
            loop {
                let open = OpenRun { id: Some(format!("run-{n}").parse().unwrap()), ..OpenRun::default() };
                if submit_program(&context, "three", open, Submission::default()).await.is_ok() {
                    break;
                }
            }
        }
    });
    let mut machines = Vec::new();
    for n in 0..MACHINES {
        machines.push(begin(&store, &queue, &outside, &random, n, broken, &never));
    }
    let mut incarnation = MACHINES;
    let mut next_fault = Duration::from_secs(5);
    let mut thaws: Vec<(Duration, Arc<Machine>)> = Vec::new();
    let all: Vec<RunId> = (0..RUNS).map(|n| format!("run-{n}").parse().unwrap()).collect();
    loop {
        time.step().await;
        let now = time.now();
        thaws.retain(|(at, machine)| {
            if *at <= now {
                machine.thaw();
            }
            *at > now
        });
        if now >= next_fault && now < TROUBLE {
            next_fault = now + Duration::from_millis(500 + random.below(25_000) as u64);
            let place = random.below(MACHINES);
            if random.one_in(2) {
                machines[place].die();
                seen.lost += machines[place].lost.load(std::sync::atomic::Ordering::Relaxed);
                machines[place] = begin(&store, &queue, &outside, &random, incarnation, broken, &never);
                incarnation += 1;
                seen.deaths += 1;
            } else {
                machines[place].freeze();
                let until = now + Duration::from_millis(500 + random.below(90_000) as u64);
                thaws.push((until, Arc::clone(&machines[place])));
                seen.freezes += 1;
            }
        }
        seen.completed = 0;
        for run in &all {
            let summary = store.summary(run).await.unwrap();
            seen.completed += usize::from(summary.is_some_and(|run| run.status == RunStatus::Completed));
        }
        let is_done = submitting.is_finished() && seen.completed == RUNS && queue.len() == 0;
        if is_done || now > PATIENCE {
            break;
        }
    }
    let outside = outside.lock().unwrap_or_else(PoisonError::into_inner);
    Seen { left_over: queue.len(), begun: outside.begun, again: outside.again, ..seen }
}

fn context(machine: &Arc<Machine>, incarnation: usize, wrong_by: i64) -> Context {
    let clock = MachineClock { time: Arc::clone(&machine.time), wrong_by };
    // Each on a host of its own, so that nothing but the store can tell whether it lives.
    let holder = Holder { host: format!("host-{incarnation}"), boot: String::new(), pid: 1, started: 1 };
    Context {
        store: Arc::clone(machine) as _,
        clock: Arc::new(clock),
        random: Arc::new(SeededRandom::new(incarnation as u64 + 77)),
        holder,
    }
}

/// Begins a machine with one worker. Its wall clock is wrong by up to an hour.
fn begin(
    store: &Arc<dyn Store>,
    queue: &Arc<SimulatedQueue>,
    outside: &Arc<Mutex<Outside>>,
    random: &SeededRandom,
    incarnation: usize,
    broken: Broken,
    drain: &watch::Receiver<bool>,
) -> Arc<Machine> {
    let machine = Arc::new(Machine::new(store, queue, random.next_u64(), broken == Broken::Commits));
    let wrong_by = random.below(7_200_000) as i64 - 3_600_000;
    let context = context(&machine, incarnation, wrong_by);
    let (outside, time, chance) = (Arc::clone(outside), Arc::clone(&machine.time), random.next_u64());
    let programs = Programs::new(&context).with("three", move |run: Run| {
        three_steps(run, Arc::clone(&outside), Arc::clone(&time), SeededRandom::new(chance))
    });
    let retry = RetryPolicy { retries: 10_000, ..RetryPolicy::default() };
    let mut options = WorkerOptions::new(format!("worker-{incarnation}"));
    (options.hold, options.retry, options.deaths) = (HOLD, retry, 10_000);
    (options.info.concurrency, options.poll) = (2, Duration::from_secs(2));
    let drain = drain.clone();
    tokio::spawn(async move { programs.work(options, drain).await });
    machine
}

async fn three_steps(
    mut run: Run,
    outside: Arc<Mutex<Outside>>,
    time: Arc<Time>,
    random: SeededRandom,
) -> Result<(), RunError> {
    let id = run.id().clone();
    for n in 0..STEPS {
        let (key, took) = ((id.clone(), n), Duration::from_millis(random.below(20_000) as u64));
        let work = |n| {
            let (seen, time, begun) = (Arc::clone(&outside), Arc::clone(&time), key.clone());
            async move {
                {
                    let mut outside = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    outside.begun += 1;
                    outside.again += usize::from(outside.finished.contains(&begun));
                }
                time.sleep(took).await;
                Ok::<_, std::io::Error>(n)
            }
        };
        let _: usize = run.step(&format!("step-{n}"), n, work).await?;
        outside.lock().unwrap_or_else(PoisonError::into_inner).finished.insert(key);
    }
    run.complete(STEPS).await
}

/// No run is lost, and no step begins again whose result was told, whatever dies, freezes or is cut off. 60
/// schedules; 10,000 with PITON_TEST=full.
#[test]
fn no_schedule_loses_a_run_or_repeats_a_finished_step() {
    let schedules = by_level(20, 60, 10_000);
    let mut all = Seen::default();
    for seed in 0..schedules {
        let seen = simulate(seed, Broken::Nothing);
        assert_eq!((seen.completed, seen.left_over), (RUNS, 0), "seed {seed}: a run was lost");
        assert_eq!(seen.again, 0, "seed {seed}: a finished step began again");
        all.begun += seen.begun;
        all.deaths += seen.deaths;
        all.freezes += seen.freezes;
        all.lost += seen.lost;
    }
    println!(
        "{schedules} schedules: {} steps begun for {} needed, {} deaths, {} freezes, {} answers lost on machines that died",
        all.begun,
        schedules as usize * RUNS * STEPS,
        all.deaths,
        all.freezes,
        all.lost
    );
    assert!(all.deaths > 0 && all.freezes > 0 && all.begun > schedules as usize * RUNS * STEPS);
}

/// Negative control: a store that acknowledges what it doesn't keep is found out, and so is a queue that keeps what dead workers
/// held.
#[test]
fn the_simulation_finds_broken_stores_and_queues() {
    let finds = |broken| {
        (0..40).any(|seed| {
            let seen = simulate(seed, broken);
            seen.again > 0 || seen.completed < RUNS || seen.left_over > 0
        })
    };
    assert!(finds(Broken::Commits));
    assert!(finds(Broken::Queue));
}
