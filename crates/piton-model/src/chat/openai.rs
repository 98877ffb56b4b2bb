//! The wire format of OpenAI's chat completions, which most servers speak. Reading is lenient where
//! servers differ (missing counts, missing ids) and strict where a mistake would change the answer.

use piton_types::Value;

use super::error::ChatError;
use super::provider::{count_of, text_of};
use super::stream::Delta;
use super::{ChatAnswer, ChatRequest, Content, Finish, Format, Message, Role, ToolCall, Usage};

/// How many tool calls one answer may have: an index beyond is an attack on our memory.
const MAX_TOOL_CALLS: usize = 128;

pub(super) fn body(model: &str, request: &ChatRequest) -> Value {
    let mut body = request.parameters.clone();
    let mut set = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
    set("model", model.into());
    set("messages", Value::List(request.messages.iter().flat_map(messages).collect()));
    if let Some(limit) = request.max_tokens {
        set("max_tokens", limit.into());
    }
    if request.stream {
        set("stream", true.into());
        set("stream_options", Value::map([("include_usage", true.into())]));
    }
    if !request.tools.is_empty() {
        let tool = |tool: &super::ToolSpec| {
            let function = Value::map([
                ("name", tool.name.as_str().into()),
                ("description", tool.description.as_str().into()),
                ("parameters", tool.schema.clone()),
            ]);
            Value::map([("type", "function".into()), ("function", function)])
        };
        set("tools", Value::List(request.tools.iter().map(tool).collect()));
    }
    match &request.format {
        Format::Text => {}
        Format::Json => set("response_format", Value::map([("type", "json_object".into())])),
        Format::Schema { name, schema } => {
            let form =
                Value::map([("name", name.as_str().into()), ("schema", schema.clone()), ("strict", true.into())]);
            set("response_format", Value::map([("type", "json_schema".into()), ("json_schema", form)]));
        }
    }
    Value::Map(body)
}

/// A message on the wire. Results of tools are messages of their own there.
fn messages(message: &Message) -> Vec<Value> {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut parts = Vec::new();
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for content in &message.content {
        match content {
            Content::Text { text } => {
                parts.push(Value::map([("type", "text".into()), ("text", text.as_str().into())]));
            }
            Content::Image { url, detail } => {
                let mut image = vec![("url", Value::from(url.as_str()))];
                image.extend(detail.as_deref().map(|detail| ("detail", detail.into())));
                parts.push(Value::map([("type", "image_url".into()), ("image_url", Value::map(image))]));
            }
            Content::ToolCall(call) => {
                let function =
                    Value::map([("name", call.name.as_str().into()), ("arguments", call.arguments.as_str().into())]);
                calls.push(Value::map([
                    ("id", call.id.as_str().into()),
                    ("type", "function".into()),
                    ("function", function),
                ]));
            }
            Content::ToolResult { id, text, .. } => results.push(Value::map([
                ("role", "tool".into()),
                ("tool_call_id", id.as_str().into()),
                ("content", text.as_str().into()),
            ])),
        }
    }
    if parts.is_empty() && calls.is_empty() && !results.is_empty() {
        return results;
    }
    // One text is sent as a string: small servers know nothing else.
    let content = match parts.as_slice() {
        [one] if one.field("text").is_some() => one.field("text").cloned().unwrap_or_default(),
        [] => "".into(),
        _ => Value::List(parts),
    };
    let mut wire = vec![("role", role.into()), ("content", content)];
    if !calls.is_empty() {
        wire.push(("tool_calls", Value::List(calls)));
    }
    let mut all = vec![Value::map(wire)];
    all.extend(results);
    all
}

