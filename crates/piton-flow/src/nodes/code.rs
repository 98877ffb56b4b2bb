//! `code`: a function `main` in JavaScript or Python. Gives what it returns.
//!
//! A map gives its fields as variables, anything else is `result`. Outputs that the document declares must be
//! there and of the declared kind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use piton_code::{CodeError, JavaScript, Surroundings};
use piton_types::{Path, Value};
use serde::Deserialize;

use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::outside::{AuditKind, Outside};
use crate::pool::VariablePool;
use crate::selector::Selector;

#[derive(Debug, Deserialize)]
struct Data {
    /// The source, with a function `main`.
    code: String,
    /// `javascript` (also `js`), or `python3` (also `python`); JavaScript if nothing is said.
    #[serde(alias = "code_language", default = "javascript")]
    language: String,
    /// What `main` is given.
    #[serde(default)]
    variables: Vec<Variable>,
    /// Selectors by name, another way to say the same.
    #[serde(default)]
    inputs: BTreeMap<String, Selector>,
    /// What it must give, by name; anything if nothing is said.
    outputs: Option<BTreeMap<String, Output>>,
    /// The one variable that gets all that main returns.
    output_variable: Option<String>,
    /// How many seconds it may take.
    timeout: Option<f64>,
}

fn javascript() -> String {
    "javascript".to_owned()
}

#[derive(Debug, Deserialize)]
struct Variable {
    /// The name of the argument.
    variable: String,
    /// Where its value is.
    #[serde(alias = "variable_selector")]
    value_selector: Selector,
}

#[derive(Debug, Clone, Deserialize)]
struct Output {
    /// `string`, `number`, `boolean`, `object`, `array[string]`, `array[number]`, `array[object]` and the like.
    #[serde(rename = "type")]
    kind: String,
    /// The fields of an object.
    #[serde(default)]
    children: Option<BTreeMap<String, Output>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    JavaScript,
    Python,
}

#[derive(Debug)]
struct Code {
    code: Arc<str>,
    language: Language,
    variables: Vec<(String, Selector)>,
    outputs: Option<BTreeMap<String, Output>>,
    output_variable: Option<String>,
    time: Option<Duration>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    build.filled("code", &data.code)?;
    let language = match data.language.as_str() {
        "javascript" | "js" | "javascript3" => Language::JavaScript,
        "python3" | "python" => Language::Python,
        // A document of another engine is none the less one.
        "wasm" => return Ok(super::missing("code in wasm")),
        other => {
            let message = format!("Unsupported code language: {other}");
            return Err(Faults::one(Path::root().key("language"), message));
        }
    };
    let named = data.variables.into_iter().map(|from| (from.variable, from.value_selector));
    Ok(Box::new(Code {
        code: data.code.into(),
        language,
        variables: named.chain(data.inputs).collect(),
        outputs: data.outputs.filter(|outputs| !outputs.is_empty()),
        output_variable: data.output_variable,
        time: data.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).filter(|time| !time.is_zero()),
    }))
}

#[async_trait]
impl Node for Code {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(Value::map(self.variables.iter().map(|(name, selector)| (name.as_str(), variables.select(selector)))))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let outside = Outside::of(context)?;
        outside.guard(context, self.call(inputs, context, outside)).await
    }

    fn gives(&self) -> Option<Vec<&str>> {
        self.outputs.as_ref().map(|declared| declared.keys().map(String::as_str).collect())
    }

    fn references(&self) -> Vec<&Selector> {
        self.variables.iter().map(|(_, selector)| selector).collect()
    }

    fn needs(&self) -> Vec<Need> {
        match self.language {
            // It is inside of us.
            Language::JavaScript => Vec::new(),
            Language::Python => vec![Need::Sandbox { language: "python3".to_owned() }],
        }
    }

    fn effect(&self) -> Effect {
        // It has a clock and random numbers, but touches nothing.
        Effect::Pure
    }
}

