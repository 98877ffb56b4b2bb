//! Workflows as durable runs: killed anywhere, resumed without their document, never done twice.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};

use piton_flow::{FlowError, FlowOptions, RunOutcome, StartFlow, resume_durable, run_durable};
use piton_log::RunLog;
use piton_runtime::{Context, Listener, Run, RunError};
use piton_store::{Span, Store, StoreError};
use piton_testing::{CrashStore, Fault};
use piton_types::{BlobId, Durability, Event, RunStatus, Value};

use crate::ledger::{Ledger, id};
use crate::support::{inputs, memory, process, tell};

/// Every command leaves a line in a file outside of the run: what really ran. The commands are
/// checkpoints.
const DOCUMENT: &str = "
version: 0.1.0
nodes:
  - {id: in, data: {type: start, variables: [{variable: ledger, type: string, required: true}]}}
  - {id: pay, data: {type: command, checkpoint: true, command: [sh, -c, 'echo pay >> \"$0\"; echo 42', '{{#in.ledger#}}']}}
  - {id: note, data: {type: template-transform, checkpoint: false, template: 'paid {{ sum }}', variables: [{variable: sum, value_selector: [pay, stdout]}]}}
  - {id: ship, data: {type: command, checkpoint: true, command: [sh, -c, 'echo ship >> \"$0\"; echo done', '{{#in.ledger#}}']}}
  - {id: out, data: {type: end, outputs: [{variable: note, value_selector: [note, output]}, {variable: ship, value_selector: [ship, stdout]}]}}
edges:
  - {source: in, target: pay}
  - {source: pay, target: note}
  - {source: note, target: ship}
  - {source: ship, target: out}
";

fn new_ledger() -> Ledger {
    Ledger::of(DOCUMENT, inputs([("ledger", "ledger".into())]))
}

/// The number, label and variables' root of every checkpoint.
async fn checkpoints(store: &Arc<dyn Store>) -> Vec<(u32, String, BlobId)> {
    let log = RunLog::open(Arc::clone(store), &id()).await.unwrap();
    let entries = log.entries(Span::ALL).await.unwrap();
    let with_parts = entries.into_iter().filter(|entry| !entry.parts.is_empty());
    with_parts
        .map(|entry| {
            let parts: Vec<_> = entry.parts.iter().map(|(name, part)| (name.0.as_str(), part)).collect();
            let [("engine", _), ("variables", part)] = parts[..] else { panic!("{parts:?}") };
            assert_eq!((part.schema.as_str(), part.version), ("piton.variables", 1));
            (entry.seq.0, entry.label.clone(), part.root)
        })
        .collect()
}

async fn resume(context: &Context) -> Result<RunOutcome, FlowError> {
    resume_durable(context, &id(), FlowOptions::default()).await
}

#[tokio::test]
async fn a_node_is_one_commit_and_a_completed_run_is_only_read() {
    let (store, ledger) = (memory(), new_ledger());
    let outcome = run_durable(&process(&store), ledger.start()).await.unwrap();
    assert_eq!((outcome.status, outcome.error.clone()), (RunStatus::Completed, None));
    assert_eq!(outcome.outputs, inputs([("note", "paid 42\n".into()), ("ship", "done\n".into())]));
    let head = store.head(&id()).await.unwrap().unwrap();
    assert_eq!(head.seq.0 + 1, 5 + 2 + 3, "five nodes, two intents, and created, claimed, completed");

    assert_eq!(run_durable(&process(&store), ledger.start()).await.unwrap(), outcome);
    assert_eq!(resume(&process(&store)).await.unwrap(), outcome);
    assert_eq!(ledger.lines(), ["pay", "ship"]);
    assert_eq!(store.head(&id()).await.unwrap().unwrap(), head);
}

#[tokio::test]
async fn marked_nodes_are_checkpoints_with_the_variables_so_far() {
    let (store, ledger) = (memory(), new_ledger());
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    let events = Listener::new(move |event| sink.lock().unwrap().push(tell(event)));
    run_durable(
        &process(&store),
        StartFlow { options: FlowOptions { events, ..FlowOptions::default() }, ..ledger.start() },
    )
    .await
    .unwrap();
    let saved = checkpoints(&store).await;
    let places: Vec<_> = saved.iter().map(|(seq, node, _)| (*seq, node.as_str())).collect();
    assert_eq!(places, [(4, "pay"), (7, "ship")], "in the entries of the nodes, and in no others");
    assert_eq!(told.lock().unwrap()[3..7], ["begun pay", "finished pay", "saved order-7@4", "begun note"]);

    let log = RunLog::open(Arc::clone(&store), &id()).await.unwrap();
    let command =
        |stdout: &str| Value::map([("stdout", stdout.into()), ("stderr", "".into()), ("exit_code", Value::from(0))]);
    let first = Value::map([("in", Value::map([("ledger", "ledger".into())])), ("pay", command("42\n"))]);
    assert_eq!(log.load_root(saved[0].2).await.unwrap(), first);
    let Value::Map(mut second) = first else { panic!() };
    second.insert("note".to_owned(), Value::map([("output", "paid 42\n".into())]));
    second.insert("ship".to_owned(), command("done\n"));
    assert_eq!(log.load_root(saved[1].2).await.unwrap(), Value::Map(second));
}