pub(super) fn whole(value: &Value) -> Result<ChatAnswer, ChatError> {
    failure(value)?;
    let choice = first_choice(value).ok_or_else(|| ChatError::Malformed("it has no choices".to_owned()))?;
    let message =
        choice.field("message").ok_or_else(|| ChatError::Malformed("its choice has no message".to_owned()))?;
    let mut answer = ChatAnswer::default();
    common(&mut answer, value, choice);
    answer.text = text_of(message, "content").unwrap_or_default().to_owned();
    answer.reasoning = text_of(message, "reasoning_content").unwrap_or_default().to_owned();
    for (index, call) in message.field("tool_calls").and_then(Value::as_list).into_iter().flatten().enumerate() {
        tool_call(&mut answer, index, call)?;
    }
    Ok(answer)
}

pub(super) fn event(answer: &mut ChatAnswer, value: &Value) -> Result<Option<Delta>, ChatError> {
    failure(value)?;
    let choice = first_choice(value).unwrap_or(&Value::Null);
    common(answer, value, choice);
    let Some(delta) = choice.field("delta") else { return Ok(None) };
    for (place, call) in delta.field("tool_calls").and_then(Value::as_list).into_iter().flatten().enumerate() {
        let index = count_of(call, "index").and_then(|index| index.try_into().ok()).unwrap_or(place);
        tool_call(answer, index, call)?;
    }
    if let Some(text) = text_of(delta, "reasoning_content").filter(|text| !text.is_empty()) {
        answer.reasoning.push_str(text);
        return Ok(Some(Delta::Reasoning(text.to_owned())));
    }
    let text = text_of(delta, "content").filter(|text| !text.is_empty());
    Ok(text.map(|text| {
        answer.text.push_str(text);
        Delta::Text(text.to_owned())
    }))
}

/// An error in the place of an answer, as some servers send it with a status of 200.
fn failure(value: &Value) -> Result<(), ChatError> {
    match value.field("error") {
        None | Some(Value::Null) => Ok(()),
        Some(error) => {
            let message = error.field("message").unwrap_or(error).as_str().unwrap_or("an error").to_owned();
            Err(ChatError::Failed { message })
        }
    }
}

fn first_choice(value: &Value) -> Option<&Value> {
    value.field("choices")?.as_list()?.first()
}

fn common(answer: &mut ChatAnswer, value: &Value, choice: &Value) {
    if let Some(model) = text_of(value, "model") {
        answer.model = Some(model.to_owned());
    }
    if let Some(reason) = text_of(choice, "finish_reason") {
        answer.finish = Some(match reason {
            "stop" => Finish::Stop,
            "length" => Finish::Length,
            "tool_calls" | "function_call" => Finish::ToolCalls,
            other => Finish::Other(other.to_owned()),
        });
    }
    if let Some(usage) = value.field("usage").filter(|usage| usage.as_map().is_some()) {
        let count = |key| count_of(usage, key).unwrap_or_default();
        answer.usage = Some(Usage { input: count("prompt_tokens"), output: count("completion_tokens") });
    }
}

/// A tool call, or a piece of one: the first piece has id and name, all have some of the arguments.
fn tool_call(answer: &mut ChatAnswer, index: usize, piece: &Value) -> Result<(), ChatError> {
    if index >= MAX_TOOL_CALLS {
        return Err(ChatError::Malformed(format!("it calls more than {MAX_TOOL_CALLS} tools at once")));
    }
    while answer.tool_calls.len() <= index {
        let id = format!("call_{}", answer.tool_calls.len());
        answer.tool_calls.push(ToolCall { id, name: String::new(), arguments: String::new() });
    }
    let call = &mut answer.tool_calls[index];
    if let Some(id) = text_of(piece, "id").filter(|id| !id.is_empty()) {
        id.clone_into(&mut call.id);
    }
    let Some(function) = piece.field("function") else { return Ok(()) };
    if let Some(name) = text_of(function, "name") {
        call.name.push_str(name);
    }
    match function.field("arguments") {
        Some(Value::String(text)) => call.arguments.push_str(text),
        // Some servers send the object itself.
        Some(map @ Value::Map(_)) => {
            let json = piton_types::to_json(map).map_err(|error| ChatError::Malformed(error.to_string()))?;
            call.arguments = json.to_string();
        }
        _ => {}
    }
    Ok(())
}
