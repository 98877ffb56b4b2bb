//! The handle of a workflow, with and without a store: everything that F6 and F8 ask for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_flow::{
    Document, ExecutionStatus, FlowError, FlowOptions, Format, HandleError, Limits, Plugin, PluginContext, PluginError,
    PluginMetadata, ResumePolicy, SafeStopSignal, StartFlow, WorkflowHandle, WorkflowRunner, WorkflowRunnerBuilder,
    resume_durable, run_durable,
};
use piton_log::RunLog;
use piton_store::{CheckpointStore, MemoryCheckpointStore, RunQuery, Span, Store};
use piton_store_objects::ObjectStore;
use piton_types::{Event, RunStatus, Value};

use crate::support::{inputs, memory, process};

/// Waits for a file, then asks, then ends.
const FLOW: &str = "
conversation_variables: [{name: mood, value_type: string, value: calm}]
nodes:
  - {id: in, data: {type: start, variables: [{variable: file, required: true}]}}
  - {id: work, data: {type: command, command: [sh, -c, 'echo work >> \"$0.calls\"; while ! test -e \"$0\"; do sleep 0.01; done; echo done', '{{#in.file#}}']}}
  - {id: next, data: {type: template-transform, template: '{{ mood }}', variables: [{variable: mood, value_selector: [conversation, mood]}]}}
  - {id: out, data: {type: end, outputs: [{variable: mood, value_selector: [next, output]}]}}
edges:
  - {source: in, target: work}
  - {source: work, target: next}
  - {source: next, target: out}
";

const ASK: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: ask, data: {type: human-input, title: Approval, prompt: 'Go?', resume_mode: approval}}
  - {id: yes, data: {type: template-transform, template: 'yes'}}
  - {id: no, data: {type: template-transform, template: 'no'}}
  - {id: out, data: {type: end, outputs: [{variable: yes, value_selector: [yes, output]}, {variable: no, value_selector: [no, output]}]}}
edges:
  - {source: in, target: ask}
  - {source: ask, sourceHandle: approve, target: 'yes'}
  - {source: ask, sourceHandle: reject, target: 'no'}
  - {source: 'yes', target: out}
  - {source: 'no', target: out}
";

fn builder(text: &str) -> WorkflowRunnerBuilder {
    WorkflowRunner::builder(Document::parse(text, Format::Yaml).unwrap())
}

/// A file that the command waits for.
struct Gate(tempfile::TempDir);

impl Gate {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn flow(&self) -> WorkflowRunnerBuilder {
        let file = self.0.path().join("go");
        builder(FLOW).user_inputs(inputs([("file", file.to_str().unwrap().into())]))
    }

