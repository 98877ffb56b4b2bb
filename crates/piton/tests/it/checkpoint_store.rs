//! An application's own store of three methods: what it is given, when, and what can be made of it (F3, F4, F5, F10).

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use piton::executions::ExecutionRecovery;
use piton::flow::{Checkpoint, Document, ExecutionStatus, Format, TraversalState, WorkflowRunner};
use piton::outside::{ChatAnswer, ChatError, ChatRequest, ChatStream, Model, OutsideConfig, Price, Usage};
use piton::run::{Context, ForkRun, RunError, RunStatus, fork, stop};
use piton::store::{
    Bytes, CheckpointError, CheckpointStore, EmbeddedStore, Expected, MemoryCheckpointStore, Saved, StoreError,
    async_trait,
};

/// A store that remembers what it was given.
#[derive(Default)]
struct Watched {
    kept: MemoryCheckpointStore,
    given: Mutex<Vec<Bytes>>,
    deleted: AtomicU32,
}

impl Watched {
    fn given(&self) -> Vec<Checkpoint> {
        self.given.lock().unwrap().iter().map(|bytes| Checkpoint::read(bytes).unwrap()).collect()
    }

    /// What nodes had ended last, in each document.
    fn after(&self) -> Vec<String> {
        self.given().into_iter().map(|checkpoint| checkpoint.completed_node_id.unwrap_or_default()).collect()
    }

    async fn saved(&self) -> Option<Checkpoint> {
        let saved = self.kept.load("order").await.unwrap()?;
        Some(Checkpoint::read(&saved.bytes).unwrap())
    }
}

#[async_trait]
impl CheckpointStore for Watched {
    async fn save(&self, id: &str, bytes: Bytes, expected: Expected) -> Result<u64, CheckpointError> {
        self.given.lock().unwrap().push(bytes.clone());
        self.kept.save(id, bytes, expected).await
    }

    async fn load(&self, id: &str) -> Result<Option<Saved>, CheckpointError> {
        self.kept.load(id).await
    }

    async fn delete(&self, id: &str) -> Result<(), CheckpointError> {
        self.deleted.fetch_add(1, SeqCst);
        self.kept.delete(id).await
    }
}

/// Counts how often it is asked.
#[derive(Default)]
struct Counting(AtomicU32);

#[async_trait]
impl Model for Counting {
    async fn chat(&self, _request: &ChatRequest) -> Result<ChatStream, ChatError> {
        self.0.fetch_add(1, SeqCst);
        let usage = Some(Usage { input: 100, output: 10 });
        Ok(ChatAnswer { usage, ..ChatAnswer::text("found") }.into())
    }

    fn price(&self, _model: &str) -> Option<Price> {
        Some(Price { input: 10_000.0, output: 0.0 })
    }
}

struct Scene {
    store: Arc<Watched>,
    model: Arc<Counting>,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { store: Arc::default(), model: Arc::default(), folder: tempfile::tempdir().unwrap() }
    }

    /// The workflow as a process that knows nothing but the store starts it, or goes on with it.
    fn runner(&self, document: &str) -> WorkflowRunner {
        let mut outside = OutsideConfig::default();
        outside.models.insert("mine".to_owned(), Arc::clone(&self.model) as _);
        WorkflowRunner::builder(Document::parse(document, Format::Yaml).unwrap())
            .checkpoint_store(Arc::clone(&self.store) as _)
            .workflow_id("order")
            .folder(self.folder.path())
            .outside(outside)
            .build()
    }

    async fn run(&self, document: &str) -> ExecutionStatus {
        self.runner(document).run().await.unwrap().wait_or_paused().await
    }
}

/// A line of nodes between a start and an end.
fn line(nodes: &[(&str, &str)]) -> String {
    let mut text = "nodes:\n- {id: in, data: {type: start}}\n".to_owned();
    for (id, data) in nodes {
        text.push_str(&format!("- {{id: {id}, data: {{{data}}}}}\n"));
    }
    text.push_str("- {id: out, data: {type: end, outputs: [{variable: text, value_selector: [a, output]}]}}\nedges:\n");
    let ids: Vec<&str> = ["in"].into_iter().chain(nodes.iter().map(|(id, _)| *id)).chain(["out"]).collect();
    for pair in ids.windows(2) {
        text.push_str(&format!("- {{source: {}, target: {}}}\n", pair[0], pair[1]));
    }
    text
}

const PURE: &str = "type: template-transform, template: said, variables: []";
const MARKED: &str = "type: template-transform, checkpoint: true, template: said, variables: []";
const AGENT: &str = "type: agent, model: {provider: mine, name: m}, query: go, max_iterations: 2";
const PERSON: &str = "type: human-input, prompt: 'Go on?', variables: []";
const NETWORK: &str = "type: command, command: [sh, -c, 'test -e network']";
const HANGS: &str = "type: command, command: [sh, -c, 'touch begun; exec sleep 600']";

