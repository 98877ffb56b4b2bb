//! `human-input`: asks a person and waits. The answer, checked, becomes the node's variables. With
//! `resume_mode: approval` it leaves by `approve` or `reject`.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use super::start::Kind;
use crate::inbox::{Answered, Field, Form, approved};
use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Effect, Exits, Node, NodeContext, NodeError, NodeOutput};
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
    #[serde(default)]
    label: String,
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
    fields: Vec<FieldData>,
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
    let mut fields: Vec<FieldData> = Vec::with_capacity(data.variables.len());
    for (place, field) in data.variables.into_iter().enumerate() {
        let at = root.clone().key("variables").index(place);
        if field.name.is_empty() {
            faults.add(at.clone().key("name"), "a name should be here");
        }
        if fields.iter().any(|other| other.name == field.name) {
            faults.add(at.clone().key("name"), format!("there is a variable {:?} already", field.name));
        }
        match Kind::parse(&field.kind) {
            Some(Kind::Select) if field.options.is_empty() => faults.add(at.key("options"), "options should be here"),
            Some(_) => fields.push(field),
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
    /// What the answer means for the way on.
    fn decide(&self, variables: BTreeMap<String, Value>) -> NodeOutput {
        let approved = approved(&variables);
        let output = NodeOutput { variables, ..NodeOutput::default() };
        match self.mode {
            Mode::Form => output,
            Mode::Approval => output.by(if approved == Some(true) { APPROVE } else { REJECT }),
        }
    }

    fn late(&self) -> Result<NodeOutput, NodeError> {
        let output = NodeOutput { variables: self.defaults.clone(), ..NodeOutput::default() };
        match self.on_timeout {
            OnTimeout::Fail => {
                let time = self.time.unwrap_or_default().as_secs();
                Err(NodeError::new("Timeout", format!("nobody answered within {time} s")))
            }
            OnTimeout::DefaultValue => Ok(output),
            OnTimeout::AutoApprove => Ok(output.by(APPROVE)),
            OnTimeout::AutoReject => Ok(output.by(REJECT)),
        }
    }

    fn form(&self, title: &str, defaults: Option<&Value>) -> Form {
        let fields = self.fields.iter().map(|field| Field {
            name: field.name.clone(),
            label: field.label.clone(),
            kind: field.kind.clone(),
            required: field.required,
            options: field.options.clone(),
            default: defaults.and_then(|defaults| defaults.field(&field.name)).cloned().unwrap_or_default(),
        });
        let approval = self.mode == Mode::Approval;
        Form { title: title.to_owned(), approval, fields: fields.collect(), problem: None }
    }
}

#[async_trait]
impl Node for HumanInput {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        let prompt = self.prompt.render_pool(variables)?;
        let defaults = self.fields.iter().map(|field| {
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
        let prompt = inputs.field("prompt").and_then(Value::as_str).unwrap_or_default();
        let mut form = self.form(context.title(), inputs.field("defaults"));
        for number in 1.. {
            match context.ask(number, prompt, &form, self.time).await? {
                Answered::Given(answer) => match form.accept(&answer) {
                    Ok(variables) => return Ok(self.decide(variables)),
                    // Asked again: a person can correct himself.
                    Err(wrong) => form.problem = Some(wrong),
                },
                Answered::Late => return self.late(),
                Answered::Withdrawn => break,
            }
        }
        Err(NodeError::new("NobodyAnswers", "the question was withdrawn"))
    }

    fn references(&self) -> Vec<&Selector> {
        let defaults = self.fields.iter().filter_map(|field| field.default_value_selector.as_ref());
        self.prompt.references().iter().chain(defaults).collect()
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Person]
    }

    fn effect(&self) -> Effect {
        // What it gives follows from the answer, which is kept by itself.
        Effect::Pure
    }

    fn exits(&self) -> Exits {
        match self.mode {
            Mode::Form => Exits::One,
            Mode::Approval => Exits::Named(vec![APPROVE.to_owned(), REJECT.to_owned()]),
        }
    }
}
