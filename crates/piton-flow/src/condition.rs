//! Conditions: a variable, an operator, a value. The operators have the spellings of both formats.
//!
//! Numbers are compared as numbers: the variable must be one, the value may be a text that is one, as
//! forms write it. What can't be compared isn't met, and the caller gets the reason.

use piton_types::{Path, Value, from_json};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::kind::Faults;
use crate::pool::VariablePool;
use crate::reply::Reply;
use crate::selector::Selector;
use crate::value::{as_f64, is_empty, to_text};

/// What a condition asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Contains,
    NotContains,
    StartsWith,
    EndsWith,
    Is,
    IsNot,
    Empty,
    NotEmpty,
    In,
    NotIn,
    AllOf,
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Null,
    NotNull,
    Exists,
    NotExists,
    Matches,
    NotMatches,
}

impl Operator {
    /// The operator of a spelling, whatever its case and with `_`, `-` or spaces between its words.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let plain = text.trim().to_lowercase().replace(['_', '-'], " ");
        Some(match plain.as_str() {
            "contains" => Self::Contains,
            "not contains" | "does not contain" => Self::NotContains,
            "start with" | "starts with" | "startswith" => Self::StartsWith,
            "end with" | "ends with" | "endswith" => Self::EndsWith,
            "is" => Self::Is,
            "is not" => Self::IsNot,
            "empty" | "is empty" => Self::Empty,
            "not empty" | "is not empty" => Self::NotEmpty,
            "in" => Self::In,
            "not in" => Self::NotIn,
            "all of" => Self::AllOf,
            "=" | "==" | "eq" | "equal" | "equals" => Self::Equal,
            "≠" | "!=" | "<>" | "ne" | "neq" | "not equal" | "not equals" => Self::NotEqual,
            ">" | "gt" | "greater than" | "after" => Self::Greater,
            "<" | "lt" | "less than" | "before" => Self::Less,
            "≥" | ">=" | "gte" | "ge" | "greater or equal" | "greater than or equal" => Self::GreaterOrEqual,
            "≤" | "<=" | "lte" | "le" | "less or equal" | "less than or equal" => Self::LessOrEqual,
            "null" | "is null" => Self::Null,
            "not null" | "is not null" => Self::NotNull,
            "exists" => Self::Exists,
            "not exists" => Self::NotExists,
            "matches" | "regex" | "regex match" => Self::Matches,
            "not matches" | "not regex" => Self::NotMatches,
            _ => return None,
        })
    }
}

/// How conditions are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Junction {
    #[default]
    #[serde(alias = "AND", alias = "And")]
    And,
    #[serde(alias = "OR", alias = "Or")]
    Or,
}

/// A condition as it is written.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ConditionData {
    /// What is looked at.
    variable_selector: Option<Selector>,
    /// The same, in some documents.
    value_selector: Option<Selector>,
    /// The key of an item, for conditions on lists.
    key: Option<String>,
    /// `is`, `is not`, `contains`, `not contains`, `start with`, `end with`, `empty`, `not empty`, `in`, `not in`,
    /// `=`, `≠`, `>`, `<`, `≥`, `≤`, `null`, `not null`, `exists`, `not exists`, `all of`.
    comparison_operator: Option<String>,
    /// The same, in some documents.
    comparison: Option<String>,
    /// The same, in some documents.
    operator: Option<String>,
    /// With what it is compared; a text may have variables in it.
    #[serde(default)]
    value: Value,
    /// Conditions on the items of a list of files or maps.
    sub_variable_condition: Option<SubConditions>,
}

/// Conditions on the items of a list of files or maps.
#[derive(Debug, Clone, Deserialize)]
struct SubConditions {
    /// `and` or `or`.
    #[serde(default)]
    logical_operator: Junction,
    /// What must hold of an item.
    #[serde(default)]
    conditions: Vec<ConditionData>,
}

/// A condition, checked.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    subject: Subject,
    operator: Operator,
    value: Expected,
    inside: Option<Conditions>,
}

#[derive(Debug, Clone)]
enum Subject {
    Variable(Selector),
    /// Of the item that is looked at; the item itself without a key.
    Item(Option<String>),
}

#[derive(Debug, Clone)]
enum Expected {
    Value(Value),
    /// A text with variables in it.
    Text(Reply),
    Pattern(Regex),
}

/// Conditions that are joined.
#[derive(Debug, Clone)]
pub(crate) struct Conditions {
    junction: Junction,
    conditions: Vec<Condition>,
}

