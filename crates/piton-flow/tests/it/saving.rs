//! Checkpoints that become durable while the run goes on (decision 3, F3): what may run ahead, what is told and when, and
//! what a failed sync means.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use piton_flow::{
    Document, EventSink, Flow, FlowError, FlowOptions, Format, Host, Inputs, Kinds, RunJournal, RunOutcome, Services,
    StartFlow, resume_durable, run_durable,
};
use piton_runtime::{Context, Listener, OpenRun, Run};
use piton_store::{Blobs, Capabilities, Commit, Log, RunIndex, RunLog, Span, Store, StoreError, Upkeep, forward};
use piton_testing::{CrashStore, Fault};
use piton_types::{EntryKind, Event, RunId, RunKind, RunStatus};
use tokio::sync::{Notify, Semaphore};

use crate::support::{Counter, memory, process, tell};

/// A store whose syncs wait until they are let through, or fail, and whose appends are never done at once.
struct Gate {
    inner: Arc<dyn Store>,
    open: Semaphore,
    fails: AtomicBool,
    /// The result of this step is held up as well.
    slow: Option<&'static str>,
    go_on: Notify,
}

impl Gate {
    fn new(inner: Arc<dyn Store>, permits: usize) -> Arc<Self> {
        Arc::new(Self::over(inner, permits))
    }

    fn over(inner: Arc<dyn Store>, permits: usize) -> Self {
        let (open, fails) = (Semaphore::new(permits), AtomicBool::new(false));
        Self { inner, open, fails, slow: None, go_on: Notify::new() }
    }
}

#[async_trait]
impl Log for Gate {
    forward! { head read segments section fold }

    async fn append(&self, commit: Commit) -> Result<(), StoreError> {
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        // The kind stands behind the version and the parent.
        let is_result = commit.entry[33] == EntryKind::StepDone as u8;
        let is_slow = |step: &str| commit.entry.windows(step.len()).any(|part| part == step.as_bytes());
        if is_result && self.slow.is_some_and(is_slow) {
            self.go_on.notified().await;
        }
        self.inner.append(commit).await
    }

