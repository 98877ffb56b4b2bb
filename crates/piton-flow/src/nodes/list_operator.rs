//! `list-operator`: filters, sorts and cuts a list. Two forms: the export's (`filter_by`, `order_by`,
//! `extract_by`, `limit`, all of which may be on), which gives `result`, `first_record` and
//! `last_record`; and one `operation`, whose result has the name `output_variable`.

use std::cmp::Ordering;
use std::collections::HashSet;

use async_trait::async_trait;
use piton_types::{Path, Value, to_json};
use serde::Deserialize;

use super::container::{self, Round};
use crate::condition::{ConditionData, Conditions, Junction, part};
use crate::graph::Graph;
use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::Selector;
use crate::value::to_text;

#[derive(Debug, Deserialize)]
struct Data {
    /// In an export: the list.
    variable: Option<Selector>,
    /// The list.
    input_selector: Option<Selector>,
    /// `filter`, `map` and `reduce` by what is inside the node; `sort`, `slice`, `first`, `last`, `flatten`, `unique`,
    /// `reverse`, `length` and `concat`.
    operation: Option<String>,
    /// What the result is called; `output` if nothing is said.
    output_variable: Option<String>,
    /// For `concat`: the other list.
    second_input_selector: Option<Selector>,
    /// For `sort`: the field of an item.
    sort_key: Option<String>,
    /// For `sort`: `asc` or `desc`.
    sort_order: Option<Order>,
    /// For `slice`: the first place, from 0.
    start: Option<usize>,
    /// For `slice`: the place behind the last.
    end: Option<usize>,
    /// For `reduce`.
    #[serde(default)]
    initial_value: Value,
    /// Items side by side.
    #[serde(default)]
    parallel: bool,
    /// In an export: which items stay.
    filter_by: Option<FilterBy>,
    /// In an export: their order.
    order_by: Option<OrderBy>,
    /// In an export: the one item that is given.
    extract_by: Option<ExtractBy>,
    /// In an export: how many at most.
    limit: Option<Limit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[serde(alias = "ASC")]
    Asc,
    #[serde(alias = "DESC")]
    Desc,
}

#[derive(Debug, Deserialize)]
struct FilterBy {
    /// Whether it counts.
    #[serde(default)]
    enabled: bool,
    /// What must hold of an item.
    #[serde(default)]
    conditions: Vec<ConditionData>,
}

#[derive(Debug, Deserialize)]
struct OrderBy {
    /// Whether it counts.
    #[serde(default)]
    enabled: bool,
    /// The field of an item.
    #[serde(default)]
    key: String,
    /// `asc` or `desc`.
    value: Option<Order>,
}

#[derive(Debug, Deserialize)]
struct ExtractBy {
    /// Whether it counts.
    #[serde(default)]
    enabled: bool,
    /// Which item, from 1.
    #[serde(default)]
    serial: Value,
}

#[derive(Debug, Deserialize)]
struct Limit {
    /// Whether it counts.
    #[serde(default)]
    enabled: bool,
    /// How many.
    size: Option<i64>,
}

#[derive(Debug)]
enum Work {
    Filter { graph: Graph, parallel: bool },
    Map { graph: Graph, parallel: bool },
    Reduce { graph: Graph, initial: Value },
    Sort { key: Option<String>, order: Order },
    Slice { start: usize, end: Option<usize> },
    First,
    Last,
    Flatten,
    Unique,
    Reverse,
    Concat { second: Selector },
    Length,
    Steps { filter: Option<Conditions>, order: Option<(String, Order)>, extract: Option<Value>, limit: Option<usize> },
}

#[derive(Debug)]
struct ListOperator {
    list: Selector,
    output: String,
    work: Work,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let root = Path::root();
    let needs_graph = "this operation needs a sub_graph";
    let (key, order) = (data.sort_key.clone(), data.sort_order.unwrap_or(Order::Asc));
    let work = match data.operation.as_deref() {
        Some("filter") => Work::Filter { graph: build.graph(needs_graph)?, parallel: data.parallel },
        Some("map") => Work::Map { graph: build.graph(needs_graph)?, parallel: data.parallel },
        Some("reduce") => Work::Reduce { graph: build.graph(needs_graph)?, initial: data.initial_value.clone() },
        Some("sort") => Work::Sort { key, order },
        Some("slice") => Work::Slice { start: data.start.unwrap_or(0), end: data.end },
        Some("first") => Work::First,
        Some("last") => Work::Last,
        Some("flatten") => Work::Flatten,
        Some("unique") => Work::Unique,
        Some("reverse") => Work::Reverse,
        Some("length") => Work::Length,
        Some("concat") => match data.second_input_selector.clone() {
            Some(second) => Work::Concat { second },
            None => return Err(Faults::one(root.key("second_input_selector"), "a second list should be here")),
        },
        Some(other) => {
            let shown: String = other.chars().take(40).collect();
            return Err(Faults::one(root.key("operation"), format!("there is no operation {shown:?}")));
        }
        None if [
            data.filter_by.is_some(),
            data.order_by.is_some(),
            data.limit.is_some(),
            data.extract_by.is_some(),
        ]
        .contains(&true) =>
        {
            steps(&data)?
        }
        None => return Err(Faults::one(root.key("operation"), "an operation should be here")),
    };
    let is_steps = matches!(work, Work::Steps { .. });
    let default = if is_steps { "result" } else { "output" };
    let output = data.output_variable.unwrap_or_else(|| default.to_owned());
    let Some(list) = data.variable.or(data.input_selector) else {
        return Err(Faults::one(Path::root().key("input_selector"), "a selector should be here"));
    };
    Ok(Box::new(ListOperator { list, output, work }))
}

