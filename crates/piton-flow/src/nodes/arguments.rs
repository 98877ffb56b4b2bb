//! Arguments of tools: any value, with references in its texts.

use std::collections::BTreeMap;

use piton_types::Value;

use crate::pool::VariablePool;
use crate::reply::Reply;
use crate::selector::Selector;

/// A value whose texts are looked at once, when the document is read.
#[derive(Debug)]
pub(super) enum Argument {
    Value(Value),
    Text(Reply),
    Variable(Selector),
    List(Vec<Argument>),
    Map(BTreeMap<String, Argument>),
}

impl Argument {
    pub(super) fn read(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(Reply::parse(text)),
            Value::List(items) => Self::List(items.iter().map(Self::read).collect()),
            Value::Map(fields) => {
                Self::Map(fields.iter().map(|(key, value)| (key.clone(), Self::read(value))).collect())
            }
            other => Self::Value(other.clone()),
        }
    }

    /// As exports have it: `{type: mixed | variable | constant, value}`.
    pub(super) fn read_typed(value: &Value) -> Self {
        let inner = value.field("value").unwrap_or(value);
        match value.field("type").and_then(Value::as_str) {
            Some("variable") => match piton_types::from_value::<Selector>(inner.clone()) {
                Ok(selector) => Self::Variable(selector),
                Err(_) => Self::read(inner),
            },
            Some("constant") => match inner {
                Value::String(text) if text.contains("{{#") => Self::read(inner),
                other => Self::Value(other.clone()),
            },
            _ => Self::read(inner),
        }
    }

    pub(super) fn render(&self, pool: &VariablePool) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Text(text) => text.render(pool).into(),
            Self::Variable(selector) => pool.select(selector),
            Self::List(items) => Value::List(items.iter().map(|item| item.render(pool)).collect()),
            Self::Map(fields) => Value::map(fields.iter().map(|(key, value)| (key.as_str(), value.render(pool)))),
        }
    }

    pub(super) fn references(&self) -> Vec<&Selector> {
        match self {
            Self::Value(_) => Vec::new(),
            Self::Text(text) => text.references().collect(),
            Self::Variable(selector) => vec![selector],
            Self::List(items) => items.iter().flat_map(Self::references).collect(),
            Self::Map(fields) => fields.values().flat_map(Self::references).collect(),
        }
    }
}