    async fn append_chain(&self, chain: Vec<Commit>) -> Result<(), StoreError> {
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        self.inner.append_chain(chain).await
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.open.acquire().await.unwrap().forget();
        // Once: the next sync would succeed, and mean nothing.
        match self.fails.swap(false, Ordering::SeqCst) {
            true => Err(StoreError::Poisoned { cause: "the disk is gone".to_owned() }),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Blobs for Gate {
    forward! { stage locate pack pack_part era }
}

#[async_trait]
impl Upkeep for Gate {
    forward! { remove packs pack_ids rely next_era condemn sweep note set_note inspect run_ids totals }
}

#[async_trait]
impl RunIndex for Gate {
    forward! { summary list lease beat release }
}

#[async_trait]
impl Store for Gate {
    forward! { hashing redaction syncs url usage close }

    fn capabilities(&self) -> Capabilities {
        Capabilities { sync: true, ..self.inner.capabilities() }
    }
}

/// Two nodes with checkpoints that touch nothing outside, one behind them, and one outward at the end.
const LINE: &str = "
nodes:
  - {id: s, data: {type: start}}
  - {id: a, data: {type: template-transform, template: a, variables: [], checkpoint: true}}
  - {id: b, data: {type: template-transform, template: b, variables: [], checkpoint: true}}
  - {id: c, data: {type: template-transform, template: c, variables: []}}
  - {id: w, data: {type: command, command: [echo, '1']}}
  - {id: e, data: {type: end, outputs: [{variable: x, value_selector: [w, stdout]}]}}
edges: [{source: s, target: a}, {source: a, target: b}, {source: b, target: c}, {source: c, target: w}, {source: w, target: e}]
";

fn id() -> RunId {
    "r".parse().unwrap()
}

type Told = Arc<Mutex<Vec<String>>>;

fn options() -> (FlowOptions, Told) {
    let told = Told::default();
    let sink = Arc::clone(&told);
    let events = Listener::new(move |event: &Event| sink.lock().unwrap().push(tell(event)));
    (FlowOptions { events, ..FlowOptions::default() }, told)
}

async fn begin(document: String, store: Arc<dyn Store>, options: FlowOptions) -> Result<RunOutcome, FlowError> {
    begin_in(&process(&store), document, options).await
}

async fn begin_in(context: &Context, document: String, options: FlowOptions) -> Result<RunOutcome, FlowError> {
    let start = StartFlow {
        document,
        format: Format::Yaml,
        inputs: Inputs::new(),
        id: Some(id()),
        name: "r".to_owned(),
        folder: None,
        options,
    };
    run_durable(context, start).await
}

/// Waits for an event.
async fn until(told: &Told, event: &str) -> Vec<String> {
    for _ in 0..60_000 {
        let seen = told.lock().unwrap().clone();
        if seen.iter().any(|told| told == event) {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("no {event} within a minute: {told:?}")
}

/// The same without anything outward.
fn pure() -> String {
    let document =
        LINE.replace("{type: command, command: [echo, '1']}", "{type: template-transform, template: w, variables: []}");
    document.replace("[w, stdout]", "[w, output]")
}

/// Everything goes on while the disk takes its time. But no checkpoint is told of, and the run doesn't end, before its
/// sync is done.
#[tokio::test]
async fn nodes_run_ahead_of_a_sync_and_nothing_is_told_before_it() {
    let gate = Gate::new(memory(), 0);
    let (options, told) = options();
    let run = tokio::spawn(begin(pure(), Arc::clone(&gate) as _, options));
    let before = until(&told, "finished e").await;
    assert!(!before.iter().any(|told| told.starts_with("saved")), "{before:?}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!run.is_finished() && !told.lock().unwrap().contains(&"succeeded".to_owned()));
    gate.open.add_permits(100);
    run.await.unwrap().unwrap();
    let told = told.lock().unwrap().clone();
    assert_eq!(told[told.len() - 4..], ["finished e", "saved r@3", "saved r@4", "succeeded"], "{told:?}");
}

/// What is outward doesn't wait for that sync, since its own intent makes all before it durable; so those checkpoints can
/// be told of, in order and before its own, although the disk has synced nothing else.
#[tokio::test]
async fn a_durable_entry_makes_the_checkpoints_before_it_durable() {
    let document = LINE.replace("command: [echo, '1']", "command: [echo, '1'], checkpoint: true");
    let (options, told) = options();
    begin(document, Gate::new(memory(), 0), options).await.unwrap();
    let told = told.lock().unwrap().clone();
    let saved: Vec<_> = told.iter().filter(|told| told.starts_with("saved")).collect();
    assert_eq!(saved, ["saved r@3", "saved r@4", "saved r@7"], "{told:?}");
}

/// Whoever is told through a channel, and takes his time, hears of every checkpoint once and holds nobody up for good.
#[tokio::test]
async fn a_full_channel_loses_no_checkpoint() {
    let branches = ["a", "b", "c", "d"];
    let node = |id: &str| {
        format!("  - {{id: {id}, data: {{type: template-transform, template: t, variables: [], checkpoint: true}}}}\n")
    };
    let edge = |id: &str| format!("{{source: s, target: {id}}}, {{source: {id}, target: e}}");
    let document = format!(
        "nodes:\n  - {{id: s, data: {{type: start}}}}\n{}  - {{id: e, data: {{type: end}}}}\nedges: [{}]\n",
        branches.map(node).concat(),
        branches.map(edge).join(", ")
    );
    let flow = Flow::build(&Document::parse(&document, Format::Yaml).unwrap(), &Kinds::builtin()).unwrap();
    let context = process(&(Gate::new(memory(), 100) as _));
    let opening = OpenRun { id: Some(id()), kind: RunKind::Workflow, ..OpenRun::default() };
    let run = Run::open(&context, opening).await.unwrap();
    let (services, ids) = (Services::default(), Counter::default());
    let journal = RunJournal::new(&run, &flow, &services, &*context.clock);
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let listener = tokio::spawn(async move {
        let mut told = Vec::new();
        while let Some(event) = receiver.recv().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
            told.push(tell(&event));
        }
        told
    });
    let host = Host { events: EventSink::Channel(&sender), ..Host::new(&journal, &*context.clock, &ids) };
    tokio::time::timeout(Duration::from_secs(60), piton_flow::run(&flow, Inputs::new(), &host)).await.unwrap().unwrap();
    drop(sender);
    let told = listener.await.unwrap();
    let mut saved: Vec<_> = told.iter().filter(|told| told.starts_with("saved")).collect();
    saved.sort();
    assert_eq!(saved, ["saved r@3", "saved r@4", "saved r@5", "saved r@6"], "{told:?}");
    assert_eq!(told.last().unwrap(), "succeeded");
}

/// Nodes side by side, one of which takes so long that its result is waited for: they are told of in the order in which
/// the log has them, which is that in which they count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_slow_and_what_is_quick_count_in_the_order_of_the_log() {
    let mut document = "nodes:
  - {id: s, data: {type: start}}
  - {id: slow, data: {type: template-transform, template: '{% for i in range(3000) %}{{ i }}{% endfor %}', variables: []}}
"
    .to_owned();
    let mut edges = vec!["{source: s, target: slow}".to_owned(), "{source: s, target: q0}".to_owned()];
    for n in 0..40 {
        document += &format!("  - {{id: q{n}, data: {{type: template-transform, template: t, variables: []}}}}\n");
        edges.push(format!(
            "{{source: q{n}, target: {}}}",
            if n == 39 { "e".to_owned() } else { format!("q{}", n + 1) }
        ));
    }
    document += &format!("  - {{id: e, data: {{type: end, outputs: []}}}}\nedges: [{}]\n", edges.join(", "));
    for round in 0..10 {
        let (options, told) = options();
        let store: Arc<dyn Store> = Gate::new(memory(), 100);
        begin_in(&Context::system(Arc::clone(&store)), document.clone(), options).await.unwrap();
        let log = RunLog::open(Arc::clone(&store), &id()).await.unwrap();
        let steps = log.entries(Span::ALL).await.unwrap().into_iter().filter(|entry| entry.kind == EntryKind::StepDone);
        let logged: Vec<_> = steps.map(|entry| format!("finished {}", entry.label)).collect();
        let told = told.lock().unwrap().clone();
        let told: Vec<_> = told.into_iter().filter(|told| told.starts_with("finished")).collect();
        assert_eq!(told, logged, "round {round}");
        assert_eq!(told.len(), 43);
    }
}

/// A gather's time is over while the end of a branch is being written: the log will have it, so it counts, now as when the
/// run goes on from there.
#[tokio::test]
async fn what_is_being_written_when_a_gather_begins_counts() {
    let document = "
nodes:
  - {id: s, data: {type: start}}
  - {id: quick, data: {type: template-transform, template: q, variables: []}}
  - {id: straggler, data: {type: command, command: [echo, late]}}
  - {id: all, data: {type: gather, variables: [[quick, output], [straggler, stdout]], join_mode: all, timeout_secs: 1}}
  - {id: hold, data: {type: command, command: [sleep, '1']}}
  - {id: e, data: {type: end, outputs: [{variable: late, value_selector: [straggler, stdout]}]}}
edges: [{source: s, target: quick}, {source: s, target: straggler}, {source: quick, target: all}, {source: straggler, target: all}, {source: all, target: hold}, {source: hold, target: e}]
";
    let (options, told) = options();
    let gate = Arc::new(Gate { slow: Some("straggler"), ..Gate::over(memory(), 100) });
    let run = tokio::spawn(begin(document.to_owned(), Arc::clone(&gate) as _, options));
    until(&told, "finished quick").await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!told.lock().unwrap().contains(&"finished straggler".to_owned()), "{told:?}");
    gate.go_on.notify_one();
    let outcome = run.await.unwrap().unwrap();
    let told = told.lock().unwrap().clone();
    let place = |what: &str| told.iter().position(|told| told == what).unwrap_or_else(|| panic!("{told:?}"));
    assert!(place("finished straggler") < place("finished all"), "{told:?}");
    assert_eq!(outcome.outputs["late"], "late\n".into(), "{told:?}");
}

/// A question that is being written beside a node whose answer is told of: neither waits for the other.
#[tokio::test]
async fn a_question_and_an_answer_side_by_side() {
    let document = "
nodes:
  - {id: s, data: {type: start}}
  - {id: ask, data: {type: human-input, prompt: 'Well?', variables: [{name: ok, type: boolean, required: true}]}}
  - {id: a, data: {type: template-transform, template: a, variables: []}}
  - {id: b, data: {type: template-transform, template: b, variables: []}}
  - {id: say, data: {type: answer, answer: 'said {{#b.output#}}'}}
edges: [{source: s, target: ask}, {source: s, target: a}, {source: a, target: b}, {source: b, target: say}]
";
    let (options, told) = options();
    let running = begin(document.to_owned(), Gate::new(memory(), 100), options);
    let outcome = tokio::time::timeout(Duration::from_secs(30), running).await.unwrap().unwrap();
    assert_eq!(outcome.status, RunStatus::Waiting);
    let told = told.lock().unwrap().clone();
    let place = |what: &str| told.iter().position(|told| told.starts_with(what)).unwrap_or_else(|| panic!("{told:?}"));
    assert!(place("begun ask") < place("RunPaused"), "{told:?}");
    assert!(place("finished b") < place("Answer { run: RunId(r), step: StepPath(say), text: \"b\""), "{told:?}");
}

/// Decision 3: what is outward begins behind a durable entry, whether the sync before it was done or not.
#[tokio::test]
async fn what_is_outward_waits_for_all_before_it() {
    let (durable, relaxed) = ("append", "append_relaxed");
    // Created and claimed; s, a, b and c; the intent and the result of w; e; completed.
    let late = [durable, durable, relaxed, relaxed, relaxed, relaxed, durable, durable, relaxed, durable];
    let store = Arc::new(CrashStore::new(Gate::new(memory(), 0), Fault::None));
    let (options, told) = options();
    let run = tokio::spawn(begin(LINE.to_owned(), Arc::clone(&store) as _, options));
    until(&told, "finished w").await;
    assert_eq!(appends(&store)[..8], late[..8], "the disk has synced nothing else by then");
    run.abort();

    // With a disk that is quick, and a checkpoint just before w.
    let document = LINE.replace("template: c, variables: []", "template: c, variables: [], checkpoint: true");
    let store = Arc::new(CrashStore::new(Gate::new(memory(), 100), Fault::None));
    begin(document, Arc::clone(&store) as _, FlowOptions::default()).await.unwrap();
    let expected = [durable, durable, relaxed, relaxed, relaxed, relaxed, relaxed, durable, relaxed, durable];
    assert_eq!(appends(&store), expected, "c is durable when w begins, so its intent needs no sync");
}

fn appends(store: &CrashStore) -> Vec<&'static str> {
    store.names().into_iter().filter(|name| name.starts_with("append")).collect()
}

/// A run that waits for a person rests only when its checkpoints are durable and told of.
#[tokio::test]
async fn a_run_comes_to_rest_behind_its_syncs() {
    let document =
        LINE.replace("{type: command, command: [echo, '1']}", "{type: human-input, prompt: 'Go?', checkpoint: false}");
    let document = document.replace("value_selector: [w, stdout]", "value_selector: [c, output]");
    let gate = Gate::new(memory(), 0);
    let (options, told) = options();
    let run = tokio::spawn(begin(document, Arc::clone(&gate) as _, options));
    until(&told, "finished c").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!run.is_finished(), "{told:?}");
    gate.open.add_permits(100);
    assert_eq!(run.await.unwrap().unwrap().status, RunStatus::Waiting);
    let told = told.lock().unwrap().clone();
    assert!(told.contains(&"saved r@3".to_owned()) && told.contains(&"saved r@4".to_owned()), "{told:?}");
}

/// An error handler begins when its flow has failed, and its checkpoints are told of like others.
#[tokio::test]
async fn checkpoints_of_an_error_handler_are_told_of() {
    let handler = "
error_handler:
  mode: recover
  sub_graph:
    nodes:
      - {id: hs, data: {type: start}}
      - {id: h, data: {type: template-transform, template: h, variables: [], checkpoint: true}}
      - {id: he, data: {type: end, outputs: [{variable: x, value_selector: [h, output]}]}}
    edges: [{source: hs, target: h}, {source: h, target: he}]
";
    let document = LINE.replace("[echo, '1']", "['false']") + handler;
    let (options, told) = options();
    let outcome = begin(document, Gate::new(memory(), 100), options).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{outcome:?}");
    let told = told.lock().unwrap().clone();
    assert_eq!(told.iter().filter(|told| told.starts_with("saved")).count(), 3, "{told:?}");
}

/// A sync that fails: no checkpoint is told of, the run doesn't end well, and it goes on from what the log has.
#[tokio::test]
async fn a_failed_sync_stops_the_run_and_acknowledges_nothing() {
    let gate = Gate::new(memory(), 100);
    gate.fails.store(true, Ordering::SeqCst);
    let (options, told) = options();
    let error = begin(LINE.to_owned(), Arc::clone(&gate) as _, options).await.unwrap_err();
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    let told = told.lock().unwrap().clone();
    assert!(!told.iter().any(|told| told.starts_with("saved") || told == "succeeded"), "{told:?}");
    assert!(told.contains(&"finished a".to_owned()) && !told.contains(&"begun w".to_owned()), "{told:?}");

    let store = Arc::clone(&gate) as Arc<dyn Store>;
    let (options, told) = self::options();
    let outcome = resume_durable(&process(&store), &id(), options).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{outcome:?}");
    assert!(told.lock().unwrap().contains(&"skipped a".to_owned()), "{told:?}");
}
