//! What is written when, and what is told when (decisions 3 and 4, F3, F9): quick pure nodes share a commit, which is
//! written before the run waits for anything; a listener hears of a node when it is written; a write that fails ends the
//! run, and nothing of it was told.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use piton_flow::{
    Document, EventSink, Flow, FlowError, FlowOptions, Format, Found, Happened, Host, Inputs, Journal, JournalError,
    Kinds, RunFacts, RunJournal, RunOutcome, Services, StartFlow, Written, resume_durable, run_durable,
};
use piton_log::RunLog;
use piton_runtime::{Context, Listener, OpenRun, Run};
use piton_store::{Blobs, Capabilities, Commit, Fold, Leases, Log, RunIndex, Span, Store, StoreError, Upkeep, forward};
use piton_testing::{CrashStore, Fault, ManualClock};
use piton_types::{Clock, EntryKind, Event, RunId, RunKind, RunStatus, StepPath, Timestamp};
use tokio::sync::Semaphore;

use crate::support::{Counter, memory, process, tell};

/// A store whose commits of results and intents wait until they are let through, or fail. It notes how many entries each
/// commit had, and how many bytes.
struct Gate {
    inner: Arc<dyn Store>,
    open: Semaphore,
    fails: AtomicBool,
    bursts: Mutex<Vec<(usize, usize)>>,
}

impl Gate {
    fn new(inner: Arc<dyn Store>, permits: usize) -> Arc<Self> {
        let (open, fails) = (Semaphore::new(permits), AtomicBool::new(false));
        Arc::new(Self { inner, open, fails, bursts: Mutex::default() })
    }

    async fn pass(&self, commits: &[Commit]) -> Result<(), StoreError> {
        // The kind stands behind the version and the parent.
        let is = |kind: EntryKind| commits.iter().any(|commit| commit.entry[33] == kind as u8);
        if is(EntryKind::StepDone) || is(EntryKind::EffectIntent) {
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            self.open.acquire().await.unwrap().forget();
            let bytes = commits.iter().map(|commit| commit.entry.len() + commit.pack.len()).sum();
            self.bursts.lock().unwrap().push((commits.len(), bytes));
        }
        match self.fails.load(Ordering::SeqCst) {
            true => Err(StoreError::Poisoned { cause: "the disk is gone".to_owned() }),
            false => Ok(()),
        }
    }

    fn lengths(&self) -> Vec<usize> {
        self.bursts.lock().unwrap().iter().map(|(length, _)| *length).collect()
    }
}

#[async_trait]
impl Log for Gate {
    forward! { head read }

    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        self.pass(&commits).await?;
        self.inner.append(commits).await
    }
}

#[async_trait]
impl Fold for Gate {
    forward! { segments section fold }
}

#[async_trait]
impl Blobs for Gate {
    forward! { stage pin locate pack pack_part }
}

#[async_trait]
impl Upkeep for Gate {
    forward! { remove packs pack_ids condemn pardon sweep note notes set_note inspect run_ids totals }
}

#[async_trait]
impl RunIndex for Gate {
    forward! { summary list }
}

#[async_trait]
impl Leases for Gate {
    forward! { lease beat release }
}

#[async_trait]
impl Store for Gate {
    forward! { hashing redaction syncs url usage close folding leases upkeep changes queue }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
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

/// A line of so many pure nodes with its start and end, each a checkpoint, which give this text.
fn line(nodes: usize, text: &str) -> String {
    let mut document = "nodes:\n  - {id: s, data: {type: start, checkpoint: true}}\n".to_owned();
    let mut edges = vec!["{source: s, target: n0}".to_owned()];
    for n in 0..nodes {
        document += &format!(
            "  - {{id: n{n}, data: {{type: template-transform, template: '{n} {text}', variables: [], checkpoint: true}}}}\n"
        );
        let next = if n + 1 == nodes { "e".to_owned() } else { format!("n{}", n + 1) };
        edges.push(format!("{{source: n{n}, target: {next}}}"));
    }
    document
        + &format!("  - {{id: e, data: {{type: end, outputs: [], checkpoint: true}}}}\nedges: [{}]\n", edges.join(", "))
}

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
        config: None,
        priority: 0,
        estimated_complexity: None,
        document,
        format: Format::Yaml,
        inputs: Inputs::new(),
        system: std::collections::BTreeMap::new(),
        conversation: std::collections::BTreeMap::new(),
        id: Some(id()),
        name: "r".to_owned(),
        folder: None,
        labels: Default::default(),
        options,
    };
    run_durable(context, start).await
}

