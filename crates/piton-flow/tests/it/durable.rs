//! Workflows as durable runs: killed anywhere, resumed without their document, never done twice.

use std::fs;
use std::sync::{Arc, Mutex};

use piton_flow::{FlowError, Format, RunOutcome, StartFlow, resume_durable, run_durable};
use piton_runtime::{Context, Listener, Run, RunError, this_process};
use piton_store::{MemoryStore, Store, StoreError};
use piton_testing::{CrashStore, Fault, ManualClock, SeededRandom};
use piton_types::{Durability, Holder, RunId, RunStatus};

use crate::support::{inputs, tell};

/// Every command leaves a line in a file outside of the run: what really ran.
const DOCUMENT: &str = "
version: 0.1.0
nodes:
  - {id: in, data: {type: start, variables: [{variable: ledger, type: string, required: true}]}}
  - {id: pay, data: {type: command, command: [sh, -c, 'echo pay >> \"$0\"; echo 42', '{{#in.ledger#}}']}}
  - {id: note, data: {type: template-transform, template: 'paid {{ sum }}', variables: [{variable: sum, value_selector: [pay, stdout]}]}}
  - {id: ship, data: {type: command, command: [sh, -c, 'echo ship >> \"$0\"; echo done', '{{#in.ledger#}}']}}
  - {id: out, data: {type: end, outputs: [{variable: note, value_selector: [note, output]}, {variable: ship, value_selector: [ship, stdout]}]}}
edges:
  - {source: in, target: pay}
  - {source: pay, target: note}
  - {source: note, target: ship}
  - {source: ship, target: out}
";

/// A process that to everybody else is dead.
fn process(store: &Arc<dyn Store>) -> Context {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(5_000_000);
    let pid = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Context {
        store: Arc::clone(store),
        clock: Arc::new(ManualClock::default()),
        random: Arc::new(SeededRandom::new(pid.into())),
        holder: Holder { pid, started: 1, ..this_process() },
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn id() -> RunId {
    "order-7".parse().unwrap()
}

struct Ledger(tempfile::NamedTempFile);

impl Ledger {
    fn new() -> Self {
        Self(tempfile::NamedTempFile::new().unwrap())
    }

    fn start(&self) -> StartFlow {
        StartFlow {
            document: DOCUMENT.to_owned(),
            format: Format::Yaml,
            inputs: inputs([("ledger", self.0.path().to_str().unwrap().into())]),
            id: Some(id()),
            name: "order".to_owned(),
            folder: None,
            durability: Durability::Durable,
            events: Listener::default(),
        }
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.0.path()).unwrap().lines().map(str::to_owned).collect()
    }
}

async fn resume(context: &Context) -> Result<RunOutcome, FlowError> {
    resume_durable(context, &id(), Durability::Durable, Listener::default()).await
}

#[tokio::test]
async fn a_node_is_one_commit_and_a_completed_run_is_only_read() {
    let (store, ledger) = (memory(), Ledger::new());
    let outcome = run_durable(&process(&store), ledger.start()).await.unwrap();
    assert_eq!((outcome.status, outcome.error.clone()), (RunStatus::Completed, None));
    assert_eq!(outcome.outputs, inputs([("note", "paid 42\n".into()), ("ship", "done\n".into())]));
    let head = store.head(&id()).await.unwrap().unwrap();
    assert_eq!(head.seq.0 + 1, 5 + 3, "five nodes, and created, claimed, completed");

    assert_eq!(run_durable(&process(&store), ledger.start()).await.unwrap(), outcome);
    assert_eq!(resume(&process(&store)).await.unwrap(), outcome);
    assert_eq!(ledger.lines(), ["pay", "ship"]);
    assert_eq!(store.head(&id()).await.unwrap().unwrap(), head);
}

#[tokio::test]
async fn a_crash_at_any_call_pays_at_most_the_step_in_flight_twice() {
    let ledger = Ledger::new();
    let counting = Arc::new(CrashStore::new(memory(), Fault::None));
    let whole = run_durable(&process(&(Arc::clone(&counting) as _)), ledger.start()).await.unwrap();
    for at in 1..=counting.calls() {
        for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
            let (below, ledger) = (memory(), Ledger::new());
            let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), fault));
            let first = run_durable(&process(&crashing), ledger.start()).await;
            let before = ledger.lines();
            let recorded = match Run::resume(&process(&below), &id(), Durability::Durable, Listener::default()).await {
                Ok(run) => ["pay", "ship"].map(|step| run.recorded(&step.parse().unwrap()).is_some()),
                Err(RunError::Store(StoreError::NotFound { .. })) => [false, false],
                Err(other) => panic!("{fault:?}: {other}"),
            };
            let outcome = match resume(&process(&below)).await {
                Err(FlowError::Run(RunError::Store(StoreError::NotFound { .. }))) => {
                    assert!(first.is_err() && before.is_empty(), "{fault:?}: nothing ran before the run was there");
                    run_durable(&process(&below), ledger.start()).await.unwrap()
                }
                outcome => outcome.unwrap(),
            };
            assert_eq!(outcome, whole, "{fault:?}");
            let after = ledger.lines();
            for (step, recorded) in ["pay", "ship"].into_iter().zip(recorded) {
                let count = |lines: &[String]| lines.iter().filter(|line| *line == step).count();
                let again = count(&after) - count(&before);
                assert_eq!(again, usize::from(!recorded), "{fault:?}: {step} ran again just if it wasn't recorded");
            }
        }
    }
}

