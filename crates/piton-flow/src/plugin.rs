//! Plugins: kinds of nodes, models, template functions, hooks, services and stores that come together, from a crate of
//! their own.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use piton_model::chat::Model;
use piton_types::Value;

use crate::error::FlowError;
use crate::hooks::WorkflowHooks;
use crate::kind::{Build, Built, Kinds};
use crate::need::{Need, Services};

/// What a plugin says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginMetadata {
    /// Its name; of two with the same name the second is refused.
    pub name: String,
    /// Its version.
    pub version: String,
    /// When it is registered.
    pub phase: PluginPhase,
}

impl PluginMetadata {
    /// A plugin of the normal phase.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), phase: PluginPhase::Normal }
    }

    /// The same, before those of the normal phase.
    #[must_use]
    pub fn bootstrap(mut self) -> Self {
        self.phase = PluginPhase::Bootstrap;
        self
    }
}

/// When a plugin is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum PluginPhase {
    /// First: what other plugins build on.
    Bootstrap,
    /// Then, in the order in which they were given.
    #[default]
    Normal,
}

/// Why a plugin can't be used. Nothing was run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PluginError(pub String);

/// Something that brings kinds of nodes, models, template functions, hooks, services or a store.
///
/// ```
/// # use piton_flow::{Document, ExecutionStatus, Format, WorkflowRunner};
/// use piton_flow::{Node, NodeContext, NodeError, NodeOutput, Plugin, PluginContext, PluginError, PluginMetadata};
/// use piton_types::Value;
///
/// #[derive(Debug)]
/// struct Dice;
///
/// #[async_trait::async_trait]
/// impl Node for Dice {
///     async fn run(&self, _inputs: &Value, _context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
///         Ok(NodeOutput::of([("pips", 4.into())]))
///     }
/// }
///
/// struct Games(PluginMetadata);
///
/// #[async_trait::async_trait]
/// impl Plugin for Games {
///     fn metadata(&self) -> &PluginMetadata {
///         &self.0
///     }
///
///     async fn register(&self, context: &mut PluginContext) -> Result<(), PluginError> {
///         context.provide_kind("dice", |_| Ok(Box::new(Dice)))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let schema = Document::parse(
///     "
/// nodes:
///   - {id: in, data: {type: start}}
///   - {id: roll, data: {type: dice}}
///   - {id: out, data: {type: end, outputs: [{variable: pips, value_selector: [roll, pips]}]}}
/// edges:
///   - {source: in, target: roll}
///   - {source: roll, target: out}
/// ",
///     Format::Yaml,
/// )?;
/// let games = Games(PluginMetadata::new("games", "1.0"));
/// let handle = WorkflowRunner::builder(schema).plugin(games).build().run().await?;
/// assert!(matches!(handle.wait().await, ExecutionStatus::Completed(outputs) if outputs["pips"] == 4.into()));
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Plugin: Send + Sync {
    /// What it is.
    fn metadata(&self) -> &PluginMetadata;

    /// Brings what it has. Called once, before anything runs.
    async fn register(&self, context: &mut PluginContext) -> Result<(), PluginError>;
}

/// What plugins add to.
pub struct PluginContext {
    phase: PluginPhase,
    /// What the program named itself, which beats what plugins bring.
    named: (Kinds, Services),
    kinds: Kinds,
    services: Services,
    models: BTreeMap<String, Arc<dyn Model>>,
    hooks: Vec<Arc<dyn WorkflowHooks>>,
    provided: BTreeSet<&'static str>,
}

/// What plugins brought, with what was there.
pub(crate) struct Brought {
    pub(crate) kinds: Kinds,
    pub(crate) services: Services,
    pub(crate) models: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) hooks: Vec<Arc<dyn WorkflowHooks>>,
}

impl std::fmt::Debug for PluginContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginContext").field("phase", &self.phase).field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

impl PluginContext {
    pub(crate) fn new(kinds: Kinds, services: Services) -> Self {
        let (phase, provided) = (PluginPhase::Bootstrap, BTreeSet::new());
        let named = (kinds.clone(), services.clone());
        Self { phase, named, kinds, services, models: BTreeMap::new(), hooks: Vec::new(), provided }
    }

    /// The phase that is being registered.
    pub const fn phase(&self) -> PluginPhase {
        self.phase
    }

