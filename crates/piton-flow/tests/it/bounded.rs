//! What resuming a workflow reads doesn't grow with the rounds that its loops and iterations have finished (decision 6).

use std::path::Path;
use std::sync::Arc;

use piton_flow::{
    AnswerError, FlowError, FlowOptions, Format, Inputs, RunOutcome, StartFlow, answer_question, resume_durable,
    run_durable,
};
use piton_log::RunLog;
use piton_runtime::{ForkRun, History, WholeHistory, fork};
use piton_store::{Call, MeteredStore, Store};
use piton_store_objects::{FolderObjects, FolderOptions, MemoryObjects, ObjectStore, Objects};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::level::by_level;
use piton_testing::{CrashStore, Fault};
use piton_types::{CheckpointRef, Durability, RunId, RunStatus, Value};

use crate::support::{inputs, memory, process};

/// How many calls more the larger run may take: another level of the index for a few steps, and segments that are cut
/// elsewhere.
const MORE_CALLS: usize = 32;

/// How many bytes more: what one segment of the largest size has.
const MORE_BYTES: u64 = 1 << 20;

/// How many rounds come from the first one that asks, which is more than run side by side. The last asks too.
const MORE_ROUNDS: usize = 10;

/// What a round does: it asks when a person is to be asked, and else goes on.
const ROUND: &str = "
        nodes:
          - {id: s, data: {type: start}}
          - {id: gate, data: {type: if-else, cases: [{case_id: ask, logical_operator: or, conditions: [{variable_selector: [work, index], comparison_operator: '=', value: STOP}, {variable_selector: [work, index], comparison_operator: '=', value: NEXT}]}]}}
          - {id: ask, data: {type: human-input, prompt: 'Go on?', variables: [{name: word, type: string, required: true}]}}
          - DEED
          - {id: e, data: {type: end, outputs: [{variable: done, value_selector: [work, index]}]}}
        edges:
          - {source: s, target: gate}
          - {source: gate, sourceHandle: ask, target: ask}
          - {source: gate, sourceHandle: 'false', target: deed}
          - {source: ask, target: deed}
          - {source: deed, target: e}
";

const AROUND: &str = "
nodes:
  - {id: in, data: {type: start, variables: [{variable: list, type: 'array[number]'}]}}
  - id: work
    data:
      CONTAINER
      sub_graph:ROUND
  - {id: out, data: {type: end, outputs: [{variable: x, value_selector: [work, OUTPUT]}, {variable: seen, value_selector: [conversation, seen]}]}}
edges:
  - {source: in, target: work}
  - {source: work, target: out}
conversation_variables: [{name: seen, value: 0}]
";

/// A container that repeats a few nodes.
#[derive(Debug, Clone, Copy)]
enum Container {
    Loop,
    Iteration {
        parallel: bool,
    },
    Map,
    /// Keeps nothing of its rounds.
    Reduce,
}

impl Container {
    /// A document with so many rounds before the first one that asks.
    fn document(self, rounds: usize) -> String {
        let (container, output) = match self {
            Self::Loop => {
                let variables = "loop_variables: [{label: n, var_type: number, value_type: constant, value: '0'}]";
                (format!("type: loop\n      loop_count: {}\n      {variables}", rounds + MORE_ROUNDS), "n")
            }
            Self::Iteration { parallel } => {
                let most = format!("max_iterations: {}", rounds + MORE_ROUNDS);
                let how = format!("is_parallel: {parallel}\n      parallel_nums: 4\n      {most}");
                (format!("type: iteration\n      input_selector: [in, list]\n      output_variable: all\n      {how}"), "all")
            }
            Self::Map => ("type: list-operator\n      operation: map\n      input_selector: [in, list]".to_owned(), "output"),
            Self::Reduce => {
                ("type: list-operator\n      operation: reduce\n      initial_value: 0\n      input_selector: [in, list]".to_owned(), "output")
            }
        };
        let deed = match self {
            Self::Loop => {
                "{id: deed, data: {type: assigner, version: '2', items: [{variable_selector: [work, n], input_type: constant, operation: '+=', value: 1}, {variable_selector: [conversation, seen], input_type: constant, operation: '+=', value: 1}]}}"
            }
            _ => "{id: deed, data: {type: template-transform, template: x, variables: []}}",
        };
        let round = ROUND.replace("DEED", deed).replace("STOP", &rounds.to_string());
        let round = round.replace("NEXT", &(rounds + MORE_ROUNDS - 1).to_string());
        AROUND.replace("CONTAINER", &container).replace("ROUND", &round).replace("OUTPUT", output)
    }
}

