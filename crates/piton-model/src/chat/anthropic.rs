//! The wire format of Anthropic's messages.
//!
//! An answer of a certain form is asked for as the call of one tool whose arguments have that form; every
//! version of the interface knows that. The call is turned back into text at the end.

use piton_types::{Value, to_json};

use super::error::ChatError;
use super::provider::{count_of, text_of};
use super::stream::Delta;
use super::{ChatAnswer, ChatRequest, Content, Finish, Format, Role, ToolCall, ToolSpec, Usage};

pub(super) const VERSION: &str = "2023-06-01";

/// The interface wants a limit; this one, unless the request has its own.
const DEFAULT_MAX_TOKENS: u64 = 4096;

/// The tool whose arguments are the answer.
const ANSWER_TOOL: &str = "give_answer";

pub(super) fn body(model: &str, request: &ChatRequest) -> Result<Value, ChatError> {
    let mut body = request.parameters.clone();
    if let Some(stop) = body.remove("stop") {
        body.insert(
            "stop_sequences".to_owned(),
            if let Value::String(_) = stop { Value::List(vec![stop]) } else { stop },
        );
    }
    let mut set = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
    set("model", model.into());
    set("max_tokens", request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS).into());
    if request.stream {
        set("stream", true.into());
    }
    let mut system = Vec::new();
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in &request.messages {
        if message.role == Role::System {
            system.extend(message.content.iter().filter_map(|content| match content {
                Content::Text { text } => Some(text.as_str()),
                _ => None,
            }));
            continue;
        }
        let role = if message.role == Role::Assistant { "assistant" } else { "user" };
        let blocks: Vec<Value> = message.content.iter().map(block).collect::<Result<_, _>>()?;
        // Results of tools must all be in the one message after the calls.
        match messages.last_mut() {
            Some((last, before)) if *last == role => before.extend(blocks),
            _ => messages.push((role, blocks)),
        }
    }
    if !system.is_empty() {
        set("system", system.join("\n\n").into());
    }
    let messages = messages.into_iter().filter(|(_, blocks)| !blocks.is_empty());
    let messages = messages.map(|(role, blocks)| Value::map([("role", role.into()), ("content", Value::List(blocks))]));
    set("messages", Value::List(messages.collect()));
    let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
    let schema = match &request.format {
        Format::Text => None,
        Format::Json => Some(Value::map([("type", "object".into())])),
        Format::Schema { schema, .. } => Some(schema.clone()),
    };
    if let Some(schema) = schema {
        let description = "Gives the answer. Call it exactly once.".to_owned();
        tools.push(tool(&ToolSpec { name: ANSWER_TOOL.to_owned(), description, schema }));
        if request.tools.is_empty() {
            set("tool_choice", Value::map([("type", "tool".into()), ("name", ANSWER_TOOL.into())]));
        }
    }
    if !tools.is_empty() {
        set("tools", Value::List(tools));
    }
    Ok(Value::Map(body))
}

fn tool(tool: &ToolSpec) -> Value {
    Value::map([
        ("name", tool.name.as_str().into()),
        ("description", tool.description.as_str().into()),
        ("input_schema", tool.schema.clone()),
    ])
}

fn block(content: &Content) -> Result<Value, ChatError> {
    Ok(match content {
        Content::Text { text } => Value::map([("type", "text".into()), ("text", text.as_str().into())]),
        Content::Image { url, .. } => Value::map([("type", "image".into()), ("source", image(url)?)]),
        Content::ToolCall(call) => {
            let input = call.parsed().unwrap_or_else(|_| Value::map::<&str>([]));
            Value::map([
                ("type", "tool_use".into()),
                ("id", call.id.as_str().into()),
                ("name", call.name.as_str().into()),
                ("input", input),
            ])
        }
        Content::ToolResult { id, text, is_error } => Value::map([
            ("type", "tool_result".into()),
            ("tool_use_id", id.as_str().into()),
            ("content", text.as_str().into()),
            ("is_error", (*is_error).into()),
        ]),
    })
}

fn image(url: &str) -> Result<Value, ChatError> {
    let Some(data) = url.strip_prefix("data:") else {
        return Ok(Value::map([("type", "url".into()), ("url", url.into())]));
    };
    let (media, data) = data
        .split_once(";base64,")
        .ok_or_else(|| ChatError::Request("a picture's data: URL should be base64".to_owned()))?;
    Ok(Value::map([("type", "base64".into()), ("media_type", media.into()), ("data", data.into())]))
}