/// The labels of the steps that the log has, in order.
async fn logged(store: &Arc<dyn Store>) -> Vec<String> {
    let log = RunLog::open(Arc::clone(store), &id()).await.unwrap();
    let entries = log.entries(Span::ALL).await.unwrap().into_iter();
    entries.filter(|entry| entry.kind == EntryKind::StepDone).map(|entry| entry.label).collect()
}

fn starting<'t>(told: &'t [String], word: &str) -> Vec<&'t str> {
    told.iter().filter_map(|told| told.strip_prefix(word)).collect()
}

/// A hundred nodes with a checkpoint each cost a handful of commits, and every one of them is told of.
#[tokio::test]
async fn a_line_of_pure_nodes_is_a_handful_of_commits() {
    let gate = Gate::new(memory(), 1_000);
    let (options, told) = options();
    begin(line(98, "x"), Arc::clone(&gate) as _, options).await.unwrap();
    let lengths = gate.lengths();
    assert!(lengths.len() <= 4, "{lengths:?}");
    assert_eq!(lengths.iter().sum::<usize>(), 100);
    let told = told.lock().unwrap().clone();
    assert_eq!(starting(&told, "finished ").len(), 100);
    let saved: Vec<_> = (2..102).map(|seq| format!("r@{seq}")).collect();
    assert_eq!(starting(&told, "saved "), saved);
}

/// The list is bounded in entries and in bytes, however long the line and however large what nodes give.
#[tokio::test]
async fn what_waits_to_be_written_is_bounded() {
    let gate = Gate::new(memory(), 1_000);
    begin(line(300, "x"), Arc::clone(&gate) as _, FlowOptions::default()).await.unwrap();
    assert!(gate.lengths().iter().all(|length| *length <= 64), "{:?}", gate.lengths());

    let gate = Gate::new(memory(), 1_000);
    begin(line(30, &"y".repeat(50_000)), Arc::clone(&gate) as _, FlowOptions::default()).await.unwrap();
    let bursts = gate.bursts.lock().unwrap().clone();
    assert!(bursts.len() >= 5 && bursts.iter().all(|(_, bytes)| *bytes < 600_000), "{bursts:?}");
}