    async fn begun(&self) {
        while self.calls() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn open(&self) {
        std::fs::write(self.0.path().join("go"), "").unwrap();
    }

    fn calls(&self) -> usize {
        std::fs::read_to_string(self.0.path().join("go.calls")).unwrap_or_default().lines().count()
    }
}

fn with(builder: WorkflowRunnerBuilder, store: Option<&Arc<dyn Store>>) -> WorkflowRunnerBuilder {
    match store {
        Some(store) => builder.store(Arc::clone(store)),
        None => builder,
    }
}

fn stores() -> [Option<Arc<dyn Store>>; 2] {
    [None, Some(Arc::new(ObjectStore::in_memory()))]
}

async fn paused(handle: &WorkflowHandle) -> String {
    match handle.wait_or_paused().await {
        ExecutionStatus::Paused { prompt, .. } => prompt,
        other => panic!("{other:?}"),
    }
}

/// F6: held up, nothing new begins; variables change meanwhile; then it goes on.
#[tokio::test]
async fn a_paused_workflow_goes_on_with_other_variables() {
    for store in stores() {
        let gate = Gate::new();
        let handle = with(gate.flow(), store.as_ref()).workflow_id("r").build().run().await.unwrap();
        gate.begun().await;
        assert_eq!(handle.status(), ExecutionStatus::Running);
        handle.pause_because("lunch").await.unwrap();
        gate.open();
        assert_eq!(paused(&handle).await, "lunch");
        if let Some(store) = &store {
            assert_eq!(store.summary(handle.workflow_id()).await.unwrap().unwrap().status, RunStatus::Paused);
        }
        handle.update_variables([("conversation.mood".to_owned(), "glad".into())]).await.unwrap();
        assert!(matches!(
            handle.update_variables([("mood".to_owned(), Value::Null)]).await,
            Err(HandleError::NoVariable(_))
        ));
        handle.resume().await.unwrap();
        assert_eq!(handle.wait().await, ExecutionStatus::Completed(inputs([("mood", "glad".into())])));
        assert_eq!(gate.calls(), 1, "nothing ran twice");
        for command in [handle.resume().await, handle.pause().await, handle.safe_stop().await, handle.abort("x").await]
        {
            assert!(matches!(command, Err(HandleError::Ended)), "{command:?}");
        }
        assert!(matches!(handle.resume_with_input(inputs([])).await, Err(HandleError::Ended)));
    }
}

/// What a handle whose run is over was told.
fn told(handle: &WorkflowHandle) -> Vec<Event> {
    let mut events = handle.events();
    std::iter::from_fn(|| events.try_recv().ok()).collect()
}

/// F6, F8, F9: a stop waits for what runs, up to its time, and says truly what was cut and whether it is saved, in the
/// status and as an event. The next runner of the same id goes on, and tells from which checkpoint.
#[tokio::test]
async fn a_safe_stop_tells_what_was_cut() {
    for store in stores() {
        for ends in [true, false] {
            let gate = Gate::new();
            let id = format!("r-{ends}");
            let handle = with(gate.flow(), store.as_ref()).workflow_id(&id).build().run().await.unwrap();
            gate.begun().await;
            if ends {
                handle.safe_stop().await.unwrap();
                gate.open();
            } else {
                let asked = Instant::now();
                handle.safe_stop_within(Duration::from_millis(50)).await.unwrap();
                handle.wait().await;
                assert!(asked.elapsed() >= Duration::from_millis(50));
            }
            let step = |name: &str| name.parse().unwrap();
            let expected = ExecutionStatus::SafeStopped {
                last_completed_node: Some(step(if ends { "work" } else { "in" })),
                interrupted_nodes: if ends { vec![] } else { vec![step("work")] },
                checkpoint_saved: store.is_some(),
            };
            assert_eq!(handle.wait().await, expected);
            let stopped = told(&handle).into_iter().find_map(|event| match event {
                Event::WorkflowSafeStopped { interrupted_nodes, checkpoint_saved, .. } => {
                    Some((interrupted_nodes, checkpoint_saved))
                }
                _ => None,
            });
            assert_eq!(stopped, Some((if ends { vec![] } else { vec![step("work")] }, store.is_some())));
            assert!(matches!(handle.resume().await, Err(HandleError::Ended)));
            if store.is_some() {
                gate.open();
                let handle = with(gate.flow(), store.as_ref()).workflow_id(&id).build().run().await.unwrap();
                handle.wait().await;
                let resumed = |event: &Event| matches!(event, Event::CheckpointResumed { .. });
                assert_eq!(told(&handle).iter().filter(|event| resumed(event)).count(), 1);
                assert_eq!(handle.wait().await, ExecutionStatus::Completed(inputs([("mood", "calm".into())])));
                assert_eq!(gate.calls(), if ends { 1 } else { 2 });
            }
        }
    }
}

/// F8: one signal stops many, also those that wait for a person; at once.
#[tokio::test]
async fn one_signal_stops_all() {
    let (signal, gate) = (SafeStopSignal::new(), Gate::new());
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let mut handles = Vec::new();
    for (number, builder) in [gate.flow(), gate.flow(), builder(ASK), builder(ASK)].into_iter().enumerate() {
        let builder = if number % 2 == 0 { builder.store(Arc::clone(&store)) } else { builder };
        handles.push(builder.safe_stop_signal(signal.clone()).build().run().await.unwrap());
    }
    gate.begun().await;
    for handle in &handles[2..] {
        assert_eq!(paused(handle).await, "Go?");
    }
    signal.trigger(0);
    for (number, handle) in handles.iter().enumerate() {
        match handle.wait().await {
            ExecutionStatus::SafeStopped { checkpoint_saved, interrupted_nodes, last_completed_node } => {
                assert_eq!(checkpoint_saved, number % 2 == 0);
                assert_eq!(interrupted_nodes.len(), usize::from(number < 2), "{number}");
                assert_eq!(last_completed_node, Some("in".parse().unwrap()));
            }
            other => panic!("{number}: {other:?}"),
        }
    }
    let waiting = store.list(RunQuery { status: vec![RunStatus::Waiting], ..RunQuery::default() }).await.unwrap();
    assert_eq!(waiting.len(), 1, "the question is still open");
}

/// F6: aborted, it is failed at once, and the log says so.
#[tokio::test]
async fn an_aborted_workflow_is_failed_at_once() {
    for store in stores() {
        for text in [FLOW, ASK] {
            let gate = Gate::new();
            let flow = if text == FLOW { gate.flow() } else { builder(text) };
            let handle = with(flow, store.as_ref()).build().run().await.unwrap();
            if text == FLOW {
                gate.begun().await;
            } else {
                paused(&handle).await;
            }
            handle.abort("no longer wanted").await.unwrap();
            assert_eq!(handle.wait().await, ExecutionStatus::Failed("no longer wanted".to_owned()));
            if let Some(store) = &store {
                assert_eq!(store.summary(handle.workflow_id()).await.unwrap().unwrap().status, RunStatus::Failed);
            }
        }
    }
}

/// F6, F7: paused by a question, gone on with by its answer; an answer that doesn't fit changes nothing.
#[tokio::test]
async fn a_person_in_the_loop() {
    for store in stores() {
        let handle = with(builder(ASK), store.as_ref()).build().run().await.unwrap();
        let mut events = handle.events();
        let expected = ExecutionStatus::Paused {
            node_id: Some("ask".parse().unwrap()),
            node_title: "Approval".to_owned(),
            prompt: "Go?".to_owned(),
        };
        assert_eq!(handle.wait_or_paused().await, expected);
        assert_eq!(handle.questions().len(), 1);
        let wrong = handle.resume_with_input(inputs([("aproved", true.into())])).await;
        assert!(matches!(wrong, Err(HandleError::Invalid(_))), "{wrong:?}");
        handle.resume_with_input(inputs([("approved", true.into())])).await.unwrap();
        match handle.wait().await {
            ExecutionStatus::Completed(outputs) => assert_eq!(outputs["yes"], "yes".into()),
            other => panic!("{other:?}"),
        }
        let mut told = Vec::new();
        while let Ok(event) = events.try_recv() {
            told.push(event);
        }
        assert!(matches!(told.first(), Some(Event::RunStarted { resumed: false, .. })), "{told:?}");
        assert!(told.iter().any(|event| matches!(event, Event::RunSucceeded { .. })), "{told:?}");
    }
}

/// F6, V4: a run goes on with another document only if the builder forces it to; a listener hears of it.
#[tokio::test]
async fn the_builder_decides_what_a_changed_document_means() {
    let store = memory();
    let of = |text: &str| builder(text).store(Arc::clone(&store)).workflow_id("asked");
    let handle = of(ASK).build().run().await.unwrap();
    paused(&handle).await;
    handle.safe_stop().await.unwrap();
    handle.wait().await;
    let changed = ASK.replace("template: 'yes'", "template: 'gladly'");
    let refused = of(&changed).build().run().await.err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|refused| refused.contains("document")), "{refused:?}");
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = Arc::clone(&heard);
    let forced = of(&changed)
        .resume_policy(ResumePolicy::Force)
        .on_event(move |event: &Event| listener.lock().unwrap().push(event.clone()));
    let handle = forced.build().run().await.unwrap();
    paused(&handle).await;
    handle.resume_with_input(inputs([("approved", true.into())])).await.unwrap();
    match handle.wait().await {
        ExecutionStatus::Completed(outputs) => assert_eq!(outputs["yes"], "gladly".into()),
        other => panic!("{other:?}"),
    }
    let heard = heard.lock().unwrap();
    assert!(matches!(&heard[..2], [Event::ResumeWarning { .. }, Event::RunStarted { resumed: true, .. }]), "{heard:?}");
    assert!(heard.iter().any(|event| matches!(event, Event::RunSucceeded { .. })), "{heard:?}");
}

