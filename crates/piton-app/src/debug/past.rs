//! What a session can go back to: steps and entries that its run's log has.

use std::sync::Arc;

use piton_flow::Document;
use piton_log::RunLog;
use piton_runtime::{Context, History, Pager, StartAt};
use piton_types::{RunId, Seq, StepPath};

use crate::failure::Failure;
use crate::plan::Plan;
use crate::runs::back::entails;

/// How many steps are looked through at a time.
const PAGE: usize = 64;

/// The log of a run that is debugged.
#[derive(Debug, Clone)]
pub(super) struct Past {
    context: Context,
    run: RunId,
}

/// Somewhere to go back to.
pub(super) struct Back {
    pub(super) at: StartAt,
    /// In words.
    pub(super) to: String,
    /// What is done again, and what stays.
    pub(super) entails: Vec<String>,
}

impl Past {
    pub(super) fn of(context: Context, run: RunId) -> Self {
        Self { context, run }
    }

    pub(super) fn run(&self) -> &RunId {
        &self.run
    }

    /// Finds what a user means: a number, `RUN@NUMBER`, a step, or nothing for the step that ended last.
    pub(super) async fn find(&self, to: Option<&str>, document: &Document) -> Result<Back, Failure> {
        let log = RunLog::open(Arc::clone(&self.context.store), &self.run).await?;
        let (at, before, to) = match to {
            None => {
                let step = self.last(&log).await?;
                let to = format!("before {step}");
                (StartAt::Step(step.clone()), self.before(&log, &step, document).await?, to)
            }
            Some(text) => match number(text, &self.run)? {
                Some(seq) => {
                    if seq > log.head().seq {
                        let newest = log.head().seq;
                        return Err(Failure::not_found(format!("run {} has no entry {seq}", self.run))
                            .hint(format!("its newest is {newest}.")));
                    }
                    (StartAt::Entry(seq), seq, format!("{}@{seq}", self.run))
                }
                None => {
                    let step: StepPath = text.parse().map_err(|_| {
                        Failure::usage(format!("{text:?} is no step")).hint("say `back STEP` or `back NUMBER`.")
                    })?;
                    (StartAt::Step(step.clone()), self.before(&log, &step, document).await?, format!("before {step}"))
                }
            },
        };
        let mut plan = Plan::new("go back");
        let is_final = log.summary().await?.status.is_final();
        if is_final {
            plan.line(format!("run {} stays as it is; a new run branches off it", self.run));
        } else {
            entails(&mut plan, &self.context, &self.run, &at, before).await?;
        }
        Ok(Back { at, to, entails: plan.lines })
    }

    /// The entry behind which a place to go back to lies.
    pub(super) async fn entry(&self, at: &StartAt) -> Result<Seq, Failure> {
        let log = RunLog::open(Arc::clone(&self.context.store), &self.run).await?;
        match at {
            StartAt::End => Ok(log.head().seq),
            StartAt::Entry(seq) => Ok(*seq),
            StartAt::Step(step) => {
                let first = History::read(&log).await?.first_entry(step).await?;
                let first = first.ok_or_else(|| Failure::not_found(format!("step {step} hasn't run")))?;
                Ok(Seq(first.0.saturating_sub(1)))
            }
        }
    }

    /// The step of a node that ended last and counts.
    async fn last(&self, log: &RunLog) -> Result<StepPath, Failure> {
        let mut pager = Pager::new(log);
        while pager.cursor().is_some() {
            let page = pager.steps(PAGE).await?;
            let is_node = |step: &StepPath| !step.as_str().starts_with('#');
            if let Some(past) = page.into_iter().find(|past| !past.undone && is_node(&past.step.path)) {
                return Ok(past.step.path.clone());
            }
        }
        Err(Failure::refused("no step has ended yet, so there is nothing to go back to"))
    }

    /// The entry before a step.
    async fn before(&self, log: &RunLog, step: &StepPath, document: &Document) -> Result<Seq, Failure> {
        if let Some(first) = History::read(log).await?.first_entry(step).await? {
            return Ok(Seq(first.0.saturating_sub(1)));
        }
        let id = step.as_str().rsplit('/').next().unwrap_or_default();
        if document.node_ids().iter().any(|known| known.as_str() == id) {
            return Err(Failure::refused(format!("{step} hasn't run yet, so there is nothing to go back to"))
                .hint(format!("`to {id}` goes on to it.")));
        }
        let failure = Failure::not_found(format!("there is no step {:?}", step.as_str()));
        Err(match document.nearest_node(id) {
            Some(near) => failure.hint(format!("did you mean {:?}?", near.as_str())),
            None => failure,
        })
    }
}

/// The entry that a text names by its number, if it does.
fn number(text: &str, run: &RunId) -> Result<Option<Seq>, Failure> {
    let digits = match text.split_once('@') {
        Some((name, digits)) if name.is_empty() || name == run.as_str() => digits,
        Some((name, _)) => {
            return Err(
                Failure::usage(format!("{name} isn't the id of this run, {run}")).hint("`back NUMBER` is enough.")
            );
        }
        None => text,
    };
    match digits.parse() {
        Ok(number) => Ok(Some(Seq(number))),
        Err(_) if text.contains('@') => Err(Failure::usage(format!("{digits:?} is no number of an entry"))),
        Err(_) => Ok(None),
    }
}
