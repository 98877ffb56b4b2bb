//! Tools: those of MCP servers, and our own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use piton_model::chat::ToolSpec;
use piton_model::mcp::{McpError, Server, ServerConfig, ToolOutput, Transport};
use piton_model::net::Request;
use piton_model::{ExposeSecret as _, SecretString};
use piton_types::{Path, Value};
use serde::Deserialize;

use super::{AuditKind, Outside, SecurityLevel};
use crate::kind::Faults;
use crate::need::Need;
use crate::node::{NodeContext, NodeError};

/// How much of a page a model gets to see.
const MAX_PAGE: u64 = 64 << 10;

/// A server that has tools.
#[async_trait]
pub trait ToolServer: Send + Sync {
    /// The tools.
    async fn tools(&self) -> Result<Vec<ToolSpec>, McpError>;

    /// Calls one. A tool that says that it failed is an answer. A call that is made again, because the caller
    /// wasn't told what became of it, has the same key.
    async fn call(&self, tool: &str, arguments: &Value, key: Option<&str>) -> Result<ToolOutput, McpError>;
}

#[async_trait]
impl ToolServer for Server {
    async fn tools(&self) -> Result<Vec<ToolSpec>, McpError> {
        Self::tools(self).await
    }

    async fn call(&self, tool: &str, arguments: &Value, key: Option<&str>) -> Result<ToolOutput, McpError> {
        Self::call(self, tool, arguments, key).await
    }
}

#[derive(Clone)]
enum Entry {
    Configured(Arc<ServerConfig>),
    Ready(Arc<dyn ToolServer>),
}

/// Tool servers by name. Connected when first used, and kept. Clones share them.
#[derive(Clone, Default)]
pub struct ToolServers(Arc<Mutex<BTreeMap<String, Entry>>>);

impl fmt::Debug for ToolServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

impl ToolServers {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an MCP server that will be connected when it is needed.
    pub fn configure(&self, name: impl Into<String>, config: ServerConfig) {
        self.lock().insert(name.into(), Entry::Configured(Arc::new(config)));
    }

    /// Adds a server that is there already; it is used in the place of one of the same name that a document
    /// brings along.
    pub fn add(&self, name: impl Into<String>, server: Arc<dyn ToolServer>) {
        self.lock().insert(name.into(), Entry::Ready(server));
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    fn get(&self, name: &str) -> Option<Entry> {
        self.lock().get(name).cloned()
    }
}

/// An MCP server as documents and the user's configuration describe it: a command, or a URL.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerDescription {
    /// What a document calls it, where it stands in a list.
    pub name: Option<String>,
    /// `stdio` or `http`; told by what else is there if it isn't said.
    pub transport: Option<String>,
    /// The program that serves over its standard input and output.
    pub command: Option<String>,
    /// What the program is started with.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables of the program's environment, beside PATH, HOME and LANG. In a configuration `env:NAME` takes one from ours.
    /// They aren't searched for as secrets; name those under `secrets` too.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, String>"))]
    pub env: BTreeMap<String, SecretString>,
    /// Where a server answers over HTTP.
    pub url: Option<String>,
    /// Sent with each request; in a configuration `env:NAME` takes one from the environment.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, String>"))]
    pub headers: BTreeMap<String, SecretString>,
    /// How many seconds one call may take.
    pub timeout: Option<f64>,
}

impl ServerDescription {
    /// How to connect to it.
    ///
    /// # Errors
    ///
    /// What is missing, if there is neither a command nor a URL that fits the transport.
    pub fn connection(self) -> Result<ServerConfig, String> {
        let transport = match (self.transport.as_deref(), self.command, self.url) {
            (Some("stdio") | None, Some(command), _) => {
                let env = self.env.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned()));
                Transport::Stdio { command, args: self.args, env: env.collect(), folder: None }
            }
            (Some("http" | "streamable-http" | "streamable_http" | "sse") | None, _, Some(url)) => {
                Transport::Http { url, headers: self.headers.into_iter().collect() }
            }
            (other, ..) => {
                let shown = other.unwrap_or("none");
                return Err(format!("an MCP server has a command or a url; its transport is {shown:?}"));
            }
        };
        let mut config = ServerConfig::new(transport);
        if let Some(seconds) = self.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            config.timeout = seconds;
        }
        Ok(config)
    }
}

/// A server that a node uses: its name, and what the document says of it if it brings it along.
#[derive(Debug, Clone)]
pub(crate) struct ServerRef {
    pub(crate) name: String,
    described: Option<ServerConfig>,
}

impl ServerRef {
    /// What a node needs that uses it.
    pub(crate) fn need(&self) -> Need {
        Need::McpServer { server: self.name.clone(), described: self.described.is_some() }
    }

    /// One by name, as `mcp_servers` of the document or the user's configuration has it.
    pub(crate) fn named(name: &str, servers: &Value) -> Result<Self, Faults> {
        match servers.field(name) {
            Some(described) => Self::described(name, described, &Path::root()),
            None => Ok(Self { name: name.to_owned(), described: None }),
        }
    }

    /// One that stands in the document.
    pub(crate) fn described(name: &str, value: &Value, at: &Path) -> Result<Self, Faults> {
        let fault = |message: String| Faults::one(at.clone(), message);
        let found: ServerDescription =
            piton_types::from_value(value.clone()).map_err(|error| fault(error.to_string()))?;
        let name = if name.is_empty() { found.name.clone().unwrap_or_default() } else { name.to_owned() };
        let config = found.connection().map_err(fault)?;
        Ok(Self { name, described: Some(config) })
    }
}

