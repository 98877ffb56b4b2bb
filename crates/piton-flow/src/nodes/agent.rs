//! `agent`: a model that calls tools until it has an answer. Gives `text`, `tool_calls`, `tool_calls_count`,
//! `iterations`, `usage`.
//!
//! Each turn of the model and each call of a tool is recorded by itself: a run that is killed in turn 7 goes on
//! in turn 7. What tools and models write is told to the model as it is and never rendered as a template. In the
//! last iteration the model gets no tools, so that it must answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use piton_model::chat::{Content, Message, Role, ToolCall, ToolSpec, Usage};
use piton_types::{Path, Value, from_value, to_value};
use serde::{Deserialize, Serialize};

use super::arguments::Argument;
use super::model::ModelSpec;
use super::prompt::Memory;
use super::react;
use crate::journal::OnUncertain;
use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::outside::{AuditKind, Builtin, Outside, ServerRef, ToolServer, builtin};
use crate::pool::VariablePool;
use crate::selector::Selector;
use crate::value::to_text;

/// Turns that an agent may take unless the document says otherwise, and at most.
const ITERATIONS: i64 = 10;
const MOST_ITERATIONS: i64 = 200;

#[derive(Debug, Deserialize)]
struct Data {
    /// The model; it must be able to call tools, unless `strategy` is `react`.
    model: Option<ModelSpec>,
    /// What the model is told first; a template.
    #[serde(default)]
    system_prompt: String,
    /// What it is to do: a text with variables in it, or a selector.
    #[serde(default)]
    query: Value,
    /// The tools that it may call.
    #[serde(default)]
    tools: Option<ToolsData>,
    /// How many turns it may take, at most 200; 10 if nothing is said.
    max_iterations: Option<i64>,
    /// `function_calling`, or `react` for models that can't call functions.
    #[serde(alias = "agent_strategy_name", default)]
    strategy: Option<String>,
    /// The same in an export: `instruction`, `query`, `model`, `tools`, `maximum_iterations`, each as `{value: …}`.
    #[serde(default)]
    agent_parameters: Option<BTreeMap<String, Value>>,
}

#[derive(Debug, Default, Deserialize)]
struct ToolsData {
    /// MCP servers, each `{command, args}` for a program or `{url}` for one on the network.
    #[serde(default)]
    mcp_servers: Vec<Value>,
    /// MCP servers by their names, from `mcp_servers` at the top of the document or from the configuration.
    #[serde(default)]
    mcp_server_refs: Vec<String>,
    /// Tools of our own, by name.
    #[serde(default)]
    builtin: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    FunctionCalling,
    React,
}

/// Where an agent's tools come from.
#[derive(Debug)]
enum Source {
    Server(ServerRef),
    Builtin(Builtin),
    /// One tool of a provider that the document only names.
    Tool {
        provider: String,
        tool: String,
    },
}

