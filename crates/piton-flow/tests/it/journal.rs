//! What the journal of a durable run keeps and when it is durable (decisions 3 to 5, F2 to F4, promise 10): crashed
//! at every call of the store, resumed, and compared with a world outside of the run that counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use piton_flow::{
    AnswerError, Document, Flow, FlowError, FlowOptions, Format, Found, Governor, Happened, Host, Inputs, Journal,
    JournalError, Kinds, Outside, OutsideConfig, Quotas, RunFacts, RunOutcome, SecurityLevel, Services, StartFlow,
    ToolServer, Used, Written, answer_question, resume_durable, run, run_durable,
};
use piton_log::RunLog;
use piton_model::SecretString;
use piton_model::chat::{Provider, ToolSpec, Wire};
use piton_model::mcp::{McpError, ToolOutput};
use piton_runtime::{EffectStatus, Listener, RunError, WholeHistory};
use piton_store::{Store, StoreError};
use piton_testing::{CrashStore, Fault, ManualClock};
use piton_types::{Event, PartName, RunId, RunStatus, StepPath, Value};

use crate::server::{Received, Server, Step, json};
use crate::support::{Counter, memory, process, tell};

fn id() -> RunId {
    "r".parse().unwrap()
}

fn start(document: &str, services: &Services) -> StartFlow {
    StartFlow {
        config: None,
        priority: 0,
        estimated_complexity: None,
        document: document.to_owned(),
        format: Format::Yaml,
        inputs: Inputs::new(),
        system: BTreeMap::new(),
        conversation: BTreeMap::new(),
        id: Some(id()),
        name: "r".to_owned(),
        folder: None,
        labels: Default::default(),
        options: FlowOptions { services: services.clone(), ..FlowOptions::default() },
    }
}

async fn go_on(store: &Arc<dyn Store>, services: &Services) -> Result<RunOutcome, FlowError> {
    resume_durable(&process(store), &id(), FlowOptions { services: services.clone(), ..FlowOptions::default() }).await
}

/// Runs the document on a store that dies at a call, then to its end, and returns what it came to.
async fn crashed(document: &str, services: &Services, fault: Fault) -> (Arc<dyn Store>, RunOutcome) {
    let below = memory();
    let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), fault));
    drop(run_durable(&process(&crashing), start(document, services)).await);
    let outcome = match go_on(&below, services).await {
        Err(FlowError::Run(RunError::Store(StoreError::NotFound { .. }))) => {
            run_durable(&process(&below), start(document, services)).await
        }
        outcome => outcome,
    };
    (below, outcome.unwrap_or_else(|error| panic!("{fault:?}: {error}")))
}

/// How many calls of the store a run takes that isn't killed.
async fn calls(document: &str, services: &Services) -> (u64, RunOutcome) {
    let store = Arc::new(CrashStore::new(memory(), Fault::None));
    let whole = run_durable(&process(&(Arc::clone(&store) as _)), start(document, services)).await.unwrap();
    (store.calls(), whole)
}

async fn history(store: &Arc<dyn Store>) -> WholeHistory {
    WholeHistory::of(&process(store), &id()).await.unwrap()
}

async fn part(store: &Arc<dyn Store>, name: &str) -> Value {
    let log = RunLog::open(Arc::clone(store), &id()).await.unwrap();
    let (_, parts) = history(store).await.checkpoint.clone().unwrap();
    log.load(&parts[&PartName::from(name)]).await.unwrap()
}

/// Six nodes, of which two are outward.
const LINE: &str = "
nodes:
  - {id: s, data: {type: start}}
  - {id: t1, data: {type: template-transform, template: a, variables: []}}
  - {id: c1, data: {type: command, command: [echo, '1']}}
  - {id: t2, data: {type: template-transform, template: b, variables: []}}
  - {id: c2, data: {type: command, command: [echo, '2']}}
  - {id: e, data: {type: end, outputs: [{variable: x, value_selector: [c2, stdout]}]}}
edges: [{source: s, target: t1}, {source: t1, target: c1}, {source: c1, target: t2}, {source: t2, target: c2}, {source: c2, target: e}]
";

