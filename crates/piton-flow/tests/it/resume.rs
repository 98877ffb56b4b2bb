//! Going on in other surroundings, and with another document (V3 to V5, F11): refused or forced, before anything is
//! written, and written down.

use std::sync::{Arc, Mutex};

use piton_flow::{
    Audit, AuditEntry, AuditError, FlowError, FlowOptions, Format, Inputs, Kinds, Limits, Outside, OutsideConfig,
    ResumePolicy, RunOutcome, SecurityLevel, Services, Setting, StartFlow, answer_question, examine_resume,
    resume_durable, resume_with_document, run_durable,
};
use piton_model::chat::{Provider, Wire};
use piton_runtime::{Listener, WholeHistory};
use piton_store::Store;
use piton_types::{Event, RunId, RunStatus, Value};

use crate::server::{Server, json};
use crate::support::{memory, process};

/// Two programs around a question; each leaves a line in a file of the folder.
const DOCUMENT: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: pay, data: {type: command, checkpoint: true, command: [sh, -c, 'echo pay >> done; echo paid']}}
  - {id: ask, data: {type: human-input, prompt: 'Ship it?', variables: [{name: ok, type: boolean, required: true}]}}
  - {id: ship, data: {type: command, command: [sh, -c, 'echo ship >> done; echo shipped']}}
  - {id: out, data: {type: end, outputs: [{variable: x, value_selector: [ship, stdout]}]}}
edges:
  - {source: in, target: pay}
  - {source: pay, target: ask}
  - {source: ask, target: ship}
  - {source: ship, target: out}
";

fn id() -> RunId {
    "order-7".parse().unwrap()
}

#[derive(Debug, Default, Clone)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Audit for Notes {
    fn record(&self, entry: &AuditEntry) -> Result<(), AuditError> {
        let AuditEntry { run, step, kind, detail, .. } = entry;
        self.0.lock().unwrap().push(format!("{run} {step} {kind:?} {detail}").trim_end().to_owned());
        Ok(())
    }
}

/// A run that waits for the answer to `ask`, and what is needed to go on with it.
struct World {
    store: Arc<dyn Store>,
    folder: tempfile::TempDir,
    notes: Notes,
}

impl World {
    async fn waiting() -> Self {
        let world = Self { store: memory(), folder: tempfile::tempdir().unwrap(), notes: Notes::default() };
        let waits = world.start(DOCUMENT, ResumePolicy::Normal).await.unwrap();
        assert_eq!(waits.status, RunStatus::Waiting);
        world
    }

    fn services(&self, level: SecurityLevel) -> Services {
        let mut config = OutsideConfig::at(level);
        config.audit = Some(Arc::new(self.notes.clone()));
        Outside::new(config).unwrap().install(Services::default())
    }

    fn options(&self, policy: ResumePolicy) -> FlowOptions {
        FlowOptions { policy, services: self.services(SecurityLevel::Standard), ..FlowOptions::default() }
    }

    async fn start(&self, document: &str, policy: ResumePolicy) -> Result<RunOutcome, FlowError> {
        let start = StartFlow {
            config: None,
            priority: 0,
            estimated_complexity: None,
            document: document.to_owned(),
            format: Format::Yaml,
            inputs: Inputs::new(),
            system: std::collections::BTreeMap::new(),
            conversation: std::collections::BTreeMap::new(),
            id: Some(id()),
            name: "order".to_owned(),
            folder: self.folder.path().to_str().map(str::to_owned),
            labels: Default::default(),
            options: self.options(policy),
        };
        run_durable(&process(&self.store), start).await
    }

    async fn go_on_with(&self, document: &str, policy: ResumePolicy) -> Result<RunOutcome, FlowError> {
        let document = (document.to_owned(), Format::Yaml);
        resume_with_document(&process(&self.store), &id(), document, self.options(policy)).await
    }

    async fn go_on(&self) -> Result<RunOutcome, FlowError> {
        resume_durable(&process(&self.store), &id(), self.options(ResumePolicy::Normal)).await
    }

