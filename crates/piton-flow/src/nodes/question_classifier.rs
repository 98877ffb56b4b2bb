//! `question-classifier`: a model says which class a text belongs to, and the run leaves by that exit. Gives
//! `category_id`, `class_id`, `class_name`, `usage`.

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use super::model::{ModelSpec, json_in, usage};
use super::reading::Reading;
use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Exits, Node, NodeContext, NodeError, NodeOutput};
use crate::outside::Outside;
use crate::pool::VariablePool;
use crate::selector::Selector;

/// The exit for a text that is in none of the classes.
const DEFAULT: &str = "default";

#[derive(Debug, Deserialize)]
struct Data {
    /// The model.
    model: ModelSpec,
    /// The question.
    query_variable_selector: Selector,
    /// What it may be; each is an exit.
    #[serde(alias = "categories")]
    classes: Vec<Class>,
    /// What else the model is told; a template.
    #[serde(default)]
    instruction: Option<String>,
    /// Exports of some versions have both.
    #[serde(default)]
    instructions: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Class {
    /// The name of the exit.
    #[serde(alias = "category_id")]
    id: String,
    /// What belongs there, for the model.
    #[serde(alias = "category_name")]
    name: String,
}

#[derive(Debug)]
struct QuestionClassifier {
    reading: Reading,
    classes: Vec<Class>,
    /// Whether a text in none of the classes has an exit; exports have none.
    has_default: bool,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let mut faults = Faults::default();
    let data: Option<Data> = faults.keep(build.data());
    let Some(data) = data else { return Err(faults) };
    let key = if build.spec.data.field("categories").is_some() { "categories" } else { "classes" };
    let at = Path::root().key(key);
    if data.classes.is_empty() {
        faults.add(at.clone(), "question-classifier categories must not be empty");
    }
    for (place, class) in data.classes.iter().enumerate() {
        let at = at.clone().index(place);
        if class.id.trim().is_empty() {
            faults.add(at.clone(), "question-classifier category_id must not be empty");
        }
        if key == "categories" && class.name.trim().is_empty() {
            faults.add(at.clone(), "question-classifier category_name must not be empty");
        }
        if key == "categories" && class.id == DEFAULT {
            faults.add(at.clone(), "question-classifier category_id must not be 'default'");
        }
        if data.classes[..place].iter().any(|other| other.id == class.id) {
            faults.add(at, format!("duplicate question-classifier category_id: {}", class.id));
        }
    }
    let instruction = data.instruction.filter(|text| !text.is_empty()).or(data.instructions);
    let reading = Reading::read(data.model, data.query_variable_selector, instruction.as_deref(), &build.spec.data);
    let Some(reading) = faults.keep(reading) else { return Err(faults) };
    let has_default = key == "categories";
    faults.none_or(Box::new(QuestionClassifier { reading, classes: data.classes, has_default }))
}

#[async_trait]
impl Node for QuestionClassifier {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(self.reading.inputs(variables))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let outside = Outside::of(context)?;
        outside.guard(context, self.classify(inputs, context, outside)).await
    }

    fn references(&self) -> Vec<&Selector> {
        self.reading.references()
    }

    fn needs(&self) -> Vec<Need> {
        vec![self.reading.need()]
    }

    fn exits(&self) -> Exits {
        let mut exits: Vec<String> = self.classes.iter().map(|class| class.id.clone()).collect();
        exits.push(DEFAULT.to_owned());
        Exits::Named(exits)
    }
}

impl QuestionClassifier {
    async fn classify(
        &self,
        inputs: &Value,
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<NodeOutput, NodeError> {
        let mut task = "You sort texts into classes. Choose exactly one class for the text.\n\nClasses:\n".to_owned();
        for class in &self.classes {
            task.push_str(&format!("- id: {:?}, name: {:?}\n", class.id, class.name));
        }
        let form = "Answer with a JSON object and nothing else: {\"category_id\": \"<id>\"}";
        let mut request = self.reading.request(&task, form, inputs, context);
        request.max_tokens.get_or_insert(256);
        request.parameters.entry("temperature".to_owned()).or_insert_with(|| 0.into());
        let said = outside.ask(context, &self.reading.model.provider, &request, None).await?;
        let id = class_in(&said.answer.text).ok_or_else(|| {
            let message = format!("Failed to parse question-classifier response: {}", said.answer.text);
            NodeError::new("ClassifierError", message)
        })?;
        let class = self.classes.iter().find(|class| class.id == id || class.name == id);
        let (id, name) = match (class, self.has_default) {
            (Some(class), _) => (class.id.as_str(), class.name.as_str()),
            (None, true) => (DEFAULT, DEFAULT),
            // An export has no other exit than its classes.
            (None, false) => {
                self.classes.first().map_or((DEFAULT, DEFAULT), |class| (class.id.as_str(), class.name.as_str()))
            }
        };
        let variables = [
            ("category_id", Value::from(id)),
            ("class_id", id.into()),
            ("class_name", name.into()),
            ("usage", usage(&said)),
        ];
        Ok(NodeOutput::of(variables).by(id))
    }
}

/// The class that an answer names: in JSON, or as the only word.
fn class_in(answer: &str) -> Option<String> {
    let named = json_in(answer).and_then(|value| {
        let id = value.field("category_id").or_else(|| value.field("class_id"))?.as_str()?.trim().to_owned();
        Some(id).filter(|id| !id.is_empty())
    });
    named.or_else(|| {
        let bare = answer.trim().trim_matches('"').trim();
        (!bare.is_empty() && !bare.contains(char::is_whitespace)).then(|| bare.to_owned())
    })
}