/// A condition on one line: a variable, the words of an operator, and a value, which is JSON if it is some, else text.
pub(crate) fn parse(line: &str) -> Result<Conditions, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some((variable, rest)) = words.split_first() else { return Err("a condition should be here".to_owned()) };
    let selector = Selector::new(variable.split('.').map(str::to_owned).collect())
        .map_err(|_| format!("{variable:?} is no variable: it should be NODE.VARIABLE"))?;
    // Of several operators the longest: `is not empty`, and not `is`.
    let found = (1..=rest.len().min(5)).rev().find(|count| Operator::parse(&rest[..*count].join(" ")).is_some());
    let Some(count) = found else {
        return Err(format!(
            "behind {variable} an operator should be, as in `{variable} > 5` or `{variable} contains x`"
        ));
    };
    let text = rest[count..].join(" ");
    let value = from_json(text.as_bytes()).unwrap_or(Value::String(text));
    let data = ConditionData {
        variable_selector: Some(selector),
        value_selector: None,
        key: None,
        comparison_operator: Some(rest[..count].join(" ")),
        comparison: None,
        operator: None,
        value,
        sub_variable_condition: None,
    };
    let condition = data.check(&Path::default()).map_err(Faults::first)?;
    Ok(condition.into())
}

/// The largest compiled pattern, in bytes. Matching takes time in proportion to the text, whatever the
/// pattern.
const MAX_PATTERN: usize = 1 << 20;

/// A pattern, bounded.
pub(crate) fn pattern(source: &str) -> Result<Regex, String> {
    RegexBuilder::new(source)
        .size_limit(MAX_PATTERN)
        .dfa_size_limit(MAX_PATTERN)
        .nest_limit(100)
        .build()
        .map_err(|error| error.to_string().lines().last().unwrap_or("it is no pattern").to_owned())
}

impl ConditionData {
    pub(crate) fn check(self, at: &Path) -> Result<Condition, Faults> {
        let Some(spelling) = self.comparison_operator.or(self.comparison).or(self.operator) else {
            return Err(Faults::one(at.clone().key("comparison_operator"), "an operator should be here"));
        };
        let Some(operator) = Operator::parse(&spelling) else {
            let shown: String = spelling.chars().take(40).collect();
            return Err(Faults::one(at.clone().key("comparison_operator"), format!("there is no operator {shown:?}")));
        };
        // A list of plain values has an empty key in exports.
        let item = Subject::Item(self.key.filter(|key| !key.is_empty()));
        let subject = self.variable_selector.or(self.value_selector).map_or(item, Subject::Variable);
        let value = match (&self.value, operator) {
            (Value::String(text), Operator::Matches | Operator::NotMatches) => {
                Expected::Pattern(pattern(text).map_err(|message| Faults::one(at.clone().key("value"), message))?)
            }
            (Value::String(text), _) if text.contains("{{#") => Expected::Text(Reply::parse(text)),
            _ => Expected::Value(self.value),
        };
        let inside = match self.sub_variable_condition {
            Some(sub) if !sub.conditions.is_empty() => {
                let at = at.clone().key("sub_variable_condition").key("conditions");
                Some(Conditions::check(sub.logical_operator, sub.conditions, &at)?)
            }
            _ => None,
        };
        Ok(Condition { subject, operator, value, inside })
    }
}

impl Conditions {
    pub(crate) fn check(junction: Junction, written: Vec<ConditionData>, at: &Path) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let conditions = written
            .into_iter()
            .enumerate()
            .filter_map(|(place, condition)| faults.keep(condition.check(&at.clone().index(place))))
            .collect();
        faults.none_or(Self { junction, conditions })
    }

    pub(crate) const fn len(&self) -> usize {
        self.conditions.len()
    }

    pub(crate) fn references(&self) -> impl Iterator<Item = &Selector> {
        self.conditions.iter().flat_map(Condition::references)
    }

    /// Whether they are met; or why that can't be said.
    pub(crate) fn met(&self, pool: &VariablePool) -> Result<bool, String> {
        self.met_by(pool, None)
    }

    /// Whether an item meets them.
    pub(crate) fn met_by(&self, pool: &VariablePool, item: Option<&Value>) -> Result<bool, String> {
        let mut unclear = None;
        for condition in &self.conditions {
            match (condition.met(pool, item), self.junction) {
                (Ok(true), Junction::Or) => return Ok(true),
                (Ok(false), Junction::And) => return Ok(false),
                (Err(why), Junction::And) => return Err(why),
                (Err(why), Junction::Or) => unclear = Some(why),
                _ => {}
            }
        }
        match unclear {
            Some(why) => Err(why),
            None => Ok(self.junction == Junction::And),
        }
    }
}

impl From<Condition> for Conditions {
    fn from(condition: Condition) -> Self {
        Self { junction: Junction::And, conditions: vec![condition] }
    }
}

