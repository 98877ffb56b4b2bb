//! Starting a workflow from a program.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use piton_types::{Clock, Event, Random, RunId, Value};
use tokio::sync::{mpsc, watch};

use super::commands::Commands;
use super::handle::{Answers, WorkflowHandle};
use super::memory::{MemoryInbox, Unkept};
use super::signal::SafeStopSignal;
use super::status::ExecutionStatus;
use super::told::Told;
use crate::document::Document;
use crate::engine::{Inputs, Limits};
use crate::error::FlowError;
use crate::flow::{Flow, Given};
use crate::hooks::{AllHooks, WorkflowHooks};
use crate::kind::Kinds;
use crate::need::Services;
use crate::outside::{Outside, OutsideConfig};
use crate::system::{SystemClock, SystemRandom};

/// How many commands may wait.
const COMMANDS: usize = 32;

/// Is told what happens.
type Tell = Arc<dyn Fn(&Event) + Send + Sync>;

/// Runs a workflow.
///
/// Without a store it runs as it is, and nothing is kept:
///
/// ```
/// use piton_flow::{Document, ExecutionStatus, Format, WorkflowRunner};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let schema = Document::parse(
///     "
/// nodes:
///   - {id: in, data: {type: start, variables: [{variable: name, required: true}]}}
///   - {id: out, data: {type: end, outputs: [{variable: name, value_selector: [in, name]}]}}
/// edges:
///   - {source: in, target: out}
/// ",
///     Format::Yaml,
/// )?;
/// let inputs = [("name".to_owned(), "Ada".into())].into();
/// let handle = WorkflowRunner::builder(schema).user_inputs(inputs).build().run().await?;
/// match handle.wait().await {
///     ExecutionStatus::Completed(outputs) => assert_eq!(outputs["name"], "Ada".into()),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct WorkflowRunner {
    builder: WorkflowRunnerBuilder,
}

/// Everything that a workflow can be given.
#[must_use]
pub struct WorkflowRunnerBuilder {
    document: Document,
    inputs: Inputs,
    system: BTreeMap<String, Value>,
    /// Conversation variables that the turn before left.
    conversation: BTreeMap<String, Value>,
    id: Option<RunId>,
    invalid_id: Option<String>,
    #[cfg(feature = "checkpoint")]
    turn_of: Option<super::conversation::Conversation>,
    folder: Option<PathBuf>,
    services: Services,
    kinds: Kinds,
    limits: Limits,
    stop: SafeStopSignal,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    listeners: Vec<Tell>,
    #[cfg(feature = "plugin-system")]
    plugins: Vec<Box<dyn crate::plugin::Plugin>>,
    hooks: AllHooks,
    outside: Option<OutsideConfig>,
    #[cfg(feature = "checkpoint")]
    store: Option<Arc<dyn piton_store::Store>>,
    #[cfg(feature = "checkpoint")]
    durability: piton_types::Durability,
    #[cfg(feature = "checkpoint")]
    policy: crate::resume::ResumePolicy,
}

impl WorkflowRunner {
    /// A workflow by its document.
    pub fn builder(schema: Document) -> WorkflowRunnerBuilder {
        WorkflowRunnerBuilder {
            document: schema,
            inputs: Inputs::new(),
            system: BTreeMap::new(),
            conversation: BTreeMap::new(),
            id: None,
            invalid_id: None,
            #[cfg(feature = "checkpoint")]
            turn_of: None,
            folder: None,
            services: Services::default(),
            kinds: Kinds::builtin(),
            limits: Limits::default(),
            stop: SafeStopSignal::new(),
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            listeners: Vec::new(),
            #[cfg(feature = "plugin-system")]
            plugins: Vec::new(),
            hooks: AllHooks::default(),
            outside: None,
            #[cfg(feature = "checkpoint")]
            store: None,
            #[cfg(feature = "checkpoint")]
            durability: piton_types::Durability::default(),
            #[cfg(feature = "checkpoint")]
            policy: crate::resume::ResumePolicy::default(),
        }
    }

