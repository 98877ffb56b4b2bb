//! How two calls differ, for a person.

use piton_types::{RunId, Value, to_json};

use crate::Call;

/// More of a value isn't shown.
const SHOWN: usize = 80;

/// A value on one line, cut if it is long.
pub(crate) fn short(value: &Value) -> String {
    let text = match to_json(value) {
        Ok(json) => json.to_string(),
        Err(_) => value.kind().to_string(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// What a [`RunError::Changed`](crate::RunError::Changed) says.
pub(crate) fn describe(run: &RunId, expected: &Call, got: &Call) -> String {
    let place = match (&expected.input, &got.input) {
        (Some(then), Some(now)) if expected.step == got.step && then != now => {
            let (path, then, now) = first(String::new(), then, now);
            let at = if path.is_empty() { String::new() } else { format!(" at {path}") };
            let side = |value: Option<&Value>| value.map_or("nothing".to_owned(), short);
            format!("; they differ{at}: {} then, {} now", side(then), side(now))
        }
        _ => String::new(),
    };
    format!(
        "the log of run {run} has {expected} where the program calls {got}{place}: the program or its inputs changed \
         since the run began"
    )
}

/// The first place where two values differ.
fn first<'a>(path: String, then: &'a Value, now: &'a Value) -> (String, Option<&'a Value>, Option<&'a Value>) {
    match (then, now) {
        (Value::Map(then), Value::Map(now)) => {
            let keys = then.keys().chain(now.keys());
            for key in keys {
                match (then.get(key), now.get(key)) {
                    (Some(then), Some(now)) if then == now => {}
                    (Some(then), Some(now)) => return first(format!("{path}/{key}"), then, now),
                    (then, now) => return (format!("{path}/{key}"), then, now),
                }
            }
        }
        (Value::List(then), Value::List(now)) => {
            for at in 0..then.len().max(now.len()) {
                match (then.get(at), now.get(at)) {
                    (Some(then), Some(now)) if then == now => {}
                    (Some(then), Some(now)) => return first(format!("{path}/{at}"), then, now),
                    (then, now) => return (format!("{path}/{at}"), then, now),
                }
            }
        }
        _ => {}
    }
    (path, Some(then), Some(now))
}
