//! Of all processes that want a run, one gets it; a process that lost it can't write.

use std::process::Command;
use std::sync::Arc;

use piton_log::{Draft, RunLog};
use piton_runtime::{Context, Run, RunError, StepError, this_process};
use piton_store::{Store, StoreError};
use piton_store_objects::ObjectStore;
use piton_types::{EntryKind, Holder, RunState, RunStatus, Timestamp, to_value};

use crate::support::{dead_process, entries, history, memory, open, process, run_id};

fn here(store: &Arc<dyn Store>) -> Context {
    Context::system(Arc::clone(store))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_racing_opens_exactly_one_wins() {
    for round in 0..50 {
        let store = memory();
        if round % 2 == 0 {
            // Half of the rounds race to take over from the dead, the others to create.
            drop(Run::open(&process(&store), open()).await.unwrap());
        }
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let context = here(&store);
                tokio::spawn(async move { Run::open(&context, open()).await })
            })
            .collect();
        let (mut winners, mut held) = (Vec::new(), 0);
        for task in tasks {
            match task.await.unwrap() {
                Ok(run) => winners.push(run),
                Err(RunError::Held { holder, .. }) => {
                    assert_eq!(holder, this_process());
                    held += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((winners.len(), held), (1, 7));
        winners.remove(0).complete(()).await.unwrap();
    }
}

#[tokio::test]
async fn a_run_that_was_let_go_can_be_opened_again_in_the_same_process() {
    let store = memory();
    let run = Run::open(&here(&store), open()).await.unwrap();
    assert!(matches!(Run::open(&here(&store), open()).await, Err(RunError::Held { .. })));
    drop(run);
    Run::open(&here(&store), open()).await.unwrap();
}

#[tokio::test]
async fn a_stale_writer_is_fenced_after_a_takeover() {
    let store = memory();
    let mut stale = Run::open(&process(&store), open()).await.unwrap();
    stale.step("a", (), async |()| Ok::<_, String>(1)).await.unwrap();
    // To other processes the stale one is no live process, so they take the run over under its feet.
    let mut owner = Run::open(&process(&store), open()).await.unwrap();

    let lost = RunError::from(stale.step("b", (), async |()| Ok::<_, String>(2)).await.unwrap_err());
    assert!(lost.is_fenced(), "{lost}");
    let broken = stale.step("c", (), async |()| -> Result<(), String> { panic!("it ran") }).await;
    assert!(matches!(broken, Err(StepError::Run(RunError::Broken { .. }))));
    assert!(matches!(stale.complete(()).await, Err(RunError::Broken { .. })));

    owner.step("a", (), async |()| -> Result<i32, String> { panic!("it ran") }).await.unwrap();
    assert_eq!(owner.step("b", (), async |()| Ok::<_, String>(3)).await.unwrap(), 3);
    owner.complete(()).await.unwrap();
    let steps: Vec<_> = history(&store).await.steps.into_iter().map(|step| step.path.to_string()).collect();
    assert_eq!(steps, ["a", "b"]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_live_process_keeps_its_run_and_a_killed_one_loses_it() {
    let store = memory();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
    let holder = Holder { pid: child.id(), started, ..this_process() };
    let theirs = Run::open(&Context { holder: holder.clone(), ..here(&store) }, open()).await.unwrap();
    drop(theirs);

    let before = entries(&store).await;
    let error = Run::open(&here(&store), open()).await.unwrap_err();
    assert!(matches!(&error, RunError::Held { holder: found, .. } if *found == holder));
    let said = format!("run a-run is being driven by process {} on {} since 20", holder.pid, holder.host);
    assert!(error.to_string().starts_with(&said), "{error}");
    assert_eq!(entries(&store).await, before, "nothing was changed");

    child.kill().unwrap();
    child.wait().unwrap();
    Run::open(&here(&store), open()).await.unwrap();
    assert_eq!(store.lease(&run_id()).await.unwrap().unwrap().holder, this_process());
}

#[tokio::test]
async fn a_holder_elsewhere_keeps_its_run_and_one_of_before_the_boot_loses_it() {
    for (host, boot, kept) in [(Some("elsewhere"), None, true), (None, Some("before"), false)] {
        let store = memory();
        let mut holder = dead_process();
        host.inspect(|host| holder.host = (*host).to_owned());
        boot.inspect(|boot| holder.boot = (*boot).to_owned());
        drop(Run::open(&Context { holder, ..here(&store) }, open()).await.unwrap());
        let opened = Run::open(&here(&store), open()).await;
        assert_eq!(matches!(opened, Err(RunError::Held { .. })), kept);
        assert_eq!(opened.is_ok(), !kept);
    }
}

#[tokio::test]
async fn an_ended_run_has_no_lease_and_a_cancelled_one_stays_so() {
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let run = Run::open(&here(&store), open()).await.unwrap();
    assert!(store.lease(&run_id()).await.unwrap().is_some());
    run.fail(piton_runtime::Failure::new("test", "enough")).await.unwrap();
    assert!(store.lease(&run_id()).await.unwrap().is_none());

    let mut log = RunLog::open(Arc::clone(&store), &run_id()).await.unwrap();
    let mut draft = Draft::new(EntryKind::StateChanged, Timestamp::from_millis(1));
    draft.body = to_value(&RunState::Cancelled { at: Timestamp::from_millis(1), reason: "no".into() }).unwrap();
    log.append(draft).await.unwrap();
    let error = Run::open(&here(&store), open()).await.unwrap_err();
    let RunError::Illegal { cause, .. } = &error else { panic!("{error}") };
    assert_eq!((cause.from, cause.to), (RunStatus::Cancelled, RunStatus::InProgress));
}

/// A log that doesn't decode is damage, not a panic.
#[tokio::test]
async fn a_body_that_makes_no_sense_is_corrupt() {
    let store = memory();
    drop(Run::open(&process(&store), open()).await.unwrap());
    let mut log = RunLog::open(Arc::clone(&store), &run_id()).await.unwrap();
    log.append(Draft::new(EntryKind::StepDone, Timestamp::from_millis(1))).await.unwrap();
    let opened = Run::open(&process(&store), open()).await;
    assert!(matches!(opened, Err(RunError::Store(StoreError::Corrupt { .. }))));
}