#[tokio::test]
async fn a_run_without_marked_nodes_has_no_checkpoints() {
    for mark in ["", "checkpoint: false, "] {
        let (store, ledger) = (memory(), new_ledger());
        let document = DOCUMENT.replace("checkpoint: true, ", mark);
        run_durable(&process(&store), StartFlow { document, ..ledger.start() }).await.unwrap();
        assert_eq!(checkpoints(&store).await, [], "{mark}");
    }
}

/// The first output is large; the second checkpoint, and one after a crash, cost only what is new.
#[tokio::test]
async fn a_checkpoint_costs_the_change() {
    let document = DOCUMENT.replace("echo 42", "seq 20000").replace("'paid {{ sum }}'", "'paid'");
    let mut between = 0;
    for fault in std::iter::once(Fault::None).chain((1..30).map(Fault::CrashBefore)) {
        let (store, ledger) = (memory(), new_ledger());
        let start = || StartFlow { document: document.clone(), ..ledger.start() };
        let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&store), fault));
        let first = run_durable(&process(&crashing), start()).await;
        if fault != Fault::None {
            // Only where the crash came between the two.
            if first.is_ok() || store.head(&id()).await.unwrap().is_none() || checkpoints(&store).await.len() != 1 {
                continue;
            }
            between += 1;
            run_durable(&process(&store), start()).await.unwrap();
        }
        let saved = checkpoints(&store).await;
        let records = store.read(&id(), Span { packs: true, ..Span::ALL }).await.unwrap();
        let cost = |seq: u32| records.iter().find(|record| record.seq.0 == seq).unwrap().pack.len();
        assert!(cost(saved[0].0) > 100_000, "{}", cost(saved[0].0));
        assert!(cost(saved[1].0) < 10_000, "{fault:?}: {}", cost(saved[1].0));
    }
    assert!(between > 0);
}

/// With each entry a call of its own, and with several in one.
#[tokio::test]
async fn a_crash_at_any_call_pays_at_most_the_step_in_flight_twice() {
    crash_at_any_call(CrashStore::new).await;
    crash_at_any_call(|below, fault| CrashStore::new(below, fault).with_chains()).await;
}

async fn crash_at_any_call(over: impl Fn(Arc<dyn Store>, Fault) -> CrashStore) {
    let ledger = new_ledger();
    let counting = Arc::new(over(memory(), Fault::None));
    let store: Arc<dyn Store> = Arc::clone(&counting) as _;
    let whole = run_durable(&process(&store), ledger.start()).await.unwrap();
    let calls = counting.calls();
    let roots: Vec<_> = checkpoints(&store).await.into_iter().map(|(_, node, root)| (node, root)).collect();
    assert_eq!(roots.len(), 2);
    for at in 1..=calls {
        for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
            let (below, ledger) = (memory(), new_ledger());
            let crashing: Arc<dyn Store> = Arc::new(over(Arc::clone(&below), fault));
            let first = run_durable(&process(&crashing), ledger.start()).await;
            let before = ledger.lines();
            let recorded = match Run::resume(&process(&below), &id(), Durability::Durable, Listener::default()).await {
                Ok(run) => {
                    let recorded = async |step: &str| run.recorded(&step.parse().unwrap()).await.unwrap().is_some();
                    [recorded("pay").await, recorded("ship").await]
                }
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
            let saved: Vec<_> = checkpoints(&below).await.into_iter().map(|(_, node, root)| (node, root)).collect();
            assert_eq!(saved, roots, "{fault:?}: the variables are those of a run that nobody touched");
            let after = ledger.lines();
            for (step, recorded) in ["pay", "ship"].into_iter().zip(recorded) {
                let count = |lines: &[String]| lines.iter().filter(|line| *line == step).count();
                let again = count(&after) - count(&before);
                assert_eq!(again, usize::from(!recorded), "{fault:?}: {step} ran again just if it wasn't recorded");
            }
        }
    }
}

/// A line of nodes that follow from each other, every third a checkpoint, and something outward in the middle.
fn line() -> String {
    let mut nodes = vec!["  - {id: n0, data: {type: start}}".to_owned()];
    for n in 1..30 {
        let data = match n {
            15 => "{type: command, command: ['true']}".to_owned(),
            _ => format!("{{type: template-transform, checkpoint: {}, template: t{n}}}", n % 3 == 0),
        };
        nodes.push(format!("  - {{id: n{n}, data: {data}}}"));
    }
    nodes.push("  - {id: n30, data: {type: end, outputs: []}}".to_owned());
    let edges: Vec<_> = (0..30).map(|n| format!("  - {{source: n{n}, target: n{}}}", n + 1)).collect();
    format!("nodes:\n{}\nedges:\n{}\n", nodes.join("\n"), edges.join("\n"))
}

/// The steps that a listener was told of: begun, finished.
type Told = Arc<Mutex<(BTreeSet<String>, BTreeSet<String>)>>;