impl Condition {
    pub(crate) fn references(&self) -> Vec<&Selector> {
        let mut found = Vec::new();
        if let Subject::Variable(selector) = &self.subject {
            found.push(selector);
        }
        if let Expected::Text(text) = &self.value {
            found.extend(text.references());
        }
        found.extend(self.inside.iter().flat_map(|inside| inside.conditions.iter().flat_map(Self::references)));
        found
    }

    fn met(&self, pool: &VariablePool, item: Option<&Value>) -> Result<bool, String> {
        let found = match &self.subject {
            Subject::Variable(selector) => pool.find(selector),
            Subject::Item(None) => item,
            Subject::Item(Some(key)) => item.and_then(|item| part(item, key)),
        };
        let actual = found.unwrap_or(&Value::Null);
        if let Some(inside) = &self.inside {
            return self.met_inside(inside, actual, pool);
        }
        let rendered;
        let expected = match &self.value {
            Expected::Value(value) => value,
            Expected::Text(text) => {
                rendered = Value::String(text.render(pool));
                &rendered
            }
            Expected::Pattern(pattern) => {
                let matches = pattern.is_match(&to_text(actual));
                return Ok(matches == (self.operator == Operator::Matches));
            }
        };
        evaluate(self.operator, actual, expected, found.is_some())
    }

    /// A list whose items are looked into.
    fn met_inside(&self, inside: &Conditions, actual: &Value, pool: &VariablePool) -> Result<bool, String> {
        let items = actual.as_list().unwrap_or(std::slice::from_ref(actual));
        let mut met = 0;
        for item in items {
            met += usize::from(inside.met_by(pool, Some(item))?);
        }
        Ok(match self.operator {
            Operator::NotContains => met == 0,
            Operator::AllOf => met == items.len(),
            _ => met > 0,
        })
    }
}

fn evaluate(operator: Operator, actual: &Value, expected: &Value, is_there: bool) -> Result<bool, String> {
    let text = || (to_text(actual), to_text(expected));
    Ok(match operator {
        Operator::Contains => contains(actual, expected),
        Operator::NotContains => !contains(actual, expected),
        Operator::StartsWith => {
            let (actual, expected) = text();
            actual.starts_with(&expected)
        }
        Operator::EndsWith => {
            let (actual, expected) = text();
            actual.ends_with(&expected)
        }
        Operator::Is => same(actual, expected),
        Operator::IsNot => !same(actual, expected),
        Operator::Empty => is_empty(actual),
        Operator::NotEmpty => !is_empty(actual),
        Operator::In => member(actual, expected),
        Operator::NotIn => !member(actual, expected),
        Operator::AllOf => all_of(actual, expected),
        Operator::Null => *actual == Value::Null,
        Operator::NotNull => *actual != Value::Null,
        Operator::Exists => is_there && *actual != Value::Null,
        Operator::NotExists => !is_there || *actual == Value::Null,
        Operator::Equal | Operator::NotEqual => {
            let equal = match (number(actual), as_f64(expected)) {
                (Some(a), Some(b)) => a == b,
                _ => same(actual, expected),
            };
            equal == (operator == Operator::Equal)
        }
        Operator::Greater | Operator::Less | Operator::GreaterOrEqual | Operator::LessOrEqual => {
            if *actual == Value::Null {
                return Ok(false);
            }
            let (Some(a), Some(b)) = (number(actual), as_f64(expected)) else {
                return Err(format!(
                    "Condition type mismatch: numbers can be compared by size, not {} and {}",
                    actual.kind(),
                    expected.kind()
                ));
            };
            match operator {
                Operator::Greater => a > b,
                Operator::Less => a < b,
                Operator::GreaterOrEqual => a >= b,
                _ => a <= b,
            }
        }
        Operator::Matches | Operator::NotMatches => {
            let found = pattern(&to_text(expected))?.is_match(&to_text(actual));
            found == (operator == Operator::Matches)
        }
    })
}

/// The number that a variable is; a text is none, even if it looks like one.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => as_f64(value),
        _ => None,
    }
}

/// The same text; truth values also as forms write them.
fn same(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Bool(a), Value::String(text)) => match text.to_lowercase().as_str() {
            "true" | "1" => *a,
            "false" | "0" => !*a,
            _ => false,
        },
        (Value::Bool(a), Value::Int(n)) => i64::from(*a) == *n,
        _ => to_text(actual) == to_text(expected),
    }
}

