//! What an application gives a workflow is what the workflow has, with a store and without (F1, F6, F10, F11).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use piton::engine::{
    Node, NodeContext, NodeError, NodeOutput, Plugin, PluginContext, PluginError, PluginMetadata, Services,
};
use piton::flow::{Document, ExecutionStatus, FlowError, Format, Inputs, Limits, WorkflowHooks, WorkflowRunner};
use piton::outside::{
    Audit, AuditEntry, AuditError, ChatAnswer, ChatError, ChatRequest, ChatStream, Model, OutsideConfig, Price, Quotas,
    SecurityLevel, Usage,
};
use piton::run::{RunId, Value};
use piton::store::{Store, async_trait};

/// Says who it is.
struct Named(&'static str);

#[async_trait]
impl Model for Named {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatStream, ChatError> {
        let asked = request.messages.iter().map(piton::outside::Message::plain).collect::<String>();
        let usage = Some(Usage { input: 100, output: 10 });
        Ok(ChatAnswer { usage, ..ChatAnswer::text(format!("{} heard {asked}", self.0)) }.into())
    }

    fn price(&self, _model: &str) -> Option<Price> {
        Some(Price { input: 10_000.0, output: 0.0 })
    }
}

#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl WorkflowHooks for Diary {
    async fn before(&self, run: &RunId, inputs: &Inputs) -> Result<(), String> {
        self.write(format!("before {run} with {}", inputs.len()));
        if inputs.contains_key("forbidden") { Err("that is forbidden".to_owned()) } else { Ok(()) }
    }

    async fn after(&self, run: &RunId, status: &ExecutionStatus) {
        self.write(format!("after {run}: {}", matches!(status, ExecutionStatus::Completed(_))));
    }
}

impl Audit for Diary {
    fn record(&self, entry: &AuditEntry) -> Result<(), AuditError> {
        self.write(format!("{} {}", entry.step, entry.detail));
        Ok(())
    }
}

fn parse(text: &str) -> Document {
    Document::parse(text, Format::Yaml).unwrap()
}

/// A line of nodes between a start and an end that gives `text`.
fn line(nodes: &str, text: &str) -> Document {
    let ids: Vec<&str> = nodes.split("{id: ").skip(1).map(|rest| rest.split(',').next().unwrap()).collect();
    let mut edges = String::new();
    for pair in [&["in"], &ids[..], &["out"]].concat().windows(2) {
        edges.push_str(&format!("{{source: {}, target: {}}}, ", pair[0], pair[1]));
    }
    parse(&format!(
        "nodes:\n- {{id: in, data: {{type: start}}}}\n{nodes}\n- {{id: out, data: {{type: end, outputs: [{{variable: text, value_selector: {text}}}]}}}}\nedges: [{edges}]"
    ))
}

async fn stores() -> [Option<Arc<dyn Store>>; 2] {
    [None, Some(piton::open("memory:").await.unwrap().store)]
}

fn text(status: &ExecutionStatus) -> Value {
    match status {
        ExecutionStatus::Completed(outputs) => outputs["text"].clone(),
        other => panic!("{other:?}"),
    }
}

