//! The outside of a run: models, tools, the network, code, programs. One service has it all, so that one
//! place decides what may be reached, counts what is used, writes down what was done, and keeps secrets out
//! of what people read.
//!
//! Nodes reach for it with [`Outside::of`] and do their work inside [`Outside::guard`].

mod audit;
mod config;
mod governor;
mod models;
mod secrets;
mod tools;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use piton_model::SecretString;
use piton_model::chat::{Model, Providers, Remote};
use piton_model::net::{Client, NetError, NetPolicy};
use piton_process::Sandbox;
#[cfg(feature = "checkpoint")]
use piton_types::Value;
use piton_types::{CheckpointRef, Random, StepPath};

pub use audit::{Audit, AuditEntry, AuditError, AuditFile, AuditKind};
pub use config::{Credential, Knowledge, OutsideConfig, Programs, SecurityLevel};
pub use governor::{Governor, Quotas, Used};
pub(crate) use models::Said;
use secrets::Secrets;
pub(crate) use tools::{Builtin, ServerRef, builtin};
pub use tools::{ServerDescription, ToolServer, ToolServers};

use crate::engine::Host;
use crate::journal::Happened;
use crate::need::{Need, Services};
use crate::node::{NodeContext, NodeError, NodeOutput};

/// The outside of a run.
pub struct Outside {
    level: SecurityLevel,
    http: Client,
    configured: Client,
    models: BTreeMap<String, Arc<dyn Model>>,
    knowledge: BTreeMap<String, Knowledge>,
    credentials: BTreeMap<String, Credential>,
    servers: ToolServers,
    governor: Governor,
    audit: Option<Arc<dyn Audit>>,
    secrets: Secrets,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) programs: Option<Arc<dyn Programs>>,
    pub(crate) command_sandbox: Option<Sandbox>,
    pub(crate) withheld: Vec<String>,
    #[cfg(feature = "code")]
    pub(crate) python: piton_code::Python,
    #[cfg(feature = "code")]
    pub(crate) code_limits: piton_code::CodeLimits,
    folder: Option<PathBuf>,
    environment: BTreeMap<String, String>,
    #[cfg(feature = "checkpoint")]
    network: NetPolicy,
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside").field("level", &self.level).finish_non_exhaustive()
    }
}

impl Outside {
    /// What a configuration describes. Nothing is reached yet.
    ///
    /// # Errors
    ///
    /// [`NetError::Setup`] if HTTP can't be set up, or the secrets are too many to be searched for.
    pub fn new(config: OutsideConfig) -> Result<Self, NetError> {
        let mut trusting = config.network.clone();
        // What the user configured himself may be on his own machine or network.
        for provider in config.providers.values() {
            trusting = trusting.trusting_url(provider.base_url());
        }
        for knowledge in config.knowledge.values() {
            trusting = trusting.trusting_url(&knowledge.url);
        }
        trusting.timeout = trusting.timeout.max(config.model_timeout);
        let mut secrets = config.secrets;
        for (name, provider) in &config.providers {
            secrets.extend(provider.api_key.iter().map(|key| (format!("provider.{name}"), key.clone())));
        }
        for (name, knowledge) in &config.knowledge {
            secrets.extend(knowledge.api_key.iter().map(|key| (format!("knowledge.{name}"), key.clone())));
        }
        #[cfg(feature = "security")]
        let (credentials, quotas, audit) = (config.credentials, config.quotas, config.audit);
        #[cfg(not(feature = "security"))]
        let (credentials, quotas, audit) = (BTreeMap::<String, Credential>::new(), Quotas::default(), None);
        for (name, credential) in &credentials {
            secrets.push((format!("credential.{name}"), credential.value.clone()));
        }
        let configured = Client::new(trusting)?;
        let mut models = config.models;
        for (name, provider) in config.providers {
            let remote = || Arc::new(Remote { provider, client: configured.clone() });
            models.entry(name).or_insert_with(|| remote());
        }
        Ok(Self {
            level: config.level,
            #[cfg(feature = "checkpoint")]
            network: config.network.clone(),
            http: Client::new(config.network)?,
            configured,
            models,
            knowledge: config.knowledge,
            credentials,
            servers: config.servers,
            governor: Governor::new(quotas),
            audit,
            secrets: Secrets::new(&secrets).map_err(NetError::Setup)?,
            random: config.random,
            programs: config.programs,
            command_sandbox: config.command_sandbox,
            withheld: config.withheld,
            #[cfg(feature = "code")]
            python: config.python,
            #[cfg(feature = "code")]
            code_limits: config.code_limits,
            folder: config.folder,
            environment: config.environment,
        })
    }

