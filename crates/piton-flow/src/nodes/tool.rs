//! `tool`: calls one tool of an MCP server, or one of our own. Gives `result`, `text`, `json`, `files`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use super::arguments::Argument;
use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Node, NodeContext, NodeError, NodeOutput};
use crate::outside::{Builtin, Outside, ServerRef, builtin};
use crate::pool::VariablePool;
use crate::selector::Selector;

#[derive(Debug, Deserialize)]
struct Data {
    /// The tool.
    tool_name: String,
    /// The MCP server that has it, as `{command, args}` or `{url}`.
    #[serde(default)]
    mcp_server: Option<Value>,
    /// The same by its name, from `mcp_servers` of the document or the configuration.
    #[serde(default)]
    mcp_server_ref: Option<String>,
    /// What it is given; texts may have variables in them.
    #[serde(default)]
    arguments: Option<Value>,
    /// In an export: who has it.
    #[serde(default)]
    provider_id: Option<String>,
    /// The same.
    #[serde(default)]
    provider_name: Option<String>,
    /// In an export: what it is given, each as `{type, value}`.
    #[serde(default)]
    tool_parameters: Option<BTreeMap<String, Value>>,
    /// In an export: what was set for it.
    #[serde(default)]
    tool_configurations: Option<BTreeMap<String, Value>>,
}

#[derive(Debug)]
enum Owner {
    Server(ServerRef),
    Builtin(Builtin),
    /// A provider that the document only names.
    Provider(String),
}

#[derive(Debug)]
struct Tool {
    owner: Owner,
    tool: String,
    arguments: Argument,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let provider = data.provider_id.or(data.provider_name);
    let owner = match (&data.mcp_server, &data.mcp_server_ref, provider) {
        (Some(server), ..) => Owner::Server(ServerRef::described("", server, &Path::root().key("mcp_server"))?),
        (None, Some(name), _) => Owner::Server(ServerRef::named(name, &build.document.mcp_servers)?),
        (None, None, Some(provider)) => match builtin(&provider, &data.tool_name) {
            Some(builtin) => Owner::Builtin(builtin),
            None => Owner::Provider(provider),
        },
        (None, None, None) => {
            let message = "tool node requires mcp_server or mcp_server_ref";
            return Err(Faults::one(Path::root().key("mcp_server_ref"), message));
        }
    };
    let arguments = match (data.arguments, data.tool_parameters) {
        (Some(arguments), _) => Argument::read(&arguments),
        (None, parameters) => {
            let given = parameters.unwrap_or_default();
            let fixed = data.tool_configurations.unwrap_or_default();
            let all = fixed.into_iter().chain(given).filter(|(_, value)| *value != Value::Null);
            Argument::Map(all.map(|(name, value)| (name, Argument::read_typed(&value))).collect())
        }
    };
    Ok(Box::new(Tool { owner, tool: data.tool_name, arguments }))
}

#[async_trait]
impl Node for Tool {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        let arguments = match self.arguments.render(variables) {
            Value::Null => Value::map::<&str>([]),
            other => other,
        };
        Ok(Value::map([("tool", self.tool.as_str().into()), ("arguments", arguments)]))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let outside = Outside::of(context)?;
        outside.guard(context, self.call(inputs, context, outside)).await
    }

    fn references(&self) -> Vec<&Selector> {
        self.arguments.references()
    }

    fn needs(&self) -> Vec<Need> {
        match &self.owner {
            Owner::Server(server) => vec![server.need()],
            Owner::Builtin(_) => Vec::new(),
            Owner::Provider(provider) => vec![Need::Tool { provider: provider.clone(), tool: self.tool.clone() }],
        }
    }
}

impl Tool {
    async fn call(
        &self,
        inputs: &Value,
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<NodeOutput, NodeError> {
        let arguments = inputs.field("arguments").ok_or("its inputs have no arguments")?;
        let key = context.next_key();
        let output = match &self.owner {
            Owner::Builtin(tool) => outside.call_builtin(context, *tool, arguments).await?,
            Owner::Server(server) => {
                let connected = outside.server(context, server).await?;
                outside.call_tool(context, &*connected, &server.name, &self.tool, arguments, key).await?
            }
            Owner::Provider(name) => {
                let server = ServerRef::named(name, &Value::Null).map_err(|_| "it can't be named")?;
                let connected = outside.server(context, &server).await?;
                outside.call_tool(context, &*connected, name, &self.tool, arguments, key).await?
            }
        };
        if output.is_error {
            return Err(NodeError::new("ToolError", format!("the tool {:?} failed: {}", self.tool, output.text)));
        }
        let json = output.structured.clone().map_or_else(Vec::new, |value| vec![value]);
        Ok(NodeOutput::of([
            ("result", Value::from(output.text.as_str())),
            ("text", output.text.as_str().into()),
            ("json", Value::List(json)),
            ("files", Value::List(Vec::new())),
        ]))
    }
}
