//! What any node may say beside what its kind calls for: what happens when it fails, how often it is
//! tried, how long it may take, whether a checkpoint is made after it.

use std::collections::BTreeMap;
use std::time::Duration;

use piton_types::{Path, Value, from_value};

use crate::journal::OnUncertain;
use crate::kind::Faults;
use crate::nodes::HUMAN_INPUT;
use crate::value::{as_f64, number};

/// The settings that any node may have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) on_error: OnError,
    pub(crate) retry: Retry,
    pub(crate) time: Option<Duration>,
    /// A checkpoint is made when it has finished.
    pub(crate) checkpoint: bool,
    /// One is made before it begins.
    pub(crate) checkpoint_before: bool,
    /// What becomes of it if the process dies while it runs.
    pub(crate) on_uncertain: OnUncertain,
}

/// What happens when a node has failed for good.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OnError {
    /// The run fails.
    Fail,
    /// The run goes on by the exit for failures.
    Branch,
    /// The run goes on with these variables.
    Default(BTreeMap<String, Value>),
}

/// How often a node is tried, and how long to wait in between.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Retry {
    pub(crate) most: u32,
    pub(crate) interval: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) multiplier: f64,
    pub(crate) longest: Duration,
    /// Only errors that may pass by themselves.
    pub(crate) only_retryable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backoff {
    Fixed,
    Exponential,
    Jitter,
}

const NEVER: Retry = Retry {
    most: 0,
    interval: Duration::ZERO,
    backoff: Backoff::Fixed,
    multiplier: 2.0,
    longest: Duration::from_secs(60),
    only_retryable: true,
};

/// The most retries that a document may ask for.
const MOST_RETRIES: i64 = 100;

/// The setting that says whether a checkpoint is made when the node has finished.
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// Kinds after which a checkpoint is made unless the node says otherwise.
const CHECKPOINT_BY_DEFAULT: [&str; 1] = ["agent"];

/// The setting that says what becomes of work in flight when the process dies.
const ON_UNCERTAIN: &str = "on_uncertain";

impl Retry {
    /// How long to wait after the attempt of this number, from 1. `chance` is in 0..1.
    pub(crate) fn wait(&self, attempt: u32, chance: f64) -> Duration {
        let factor = match self.backoff {
            Backoff::Fixed => 1.0,
            Backoff::Exponential => self.multiplier.powi(i32::try_from(attempt - 1).unwrap_or(i32::MAX)),
            Backoff::Jitter => {
                self.multiplier.powi(i32::try_from(attempt - 1).unwrap_or(i32::MAX)) * (0.5 + chance / 2.0)
            }
        };
        let seconds = (self.interval.as_secs_f64() * factor).min(self.longest.as_secs_f64());
        Duration::try_from_secs_f64(seconds).unwrap_or(self.longest)
    }
}

impl Settings {
    /// The settings in the data of a node of a kind.
    pub(crate) fn read(kind: &str, data: &Value) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let on_error = on_error(data, &mut faults);
        let retry = data.field("retry_config").filter(|found| **found != Value::Null);
        let retry = retry.map_or(NEVER, |found| read_retry(found, &mut faults));
        let checkpoint = match data.field(CHECKPOINT) {
            None | Some(Value::Null) => CHECKPOINT_BY_DEFAULT.contains(&kind),
            Some(Value::Bool(wanted)) => *wanted,
            Some(found) => {
                faults.add(Path::root().key(CHECKPOINT), format!("true or false is wanted, not {}", found.kind()));
                false
            }
        };
        // Before a person is asked, unless the node says otherwise.
        let checkpoint_before = kind == HUMAN_INPUT && data.field(CHECKPOINT) != Some(&Value::Bool(false));
        let on_uncertain = match data.field(ON_UNCERTAIN) {
            None | Some(Value::Null) => OnUncertain::default(),
            Some(found) => from_value(found.clone()).unwrap_or_else(|_| {
                faults.add(Path::root().key(ON_UNCERTAIN), "it should be retry, ask or fail");
                OnUncertain::default()
            }),
        };
        let time = seconds(data, "timeout_secs", &mut faults);
        faults.none_or(Self { on_error, retry, time, checkpoint, checkpoint_before, on_uncertain })
    }
}

