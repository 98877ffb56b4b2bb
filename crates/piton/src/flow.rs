//! Workflows from a program, scene by scene. Every example runs.
//!
//! # Without a store
//!
//! Nothing is kept, and nothing is paid for it.
//!
//! ```
//! use piton::flow::{Document, ExecutionStatus, Format, WorkflowRunner};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let schema = Document::parse(
//!     "
//! nodes:
//!   - {id: in, data: {type: start, variables: [{variable: name, required: true}]}}
//!   - {id: greet, data: {type: template-transform, template: 'Hello {{ name }}', variables: [{variable: name, value_selector: [in, name]}]}}
//!   - {id: out, data: {type: end, outputs: [{variable: text, value_selector: [greet, output]}]}}
//! edges: [{source: in, target: greet}, {source: greet, target: out}]
//! ",
//!     Format::Yaml,
//! )?;
//! let inputs = [("name".to_owned(), "Ada".into())].into();
//! let handle = WorkflowRunner::builder(schema).user_inputs(inputs).build().run().await?;
//! let ExecutionStatus::Completed(outputs) = handle.wait().await else { panic!() };
//! assert_eq!(outputs["text"], "Hello Ada".into());
//! # Ok(())
//! # }
//! ```
//!
//! # With a store
//!
//! A node marked `checkpoint: true` makes a checkpoint, as does every agent and every question. The application's own store
//! is given each as a JSON document, which [`Checkpoint`] reads; after a crash the nodes since the last one run again. When
//! the run is complete nothing is left to resume: the store is asked to delete it. A [`Store`](crate::store::Store)
//! (`.store(…)` instead of `.checkpoint_store(…)`) keeps what every node gives as it ends, and the history.
//!
//! ```
//! use std::sync::Arc;
//! use piton::flow::{Document, ExecutionStatus, Format, WorkflowRunner};
//! use piton::store::{CheckpointStore, MemoryCheckpointStore};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let schema = Document::parse("
//! # nodes:
//! #   - {id: in, data: {type: start}}
//! #   - {id: work, data: {type: template-transform, checkpoint: true, template: done, variables: []}}
//! #   - {id: out, data: {type: end, outputs: [{variable: text, value_selector: [work, output]}]}}
//! # edges: [{source: in, target: work}, {source: work, target: out}]
//! # ", Format::Yaml)?;
//! let store = Arc::new(MemoryCheckpointStore::new());
//! let handle = WorkflowRunner::builder(schema)
//!     .checkpoint_store(store.clone())
//!     .workflow_id("order-12345")
//!     .build()
//!     .run()
//!     .await?;
//! assert!(matches!(handle.wait().await, ExecutionStatus::Completed(_)));
//! assert!(store.load("order-12345").await?.is_none(), "it is over");
//! # Ok(())
//! # }
//! ```
//!
//! # After a failure or a crash
//!
//! The same id goes on where the run was left. What finished isn't done again, whether the run failed or its process
//! died.
//!
//! ```
//! # use std::sync::Arc;
//! # use piton::flow::{Document, ExecutionStatus, Format, WorkflowRunner};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let schema = Document::parse(
//!     "
//! nodes:
//!   - {id: in, data: {type: start}}
//!   - {id: pay, data: {type: command, command: [sh, -c, 'echo paid >> ledger']}}
//!   - {id: mail, data: {type: command, command: [sh, -c, 'test -e network && echo sent']}}
//!   - {id: out, data: {type: end, outputs: [{variable: mail, value_selector: [mail, stdout]}]}}
//! edges: [{source: in, target: pay}, {source: pay, target: mail}, {source: mail, target: out}]
//! ",
//!     Format::Yaml,
//! )?;
//! let store = piton::open("memory:").await?.store;
//! let order = || {
//!     WorkflowRunner::builder(schema.clone())
//!         .store(Arc::clone(&store))
//!         .workflow_id("order-12345")
//!         .folder(folder.path())
//!         .build()
//!         .run()
//! };
//! assert!(matches!(order().await?.wait().await, ExecutionStatus::Failed(_)), "there is no network");
//!
//! // Another day, another process:
//! std::fs::write(folder.path().join("network"), "")?;
//! assert!(matches!(order().await?.wait().await, ExecutionStatus::Completed(_)));
//! assert_eq!(std::fs::read_to_string(folder.path().join("ledger"))?, "paid\n", "paid once");
//! # Ok(())
//! # }
//! ```
//!
//! If what the run was begun with is no longer there (its document, its security level, kinds of nodes), `run()` is
//! [`FlowError::ResumeRejected`] with the whole report, until
//! [`ResumePolicy::Force`] says otherwise.
//!
//! # A person in the loop
//!
//! The question outlives the process; the answer may come from another one, by
//! [`answer_question`] or `piton answer`.
//!
//! ```
//! # use std::sync::Arc;
//! # use piton::flow::{Document, ExecutionStatus, Format, WorkflowRunner};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let schema = Document::parse(
//!     "
//! nodes:
//!   - {id: in, data: {type: start}}
//!   - id: approval
//!     data:
//!       type: human-input
//!       prompt: Approve this action?
//!       variables: [{name: approved, type: boolean, required: true}, {name: comments, type: string}]
//!   - {id: out, data: {type: end, outputs: [{variable: said, value_selector: [approval, comments]}]}}
//! edges: [{source: in, target: approval}, {source: approval, target: out}]
//! ",
//!     Format::Yaml,
//! )?;
//! let store = piton::open("memory:").await?.store;
//! let handle = WorkflowRunner::builder(schema).store(store).workflow_id("ticket-67890").build().run().await?;
//! let outputs = loop {
//!     match handle.wait_or_paused().await {
//!         ExecutionStatus::Paused { prompt, .. } => {
//!             assert_eq!(prompt, "Approve this action?");
//!             let input = [("approved".to_owned(), true.into()), ("comments".to_owned(), "LGTM".into())];
//!             handle.resume_with_input(input.into()).await?;
//!         }
//!         ExecutionStatus::Completed(outputs) => break outputs,
//!         other => panic!("{other:?}"),
//!     }
//! };
//! assert_eq!(outputs["said"], "LGTM".into());
//! # Ok(())
//! # }
//! ```
//!
//! # Stopping one in peace
//!
//! Nothing new begins, what runs may end within half a minute, and everything is saved. The same id goes on.
//!
//! ```
//! # use std::sync::Arc;
//! # use piton::flow::{Document, ExecutionStatus, Format, WorkflowRunner};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let schema = Document::parse("
//! # nodes:
//! #   - {id: in, data: {type: start}}
//! #   - {id: ask, data: {type: human-input, prompt: 'Ready?', variables: []}}
//! #   - {id: out, data: {type: end, outputs: []}}
//! # edges: [{source: in, target: ask}, {source: ask, target: out}]
//! # ", Format::Yaml)?;
//! # let store = piton::open("memory:").await?.store;
//! let handle = WorkflowRunner::builder(schema).store(store).workflow_id("order-123").build().run().await?;
//! handle.safe_stop().await?;
//! match handle.wait().await {
//!     ExecutionStatus::SafeStopped { checkpoint_saved, .. } => assert!(checkpoint_saved),
//!     other => panic!("{other:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Stopping all of them
//!
//! One signal for many workflows, given by the part of the program that hears that the process is to end.
//!
//! ```
//! # use std::sync::Arc;
//! # use piton::flow::{Document, ExecutionStatus, Format, WorkflowRunner};
//! use piton::flow::SafeStopSignal;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let schema = Document::parse("
//! # nodes:
//! #   - {id: in, data: {type: start}}
//! #   - {id: ask, data: {type: human-input, prompt: 'Ready?', variables: []}}
//! #   - {id: out, data: {type: end, outputs: []}}
//! # edges: [{source: in, target: ask}, {source: ask, target: out}]
//! # ", Format::Yaml)?;
//! # let store = piton::open("memory:").await?.store;
//! let shutdown = SafeStopSignal::new();
//! let mut handles = Vec::new();
//! for order in ["order-001", "order-002"] {
//!     let runner = WorkflowRunner::builder(schema.clone())
//!         .store(Arc::clone(&store))
//!         .workflow_id(order)
//!         .safe_stop_signal(shutdown.clone());
//!     handles.push(runner.build().run().await?);
//! }
//! shutdown.trigger(30); // seconds for what runs
//! for handle in handles {
//!     assert!(matches!(handle.wait().await, ExecutionStatus::SafeStopped { checkpoint_saved: true, .. }));
//! }
//! # Ok(())
//! # }
//! ```