    /// Adds a service, which nodes and later plugins find by its type. A store is one too: an
    /// `Arc<dyn CheckpointStore>` or an `Arc<dyn Store>` keeps the run. What the program named itself beats it.
    ///
    /// # Errors
    ///
    /// If another plugin has provided one of the same type.
    pub fn provide_service<T: Any + Send + Sync>(&mut self, service: T) -> Result<(), PluginError> {
        let name = std::any::type_name::<T>();
        if !self.provided.insert(name) {
            return Err(PluginError(format!("there is a service {name} already")));
        }
        if self.named.1.get::<T>().is_some() {
            return Ok(());
        }
        self.services = std::mem::take(&mut self.services).with(service);
        Ok(())
    }

    /// The service of a type, if there is one yet.
    pub fn query_service<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.services.get()
    }

    /// Adds a kind of nodes. One that the program named itself beats it.
    ///
    /// # Errors
    ///
    /// If the engine or another plugin has one of that name.
    pub fn provide_kind(
        &mut self,
        name: &str,
        build: impl Fn(&Build<'_>) -> Built + Send + Sync + 'static,
    ) -> Result<(), PluginError> {
        let is_builtin = Kinds::builtin().get(name).is_some();
        if self.named.0.get(name).is_some() && !is_builtin {
            return Ok(());
        }
        if self.kinds.get(name).is_some() {
            return Err(PluginError(format!("there is a node kind {name:?} already")));
        }
        self.kinds = std::mem::take(&mut self.kinds).with(name, build);
        Ok(())
    }

    /// Adds a model provider. One that the program named itself beats it.
    ///
    /// # Errors
    ///
    /// If another plugin has provided one of that name.
    pub fn provide_model(&mut self, name: &str, model: Arc<dyn Model>) -> Result<(), PluginError> {
        match self.models.insert(name.to_owned(), model) {
            Some(_) => Err(PluginError(format!("there is a model provider {name:?} already"))),
            None => Ok(()),
        }
    }

    /// Adds a function that templates may call; see
    /// [`template_function`](crate::WorkflowRunnerBuilder::template_function). One that the program named itself beats it.
    ///
    /// # Errors
    ///
    /// If there is one of that name from another plugin.
    pub fn provide_function(
        &mut self,
        name: &str,
        function: impl Fn(&[Value]) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Result<(), PluginError> {
        if self.named.0.functions.has(name) {
            return Ok(());
        }
        if self.kinds.functions.has(name) {
            return Err(PluginError(format!("there is a template function {name:?} already")));
        }
        self.kinds = std::mem::take(&mut self.kinds).with_function(name, function);
        Ok(())
    }

    /// Adds what is called before and after the workflow, behind the program's own.
    pub fn provide_hooks(&mut self, hooks: Arc<dyn WorkflowHooks>) {
        self.hooks.push(hooks);
    }

    /// Says which needs of documents are met, and of the others nothing.
    pub fn offer(&mut self, offer: impl Fn(&Need) -> Option<bool> + Send + Sync + 'static) {
        self.services = std::mem::take(&mut self.services).offering(offer);
    }

    pub(crate) async fn register(&mut self, plugins: Vec<Box<dyn Plugin>>) -> Result<(), FlowError> {
        let mut names = BTreeSet::new();
        for phase in [PluginPhase::Bootstrap, PluginPhase::Normal] {
            self.phase = phase;
            for plugin in plugins.iter().filter(|plugin| plugin.metadata().phase == phase) {
                let name = &plugin.metadata().name;
                let failed = |error| FlowError::Plugin { plugin: name.clone(), error };
                if !names.insert(name.clone()) {
                    return Err(failed(PluginError("it was given twice".to_owned())));
                }
                plugin.register(self).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The store that a plugin brought.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn store(&self) -> Option<Arc<dyn piton_store::Store>> {
        use piton_log::EmbeddedStore;
        use piton_store::{CheckpointStore, Store};
        let own = self.query_service::<Arc<dyn CheckpointStore>>().map(Arc::clone);
        let own = own.map(|store| Arc::new(EmbeddedStore::new(store)) as Arc<dyn Store>);
        self.query_service::<Arc<dyn Store>>().map(Arc::clone).or(own)
    }

    pub(crate) fn into_parts(self) -> Brought {
        Brought { kinds: self.kinds, services: self.services, models: self.models, hooks: self.hooks }
    }
}