/// F1, F6: system variables, template functions, hooks, limits and the outside reach the nodes either way.
#[tokio::test]
async fn nothing_that_was_given_is_dropped_with_a_store() {
    let document = line(
        "- {id: ask, data: {type: llm, model: {provider: mine, name: m}, prompt_template: [{role: user, text: '{{#sys.query#}}'}]}}\n\
         - {id: calc, data: {type: code, code_language: javascript, code: 'function main(a) { return {said: a.said + \"!\"} }', \
             variables: [{variable: said, value_selector: [ask, text]}], outputs: {said: {type: string}}}}\n\
         - {id: shout, data: {type: template-transform, template: '{{ shout(said) }} {{ who|shout }}', variables: \
             [{variable: said, value_selector: [calc, said]}, {variable: who, value_selector: [sys, user_id]}]}}",
        "[shout, output]",
    );
    for store in stores().await {
        let kept = store.is_some();
        let diary = Arc::new(Diary::default());
        let mut outside = OutsideConfig::at(SecurityLevel::Strict);
        outside.models.insert("mine".to_owned(), Arc::new(Named("I")));
        outside.audit = Some(diary.clone());
        let system = BTreeMap::from([("query".to_owned(), "bees".into()), ("user_id".to_owned(), "ada".into())]);
        let mut builder = WorkflowRunner::builder(document.clone())
            .workflow_id("one")
            .outside(outside)
            .system_variables(system)
            .template_function("shout", |values| Ok(values[0].as_str().ok_or("no text")?.to_uppercase().into()))
            .hooks(diary.clone());
        if let Some(store) = store {
            builder = builder.store(store);
        }
        let handle = builder.build().run().await.unwrap();
        assert_eq!(text(&handle.wait().await), "I HEARD BEES! ADA".into(), "kept: {kept}");
        let said = diary.read();
        assert_eq!(
            (said.first(), said.last()),
            (Some(&"before one with 0".to_owned()), Some(&"after one: true".to_owned()))
        );
        assert!(said.contains(&"ask mine m".to_owned()) && said.contains(&"calc javascript".to_owned()), "{said:?}");
    }
}

/// F6: limits and quotas hold with a store and without; a hook can keep a run from beginning.
#[tokio::test]
async fn limits_quotas_and_hooks_stop_a_run_with_a_store_and_without() {
    let ask = "- {id: one, data: {type: llm, model: {provider: mine, name: m}, prompt_template: [{role: user, text: hi}]}}\n\
               - {id: two, data: {type: llm, model: {provider: mine, name: m}, prompt_template: [{role: user, text: hi}]}}";
    let document = line(ask, "[two, text]");
    for store in stores().await {
        let given = |id: &str, quotas: Quotas| {
            let mut outside = OutsideConfig::default();
            outside.models.insert("mine".to_owned(), Arc::new(Named("I")));
            outside.quotas = quotas;
            let builder = WorkflowRunner::builder(document.clone()).workflow_id(id).outside(outside);
            match &store {
                Some(store) => builder.store(Arc::clone(store)),
                None => builder,
            }
        };
        let steps = Limits { max_steps: Some(2), ..Limits::default() };
        let few = given("few", Quotas::default()).limits(steps).build().run().await.unwrap().wait().await;
        assert!(matches!(&few, ExecutionStatus::Failed(error) if error.contains("Max steps")), "{few:?}");
        // The first answer costs 1.0, so the second isn't asked for.
        let quotas = Quotas { cost: Some(0.5), ..Quotas::default() };
        let dear = given("dear", quotas).build().run().await.unwrap().wait().await;
        assert!(matches!(&dear, ExecutionStatus::Failed(error) if error.contains("two")), "{dear:?}");
        let diary = Arc::new(Diary::default());
        let forbidden = [("forbidden".to_owned(), true.into())].into();
        let hooked =
            given("refused", Quotas::default()).user_inputs(forbidden).hooks(diary.clone()).build().run().await;
        assert!(matches!(&hooked, Err(FlowError::Hook { reason, .. }) if reason == "that is forbidden"), "{hooked:?}");
        assert_eq!(diary.read(), ["before refused with 1"]);
        if let Some(store) = &store {
            assert!(store.head(&"refused".parse().unwrap()).await.unwrap().is_none(), "nothing was written");
        }
    }
}

/// F1: a run that goes on in another process has the system variables that it began with.
#[tokio::test]
async fn system_variables_outlive_the_process() {
    let document = line(
        "- {id: ask, data: {type: human-input, prompt: 'Well, {{#sys.user_id#}}?', variables: []}}\n\
         - {id: tell, data: {type: template-transform, template: '{{ a }} {{ b }} {{ c }}', variables: \
             [{variable: a, value_selector: [sys, user_id]}, {variable: b, value_selector: [sys, workflow_run_id]}, {variable: c, value_selector: [sys, timestamp]}]}}",
        "[tell, output]",
    );
    let store = piton::open("memory:").await.unwrap().store;
    let begin = |user: &str| {
        let system = BTreeMap::from([("user_id".to_owned(), user.into()), ("timestamp".to_owned(), 7.into())]);
        WorkflowRunner::builder(document.clone())
            .store(Arc::clone(&store))
            .workflow_id("kept")
            .system_variables(system)
            .build()
            .run()
    };
    let first = begin("ada").await.unwrap();
    let ExecutionStatus::Paused { prompt, .. } = first.wait_or_paused().await else { panic!() };
    assert_eq!(prompt, "Well, ada?");
    first.safe_stop().await.unwrap();
    first.wait().await;
    // The other process says someone else; the run has its own.
    let second = begin("eve").await.unwrap();
    second.wait_or_paused().await;
    second.resume_with_input(Inputs::new()).await.unwrap();
    assert_eq!(text(&second.wait().await), "ada kept 7".into());
}