fn on_error(data: &Value, faults: &mut Faults) -> OnError {
    let at = Path::root().key("error_strategy");
    // As a word with its values beside it, or as a map.
    let (word, path, defaults) = match data.field("error_strategy") {
        None | Some(Value::Null) => return OnError::Fail,
        Some(Value::String(word)) => (Some(word.as_str()), at, data.field("default_value")),
        Some(map @ Value::Map(_)) => (
            map.field("type").and_then(Value::as_str),
            at.key("type"),
            map.field("default_value").or(data.field("default_value")),
        ),
        Some(found) => {
            faults.add(at, format!("a word is wanted, not {}", found.kind()));
            return OnError::Fail;
        }
    };
    match word {
        Some("none" | "abort" | "") => OnError::Fail,
        Some("fail-branch" | "fail_branch") => OnError::Branch,
        Some("default-value" | "default_value" | "continue-on-error") => OnError::Default(default_values(defaults)),
        _ => {
            faults.add(path, "it should be none, fail-branch or default-value");
            OnError::Fail
        }
    }
}

/// A map of names and values, or Dify's list of `{key, type, value}`.
fn default_values(values: Option<&Value>) -> BTreeMap<String, Value> {
    match values {
        Some(Value::Map(entries)) => entries.clone(),
        Some(Value::List(items)) => items
            .iter()
            .filter_map(|item| {
                let value = item.field("value").cloned().unwrap_or_default();
                let kind = item.field("type").and_then(Value::as_str).unwrap_or("string");
                Some((item.field("key")?.as_str()?.to_owned(), typed(kind, value)))
            })
            .collect(),
        _ => BTreeMap::new(),
    }
}

/// A value that a form wrote as text, as the kind that it says.
pub(crate) fn typed(kind: &str, value: Value) -> Value {
    match (kind, &value) {
        ("string", _) => value,
        ("number" | "integer" | "float", Value::String(text)) => number(text).unwrap_or(value),
        (_, Value::String(text)) => piton_types::from_json(text.as_bytes()).unwrap_or(value),
        _ => value,
    }
}

fn read_retry(found: &Value, faults: &mut Faults) -> Retry {
    let at = Path::root().key("retry_config");
    if found.as_map().is_none() {
        faults.add(at, format!("a map is wanted, not {}", found.kind()));
        return NEVER;
    }
    let mut number = |key: &str| match found.field(key) {
        None | Some(Value::Null) => None,
        Some(Value::Int(n)) if *n >= 0 => Some(*n),
        Some(Value::Float(x)) if *x >= 0.0 => Some(*x as i64),
        // Forms leave numbers as texts.
        Some(Value::String(text)) if text.trim().is_empty() => None,
        Some(text @ Value::String(_)) if as_f64(text).is_some_and(|x| x >= 0.0) => as_f64(text).map(|x| x as i64),
        Some(_) => {
            faults.add(at.clone().key(key), "a number that isn't negative is wanted");
            None
        }
    };
    let most = number("max_retries").unwrap_or(0);
    let interval = number("retry_interval").unwrap_or(0);
    let longest = number("max_retry_interval").unwrap_or(60_000);
    let multiplier = match found.field("backoff_multiplier") {
        Some(Value::Float(x)) if *x >= 1.0 => *x,
        Some(Value::Int(n)) if *n >= 1 => *n as f64,
        _ => 2.0,
    };
    let backoff = match found.field("backoff_strategy").and_then(Value::as_str) {
        Some("exponential") => Backoff::Exponential,
        Some("exponential_with_jitter") => Backoff::Jitter,
        Some("fixed") => Backoff::Fixed,
        // A multiplier says what is meant.
        _ if found.field("backoff_multiplier").is_some() => Backoff::Exponential,
        _ => Backoff::Fixed,
    };
    // Dify has a switch beside the numbers, and retries whatever the error.
    let enabled = found.field("retry_enabled").or_else(|| found.field("enabled"));
    let enabled = enabled.filter(|switch| !switch.is_null()).map(is_on);
    let only_retryable = match found.field("retry_on_retryable_only") {
        Some(Value::Bool(only)) => *only,
        _ => enabled.is_none(),
    };
    let most = if enabled == Some(false) { 0 } else { most };
    if most > MOST_RETRIES {
        faults.add(at.key("max_retries"), format!("at most {MOST_RETRIES} retries are allowed"));
    }
    let millis = |n: i64| Duration::from_millis(u64::try_from(n).unwrap_or(0));
    Retry {
        most: u32::try_from(most).unwrap_or(0),
        interval: millis(interval),
        backoff,
        multiplier,
        longest: millis(longest),
        only_retryable,
    }
}