//!
//! # A conversation
//!
//! Each turn of a chat is a run; the next one goes on with the conversation's variables and messages. The same question again
//! is the same turn, so a turn whose process died goes on.
//!
//! ```
//! # use std::sync::Arc;
//! # use piton::flow::{Document, ExecutionStatus, Format, WorkflowRunner};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let schema = Document::parse("
//! # app: {mode: advanced-chat}
//! # workflow:
//! #   graph:
//! #     nodes:
//! #     - {id: in, data: {type: start}}
//! #     - {id: say, data: {type: answer, answer: '{{#sys.dialogue_count#}}: {{#sys.query#}}'}}
//! #     edges: [{source: in, target: say}]
//! # ", Format::Yaml)?;
//! let store = piton::open("memory:").await?.store;
//! for (question, answer) in [("Who are you?", "1: Who are you?"), ("And I?", "2: And I?")] {
//!     let turn = WorkflowRunner::builder(schema.clone()).store(Arc::clone(&store)).conversation("chat-1").query(question);
//!     let ExecutionStatus::Completed(outputs) = turn.build().run().await?.wait().await else { panic!() };
//!     assert_eq!(outputs["answer"], answer.into());
//! }
//! # Ok(())
//! # }
//! ```

pub use piton_flow::{
    Checkpoint, ConsumedResources, ContextFingerprint, Document, ExecutionStatus, FlowError, Format, HandleError,
    Inputs, Limits, OpenQuestion, ResumeDiagnostic, ResumePolicy, SafeStopSignal, TraversalState, WorkflowHandle,
    WorkflowHooks, WorkflowRunner, WorkflowRunnerBuilder, answer_question, open_questions,
};