#[derive(Debug)]
struct Says(&'static str);

#[async_trait]
impl Node for Says {
    async fn run(&self, _inputs: &Value, _context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        Ok(NodeOutput::of([("text", self.0.into())]))
    }
}

struct Everything {
    about: PluginMetadata,
    store: Arc<dyn Store>,
    diary: Arc<Diary>,
}

#[async_trait]
impl Plugin for Everything {
    fn metadata(&self) -> &PluginMetadata {
        &self.about
    }

    async fn register(&self, context: &mut PluginContext) -> Result<(), PluginError> {
        context.provide_kind("robot", |_| Ok(Box::new(Says("plugin's node"))))?;
        context.provide_model("mine", Arc::new(Named("plugin")))?;
        context
            .provide_function("shout", |values| Ok(format!("{}?", values[0].as_str().unwrap_or_default()).into()))?;
        context.provide_hooks(self.diary.clone());
        context.provide_service("plugin's service".to_owned())?;
        context.provide_service(Arc::clone(&self.store))
    }
}

/// F10: a plugin brings kinds, models, functions, hooks, services and a store; what the program named beats it.
#[tokio::test]
async fn plugins_bring_all_of_it_and_the_programs_own_beats_them() {
    let document = line(
        "- {id: act, data: {type: robot}}\n\
         - {id: ask, data: {type: llm, model: {provider: mine, name: m}, prompt_template: [{role: user, text: '{{#act.text#}}'}]}}\n\
         - {id: shout, data: {type: template-transform, template: '{{ said|shout }}', variables: [{variable: said, value_selector: [ask, text]}]}}",
        "[shout, output]",
    );
    let plugin = |store: &Arc<dyn Store>, diary: &Arc<Diary>| Everything {
        about: PluginMetadata::new("everything", "1.0"),
        store: Arc::clone(store),
        diary: Arc::clone(diary),
    };
    let (brought, diary) = (piton::open("memory:").await.unwrap().store, Arc::new(Diary::default()));
    let id: RunId = "plugged".parse().unwrap();
    let runner =
        WorkflowRunner::builder(document.clone()).workflow_id("plugged").plugin(plugin(&brought, &diary)).build();
    assert_eq!(text(&runner.run().await.unwrap().wait().await), "plugin heard plugin's node?".into());
    assert_eq!(diary.read(), ["before plugged with 0", "after plugged: true"]);
    assert!(brought.head(&id).await.unwrap().is_some(), "the plugin's store has it");

    let own = piton::open("memory:").await.unwrap().store;
    let unused = piton::open("memory:").await.unwrap().store;
    let mut outside = OutsideConfig::default();
    outside.models.insert("mine".to_owned(), Arc::new(Named("program")));
    let runner = WorkflowRunner::builder(document)
        .workflow_id("plugged")
        .kinds(piton::engine::Kinds::builtin().with("robot", |_: &piton::engine::Build<'_>| -> piton::engine::Built {
            Ok(Box::new(Says("program's node")))
        }))
        .template_function("shout", |values| Ok(format!("{}!", values[0].as_str().unwrap_or_default()).into()))
        .services(Services::default().with("program's service".to_owned()))
        .outside(outside)
        .store(Arc::clone(&own))
        .plugin(plugin(&unused, &diary))
        .build();
    assert_eq!(text(&runner.run().await.unwrap().wait().await), "program heard program's node!".into());
    assert!(own.head(&id).await.unwrap().is_some() && unused.head(&id).await.unwrap().is_none());
}