fn id() -> RunId {
    "many".parse().unwrap()
}

fn options() -> FlowOptions {
    FlowOptions { durability: Durability::Relaxed, ..FlowOptions::default() }
}

fn said() -> Value {
    Value::map([("word", "yes".into())])
}

async fn answer(store: &Arc<dyn Store>) {
    answer_question(&process(store), &id(), None, &said(), "ann").await.unwrap();
}

fn start(container: Container, rounds: usize) -> StartFlow {
    let list: Vec<Value> = (0..rounds + MORE_ROUNDS).map(|n| i64::try_from(n).unwrap().into()).collect();
    StartFlow {
        config: None,
        priority: 0,
        estimated_complexity: None,
        document: container.document(rounds),
        format: Format::Yaml,
        inputs: if matches!(container, Container::Loop) { Inputs::new() } else { inputs([("list", list.into())]) },
        system: std::collections::BTreeMap::new(),
        conversation: std::collections::BTreeMap::new(),
        id: Some(id()),
        name: "many".to_owned(),
        folder: None,
        labels: Default::default(),
        options: options(),
    }
}

/// A run of which so many rounds are finished, and the next waits for a person.
async fn left(store: &Arc<dyn Store>, container: Container, rounds: usize) {
    let outcome = run_durable(&process(store), start(container, rounds)).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Waiting, "{container:?}: {outcome:?}");
    answer(store).await;
    RunLog::open(Arc::clone(store), &id()).await.unwrap().close().await.unwrap();
}

/// The calls to the store that resuming takes until the run waits again, and the bytes that it reads.
async fn cost(store: &Arc<dyn Store>) -> (usize, u64, RunOutcome) {
    let counting = Arc::new(CrashStore::new(Arc::clone(store), Fault::None));
    let metered = MeteredStore::new(Arc::clone(&counting) as Arc<dyn Store>);
    let metrics = metered.metrics();
    let metered: Arc<dyn Store> = Arc::new(metered);
    let outcome = resume_durable(&process(&metered), &id(), options()).await.unwrap();
    let bytes = [Call::Read, Call::Section, Call::Pack].map(|call| metrics.of(call).bytes).iter().sum();
    (counting.names().len(), bytes, outcome)
}

/// What resuming takes after few rounds and after many; and that the run comes to its end.
async fn costs(
    make: impl AsyncFn(&Path) -> Arc<dyn Store>,
    container: Container,
    [few, many]: [usize; 2],
) -> [(usize, u64); 2] {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for rounds in [few, many] {
        let store = make(&folder.path().join(rounds.to_string())).await;
        left(&store, container, rounds).await;
        let (calls, bytes, outcome) = cost(&store).await;
        assert_eq!(outcome.status, RunStatus::Waiting, "{container:?}: {outcome:?}");
        answer(&store).await;
        let outcome = resume_durable(&process(&store), &id(), options()).await.unwrap();
        assert_eq!(outcome.status, RunStatus::Completed, "{container:?}");
        let all = match &outcome.outputs["x"] {
            Value::List(all) => all.len(),
            Value::Int(n) => usize::try_from(*n).unwrap(),
            _ => rounds + MORE_ROUNDS,
        };
        assert_eq!(all, rounds + MORE_ROUNDS, "{container:?}");
        if matches!(container, Container::Loop) {
            assert_eq!(outcome.outputs["seen"], outcome.outputs["x"], "what rounds set of others");
        }
        seen.push((calls, bytes));
    }
    [seen[0], seen[1]]
}

async fn compare(make: impl AsyncFn(&Path) -> Arc<dyn Store>, container: Container, rounds: [usize; 2]) {
    let [(few_calls, few_bytes), (many_calls, many_bytes)] = costs(make, container, rounds).await;
    // The list that a run goes through is one of its inputs, and read with them.
    let list = if matches!(container, Container::Loop) { 0 } else { 16 * rounds[1] as u64 };
    assert!(many_calls <= few_calls + MORE_CALLS, "{container:?}: {few_calls} and {many_calls} calls");
    assert!(many_bytes <= few_bytes + MORE_BYTES + list, "{container:?}: {few_bytes} and {many_bytes} bytes");
}

