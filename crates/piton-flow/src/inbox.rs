//! Questions to people, and how they get their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use piton_types::{StepPath, Value};
use serde::{Deserialize, Serialize};

use crate::activity::Activity;
use crate::control::{Control, Pausing};
use crate::journal::JournalError;
use crate::nodes::{Kind, accept_one};

/// A question of a node to a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The question's place in the run: that of the node that asks, and a number if it asks again.
    pub step: StepPath,
    /// What is asked.
    pub prompt: String,
    /// What the answer should look like.
    pub form: Form,
    /// How long to wait for it; for ever, if nothing is said.
    pub timeout: Option<Duration>,
}

/// What an answer should look like.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Form {
    /// What people call the node that asks.
    pub title: String,
    /// Whether something is to be approved or rejected.
    #[serde(default)]
    pub approval: bool,
    /// The variables that the answer should have.
    pub fields: Vec<Field>,
    /// What was wrong with the last answer, if it is asked again.
    #[serde(default)]
    pub problem: Option<String>,
}

/// A variable of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What people call it, if it isn't the name.
    #[serde(default)]
    pub label: String,
    /// What it should be, as in `string`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether there is no answer without it.
    pub required: bool,
    /// What it may be, if that is limited.
    #[serde(default)]
    pub options: Vec<Value>,
    /// What it is if the answer doesn't say.
    #[serde(default)]
    pub default: Value,
}

/// Names by which an answer says whether something is approved.
const DECISIONS: [&str; 4] = ["approved", "decision", "__decision", "action"];

impl Form {
    /// The variables of an answer: as the form wants them, with its defaults, and with what else was said.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, in one text.
    pub fn accept(&self, answer: &Value) -> Result<BTreeMap<String, Value>, String> {
        let Value::Map(given) = answer else { return Err(format!("an answer is a map, not {}", answer.kind())) };
        let mut accepted = given.clone();
        let mut wrong = Vec::new();
        for field in &self.fields {
            let value = given.get(&field.name).filter(|value| **value != Value::Null).unwrap_or(&field.default);
            if *value == Value::Null {
                if field.required {
                    wrong.push(format!("{:?} is required", field.name));
                }
                accepted.insert(field.name.clone(), Value::Null);
                continue;
            }
            match Kind::parse(&field.kind).map(|kind| accept_one(kind, value, &field.options, None)) {
                Some(Ok(value)) => drop(accepted.insert(field.name.clone(), value)),
                Some(Err(unfit)) => wrong.push(format!("{:?}: {unfit}", field.name)),
                None => {}
            }
        }
        if wrong.is_empty() { Ok(accepted) } else { Err(wrong.join("; ")) }
    }

    /// [`accept`](Self::accept) for the caller that hands an answer in: nothing but what the form asks for may be in it, and
    /// what is to be approved must be approved or rejected.
    pub fn check(&self, answer: &Value) -> Result<BTreeMap<String, Value>, String> {
        let accepted = self.accept(answer)?;
        let is_asked = |name: &str| {
            self.fields.iter().any(|field| field.name == name) || (self.approval && DECISIONS.contains(&name))
        };
        let asks_anything = self.approval || !self.fields.is_empty();
        if let Some(name) = accepted.keys().find(|name| asks_anything && !is_asked(name)) {
            let known = self.fields.iter().map(|field| field.name.as_str());
            let hint = crate::graph::nearest(name, known).map(|near| format!("; did you mean {near:?}?"));
            return Err(format!("it doesn't ask for {name:?}{}", hint.unwrap_or_default()));
        }
        let is_field = |name: &str| self.fields.iter().any(|field| field.name == name);
        if self.approval && approved(&accepted, is_field).is_none() {
            return Err("say whether it is approved: approved=true or approved=false".to_owned());
        }
        Ok(accepted)
    }
}

/// Whether an answer approves; `None` if it doesn't say, or not in words that are known. What is `declared` as a field of
/// the form is one, whatever its name; but for `approved`, which says the same either way.
pub(crate) fn approved(answer: &BTreeMap<String, Value>, declared: impl Fn(&str) -> bool) -> Option<bool> {
    let decisions = DECISIONS.iter().filter(|name| **name == DECISIONS[0] || !declared(name));
    decisions.filter_map(|name| answer.get(*name)).find_map(|said| match said {
        Value::Bool(approved) => Some(*approved),
        Value::String(text) => yes_or_no(text),
        _ => None,
    })
}

/// What a word says to a question that wants yes or no; `None` if it may be either.
///
/// ```
/// assert_eq!(["Yes", "rejected", "maybe"].map(piton_flow::yes_or_no), [Some(true), Some(false), None]);
/// ```
pub fn yes_or_no(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "y" | "yes" | "true" | "ok" | "approve" | "approved" | "accept" | "accepted" => Some(true),
        "n" | "no" | "false" | "reject" | "rejected" | "deny" | "denied" | "decline" | "declined" => Some(false),
        _ => None,
    }
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Answered {
    /// A person said this.
    Given(Value),
    /// There was no answer in time.
    Late,
    /// There will be no answer.
    Withdrawn,
}

/// A node that waits for an answer. It counts as working except while it waits [here](Self::until): only then may the
/// run be put aside, and no time is counted.
#[derive(Debug)]
pub struct Waiting<'a> {
    pub(crate) activity: &'a Activity<'a>,
    pub(crate) control: Option<&'a Control>,
    pub(crate) step: &'a StepPath,
}

impl Waiting<'_> {
    /// Waits for something that may take for ever. It may be dropped at any time.
    pub async fn until<T>(&self, event: impl Future<Output = T>) -> T {
        let _pausing = self.pausing();
        self.rest(event).await
    }

    /// From now on the node waits for a person: a stop doesn't cut it short, whatever it looks up meanwhile.
    pub(crate) fn pausing(&self) -> Pausing<'_> {
        Pausing::at(self.step, self.control)
    }

    /// [Waits](Self::until) while the node is [pausing](Self::pausing).
    pub(crate) async fn rest<T>(&self, event: impl Future<Output = T>) -> T {
        let _rest = self.activity.rest();
        event.await
    }
}

/// Gets answers. The engine has none of its own.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Gets the answer to a question, and waits for it by [`Waiting::until`]. Dropped when the run stops; asked again
    /// when it goes on.
    ///
    /// # Errors
    ///
    /// If the question can't be put down: then the run stops.
    async fn ask(&self, question: Question, waiting: &Waiting<'_>) -> Result<Answered, JournalError>;
}
