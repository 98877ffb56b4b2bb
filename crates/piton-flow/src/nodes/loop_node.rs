//! `loop`: runs the graph inside it again and again. Two forms: the export's, with `loop_variables`,
//! `break_conditions` and a `loop_count`, which gives its variables and `loop_round`; and the flat one,
//! with `initial_vars` and a `condition` to go on, which gives them as `output_variable` and `_iterations`.
//!
//! `loop-end` inside it ends the loop with the round.

use async_trait::async_trait;
use piton_types::{Path, Value, from_json};
use serde::Deserialize;

use super::container::{self, Round};
use super::rounds::{self, Rounds};
use crate::condition::{ConditionData, Conditions, Junction};
use crate::engine::Inputs;
use crate::graph::Graph;
use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::Selector;

/// The kind that ends the loop.
pub(crate) const LOOP_END: &str = "loop-end";

/// The scope of the variables in the flat form.
const LOOP: &str = "loop";

/// The most rounds, unless the node says otherwise; and the most that it may say.
const ROUNDS: usize = 100;
const MAX_ROUNDS: usize = 100_000;

#[derive(Debug, Deserialize)]
struct Data {
    /// It goes round while this holds.
    condition: Option<ConditionData>,
    /// Its variables before the first round, by name.
    #[serde(default)]
    initial_vars: Inputs,
    /// The most rounds; 100 if nothing is said.
    max_iterations: Option<usize>,
    /// What its variables are given as; `output` if nothing is said.
    output_variable: Option<String>,
    /// The same as `max_iterations`, in an export.
    loop_count: Option<usize>,
    /// In an export: it ends when these hold.
    #[serde(default)]
    break_conditions: Vec<ConditionData>,
    /// How they are put together: `and` or `or`.
    #[serde(default)]
    logical_operator: Option<Junction>,
    /// In an export: its variables.
    #[serde(default)]
    loop_variables: Vec<LoopVariable>,
}

#[derive(Debug, Deserialize)]
struct LoopVariable {
    /// Its name.
    label: String,
    /// `string`, `number` and the like.
    #[serde(default)]
    var_type: String,
    /// `variable` if `value` is a selector, `constant` if it is the value.
    #[serde(default)]
    value_type: String,
    /// What it is before the first round.
    #[serde(default)]
    value: Value,
}

/// What a variable begins with.
#[derive(Debug)]
enum Begin {
    Constant(Value),
    Variable(Selector),
}

#[derive(Debug)]
enum Form {
    /// Goes on while the condition is met; it is an error not to come to an end.
    Flat { condition: Conditions, output: String },
    /// Ends when the conditions are met, or after so many rounds.
    Export { until: Option<Conditions> },
}

#[derive(Debug)]
struct Loop {
    variables: Vec<(String, Begin)>,
    most: usize,
    form: Form,
    graph: Graph,
    /// The nodes inside that end it.
    ends: Vec<String>,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let root = Path::root();
    let mut faults = Faults::default();
    let mut variables: Vec<(String, Begin)> =
        data.initial_vars.into_iter().map(|(name, value)| (name, Begin::Constant(value))).collect();
    for (place, variable) in data.loop_variables.into_iter().enumerate() {
        let begin = if variable.value_type == "variable" {
            match piton_types::from_value(variable.value) {
                Ok(selector) => Begin::Variable(selector),
                Err(_) => {
                    faults
                        .add(root.clone().key("loop_variables").index(place).key("value"), "a selector should be here");
                    continue;
                }
            }
        } else {
            Begin::Constant(typed(&variable.var_type, variable.value))
        };
        variables.push((variable.label, begin));
    }
    let most = data.max_iterations.or(data.loop_count).unwrap_or(ROUNDS);
    if most > MAX_ROUNDS {
        let key = if data.max_iterations.is_some() { "max_iterations" } else { "loop_count" };
        faults.add(root.clone().key(key), format!("at most {MAX_ROUNDS} rounds are allowed"));
    }
    let is_export = data.loop_count.is_some() || !data.break_conditions.is_empty() || data.condition.is_none();
    let form = if is_export {
        if build.is_strict() && data.loop_count.is_none() && data.break_conditions.is_empty() {
            faults.add(root.clone().key("condition"), "a condition should be here");
        }
        let at = root.key("break_conditions");
        let until = Conditions::check(data.logical_operator.unwrap_or_default(), data.break_conditions, &at);
        faults.keep(until).map(|until| Form::Export { until: Some(until).filter(|until| until.len() > 0) })
    } else {
        let condition = data.condition.map(|condition| condition.check(&root.key("condition"))).transpose();
        let output = data.output_variable.unwrap_or_else(|| "output".to_owned());
        faults.keep(condition).flatten().map(|condition| Form::Flat { condition: condition.into(), output })
    };
    let graph = faults.keep(build.graph("a loop needs the nodes that it repeats"));
    let (Some(form), Some(graph)) = (form, graph) else { return Err(faults) };
    let ends = graph.nodes.iter().filter(|node| node.kind == LOOP_END).map(|node| node.id.to_string()).collect();
    faults.none_or(Box::new(Loop { variables, most, form, graph, ends }))
}

