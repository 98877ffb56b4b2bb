//! What a node gives, as its journal keeps it: its variables as they are, and beside them, under names
//! that no variable can have, what else the engine needs to go on.

#[cfg(feature = "checkpoint")]
use std::{borrow::Cow, collections::BTreeMap};

#[cfg(feature = "checkpoint")]
use piton_types::StepPath;
use piton_types::Value;

use crate::node::NodeOutput;
use crate::selector::Selector;

/// `#` isn't allowed in the names of variables.
const EXIT: &str = "#exit";
const ASSIGNMENTS: &str = "#assignments";
const EXCEPTIONS: &str = "#exceptions";

/// What the journal keeps.
pub(crate) fn write(output: &NodeOutput) -> Value {
    let mut record = output.variables.clone();
    record.retain(|name, _| !name.starts_with('#'));
    if let Some(exit) = &output.exit {
        record.insert(EXIT.to_owned(), exit.clone().into());
    }
    if !output.assignments.is_empty() {
        let assignments = output.assignments.iter().map(|(selector, value)| {
            let words = std::iter::once(&selector.node).chain(&selector.path).map(|word| word.clone().into()).collect();
            Value::List(vec![Value::List(words), value.clone()])
        });
        record.insert(ASSIGNMENTS.to_owned(), Value::List(assignments.collect()));
    }
    if output.exceptions > 0 {
        record.insert(EXCEPTIONS.to_owned(), output.exceptions.into());
    }
    Value::Map(record)
}

/// What the engine makes of it again.
pub(crate) fn read(record: Value) -> NodeOutput {
    let Value::Map(mut variables) = record else { return NodeOutput::default() };
    let exit = variables.remove(EXIT).and_then(|exit| exit.as_str().map(str::to_owned));
    let exceptions = variables.remove(EXCEPTIONS).and_then(|n| n.as_i64()).and_then(|n| u32::try_from(n).ok());
    let assignments = match variables.remove(ASSIGNMENTS) {
        Some(Value::List(items)) => items.into_iter().filter_map(assignment).collect(),
        _ => Vec::new(),
    };
    NodeOutput { variables, exit, assignments, exceptions: exceptions.unwrap_or(0) }
}

fn assignment(item: Value) -> Option<(Selector, Value)> {
    let Value::List(pair) = item else { return None };
    let [words, value] = <[Value; 2]>::try_from(pair).ok()?;
    let words = words.as_list()?.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()?;
    Some((Selector::new(words).ok()?, value))
}

/// The exit in a record.
#[cfg(feature = "checkpoint")]
pub(crate) fn exit(record: &Value) -> Option<&str> {
    record.field(EXIT)?.as_str()
}

/// The failures in a record that the node went on from.
#[cfg(feature = "checkpoint")]
pub(crate) fn exceptions(record: &Value) -> u64 {
    record.field(EXCEPTIONS).and_then(Value::as_i64).and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

/// What a record sets of variables of others.
#[cfg(feature = "checkpoint")]
pub(crate) fn assignments(record: &Value) -> Vec<(Selector, Value)> {
    let items = record.field(ASSIGNMENTS).and_then(Value::as_list).unwrap_or_default();
    items.iter().cloned().filter_map(assignment).collect()
}

/// Whether a step of the log is a node, or a part of one. What else the engine keeps there has a name that no node has.
#[cfg(feature = "checkpoint")]
pub(crate) fn is_node(step: &StepPath) -> bool {
    step.as_str().split('/').all(|word| !word.starts_with('#'))
}

/// The variables in a record.
#[cfg(feature = "checkpoint")]
pub(crate) fn variables(record: &Value) -> Cow<'_, Value> {
    let is_variable = |name: &String| !name.starts_with('#');
    match record.as_map() {
        Some(map) if map.keys().all(is_variable) => Cow::Borrowed(record),
        Some(map) => {
            let variables = map.iter().filter(|(name, _)| is_variable(name));
            Cow::Owned(Value::Map(variables.map(|(name, value)| (name.clone(), value.clone())).collect()))
        }
        None => Cow::Owned(Value::Map(BTreeMap::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way() {
        let plain = NodeOutput::of([("a", 1.into())]);
        assert_eq!(write(&plain), Value::map([("a", 1.into())]), "kept as it is");
        assert_eq!(read(write(&plain)), plain);
        let all = NodeOutput {
            assignments: vec![(Selector::of("conversation", "x"), vec![Value::Null].into())],
            exceptions: 2,
            ..plain.by("true")
        };
        assert_eq!(read(write(&all)), all);
    }
}
