//! `assigner`: sets variables of the conversation, or of the loop around it. Two forms: one variable
//! with a `write_mode`, or `items` with an operation each.

use async_trait::async_trait;
use piton_types::{Path, Value};
use serde::Deserialize;

use crate::kind::{Build, Built, Faults};
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::pool::VariablePool;
use crate::selector::Selector;
use crate::value::as_f64;

#[derive(Debug, Deserialize)]
struct Data {
    /// The variable that is set, as `[conversation, NAME]`.
    assigned_variable_selector: Option<Selector>,
    /// Where its new value is.
    input_variable_selector: Option<Value>,
    /// Its new value, said here.
    value: Option<Value>,
    /// `over-write` (also `overwrite`, if nothing is said), `append` or `clear`.
    write_mode: Option<String>,
    /// Several variables, each with an operation.
    items: Option<Vec<ItemData>>,
}

#[derive(Debug, Deserialize)]
struct ItemData {
    /// The variable.
    variable_selector: Selector,
    /// `variable` if `value` is a selector, `constant` if it is the value.
    #[serde(default)]
    input_type: String,
    /// What is done with it: `over-write`, `set`, `clear`, `append`, `extend`, `remove-first`, `remove-last`, `+=`,
    /// `-=`, `*=`, `/=`.
    operation: String,
    /// With what.
    #[serde(default)]
    value: Value,
}

/// What is done to a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Overwrite,
    Set,
    Append,
    Extend,
    Clear,
    Add,
    Subtract,
    Multiply,
    Divide,
    RemoveFirst,
    RemoveLast,
}

impl Operation {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "over-write" | "overwrite" | "over_write" => Self::Overwrite,
            "set" => Self::Set,
            "append" => Self::Append,
            "extend" => Self::Extend,
            "clear" => Self::Clear,
            "+=" => Self::Add,
            "-=" => Self::Subtract,
            "*=" => Self::Multiply,
            "/=" => Self::Divide,
            "remove-first" | "remove_first" => Self::RemoveFirst,
            "remove-last" | "remove_last" => Self::RemoveLast,
            _ => return None,
        })
    }

    const fn takes_a_value(self) -> bool {
        !matches!(self, Self::Clear | Self::RemoveFirst | Self::RemoveLast)
    }
}

#[derive(Debug)]
enum Source {
    Nothing,
    Constant(Value),
    Variable(Selector),
}

#[derive(Debug)]
struct Item {
    target: Selector,
    operation: Operation,
    source: Source,
}

#[derive(Debug)]
struct Assigner {
    items: Vec<Item>,
    /// One variable with a `write_mode`: what it was given is the output.
    is_single: bool,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let mut faults = Faults::default();
    let root = Path::root();
    if let Some(written) = data.items {
        let mut items = Vec::with_capacity(written.len());
        for (place, item) in written.into_iter().enumerate() {
            let at = root.clone().key("items").index(place);
            let Some(operation) = Operation::parse(&item.operation) else {
                faults.add(at.key("operation"), format!("there is no operation {:?}", item.operation));
                continue;
            };
            let source = match item.input_type.as_str() {
                _ if !operation.takes_a_value() => Source::Nothing,
                "variable" => match selector(&item.value) {
                    Some(selector) => Source::Variable(selector),
                    None => {
                        faults.add(at.key("value"), "a selector should be here");
                        continue;
                    }
                },
                _ => Source::Constant(item.value),
            };
            items.push(Item { target: item.variable_selector, operation, source });
        }
        return faults.none_or(Box::new(Assigner { items, is_single: false }));
    }
    let Some(target) = data.assigned_variable_selector else {
        return Err(Faults::one(root.key("assigned_variable_selector"), "a selector should be here"));
    };
    let mode = data.write_mode.as_deref().unwrap_or("overwrite");
    let Some(operation) = Operation::parse(mode) else {
        return Err(Faults::one(root.key("write_mode"), format!("there is no write mode {mode:?}")));
    };
    let source = match (&data.input_variable_selector, data.value) {
        (Some(written), _) if selector(written).is_some() => {
            selector(written).map_or(Source::Nothing, Source::Variable)
        }
        (_, Some(value)) => Source::Constant(value),
        _ => Source::Nothing,
    };
    Ok(Box::new(Assigner { items: vec![Item { target, operation, source }], is_single: true }))
}

/// A selector, unless it is empty, as forms leave it.
fn selector(value: &Value) -> Option<Selector> {
    piton_types::from_value(value.clone()).ok()
}

/// What a variable becomes.
fn apply(operation: Operation, old: &Value, given: Value) -> Result<Value, String> {
    let list = |old: &Value| match old {
        Value::Null => Ok(Vec::new()),
        Value::List(items) => Ok(items.clone()),
        other => Err(format!("a list is wanted for this, not {}", other.kind())),
    };
    Ok(match operation {
        // A form has the text of an object.
        Operation::Set if matches!((old, &given), (Value::Map(_), Value::String(_))) => {
            match piton_types::from_json(crate::value::to_text(&given).as_bytes()) {
                Ok(map @ Value::Map(_)) => map,
                _ => return Err("an object is wanted for this, or its JSON".to_owned()),
            }
        }
        Operation::Overwrite | Operation::Set => given,
        Operation::Clear => match old {
            Value::String(_) => "".into(),
            Value::Int(_) | Value::UInt(_) | Value::Float(_) => 0.into(),
            Value::Bool(_) => false.into(),
            Value::List(_) => Value::List(Vec::new()),
            Value::Map(_) => Value::map::<&str>([]),
            Value::Null | Value::Bytes(_) => Value::Null,
        },
        Operation::Append => match old {
            Value::String(text) => Value::from(format!("{text}{}", crate::value::to_text(&given))),
            _ => {
                let mut items = list(old)?;
                items.push(given);
                Value::List(items)
            }
        },
        Operation::Extend => {
            let mut items = list(old)?;
            items.extend(list(&given)?);
            Value::List(items)
        }
        Operation::RemoveFirst | Operation::RemoveLast => {
            let mut items = list(old)?;
            if operation == Operation::RemoveLast {
                items.pop();
            } else if !items.is_empty() {
                items.remove(0);
            }
            Value::List(items)
        }
        Operation::Add | Operation::Subtract | Operation::Multiply | Operation::Divide => {
            return calculate(operation, old, &given);
        }
    })
}