/// Tells code that its node doesn't wait for it any more.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Code {
    async fn call(
        &self,
        inputs: &Value,
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<NodeOutput, NodeError> {
        let mut limits = outside.code_limits;
        limits.time = self.time.map_or(limits.time, |asked| asked.min(limits.time));
        let result = match self.language {
            Language::JavaScript => {
                outside.record(context, AuditKind::Code, "javascript")?;
                let stop = Arc::new(AtomicBool::new(false));
                let _stopper = StopOnDrop(stop.clone());
                let surroundings = Surroundings { now: context.clock().now(), random: outside.random.clone(), stop };
                JavaScript.start(self.code.clone(), inputs.clone(), limits, surroundings).await
            }
            Language::Python => {
                outside.record(context, AuditKind::Code, "python3")?;
                outside.python.run(&self.code, inputs, &limits).await
            }
        };
        let result = result.map_err(|error| code_error(&error))?;
        self.output(result)
    }

    fn output(&self, result: Value) -> Result<NodeOutput, NodeError> {
        if let Some(name) = &self.output_variable {
            return Ok(NodeOutput::of([(name.as_str(), result)]));
        }
        let mut fields = match result {
            Value::Map(fields) => fields,
            other => BTreeMap::from([("result".to_owned(), other)]),
        };
        if let Some(declared) = &self.outputs {
            check(&fields, declared, "")?;
            fields.retain(|name, _| declared.contains_key(name));
        }
        Ok(NodeOutput { variables: fields, ..NodeOutput::default() })
    }
}

fn code_error(error: &CodeError) -> NodeError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    let message = format!("{error}{cause}");
    match error {
        CodeError::Process(_) => NodeError::new("SandboxError", message),
        CodeError::Result(_) | CodeError::TooMuchOutput { .. } => NodeError::new("OutputValidationError", message),
        CodeError::TimedOut { .. } => NodeError::passing("CodeExecutionError", message),
        _ => NodeError::new("CodeExecutionError", message),
    }
}

/// Whether the fields are what is declared. Null is allowed for every kind.
fn check(fields: &BTreeMap<String, Value>, declared: &BTreeMap<String, Output>, at: &str) -> Result<(), NodeError> {
    let wrong = |message: String| NodeError::new("OutputValidationError", message);
    for (name, output) in declared {
        let place = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        let Some(value) = fields.get(name) else { return Err(wrong(format!("Output {place} is missing."))) };
        check_value(value, output, &place)?;
    }
    Ok(())
}

fn check_value(value: &Value, output: &Output, place: &str) -> Result<(), NodeError> {
    let wrong = |wanted: &str| {
        let message = format!("Output {place} is not {wanted}, got {} instead.", value.kind());
        Err(NodeError::new("OutputValidationError", message))
    };
    match (output.kind.as_str(), value) {
        (_, Value::Null) => Ok(()),
        ("string" | "secret", Value::String(_)) => Ok(()),
        ("string" | "secret", _) => wrong("a string"),
        ("number" | "integer" | "float", Value::Int(_) | Value::UInt(_) | Value::Float(_)) => Ok(()),
        ("number" | "integer" | "float", _) => wrong("a number"),
        ("boolean" | "bool", Value::Bool(_)) => Ok(()),
        ("boolean" | "bool", _) => wrong("a boolean"),
        ("object", Value::Map(fields)) => match &output.children {
            Some(children) if !children.is_empty() => check(fields, children, place),
            _ => Ok(()),
        },
        ("object", _) => wrong("an object"),
        (list, Value::List(items)) if list.starts_with("array") => {
            let inner = list.strip_prefix("array[").and_then(|kind| kind.strip_suffix(']')).unwrap_or("any");
            let inner = Output { kind: inner.to_owned(), children: output.children.clone() };
            items.iter().enumerate().try_for_each(|(n, item)| check_value(item, &inner, &format!("{place}[{n}]")))
        }
        (list, _) if list.starts_with("array") => wrong("an array"),
        _ => Ok(()),
    }
}
