//! `iteration`: runs the graph inside it for every item of a list, one after the other or side by side.
//! Gives the results as `output`, or under the name that it says.
//!
//! A round's result is the variable that `output_selector` names, or all that its end nodes give.

use async_trait::async_trait;
use futures_util::StreamExt as _;
use piton_types::{Path, Value};
use serde::Deserialize;

use super::container::{self, PARALLEL, Round};
use super::rounds::{self, Begins, Rounds};
use crate::dispatch::Ended;
use crate::engine::Inputs;
use crate::graph::Graph;
use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::Selector;

/// The most items, unless the node says otherwise.
const MAX_ITEMS: usize = 1_000;

/// The most rounds that may run side by side.
const MAX_PARALLEL: usize = 100;

#[derive(Debug, Deserialize)]
struct Data {
    /// The list that it goes through.
    input_selector: Option<Selector>,
    /// The same, in an export.
    iterator_selector: Option<Selector>,
    /// What each round gives: a selector into it.
    output_selector: Option<Value>,
    /// What the list of that is called; `output` if nothing is said.
    output_variable: Option<String>,
    /// Rounds run side by side.
    #[serde(default)]
    parallel: bool,
    /// The same, in an export.
    #[serde(default)]
    is_parallel: bool,
    /// How many at once.
    parallelism: Option<usize>,
    /// The same, in an export; 10 if nothing is said, and at most 100.
    parallel_nums: Option<usize>,
    /// When a round fails: `terminated`, `continue-on-error` (its place is null) or `remove-abnormal-output`.
    #[serde(default)]
    error_handle_mode: OnFailure,
    /// The most items; 1000 if nothing is said.
    max_iterations: Option<usize>,
    /// Lists of rounds become one list; that is so if nothing is said.
    flatten_output: Option<bool>,
}

/// What happens when a round fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OnFailure {
    /// The iteration fails.
    #[default]
    Terminated,
    /// Its result is null.
    #[serde(alias = "continue-on-error")]
    ContinueOnError,
    /// Its result is left out.
    #[serde(alias = "remove-abnormal-output", alias = "remove-abnormal")]
    RemoveAbnormal,
}

#[derive(Debug)]
struct Iteration {
    list: Selector,
    /// What a round gives; without one, what its ends give.
    result: Option<Selector>,
    output: String,
    parallel: usize,
    on_failure: OnFailure,
    most: usize,
    flatten: bool,
    graph: Graph,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let result: Option<Selector> = data.output_selector.and_then(|written| piton_types::from_value(written).ok());
    let graph = build.graph("an iteration needs the nodes that it repeats")?;
    let Some(list) = data.input_selector.or(data.iterator_selector) else {
        return Err(Faults::one(Path::root().key("iterator_selector"), "a selector should be here"));
    };
    let count = data.parallelism.or(data.parallel_nums).unwrap_or(PARALLEL);
    let parallel = match (data.parallel || data.is_parallel, count) {
        (false, _) => 1,
        (true, count @ 1..=MAX_PARALLEL) => count,
        (true, _) => {
            let message = format!("from 1 to {MAX_PARALLEL} rounds may run side by side");
            return Err(Faults::one(Path::root().key("parallelism"), message));
        }
    };
    Ok(Box::new(Iteration {
        list,
        // Rounds of an export whose results are lists give one list together.
        flatten: result.is_some() && data.flatten_output.unwrap_or(true),
        result,
        output: data.output_variable.unwrap_or_else(|| "output".to_owned()),
        parallel,
        on_failure: data.error_handle_mode,
        most: data.max_iterations.unwrap_or(if build.is_strict() { MAX_ITEMS } else { usize::MAX }),
        graph,
    }))
}

impl Iteration {
    fn result(&self, ended: &Ended) -> Value {
        match &self.result {
            Some(selector) => ended.pool.select(selector),
            None => Value::Map(ended.outputs.clone()),
        }
    }