/// The commits of a run, as the store has seen them.
fn commits(store: &CrashStore) -> Vec<&'static str> {
    store.names().into_iter().filter(|name| name.starts_with("append")).collect()
}

/// Decisions 3 and 4: what follows from other results is in the commit of the intent of what is outward, whose result is
/// a commit of its own.
#[tokio::test]
async fn pure_nodes_share_the_commit_of_what_follows_them() {
    let store = Arc::new(CrashStore::new(memory(), Fault::None).with_chains());
    run_durable(&process(&(Arc::clone(&store) as _)), start(LINE, &Services::default())).await.unwrap();
    let (one, several) = ("append", "append_several");
    let expected = [
        one, one, // created, claimed
        several, one, // s, t1 and the intent of c1; its result
        several, one, // t2 and the intent of c2; its result
        one, // e
        one, // completed
    ];
    assert_eq!(commits(&store), expected);
}

/// Two outward nodes in a row: the intent of the second is in the commit of the result of the first. An intent that is
/// alone needs no sync, unless its repetition must be known of.
#[tokio::test]
async fn an_intent_costs_no_sync_of_its_own() {
    let between = "{source: c1, target: t2}, {source: t2, target: c2}";
    let document = LINE.replace(between, "{source: c1, target: c2}, {source: s, target: t2}");
    let store = Arc::new(CrashStore::new(memory(), Fault::None).with_chains());
    run_durable(&process(&(Arc::clone(&store) as _)), start(&document, &Services::default())).await.unwrap();
    // Created, claimed; s, t1, t2 and the first intent; the first result and the second intent; the second result; e;
    // completed.
    assert_eq!(commits(&store), ["append", "append", "append_several", "append_several", "append", "append", "append"]);

    // Created, claimed; s and the first intent; then a failure, and the intent of another attempt, twice; the result; e;
    // completed.
    let folder = tempfile::tempdir().unwrap();
    for (way, alone) in [("retry", "append_relaxed"), ("fail", "append")] {
        let document = FLAKY.replace("FILE", folder.path().join(way).to_str().unwrap());
        let document = document.replace("type: command,", &format!("type: command, on_uncertain: {way},"));
        let store = Arc::new(CrashStore::new(memory(), Fault::None).with_chains());
        run_durable(&process(&(Arc::clone(&store) as _)), start(&document, &Services::default())).await.unwrap();
        let (one, several) = ("append", "append_several");
        let expected = [one, one, several, one, alone, one, alone, one, one, one];
        assert_eq!(commits(&store), expected, "{way}");
    }
}

/// A journal that keeps nothing, and counts what it is asked for all the same.
struct Counting(RunFacts, AtomicU32);

#[async_trait]
impl Journal for Counting {
    fn facts(&self) -> &RunFacts {
        &self.0
    }
    async fn find(&self, _: &StepPath) -> Result<Found, JournalError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(Found::NOTHING)
    }
    fn admit(&self, _: &StepPath) -> Result<(), JournalError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    async fn write(&self, burst: Vec<Happened>) -> Result<Vec<Written>, JournalError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(vec![Written::default(); burst.len()])
    }
}

/// Decision 17: without a store nothing is done for checkpoints.
#[tokio::test]
async fn without_a_store_the_journal_is_asked_for_nothing() {
    let document = LINE.replace("type: command,", "type: command, checkpoint: true,");
    let flow = Flow::build(&Document::parse(&document, Format::Yaml).unwrap(), &Kinds::builtin()).unwrap();
    let facts = RunFacts { keeps: false, ..RunFacts::new(id()) };
    let (journal, clock, ids) = (Counting(facts, AtomicU32::new(0)), ManualClock::default(), Counter::default());
    run(&flow, Inputs::new(), &Host::new(&journal, &clock, &ids)).await.unwrap();
    assert_eq!(journal.1.into_inner(), 0);
}

/// A world that answers a key that it has seen as it did then, and counts what is new to it.
#[derive(Default)]
struct World {
    answers: Mutex<BTreeMap<String, String>>,
    paid: AtomicU32,
}

impl World {
    fn answer(&self, key: &str, next: impl FnOnce(u32) -> String) -> String {
        let mut answers = self.answers.lock().unwrap();
        answers.entry(key.to_owned()).or_insert_with(|| next(self.paid.fetch_add(1, Ordering::SeqCst))).clone()
    }
}

