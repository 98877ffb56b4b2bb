//! What workflows reach, and how far: models, the network, credentials, quotas, the audit log.
//!
//! A program gives a workflow its outside with
//! [`WorkflowRunnerBuilder::outside`](piton_flow::WorkflowRunnerBuilder::outside): a security level, endpoints for
//! models or [`Model`]s of its own, and where it is written down what was done. Here a model of the program's own
//! answers, a person agrees, and the run goes on:
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use piton::flow::{Document, ExecutionStatus, Format, WorkflowRunner};
//! use piton::outside::{
//!     Audit, AuditEntry, AuditError, ChatAnswer, ChatError, ChatRequest, ChatStream, Model, OutsideConfig, SecurityLevel,
//! };
//!
//! struct Poet;
//!
//! #[piton::store::async_trait]
//! impl Model for Poet {
//!     async fn chat(&self, request: &ChatRequest) -> Result<ChatStream, ChatError> {
//!         let asked = request.messages.last().map(|message| message.plain()).unwrap_or_default();
//!         Ok(ChatAnswer::text(format!("An ode to {asked}")).into())
//!     }
//! }
//!
//! #[derive(Default)]
//! struct Lines(Mutex<Vec<String>>);
//!
//! impl Audit for Lines {
//!     fn record(&self, entry: &AuditEntry) -> Result<(), AuditError> {
//!         self.0.lock().unwrap().push(entry.detail.clone());
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let document = Document::parse(
//!     "
//! nodes:
//!   - {id: in, data: {type: start}}
//!   - {id: write, data: {type: llm, model: {provider: poet, name: first}, prompt_template: [{role: user, text: bees}]}}
//!   - {id: agree, data: {type: human-input, prompt: '{{#write.text#}}?', variables: [{name: ok, type: boolean, required: true}]}}
//!   - {id: out, data: {type: end, outputs: [{variable: text, value_selector: [write, text]}]}}
//! edges: [{source: in, target: write}, {source: write, target: agree}, {source: agree, target: out}]
//! ",
//!     Format::Yaml,
//! )?;
//! let audit = Arc::new(Lines::default());
//! let mut outside = OutsideConfig::at(SecurityLevel::Strict);
//! outside.models.insert("poet".to_owned(), Arc::new(Poet));
//! outside.audit = Some(audit.clone());
//! let piton = piton::open("memory:").await?;
//! let handle = WorkflowRunner::builder(document).outside(outside).store(piton.store).build().run().await?;
//!
//! let ExecutionStatus::Paused { prompt, .. } = handle.wait_or_paused().await else { panic!() };
//! assert_eq!(prompt, "An ode to bees?");
//! handle.resume_with_input([("ok".to_owned(), true.into())].into()).await?;
//! let ExecutionStatus::Completed(outputs) = handle.wait().await else { panic!() };
//! assert_eq!(outputs["text"], "An ode to bees".into());
//! assert!(audit.0.lock().unwrap().contains(&"poet first".to_owned()));
//! # Ok(())
//! # }
//! ```

pub use piton_flow::{
    Audit, AuditEntry, AuditError, AuditFile, AuditKind, Credential, OutsideConfig, Quotas, SecurityLevel,
};
pub use piton_model::SecretString;
pub use piton_model::chat::{
    ChatAnswer, ChatError, ChatRequest, ChatStream, Delta, Message, Model, Price, Provider, Role, ToolCall, Usage, Wire,
};
pub use piton_model::net::NetPolicy;