    /// These services with this one, and what it offers.
    #[must_use]
    pub fn install(self, services: Services) -> Services {
        let models: Vec<String> = self.models.keys().cloned().collect();
        let datasets: Vec<String> = self.knowledge.keys().cloned().collect();
        let servers = self.servers.clone();
        let commands = self.level != SecurityLevel::Strict;
        let offer = move |need: &Need| match need {
            Need::Model { provider, .. } => Some(models.iter().any(|name| models::is(name, provider))),
            Need::McpServer { server, described } => Some(servers.has(server) || (*described && commands)),
            Need::Tool { provider, tool } => Some(builtin(provider, tool).is_some() || servers.has(provider)),
            Need::Knowledge { dataset } => Some(datasets.iter().any(|name| name == dataset || name == "*")),
            Need::Command { .. } => Some(commands),
            _ => None,
        };
        services.with(self).offering(offer)
    }

    /// The outside that a node has.
    pub(crate) fn of<'a>(context: &NodeContext<'a>) -> Result<&'a Self, NodeError> {
        let missing = || NodeError::new("NoOutside", "this run was started without anything outside of it");
        context.services().get::<Self>().ok_or_else(missing)
    }

    /// Does work that touches the outside: what it gives is bounded, and no error of it shows a secret.
    pub(crate) async fn guard<F>(&self, context: &NodeContext<'_>, work: F) -> Result<NodeOutput, NodeError>
    where
        F: Future<Output = Result<NodeOutput, NodeError>>,
    {
        let result = match work.await {
            Ok(output) => self.governor.admit(&output.variables).map(|()| output).map_err(NodeError::from),
            Err(error) => Err(error),
        };
        if let Err(error) = &result
            && matches!(error.kind, "Refused" | "LimitReached")
        {
            self.record(context, AuditKind::Refused, &error.message)?;
        }
        result.map_err(|error| NodeError { message: self.secrets.redact(&error.message), ..error })
    }

    /// Writes down what is about to be done. If that fails, it must not be done.
    pub(crate) fn record(&self, context: &NodeContext<'_>, kind: AuditKind, detail: &str) -> Result<(), NodeError> {
        let failed = |error: AuditError| NodeError::new("AuditError", format!("the audit log failed: {error}"));
        self.write_down(context.host, context.step(), kind, detail).map_err(failed)
    }

    /// Writes down what was done at a step, in the audit log and in the run's own.
    fn write_down(&self, host: &Host<'_>, step: &StepPath, kind: AuditKind, detail: &str) -> Result<(), AuditError> {
        if self.audit.is_none() && !host.facts().keeps {
            return Ok(());
        }
        let entry = self.entry(host, step, kind, detail);
        self.audit.iter().try_for_each(|audit| audit.record(&entry))?;
        if host.facts().keeps {
            host.burst.add(Happened::Line(format!("audit {}", entry.line()?)));
        }
        Ok(())
    }

    fn entry(&self, host: &Host<'_>, step: &StepPath, kind: AuditKind, detail: &str) -> AuditEntry {
        let (at, run, detail) = (host.clock.now(), host.run(), self.secrets.redact(detail));
        AuditEntry { at, run, step: step.clone(), kind, detail }
    }

    /// Writes down in the audit log that a checkpoint is durable.
    pub(crate) fn saved(&self, host: &Host<'_>, step: &StepPath, checkpoint: &CheckpointRef) -> Result<(), AuditError> {
        let Some(audit) = &self.audit else { return Ok(()) };
        audit.record(&self.entry(host, step, AuditKind::CheckpointSaved, &checkpoint.to_string()))
    }

    /// The line for the run's own log that a checkpoint was made after a step. It is in an entry behind the checkpoint,
    /// so a reader that finds the line finds the checkpoint.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn made(
        &self,
        at: piton_types::Timestamp,
        step: &StepPath,
        checkpoint: &CheckpointRef,
    ) -> Result<String, AuditError> {
        let (run, step, detail) = (checkpoint.run.clone(), step.clone(), self.secrets.redact(&checkpoint.to_string()));
        Ok(format!("audit {}", AuditEntry { at, run, step, kind: AuditKind::CheckpointSaved, detail }.line()?))
    }

    /// Writes down what concerns a run, and returns the line for the run's own log: which step was done last, if any was.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn note(
        &self,
        at: piton_types::Timestamp,
        run: &piton_types::RunId,
        step: Option<&StepPath>,
        kind: AuditKind,
        detail: &str,
    ) -> Result<String, AuditError> {
        let step = step.map_or_else(|| "start".parse(), |step| Ok(step.clone()))?;
        let entry = AuditEntry { at, run: run.clone(), step, kind, detail: self.secrets.redact(detail) };
        self.audit.iter().try_for_each(|audit| audit.record(&entry))?;
        Ok(format!("audit {}", entry.line()?))
    }

    /// How strict it is.
    pub const fn level(&self) -> SecurityLevel {
        self.level
    }

    /// What may be reached, for fingerprints.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn network_value(&self) -> Value {
        let list = |hosts: &[String]| Value::List(hosts.iter().map(|host| host.as_str().into()).collect());
        let NetPolicy { private, trusted, trusted_ports, allowed, denied, .. } = &self.network;
        let ports = trusted_ports.iter().map(|(host, port)| format!("{host}:{port}").into());
        Value::map([
            ("private", (*private).into()),
            ("trusted", list(trusted)),
            ("trusted_ports", Value::List(ports.collect())),
            ("allowed", list(allowed)),
            ("denied", list(denied)),
        ])
    }

    /// How much may be used, for fingerprints.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn limits_value(&self) -> Value {
        piton_types::to_value(self.governor.quotas()).unwrap_or_default()
    }

    #[cfg(feature = "checkpoint")]
    pub(crate) fn has_credential(&self, group: &str) -> bool {
        self.credentials.contains_key(group)
    }

    /// What is counted.
    pub const fn governor(&self) -> &Governor {
        &self.governor
    }

    /// What must not be shown.
    pub(crate) const fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// For what documents name.
    pub(crate) const fn http(&self) -> &Client {
        &self.http
    }

    /// For what the user configured.
    pub(crate) const fn configured(&self) -> &Client {
        &self.configured
    }

    pub(crate) fn knowledge(&self, dataset: &str) -> Option<&Knowledge> {
        self.knowledge.get(dataset).or_else(|| self.knowledge.get("*"))
    }

    /// The credential of a group, if it may be sent to this host.
    pub(crate) fn credential(&self, group: &str, host: &str) -> Result<&Credential, NodeError> {
        let refused = |message: String| NodeError::new("Refused", message);
        let found = self.credentials.get(group);
        let found = found.ok_or_else(|| refused(format!("there is no credential group {group:?}")))?;
        if !found.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host)) {
            return Err(refused(format!("the credential group {group:?} is not for {host}")));
        }
        Ok(found)
    }

    /// The policy's word on an error of the network.
    pub(crate) fn net_error(error: &NetError) -> NodeError {
        if error.is_refusal() {
            NodeError::new("Refused", error.to_string())
        } else if error.is_retryable() {
            NodeError { unanswered: true, ..NodeError::passing("HttpError", error.to_string()) }
        } else {
            NodeError::new("HttpError", error.to_string())
        }
    }
}