pub(super) fn whole(value: &Value) -> Result<ChatAnswer, ChatError> {
    failure(value)?;
    let blocks = value.field("content").and_then(Value::as_list);
    let blocks = blocks.ok_or_else(|| ChatError::Malformed("it has no content".to_owned()))?;
    let mut answer = ChatAnswer::default();
    message(&mut answer, value);
    for block in blocks {
        match text_of(block, "type") {
            Some("text") => answer.text.push_str(text_of(block, "text").unwrap_or_default()),
            Some("thinking") => answer.reasoning.push_str(text_of(block, "thinking").unwrap_or_default()),
            Some("tool_use") => {
                let input = to_json(block.field("input").unwrap_or(&Value::Null));
                let input = input.map_err(|error| ChatError::Malformed(error.to_string()))?;
                answer.tool_calls.push(started(block, input.to_string()));
            }
            _ => {}
        }
    }
    Ok(answer)
}

pub(super) fn event(answer: &mut ChatAnswer, value: &Value) -> Result<Option<Delta>, ChatError> {
    failure(value)?;
    match text_of(value, "type") {
        Some("message_start") => {
            if let Some(start) = value.field("message") {
                message(answer, start);
            }
        }
        Some("content_block_start") => {
            if let Some(block) = value.field("content_block").filter(|block| text_of(block, "type") == Some("tool_use"))
            {
                answer.tool_calls.push(started(block, String::new()));
            }
        }
        Some("content_block_delta") => {
            let Some(delta) = value.field("delta") else { return Ok(None) };
            if let Some(text) = text_of(delta, "text").filter(|text| !text.is_empty()) {
                answer.text.push_str(text);
                return Ok(Some(Delta::Text(text.to_owned())));
            }
            if let Some(text) = text_of(delta, "thinking").filter(|text| !text.is_empty()) {
                answer.reasoning.push_str(text);
                return Ok(Some(Delta::Reasoning(text.to_owned())));
            }
            // Blocks come one after the other, so a piece belongs to the newest call.
            if let (Some(piece), Some(call)) = (text_of(delta, "partial_json"), answer.tool_calls.last_mut()) {
                call.arguments.push_str(piece);
            }
        }
        Some("message_delta") => {
            if let Some(delta) = value.field("delta") {
                message(answer, delta);
            }
            if let Some(usage) = value.field("usage") {
                count(answer, usage);
            }
        }
        _ => {}
    }
    Ok(None)
}

/// The answer that was asked for as a call, as text again.
pub(super) fn unwrap_forced_tool(answer: &mut ChatAnswer) {
    if let Some(place) = answer.tool_calls.iter().position(|call| call.name == ANSWER_TOOL) {
        answer.text = answer.tool_calls.remove(place).arguments;
        answer.finish = Some(Finish::Stop);
    }
}

fn failure(value: &Value) -> Result<(), ChatError> {
    match value.field("error") {
        None | Some(Value::Null) => Ok(()),
        Some(error) => {
            let message = text_of(error, "message").unwrap_or("an error").to_owned();
            Err(ChatError::Failed { message })
        }
    }
}

fn started(block: &Value, arguments: String) -> ToolCall {
    let text = |key| text_of(block, key).unwrap_or_default().to_owned();
    ToolCall { id: text("id"), name: text("name"), arguments }
}

/// What a message, its beginning and its end say about it.
fn message(answer: &mut ChatAnswer, value: &Value) {
    if let Some(model) = text_of(value, "model") {
        answer.model = Some(model.to_owned());
    }
    if let Some(reason) = text_of(value, "stop_reason") {
        answer.finish = Some(match reason {
            "end_turn" | "stop_sequence" => Finish::Stop,
            "max_tokens" => Finish::Length,
            "tool_use" => Finish::ToolCalls,
            other => Finish::Other(other.to_owned()),
        });
    }
    if let Some(usage) = value.field("usage") {
        count(answer, usage);
    }
}

/// Counts are running totals; what the cache took in was sent too.
fn count(answer: &mut ChatAnswer, usage: &Value) {
    let known = answer.usage.unwrap_or_default();
    let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"];
    let cached: u64 = cached.iter().filter_map(|key| count_of(usage, key)).fold(0, u64::saturating_add);
    let input = count_of(usage, "input_tokens").map_or(known.input, |input| input.saturating_add(cached));
    answer.usage = Some(Usage { input, output: count_of(usage, "output_tokens").unwrap_or(known.output) });
}