/// F3, F5: after the agent and the marked node something is saved, and nowhere else; after the end it is deleted.
#[tokio::test]
async fn a_workflow_is_saved_where_a_checkpoint_is_due_and_deleted_at_its_end() {
    let scene = Scene::new();
    let document = line(&[("a", PURE), ("b", PURE), ("agent", AGENT), ("c", PURE), ("mark", MARKED), ("d", PURE)]);
    let ended = scene.run(&document).await;
    assert!(matches!(ended, ExecutionStatus::Completed(_)), "{ended:?}");
    assert_eq!(scene.store.after(), ["agent", "mark"]);
    assert_eq!(scene.store.deleted.load(SeqCst), 1);
    assert_eq!(scene.store.saved().await, None, "nothing is left to resume");
    assert!(scene.store.given.lock().unwrap().iter().all(|bytes| bytes.starts_with(b"{")), "a readable document");

    let pure = Scene::new();
    let ended = pure.run(&line(&[("a", PURE), ("b", PURE)])).await;
    assert!(matches!(ended, ExecutionStatus::Completed(_)), "{ended:?}");
    assert!(pure.store.given().is_empty(), "no checkpoint was due");
}

/// F4: the document says where the workflow is, what it has, and what it used.
#[tokio::test]
async fn the_document_tells_what_a_checkpoint_holds() {
    let scene = Scene::new();
    let document = "
nodes:
- {id: in, data: {type: start}}
- {id: a, data: {type: template-transform, template: said, variables: []}}
- {id: agent, data: {type: agent, model: {provider: mine, name: m}, query: go, max_iterations: 2}}
- id: if
  data:
    type: if-else
    cases: [{case_id: 'true', logical_operator: and, conditions: [{variable_selector: [a, output], comparison_operator: is, value: said}]}]
- {id: ask, data: {type: human-input, prompt: 'Go on?', variables: []}}
- {id: other, data: {type: template-transform, template: no, variables: []}}
- {id: out, data: {type: end, outputs: []}}
edges:
- {source: in, target: a}
- {source: a, target: agent}
- {source: agent, target: if}
- {source: if, sourceHandle: 'true', target: ask}
- {source: if, sourceHandle: 'false', target: other}
- {source: ask, target: out}
- {source: other, target: out}
";
    assert!(matches!(scene.run(document).await, ExecutionStatus::Paused { .. }));
    let given = scene.store.given();
    let agent = &given[0];
    assert_eq!((agent.workflow_id.as_str(), agent.execution_id.as_str()), ("order", "order"));
    assert_eq!(agent.status, RunStatus::InProgress);
    assert_eq!(agent.completed_node_id.as_deref(), Some("agent"));
    assert_eq!(agent.ready_queue, ["if"]);
    assert_eq!(agent.ready_predecessor["if"], "agent");
    assert_eq!((agent.step_count, agent.exceptions_count), (3, 0));
    assert_eq!(agent.variables["a"].field("output"), Some(&"said".into()));
    assert_eq!(agent.variables["agent"].field("text"), Some(&"found".into()));
    let used = agent.consumed_resources;
    assert_eq!((used.total_prompt_tokens, used.total_completion_tokens, used.total_llm_cost), (100, 10, 1.0));
    assert!(agent.created_at.is_some() && agent.elapsed_secs >= 0.0 && agent.final_outputs.is_empty());
    assert!(agent.context_fingerprint.as_ref().is_some_and(|fingerprint| fingerprint.node_types.contains("agent")));
    assert_eq!(agent.node_states["if"], TraversalState::Pending);
    assert_eq!(agent.edge_states["a -> agent"], TraversalState::Taken);

    let waiting = scene.store.saved().await.unwrap();
    assert_eq!(waiting.status, RunStatus::Waiting);
    assert_eq!(waiting.waiting_nodes, ["ask"]);
    assert_eq!((waiting.ready_queue, waiting.running_nodes), (vec![], vec![]));
    assert_eq!(waiting.node_states["other"], TraversalState::Skipped);
    assert_eq!(waiting.edge_states["if [true] -> ask"], TraversalState::Taken);
    assert_eq!(waiting.edge_states["if [false] -> other"], TraversalState::Skipped);
    assert_eq!(waiting.edge_states["ask -> out"], TraversalState::Pending);
}