impl Default for OutsideConfig {
    fn default() -> Self {
        Self::at(SecurityLevel::Standard)
    }
}

impl OutsideConfig {
    /// What a level means, without models, tools and credentials.
    pub fn at(level: SecurityLevel) -> Self {
        let mut network = match level {
            SecurityLevel::Permissive => NetPolicy::open(),
            SecurityLevel::Strict | SecurityLevel::Standard => NetPolicy::public(),
        };
        network.timeout = std::time::Duration::from_secs(600);
        Self {
            level,
            network,
            model_timeout: std::time::Duration::from_secs(600),
            providers: Providers::new(),
            models: BTreeMap::new(),
            knowledge: BTreeMap::new(),
            #[cfg(feature = "security")]
            credentials: BTreeMap::new(),
            servers: ToolServers::default(),
            #[cfg(feature = "security")]
            quotas: Quotas::default(),
            #[cfg(feature = "security")]
            audit: None,
            secrets: Vec::<(String, SecretString)>::new(),
            random: Arc::new(config::SystemRandom),
            programs: None,
            command_sandbox: None,
            withheld: Vec::new(),
            #[cfg(feature = "code")]
            python: piton_code::Python::default(),
            #[cfg(feature = "code")]
            code_limits: piton_code::CodeLimits::default(),
            folder: None,
            environment: BTreeMap::new(),
        }
    }
}