#[derive(Debug)]
struct Agent {
    model: ModelSpec,
    rules: Argument,
    query: Argument,
    sources: Vec<Source>,
    iterations: i64,
    strategy: Strategy,
    memory: Option<Memory>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let mut faults = Faults::default();
    let data: Option<Data> = faults.keep(build.data());
    let memory = faults.keep(Memory::read(&build.spec.data)).flatten();
    let Some(data) = data else { return Err(faults) };
    let exported = data.agent_parameters.unwrap_or_default();
    let parameter = |names: &[&str]| names.iter().find_map(|name| exported.get(*name));
    let value = |names: &[&str]| parameter(names).map(|value| value.field("value").unwrap_or(value));
    let model = data.model.or_else(|| from_value(value(&["model"])?.clone()).ok());
    let Some(model) = model else {
        faults.add(Path::root().key("model"), "a model should be here");
        return Err(faults);
    };
    let mut sources = Vec::new();
    let tools = data.tools.unwrap_or_default();
    let at = Path::root().key("tools");
    for (place, server) in tools.mcp_servers.iter().enumerate() {
        let described = ServerRef::described("", server, &at.clone().key("mcp_servers").index(place));
        sources.extend(faults.keep(described).map(Source::Server));
    }
    for name in &tools.mcp_server_refs {
        sources.extend(faults.keep(ServerRef::named(name, &build.document.mcp_servers)).map(Source::Server));
    }
    for (place, name) in tools.builtin.iter().enumerate() {
        match builtin("builtin", name) {
            Some(tool) => sources.push(Source::Builtin(tool)),
            None => faults.add(at.clone().key("builtin").index(place), format!("there is no tool {name:?} here")),
        }
    }
    for tool in value(&["tools"]).and_then(Value::as_list).into_iter().flatten() {
        let text = |key: &str| tool.field(key).map(to_text).unwrap_or_default();
        if tool.field("enabled") == Some(&Value::Bool(false)) {
            continue;
        }
        let (provider, name) = (text("provider_name"), text("tool_name"));
        sources.push(match builtin(&provider, &name) {
            Some(builtin) => Source::Builtin(builtin),
            None => Source::Tool { provider, tool: name },
        });
    }
    let iterations = value(&["maximum_iterations", "max_iterations"]).and_then(Value::as_i64);
    let iterations = data.max_iterations.or(iterations).unwrap_or(ITERATIONS).clamp(1, MOST_ITERATIONS);
    let strategy = match data.strategy.as_deref().map(str::to_lowercase).as_deref() {
        Some("react" | "re-act" | "cot") => Strategy::React,
        _ => Strategy::FunctionCalling,
    };
    let exported = |names: &[&str]| parameter(names).map_or(Argument::Value(Value::Null), Argument::read_typed);
    let rules = if data.system_prompt.is_empty() {
        exported(&["instruction"])
    } else {
        Argument::read(&data.system_prompt.into())
    };
    let query = match data.query {
        Value::Null => exported(&["query"]),
        list @ Value::List(_) => Argument::read_typed(&Value::map([("type", "variable".into()), ("value", list)])),
        other => Argument::read(&other),
    };
    faults.none_or(Box::new(Agent { model, rules, query, sources, iterations, strategy, memory }))
}

#[async_trait]
impl Node for Agent {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(Value::map([
            ("system_prompt", to_text(&self.rules.render(variables)).into()),
            ("query", to_text(&self.query.render(variables)).into()),
        ]))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let outside = Outside::of(context)?;
        outside.guard(context, self.work(inputs, context, outside)).await
    }

    fn references(&self) -> Vec<&Selector> {
        [self.rules.references(), self.query.references()].concat()
    }

    fn effect(&self) -> Effect {
        // Turns and calls are recorded by themselves; the rest follows from them.
        Effect::Pure
    }

    fn needs(&self) -> Vec<Need> {
        let mut needs = vec![self.model.need()];
        for source in &self.sources {
            match source {
                Source::Server(server) => needs.push(server.need()),
                Source::Tool { provider, tool } => {
                    needs.push(Need::Tool { provider: provider.clone(), tool: tool.clone() });
                }
                Source::Builtin(_) => {}
            }
        }
        needs
    }
}

/// A tool that the model is offered.
struct Offer {
    spec: ToolSpec,
    owner: Owner,
}

enum Owner {
    Server(String, Arc<dyn ToolServer>),
    Builtin(Builtin),
}

/// A turn as it is recorded.
#[derive(Debug, Serialize, Deserialize)]
struct Turn {
    text: String,
    calls: Vec<ToolCall>,
    usage: Usage,
}

/// A call as it is recorded.
#[derive(Debug, Serialize, Deserialize)]
struct Called {
    result: String,
    is_error: bool,
}