    /// What a round gave, or nothing if it failed. What it has set counts from now on.
    fn take(
        &self,
        ended: Result<Ended, NodeError>,
        rounds: &Rounds<'_>,
        around: &mut VariablePool,
        output: &mut NodeOutput,
    ) -> Result<Option<Value>, NodeError> {
        let mut ended = match ended {
            Ok(ended) => ended,
            Err(error) if self.on_failure == OnFailure::Terminated => return Err(error),
            Err(_) => {
                output.exceptions += 1;
                return Ok(None);
            }
        };
        output.exceptions += ended.exceptions;
        rounds.ended(around, output, &mut ended);
        let result = self.result(&ended);
        for (selector, value) in ended.assignments {
            around.assign(&selector, value.clone());
            rounds::set(&mut output.assignments, selector, value);
        }
        Ok(Some(result))
    }

    /// The results of all rounds, with nothing for those that failed, and what they came to besides.
    async fn rounds(
        &self,
        items: &[Value],
        context: &NodeContext<'_>,
    ) -> Result<(Vec<Option<Value>>, NodeOutput), NodeError> {
        let mut around = context.variables().clone();
        let (mut rounds, begins) = Rounds::open(context, &self.graph, &mut around).await?;
        let Begins { round: first, mut output, .. } = begins;
        let (mut results, none) = (Vec::new(), Inputs::new());
        if self.parallel == 1 {
            // One round sees what the one before has set.
            for (number, item) in items.iter().enumerate().skip(first) {
                rounds.keep(number, &none, &around, &output, &results)?;
                let ended = container::run(context, &self.graph, around.clone(), Round::of_item(number, item)).await;
                results.push(self.take(ended, &rounds, &mut around, &mut output)?);
            }
        } else {
            let work = (first..items.len()).map(|number| {
                let round = Round::of_item(number, &items[number]);
                container::run(context, &self.graph, context.variables().clone(), round)
            });
            let mut work = futures_util::stream::iter(work).buffered(self.parallel);
            while let Some(ended) = work.next().await {
                results.push(self.take(ended, &rounds, &mut around, &mut output)?);
                rounds.keep(first + results.len(), &none, &around, &output, &results)?;
            }
        }
        rounds.all_ended(&mut around, &mut output);
        let mut all = rounds.given().await?;
        all.append(&mut results);
        Ok((all, output))
    }
}

#[async_trait]
impl Node for Iteration {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        match variables.find(&self.list) {
            Some(items @ Value::List(_)) => Ok(Value::map([("items", items.clone())])),
            found => {
                let kind = found.map_or(piton_types::ValueKind::Null, Value::kind);
                Err(NodeError::new("TypeError", format!("Input must be an array, not {kind}: {}", self.list)))
            }
        }
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let items = inputs.field("items").and_then(Value::as_list).unwrap_or_default();
        if items.len() > self.most {
            let message = format!("Array size {} exceeds max iterations {}", items.len(), self.most);
            return Err(NodeError::new("TooManyItems", message));
        }
        let (results, mut output) = self.rounds(items, context).await?;
        let mut results: Vec<Value> = match self.on_failure {
            OnFailure::RemoveAbnormal => results.into_iter().flatten().collect(),
            _ => results.into_iter().map(Option::unwrap_or_default).collect(),
        };
        let lists = results.iter().filter(|result| **result != Value::Null);
        if self.flatten
            && !results.is_empty()
            && lists.clone().count() > 0
            && lists.clone().all(|result| result.as_list().is_some())
        {
            results = lists.filter_map(Value::as_list).flatten().cloned().collect();
        }
        output.variables.insert(self.output.clone(), Value::List(results));
        Ok(output)
    }

    fn references(&self) -> Vec<&Selector> {
        vec![&self.list]
    }

    fn effect(&self) -> Effect {
        // What outward nodes inside it give is recorded by themselves.
        Effect::Pure
    }

    fn graphs(&self) -> Vec<&Graph> {
        vec![&self.graph]
    }
}