/// A constant that a form wrote as text, as the kind that it says.
fn typed(kind: &str, value: Value) -> Value {
    match (kind, &value) {
        ("string", _) => value,
        ("number", Value::String(text)) => crate::value::number(text).unwrap_or(value),
        (_, Value::String(text)) => from_json(text.as_bytes()).unwrap_or(value),
        _ => value,
    }
}

impl Loop {
    /// The variables around the rounds, with those of the loop as they are now.
    fn pool(&self, around: &VariablePool, context: &NodeContext<'_>, state: &Inputs) -> VariablePool {
        let mut pool = around.clone();
        match self.form {
            Form::Flat { .. } => pool.set_scope(LOOP, state.clone()),
            Form::Export { .. } => pool.set_scope(context.node().shared(), state.clone()),
        }
        pool
    }

    /// Whether another round is wanted.
    fn goes_on(&self, pool: &VariablePool, context: &NodeContext<'_>) -> Result<bool, NodeError> {
        let met = match &self.form {
            Form::Flat { condition, .. } => condition.met(pool),
            Form::Export { until: None } => return Ok(true),
            Form::Export { until: Some(until) } => until.met(pool).map(|met| !met),
        };
        match met {
            Err(why) if context.is_strict() => Err(NodeError::new("TypeError", why)),
            // A comparison that makes no sense ends a loop that goes on while it holds.
            met => Ok(met.unwrap_or(matches!(self.form, Form::Export { .. }))),
        }
    }
}

#[async_trait]
impl Node for Loop {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(Value::map(self.variables.iter().map(|(name, begin)| match begin {
            Begin::Constant(value) => (name.as_str(), value.clone()),
            Begin::Variable(selector) => (name.as_str(), variables.select(selector)),
        })))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let mut state: Inputs = inputs.as_map().cloned().unwrap_or_default();
        let mut around = context.variables().clone();
        let is_flat = matches!(self.form, Form::Flat { .. });
        let (mut rounds, begins) = Rounds::open(context, &self.graph, &mut around).await?;
        let (mut round, mut output, mut ended_inside) = (begins.round, begins.output, false);
        if round > 0 {
            state = begins.variables;
        }
        // A round that is kept was to begin.
        let mut is_decided = round > 0;
        // The variables that the conditions are about: after a round also those of its nodes.
        let mut seen = self.pool(&around, context, &state);
        loop {
            if std::mem::take(&mut is_decided) {
            } else if round >= self.most {
                if is_flat {
                    let message = format!("Max iterations {} exceeded", self.most);
                    return Err(NodeError::new("TooManyRounds", message));
                }
                break;
            } else if ended_inside || !self.goes_on(&seen, context)? {
                break;
            }
            rounds.keep(round, &state, &around, &output, &[])?;
            let pool = self.pool(&around, context, &state);
            let index: Value = i64::try_from(round).unwrap_or(i64::MAX).into();
            let mut next = Round::new(round).with("_iteration", index.clone()).with("index", index);
            if is_flat {
                next = next.with_scope(LOOP, state.clone());
            }
            let mut ended = container::run(context, &self.graph, pool, next).await?;
            output.exceptions += ended.exceptions;
            ended_inside = self.ends.iter().any(|id| ended.pool.scope(id).is_some());
            // What was set of the loop's own variables is for the next round; the rest is for every node.
            let is_own = |selector: &Selector| selector.node == context.node().as_str() || selector.node == LOOP;
            let by_hand = rounds.ended(&mut around, &mut output, &mut ended).into_iter();
            for (selector, value) in by_hand.filter(|(selector, _)| is_own(selector)).chain(ended.assignments) {
                if is_own(&selector) {
                    let mut own = VariablePool::default();
                    own.set_scope(LOOP, std::mem::take(&mut state));
                    own.assign(&Selector { node: LOOP.to_owned(), path: selector.path }, value);
                    state = own.scope(LOOP).cloned().unwrap_or_default();
                } else {
                    around.assign(&selector, value.clone());
                    rounds::set(&mut output.assignments, selector, value);
                }
            }
            state.extend(ended.outputs);
            seen = self.pool(&ended.pool, context, &state);
            round += 1;
        }
        rounds.all_ended(&mut around, &mut output);
        let rounds: Value = i64::try_from(round).unwrap_or(i64::MAX).into();
        match &self.form {
            Form::Flat { output: name, .. } => {
                output.variables.insert(name.clone(), Value::Map(state));
                output.variables.insert("_iterations".to_owned(), rounds);
            }
            Form::Export { .. } => {
                output.variables = state;
                output.variables.insert("loop_round".to_owned(), rounds);
            }
        }
        Ok(output)
    }

    fn references(&self) -> Vec<&Selector> {
        let begins = self.variables.iter().filter_map(|(_, begin)| match begin {
            Begin::Variable(selector) => Some(selector),
            Begin::Constant(_) => None,
        });
        let conditions = match &self.form {
            Form::Flat { condition, .. } => Some(condition),
            Form::Export { until } => until.as_ref(),
        };
        // The conditions may name nodes inside the loop.
        let inside = |selector: &&Selector| !self.graph.nodes.iter().any(|node| node.id.as_str() == selector.node);
        begins.chain(conditions.into_iter().flat_map(Conditions::references).filter(inside)).collect()
    }

    fn effect(&self) -> Effect {
        // What outward nodes inside it give is recorded by themselves.
        Effect::Pure
    }

    fn graphs(&self) -> Vec<&Graph> {
        vec![&self.graph]
    }
}
