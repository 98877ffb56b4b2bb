//! The services of a case: models, tools and programs that the case itself answers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use piton_flow::Services;
use piton_flow::{Audit, NodeError, Outside, OutsideConfig, Programs, SecurityLevel, ToolServer};
use piton_model::SecretString;
use piton_model::chat::{Provider, ToolSpec, Wire};
use piton_model::mcp::{McpError, ToolOutput};
use piton_process::Ended;
use piton_types::Value;

use super::case::{Case, MockCommand, MockTools};

/// What the nodes of a case may use. `servers` are the MCP servers that the document names, `base` is the
/// address of the case's HTTP server.
pub(crate) fn services(
    case: &Case,
    servers: &Value,
    base: Option<&str>,
    level: SecurityLevel,
    audit: Option<Arc<dyn Audit>>,
) -> Result<Services, String> {
    let state = &case.state;
    let mut config = OutsideConfig::at(level);
    config.audit = audit;
    if let Some(base) = base {
        config.network = config.network.trusting_url(base);
    }
    if !case.outside {
        config.programs = Some(Arc::new(Scripted(state.mock_commands.clone())));
        // The case's own server alone; without one, none.
        let host = base.and_then(|base| base.split_once("://")?.1.rsplit_once(':'));
        config.network.allowed = vec![host.map_or("nothing.invalid", |(host, _)| host).to_owned()];
    }
    for (name, mock) in &state.llm_providers {
        let wire = if name.contains("anthropic") { Wire::Anthropic } else { Wire::OpenAi };
        let mut provider = Provider::new(wire);
        provider.api_key = Some(SecretString::from(mock.api_key.clone()));
        provider.default_model.clone_from(&mock.default_model);
        provider.organization.clone_from(&mock.org_id);
        provider.base_url = mock.base_url.clone().or_else(|| base.map(|base| format!("{base}/v1")));
        config.providers.insert(name.clone(), provider);
    }
    for mock in &state.mock_mcp_servers {
        let server: Arc<dyn ToolServer> = Arc::new(Mock(mock.clone()));
        // Nodes name a server by its key in the document, which may differ from its name.
        let named = |entry: &Value| entry.field("name").and_then(Value::as_str) == Some(&mock.config.name);
        for (key, _) in servers.as_map().into_iter().flatten().filter(|(_, entry)| named(entry)) {
            config.servers.add(key.clone(), Arc::clone(&server));
        }
        config.servers.add(mock.config.name.clone(), server);
    }
    let outside = Outside::new(config).map_err(|error| error.to_string())?;
    Ok(outside.install(Services::default()))
}

/// What a case says of programs.
struct Scripted(Vec<MockCommand>);

#[async_trait]
impl Programs for Scripted {
    async fn run(&self, words: &[String]) -> Result<Ended, NodeError> {
        let fits = |mock: &&MockCommand| !mock.command.is_empty() && words.starts_with(&mock.command);
        let Some(mock) = self.0.iter().find(fits) else { return Err(self.refuse(&words.join(" "))) };
        tokio::time::sleep(Duration::from_millis(mock.delay_ms)).await;
        let bytes = |text: &str| text.as_bytes().to_vec();
        Ok(Ended { exit_code: mock.exit_code, stdout: bytes(&mock.stdout), stderr: bytes(&mock.stderr) })
    }

    fn refuse(&self, program: &str) -> NodeError {
        NodeError::new(
            "Refused",
            format!(
                "a case runs no program, so {program:?} isn't run; say what it gives in `mock_commands` or \
                 `mock_mcp_servers` of the case's state, or let it run with `piton test --outside`"
            ),
        )
    }
}

/// A server with one tool that always answers the same, and what it was asked for.
struct Mock(MockTools);

#[async_trait]
impl ToolServer for Mock {
    async fn tools(&self) -> Result<Vec<ToolSpec>, McpError> {
        let schema = match &self.0.tool_input_schema {
            Value::Null => Value::map([("type", "object".into())]),
            schema => schema.clone(),
        };
        let (name, description) = (self.0.tool_name.clone(), self.0.tool_description.clone());
        Ok(vec![ToolSpec { name, description, schema }])
    }

    async fn call(&self, tool: &str, arguments: &Value, _key: Option<&str>) -> Result<ToolOutput, McpError> {
        if tool != self.0.tool_name {
            let text = format!("there is no tool {tool:?}");
            return Ok(ToolOutput { text, content: Vec::new(), structured: None, is_error: true });
        }
        let text = match arguments.field("q").and_then(Value::as_str) {
            Some(asked) => format!("{}:{asked}", self.0.tool_result),
            None => self.0.tool_result.clone(),
        };
        Ok(ToolOutput { text, content: Vec::new(), structured: None, is_error: false })
    }
}
