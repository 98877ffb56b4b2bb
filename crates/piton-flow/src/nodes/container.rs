//! What iterations, loops and lists have in common: a graph that runs again and again, each time in a
//! scope of its own, at a place of its own in the log.

use futures_util::StreamExt as _;
use piton_types::Value;

use super::rounds::Rounds;
use crate::dispatch::{self, Ended, Frame};
use crate::engine::Inputs;
use crate::error::FlowError;
use crate::graph::Graph;
use crate::node::{NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::SCOPE;

/// How many rounds run side by side if a document asks for it without a number.
pub(super) const PARALLEL: usize = 10;

/// One run of the graph.
#[derive(Debug)]
pub(super) struct Round {
    number: usize,
    /// What the container gives it.
    given: Inputs,
    /// Scopes beside that, by name.
    scopes: Vec<(String, Inputs)>,
}

impl Round {
    pub(super) fn new(number: usize) -> Self {
        Self { number, given: Inputs::new(), scopes: Vec::new() }
    }

    /// For an item of a list.
    pub(super) fn of_item(number: usize, item: &Value) -> Self {
        let index = i64::try_from(number).unwrap_or(i64::MAX);
        Self::new(number).with("item", item.clone()).with("index", index.into())
    }

    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        self.given.insert(name.to_owned(), value);
        self
    }

    pub(super) fn with_scope(mut self, name: &str, variables: Inputs) -> Self {
        self.scopes.push((name.to_owned(), variables));
        self
    }
}

/// Runs the graph for one round, with these variables around it.
pub(super) async fn run(
    context: &NodeContext<'_>,
    graph: &Graph,
    mut pool: VariablePool,
    round: Round,
) -> Result<Ended, NodeError> {
    for (name, variables) in round.scopes {
        pool.set_scope(name, variables);
    }
    // The container's own name stands for what it gives as well.
    let mut own = pool.scope(context.node().as_str()).cloned().unwrap_or_default();
    own.extend(round.given.iter().map(|(name, value)| (name.clone(), value.clone())));
    pool.set_scope(context.node().shared(), own);
    pool.set_scope(SCOPE, round.given.clone());
    pool.set_inputs(round.given);
    let prefix = format!("{}/{}/", context.step(), round.number + 1);
    let frame = Frame { host: context.host, prefix: &prefix, activity: context.activity, limit: None };
    match dispatch::drive(graph, pool, frame).await {
        Ok(ended) => {
            context.used_inside(ended.usage);
            Ok(ended)
        }
        Err(broken) => {
            context.used_inside(broken.usage);
            Err(match broken.error {
                fatal @ (FlowError::Journal(_) | FlowError::Cancelled) => context.fail_run(fatal),
                error => NodeError::new("ContainerError", error.to_string()),
            })
        }
    }
}

/// Runs the graph for every item and returns what it gave, in the order of the items.
pub(super) async fn each(
    context: &NodeContext<'_>,
    graph: &Graph,
    items: &[Value],
    parallel: bool,
) -> Result<Vec<Value>, NodeError> {
    let most = if parallel { PARALLEL } else { 1 };
    let around = &mut context.variables().clone();
    let (mut rounds, begins) = Rounds::open(context, graph, around).await?;
    let work = (begins.round..items.len()).map(|number| async move {
        let round = Round::of_item(number, &items[number]);
        let ended = run(context, graph, context.variables().clone(), round).await?;
        Ok(Value::Map(ended.outputs))
    });
    let mut work = futures_util::stream::iter(work).buffered(most);
    let (mut results, mut failed) = (Vec::new(), None);
    while let Some(ended) = work.next().await {
        match ended {
            Ok(result) if failed.is_none() => {
                results.push(Some(result));
                rounds.keep(begins.round + results.len(), &Inputs::new(), around, &NodeOutput::default(), &results)?;
            }
            Ok(_) => {}
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    let mut all = rounds.given().await?;
    all.append(&mut results);
    failed.map_or(Ok(all.into_iter().flatten().collect()), Err)
}