#[tokio::test]
async fn a_failed_node_is_tried_again_and_the_finished_ones_are_not() {
    let (store, folder) = (memory(), tempfile::tempdir().unwrap());
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = || {
        let told = Arc::clone(&told);
        Listener::new(move |event| told.lock().unwrap().push(tell(event)))
    };
    let ledger = Ledger::new();
    let start = StartFlow {
        document: DOCUMENT.replace("echo ship >>", "test -e ready || exit 1; echo ship >>"),
        folder: Some(folder.path().to_str().unwrap().to_owned()),
        events: listener(),
        ..ledger.start()
    };
    let failed = run_durable(&process(&store), start).await.unwrap();
    assert_eq!(failed.status, RunStatus::Failed);
    assert!(failed.error.unwrap().starts_with("node ship failed: \"sh\" ended with"), "told in full");
    assert_eq!(store.summary(&id()).await.unwrap().unwrap().status, RunStatus::Failed);

    // The commands run in the run's own folder, wherever it is resumed from.
    fs::write(folder.path().join("ready"), "").unwrap();
    let outcome = resume_durable(&process(&store), &id(), Durability::Durable, listener()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed);
    assert_eq!(ledger.lines(), ["pay", "ship"]);
    let told = told.lock().unwrap();
    let second = told.iter().skip_while(|told| *told != "run failed").skip(1).cloned().collect::<Vec<_>>();
    assert_eq!(
        second,
        [
            "started true",
            "skipped in",
            "skipped pay",
            "skipped note",
            "begun ship",
            "finished ship",
            "begun out",
            "finished out",
            "succeeded",
        ]
    );
}

#[tokio::test]
async fn another_document_or_inputs_under_the_same_id_are_refused() {
    let (store, ledger) = (memory(), Ledger::new());
    let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&store), Fault::CrashBefore(12)));
    run_durable(&process(&crashing), ledger.start()).await.unwrap_err();
    let before = store.head(&id()).await.unwrap().unwrap();
    let other = StartFlow { document: DOCUMENT.replace("paid", "PAID"), ..ledger.start() };
    let refused = run_durable(&process(&store), other).await.unwrap_err();
    assert_eq!(refused.to_string(), "run order-7 exists with a document of its own");
    let other = StartFlow { inputs: inputs([("ledger", "elsewhere".into())]), ..ledger.start() };
    assert!(matches!(run_durable(&process(&store), other).await, Err(FlowError::Differs { what: "inputs", .. })));
    assert_eq!(store.head(&id()).await.unwrap(), Some(before), "what was refused is as it was");
}

#[tokio::test]
async fn nothing_is_created_for_what_is_not_valid() {
    let (store, ledger) = (memory(), Ledger::new());
    let bad = StartFlow { document: "nodes: 1".to_owned(), ..ledger.start() };
    assert!(matches!(run_durable(&process(&store), bad).await, Err(FlowError::Document(_))));
    let bad = StartFlow { inputs: inputs([]), ..ledger.start() };
    assert!(matches!(run_durable(&process(&store), bad).await, Err(FlowError::Inputs(_))));
    assert_eq!(store.head(&id()).await.unwrap(), None);

    let steps = piton_runtime::OpenRun { id: Some(id()), ..Default::default() };
    drop(Run::open(&process(&store), steps).await.unwrap());
    let before = store.head(&id()).await.unwrap();
    assert!(matches!(resume(&process(&store)).await, Err(FlowError::NotAWorkflow { .. })));
    assert_eq!(store.head(&id()).await.unwrap(), before);
}
