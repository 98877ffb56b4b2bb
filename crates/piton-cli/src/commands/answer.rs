//! `piton answer`: replies to a question that a run waits for. The answer is in the log when this returns, whether
//! or not somebody drives the run.

use std::sync::Arc;

use piton::{Context, History, answer};
use piton_types::{RunKind, Value};
use serde_json::json;

use crate::arguments::Answer;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::resolve::run_id;
use crate::session::Session;

/// Who answered, in the log.
const BY: &str = "command line";

pub(crate) async fn execute(session: &Session, arguments: Answer) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let run = run_id(&store, &arguments.run).await?;
    let context = Context::system(Arc::clone(&store));
    let value = arguments.value.unwrap_or_else(|| Value::map(arguments.set));
    let question = answer(&context, &run, arguments.question.as_ref(), &value, BY).await?;
    let held = History::of(&context, &run).await?.questions.is_empty();
    let kind = store.summary(&run).await?.map(|summary| summary.kind);
    store.close().await?;
    if session.output.is_json() {
        session.output.object(&json!({"run": run.as_str(), "step": question.as_str(), "status": "answered"}))?;
    } else {
        session.output.note(&format!("question {} of run {run} is answered", clean(question.as_str())));
    }
    if held && kind == Some(RunKind::Workflow) {
        session.output.note(&format!("`piton resume {run}` goes on, unless somebody drives it"));
    }
    Ok(Exit::Done)
}