fn listening(told: &Told) -> FlowOptions {
    let told = Arc::clone(told);
    let events = Listener::new(move |event| match event {
        Event::StepStarted { step, .. } => drop(told.lock().unwrap().0.insert(step.to_string())),
        Event::StepFinished { step, .. } => drop(told.lock().unwrap().1.insert(step.to_string())),
        _ => {}
    });
    FlowOptions { events, ..FlowOptions::default() }
}

/// Promise 10: whatever was said to be finished doesn't run again, whether it touches the world or not. What ran and was
/// never told of was in flight.
#[tokio::test]
async fn what_was_told_as_finished_never_runs_again() {
    let ledger = new_ledger();
    let start =
        |told: &Told| StartFlow { document: line(), inputs: inputs([]), options: listening(told), ..ledger.start() };
    let (mut unfinished, mut resumed) = (0, 0);
    for chains in [false, true] {
        let over = |below, fault| {
            let store = CrashStore::new(below, fault);
            Arc::new(if chains { store.with_chains() } else { store })
        };
        let counting = over(memory(), Fault::None);
        run_durable(&process(&(Arc::clone(&counting) as _)), start(&Told::default())).await.unwrap();
        for at in 1..=counting.calls() {
            for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
                let (below, before, after) = (memory(), Told::default(), Told::default());
                let crashing: Arc<dyn Store> = over(Arc::clone(&below), fault);
                let first = run_durable(&process(&crashing), start(&before)).await;
                let second = match resume_durable(&process(&below), &id(), listening(&after)).await {
                    Err(FlowError::Run(RunError::Store(StoreError::NotFound { .. }))) => continue,
                    second => second.unwrap(),
                };
                assert_eq!(second.status, RunStatus::Completed, "{fault:?}");
                let ((_, finished), (begun, _)) = (&*before.lock().unwrap(), &*after.lock().unwrap());
                let again: Vec<_> = finished.intersection(begun).collect();
                assert!(again.is_empty(), "{fault:?}, chains {chains}: {again:?} ran again");
                unfinished += usize::from(first.is_err() && finished.len() < 31);
                resumed += finished.len();
            }
        }
    }
    assert!(unfinished > 60 && resumed > 500, "{unfinished} runs were cut short, with {resumed} finished steps");
}

#[tokio::test]
async fn a_failed_node_is_tried_again_and_the_finished_ones_are_not() {
    let store = memory();
    let told = Arc::new(Mutex::new(Vec::new()));
    let listening = || {
        let told = Arc::clone(&told);
        let events = Listener::new(move |event| told.lock().unwrap().push(tell(event)));
        FlowOptions { events, ..FlowOptions::default() }
    };
    let ledger = new_ledger();
    let start = StartFlow {
        config: None,
        priority: 0,
        estimated_complexity: None,
        document: DOCUMENT.replace("echo ship >>", "test -e ready || exit 1; echo ship >>"),
        options: listening(),
        ..ledger.start()
    };
    let failed = run_durable(&process(&store), start).await.unwrap();
    assert_eq!(failed.status, RunStatus::Failed);
    assert!(failed.error.unwrap().starts_with("node ship failed: \"sh\" ended with"), "told in full");
    assert_eq!(store.summary(&id()).await.unwrap().unwrap().status, RunStatus::Failed);

    // The commands run in the run's own folder, wherever it is resumed from.
    fs::write(ledger.path().join("ready"), "").unwrap();
    let outcome = resume_durable(&process(&store), &id(), listening()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed);
    assert_eq!(ledger.lines(), ["pay", "ship"]);
    let told = told.lock().unwrap();
    let second = told.iter().skip_while(|told| *told != "run failed").skip(1).cloned().collect::<Vec<_>>();
    assert_eq!(
        second,
        [
            "started true",
            "from order-7@4",
            "skipped in",
            "skipped pay",
            "skipped note",
            "begun ship",
            "finished ship",
            "saved order-7@12",
            "begun out",
            "finished out",
            "succeeded",
        ]
    );
}

#[tokio::test]
async fn another_document_or_inputs_under_the_same_id_are_refused() {
    let (store, ledger) = (memory(), new_ledger());
    let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&store), Fault::CrashBefore(12)));
    run_durable(&process(&crashing), ledger.start()).await.unwrap_err();
    let before = store.head(&id()).await.unwrap().unwrap();
    let other = StartFlow { document: DOCUMENT.replace("paid", "PAID"), ..ledger.start() };
    let refused = run_durable(&process(&store), other).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "run order-7 was begun in other surroundings:\ndanger: schema: the document is another one: note"
    );
    let other = StartFlow { inputs: inputs([("ledger", "elsewhere".into())]), ..ledger.start() };
    assert!(matches!(run_durable(&process(&store), other).await, Err(FlowError::Differs { what: "inputs", .. })));
    assert_eq!(store.head(&id()).await.unwrap(), Some(before), "what was refused is as it was");
}

#[tokio::test]
async fn nothing_is_created_for_what_is_not_valid() {
    let (store, ledger) = (memory(), new_ledger());
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