struct Search(Arc<World>);

#[async_trait]
impl ToolServer for Search {
    async fn tools(&self) -> Result<Vec<ToolSpec>, McpError> {
        let schema = Value::map([("type", "object".into())]);
        Ok(vec![ToolSpec { name: "search".to_owned(), description: String::new(), schema }])
    }

    async fn call(&self, _: &str, arguments: &Value, key: Option<&str>) -> Result<ToolOutput, McpError> {
        let q = arguments.field("q").and_then(Value::as_i64).unwrap_or_default();
        let text = self.0.answer(key.expect("a durable run has keys"), |n| format!("found {q} as number {n}"));
        Ok(ToolOutput { text, content: Vec::new(), structured: None, is_error: false })
    }
}

const AGENT: &str = "
nodes:
  - {id: s, data: {type: start}}
  - id: a
    data: {type: agent, model: {provider: openai, name: small}, query: go, max_iterations: 6, tools: {mcp_server_refs: [mock]}}
  - {id: e, data: {type: end, outputs: [{variable: x, value_selector: [a, text]}, {variable: n, value_selector: [a, tool_calls_count]}]}}
edges: [{source: s, target: a}, {source: a, target: e}]
";

/// A model that calls the tool three times and then says what it heard; what it is asked is counted by key.
async fn agent_world(quotas: Quotas) -> (Arc<World>, Arc<World>, Services) {
    let (models, tools) = (Arc::new(World::default()), Arc::new(World::default()));
    let asked = Arc::clone(&models);
    let answer = move |received: &Received| -> Vec<Step> {
        let heard = received.body.matches("\"role\":\"tool\"").count();
        let body = asked.answer(&received.headers["idempotency-key"], |_| {
            let message = if heard < 3 {
                format!(r#"{{"content":"","tool_calls":[{{"id":"c{heard}","type":"function","function":{{"name":"search","arguments":"{{\"q\":{heard}}}"}}}}]}}"#)
            } else {
                r#"{"content":"done"}"#.to_owned()
            };
            format!(r#"{{"choices":[{{"message":{message},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":10,"completion_tokens":1}}}}"#)
        });
        json(200, &body)
    };
    let server = Server::start(answer).await;
    let mut config = OutsideConfig::at(SecurityLevel::Standard);
    let mut provider = Provider::new(Wire::OpenAi);
    provider.base_url = Some(server.url("/v1"));
    provider.api_key = Some(SecretString::from("sk".to_owned()));
    config.providers.insert("openai".to_owned(), provider);
    config.servers.add("mock", Arc::new(Search(Arc::clone(&tools))));
    config.quotas = quotas;
    (models, tools, Outside::new(config).unwrap().install(Services::default()))
}

/// Decision 15, promise 10: killed at any call of the store, an agent goes on in the turn that it was in; nothing is
/// paid twice, because a repetition has its key; tokens are counted on.
#[tokio::test]
async fn an_agent_goes_on_in_the_turn_that_it_was_killed_in() {
    let (_, _, services) = agent_world(Quotas::default()).await;
    let (count, whole) = calls(AGENT, &services).await;
    assert_eq!((whole.outputs["x"].clone(), whole.outputs["n"].clone()), ("done".into(), 3.into()));
    assert_eq!((whole.usage.input, whole.usage.output), (40, 4));
    let mut skipped = 0;
    for at in 1..=count {
        for fault in [Fault::CrashBefore(at), Fault::CrashAfter(at)] {
            let (models, tools, services) = agent_world(Quotas::default()).await;
            let (store, outcome) = crashed(AGENT, &services, fault).await;
            assert_eq!(outcome.outputs, whole.outputs, "{fault:?}");
            let paid = (models.paid.load(Ordering::SeqCst), tools.paid.load(Ordering::SeqCst));
            assert_eq!(paid, (4, 3), "{fault:?}: each turn and each call took place once");
            // What was answered and not recorded is asked again, and so counted once.
            assert_eq!((outcome.usage.input, outcome.usage.output), (40, 4), "{fault:?}");
            let history = history(&store).await;
            assert!(history.effects.iter().all(|effect| effect.status() == EffectStatus::Done), "{fault:?}");
            skipped += history.steps.iter().filter(|step| step.attempt == 1).count();
        }
    }
    assert!(skipped > 0);
    println!("an agent crashed at {count} calls");
}

/// F4: quotas count on from where they were.
#[tokio::test]
async fn quotas_count_on_in_another_process() {
    let quotas = Quotas { tokens: Some(22), ..Quotas::default() };
    let (_, _, services) = agent_world(quotas).await;
    let store = memory();
    let failed = run_durable(&process(&store), start(AGENT, &services)).await.unwrap();
    assert_eq!(failed.error.as_deref(), Some("node a failed: the limit of 22 tokens is reached"));
    // Another process with services of its own has counted nothing yet, and the limit is reached all the same.
    let (models, _, services) = agent_world(quotas).await;
    let again = go_on(&store, &services).await.unwrap();
    assert_eq!(again.error, failed.error);
    assert_eq!(models.paid.load(Ordering::SeqCst), 0, "nothing was asked");
    assert_eq!(again.usage, failed.usage);
    let governor: &Governor = services.get::<Outside>().unwrap().governor();
    assert_eq!(governor.used(&id()), Used { tokens: 22, tool_calls: 2, ..Used::default() });
}

const FLAKY: &str = "
nodes:
  - {id: s, data: {type: start}}
  - {id: c, data: {type: command, command: [sh, -c, 'echo x >> FILE; test $(wc -l < FILE) -ge 3'], retry_config: {max_retries: 3, retry_interval: 1, retry_on_retryable_only: true}}}
  - {id: e, data: {type: end, outputs: [{variable: x, value_selector: [c, exit_code]}]}}
edges: [{source: s, target: c}, {source: c, target: e}]
";

/// F4: retries are counted on: three attempts in all, whenever the process dies, and one more for the one in flight.
#[tokio::test]
async fn retries_count_on_in_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let document = |n: u64| FLAKY.replace("FILE", folder.path().join(n.to_string()).to_str().unwrap());
    let (count, _) = calls(&document(0), &Services::default()).await;
    for at in 1..=count {
        let document = document(at);
        let (store, outcome) = crashed(&document, &Services::default(), Fault::CrashBefore(at)).await;
        assert_eq!(outcome.status, RunStatus::Completed, "{at}");
        let attempts: Vec<_> = history(&store)
            .await
            .steps
            .iter()
            .filter(|step| step.path.as_str() == "c")
            .map(|step| step.attempt)
            .collect();
        // An attempt whose failure wasn't recorded counts for the command, not for the log.
        assert!([vec![1, 2, 3], vec![1, 2]].contains(&attempts), "{at}: {attempts:?}");
    }
    let never = FLAKY.replace("FILE", folder.path().join("never").to_str().unwrap()).replace("-ge 3", "-ge 99");
    let (count, whole) = calls(&never, &Services::default()).await;
    assert_eq!(whole.status, RunStatus::Failed);
    for at in 1..=count {
        let below = memory();
        let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), Fault::CrashBefore(at)));
        drop(run_durable(&process(&crashing), start(&never, &Services::default())).await);
        if below.head(&id()).await.unwrap().is_none()
            || below.summary(&id()).await.unwrap().unwrap().status == RunStatus::Failed
        {
            continue;
        }
        assert_eq!(go_on(&below, &Services::default()).await.unwrap().status, RunStatus::Failed, "{at}");
        let attempts = history(&below).await.steps.iter().filter(|step| step.path.as_str() == "c").count();
        assert_eq!(attempts, 4, "{at}: as many as without a crash");
    }
}