async fn over(objects: impl Objects + 'static) -> Arc<dyn Store> {
    Arc::new(ObjectStore::open(Arc::new(objects), true).await.unwrap())
}

/// A round is four steps: about a thousand, and ten or a hundred thousand.
fn rounds() -> [usize; 2] {
    [250, by_level(1_250, 2_500, 25_000)]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_workflow_reads_at_resume_is_bounded_in_sqlite() {
    let options = SqliteOptions::default();
    let make = async |path: &Path| {
        Arc::new(SqliteStore::open(path.with_extension("db"), options.clone()).unwrap()) as Arc<dyn Store>
    };
    for container in [Container::Loop, Container::Iteration { parallel: false }] {
        compare(&make, container, rounds()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_workflow_reads_at_resume_is_bounded_in_memory() {
    for container in [Container::Loop, Container::Iteration { parallel: true }, Container::Map] {
        compare(async |_| over(MemoryObjects::new()).await, container, rounds()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_workflow_reads_at_resume_is_bounded_in_a_folder() {
    let make = async |path: &Path| over(FolderObjects::open(path, &FolderOptions::default()).unwrap()).await;
    compare(make, Container::Loop, [250, by_level(500, 1_250, 25_000)]).await;
}

/// What the checkpoints of a run wrote, by round, and how large what the newest one holds is.
async fn checkpoint_costs(make: impl AsyncFn(&Path) -> Arc<dyn Store>, rounds: [usize; 2]) -> [(u64, usize); 2] {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = [(0, 0); 2];
    for (rounds, seen) in rounds.into_iter().zip(&mut seen) {
        let metered = MeteredStore::new(make(&folder.path().join(rounds.to_string())).await);
        let metrics = metered.metrics();
        let store: Arc<dyn Store> = Arc::new(metered);
        let mut start = start(Container::Loop, rounds);
        start.document = start.document.replace("{id: deed, data: {", "{id: deed, data: {checkpoint: true, ");
        let outcome = run_durable(&process(&store), start).await.unwrap();
        assert_eq!(outcome.status, RunStatus::Waiting, "{outcome:?}");
        let log = RunLog::open(Arc::clone(&store), &id()).await.unwrap();
        let history = History::read(&log).await.unwrap();
        // One after each round, and one before the question.
        assert_eq!(history.totals.checkpoints, rounds as u64 + 1);
        let part = history.checkpoint.unwrap().1[&"variables".into()].clone();
        let held = piton_types::to_json(&log.load(&part).await.unwrap()).unwrap().to_string();
        assert!(held.contains("work/deed"), "{held}");
        let written = [Call::Commit, Call::RelaxedCommit, Call::Stage].map(|call| metrics.of(call).bytes);
        *seen = (written.iter().sum::<u64>() / rounds as u64, held.len());
    }
    seen
}

/// A checkpoint in a long loop costs and holds what one in a short loop does.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_checkpoint_holds_does_not_grow_with_the_rounds() {
    let options = SqliteOptions::default();
    let sqlite = async |path: &Path| {
        Arc::new(SqliteStore::open(path.with_extension("db"), options.clone()).unwrap()) as Arc<dyn Store>
    };
    let many = by_level(500, 1_250, 10_000);
    for [few, many] in [
        checkpoint_costs(sqlite, [100, many]).await,
        checkpoint_costs(async |_| over(MemoryObjects::new()).await, [100, many]).await,
    ] {
        assert!(few.0 > 0 && many.0 < few.0 * 5 / 4, "bytes for each checkpoint: {} and {}", few.0, many.0);
        assert!(many.1 < few.1 * 5 / 4, "bytes that the newest holds: {} and {}", few.1, many.1);
    }
}

/// A container that keeps nothing of its rounds goes through all of them again, and the comparison shows it.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_record_of_its_rounds_it_grows() {
    let [few, many] = costs(async |_| memory(), Container::Reduce, [100, 2_500]).await;
    assert!(many.0 > few.0 + MORE_CALLS || many.1 > few.1 + MORE_BYTES, "{few:?} and {many:?}");
}

/// Dead before or after any call, it comes to the same end; so does a fork, which does again what it is told to.
#[tokio::test(flavor = "multi_thread")]
async fn rounds_are_kept_through_deaths_and_forks() {
    let rounds = 70;
    let drive = async |store: &Arc<dyn Store>| -> Result<RunOutcome, FlowError> {
        loop {
            let outcome = run_durable(&process(store), start(Container::Loop, rounds)).await?;
            if outcome.status != RunStatus::Waiting {
                return Ok(outcome);
            }
            match answer_question(&process(store), &id(), None, &said(), "ann").await {
                Err(AnswerError::Run(error)) => return Err(error.into()),
                other => drop(other.unwrap()),
            }
        }
    };
    let counting = Arc::new(CrashStore::new(memory(), Fault::None).with_chains());
    let whole = drive(&(Arc::clone(&counting) as _)).await.unwrap().outputs;
    assert_eq!(whole, inputs([("x", 80.into()), ("seen", 80.into())]));
    for at in (1..=counting.calls()).step_by(by_level(17, 9, 1)) {
        for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
            let below = memory();
            let dying: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), fault).with_chains());
            assert!(drive(&dying).await.is_err() || matches!(fault, Fault::CrashAfter(_)), "{fault:?}");
            assert_eq!(drive(&below).await.unwrap().outputs, whole, "{fault:?}");
        }
    }
    let store = memory();
    left(&store, Container::Loop, rounds).await;
    let at = CheckpointRef { run: id(), seq: store.head(&id()).await.unwrap().unwrap().seq };
    for without in [Vec::new(), vec!["work/40/deed".parse().unwrap()]] {
        let again = without.clone();
        let fork = fork(&process(&store), &at, ForkRun { without, ..ForkRun::default() }).await.unwrap();
        let outcome = resume_durable(&process(&store), &fork, options()).await.unwrap();
        assert_eq!(outcome.status, RunStatus::Waiting, "{outcome:?}");
        answer_question(&process(&store), &fork, None, &said(), "ann").await.unwrap();
        let outcome = resume_durable(&process(&store), &fork, options()).await.unwrap();
        assert_eq!(outcome.outputs, whole);
        let ran = WholeHistory::of(&process(&store), &fork).await.unwrap().steps;
        let ran: Vec<_> = ran.into_iter().map(|step| step.path).collect();
        assert!(again.iter().all(|step| ran.contains(step)), "{ran:?}");
        assert!(!ran.contains(&"work/30/deed".parse().unwrap()), "{ran:?}");
    }
}

/// A document of many nodes is read in pieces of many, and not node by node.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_document_is_resumed_by_pieces() {
    let nodes = by_level(1_000, 2_000, 10_000);
    let mut document = "nodes:\n  - {id: in, data: {type: start}}\n".to_owned();
    let mut edges = "edges:\n".to_owned();
    let mut last = "in".to_owned();
    for number in 0..nodes {
        document.push_str(&format!(
            "  - {{id: n{number}, data: {{type: template-transform, template: x, variables: []}}}}\n"
        ));
        edges.push_str(&format!("  - {{source: {last}, target: n{number}}}\n"));
        last = format!("n{number}");
    }
    document.push_str("  - {id: ask, data: {type: human-input, prompt: 'Go on?', variables: [{name: word, type: string, required: true}]}}\n");
    document.push_str("  - {id: out, data: {type: end, outputs: [{variable: x, value_selector: [ask, word]}]}}\n");
    edges.push_str(&format!("  - {{source: {last}, target: ask}}\n  - {{source: ask, target: out}}\n"));
    let store = memory();
    let start = StartFlow {
        config: None,
        priority: 0,
        estimated_complexity: None,
        document: document + &edges,
        format: Format::Yaml,
        inputs: Inputs::new(),
        system: std::collections::BTreeMap::new(),
        conversation: std::collections::BTreeMap::new(),
        id: Some(id()),
        name: "long".to_owned(),
        folder: None,
        labels: Default::default(),
        options: options(),
    };
    assert_eq!(run_durable(&process(&store), start).await.unwrap().status, RunStatus::Waiting);
    answer(&store).await;
    RunLog::open(Arc::clone(&store), &id()).await.unwrap().close().await.unwrap();
    let (calls, _, outcome) = cost(&store).await;
    assert_eq!(outcome.status, RunStatus::Completed);
    assert!(calls < nodes / 4, "{calls} calls for {nodes} nodes");
}