/// While the list is being written no listener hears of what is in it, nothing outward begins, and the run doesn't end.
#[tokio::test]
async fn nothing_is_told_before_it_is_written() {
    let gate = Gate::new(memory(), 0);
    let (options, told) = options();
    let run = tokio::spawn(begin(LINE.to_owned(), Arc::clone(&gate) as _, options));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(*told.lock().unwrap(), ["started false"]);
    assert!(logged(&gate.inner).await.is_empty());

    // Everything before the outward node, with its intent.
    gate.open.add_permits(1);
    while !told.lock().unwrap().contains(&"begun w".to_owned()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let before = [
        "started false",
        "begun s",
        "finished s",
        "begun a",
        "finished a",
        "saved r@3",
        "begun b",
        "finished b",
        "saved r@4",
        "begun c",
        "finished c",
        "begun w",
    ];
    assert_eq!(told.lock().unwrap()[..], before);
    assert_eq!(gate.lengths(), [5], "s, a, b, c and the intent of w");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(told.lock().unwrap().len(), before.len(), "its result isn't written");
    assert!(!run.is_finished());

    gate.open.add_permits(100);
    run.await.unwrap().unwrap();
    assert_eq!(told.lock().unwrap()[before.len()..], ["finished w", "begun e", "finished e", "succeeded"]);
    assert_eq!(gate.lengths(), [5, 1, 1]);
}

/// Nodes that wait for the world at once share the commit of their intents.
#[tokio::test]
async fn outward_nodes_side_by_side_share_a_commit() {
    let nodes: Vec<_> =
        (0..8).map(|n| format!("  - {{id: w{n}, data: {{type: command, command: ['true']}}}}\n")).collect();
    let edges: Vec<_> = (0..8).map(|n| format!("{{source: s, target: w{n}}}, {{source: w{n}, target: e}}")).collect();
    let document = format!(
        "nodes:\n  - {{id: s, data: {{type: start}}}}\n{}  - {{id: e, data: {{type: end}}}}\nedges: [{}]\n",
        nodes.concat(),
        edges.join(", ")
    );
    let gate = Gate::new(memory(), 1_000);
    begin(document, Arc::clone(&gate) as _, FlowOptions::default()).await.unwrap();
    assert_eq!(gate.lengths()[0], 9, "s and eight intents");
}

/// A clock in which every look at it takes so long.
struct Ticking {
    clock: ManualClock,
    tick: Duration,
    looks: AtomicU64,
}

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.tick * u32::try_from(self.looks.fetch_add(1, Ordering::SeqCst)).unwrap()
    }

    fn sleep(&self, duration: Duration) -> piton_types::Sleep<'_> {
        self.clock.sleep(duration)
    }
}

/// A pure node that took longer than some milliseconds is written when it ends, before another begins.
#[tokio::test]
async fn what_took_a_while_is_written_when_it_ends() {
    for (tick, commits) in [(Duration::from_millis(1), 1), (Duration::from_millis(10), 12)] {
        let gate = Gate::new(memory(), 1_000);
        let clock = Ticking { clock: ManualClock::default(), tick, looks: AtomicU64::new(0) };
        let context = Context { clock: Arc::new(clock), ..process(&(Arc::clone(&gate) as _)) };
        begin_in(&context, line(10, "x"), FlowOptions::default()).await.unwrap();
        assert_eq!(gate.lengths().len(), commits, "{:?}", gate.lengths());
    }
}

/// A listener that is told through a channel, and takes its time, hears of every checkpoint once and holds the run up
/// not for good.
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
    let mut saved = starting(&told, "saved ");
    saved.sort_unstable();
    assert_eq!(saved, ["r@3", "r@4", "r@5", "r@6"], "{told:?}");
    assert_eq!(told.last().unwrap(), "succeeded");
}

/// Nodes side by side, one of which takes so long that it is written when it ends: they are told of in the order in which
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
        let told = told.lock().unwrap().clone();
        let told = starting(&told, "finished ");
        assert_eq!(told, logged(&store).await, "round {round}");
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
    // Everything until the intent of the straggler is let through, its result isn't.
    let gate = Gate::new(memory(), 1);
    let run = tokio::spawn(begin(document.to_owned(), Arc::clone(&gate) as _, options));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!told.lock().unwrap().contains(&"finished straggler".to_owned()), "{told:?}");
    gate.open.add_permits(100);
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

/// A run that waits for a person rests only when everything is written and told.
#[tokio::test]
async fn a_run_comes_to_rest_behind_its_list() {
    let document =
        LINE.replace("{type: command, command: [echo, '1']}", "{type: human-input, prompt: 'Go?', checkpoint: false}");
    let document = document.replace("value_selector: [w, stdout]", "value_selector: [c, output]");
    let gate = Gate::new(memory(), 0);
    let (options, told) = options();
    let run = tokio::spawn(begin(document, Arc::clone(&gate) as _, options));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!run.is_finished() && told.lock().unwrap().len() == 1, "{told:?}");
    gate.open.add_permits(100);
    assert_eq!(run.await.unwrap().unwrap().status, RunStatus::Waiting);
    let told = told.lock().unwrap().clone();
    assert_eq!(starting(&told, "saved "), ["r@3", "r@4"], "{told:?}");
    assert!(told.last().unwrap().starts_with("RunPaused"), "{told:?}");
    assert_eq!(gate.lengths(), [4]);
}