/// An iteration goes on from failures of its rounds; the file `ok` would make them succeed later.
const ROUNDS: &str = "
nodes:
  - {id: s, data: {type: start, variables: []}}
  - {id: list, data: {type: code, code_language: javascript, code: 'function main() { return {xs: [0, 1, 2]}; }', outputs: {xs: {type: array}}, variables: []}}
  - id: it
    data:
      type: iteration
      input_selector: [list, xs]
      error_handle_mode: continue_on_error
      sub_graph:
        nodes:
          - {id: is, data: {type: start}}
          - {id: ic, data: {type: command, command: [sh, -c, 'echo {{#it.item#}} >> DIR/ran; test {{#it.item#}} != 1 || test -e DIR/ok']}}
          - {id: ie, data: {type: end, outputs: [{variable: code, value_selector: [ic, exit_code]}]}}
        edges: [{source: is, target: ic}, {source: ic, target: ie}]
  - {id: e, data: {type: end, outputs: [{variable: x, value_selector: [it, output]}]}}
edges: [{source: s, target: list}, {source: list, target: it}, {source: it, target: e}]
";

/// Decision 5, first property: a failure that the run went on from stays one, even if the command would succeed now.
#[tokio::test]
async fn a_failure_inside_an_iteration_is_not_tried_again_by_a_resume() {
    let run_at = async |at: Option<u64>| {
        let folder = tempfile::tempdir().unwrap();
        let document = ROUNDS.replace("DIR", folder.path().to_str().unwrap());
        let services = Outside::new(OutsideConfig::default()).unwrap().install(Services::default());
        let below = memory();
        let fault = at.map_or(Fault::None, Fault::CrashBefore);
        let crashing = Arc::new(CrashStore::new(Arc::clone(&below), fault));
        drop(run_durable(&process(&(Arc::clone(&crashing) as _)), start(&document, &services)).await);
        let failed_before = match below.head(&id()).await.unwrap() {
            None => false,
            Some(_) => history(&below).await.steps.iter().any(|step| step.path.as_str() == "it/2/ic"),
        };
        std::fs::write(folder.path().join("ok"), "").unwrap();
        let outcome = run_durable(&process(&below), start(&document, &services)).await.unwrap();
        let ran = std::fs::read_to_string(folder.path().join("ran")).unwrap();
        (crashing.calls(), failed_before, outcome.outputs["x"].clone(), ran.lines().count())
    };
    let (count, _, whole, _) = run_at(None).await;
    let ok = Value::map([("code", Value::from(0))]);
    assert_eq!(whole, Value::List(vec![ok.clone(), Value::Null, ok.clone()]));
    let mut kept = 0;
    for at in 1..=count {
        let (_, failed_before, outputs, ran) = run_at(Some(at)).await;
        if failed_before {
            kept += 1;
            assert_eq!(outputs, whole, "{at}");
        } else {
            assert_eq!(outputs, Value::List(vec![ok.clone(), ok.clone(), ok.clone()]), "{at}");
        }
        assert!((3..=4).contains(&ran), "{at}: at most the round in flight ran twice, not {ran}");
    }
    assert!(kept > 0, "some crash came behind the failure");
}