/// Whether a switch is on; forms leave it as a text too.
pub(crate) fn is_on(switch: &Value) -> bool {
    matches!(switch, Value::Bool(true)) || switch.as_str() == Some("true")
}

fn seconds(data: &Value, key: &str, faults: &mut Faults) -> Option<Duration> {
    match data.field(key) {
        None | Some(Value::Null) => None,
        Some(Value::Int(n)) if *n > 0 => Some(Duration::from_secs(n.unsigned_abs())),
        Some(Value::Float(x)) if *x > 0.0 => Duration::try_from_secs_f64(*x).ok(),
        Some(text @ Value::String(_)) if as_f64(text).is_some_and(|x| x > 0.0) => {
            as_f64(text).and_then(|x| Duration::try_from_secs_f64(x).ok())
        }
        Some(_) => {
            faults.add(Path::root().key(key), "a number of seconds above 0 is wanted");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
        Value::map(entries)
    }

    #[test]
    fn what_a_node_says_of_checkpoints_beats_its_kind() {
        let checkpoint = |kind: &str, data: &Value| Settings::read(kind, data).unwrap().checkpoint;
        for (kind, by_default) in [("command", false), ("end", false), ("agent", true)] {
            assert_eq!(checkpoint(kind, &map([])), by_default, "{kind}");
            assert_eq!(checkpoint(kind, &map([(CHECKPOINT, Value::Null)])), by_default, "{kind}");
            assert!(checkpoint(kind, &map([(CHECKPOINT, true.into())])), "{kind}");
            assert!(!checkpoint(kind, &map([(CHECKPOINT, false.into())])), "{kind}");
        }
    }

    #[test]
    fn both_spellings_of_an_error_strategy_are_read() {
        let read = |data: Value| Settings::read("code", &data).unwrap().on_error;
        assert_eq!(read(map([])), OnError::Fail);
        assert_eq!(read(map([("error_strategy", "fail-branch".into())])), OnError::Branch);
        assert_eq!(read(map([("error_strategy", map([("type", "fail-branch".into())]))])), OnError::Branch);
        let number = map([("key", "n".into()), ("type", "number".into()), ("value", "3".into())]);
        let dify = map([("error_strategy", "default-value".into()), ("default_value", vec![number].into())]);
        let flat = map([(
            "error_strategy",
            map([("type", "default-value".into()), ("default_value", map([("n", 3.into())]))]),
        )]);
        let expected = OnError::Default([("n".to_owned(), 3.into())].into());
        assert_eq!(read(dify), expected);
        assert_eq!(read(flat), expected);
    }

    #[test]
    fn waits_grow_up_to_the_longest() {
        let retry = |backoff| Retry {
            interval: Duration::from_millis(100),
            backoff,
            longest: Duration::from_millis(350),
            ..NEVER
        };
        let waits = |backoff, chance| [1, 2, 3, 99].map(|n| retry(backoff).wait(n, chance).as_millis());
        assert_eq!(waits(Backoff::Fixed, 0.0), [100; 4]);
        assert_eq!(waits(Backoff::Exponential, 0.0), [100, 200, 350, 350]);
        assert_eq!(waits(Backoff::Jitter, 0.0), [50, 100, 200, 350]);
    }

    #[test]
    fn nonsense_is_told_with_its_place() {
        let data = map([
            ("error_strategy", "maybe".into()),
            ("retry_config", map([("max_retries", (-1).into())])),
            ("timeout_secs", "soon".into()),
            (CHECKPOINT, 1.into()),
            (ON_UNCERTAIN, "hope".into()),
        ]);
        assert_eq!(Settings::read("code", &data).unwrap_err().0.len(), 5);
    }
}