/// F3: the checkpoint before a question is in the commit of what is before it.
#[tokio::test]
async fn the_checkpoint_before_a_question_shares_a_commit() {
    let document = LINE.replace("{type: command, command: [echo, '1']}", "{type: human-input, prompt: 'Go?'}");
    let document = document.replace("value_selector: [w, stdout]", "value_selector: [c, output]");
    let gate = Gate::new(memory(), 100);
    let (options, told) = options();
    assert_eq!(begin(document, Arc::clone(&gate) as _, options).await.unwrap().status, RunStatus::Waiting);
    let told = told.lock().unwrap().clone();
    assert_eq!(gate.lengths(), [5], "s, a, b, c and the checkpoint");
    assert_eq!(starting(&told, "saved "), ["r@3", "r@4", "r@6"], "{told:?}");
    let place = |what: &str| told.iter().position(|told| told.starts_with(what)).unwrap_or_else(|| panic!("{told:?}"));
    assert!(place("finished c") < place("saved r@6") && place("saved r@6") < place("begun w"), "{told:?}");
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
    assert_eq!(starting(&told, "saved ").len(), 3, "{told:?}");
}

/// A write that fails: nothing of it is told, nothing outward begins, the run doesn't end well, and it goes on from what
/// the log has.
#[tokio::test]
async fn a_failed_write_stops_the_run_and_acknowledges_nothing() {
    for written in [0, 1] {
        let gate = Gate::new(memory(), written);
        let (options, told) = options();
        let run = tokio::spawn(begin(LINE.to_owned(), Arc::clone(&gate) as _, options));
        while gate.lengths().len() < written {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        gate.fails.store(true, Ordering::SeqCst);
        gate.open.add_permits(100);
        let error = run.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("the disk is gone"), "{error}");
        let told = told.lock().unwrap().clone();
        let (finished, saved) = (starting(&told, "finished "), starting(&told, "saved "));
        match written {
            0 => assert_eq!(told, ["started false"]),
            _ => assert_eq!((finished, saved), (vec!["s", "a", "b", "c"], vec!["r@3", "r@4"]), "{told:?}"),
        }
        gate.fails.store(false, Ordering::SeqCst);
        let store = Arc::clone(&gate) as Arc<dyn Store>;
        let (options, told) = self::options();
        let outcome = resume_durable(&process(&store), &id(), options).await.unwrap();
        assert_eq!(outcome.status, RunStatus::Completed, "{outcome:?}");
        assert_eq!(told.lock().unwrap().contains(&"skipped a".to_owned()), written == 1, "{told:?}");
    }
}

/// A journal that says that a burst is written when it isn't: it writes it with the next one that has an intent. The
/// negative control of what is told when it is written.
struct Hasty<'a> {
    journal: RunJournal<'a>,
    kept: Mutex<Vec<Happened>>,
    is_hasty: bool,
}

#[async_trait]
impl Journal for Hasty<'_> {
    fn facts(&self) -> &RunFacts {
        self.journal.facts()
    }

    async fn find(&self, step: &StepPath) -> Result<Found, JournalError> {
        self.journal.find(step).await
    }

    fn admit(&self, step: &StepPath) -> Result<(), JournalError> {
        self.journal.admit(step)
    }

    async fn write(&self, burst: Vec<Happened>) -> Result<Vec<Written>, JournalError> {
        let has_intent = burst.iter().any(|happened| {
            matches!(happened, Happened::Began(beginning) if beginning.effect == piton_flow::Effect::Outward)
        });
        let mut kept = std::mem::take(&mut *self.kept.lock().unwrap());
        if self.is_hasty && !has_intent {
            kept.extend(burst.iter().cloned());
            *self.kept.lock().unwrap() = kept;
            return Ok(vec![Written::default(); burst.len()]);
        }
        let before = kept.len();
        kept.extend(burst);
        Ok(self.journal.write(kept).await?.split_off(before))
    }
}