/// Two branches set the same variable; the slow one last. It stays so when the run goes on.
const RACE: &str = "
conversation_variables: [{name: x, value_type: string, value: none}]
nodes:
  - {id: s, data: {type: start}}
  - {id: slow, data: {type: command, command: [sleep, '0.05']}}
  - {id: a, data: {type: assigner, version: '2', items: [{variable_selector: [conversation, x], input_type: constant, operation: over-write, value: slow}]}}
  - {id: fast, data: {type: command, command: ['true']}}
  - {id: b, data: {type: assigner, version: '2', items: [{variable_selector: [conversation, x], input_type: constant, operation: over-write, value: fast}]}}
  - {id: last, data: {type: command, checkpoint: true, command: [echo, '{{#conversation.x#}}']}}
  - {id: e, data: {type: end, outputs: [{variable: x, value_selector: [last, stdout]}]}}
edges: [{source: s, target: slow}, {source: s, target: fast}, {source: slow, target: a}, {source: fast, target: b}, {source: a, target: last}, {source: b, target: last}, {source: last, target: e}]
";

#[tokio::test]
async fn what_ended_last_still_ended_last_when_the_run_goes_on() {
    let (count, _) = calls(RACE, &Services::default()).await;
    let mut both_ended = 0;
    for at in 1..=count {
        let below = memory();
        let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), Fault::CrashBefore(at)));
        drop(run_durable(&process(&crashing), start(RACE, &Services::default())).await);
        if below.head(&id()).await.unwrap().is_none() {
            continue;
        }
        let ended: Vec<_> = history(&below).await.steps.iter().map(|step| step.path.to_string()).collect();
        let place = |step: &str| ended.iter().position(|other| other == step);
        let outcome = go_on(&below, &Services::default()).await.unwrap();
        let said = outcome.outputs["x"].as_str().unwrap().trim().to_owned();
        if let (Some(a), Some(b)) = (place("a"), place("b")) {
            both_ended += 1;
            assert_eq!(said, if a > b { "slow" } else { "fast" }, "{at}: {ended:?}");
        }
        let conversation = Value::map([("x", said.as_str().into())]);
        assert_eq!(part(&below, "variables").await.field("conversation"), Some(&conversation), "{at}");
    }
    assert!(both_ended > 0);
}

