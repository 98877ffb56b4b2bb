//! `human-input`: asks a person and waits. The answer, checked, becomes the node's variables. With
//! `resume_mode: approval` it leaves by `approve` or `reject`.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use super::start::{Kind, accept_one, is_given};
use crate::inbox::{Answered, Field, Form, approved};
use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Effect, Exits, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::Selector;
use crate::template::Template;
use crate::value::to_text;

const APPROVE: &str = "approve";
const REJECT: &str = "reject";

/// In exports: which button was chosen, and the exit when the person chose none in time.
const ACTION: &str = "__action_id";
const TIMEOUT: &str = "__timeout";

/// The setting with what stands for an answer that doesn't come.
const LATE: &str = "timeout_default_values";

#[derive(Debug, Deserialize)]
struct Data {
    /// What is asked; a template.
    #[serde(alias = "prompt_text", default)]
    prompt: String,
    /// The fields of the answer.
    #[serde(alias = "form_fields", default)]
    variables: Vec<FieldData>,
    /// `form` for an answer with fields, `approval` for a yes or no with the exits `approve` and `reject`.
    #[serde(default)]
    resume_mode: Mode,
    /// How long it waits; for ever if nothing is said.
    timeout_secs: Option<u64>,
    /// What happens then: `fail`, `default_value`, `auto_approve` or `auto_reject`.
    #[serde(default)]
    timeout_action: OnTimeout,
    /// The answer that is taken then.
    #[serde(default)]
    timeout_default_values: BTreeMap<String, Value>,
    /// In an export: the text, with places for its inputs, the buttons to leave by, and how long it waits.
    form_content: Option<String>,
    /// The fields of an export's form.
    #[serde(default)]
    inputs: Vec<InputData>,
    /// The buttons of an export; each is an exit.
    #[serde(default)]
    user_actions: Vec<Action>,
    /// In an export: how long it waits, in `timeout_unit`.
    timeout: Option<f64>,
    /// `hour` or `day`.
    timeout_unit: Option<String>,
}

/// An input of an export's form.
#[derive(Debug, Deserialize)]
struct InputData {
    /// The name of the field.
    output_variable_name: String,
    /// `text` or `paragraph`.
    #[serde(rename = "type", default = "text")]
    kind: String,
    /// What stands in it at first.
    default: Option<DefaultData>,
}

#[derive(Debug, Deserialize)]
struct DefaultData {
    /// `variable` or `constant`.
    #[serde(rename = "type", default)]
    kind: String,
    /// Where the value is.
    #[serde(default)]
    selector: Value,
    /// The value.
    #[serde(default)]
    value: Value,
}

/// A button.
#[derive(Debug, Deserialize)]
struct Action {
    /// The name of the exit.
    id: String,
}

impl From<InputData> for FieldData {
    fn from(input: InputData) -> Self {
        let DefaultData { kind, selector, value } =
            input.default.unwrap_or(DefaultData { kind: String::new(), selector: Value::Null, value: Value::Null });
        let selected = kind == "variable";
        Self {
            name: input.output_variable_name,
            label: String::new(),
            kind: input.kind,
            required: false,
            options: Vec::new(),
            default_value: if selected { Value::Null } else { value },
            default_value_selector: selected.then(|| piton_types::from_value(selector).ok()).flatten(),
        }
    }
}

#[derive(Debug, Deserialize)]
struct FieldData {
    /// Its name.
    #[serde(alias = "variable")]
    name: String,
    /// What people call it.
    #[serde(default)]
    label: String,
    /// `string`, `number`, `boolean`, `select`, `object` and the like; a text if nothing is said.
    #[serde(alias = "field_type", rename = "type", default = "text")]
    kind: String,
    /// There is no answer without it.
    #[serde(default)]
    required: bool,
    /// What it may be.
    #[serde(default)]
    options: Vec<Value>,
    /// What it is if the answer doesn't say.
    #[serde(alias = "default", default)]
    default_value: Value,
    /// Where that value is.
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
    /// By one of several buttons.
    #[serde(skip)]
    Actions,
}