    /// Starts the workflow in a task of its own. With a store, a run of the same id goes on instead.
    ///
    /// # Errors
    ///
    /// What is wrong with the document, the inputs or the id; what the document needs and isn't here; and what keeps
    /// the run from being opened. Nothing runs then.
    pub async fn run(self) -> Result<WorkflowHandle, FlowError> {
        let mut builder = self.builder;
        if let Some(id) = builder.invalid_id {
            return Err(FlowError::Id(id));
        }
        #[cfg(feature = "plugin-system")]
        builder.take_plugins().await?;
        if let Some(outside) = builder.outside.take() {
            builder.services = Outside::new(outside).map_err(FlowError::Outside)?.install(builder.services);
        }
        #[cfg(feature = "checkpoint")]
        builder.take_turn().await?;
        let run = builder.id.get_or_insert_with(|| RunId::generate(builder.clock.now(), &*builder.random)).clone();
        builder.hooks.before(&run, &builder.inputs).await?;
        let told = Told::new();
        let tell: Arc<dyn Fn(&Event) + Send + Sync> = {
            let (told, listeners) = (told.clone(), std::mem::take(&mut builder.listeners));
            Arc::new(move |event| {
                listeners.iter().for_each(|listener| listener(event));
                told.tell(event);
            })
        };
        let (status, seen_status) = watch::channel(ExecutionStatus::Running);
        let (questions, seen_questions) = watch::channel(Vec::new());
        let (commands, queue) = mpsc::channel(COMMANDS);
        let commands_of = Commands { queue: Some(queue), questions: Some(questions) };
        let (run, answers) = builder.spawn(tell, status, commands_of).await?;
        Ok(WorkflowHandle { run, status: seen_status, questions: seen_questions, commands, events: told, answers })
    }
}

impl WorkflowRunnerBuilder {
    /// What the workflow is given.
    pub fn user_inputs(mut self, inputs: Inputs) -> Self {
        self.inputs = inputs;
        self
    }

    /// System variables, such as `query` or `user_id`, in the place of those that every run has. A run that goes on keeps
    /// those that it began with.
    pub fn system_variables(mut self, variables: BTreeMap<String, Value>) -> Self {
        self.system.extend(variables);
        self
    }

    /// What the user asks, for a chat: the system variable `query`.
    pub fn query(mut self, question: impl Into<String>) -> Self {
        self.system.insert("query".to_owned(), question.into().into());
        self
    }

    /// Makes the run a turn of a conversation, which goes on with the variables and messages of the turn before: the first
    /// turn is the run of this id, the next ones are `ID-2`, `ID-3`, …. It needs a store, which keeps them. The same
    /// question again is the same turn, so that a turn whose process died goes on.
    #[cfg(feature = "checkpoint")]
    pub fn conversation(self, id: impl Into<String>) -> Self {
        self.turn_of(id.into(), None)
    }

    /// The same for a certain turn, from 1: an application that counts turns itself can ask the same twice.
    #[cfg(feature = "checkpoint")]
    pub fn conversation_turn(self, id: impl Into<String>, turn: u32) -> Self {
        self.turn_of(id.into(), Some(turn))
    }

    #[cfg(feature = "checkpoint")]
    fn turn_of(mut self, id: String, turn: Option<u32>) -> Self {
        match id.parse() {
            Ok(id) => self.turn_of = Some(super::conversation::Conversation { id, turn }),
            Err(_) => self.invalid_id = Some(id),
        }
        self
    }

    /// The id of the run; a generated one if nothing is said. With a store, a run of this id goes on.
    pub fn workflow_id(mut self, id: impl Into<String>) -> Self {
        let id = id.into();
        match id.parse() {
            Ok(id) => self.id = Some(id),
            Err(_) => self.invalid_id = Some(id),
        }
        self
    }

    /// The working directory that the run belongs to, and that its programs run in.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// What the workflow reaches: models, the network, credentials; how strictly; what is counted and written down.
    /// Without it, nodes that need a model, the network or code fail.
    pub fn outside(mut self, outside: OutsideConfig) -> Self {
        self.outside = Some(outside);
        self
    }

    /// Adds what is called before and after the workflow.
    pub fn hooks(mut self, hooks: Arc<dyn WorkflowHooks>) -> Self {
        self.hooks.0.push(hooks);
        self
    }