impl Agent {
    async fn work(
        &self,
        inputs: &Value,
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<NodeOutput, NodeError> {
        let text = |key: &str| inputs.field(key).and_then(Value::as_str).unwrap_or_default();
        let offers = self.offers(context, outside).await?;
        let specs: Vec<ToolSpec> = offers.iter().map(|offer| offer.spec.clone()).collect();
        let rules = match self.strategy {
            Strategy::FunctionCalling => text("system_prompt").to_owned(),
            Strategy::React => react::rules(text("system_prompt"), &specs),
        };
        let mut messages = vec![Message::text(Role::System, rules)];
        messages.extend(self.memory.iter().flat_map(|memory| memory.earlier(context.variables())));
        messages.push(Message::text(Role::User, text("query")));
        let mut log = Vec::new();
        let mut usage = Usage::default();
        let (mut answer, mut iterations) = (String::new(), 0);
        for iteration in 0..self.iterations {
            let is_last = iteration + 1 == self.iterations;
            let turn = self.turn(iteration, is_last, &messages, &specs, context, outside).await?;
            iterations += 1;
            usage += turn.usage;
            if turn.calls.is_empty() || is_last {
                answer = turn.text;
                break;
            }
            let mut results = Vec::new();
            for (place, call) in turn.calls.iter().enumerate() {
                let called = self.call(iteration, place, call, &offers, context, outside).await?;
                log.push(Value::map([
                    ("iteration", iteration.into()),
                    ("tool", call.name.as_str().into()),
                    ("arguments", call.parsed().unwrap_or_else(|_| call.arguments.as_str().into())),
                    ("result", called.result.as_str().into()),
                    ("is_error", called.is_error.into()),
                ]));
                results.push((call, called));
            }
            match self.strategy {
                Strategy::FunctionCalling => {
                    let mut content = vec![Content::Text { text: turn.text.clone() }];
                    content.retain(|content| !matches!(content, Content::Text { text } if text.is_empty()));
                    content.extend(turn.calls.iter().cloned().map(Content::ToolCall));
                    messages.push(Message { role: Role::Assistant, content });
                    let result = |(call, called): (&ToolCall, Called)| Content::ToolResult {
                        id: call.id.clone(),
                        text: called.result,
                        is_error: called.is_error,
                    };
                    let content = results.into_iter().map(result).collect();
                    messages.push(Message { role: Role::Tool, content });
                }
                Strategy::React => {
                    messages.push(Message::text(Role::Assistant, turn.text.clone()));
                    let seen: Vec<&str> = results.iter().map(|(_, called)| called.result.as_str()).collect();
                    messages.push(Message::text(Role::User, format!("Observation: {}", seen.join("\n"))));
                }
            }
        }
        context.text("text", &answer).await;
        let count = i64::try_from(log.len()).unwrap_or(i64::MAX);
        let usage = Value::map([
            ("prompt_tokens", usage.input.into()),
            ("completion_tokens", usage.output.into()),
            ("total_tokens", usage.total().into()),
        ]);
        Ok(NodeOutput::of([
            ("text", Value::from(answer)),
            ("tool_calls", Value::List(log)),
            ("tool_calls_count", count.into()),
            ("iterations", iterations.into()),
            ("usage", usage),
            ("json", Value::List(Vec::new())),
            ("files", Value::List(Vec::new())),
        ]))
    }

    async fn offers(&self, context: &NodeContext<'_>, outside: &Outside) -> Result<Vec<Offer>, NodeError> {
        let mut offers: Vec<Offer> = Vec::new();
        for source in &self.sources {
            let (server, only) = match source {
                Source::Builtin(tool) => {
                    offers.push(Offer { spec: tool.spec(), owner: Owner::Builtin(*tool) });
                    continue;
                }
                Source::Server(server) => (server.clone(), None),
                Source::Tool { provider, tool } => {
                    let server = ServerRef::named(provider, &Value::Null).map_err(|_| "it can't be named")?;
                    (server, Some(tool))
                }
            };
            let connected = outside.server(context, &server).await?;
            let tools = connected.tools().await.map_err(|error| NodeError::new("ToolError", error.to_string()))?;
            for spec in tools.into_iter().filter(|spec| only.is_none_or(|only| spec.name == *only)) {
                offers.push(Offer { spec, owner: Owner::Server(server.name.clone(), connected.clone()) });
            }
        }
        for (place, offer) in offers.iter().enumerate() {
            if offers[..place].iter().any(|other| other.spec.name == offer.spec.name) {
                let message = format!("duplicate MCP tool name '{}'", offer.spec.name);
                return Err(NodeError::new("ToolError", message));
            }
        }
        Ok(offers)
    }

    async fn turn(
        &self,
        iteration: i64,
        is_last: bool,
        messages: &[Message],
        specs: &[ToolSpec],
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<Turn, NodeError> {
        let work = async |key: Option<String>| {
            let mut request = self.model.request(messages.to_vec());
            request.key = key;
            match self.strategy {
                Strategy::FunctionCalling if !is_last => request.tools = specs.to_vec(),
                Strategy::FunctionCalling => {}
                Strategy::React => {
                    let stop = || Value::List(vec![react::STOP.into()]);
                    request.parameters.entry("stop".to_owned()).or_insert_with(stop);
                    if is_last {
                        request.messages.push(Message::text(Role::User, react::LAST));
                    }
                }
            }
            let said = outside.ask(context, &self.model.provider, &request, None).await?;
            let usage = said.answer.usage.unwrap_or_default();
            let (text, calls) = match self.strategy {
                Strategy::FunctionCalling => (said.answer.text, said.answer.tool_calls),
                Strategy::React => react::read(said.answer.text, iteration),
            };
            recorded(&Turn { text, calls, usage })
        };
        let inputs = Value::map([("messages", Value::from(messages.len() as u64))]);
        // What a model was asked is asked again: with the same key it is paid once where that is known.
        played(context.part(&format!("turn-{}", iteration + 1), &inputs, OnUncertain::Retry, work).await?)
    }

    async fn call(
        &self,
        iteration: i64,
        place: usize,
        call: &ToolCall,
        offers: &[Offer],
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<Called, NodeError> {
        let work = async |key: Option<String>| {
            let Some(offer) = offers.iter().find(|offer| offer.spec.name == call.name) else {
                let result = format!("tool '{}' not found on any MCP server", call.name);
                return recorded(&Called { result, is_error: true });
            };
            let arguments = match call.parsed() {
                Ok(arguments) => arguments,
                Err(error) => {
                    let result = format!("the arguments are not JSON: {error}");
                    return recorded(&Called { result, is_error: true });
                }
            };
            let output = match &offer.owner {
                Owner::Builtin(tool) => outside.call_builtin(context, *tool, &arguments).await,
                Owner::Server(name, server) => {
                    outside.call_tool(context, &**server, name, &call.name, &arguments, key).await
                }
            };
            let called = match output {
                Ok(output) => Called { result: output.text, is_error: output.is_error },
                // What went wrong with a tool is for the model to deal with; what went wrong with us isn't.
                Err(error) if matches!(error.kind, "LimitReached" | "AuditError") => return Err(error),
                Err(error) => {
                    if error.kind == "Refused" {
                        outside.record(context, AuditKind::Refused, &error.message)?;
                    }
                    Called { result: outside.secrets().redact(&error.message), is_error: true }
                }
            };
            recorded(&called)
        };
        let inputs =
            Value::map([("tool", Value::from(call.name.as_str())), ("arguments", call.arguments.as_str().into())]);
        let name = format!("call-{}-{}", iteration + 1, place + 1);
        played(context.part(&name, &inputs, context.on_uncertain(), work).await?)
    }
}

fn recorded<T: Serialize>(part: &T) -> Result<Value, NodeError> {
    to_value(part).map_err(|error| NodeError::new("EngineError", error.to_string()))
}

fn played<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, NodeError> {
    from_value(value)
        .map_err(|error| NodeError::new("EngineError", format!("a record of the agent can't be read: {error}")))
}