/// What happens when no person answers in time.
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
    /// The exits of an export's buttons.
    actions: Vec<String>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let mut data: Data = build.data()?;
    if let Some(text) = data.form_content.take() {
        data.prompt = without_places(&text);
    }
    data.variables.extend(data.inputs.drain(..).map(FieldData::from));
    let actions: Vec<String> = data.user_actions.drain(..).map(|action| action.id).collect();
    if !actions.is_empty() {
        data.resume_mode = Mode::Actions;
        data.variables.push(FieldData {
            name: ACTION.to_owned(),
            label: String::new(),
            kind: "select".to_owned(),
            required: true,
            options: actions.iter().map(|action| action.as_str().into()).collect(),
            default_value: Value::Null,
            default_value_selector: None,
        });
        let unit = if data.timeout_unit.as_deref() == Some("hour") { 3600.0 } else { 86_400.0 };
        let seconds = data.timeout.map(|timeout| timeout * unit).filter(|seconds| *seconds >= 1.0);
        data.timeout_secs = data.timeout_secs.or(seconds.map(|seconds| seconds as u64));
    }
    let mut faults = Faults::default();
    let root = Path::root();
    let prompt = Template::prompt(&data.prompt, build.functions());
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
            Some(kind) => {
                if build.is_strict() && is_given(&field.default_value) {
                    let fits = accept_one(kind, &field.default_value, &field.options, None);
                    let at = at.key(default_key(build, place));
                    let _ = fits.map_err(|unfit| unfit.tell(at, &mut faults));
                }
                fields.push(field);
            }
            None => faults.add(at.key("type"), format!("there is no type {:?}", field.kind)),
        }
    }
    let automatic = matches!(data.timeout_action, OnTimeout::AutoApprove | OnTimeout::AutoReject);
    if automatic && data.resume_mode != Mode::Approval {
        faults.add(root.clone().key("timeout_action"), "only what is approved or rejected can be so by itself");
    }
    if data.timeout_action == OnTimeout::DefaultValue && data.timeout_default_values.is_empty() {
        faults.add(root.key(LATE), "values should be here");
    }
    let defaults = late_values(build, data.timeout_default_values, &fields, &mut faults);
    let Some(prompt) = prompt else { return Err(faults) };
    faults.none_or(Box::new(HumanInput {
        prompt,
        fields,
        mode: data.resume_mode,
        time: data.timeout_secs.map(Duration::from_secs),
        on_timeout: data.timeout_action,
        defaults,
        actions,
    }))
}

/// By which of its names the default of a field is written.
fn default_key(build: &Build<'_>, place: usize) -> &'static str {
    let fields = ["variables", "form_fields"].iter().find_map(|key| build.spec.data.field(key)?.as_list());
    let has = |key: &str| fields.and_then(|fields| fields.get(place)?.field(key)).is_some();
    if has("default") { "default" } else { "default_value" }
}

/// What stands for an answer that doesn't come, as its fields want it. It is checked now, because no person will be
/// there to correct it then.
fn late_values(
    build: &Build<'_>,
    values: BTreeMap<String, Value>,
    fields: &[FieldData],
    faults: &mut Faults,
) -> BTreeMap<String, Value> {
    let mut accepted = BTreeMap::new();
    for (name, value) in values {
        let field = fields.iter().find(|field| field.name == name);
        let kind = field.and_then(|field| Some((Kind::parse(&field.kind)?, field.options.as_slice())));
        let fits = match kind {
            Some((kind, options)) => accept_one(kind, &value, options, None),
            None => Ok(value.clone()),
        };
        let value = fits.unwrap_or_else(|unfit| {
            if build.is_strict() {
                unfit.tell(Path::root().key(LATE).key(name.as_str()), faults);
            }
            value
        });
        accepted.insert(name, value);
    }
    accepted
}

/// The text without the places of its inputs, which are asked for by name.
fn without_places(text: &str) -> String {
    let mut parts = text.split("{{#$output.");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("#}}").unwrap_or(("", part));
        out.push_str(&format!("[{name}]{rest}"));
    }
    out
}

impl HumanInput {
    /// What the answer means for the way on.
    fn decide(&self, variables: BTreeMap<String, Value>) -> NodeOutput {
        let approved = approved(&variables, |name| self.fields.iter().any(|field| field.name == name));
        let output = NodeOutput { variables, ..NodeOutput::default() };
        match self.mode {
            Mode::Form => output,
            Mode::Approval => output.by(if approved == Some(true) { APPROVE } else { REJECT }),
            Mode::Actions => {
                let action = output.variables.get(ACTION).map(to_text).unwrap_or_default();
                output.by(action)
            }
        }
    }

    fn late(&self) -> Result<NodeOutput, NodeError> {
        let output = NodeOutput { variables: self.defaults.clone(), ..NodeOutput::default() };
        match self.on_timeout {
            OnTimeout::Fail if self.mode == Mode::Actions => Ok(output.by(TIMEOUT)),
            OnTimeout::Fail => {
                let time = self.time.unwrap_or_default().as_secs();
                Err(NodeError::new("Timeout", format!("no answer came within {time} s")))
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
        Err(NodeError::new("NoAnswer", "the question was withdrawn"))
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
            Mode::Actions => Exits::Named(self.actions.iter().cloned().chain([TIMEOUT.to_owned()]).collect()),
        }
    }
}