/// F5, F10: after a failure the document stays, with what finished since the last checkpoint; a process that has nothing
/// but the store goes on from it, and the agent isn't paid twice.
#[tokio::test]
async fn another_process_goes_on_after_a_failure() {
    let scene = Scene::new();
    let document = line(&[("agent", AGENT), ("a", PURE), ("net", NETWORK)]);
    let failed = scene.run(&document).await;
    assert!(matches!(failed, ExecutionStatus::Failed(_)), "{failed:?}");
    let saved = scene.store.saved().await.unwrap();
    assert_eq!((saved.status, saved.completed_node_id.as_deref()), (RunStatus::Failed, Some("a")));
    assert_eq!(saved.ready_queue, ["net"], "what failed is tried again");
    std::fs::write(scene.folder.path().join("network"), "").unwrap();
    let ended = scene.run(&document).await;
    assert!(matches!(ended, ExecutionStatus::Completed(_)), "{ended:?}");
    assert_eq!(scene.model.0.load(SeqCst), 1);
    assert_eq!(scene.store.saved().await, None);
}

/// F8: a stop saves, and what was cut short is ready again.
#[tokio::test]
async fn a_stop_saves_where_the_workflow_is() {
    let scene = Scene::new();
    let document = line(&[("a", PURE), ("ask", PERSON)]);
    let handle = scene.runner(&document).run().await.unwrap();
    assert!(matches!(handle.wait_or_paused().await, ExecutionStatus::Paused { .. }));
    handle.safe_stop().await.unwrap();
    assert!(matches!(handle.wait().await, ExecutionStatus::SafeStopped { checkpoint_saved: true, .. }));
    assert!(scene.store.saved().await.is_some());
    let handle = scene.runner(&document).run().await.unwrap();
    assert!(matches!(handle.wait_or_paused().await, ExecutionStatus::Paused { .. }));
    handle.resume_with_input(Default::default()).await.unwrap();
    assert!(matches!(handle.wait().await, ExecutionStatus::Completed(_)));
}

/// F3, F10: a process that dies leaves its last checkpoint, and the next one goes on from there. Meanwhile others can't
/// write to the workflow, only take it over; and what needs history is `Unsupported`.
#[test]
fn another_process_goes_on_after_a_crash() {
    let scene = Scene::new();
    let document = line(&[("agent", AGENT), ("a", PURE), ("hangs", HANGS)]);
    let begun = scene.folder.path().join("begun");
    let process = tokio::runtime::Runtime::new().unwrap();
    let context = Context::system(Arc::new(EmbeddedStore::new(Arc::clone(&scene.store) as _)));
    process.block_on(async {
        let _handle = scene.runner(&document).run().await.unwrap();
        while !begun.exists() {
            tokio::task::yield_now().await;
        }
        assert_eq!(scene.store.after(), ["agent"]);
        let outside = stop(&context, &"order".parse().unwrap(), "no", None).await;
        assert!(matches!(outside, Err(RunError::Store(StoreError::Unsupported { .. }))), "{outside:?}");
        let second = scene.runner(&document).run().await;
        assert!(second.is_err(), "one process drives it");
    });
    // It dies: nothing of it is written any more.
    process.shutdown_background();
    let process = tokio::runtime::Runtime::new().unwrap();
    process.block_on(async {
        let at = "order@3".parse().unwrap();
        let forked = fork(&context, &at, ForkRun::default()).await;
        assert!(matches!(forked, Err(RunError::Store(StoreError::Unsupported { .. }))), "{forked:?}");
        let back = ExecutionRecovery::new(&context).rollback_to_checkpoint(&at).await;
        assert!(matches!(back, Err(RunError::Store(StoreError::Unsupported { .. }))), "{back:?}");

        std::fs::remove_file(&begun).unwrap();
        let handle = loop {
            // Until the handle of the process that died is gone.
            match scene.runner(&document).run().await {
                Ok(handle) => break handle,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        while !begun.exists() {
            tokio::task::yield_now().await;
        }
        assert_eq!(scene.model.0.load(SeqCst), 1, "the agent isn't paid twice");
        handle.abort("enough").await.unwrap();
        assert!(matches!(handle.wait().await, ExecutionStatus::Failed(_)));
        assert_eq!(scene.store.saved().await.unwrap().status, RunStatus::Failed);
    });
}

/// F10: what was changed by hand is refused, not believed.
#[tokio::test]
async fn a_document_that_was_changed_is_refused() {
    let scene = Scene::new();
    let document = line(&[("a", PURE), ("ask", PERSON)]);
    scene.run(&document).await;
    let saved = scene.store.kept.load("order").await.unwrap().unwrap();
    let changed = String::from_utf8(saved.bytes.to_vec()).unwrap().replacen("said", "sold", 1);
    scene.store.kept.save("order", changed.into(), Expected::Any).await.unwrap();
    let opened = scene.runner(&document).run().await;
    assert!(opened.unwrap_err().to_string().contains("checksum"));
}
