//! `parameter-extractor`: a model finds values in a text. Gives them by name, and `__is_success`, `__reason`,
//! `__usage`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use piton_model::chat::ToolSpec;
use piton_types::{Path, Value, to_json};
use serde::Deserialize;

use super::model::{ModelSpec, json_in, usage};
use super::reading::Reading;
use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Node, NodeContext, NodeError, NodeOutput};
use crate::outside::Outside;
use crate::pool::VariablePool;
use crate::selector::Selector;
use crate::value::{number, to_text};

/// The function that the model calls with what it found.
const FUNCTION: &str = "extract_parameters";

#[derive(Debug, Deserialize)]
struct Data {
    /// The model.
    model: ModelSpec,
    /// The text that they are taken from.
    query: Selector,
    /// What is wanted.
    parameters: Vec<Parameter>,
    /// What else the model is told; a template.
    #[serde(default)]
    instruction: Option<String>,
    /// `function_call`, or `prompt` for models that can't call functions.
    #[serde(default)]
    reasoning_mode: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Parameter {
    /// Its name.
    name: String,
    /// `string`, `number`, `bool`, `select`, `array[string]` and the like.
    #[serde(rename = "type")]
    kind: String,
    /// What it is, for the model.
    #[serde(default)]
    description: Option<String>,
    /// There is no answer without it.
    #[serde(default)]
    required: bool,
    /// What it may be.
    #[serde(default)]
    options: Option<Vec<String>>,
}

impl Parameter {
    fn schema(&self) -> Value {
        let mut schema = vec![("description", Value::from(self.description.as_deref().unwrap_or_default()))];
        match self.kind.strip_prefix("array[").and_then(|kind| kind.strip_suffix(']')) {
            Some(item) => {
                schema.push(("type", "array".into()));
                schema.push(("items", Value::map([("type", Value::from(item))])));
            }
            None => schema.push((
                "type",
                if self.kind == "bool" {
                    "boolean"
                } else if self.kind == "select" {
                    "string"
                } else {
                    &self.kind
                }
                .into(),
            )),
        }
        if let Some(options) = self.options.as_ref().filter(|options| !options.is_empty()) {
            schema.push(("enum", Value::List(options.iter().map(|option| option.as_str().into()).collect())));
        }
        Value::map(schema)
    }

    /// What the parameter is when nothing was found.
    fn empty(&self) -> Value {
        match self.kind.as_str() {
            "number" => 0.into(),
            "bool" | "boolean" => false.into(),
            list if list.starts_with("array") => Value::List(Vec::new()),
            "object" => Value::map::<&str>([]),
            _ => "".into(),
        }
    }

    /// The value as its kind, where that is clear.
    fn accept(&self, value: &Value) -> Option<Value> {
        match (self.kind.as_str(), value) {
            ("string" | "select", Value::String(text)) => {
                let fits = self.options.as_ref().is_none_or(|options| options.is_empty() || options.contains(text));
                fits.then(|| value.clone())
            }
            ("string", Value::Null) => None,
            ("string", other) => Some(to_text(other).into()),
            ("number", Value::Int(_) | Value::UInt(_) | Value::Float(_)) => Some(value.clone()),
            ("number", Value::String(text)) => number(text),
            ("bool" | "boolean", Value::Bool(_)) => Some(value.clone()),
            ("bool" | "boolean", Value::String(text)) => match text.to_lowercase().as_str() {
                "true" | "yes" => Some(true.into()),
                "false" | "no" => Some(false.into()),
                _ => None,
            },
            (list, Value::List(_)) if list.starts_with("array") => Some(value.clone()),
            ("object", Value::Map(_)) => Some(value.clone()),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct ParameterExtractor {
    reading: Reading,
    parameters: Vec<Parameter>,
    by_function: bool,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let mut faults = Faults::default();
    for (place, parameter) in data.parameters.iter().enumerate() {
        if parameter.name.is_empty() || parameter.name.starts_with("__") {
            let at = Path::root().key("parameters").index(place).key("name");
            faults.add(at, "a name should be here that doesn't begin with __");
        }
    }
    let reading = Reading::read(data.model, data.query, data.instruction.as_deref(), &build.spec.data);
    let Some(reading) = faults.keep(reading) else { return Err(faults) };
    let by_function = data.reasoning_mode.as_deref() != Some("prompt");
    faults.none_or(Box::new(ParameterExtractor { reading, parameters: data.parameters, by_function }))
}

#[async_trait]
impl Node for ParameterExtractor {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(self.reading.inputs(variables))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let outside = Outside::of(context)?;
        outside.guard(context, self.extract(inputs, context, outside)).await
    }

    fn references(&self) -> Vec<&Selector> {
        self.reading.references()
    }

    fn needs(&self) -> Vec<Need> {
        vec![self.reading.need()]
    }
}

impl ParameterExtractor {
    fn schema(&self) -> Value {
        let required = self.parameters.iter().filter(|parameter| parameter.required);
        Value::map([
            ("type", "object".into()),
            ("properties", Value::map(self.parameters.iter().map(|parameter| (&*parameter.name, parameter.schema())))),
            ("required", Value::List(required.map(|parameter| parameter.name.as_str().into()).collect())),
        ])
    }

    async fn extract(
        &self,
        inputs: &Value,
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<NodeOutput, NodeError> {
        let schema = self.schema();
        let task = "You find values in a text. Take them from the text alone; leave out what isn't there.\n";
        let form = if self.by_function {
            format!("Call the function {FUNCTION} with what you found.")
        } else {
            let shown = to_json(&schema).map_err(|error| NodeError::new("PromptError", error.to_string()))?;
            format!("Answer with a JSON object of this schema and nothing else:\n{shown}")
        };
        let mut request = self.reading.request(task, &form, inputs, context);
        if self.by_function {
            let description = "Takes the values that were found.".to_owned();
            request.tools = vec![ToolSpec { name: FUNCTION.to_owned(), description, schema }];
        }
        let said = outside.ask(context, &self.reading.model.provider, &request, None).await?;
        let called = said.answer.tool_calls.iter().find(|call| call.name == FUNCTION);
        let found = match called {
            Some(call) => call.parsed().map_err(|error| format!("the arguments are not JSON: {error}")),
            // Also when a function was wanted: many models answer in text all the same.
            None => json_in(&said.answer.text).ok_or_else(|| "the answer has no JSON".to_owned()),
        };
        let (found, mut reason) = match found {
            Ok(found) => (found, None),
            Err(reason) => (Value::Null, Some(reason)),
        };
        let mut variables = BTreeMap::new();
        for parameter in &self.parameters {
            let value = found.field(&parameter.name).and_then(|value| parameter.accept(value));
            if value.is_none() && parameter.required && reason.is_none() {
                reason = Some(format!("Parameter {} is required", parameter.name));
            }
            variables.insert(parameter.name.clone(), value.unwrap_or_else(|| parameter.empty()));
        }
        variables.insert("__is_success".to_owned(), i32::from(reason.is_none()).into());
        variables.insert("__reason".to_owned(), reason.map_or(Value::Null, Value::from));
        variables.insert("__usage".to_owned(), usage(&said));
        Ok(NodeOutput { variables, ..NodeOutput::default() })
    }
}