const PAY: &str = "
nodes:
  - {id: s, data: {type: start}}
  - {id: pay, data: {type: command, on_uncertain: WAY, command: [sh, -c, 'echo $PITON_IDEMPOTENCY_KEY >> FILE; echo paid']}}
  - {id: e, data: {type: end, outputs: [{variable: x, value_selector: [pay, stdout]}]}}
edges: [{source: s, target: pay}, {source: pay, target: e}]
";

/// A run that died between the intent and the end of `pay`.
async fn died_while_paying(way: &str) -> (Arc<dyn Store>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let document = PAY.replace("WAY", way).replace("FILE", folder.path().join("paid").to_str().unwrap());
    let below = memory();
    // Created, claimed, s, the intent; then the result is lost.
    let counting = Arc::new(CrashStore::new(memory(), Fault::None));
    run_durable(&process(&(Arc::clone(&counting) as _)), start(&document, &Services::default())).await.unwrap();
    let appends: Vec<_> = counting
        .names()
        .iter()
        .enumerate()
        .filter(|(_, name)| name.starts_with("append"))
        .map(|(n, _)| n as u64 + 1)
        .collect();
    std::fs::remove_file(folder.path().join("paid")).unwrap();
    let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&below), Fault::CrashBefore(appends[4])));
    run_durable(&process(&crashing), start(&document, &Services::default())).await.unwrap_err();
    let effects = history(&below).await.effects;
    assert_eq!(effects.iter().map(piton_runtime::EffectRecord::status).collect::<Vec<_>>(), [EffectStatus::Uncertain]);
    (below, folder)
}

/// Decision 5: done again with the same key, or not at all, or as a person says.
#[tokio::test]
async fn work_in_flight_is_done_again_with_its_key_or_as_the_node_says() {
    let (store, folder) = died_while_paying("retry").await;
    assert_eq!(go_on(&store, &Services::default()).await.unwrap().outputs["x"], "paid\n".into());
    let keys = std::fs::read_to_string(folder.path().join("paid")).unwrap();
    let keys: Vec<_> = keys.lines().collect();
    assert!(keys.len() == 2 && keys[0] == keys[1] && keys[0].len() == 64, "{keys:?}");
    assert_eq!(keys[0], history(&store).await.effects[0].intent.key.to_string(), "the ledger says which");

    let (store, folder) = died_while_paying("fail").await;
    let failed = go_on(&store, &Services::default()).await.unwrap();
    assert!(failed.error.unwrap().contains("it may have taken place"));
    assert_eq!(std::fs::read_to_string(folder.path().join("paid")).unwrap().lines().count(), 1);

    let services = Services::default();
    for (said, outcome, lines) in [
        (vec![("outcome", Value::from("not_done"))], "paid\n", 2),
        (vec![("outcome", "done".into()), ("output", Value::map([("stdout", "receipt 7".into())]))], "receipt 7", 1),
    ] {
        let (store, folder) = died_while_paying("ask").await;
        // Nothing else is left to do: the run is put aside, and no process needs to be alive until a person answers.
        let waits = go_on(&store, &services).await.unwrap();
        assert_eq!((waits.status, waits.questions.len()), (RunStatus::Waiting, 1));
        assert_eq!(go_on(&store, &services).await.unwrap().status, RunStatus::Waiting, "asked once, however often");
        let said = Value::map(said);
        let wrong = Value::map([("outcome", "perhaps".into())]);
        let refused = answer_question(&process(&store), &id(), None, &wrong, "ann").await;
        assert!(matches!(refused, Err(AnswerError::Invalid { .. })));
        let question = answer_question(&process(&store), &id(), None, &said, "ann").await.unwrap();
        assert_eq!(question.as_str(), "pay#?1");
        assert_eq!(go_on(&store, &services).await.unwrap().outputs["x"], outcome.into());
        assert_eq!(std::fs::read_to_string(folder.path().join("paid")).unwrap().lines().count(), lines);
    }
}