/// How many nodes began again that a dead process had told as finished, over all calls of the store.
async fn repetitions(is_hasty: bool) -> usize {
    let text = "
nodes:
  - {id: s, data: {type: start}}
  - {id: a, data: {type: template-transform, template: a, variables: []}}
  - {id: w, data: {type: command, command: [echo, '1']}}
  - {id: b, data: {type: template-transform, template: b, variables: []}}
  - {id: v, data: {type: command, command: [echo, '1']}}
  - {id: e, data: {type: end, outputs: []}}
edges: [{source: s, target: a}, {source: a, target: w}, {source: w, target: b}, {source: b, target: v}, {source: v, target: e}]
";
    let flow = Flow::build(&Document::parse(text, Format::Yaml).unwrap(), &Kinds::builtin()).unwrap();
    let drive = async |store: Arc<dyn Store>, told: &Told| {
        let context = process(&store);
        let opening = OpenRun { id: Some(id()), kind: RunKind::Workflow, ..OpenRun::default() };
        let Ok(run) = Run::open(&context, opening).await else { return };
        let (services, ids) = (Services::default(), Counter::default());
        let journal = RunJournal::new(&run, &flow, &services, &*context.clock);
        let journal = Hasty { journal, kept: Mutex::default(), is_hasty };
        let hear = |event: &Event| told.lock().unwrap().push(tell(event));
        let host = Host { events: EventSink::Call(&hear), ..Host::new(&journal, &*context.clock, &ids) };
        drop(piton_flow::run(&flow, Inputs::new(), &host).await);
    };
    let counting = Arc::new(CrashStore::new(memory(), Fault::None).with_chains());
    drive(Arc::clone(&counting) as _, &Told::default()).await;
    let repeated = AtomicUsize::new(0);
    for at in 1..=counting.calls() {
        for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
            let (below, before, after) = (memory(), Told::default(), Told::default());
            drive(Arc::new(CrashStore::new(Arc::clone(&below), fault).with_chains()), &before).await;
            drive(below, &after).await;
            let (before, after) = (before.lock().unwrap().clone(), after.lock().unwrap().clone());
            let (finished, begun) = (starting(&before, "finished "), starting(&after, "begun "));
            repeated.fetch_add(finished.iter().filter(|step| begun.contains(step)).count(), Ordering::Relaxed);
        }
    }
    repeated.into_inner()
}

/// Promise 10 and its negative control: a journal that says so too early is noticed.
#[tokio::test]
async fn a_journal_that_acknowledges_too_early_would_be_noticed() {
    assert_eq!(repetitions(false).await, 0);
    assert!(repetitions(true).await > 0);
}

/// A container that fails and is tried again at once: what finished inside it is in the journal by then, and doesn't run
/// again.
#[tokio::test]
async fn another_attempt_finds_what_the_one_before_it_did() {
    let document = "
nodes:
  - {id: s, data: {type: start}}
  - id: all
    data:
      type: sub-workflow
      retry_config: {retry_enabled: true, max_retries: 2, retry_interval: 0}
      sub_graph:
        nodes:
          - {id: is, data: {type: start}}
          - {id: q, data: {type: template-transform, template: q, variables: []}}
          - {id: bad, data: {type: template-transform, template: '{{ nothing_of_this_name() }}', variables: []}}
          - {id: ie, data: {type: end, outputs: []}}
        edges: [{source: is, target: q}, {source: q, target: bad}, {source: bad, target: ie}]
  - {id: e, data: {type: end, outputs: []}}
edges: [{source: s, target: all}, {source: all, target: e}]
";
    let store = memory();
    let (options, told) = options();
    let outcome = begin(document.to_owned(), Arc::clone(&store), options).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Failed, "{outcome:?} {told:?}");
    let logged = logged(&store).await;
    let count = |step: &str| logged.iter().filter(|label| label.ends_with(step)).count();
    assert_eq!((count("/q"), count("/bad"), count("all")), (1, 3, 3), "{logged:?}");
}