/// Waiting for a person takes nothing of the time that a run or a node may take.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_person_costs_no_time() {
    let limits = || Limits {
        max_time: Some(Duration::from_secs(5)),
        node_time: Some(Duration::from_secs(5)),
        ..Limits::default()
    };
    let handle = builder(ASK).limits(limits()).build().run().await.unwrap();
    paused(&handle).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(paused(&handle).await, "Go?");
    handle.resume_with_input(inputs([("approved", false.into())])).await.unwrap();
    assert!(matches!(handle.wait().await, ExecutionStatus::Completed(_)));

    // What is done does count.
    let gate = Gate::new();
    let handle = gate.flow().limits(limits()).build().run().await.unwrap();
    assert!(matches!(handle.wait().await, ExecutionStatus::Failed(error) if error.contains("longer than 5 s")));
}

/// F5, F10: an application's own store is given what is needed to go on, and nothing is left after the end.
#[tokio::test]
async fn a_store_of_the_application_is_empty_after_the_end() {
    let store = Arc::new(MemoryCheckpointStore::new());
    let own = || builder(ASK).checkpoint_store(Arc::clone(&store) as _).workflow_id("ticket-7");
    let handle = own().build().run().await.unwrap();
    paused(&handle).await;
    assert!(store.load("ticket-7").await.unwrap().is_some());
    handle.safe_stop().await.unwrap();
    assert!(matches!(handle.wait().await, ExecutionStatus::SafeStopped { checkpoint_saved: true, .. }));

    // Another process: the store is all that it has.
    let handle = own().build().run().await.unwrap();
    paused(&handle).await;
    handle.resume_with_input(inputs([("approved", true.into())])).await.unwrap();
    assert!(matches!(handle.wait().await, ExecutionStatus::Completed(_)));
    assert!(store.load("ticket-7").await.unwrap().is_none());
}