    async fn answer(&self) {
        let yes = Value::map([("ok", true.into())]);
        answer_question(&process(&self.store), &id(), None, &yes, "ann").await.unwrap();
    }

    fn done(&self) -> Vec<String> {
        std::fs::read_to_string(self.folder.path().join("done")).unwrap().lines().map(str::to_owned).collect()
    }

    fn noted(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.0.lock().unwrap())
    }
}

/// V4, V5: another document is a danger. Forced, the run goes on with it and keeps it; what finished isn't done again.
#[tokio::test]
async fn a_run_goes_on_with_a_changed_document_only_by_force_and_keeps_it() {
    let world = World::waiting().await;
    let changed = DOCUMENT.replace("echo shipped", "echo sent").replace("echo paid", "echo PAID");
    let before = world.store.head(&id()).await.unwrap();
    for refused in
        [world.go_on_with(&changed, ResumePolicy::Normal).await, world.start(&changed, ResumePolicy::Normal).await]
    {
        let Err(FlowError::ResumeRejected { diagnostic, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(diagnostic, "danger: schema: the document is another one: pay, ship");
    }
    assert_eq!(world.store.head(&id()).await.unwrap(), before, "what was refused is as it was");

    world.noted();
    assert_eq!(world.go_on_with(&changed, ResumePolicy::Force).await.unwrap().status, RunStatus::Waiting);
    assert_eq!(
        world.noted(),
        ["order-7 pay ForceResumeWithChanges danger: schema: the document is another one: pay, ship"]
    );
    world.answer().await;
    // From now on it is the run's own, for every process that goes on with the run.
    let ended = world.go_on().await.unwrap();
    assert_eq!((ended.status, ended.outputs["x"].clone()), (RunStatus::Completed, "sent\n".into()));
    assert_eq!(world.done(), ["pay", "ship"], "what finished stays as it is");
    let again = world.start(&changed, ResumePolicy::Normal).await.unwrap();
    assert_eq!(again.outputs, ended.outputs);
    let old = world.start(DOCUMENT, ResumePolicy::Normal).await;
    assert!(matches!(old, Err(FlowError::Differs { what: "a document", .. })), "{old:?}");
}

/// V4: what is pending must have a place in the document, whatever the policy; what was passed over needn't.
#[tokio::test]
async fn a_document_without_a_pending_node_is_refused_under_any_policy() {
    let world = World::waiting().await;
    let without = |node: &str, next: &str| {
        let lines = DOCUMENT.lines().filter(|line| !line.contains(&format!("id: {node},")));
        let lines = lines.filter(|line| !line.contains(&format!("source: {node},")));
        let text: Vec<_> =
            lines.map(|line| line.replace(&format!("target: {node}}}"), &format!("target: {next}}}"))).collect();
        text.join("\n")
    };
    let before = world.store.head(&id()).await.unwrap();
    for policy in [ResumePolicy::Normal, ResumePolicy::Force] {
        let refused = world.go_on_with(&without("ask", "ship"), policy).await;
        let Err(FlowError::PendingNodesGone { nodes, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(nodes, ["ask"]);
        let gone = without("ship", "out").replace("[ship, stdout]", "[pay, stdout]");
        let refused = world.go_on_with(&gone, policy).await;
        assert!(
            matches!(&refused, Err(FlowError::PendingNodesGone { nodes, .. }) if *nodes == ["ship"]),
            "{refused:?}"
        );
    }
    assert_eq!(world.store.head(&id()).await.unwrap(), before, "what was refused is as it was");
    // One that is done may go.
    let gone = without("pay", "ask");
    assert_eq!(world.go_on_with(&gone, ResumePolicy::Force).await.unwrap().status, RunStatus::Waiting);
}

/// V3: how a document is written isn't what it says.
#[tokio::test]
async fn a_document_that_is_only_written_otherwise_is_the_same() {
    let world = World::waiting().await;
    let rewritten = format!(
        "# with a word about it\n{}",
        DOCUMENT.replace("{source: in, target: pay}", "{target: pay, source: in}")
    );
    assert_eq!(world.start(&rewritten, ResumePolicy::Normal).await.unwrap().status, RunStatus::Waiting);
    let history = WholeHistory::of(&process(&world.store), &id()).await.unwrap();
    assert!(history.step(&"#document/1".parse().unwrap()).is_none(), "nothing was replaced");
}

/// F11: saves and resumes are in the audit log, with run and node.
#[tokio::test]
async fn saves_and_resumes_are_in_the_audit_log() {
    let world = World::waiting().await;
    let noted = world.noted();
    let saved = |step: &str| noted.iter().any(|line| line.starts_with(&format!("order-7 {step} CheckpointSaved")));
    assert!(saved("pay") && saved("ask") && !saved("in"), "{noted:?}");
    assert!(!noted.iter().any(|line| line.contains("Resumed")), "{noted:?}");
    world.go_on().await.unwrap();
    assert_eq!(world.noted(), ["order-7 pay Resumed"]);
}

/// F12, V5: as the document says it, `Strict → Permissive`.
#[tokio::test]
async fn a_lowered_security_level_is_refused_and_forced() {
    let world = World { store: memory(), folder: tempfile::tempdir().unwrap(), notes: Notes::default() };
    let ask = DOCUMENT.replace(
        "type: command, checkpoint: true, command: [sh, -c, 'echo pay >> done; echo paid']",
        "type: template-transform, template: a, variables: []",
    );
    let ask = ask.replace(
        "type: command, command: [sh, -c, 'echo ship >> done; echo shipped']",
        "type: template-transform, template: b, variables: []",
    );
    let options = |level, policy| FlowOptions { services: world.services(level), ..world.options(policy) };
    let start = StartFlow {
        config: None,
        priority: 0,
        estimated_complexity: None,
        document: ask.replace("[ship, stdout]", "[ship, output]"),
        format: Format::Yaml,
        inputs: Inputs::new(),
        system: std::collections::BTreeMap::new(),
        conversation: std::collections::BTreeMap::new(),
        id: Some(id()),
        name: "order".to_owned(),
        folder: None,
        labels: Default::default(),
        options: options(SecurityLevel::Strict, ResumePolicy::Normal),
    };
    assert_eq!(run_durable(&process(&world.store), start).await.unwrap().status, RunStatus::Waiting);
    world.answer().await;
    world.noted();
    let lowered = |policy| {
        let (context, options) = (process(&world.store), options(SecurityLevel::Permissive, policy));
        async move { resume_durable(&context, &id(), options).await }
    };
    let refused = lowered(ResumePolicy::Normal).await.unwrap_err();
    assert!(refused.to_string().contains("Strict → Permissive"), "{refused}");
    assert_eq!(world.noted(), Vec::<String>::new());
    let forced = lowered(ResumePolicy::Force).await.unwrap();
    assert_eq!(forced.status, RunStatus::Completed);
    let noted = world.noted();
    assert!(
        noted[0].starts_with("order-7 pay ForceResumeWithChanges danger: security_level: Strict → Permissive"),
        "{noted:?}"
    );
}

/// What is said before: affected nodes, and finished work that stays valid.
#[tokio::test]
async fn an_explanation_names_what_a_changed_document_affects() {
    let world = World::waiting().await;
    let changed = piton_flow::Document::parse(&DOCUMENT.replace("echo paid", "echo PAID"), Format::Yaml).unwrap();
    let (kinds, services, limits) = (Kinds::builtin(), world.services(SecurityLevel::Standard), Limits::default());
    let setting = Setting { kinds: &kinds, services: &services, limits: &limits };
    let said = examine_resume(&process(&world.store), &id(), Some(&changed), setting).await.unwrap();
    let impact = said.impact.unwrap();
    assert_eq!(
        (impact.changed, impact.valid, impact.outdated),
        (vec!["pay".into()], vec!["in".into()], vec!["pay".into()])
    );
    assert_eq!(impact.affected, ["ask", "out", "pay", "ship"]);
    assert!(impact.lost.is_empty());
    let limits = Limits { max_steps: Some(7), ..limits };
    let said =
        examine_resume(&process(&world.store), &id(), None, Setting { limits: &limits, ..setting }).await.unwrap();
    assert_eq!(said.diagnostic.report(), "info: engine_config: the limits are different");
}

/// A model, a question and a model again, each of another provider.
const MODELS: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: first, data: {type: llm, model: {provider: one, name: m}, prompt_template: [{role: user, text: hi}]}}
  - {id: ask, data: {type: human-input, prompt: 'Ship it?', variables: [{name: ok, type: boolean, required: true}]}}
  - {id: second, data: {type: llm, model: {provider: two, name: m}, prompt_template: [{role: user, text: bye}]}}
  - {id: out, data: {type: end, outputs: []}}
edges: [{source: in, target: first}, {source: first, target: ask}, {source: ask, target: second}, {source: second, target: out}]
";

/// V4, V5: a provider that is gone is a warning as long as nothing that is still to come needs it; what needs it is named
/// before anything runs, and a resume that is forced gets as far as there.
#[tokio::test]
async fn a_provider_that_is_gone_matters_only_to_what_is_pending() {
    let server = Server::start(|_| json(200, r#"{"choices":[{"message":{"content":"well"}}]}"#)).await;
    let services = |names: &[&str]| {
        let mut config = OutsideConfig::at(SecurityLevel::Standard);
        for name in names {
            let mut provider = Provider::new(Wire::OpenAi);
            provider.base_url = Some(server.url("/v1"));
            config.providers.insert((*name).to_owned(), provider);
        }
        Outside::new(config).unwrap().install(Services::default())
    };
    let store = memory();
    let options = |names: &[&str], policy| FlowOptions { services: services(names), policy, ..FlowOptions::default() };
    let start = StartFlow {
        config: None,
        priority: 0,
        estimated_complexity: None,
        document: MODELS.to_owned(),
        format: Format::Yaml,
        inputs: Inputs::new(),
        system: std::collections::BTreeMap::new(),
        conversation: std::collections::BTreeMap::new(),
        id: Some(id()),
        name: "models".to_owned(),
        folder: None,
        labels: Default::default(),
        options: options(&["one", "two"], ResumePolicy::Normal),
    };
    let waits = run_durable(&process(&store), start).await.unwrap();
    assert_eq!(waits.status, RunStatus::Waiting, "{waits:?}");
    let resume = async |names: &[&str], policy| resume_durable(&process(&store), &id(), options(names, policy)).await;
    // The one that finished needs nothing more.
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    let events = Listener::new(move |event: &Event| sink.lock().unwrap().push(event.clone()));
    let warned = FlowOptions { events, ..options(&["two"], ResumePolicy::Normal) };
    assert_eq!(resume_durable(&process(&store), &id(), warned).await.unwrap().status, RunStatus::Waiting);
    let is_warning =
        |event: &Event| matches!(event, Event::ResumeWarning { report, .. } if report.contains("llm_providers"));
    assert!(told.lock().unwrap().iter().any(is_warning), "{told:?}");
    // The one that is still to come does.
    let refused = resume(&["one"], ResumePolicy::Normal).await.unwrap_err();
    assert!(matches!(&refused, FlowError::Needs(needs) if needs[0].node == "second"), "{refused:?}");
    assert_eq!(resume(&["one"], ResumePolicy::Force).await.unwrap().status, RunStatus::Waiting, "no check fails it");
    let yes = Value::map([("ok", true.into())]);
    answer_question(&process(&store), &id(), None, &yes, "ann").await.unwrap();
    let failed = resume(&["one"], ResumePolicy::Force).await.unwrap();
    assert_eq!(failed.status, RunStatus::Failed, "the node itself says what it lacks: {failed:?}");
    assert_eq!(resume(&["two"], ResumePolicy::Normal).await.unwrap().status, RunStatus::Completed);
}
