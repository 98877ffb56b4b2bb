//! `llm`: asks a model. Gives `text`, `usage`, `finish_reason`, `reasoning_content`, and `structured_output` if
//! the document wants an answer of a form.
//!
//! What the model writes is a value like any other: nothing renders it as a template again.

use async_trait::async_trait;
use piton_model::chat::{Finish, Format, Message};
use piton_types::{Value, from_value, to_value};
use serde::Deserialize;

use super::model::{ModelSpec, json_in, usage};
use super::prompt::Prompt;
use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Node, NodeContext, NodeError, NodeOutput};
use crate::outside::Outside;
use crate::pool::VariablePool;
use crate::selector::Selector;

#[derive(Debug, Deserialize)]
struct Data {
    /// The model.
    model: ModelSpec,
    /// Its text is told as it comes; that is so if nothing is said.
    #[serde(default)]
    stream: Option<bool>,
    /// The form that the answer must have.
    #[serde(default)]
    structured_output: Option<StructuredOutput>,
    /// Whether that counts, in an export.
    #[serde(default)]
    structured_output_enabled: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct StructuredOutput {
    /// A JSON schema.
    #[serde(default)]
    schema: Value,
    /// What the form is called.
    #[serde(default)]
    name: Option<String>,
    /// Whether it counts.
    #[serde(default)]
    enabled: Option<bool>,
}

#[derive(Debug)]
struct Llm {
    model: ModelSpec,
    prompt: Prompt,
    is_streamed: bool,
    form: Option<Format>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let mut faults = Faults::default();
    let data: Option<Data> = faults.keep(build.data());
    let prompt = faults.keep(Prompt::read(build));
    let (Some(data), Some(prompt)) = (data, prompt) else { return Err(faults) };
    let wanted = |output: &StructuredOutput| {
        data.structured_output_enabled.or(output.enabled).unwrap_or(true) && output.schema != Value::Null
    };
    let form = data.structured_output.as_ref().filter(|output| wanted(output)).map(|output| Format::Schema {
        name: output.name.clone().unwrap_or_else(|| "answer".to_owned()),
        schema: output.schema.clone(),
    });
    Ok(Box::new(Llm { model: data.model, prompt, is_streamed: data.stream.unwrap_or(true), form }))
}

#[async_trait]
impl Node for Llm {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        let messages = self.prompt.render(variables)?;
        let messages = to_value(&messages).map_err(|error| NodeError::new("PromptError", error.to_string()))?;
        Ok(Value::map([("messages", messages), ("model", self.model.name.as_str().into())]))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let outside = Outside::of(context)?;
        outside.guard(context, self.ask(inputs, context, outside)).await
    }

    fn gives(&self) -> Option<Vec<&str>> {
        Some(vec!["text", "usage", "finish_reason", "reasoning_content", "structured_output"])
    }

    fn references(&self) -> Vec<&Selector> {
        self.prompt.references()
    }

    fn needs(&self) -> Vec<Need> {
        vec![self.model.need()]
    }
}

impl Llm {
    async fn ask(&self, inputs: &Value, context: &NodeContext<'_>, outside: &Outside) -> Result<NodeOutput, NodeError> {
        let messages: Vec<Message> = inputs
            .field("messages")
            .and_then(|messages| from_value(messages.clone()).ok())
            .ok_or("its inputs have no messages")?;
        let mut request = self.model.request(messages);
        request.key = context.next_key();
        request.stream = self.is_streamed;
        if let Some(form) = &self.form {
            request.format = form.clone();
        }
        let said = outside.ask(context, &self.model.provider, &request, Some("text")).await?;
        let finish = said.answer.finish.as_ref().map(|finish| match finish {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::ToolCalls => "tool_calls",
            Finish::Other(other) => other,
        });
        let mut output = NodeOutput::of([
            ("text", Value::from(said.answer.text.as_str())),
            ("usage", usage(&said)),
            ("finish_reason", finish.map_or(Value::Null, Value::from)),
            ("reasoning_content", said.answer.reasoning.as_str().into()),
        ]);
        if self.form.is_some() {
            let broken =
                || NodeError::passing("OutputParserError", "the model's answer is not the JSON that was asked for");
            output.variables.insert("structured_output".to_owned(), json_in(&said.answer.text).ok_or_else(broken)?);
        }
        Ok(output)
    }
}