fn contains(actual: &Value, expected: &Value) -> bool {
    match actual {
        Value::String(text) => text.contains(&to_text(expected)),
        Value::List(items) => {
            items.iter().any(|item| same(item, expected) || name_of(item) == Some(&to_text(expected)))
        }
        Value::Map(entries) => entries.contains_key(&to_text(expected)),
        _ => false,
    }
}

/// A part of an item. Exports have names of their own for some of a file's.
pub(crate) fn part<'a>(item: &'a Value, key: &str) -> Option<&'a Value> {
    let known_as = match key {
        "name" => "filename",
        "url" => "remote_url",
        _ => key,
    };
    item.field(key).or_else(|| item.field(known_as))
}

/// The name of a file.
fn name_of(item: &Value) -> Option<&str> {
    item.field("filename").or_else(|| item.field("name")).and_then(Value::as_str)
}

/// A list, or a text that is a JSON list, or one value.
fn listed(expected: &Value) -> Vec<Value> {
    match expected {
        Value::List(items) => items.clone(),
        Value::String(text) if text.trim_start().starts_with('[') => match from_json(text.as_bytes()) {
            Ok(Value::List(items)) => items,
            _ => vec![expected.clone()],
        },
        other => vec![other.clone()],
    }
}

fn member(actual: &Value, expected: &Value) -> bool {
    listed(expected).iter().any(|item| same(actual, item))
}

fn all_of(actual: &Value, expected: &Value) -> bool {
    let Value::List(items) = actual else { return false };
    listed(expected).iter().all(|wanted| items.iter().any(|item| same(item, wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(actual: Value, operator: &str, expected: Value) -> Result<bool, String> {
        evaluate(Operator::parse(operator).unwrap(), &actual, &expected, true)
    }

    #[test]
    fn every_operator_in_every_spelling() {
        let list = || Value::from(vec!["a".into(), "b".into()]);
        let table: [(Value, &str, Value); 36] = [
            ("abc".into(), "contains", "b".into()),
            (list(), "contains", "b".into()),
            ("abc".into(), "not contains", "x".into()),
            ("abc".into(), "not_contains", "x".into()),
            ("abc".into(), "start with", "ab".into()),
            ("abc".into(), "start_with", "ab".into()),
            ("abc".into(), "end with", "bc".into()),
            ("abc".into(), "end_with", "bc".into()),
            ("a".into(), "is", "a".into()),
            (true.into(), "is", "true".into()),
            ("a".into(), "is not", "b".into()),
            ("a".into(), "is_not", "b".into()),
            ("".into(), "empty", Value::Null),
            (Value::Null, "empty", Value::Null),
            ("a".into(), "not empty", Value::Null),
            ("a".into(), "not_empty", Value::Null),
            ("a".into(), "in", list()),
            ("a".into(), "in", r#"["a"]"#.into()),
            ("c".into(), "not in", list()),
            (list(), "all of", list()),
            (5.into(), "=", "5".into()),
            (5.into(), "eq", 5.0.into()),
            ("x".into(), "eq", "x".into()),
            (5.into(), "≠", "6".into()),
            (5.into(), "ne", 6.into()),
            (5.into(), ">", "4".into()),
            (5.into(), "greater_than", 4.5.into()),
            (5.into(), "<", "6".into()),
            (5.into(), "≥", "5".into()),
            (5.into(), "greater_or_equal", 5.into()),
            (5.into(), "≤", "5".into()),
            (5.into(), "less_than_or_equal", 5.into()),
            (Value::Null, "null", Value::Null),
            (0.into(), "not null", Value::Null),
            (0.into(), "exists", Value::Null),
            ("a1".into(), "matches", r"^[a-z]\d$".into()),
        ];
        for (actual, operator, expected) in table {
            assert_eq!(met(actual.clone(), operator, expected.clone()), Ok(true), "{actual:?} {operator} {expected:?}");
        }
        assert_eq!(Operator::parse("sounds like"), None);
    }

    #[test]
    fn what_has_no_order_says_so_and_what_is_not_there_is_not_met() {
        let why = met("42".into(), ">", 10.into()).unwrap_err();
        assert_eq!(why, "Condition type mismatch: numbers can be compared by size, not a string and an integer");
        assert_eq!(met(Value::Null, ">", 10.into()), Ok(false));
        assert!(met(5.into(), ">", "many".into()).unwrap_err().contains("mismatch"));
    }

    /// A pattern that makes backtracking engines run for ever, and one that would need gigabytes.
    #[test]
    fn patterns_are_bounded() {
        let evil = pattern("^(a+)+$").unwrap();
        assert!(!evil.is_match(&format!("{}b", "a".repeat(100_000))));
        assert!(pattern("(((a{1000}){1000}){1000})").is_err());
        assert!(pattern(&"(".repeat(10_000)).is_err());
    }
}