    /// Adds a function that templates may call, as `{{ name(value) }}` or `{{ value|name }}`. It must give the same for
    /// the same values: a template may be rendered again after a crash.
    pub fn template_function(
        mut self,
        name: impl Into<String>,
        function: impl Fn(&[Value]) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.kinds = self.kinds.with_function(name, function);
        self
    }

    /// What nodes may use.
    pub fn services(mut self, services: Services) -> Self {
        self.services = services;
        self
    }

    /// The kinds of nodes that there are; the engine's own if nothing is said.
    pub fn kinds(mut self, kinds: Kinds) -> Self {
        self.kinds = kinds;
        self
    }

    /// How far the run may go.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Stops this workflow together with all others that have the same signal.
    pub fn safe_stop_signal(mut self, signal: SafeStopSignal) -> Self {
        self.stop = signal;
        self
    }

    /// What time it is.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where ids come from.
    pub fn random(mut self, random: Arc<dyn Random>) -> Self {
        self.random = random;
        self
    }

    /// Calls a function with every event, in order. It must not take long: the workflow waits for it.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.listeners.push(Arc::new(listener));
        self
    }

    /// Adds a plugin, which may bring kinds of nodes, models, template functions, hooks, services, or a store. What was
    /// given here itself beats what a plugin brings.
    #[cfg(feature = "plugin-system")]
    pub fn plugin(mut self, plugin: impl crate::plugin::Plugin + 'static) -> Self {
        self.plugins.push(Box::new(plugin));
        self
    }

    /// Keeps the run in a store, so that it survives this process.
    #[cfg(feature = "checkpoint")]
    pub fn store(mut self, store: Arc<dyn piton_store::Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Keeps the run in a store of the application's own: it is given a [`Checkpoint`](crate::Checkpoint) where one is due,
    /// and asked to delete it when the run completes. After a crash the nodes since the last one run again.
    #[cfg(feature = "checkpoint")]
    pub fn checkpoint_store(self, store: Arc<dyn piton_store::CheckpointStore>) -> Self {
        self.store(Arc::new(piton_log::EmbeddedStore::new(store)))
    }

    /// What acknowledged writes survive: a power cut, if nothing is said.
    #[cfg(feature = "checkpoint")]
    pub fn durability(mut self, durability: piton_types::Durability) -> Self {
        self.durability = durability;
        self
    }

    /// What to do if the surroundings of a run that goes on changed since it was begun.
    #[cfg(feature = "checkpoint")]
    pub fn resume_policy(mut self, policy: crate::resume::ResumePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Finds the turn that the question belongs to, and what it is given.
    #[cfg(feature = "checkpoint")]
    async fn take_turn(&mut self) -> Result<(), FlowError> {
        let Some(conversation) = self.turn_of.take() else { return Ok(()) };
        let store = self.store.clone().ok_or(FlowError::NoStore)?;
        let said = Given {
            inputs: std::mem::take(&mut self.inputs),
            system: std::mem::take(&mut self.system),
            ..Given::default()
        };
        let next = super::conversation::next_turn(&self.context(store), &conversation, said).await?;
        self.id = Some(next.run);
        (self.inputs, self.system, self.conversation) = (next.given.inputs, next.given.system, next.given.conversation);
        Ok(())
    }

    #[cfg(feature = "checkpoint")]
    fn context(&self, store: Arc<dyn piton_store::Store>) -> piton_runtime::Context {
        let (clock, random) = (Arc::clone(&self.clock), Arc::clone(&self.random));
        piton_runtime::Context { clock, random, ..piton_runtime::Context::system(store) }
    }

    /// Takes what plugins bring where nothing else was given.
    #[cfg(feature = "plugin-system")]
    async fn take_plugins(&mut self) -> Result<(), FlowError> {
        let (kinds, services) = (std::mem::take(&mut self.kinds), std::mem::take(&mut self.services));
        let mut context = crate::plugin::PluginContext::new(kinds, services);
        context.register(std::mem::take(&mut self.plugins)).await?;
        #[cfg(feature = "checkpoint")]
        {
            self.store = self.store.take().or_else(|| context.store());
        }
        let brought = context.into_parts();
        (self.kinds, self.services) = (brought.kinds, brought.services);
        self.hooks.0.extend(brought.hooks);
        for (name, model) in brought.models {
            let outside = self.outside.get_or_insert_default();
            if !outside.providers.contains_key(&name) {
                outside.models.entry(name).or_insert(model);
            }
        }
        Ok(())
    }

    /// That is all.
    pub fn build(self) -> WorkflowRunner {
        WorkflowRunner { builder: self }
    }

    async fn spawn(
        self,
        tell: Arc<dyn Fn(&Event) + Send + Sync>,
        status: watch::Sender<ExecutionStatus>,
        commands: Commands,
    ) -> Result<(RunId, Answers), FlowError> {
        #[cfg(feature = "checkpoint")]
        if let Some(store) = self.store.clone() {
            return self.spawn_durable(store, tell, status, commands).await;
        }
        let flow = Flow::build(&self.document, &self.kinds).map_err(FlowError::Document)?;
        let run = self.id.unwrap_or_else(|| RunId::generate(self.clock.now(), &*self.random));
        let (inputs, system, conversation) = (self.inputs, self.system, self.conversation);
        let given = Given { inputs, system, conversation, ..Given::default() };
        let given = flow.accept(given.with_system(&self.document, &run, self.clock.now()), &self.services)?;
        let inbox = Arc::new(MemoryInbox::default());
        let unkept = Unkept {
            run: run.clone(),
            flow,
            given,
            services: self.services,
            limits: self.limits,
            folder: self.folder,
            stop: self.stop,
            clock: self.clock,
            random: self.random,
            inbox: Arc::clone(&inbox),
            tell,
        };
        let (mut commands, hooks, id) = (commands, self.hooks, run.clone());
        tokio::spawn(async move {
            let ended = unkept.drive(&mut commands, &status).await;
            hooks.after(&id, &ended).await;
            status.send_replace(ended);
        });
        Ok((run, Answers::Memory(inbox)))
    }

    #[cfg(feature = "checkpoint")]
    async fn spawn_durable(
        self,
        store: Arc<dyn piton_store::Store>,
        tell: Arc<dyn Fn(&Event) + Send + Sync>,
        status: watch::Sender<ExecutionStatus>,
        commands: Commands,
    ) -> Result<(RunId, Answers), FlowError> {
        use super::durable::{FlowOptions, StartFlow, start_flow};
        let context = self.context(store);
        let options = FlowOptions {
            durability: self.durability,
            events: piton_runtime::Listener::new(move |event| tell(event)),
            services: self.services,
            kinds: self.kinds,
            limits: self.limits,
            stop: self.stop,
            policy: self.policy,
            companion: None,
            folder: None,
            overdue: None,
            debugger: None,
        };
        let source = self.document.source.as_ref().ok_or(FlowError::NoText)?;
        let start = StartFlow {
            config: None,
            priority: 0,
            estimated_complexity: None,
            document: source.text.to_string(),
            format: source.format,
            inputs: self.inputs,
            system: self.system,
            conversation: self.conversation,
            id: self.id,
            name: self.document.name.clone().unwrap_or_else(|| "workflow".to_owned()),
            folder: self.folder.and_then(|folder| folder.to_str().map(str::to_owned)),
            labels: Default::default(),
            options: options.clone(),
        };
        let driven = start_flow(&context, start).await?;
        let run = driven.id().clone();
        let (hooks, id, answers) = (self.hooks, run.clone(), Answers::Log(context.clone()));
        tokio::spawn(async move {
            let ended = super::supervise::supervise(context, driven, options, &status, commands).await;
            let ended = ended.unwrap_or_else(|error| ExecutionStatus::Failed(error.to_string()));
            hooks.after(&id, &ended).await;
            status.send_replace(ended);
        });
        Ok((run, answers))
    }
}

impl std::fmt::Debug for WorkflowRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.builder.fmt(f)
    }
}

impl std::fmt::Debug for WorkflowRunnerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkflowRunner").field("id", &self.id).field("inputs", &self.inputs).finish_non_exhaustive()
    }
}