/// Decision 5: what isn't to be done again isn't, whatever the node says of retries and however often the run goes on.
#[tokio::test]
async fn what_was_given_up_is_not_done_by_a_retry_either() {
    let services = Services::default();
    let retries = "retry_config: {retry_enabled: true, max_retries: 3, retry_interval: 1}";
    for way in ["fail", "ask"] {
        let (store, folder) = died_while_paying(&format!("{way}, {retries}")).await;
        if way == "ask" {
            assert_eq!(go_on(&store, &services).await.unwrap().status, RunStatus::Waiting);
            let said = Value::map([("outcome", "give_up".into())]);
            answer_question(&process(&store), &id(), None, &said, "ann").await.unwrap();
        }
        for _ in 0..3 {
            let failed = go_on(&store, &services).await.unwrap();
            assert!(failed.error.unwrap().contains("it may have taken place"), "{way}");
        }
        assert_eq!(std::fs::read_to_string(folder.path().join("paid")).unwrap().lines().count(), 1, "{way}");
    }
}

/// F4: what a checkpoint shows of where the run is.
#[tokio::test]
async fn a_checkpoint_says_where_the_run_is() {
    let document = "
nodes:
  - {id: s, data: {type: start}}
  - {id: i, data: {type: if-else, cases: [{case_id: 'yes', logical_operator: and, conditions: [{variable_selector: [s, x], comparison_operator: 'not empty'}]}]}}
  - {id: y, data: {type: template-transform, template: a, variables: []}}
  - {id: n, data: {type: command, checkpoint: true, command: ['true']}}
  - {id: z, data: {type: template-transform, template: b, variables: []}}
  - {id: e, data: {type: end, outputs: [{variable: x, value_selector: [n, stdout]}]}}
edges:
  - {source: s, target: i}
  - {source: i, target: y, sourceHandle: 'yes'}
  - {source: i, target: n, sourceHandle: 'false'}
  - {source: n, target: z}
  - {source: y, target: z}
  - {source: z, target: e}
";
    let store = memory();
    run_durable(&process(&store), start(document, &Services::default())).await.unwrap();
    let engine = part(&store, "engine").await;
    let nodes = engine.field("nodes").unwrap();
    // What the variables tell isn't said again: `s` and `n` have given something, `z` and `e` haven't.
    let expected = [
        ("i", "succeeded", vec![("[yes] y", "skipped"), ("[false] n", "taken")]),
        ("y", "skipped", vec![("z", "skipped")]),
    ];
    let expected = expected.map(|(node, state, edges)| {
        let edges = Value::map(edges.into_iter().map(|(edge, state)| (edge, state.into())));
        (node, Value::map([("state", state.into()), ("edges", edges)]))
    });
    assert_eq!(*nodes, Value::map(expected));
    let variables = part(&store, "variables").await;
    assert_eq!(variables.as_map().unwrap().keys().collect::<Vec<_>>(), ["i", "n", "s"]);
    let now = engine.field("now").unwrap();
    assert_eq!(now.field("ready"), Some(&Value::List(vec!["z".into()])));
    assert_eq!(now.field("running"), Some(&Value::List(Vec::new())));
    assert_eq!(now.field("last"), Some(&"n".into()));
    assert_eq!(now.field("counted").unwrap().field("steps"), Some(&Value::from(3)));
}