fn calculate(operation: Operation, old: &Value, given: &Value) -> Result<Value, String> {
    let old = if *old == Value::Null { &Value::Int(0) } else { old };
    // Integers stay integers as long as they fit.
    if let (Value::Int(a), Value::Int(b)) = (old, given) {
        let exact = match operation {
            Operation::Add => a.checked_add(*b),
            Operation::Subtract => a.checked_sub(*b),
            Operation::Multiply => a.checked_mul(*b),
            _ if *b != 0 && a % b == 0 => a.checked_div(*b),
            _ => None,
        };
        if let Some(exact) = exact {
            return Ok(exact.into());
        }
    }
    let (Some(a), Some(b)) = (as_f64(old), as_f64(given)) else {
        return Err(format!("numbers are wanted for this, not {} and {}", old.kind(), given.kind()));
    };
    let result = match operation {
        Operation::Add => a + b,
        Operation::Subtract => a - b,
        Operation::Multiply => a * b,
        _ => a / b,
    };
    if result.is_finite() { Ok(result.into()) } else { Err(format!("{a} and {b} give no number")) }
}

#[async_trait]
impl Node for Assigner {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        let given = self.items.iter().map(|item| match &item.source {
            Source::Nothing => Value::Null,
            Source::Constant(value) => value.clone(),
            Source::Variable(selector) => variables.select(selector),
        });
        Ok(Value::map([("values", Value::List(given.collect()))]))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let given = inputs.field("values").and_then(Value::as_list).unwrap_or_default();
        // A later item sees what an earlier one has set.
        let mut pool = context.variables().clone();
        let mut output = NodeOutput::default();
        for (item, given) in self.items.iter().zip(given) {
            let is_set = |source: &Selector| output.assignments.iter().any(|(set, _)| set.node == source.node);
            let given = match &item.source {
                Source::Variable(source) if is_set(source) => pool.select(source),
                _ => given.clone(),
            };
            // An export takes nothing from a variable that has nothing.
            if !self.is_single && matches!(item.source, Source::Variable(_)) && given == Value::Null {
                continue;
            }
            let new = apply(item.operation, &pool.select(&item.target), given)
                .map_err(|message| NodeError::new("AssignmentError", format!("{}: {message}", item.target)))?;
            pool.assign(&item.target, new.clone());
            output.assignments.push((item.target.clone(), new));
        }
        if self.is_single {
            output.variables.insert("output".to_owned(), given.first().cloned().unwrap_or_default());
        }
        Ok(output)
    }

    fn references(&self) -> Vec<&Selector> {
        let sources = self.items.iter().filter_map(|item| match &item.source {
            Source::Variable(selector) => Some(selector),
            _ => None,
        });
        self.items.iter().map(|item| &item.target).chain(sources).collect()
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation() {
        let list = |items: &[i64]| Value::from(items.iter().map(|n| Value::from(*n)).collect::<Vec<_>>());
        let object = Value::map([("a", 1.into())]);
        let table: [(&str, Value, Value, Value); 15] = [
            ("set", Value::map::<&str>([]), r#"{"a": 1}"#.into(), object),
            ("over-write", 1.into(), "x".into(), "x".into()),
            ("set", Value::Null, 2.into(), 2.into()),
            ("append", list(&[1]), 2.into(), list(&[1, 2])),
            ("append", Value::Null, 2.into(), list(&[2])),
            ("append", "a".into(), "b".into(), "ab".into()),
            ("extend", list(&[1]), list(&[2, 3]), list(&[1, 2, 3])),
            ("clear", list(&[1]), Value::Null, list(&[])),
            ("clear", "a".into(), Value::Null, "".into()),
            ("+=", 1.into(), 2.into(), 3.into()),
            ("-=", 1.5.into(), 1.into(), 0.5.into()),
            ("*=", i64::MAX.into(), 2.into(), (i64::MAX as f64 * 2.0).into()),
            ("/=", 7.into(), 2.into(), 3.5.into()),
            ("remove-first", list(&[1, 2]), Value::Null, list(&[2])),
            ("remove-last", list(&[]), Value::Null, list(&[])),
        ];
        for (operation, old, given, expected) in table {
            let found = apply(Operation::parse(operation).unwrap(), &old, given.clone());
            assert_eq!(found.as_ref(), Ok(&expected), "{old:?} {operation} {given:?}");
        }
        assert!(apply(Operation::Set, &Value::map::<&str>([]), "[1]".into()).is_err());
        assert!(apply(Operation::Divide, &1.into(), 0.into()).is_err());
        assert!(apply(Operation::Extend, &"text".into(), list(&[1])).is_err());
    }
}
