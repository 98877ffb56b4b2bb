//! `human-input`: asks a person and waits. The answer, checked, becomes the node's variables. With
//! `resume_mode: approval` it leaves by `approve` or `reject`.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use super::start::{Kind, accept_one};
use crate::inbox::{Field, Question};
use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Exits, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::Selector;
use crate::template::Template;

const APPROVE: &str = "approve";
const REJECT: &str = "reject";

#[derive(Debug, Deserialize)]
struct Data {
    #[serde(alias = "prompt_text", default)]
    prompt: String,
    #[serde(alias = "form_fields", default)]
    variables: Vec<FieldData>,
    #[serde(default)]
    resume_mode: Mode,
    timeout_secs: Option<u64>,
    #[serde(default)]
    timeout_action: OnTimeout,
    #[serde(default)]
    timeout_default_values: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct FieldData {
    #[serde(alias = "variable")]
    name: String,
    #[serde(alias = "field_type", rename = "type", default = "text")]
    kind: String,
    #[serde(default)]
    required: bool,
    #[serde(default)]
    options: Vec<Value>,
    #[serde(alias = "default", default)]
    default_value: Value,
    default_value_selector: Option<Selector>,
}

fn text() -> String {
    "string".to_owned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Form,
    Approval,
}

/// What happens when nobody answers in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OnTimeout {
    #[default]
    Fail,
    DefaultValue,
    AutoApprove,
    AutoReject,
}

#[derive(Debug)]
struct HumanInput {
    prompt: Template,
    fields: Vec<(FieldData, Kind)>,
    mode: Mode,
    time: Option<Duration>,
    on_timeout: OnTimeout,
    defaults: BTreeMap<String, Value>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let mut faults = Faults::default();
    let root = Path::root();
    let prompt = Template::prompt(&data.prompt);
    let prompt = faults.keep(prompt.map_err(|message| Faults::one(root.clone().key("prompt"), message)));
    let mut fields: Vec<(FieldData, Kind)> = Vec::with_capacity(data.variables.len());
    for (place, field) in data.variables.into_iter().enumerate() {
        let at = root.clone().key("variables").index(place);
        if field.name.is_empty() {
            faults.add(at.clone().key("name"), "a name should be here");
        }
        if fields.iter().any(|(other, _)| other.name == field.name) {
            faults.add(at.clone().key("name"), format!("there is a variable {:?} already", field.name));
        }
        match Kind::parse(&field.kind) {
            Some(Kind::Select) if field.options.is_empty() => faults.add(at.key("options"), "options should be here"),
            Some(kind) => fields.push((field, kind)),
            None => faults.add(at.key("type"), format!("there is no type {:?}", field.kind)),
        }
    }
    let automatic = matches!(data.timeout_action, OnTimeout::AutoApprove | OnTimeout::AutoReject);
    if automatic && data.resume_mode != Mode::Approval {
        faults.add(root.clone().key("timeout_action"), "only what is approved or rejected can be so by itself");
    }
    if data.timeout_action == OnTimeout::DefaultValue && data.timeout_default_values.is_empty() {
        faults.add(root.key("timeout_default_values"), "values should be here");
    }
    let Some(prompt) = prompt else { return Err(faults) };
    faults.none_or(Box::new(HumanInput {
        prompt,
        fields,
        mode: data.resume_mode,
        time: data.timeout_secs.map(Duration::from_secs),
        on_timeout: data.timeout_action,
        defaults: data.timeout_default_values,
    }))
}

impl HumanInput {
    /// The variables of an answer, or what is wrong with it.
    fn accept(&self, answer: &Value, defaults: &Value) -> Result<BTreeMap<String, Value>, String> {
        let Value::Map(given) = answer else { return Err(format!("an answer is a map, not {}", answer.kind())) };
        let mut accepted = given.clone();
        let mut wrong = Vec::new();
        for (field, kind) in &self.fields {
            let default = defaults.field(&field.name).unwrap_or(&Value::Null);
            let value = given.get(&field.name).filter(|value| **value != Value::Null).unwrap_or(default);
            if *value == Value::Null {
                if field.required {
                    wrong.push(format!("{:?} is required", field.name));
                }
                accepted.insert(field.name.clone(), Value::Null);
                continue;
            }
            match accept_one(*kind, value, &field.options, None) {
                Ok(value) => drop(accepted.insert(field.name.clone(), value)),
                Err(message) => wrong.push(format!("{:?}: {message}", field.name)),
            }
        }
        if wrong.is_empty() { Ok(accepted) } else { Err(wrong.join("; ")) }
    }

    /// What the answer means for the way on.
    fn decide(&self, variables: BTreeMap<String, Value>) -> NodeOutput {
        let approved =
            ["approved", "decision", "__decision", "action"].iter().find_map(|name| match variables.get(*name)? {
                Value::Bool(approved) => Some(*approved),
                Value::String(text) => Some(matches!(text.as_str(), "approve" | "approved" | "yes" | "true")),
                _ => None,
            });
        let output = NodeOutput { variables, ..NodeOutput::default() };
        match self.mode {
            Mode::Form => output,
            Mode::Approval => output.by(if approved == Some(true) { APPROVE } else { REJECT }),
        }
    }
}

#[async_trait]
impl Node for HumanInput {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        let prompt = self.prompt.render_pool(variables)?;
        let defaults = self.fields.iter().map(|(field, _)| {
            let selected = field.default_value_selector.as_ref().map(|selector| variables.select(selector));
            let value = if field.default_value == Value::Null {
                selected.unwrap_or_default()
            } else {
                field.default_value.clone()
            };
            (field.name.as_str(), value)
        });
        Ok(Value::map([("prompt", prompt.into()), ("defaults", Value::map(defaults))]))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let defaults = inputs.field("defaults").cloned().unwrap_or_default();
        let fields = self.fields.iter().map(|(field, _)| Field {
            name: field.name.clone(),
            kind: field.kind.clone(),
            required: field.required,
        });
        let mut question = Question {
            step: context.step().clone(),
            title: context.title().to_owned(),
            prompt: inputs.field("prompt").and_then(Value::as_str).unwrap_or_default().to_owned(),
            fields: fields.collect(),
            problem: None,
        };
        let asked = async {
            loop {
                let answer = context.ask(question.clone()).await?;
                match self.accept(&answer, &defaults) {
                    Ok(variables) => return Ok(self.decide(variables)),
                    // Asked again: a person can correct himself.
                    Err(wrong) => question.problem = Some(wrong),
                }
            }
        };
        let Some(time) = self.time else { return asked.await };
        let late = match tokio::time::timeout(time, asked).await {
            Ok(answered) => return answered,
            Err(late) => late,
        };
        let output = NodeOutput { variables: self.defaults.clone(), ..NodeOutput::default() };
        match self.on_timeout {
            OnTimeout::Fail => {
                Err(NodeError::new("Timeout", format!("nobody answered within {} s: {late}", time.as_secs())))
            }
            OnTimeout::DefaultValue => Ok(output),
            OnTimeout::AutoApprove => Ok(output.by(APPROVE)),
            OnTimeout::AutoReject => Ok(output.by(REJECT)),
        }
    }

    fn references(&self) -> Vec<&Selector> {
        let defaults = self.fields.iter().filter_map(|(field, _)| field.default_value_selector.as_ref());
        self.prompt.references().iter().chain(defaults).collect()
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Person]
    }

    fn exits(&self) -> Exits {
        match self.mode {
            Mode::Form => Exits::One,
            Mode::Approval => Exits::Named(vec![APPROVE.to_owned(), REJECT.to_owned()]),
        }
    }
}
