//! Answers to questions that runs wait for. An answer is checked against what the question asks for, and in the log when
//! this returns, whether or not a process drives the run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_flow::{OpenQuestion, answer_question, choose, open_questions};
use piton_runtime::{Context, Liveness, liveness, this_process};
use piton_store::Store;
use piton_types::{RunId, RunStatus, Value, from_json};

use crate::app::App;
use crate::failure::Failure;
use crate::references::run_id;
use crate::views::run::{AnsweredView, QuestionView};

/// How often a run that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// A question that is to be answered.
pub struct Asked {
    store: Arc<dyn Store>,
    /// The run that asks.
    pub run: RunId,
    /// What it asks.
    pub question: OpenQuestion,
}

impl Asked {
    /// The question of a run; `node` says which if there are several: the node that asks, its place, or its token.
    pub async fn find(app: &App, run: &RunId, node: Option<&str>) -> Result<Self, Failure> {
        let store = app.store().await?;
        let run = run_id(app, &store, run).await?;
        let open = open_questions(&Context::system(Arc::clone(&store)), &run).await?;
        let question = choose(&run, open, node)?;
        Ok(Self { store, run, question })
    }

    /// The first question that a run waits for, if it waits for one.
    pub async fn first(app: &App, run: &RunId) -> Result<Option<Self>, Failure> {
        let store = app.store().await?;
        let run = run_id(app, &store, run).await?;
        let mut open = open_questions(&Context::system(Arc::clone(&store)), &run).await?;
        if open.is_empty() {
            store.close().await?;
            return Ok(None);
        }
        Ok(Some(Self { store, run, question: open.remove(0) }))
    }

    /// Leaves it unanswered.
    pub async fn leave(self) -> Result<(), Failure> {
        Ok(self.store.close().await?)
    }

    /// An answer of fields that were given as texts. Where the question says what it wants, text stays text; elsewhere
    /// what is JSON is taken as such.
    pub fn of_texts(&self, set: &[(String, String)]) -> Value {
        let fields = self.question.form.iter().flat_map(|form| &form.fields);
        let is_field = |name: &str| fields.clone().any(|field| field.name == name);
        Value::map(set.iter().map(|(name, text)| {
            let text = text.as_str();
            let json = || from_json(text.as_bytes()).unwrap_or_else(|_| Value::from(text));
            (name.as_str(), if is_field(name) { text.into() } else { json() })
        }))
    }

    /// Answers. `by` is the person who does, for the log of the run.
    pub async fn answer(self, value: &Value, by: &str) -> Result<AnsweredView, Failure> {
        let Self { store, run, question } = self;
        let context = Context::system(Arc::clone(&store));
        let step = answer_question(&context, &run, Some(question.step.as_str()), value, by).await?;
        let open = open_questions(&context, &run).await?.len();
        let summary = store.summary(&run).await?;
        store.close().await?;
        let (kind, status) = (summary.as_ref().map(|run| run.kind), summary.map(|run| run.status));
        Ok(AnsweredView { id: run.clone(), run, step, status, by: by.to_owned(), open, kind })
    }
}

/// What a run asks; waits so long for a question unless the run is over.
pub async fn questions(app: &App, run: &RunId, wait: Duration) -> Result<Vec<QuestionView>, Failure> {
    let store = app.look().await?;
    let run = run_id(app, &store, run).await?;
    let context = Context::system(Arc::clone(&store));
    let until = Instant::now() + wait;
    let asked = loop {
        let open = open_questions(&context, &run).await?;
        let status = store.summary(&run).await?.map(|summary| summary.status);
        if !open.is_empty() || status.is_none_or(RunStatus::is_final) || Instant::now() >= until {
            break open;
        }
        tokio::time::sleep(LOOK).await;
    };
    store.close().await?;
    Ok(asked.iter().map(QuestionView::from).collect())
}

/// Whether another process drives a run, as far as is known.
pub async fn is_driven(app: &App, run: &RunId) -> Result<bool, Failure> {
    let store = app.look().await?;
    let lease = store.lease(run).await?;
    store.close().await?;
    let me = this_process();
    Ok(lease.is_some_and(|lease| lease.holder != me && liveness(&lease.holder, &me) != Liveness::Dead))
}
