//! What nodes have in common that let a model read one text and say something about it: which text and which model,
//! what the document tells the model besides, and what was said and shown before.

use piton_model::chat::{ChatRequest, Message, Role};
use piton_types::Value;

use super::model::ModelSpec;
use super::prompt::{Memory, Pictures};
use crate::kind::Faults;
use crate::need::Need;
use crate::node::NodeContext;
use crate::pool::VariablePool;
use crate::reply::Reply;
use crate::selector::Selector;
use crate::value::to_text;

/// A text that a model reads.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) model: ModelSpec,
    text: Selector,
    instruction: Reply,
    memory: Option<Memory>,
    pictures: Option<Pictures>,
}

impl Reading {
    /// With `memory` and `vision` of a node's data.
    pub(super) fn read(
        model: ModelSpec,
        text: Selector,
        instruction: Option<&str>,
        data: &Value,
    ) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let memory = faults.keep(Memory::read(data)).flatten();
        let pictures = faults.keep(Pictures::read(data)).flatten();
        let instruction = Reply::parse(instruction.unwrap_or_default());
        faults.none_or(Self { model, text, instruction, memory, pictures })
    }

    pub(super) fn inputs(&self, variables: &VariablePool) -> Value {
        Value::map([
            ("query", to_text(&variables.select(&self.text)).into()),
            ("instruction", self.instruction.render(variables).into()),
        ])
    }

    pub(super) fn references(&self) -> Vec<&Selector> {
        let pictures = self.pictures.iter().flat_map(Pictures::references);
        self.instruction.references().chain([&self.text]).chain(pictures).collect()
    }

    pub(super) fn need(&self) -> Need {
        self.model.need()
    }

    /// The request: the task, what the document says to it, the form that the answer should have, and then the text.
    pub(super) fn request(&self, task: &str, form: &str, inputs: &Value, context: &NodeContext<'_>) -> ChatRequest {
        let given = |key: &str| inputs.field(key).and_then(Value::as_str).unwrap_or_default();
        let mut rules = task.to_owned();
        let instruction = given("instruction").trim();
        if !instruction.is_empty() {
            rules.push_str(&format!("\nInstructions:\n{instruction}\n"));
        }
        rules.push_str(&format!("\n{form}"));
        let mut messages = vec![Message::text(Role::System, rules)];
        let variables = context.variables();
        messages.extend(self.memory.iter().flat_map(|memory| memory.earlier(variables)));
        messages.push(Message::text(Role::User, given("query")));
        if let Some(pictures) = &self.pictures {
            pictures.show(&mut messages, variables);
        }
        let mut request = self.model.request(messages);
        request.key = context.next_key();
        request
    }
}