impl Outside {
    /// A tool server, connected.
    pub(crate) async fn server(
        &self,
        context: &NodeContext<'_>,
        server: &ServerRef,
    ) -> Result<Arc<dyn ToolServer>, NodeError> {
        let (mut config, is_ours) = match (self.servers.get(&server.name), &server.described) {
            (Some(Entry::Ready(ready)), _) => return Ok(ready),
            (Some(Entry::Configured(config)), _) => ((*config).clone(), true),
            (None, Some(config)) => (config.clone(), false),
            (None, None) => {
                let message = format!("mcp_server_ref '{}' not found", server.name);
                return Err(NodeError::new("ToolError", message));
            }
        };
        if let Transport::Stdio { command, env, folder, .. } = &mut config.transport {
            if !is_ours && self.level == SecurityLevel::Strict {
                let message = format!("at Strict a document can't start {command:?}");
                return Err(NodeError::new("Refused", message));
            }
            if let Some(programs) = &self.programs {
                return Err(programs.refuse(command));
            }
            self.record(context, AuditKind::Command, &format!("MCP server {command}"))?;
            for (name, value) in &self.environment {
                env.entry(name.clone()).or_insert_with(|| value.clone());
            }
            *folder = folder.take().or_else(|| self.folder.clone());
        }
        // An address that the document names is under the policy for documents.
        let client = match &config.transport {
            Transport::Http { url, .. } if is_ours => {
                let policy = self.configured().policy().clone().trusting_url(url);
                piton_model::net::Client::new(policy).map_err(|error| Self::net_error(&error))?
            }
            _ => self.http().clone(),
        };
        let connected = Server::connect(&config, &client).await.map_err(|error| tool_error(&error))?;
        let connected: Arc<dyn ToolServer> = Arc::new(connected);
        let mut servers = self.servers.lock();
        // Another node may have connected faster; then our connection is dropped.
        match servers.get(&server.name) {
            Some(Entry::Ready(ready)) => Ok(ready.clone()),
            _ => {
                servers.insert(server.name.clone(), Entry::Ready(connected.clone()));
                Ok(connected)
            }
        }
    }

    /// Calls a tool of a server.
    pub(crate) async fn call_tool(
        &self,
        context: &NodeContext<'_>,
        server: &dyn ToolServer,
        server_name: &str,
        tool: &str,
        arguments: &Value,
        key: Option<String>,
    ) -> Result<ToolOutput, NodeError> {
        self.governor.take_tool_call(context.run_id())?;
        self.record(context, AuditKind::Tool, &format!("{server_name} {tool}"))?;
        server.call(tool, arguments, key.as_deref()).await.map_err(|error| tool_error(&error))
    }

    /// Calls a tool of our own.
    pub(crate) async fn call_builtin(
        &self,
        context: &NodeContext<'_>,
        tool: Builtin,
        arguments: &Value,
    ) -> Result<ToolOutput, NodeError> {
        self.governor.take_tool_call(context.run_id())?;
        self.record(context, AuditKind::Tool, &format!("builtin {}", tool.name()))?;
        let text = match tool {
            Builtin::CurrentTime => context.clock().now().to_string(),
            Builtin::Fetch => {
                let url = arguments.field("url").and_then(Value::as_str).unwrap_or_default();
                self.governor.take_request(context.run_id())?;
                let sent = self.http().send(Request::new(Method::GET, url)).await;
                let mut response = sent.map_err(|error| Self::net_error(&error))?.limited(MAX_PAGE);
                let body = response.bytes().await.map_err(|error| Self::net_error(&error))?;
                String::from_utf8_lossy(&body).into_owned()
            }
        };
        let content = vec![Value::map([("type", "text".into()), ("text", text.as_str().into())])];
        Ok(ToolOutput { text, content, structured: None, is_error: false })
    }
}

fn tool_error(error: &McpError) -> NodeError {
    match error {
        McpError::Net(error) => Outside::net_error(error),
        McpError::Timeout { .. } => NodeError::passing("ToolError", error.to_string()),
        error => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            NodeError::new("ToolError", format!("{error}{cause}"))
        }
    }
}

/// A tool of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builtin {
    CurrentTime,
    Fetch,
}

impl Builtin {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CurrentTime => "current_time",
            Self::Fetch => "fetch",
        }
    }

    pub(crate) fn spec(self) -> ToolSpec {
        let (description, properties, required): (_, Vec<(&str, Value)>, Vec<Value>) = match self {
            Self::CurrentTime => ("The current time in UTC.", vec![], vec![]),
            Self::Fetch => {
                let url = Value::map([("type", "string".into()), ("description", "The address of the page.".into())]);
                ("Fetches a web page.", vec![("url", url)], vec!["url".into()])
            }
        };
        let schema = Value::map([
            ("type", "object".into()),
            ("properties", Value::map(properties)),
            ("required", Value::List(required)),
        ]);
        ToolSpec { name: self.name().to_owned(), description: description.to_owned(), schema }
    }
}

/// Our own tool of this name, also by the names that exports have for the same.
pub(crate) fn builtin(provider: &str, tool: &str) -> Option<Builtin> {
    let provider = provider.rsplit('/').next().unwrap_or(provider);
    match (provider, tool) {
        ("time" | "builtin" | "", "current_time") => Some(Builtin::CurrentTime),
        ("webscraper", "webscraper") | ("builtin" | "", "fetch") => Some(Builtin::Fetch),
        _ => None,
    }
}