struct BringsStore(PluginMetadata, Arc<MemoryCheckpointStore>);

#[async_trait::async_trait]
impl Plugin for BringsStore {
    fn metadata(&self) -> &PluginMetadata {
        &self.0
    }

    async fn register(&self, context: &mut PluginContext) -> Result<(), PluginError> {
        context.provide_service::<Arc<dyn CheckpointStore>>(Arc::clone(&self.1) as _)
    }
}

/// F10: a plugin may bring a store; one that is named beats it; two of the same are refused.
#[tokio::test]
async fn a_plugin_may_bring_the_store() {
    let brought = Arc::new(MemoryCheckpointStore::new());
    let plugin = |name: &str| BringsStore(PluginMetadata::new(name, "1").bootstrap(), Arc::clone(&brought));
    let handle = builder(ASK).plugin(plugin("a")).workflow_id("x").build().run().await.unwrap();
    paused(&handle).await;
    assert!(brought.load("x").await.unwrap().is_some());

    let own = Arc::new(MemoryCheckpointStore::new());
    let named = builder(ASK).plugin(plugin("a")).checkpoint_store(Arc::clone(&own) as _).workflow_id("y");
    let handle = named.build().run().await.unwrap();
    paused(&handle).await;
    assert!(own.load("y").await.unwrap().is_some() && brought.load("y").await.unwrap().is_none());

    for (second, because) in [("a", "it was given twice"), ("b", "there is a service")] {
        let two = builder(ASK).plugin(plugin("a")).plugin(plugin(second)).build().run().await;
        match two {
            Err(FlowError::Plugin { error, .. }) => assert!(error.0.contains(because), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(builder(ASK).workflow_id("../../x\n").build().run().await, Err(FlowError::Id(_))));
}

/// Many runs that wait for people cost neither CPU nor a loaded run: nothing is asked of their store.
#[tokio::test(start_paused = true)]
async fn a_thousand_waiting_runs_ask_nothing_of_their_store() {
    let counted =
        Arc::new(piton_testing::CrashStore::new(Arc::new(ObjectStore::in_memory()), piton_testing::Fault::None));
    let mut handles = Vec::new();
    for _ in 0..1_000 {
        let store: Arc<dyn Store> = Arc::clone(&counted) as _;
        let handle = builder(ASK).store(store).build().run().await.unwrap();
        paused(&handle).await;
        handles.push(handle);
    }
    // The last background task of a run looks once a second whether it is still there.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = counted.calls();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(counted.calls(), before);
    for handle in handles.iter().step_by(100) {
        handle.resume_with_input(inputs([("approved", true.into())])).await.unwrap();
        assert!(matches!(handle.wait().await, ExecutionStatus::Completed(_)));
    }
}

const TWO_QUESTIONS: &str = "
conversation_variables: [{name: mood, value: calm}, {name: tone, value: mild}]
nodes:
  - {id: in, data: {type: start}}
  - {id: first, data: {type: human-input, prompt: 'One?', variables: []}}
  - {id: set, data: {type: assigner, write_mode: over-write, assigned_variable_selector: [conversation, tone], value: loud}}
  - {id: second, data: {type: human-input, prompt: 'Two?', variables: []}}
  - {id: out, data: {type: end, checkpoint: true, outputs: [{variable: tone, value_selector: [conversation, tone]}]}}
edges: [{source: in, target: first}, {source: first, target: set}, {source: set, target: second}, {source: second, target: out}]
";

/// The conversation's variables in the newest checkpoint.
async fn checkpointed(store: &Arc<dyn Store>) -> Value {
    let log = RunLog::open(Arc::clone(store), &"r".parse().unwrap()).await.unwrap();
    let entries = log.entries(Span::ALL).await.unwrap();
    let newest = entries.iter().rev().find_map(|entry| entry.parts.get(&"variables".into()));
    log.load(newest.unwrap()).await.unwrap().field("conversation").cloned().unwrap_or_default()
}

/// F4, F6: what was set by hand is in the checkpoints that follow; what a node sets later counts more, and so does what
/// is set by hand after that, also if another process goes on in between.
#[tokio::test]
async fn what_was_set_by_hand_is_in_the_next_checkpoint() {
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_memory());
    let begin = async || {
        let runner = builder(TWO_QUESTIONS).store(Arc::clone(&store)).workflow_id("r").build();
        runner.run().await.unwrap()
    };
    let set = |name: &str, value: &str| [(format!("conversation.{name}"), Value::from(value))];
    let handle = begin().await;
    assert_eq!(paused(&handle).await, "One?");
    handle.update_variables(set("mood", "glad").into_iter().chain(set("tone", "soft"))).await.unwrap();
    handle.resume_with_input(inputs([])).await.unwrap();
    assert_eq!(paused(&handle).await, "Two?");
    let both = |mood: &str, tone: &str| Value::map([("mood", mood.into()), ("tone", tone.into())]);
    assert_eq!(checkpointed(&store).await, both("glad", "loud"));
    handle.safe_stop().await.unwrap();
    handle.wait().await;

    let handle = begin().await;
    assert_eq!(paused(&handle).await, "Two?");
    handle.update_variables(set("tone", "quiet")).await.unwrap();
    handle.resume_with_input(inputs([])).await.unwrap();
    assert_eq!(handle.wait().await, ExecutionStatus::Completed(inputs([("tone", "quiet".into())])));
    assert_eq!(checkpointed(&store).await, both("glad", "quiet"));
}

const ROUNDS: &str = "
conversation_variables: [{name: mood, value: calm}]
nodes:
  - {id: in, data: {type: start, variables: [{variable: file, required: true}, {variable: list, type: 'array[number]'}]}}
  - id: it
    data:
      type: iteration
      input_selector: [in, list]
      output_variable: output
      sub_graph:
        nodes:
          - {id: b, data: {type: start}}
          - {id: work, data: {type: command, command: [sh, -c, 'echo work >> \"$0.calls\"; while ! test -e \"$0\"; do sleep 0.01; done', '{{#in.file#}}']}}
          - {id: say, data: {type: template-transform, template: '{{ mood }}', variables: [{variable: mood, value_selector: [conversation, mood]}]}}
          - {id: o, data: {type: end, outputs: [{variable: mood, value_selector: [say, output]}]}}
        edges: [{source: b, target: work}, {source: work, target: say}, {source: say, target: o}]
  - {id: next, data: {type: template-transform, template: '{{ mood }}', variables: [{variable: mood, value_selector: [conversation, mood]}]}}
  - {id: out, data: {type: end, outputs: [{variable: rounds, value_selector: [it, output]}, {variable: mood, value_selector: [next, output]}]}}
edges: [{source: in, target: it}, {source: it, target: next}, {source: next, target: out}]
";

/// F6: what is set by hand while nodes inside another run is set for them, for the rounds that follow and for what comes
/// behind.
#[tokio::test]
async fn what_is_set_by_hand_is_set_inside_and_outside() {
    for store in stores() {
        let gate = Gate::new();
        let file = gate.0.path().join("go");
        let list: Vec<Value> = (0..3).map(Value::from).collect();
        let given = inputs([("file", file.to_str().unwrap().into()), ("list", list.into())]);
        let runner = with(builder(ROUNDS).user_inputs(given), store.as_ref()).workflow_id("r").build();
        let handle = runner.run().await.unwrap();
        gate.begun().await;
        handle.update_variables([("conversation.mood".to_owned(), "glad".into())]).await.unwrap();
        gate.open();
        let ExecutionStatus::Completed(outputs) = handle.wait().await else { panic!("{:?}", handle.status()) };
        let glad = Value::map([("mood", "glad".into())]);
        assert_eq!(outputs, inputs([("mood", "glad".into()), ("rounds", vec![glad; 3].into())]));
    }
}

const SETTING: &str = "
conversation_variables: [{name: mood, value: calm}]
nodes:
  - {id: in, data: {type: start, variables: [{variable: list, type: 'array[number]'}]}}
  - id: work
    data:
      CONTAINER
      sub_graph:
        nodes:
          - {id: s, data: {type: start}}
          - {id: gate, data: {type: if-else, cases: [{case_id: set, logical_operator: or, conditions: [{variable_selector: [work, index], comparison_operator: '=', value: 0}, {variable_selector: [work, index], comparison_operator: '=', value: LATER}]}, {case_id: ask, logical_operator: or, conditions: [{variable_selector: [work, index], comparison_operator: '=', value: ASKS}]}]}}
          - {id: set, data: {type: assigner, version: '2', items: [{variable_selector: [conversation, mood], input_type: constant, operation: over-write, value: busy}]}}
          - {id: ask, data: {type: human-input, prompt: 'Go on?'}}
          - {id: e, data: {type: end, outputs: [{variable: mood, value_selector: [conversation, mood]}]}}
        edges:
          - {source: s, target: gate}
          - {source: gate, sourceHandle: set, target: set}
          - {source: gate, sourceHandle: ask, target: ask}
          - {source: gate, sourceHandle: 'false', target: e}
          - {source: set, target: e}
          - {source: ask, target: e}
  - {id: out, data: {type: end, outputs: [{variable: mood, value_selector: [conversation, mood]}]}}
edges: [{source: in, target: work}, {source: work, target: out}]
";

/// F6, decision 6: what is set by hand inside a container comes after what its finished rounds have set, and before what
/// later ones set, also if another process goes on with the run.
#[tokio::test]
async fn what_is_set_by_hand_stays_set_after_rounds_that_set_it() {
    let containers = [
        "type: loop\n      loop_count: COUNT",
        "type: iteration\n      input_selector: [in, list]\n      output_variable: all\n      max_iterations: COUNT",
        "type: iteration\n      input_selector: [in, list]\n      output_variable: all\n      is_parallel: true\n      max_iterations: COUNT",
    ];
    // Few rounds, and so many that the log says what the finished ones came to.
    for (container, asks) in containers.iter().flat_map(|container| [(container, 1), (container, 100)]) {
        for (goes_on_elsewhere, sets_later) in [(false, false), (true, false), (false, true), (true, true)] {
            // Rounds side by side have no order.
            if sets_later && container.contains("parallel") {
                continue;
            }
            let (count, later) = (asks + 2, if sets_later { asks + 1 } else { usize::MAX });
            let list: Vec<Value> = (0..count).map(|n| (n as u64).into()).collect();
            let document = SETTING.replace("CONTAINER", &container.replace("COUNT", &count.to_string()));
            let document = document.replace("LATER", &later.to_string()).replace("ASKS", &asks.to_string());
            let store = memory();
            let begin = async || {
                let given = inputs([("list", list.clone().into())]);
                let runner = builder(&document).user_inputs(given).store(Arc::clone(&store)).workflow_id("r").build();
                runner.run().await.unwrap()
            };
            let mut handle = begin().await;
            assert_eq!(paused(&handle).await, "Go on?");
            handle.update_variables([("conversation.mood".to_owned(), "glad".into())]).await.unwrap();
            if goes_on_elsewhere {
                handle.safe_stop().await.unwrap();
                handle.wait().await;
                handle = begin().await;
                assert_eq!(paused(&handle).await, "Go on?");
            }
            handle.resume_with_input(inputs([])).await.unwrap();
            let mood = if sets_later { "busy" } else { "glad" };
            let case = format!("{container}, {asks} rounds, elsewhere: {goes_on_elsewhere}, later: {sets_later}");
            let ExecutionStatus::Completed(outputs) = handle.wait().await else {
                panic!("{case}: {:?}", handle.status())
            };
            assert_eq!(outputs, inputs([("mood", mood.into())]), "{case}");
        }
    }
}

/// F6: several who set variables at the same time are all heard, and the log has all of it.
#[tokio::test(flavor = "multi_thread")]
async fn updates_at_the_same_time_are_all_kept() {
    const MANY: usize = 40;
    let (gate, store) = (Gate::new(), Arc::new(ObjectStore::in_memory()) as Arc<dyn Store>);
    let handle = gate.flow().store(Arc::clone(&store)).workflow_id("r").build().run().await.unwrap();
    gate.begun().await;
    let updates = (0..MANY).map(|n| handle.update_variables([(format!("conversation.n{n}"), Value::from(n as i64))]));
    let done = futures_util::future::join_all(updates).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    gate.open();
    assert!(matches!(handle.wait().await, ExecutionStatus::Completed(_)));
    let log = RunLog::open(store, &"r".parse().unwrap()).await.unwrap();
    let entries = log.entries(Span::ALL).await.unwrap();
    let steps = entries.iter().map(|entry| entry.label.as_str()).filter(|label| label.starts_with("#update/"));
    assert_eq!(steps.collect::<std::collections::BTreeSet<_>>().len(), MANY, "each is a step of its own");
}

/// F8: a node that fails while the run is stopping is told by its place in the run, also if it lies inside another. It is
/// tried again when the run goes on.
#[tokio::test]
async fn what_fails_during_a_stop_is_named_with_its_place_and_tried_again() {
    let work = "{id: work, data: {type: command, command: [sh, -c, 'echo work >> \"$0.calls\"; while ! test -e \"$0\"; do sleep 0.01; done; test $(wc -l < \"$0.calls\") -gt 1 || exit 3', '{{#in.file#}}']}}";
    let inside = format!(
        "{{id: work, data: {{type: iteration, input_selector: [in, list], output_variable: output, sub_graph: {{nodes: [{{id: b, data: {{type: start}}}}, {work}, {{id: o, data: {{type: end, outputs: []}}}}], edges: [{{source: b, target: work}}, {{source: work, target: o}}]}}}}}}"
    );
    for (node, place) in [(work, "work"), (inside.as_str(), "work/1/work")] {
        let gate = Gate::new();
        let document = format!(
            "nodes:\n  - {{id: in, data: {{type: start, variables: [{{variable: file, required: true}}, {{variable: list, type: 'array[number]'}}]}}}}\n  - {node}\n  - {{id: out, data: {{type: end, outputs: []}}}}\nedges: [{{source: in, target: work}}, {{source: work, target: out}}]\n"
        );
        let signal = SafeStopSignal::new();
        let file = gate.0.path().join("go");
        let start = StartFlow {
            config: None,
            priority: 0,
            estimated_complexity: None,
            document,
            format: Format::Yaml,
            inputs: inputs([("file", file.to_str().unwrap().into()), ("list", vec![Value::from(7)].into())]),
            system: std::collections::BTreeMap::new(),
            conversation: std::collections::BTreeMap::new(),
            id: Some("r".parse().unwrap()),
            name: "r".to_owned(),
            folder: None,
            labels: Default::default(),
            options: FlowOptions { stop: signal.clone(), ..FlowOptions::default() },
        };
        let context = process(&memory());
        let stopping = async {
            gate.begun().await;
            signal.trigger(30);
            tokio::time::sleep(Duration::from_millis(50)).await;
            gate.open();
        };
        let (outcome, ()) = tokio::join!(run_durable(&context, start), stopping);
        let report = outcome.unwrap().stopped.unwrap();
        assert_eq!(report.failed.keys().map(ToString::to_string).collect::<Vec<_>>(), [place]);
        let resumed = resume_durable(&context, &"r".parse().unwrap(), FlowOptions::default()).await.unwrap();
        assert_eq!((resumed.status, gate.calls()), (RunStatus::Completed, 2), "{place}: {:?}", resumed.error);
    }
}
