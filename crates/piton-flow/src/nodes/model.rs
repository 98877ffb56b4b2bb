//! What all nodes that ask a model have in common: which one, with which parameters, and reading an answer
//! that should be JSON.

use std::collections::BTreeMap;

use piton_model::chat::{ChatRequest, Format, Message};
use piton_types::{Value, from_json};
use serde::Deserialize;

use crate::need::Need;
use crate::outside::Said;

/// The model that a node asks.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "ModelData")]
pub(super) struct ModelSpec {
    pub(super) provider: String,
    pub(super) name: String,
    completion_params: Option<BTreeMap<String, Value>>,
}

/// A model as it is written: agents call its name `model`, and some have both.
#[derive(Debug, Deserialize)]
struct ModelData {
    /// A provider of the configuration.
    #[serde(default)]
    provider: String,
    /// What the provider calls the model.
    #[serde(default)]
    name: String,
    /// The same, in some documents.
    #[serde(default)]
    model: String,
    /// What the provider is given along, as `temperature` and `max_tokens`.
    #[serde(default)]
    completion_params: Option<BTreeMap<String, Value>>,
}

impl From<ModelData> for ModelSpec {
    fn from(data: ModelData) -> Self {
        let ModelData { provider, name, model, completion_params } = data;
        Self { provider, name: if name.is_empty() { model } else { name }, completion_params }
    }
}

impl ModelSpec {
    pub(super) fn need(&self) -> Need {
        Need::Model { provider: self.provider.clone(), model: self.name.clone() }
    }

    /// A request with the parameters that the document gives the model.
    pub(super) fn request(&self, messages: Vec<Message>) -> ChatRequest {
        let mut parameters = self.completion_params.clone().unwrap_or_default();
        parameters.retain(|_, value| *value != Value::Null);
        let max_tokens = ["max_tokens", "max_completion_tokens"]
            .iter()
            .find_map(|key| parameters.remove(*key))
            .and_then(|limit| limit.as_i64()?.try_into().ok());
        // Exports have a word here where the wire has a map.
        let format = match parameters.remove("response_format") {
            Some(Value::String(word)) if word.to_lowercase().starts_with("json") => Format::Json,
            Some(map @ Value::Map(_)) => {
                parameters.insert("response_format".to_owned(), map);
                Format::Text
            }
            _ => Format::Text,
        };
        parameters.remove("json_schema");
        let model = Some(self.name.clone()).filter(|name| !name.is_empty());
        ChatRequest { model, messages, max_tokens, parameters, format, ..ChatRequest::default() }
    }
}

/// What the model took, as documents of both forms know it. A price that isn't known is no price.
pub(super) fn usage(said: &Said) -> Value {
    let usage = said.answer.usage.unwrap_or_default();
    Value::map([
        ("prompt_tokens", usage.input.into()),
        ("completion_tokens", usage.output.into()),
        ("total_tokens", usage.total().into()),
        ("total_price", said.cost.map_or(Value::Null, Value::from)),
        ("latency", said.seconds.into()),
    ])
}

/// The JSON in what a model wrote: alone, in a fence, or between words. Never looked at as anything but data.
pub(super) fn json_in(text: &str) -> Option<Value> {
    let text = text.trim();
    if let Ok(value) = from_json(text.as_bytes()) {
        return Some(value);
    }
    let inside = text.split_once("```").map(|(_, rest)| rest.split_once('\n').map_or(rest, |(_, rest)| rest));
    if let Some(value) = inside.and_then(|rest| from_json(rest.split("```").next()?.trim().as_bytes()).ok()) {
        return Some(value);
    }
    let (start, end) = (text.find('{')?, text.rfind('}')?);
    from_json(text.get(start..=end)?.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_found_where_models_put_it() {
        let expected = Value::map([("a", 1.into())]);
        for text in
            ["{\"a\":1}", " ```json\n{\"a\": 1}\n``` ", "Sure!\n```\n{\"a\":1}\n```\nDone.", "It is {\"a\": 1}."]
        {
            assert_eq!(json_in(text), Some(expected.clone()), "{text}");
        }
        for text in ["", "no", "{", "```json\n{\"a\":\n```", "} {"] {
            assert_eq!(json_in(text), None, "{text}");
        }
    }
}