/// F2: a stream that wasn't finished is left out, and its producer runs again; one that was is its text.
#[tokio::test]
async fn an_unfinished_stream_runs_again_from_its_producer() {
    let world = Arc::new(World::default());
    let seen = Arc::clone(&world);
    let server = Server::start(move |received| {
        let said = seen.answer(&received.headers["idempotency-key"], |n| format!("text {n}"));
        let chunk = |text: &str| format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}}}}]}}"#);
        crate::server::events(&[&chunk(&said[..4]), &chunk(&said[4..]), "[DONE]"])
    })
    .await;
    let mut config = OutsideConfig::at(SecurityLevel::Standard);
    let mut provider = Provider::new(Wire::OpenAi);
    provider.base_url = Some(server.url("/v1"));
    config.providers.insert("openai".to_owned(), provider);
    let services = Outside::new(config).unwrap().install(Services::default());
    let document = "
nodes:
  - {id: s, data: {type: start}}
  - {id: l, data: {type: llm, model: {provider: openai, name: m}, prompt_template: [{role: user, text: hi}], stream: true}}
  - {id: a, data: {type: answer, answer: 'said: {{#l.text#}}'}}
edges: [{source: s, target: l}, {source: l, target: a}]
";
    let (count, whole) = calls(document, &services).await;
    assert_eq!(whole.outputs["answer"], "said: text 0".into());
    for at in 1..=count {
        let before = world.paid.load(Ordering::SeqCst);
        // Another epoch of the world: keys of runs of the same name would be known to it.
        world.answers.lock().unwrap().clear();
        let (_, outcome) = crashed(document, &services, Fault::CrashBefore(at)).await;
        assert_eq!(outcome.outputs["answer"], format!("said: text {before}").as_str().into(), "{at}");
    }
}

/// The events of a resume name what was skipped, in the order in which it ended.
#[tokio::test]
async fn a_resume_tells_what_it_skips() {
    let store = memory();
    let crashing: Arc<dyn Store> = Arc::new(CrashStore::new(Arc::clone(&store), Fault::None));
    let failing = LINE.replace("[echo, '2']", "['false']");
    run_durable(&process(&crashing), start(&failing, &Services::default())).await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    let events = Listener::new(move |event: &Event| sink.lock().unwrap().push(tell(event)));
    resume_durable(&process(&store), &id(), FlowOptions { events, ..FlowOptions::default() }).await.unwrap();
    assert_eq!(told.lock().unwrap()[1..6], ["skipped s", "skipped t1", "skipped c1", "skipped t2", "begun c2"]);
}

/// F11: what was done outside, what was saved and that the run went on stand in the run's own log, with run and node,
/// and without any secret.
#[tokio::test]
async fn the_audit_is_in_the_log_of_the_run() {
    let document = LINE
        .replace("command: [echo, '1']", "checkpoint: true, command: [echo, '1']")
        .replace("command: [echo, '2']", "command: [sh, -c, 'test -e \"$0\"', '{{#sys.gate#}}']")
        .replace("{{#sys.gate#}}", "/nowhere/canary-4711");
    let mut config = OutsideConfig::at(SecurityLevel::Standard);
    config.secrets = vec![("GATE".to_owned(), SecretString::from("canary-4711"))];
    let services = Outside::new(config).unwrap().install(Services::default());
    let store = memory();
    let failed = run_durable(&process(&store), start(&document, &services)).await.unwrap();
    assert_eq!(failed.status, RunStatus::Failed);
    assert_eq!(go_on(&store, &services).await.unwrap().status, RunStatus::Failed);
    let lines: Vec<String> = history(&store).await.log.into_iter().map(|line| line.text).collect();
    let found: Vec<(String, String)> = lines
        .iter()
        .map(|line| {
            let Value::Map(entry) = piton_types::from_json(line.strip_prefix("audit ").unwrap().as_bytes()).unwrap()
            else {
                panic!("{line}")
            };
            assert_eq!(entry["run"], "r".into());
            (crate::support::text(&entry["kind"]), crate::support::text(&entry["step"]))
        })
        .collect();
    let expected =
        [("command", "c1"), ("checkpoint_saved", "c1"), ("command", "c2"), ("resumed", "t2"), ("command", "c2")];
    assert_eq!(found, expected.map(|(kind, step)| (kind.to_owned(), step.to_owned())), "{lines:#?}");
    assert!(!lines.concat().contains("canary"), "{lines:#?}");
}
