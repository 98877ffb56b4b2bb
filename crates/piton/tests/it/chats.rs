//! Conversations from a program (F13).

use std::sync::Arc;

use piton::flow::{Document, ExecutionStatus, FlowError, Format, WorkflowRunner, WorkflowRunnerBuilder};
use piton::run::Value;
use piton::store::{MemoryCheckpointStore, Store};

fn chat() -> Document {
    let text = "
app: {mode: advanced-chat, name: parrot}
workflow:
  features: {opening_statement: 'Hello {{who}}.', suggested_questions: [Why?, '']}
  conversation_variables: [{name: said, value_type: 'array[string]', value: []}]
  graph:
    nodes:
    - {id: in, data: {type: start, variables: []}}
    - {id: keep, data: {type: assigner, version: '2', items: [{variable_selector: [conversation, said], input_type: variable, operation: append, value: [sys, query]}]}}
    - {id: fail, data: {type: if-else, cases: [{case_id: bad, logical_operator: and, conditions: [{variable_selector: [sys, query], comparison_operator: is, value: fail}]}]}}
    - {id: broken, data: {type: command, command: ['false']}}
    - {id: say, data: {type: answer, answer: '{{#sys.dialogue_count#}} {{#conversation.said#}} {{#sys.user_id#}}'}}
    edges: [{source: in, target: keep}, {source: keep, target: fail}, {source: fail, sourceHandle: bad, target: broken}, {source: fail, sourceHandle: 'false', target: say}]
";
    Document::parse(text, Format::Yaml).unwrap()
}

fn turn(store: &Arc<dyn Store>, question: &str) -> WorkflowRunnerBuilder {
    WorkflowRunner::builder(chat()).store(Arc::clone(store)).conversation("c1").query(question)
}

async fn answer(builder: WorkflowRunnerBuilder) -> Result<Value, String> {
    match builder.build().run().await.unwrap().wait().await {
        ExecutionStatus::Completed(outputs) => Ok(outputs["answer"].clone()),
        ExecutionStatus::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

/// F13: a conversation goes on from turn to turn; one that failed is tried again or gone past.
#[tokio::test]
async fn a_conversation_goes_on_over_runs() {
    let store = piton::open("memory:").await.unwrap().store;
    let user = [("user_id".to_owned(), "ada".into())].into();
    assert_eq!(answer(turn(&store, "one").system_variables(user)).await, Ok("1 [\"one\"] ada".into()));
    assert_eq!(answer(turn(&store, "two")).await, Ok("2 [\"one\",\"two\"] ada".into()));
    assert_eq!(answer(turn(&store, "two")).await, Ok("2 [\"one\",\"two\"] ada".into()), "the same turn");
    let again = turn(&store, "two").conversation_turn("c1", 3);
    assert_eq!(answer(again).await, Ok("3 [\"one\",\"two\",\"two\"] ada".into()));
    assert!(answer(turn(&store, "fail")).await.is_err());
    assert!(answer(turn(&store, "fail")).await.is_err(), "it is tried again");
    let past = answer(turn(&store, "five")).await;
    assert_eq!(past, Ok("5 [\"one\",\"two\",\"two\",\"five\"] ada".into()), "what failed left nothing");
    let missing = turn(&store, "x").conversation_turn("c1", 9).build().run().await;
    assert!(matches!(missing, Err(FlowError::NoSuchTurn { next: 6, .. })));
}

/// F10, F13: a conversation needs a store that finds its turns again; without one nothing is run.
#[tokio::test]
async fn a_conversation_needs_a_store_that_keeps_it() {
    let none = WorkflowRunner::builder(chat()).conversation("c1").query("x").build().run().await;
    assert!(matches!(none, Err(FlowError::NoStore)));
    let plain = Arc::new(MemoryCheckpointStore::new());
    let unsupported =
        WorkflowRunner::builder(chat()).checkpoint_store(plain).conversation("c1").query("x").build().run().await;
    assert!(unsupported.unwrap_err().to_string().contains("list runs"));
}

/// F13: what a chat says first is there for a front end to show.
#[test]
fn a_chat_opens_with_a_statement_and_suggestions() {
    let document = chat();
    assert_eq!(document.opening(&[("who".to_owned(), "Ada".into())].into()).unwrap(), "Hello Ada.");
    assert_eq!(document.suggested_questions, ["Why?"]);
}
