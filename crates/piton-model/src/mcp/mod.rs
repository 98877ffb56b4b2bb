//! Tools of MCP servers, over the pipes of a program or over HTTP.
//!
//! What a server may cost is bounded: time by [`ServerConfig::timeout`], each message by
//! [`ServerConfig::max_message`]. A program that serves dies with its [`Server`] and with this process.
//! Servers are told nothing about us and may ask nothing of us.

mod error;
mod http;
mod stdio;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use piton_process::Process;
use piton_types::{Value, from_json, to_json};
use rmcp::model::{CallToolRequestParams, ContentBlock};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{RoleClient, ServiceExt};
use secrecy::SecretString;
use tokio::time::timeout;

pub use error::McpError;

use crate::chat::ToolSpec;
use crate::net::Client;

/// The field of a call's `_meta` by which a server recognises one that it had before.
const IDEMPOTENCY_KEY: &str = "piton/idempotency-key";

/// How many tools one server may have.
const MAX_TOOLS: usize = 1000;

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Transport {
    /// A program that we start.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its whole environment: nothing of ours is handed on.
        env: BTreeMap<String, String>,
        /// Where it runs; without one, where we are.
        folder: Option<PathBuf>,
    },
    /// An endpoint of the streamable HTTP transport.
    Http {
        /// Where.
        url: String,
        /// Headers for every request; they may be credentials.
        headers: BTreeMap<String, SecretString>,
    },
}

/// A server as it is configured.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// How it is reached.
    pub transport: Transport,
    /// How long a call may take, and the start.
    pub timeout: Duration,
    /// How many bytes a message may have.
    pub max_message: usize,
}

impl ServerConfig {
    /// With a minute for each call and 4 MiB for each message.
    pub const fn new(transport: Transport) -> Self {
        Self { transport, timeout: Duration::from_secs(60), max_message: 4 << 20 }
    }
}

/// What a tool gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// Its texts, one per line.
    pub text: String,
    /// Everything it gave, as it was sent.
    pub content: Vec<Value>,
    /// What it gave as data, if it did.
    pub structured: Option<Value>,
    /// Whether it says that it failed.
    pub is_error: bool,
}

/// A server that is ready.
pub struct Server {
    service: RunningService<RoleClient, ()>,
    timeout: Duration,
    /// Last, so that the connection is closed before its program is killed.
    program: Option<(Process, stdio::Tail)>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("program", &self.program).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts or reaches a server and agrees on a version with it. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// If it can't be started or reached, or speaks another language.
    pub async fn connect(config: &ServerConfig, client: &Client) -> Result<Self, McpError> {
        let late = McpError::Timeout { after: config.timeout };
        match &config.transport {
            Transport::Stdio { .. } => {
                let (process, pipes, tail) = stdio::start(config).await?;
                match timeout(config.timeout, ().serve(pipes)).await {
                    Ok(Ok(service)) => Ok(Self { service, timeout: config.timeout, program: Some((process, tail)) }),
                    Ok(Err(error)) => Err(McpError::Connect { reason: error.to_string(), stderr: tail.text().await }),
                    Err(_) => Err(late),
                }
            }
            Transport::Http { url, headers } => {
                let (client, transport) = http::transport(client, config, url, headers)?;
                let transport = StreamableHttpClientTransport::with_client(client.clone(), transport);
                match timeout(config.timeout, ().serve(transport)).await {
                    Ok(Ok(service)) => Ok(Self { service, timeout: config.timeout, program: None }),
                    Ok(Err(error)) => Err(client
                        .refusal()
                        .unwrap_or_else(|| McpError::Connect { reason: error.to_string(), stderr: String::new() })),
                    Err(_) => Err(late),
                }
            }
        }
    }

    /// The tools that it has.
    ///
    /// # Errors
    ///
    /// If it doesn't answer in time, or answers nonsense.
    pub async fn tools(&self) -> Result<Vec<ToolSpec>, McpError> {
        let late = |_| McpError::Timeout { after: self.timeout };
        let tools = timeout(self.timeout, self.service.list_all_tools()).await.map_err(late)?;
        let tools = tools.map_err(|error| McpError::Call(error.to_string()))?;
        if tools.len() > MAX_TOOLS {
            return Err(McpError::Malformed(format!("it has more than {MAX_TOOLS} tools")));
        }
        let spec = |tool: rmcp::model::Tool| {
            let schema = value(&serde_json::Value::Object((*tool.input_schema).clone()))?;
            let description = tool.description.unwrap_or_default().into_owned();
            Ok(ToolSpec { name: tool.name.into_owned(), description, schema })
        };
        tools.into_iter().map(spec).collect()
    }

    /// Calls a tool.
    ///
    /// # Errors
    ///
    /// If it doesn't answer in time, or answers nonsense. A tool that says that it failed is an answer.
    ///
    /// The key goes along as `_meta`, for servers that recognise a call which they had before.
    pub async fn call(&self, tool: &str, arguments: &Value, key: Option<&str>) -> Result<ToolOutput, McpError> {
        let json = to_json(arguments).map_err(|error| McpError::Arguments(error.to_string()))?;
        let serde_json::Value::Object(json) = json else {
            return Err(McpError::Arguments(format!("{} isn't a map", arguments.kind())));
        };
        let mut request = CallToolRequestParams::new(tool.to_owned()).with_arguments(json);
        request.meta = key.map(|key| {
            let entry = (IDEMPOTENCY_KEY.to_owned(), serde_json::Value::from(key));
            serde_json::Map::from_iter([entry]).into()
        });
        let call = self.service.call_tool(request);
        let result = timeout(self.timeout, call).await.map_err(|_| McpError::Timeout { after: self.timeout })?;
        let result = result.map_err(|error| McpError::Call(error.to_string()))?;
        let mut texts = Vec::new();
        let mut content = Vec::new();
        for block in &result.content {
            if let ContentBlock::Text(text) = block {
                texts.push(text.text.as_str());
            }
            let json = serde_json::to_value(block).map_err(|error| McpError::Malformed(error.to_string()))?;
            content.push(value(&json)?);
        }
        Ok(ToolOutput {
            text: texts.join("\n"),
            structured: result.structured_content.as_ref().map(value).transpose()?,
            is_error: result.is_error.unwrap_or_default(),
            content,
        })
    }
}

/// A value of the library as one of ours, by way of its text: numbers come out exact or as an error.
fn value(json: &serde_json::Value) -> Result<Value, McpError> {
    from_json(json.to_string().as_bytes()).map_err(|error| McpError::Malformed(error.to_string()))
}
