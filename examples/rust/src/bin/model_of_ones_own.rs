//! A document with a model of one's own, a security level, an audit sink and a store. It asks a person and ends; started
//! again with the answer it goes on, and the model isn't asked a second time.
//!
//! ```console
//! $ cargo run -p piton-examples --bin model_of_ones_own -- runs.db
//! $ cargo run -p piton-examples --bin model_of_ones_own -- runs.db yes
//! ```
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::sync::Arc;

use piton::flow::{Document, ExecutionStatus, Format, WorkflowRunner};
use piton::outside::{
    Audit, AuditEntry, AuditError, ChatAnswer, ChatError, ChatRequest, ChatStream, Model, OutsideConfig, SecurityLevel,
};
use piton::store::async_trait;

const DOCUMENT: &str = "
nodes:
  - {id: in, data: {type: start}}
  - {id: draft, data: {type: llm, model: {provider: mine, name: any}, prompt_template: [{role: user, text: A poem on bees}]}}
  - {id: review, data: {type: human-input, prompt: 'Publish {{#draft.text#}}?', variables: [{name: ok, type: string}]}}
  - {id: out, data: {type: end, outputs: [{variable: ok, value_selector: [review, ok]}]}}
edges: [{source: in, target: draft}, {source: draft, target: review}, {source: review, target: out}]
";

struct Poet;

#[async_trait]
impl Model for Poet {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatStream, ChatError> {
        Ok(ChatAnswer::text(format!("“{}”", request.messages[0].plain())).into())
    }
}

struct Printed;

impl Audit for Printed {
    fn record(&self, entry: &AuditEntry) -> Result<(), AuditError> {
        println!("audit: {:?} {} {}", entry.kind, entry.step, entry.detail);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let store = piton::open(&format!("sqlite:{}", arguments.next().ok_or("name a database")?)).await?.store;
    let mut outside = OutsideConfig::at(SecurityLevel::Strict);
    outside.models.insert("mine".to_owned(), Arc::new(Poet));
    outside.audit = Some(Arc::new(Printed));
    let runner = WorkflowRunner::builder(Document::parse(DOCUMENT, Format::Yaml)?).workflow_id("poem");
    let handle = runner.store(store).outside(outside).build().run().await?;
    match (handle.wait_or_paused().await, arguments.next()) {
        (ExecutionStatus::Paused { prompt, .. }, None) => println!("{prompt} Say it when you start this again."),
        (ExecutionStatus::Paused { .. }, Some(answer)) => {
            handle.resume_with_input([("ok".to_owned(), answer.into())].into()).await?;
            println!("{:?}", handle.wait().await);
        }
        (other, _) => println!("{other:?}"),
    }
    Ok(())
}