fn steps(data: &Data) -> Result<Work, Faults> {
    let at = Path::root().key("filter_by").key("conditions");
    let filter = data.filter_by.as_ref().filter(|filter| filter.enabled);
    let filter = filter.map(|filter| Conditions::check(Junction::And, filter.conditions.clone(), &at)).transpose()?;
    let order = data.order_by.as_ref().filter(|order| order.enabled);
    let limit = data.limit.as_ref().filter(|limit| limit.enabled);
    Ok(Work::Steps {
        filter,
        order: order.map(|order| (order.key.clone(), order.value.unwrap_or(Order::Asc))),
        extract: data.extract_by.as_ref().filter(|extract| extract.enabled).map(|extract| extract.serial.clone()),
        limit: limit.map(|limit| limit.size.and_then(|size| usize::try_from(size).ok()).unwrap_or(0)),
    })
}

/// Numbers by size, texts by letters; of different kinds nothing is before truth values, then come numbers,
/// texts, and the rest.
fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    const fn rank(value: Option<&Value>) -> u8 {
        match value {
            None | Some(Value::Null) => 0,
            Some(Value::Bool(_)) => 1,
            Some(Value::Int(_) | Value::UInt(_) | Value::Float(_)) => 2,
            Some(Value::String(_)) => 3,
            Some(_) => 4,
        }
    }
    match (a, b) {
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
        (Some(Value::Bool(a)), Some(Value::Bool(b))) => a.cmp(b),
        (Some(Value::Int(a)), Some(Value::Int(b))) => a.cmp(b),
        (Some(x), Some(y)) if rank(a) == 2 && rank(b) == 2 => {
            let number = |value: &Value| crate::value::as_f64(value).unwrap_or_default();
            number(x).total_cmp(&number(y))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

fn sort(items: &mut [Value], key: Option<&str>, order: Order) {
    let sorted_by = |item: &'_ Value| -> Option<Value> {
        match key.filter(|key| !key.is_empty()) {
            Some(key) => part(item, key).cloned(),
            None => Some(item.clone()),
        }
    };
    items.sort_by(|a, b| {
        let compared = compare(sorted_by(a).as_ref(), sorted_by(b).as_ref());
        if order == Order::Desc { compared.reverse() } else { compared }
    });
}

impl ListOperator {
    async fn work(&self, items: &[Value], second: &[Value], context: &NodeContext<'_>) -> Result<Value, NodeError> {
        Ok(match &self.work {
            Work::Filter { graph, parallel } => {
                let kept = container::each(context, graph, items, *parallel).await?;
                let keep = |outputs: &Value| outputs.field("keep") == Some(&Value::Bool(true));
                items
                    .iter()
                    .zip(kept)
                    .filter(|(_, outputs)| keep(outputs))
                    .map(|(item, _)| item.clone())
                    .collect::<Vec<_>>()
                    .into()
            }
            Work::Map { graph, parallel } => {
                let mapped = container::each(context, graph, items, *parallel).await?;
                mapped.into_iter().map(value_of).collect::<Vec<_>>().into()
            }
            Work::Reduce { graph, initial } => {
                let mut accumulator = initial.clone();
                for (number, item) in items.iter().enumerate() {
                    let round = Round::of_item(number, item).with("accumulator", accumulator);
                    let ended = container::run(context, graph, context.variables().clone(), round).await?;
                    accumulator = value_of(Value::Map(ended.outputs));
                }
                accumulator
            }
            Work::Sort { key, order } => {
                let mut items = items.to_vec();
                sort(&mut items, key.as_deref(), *order);
                items.into()
            }
            Work::Slice { start, end } => {
                let end = end.unwrap_or(items.len());
                items.iter().skip(*start).take(end.saturating_sub(*start)).cloned().collect::<Vec<_>>().into()
            }
            Work::First => items.first().cloned().unwrap_or_default(),
            Work::Last => items.last().cloned().unwrap_or_default(),
            Work::Flatten => {
                let flat = items.iter().flat_map(|item| item.as_list().unwrap_or(std::slice::from_ref(item)));
                flat.cloned().collect::<Vec<_>>().into()
            }
            Work::Unique => {
                let mut seen = HashSet::new();
                let key = |item: &Value| to_json(item).map_or_else(|_| format!("{item:?}"), |json| json.to_string());
                items.iter().filter(|item| seen.insert(key(item))).cloned().collect::<Vec<_>>().into()
            }
            Work::Reverse => items.iter().rev().cloned().collect::<Vec<_>>().into(),
            Work::Concat { .. } => items.iter().chain(second).cloned().collect::<Vec<_>>().into(),
            Work::Length => i64::try_from(items.len()).unwrap_or(i64::MAX).into(),
            Work::Steps { filter, order, extract, limit } => {
                let mut kept = Vec::new();
                for item in items {
                    let met = filter.as_ref().map(|filter| filter.met_by(context.variables(), Some(item)));
                    if met.transpose().map_err(|why| NodeError::new("TypeError", why))?.unwrap_or(true) {
                        kept.push(item.clone());
                    }
                }
                if let Some(serial) = extract {
                    kept = vec![taken(&kept, serial, context.variables())?];
                }
                if let Some((key, order)) = order {
                    sort(&mut kept, Some(key), *order);
                }
                kept.truncate(limit.unwrap_or(usize::MAX));
                kept.into()
            }
        })
    }
}

/// The item of a number from 1, which may be a text with variables in it.
fn taken(items: &[Value], serial: &Value, pool: &VariablePool) -> Result<Value, NodeError> {
    let text = crate::reply::Reply::parse(&to_text(serial)).render(pool);
    let number: usize = text.trim().parse().map_err(|_| format!("{text:?} is no number of an item"))?;
    let place = number.checked_sub(1).and_then(|place| items.get(place));
    place.cloned().ok_or_else(|| format!("there is no item {number} in a list of {}", items.len()).into())
}

/// What a graph says is the value, or all that it gives.
fn value_of(outputs: Value) -> Value {
    outputs.field("value").cloned().unwrap_or(outputs)
}

#[async_trait]
impl Node for ListOperator {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        let list = |selector: &Selector, which: &str| match variables.find(selector) {
            Some(Value::List(items)) => Ok(Value::List(items.clone())),
            // What a branch left out, or a form left empty.
            None | Some(Value::Null) if matches!(self.work, Work::Steps { .. }) => Ok(Value::List(Vec::new())),
            found => {
                let kind = found.map_or(piton_types::ValueKind::Null, Value::kind);
                Err(NodeError::new("TypeError", format!("{which} must be an array, not {kind}: {selector}")))
            }
        };
        let mut inputs = vec![("items", list(&self.list, "Input")?)];
        if let Work::Concat { second } = &self.work {
            inputs.push(("second", list(second, "Second input")?));
        }
        Ok(Value::map(inputs))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let list = |name: &str| inputs.field(name).and_then(Value::as_list).unwrap_or_default();
        let result = self.work(list("items"), list("second"), context).await?;
        let mut output = NodeOutput::of([(self.output.clone(), result.clone())]);
        if let (Work::Steps { .. }, Value::List(items)) = (&self.work, &result) {
            output.variables.insert("first_record".to_owned(), items.first().cloned().unwrap_or_default());
            output.variables.insert("last_record".to_owned(), items.last().cloned().unwrap_or_default());
        }
        Ok(output)
    }

    fn references(&self) -> Vec<&Selector> {
        let mut found = vec![&self.list];
        match &self.work {
            Work::Concat { second } => found.push(second),
            Work::Steps { filter: Some(filter), .. } => found.extend(filter.references()),
            _ => {}
        }
        found
    }

    fn effect(&self) -> Effect {
        // What outward nodes inside it give is recorded by themselves.
        Effect::Pure
    }

    fn graphs(&self) -> Vec<&Graph> {
        match &self.work {
            Work::Filter { graph, .. } | Work::Map { graph, .. } | Work::Reduce { graph, .. } => vec![graph],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_all_kinds_have_an_order() {
        let mut items = vec![3.into(), "b".into(), 1.5.into(), Value::Null, true.into(), "a".into()];
        sort(&mut items, None, Order::Asc);
        assert_eq!(items, [Value::Null, true.into(), 1.5.into(), 3.into(), "a".into(), "b".into()]);
        let mut numbers: Vec<Value> = vec![3.into(), 1.5.into(), 2.into()];
        sort(&mut numbers, None, Order::Desc);
        assert_eq!(numbers, [3.into(), 2.into(), 1.5.into()]);
        let mut maps: Vec<Value> = ["b", "a"].map(|name| Value::map([("n", name.into())])).to_vec();
        sort(&mut maps, Some("n"), Order::Asc);
        assert_eq!(maps[0].field("n"), Some(&"a".into()));
    }
}
