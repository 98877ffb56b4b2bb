//! `piton diff RUN RUN`: what two runs did differently: their inputs, what each step gave, how they ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton::{Context, History, Origin, RunState};
use piton_store::Store;
use piton_types::{RunId, Value};
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::cut;
use crate::view;

/// Something that one run has and the other hasn't, or has otherwise.
struct Difference {
    place: String,
    sides: [Option<Value>; 2],
}

pub(crate) async fn execute(session: &Session, store: &Arc<dyn Store>, runs: [&RunId; 2]) -> Result<Exit, Failure> {
    let context = Context::system(Arc::clone(store));
    let [old, new] = [History::of(&context, runs[0]).await?, History::of(&context, runs[1]).await?];
    store.close().await?;
    let differences = compare(&seen(&old), &seen(&new));
    let output = &session.output;
    if output.is_json() {
        let changes: Vec<_> = differences
            .iter()
            .map(|difference| {
                let mut object = json!({"path": difference.place});
                for (name, side) in ["old", "new"].into_iter().zip(&difference.sides) {
                    if let Some(side) = side {
                        object[name] = view::value_json(side);
                    }
                }
                object
            })
            .collect();
        output.object(&json!({"from": runs[0].as_str(), "to": runs[1].as_str(), "changes": changes}))?;
        return Ok(Exit::Done);
    }
    if differences.is_empty() {
        output.note(&format!("runs {} and {} did the same", runs[0], runs[1]));
    }
    for difference in &differences {
        let place = clean(&difference.place);
        let line = match &difference.sides {
            [Some(old), Some(new)] => format!("~ {place}  {} → {}", view::value_line(old), view::value_line(new)),
            [None, Some(new)] => format!("+ {place}  {}", view::value_line(new)),
            [Some(old), None] => format!("- {place}  {}", view::value_line(old)),
            [None, None] => continue,
        };
        output.data(&output.width().map_or_else(|| line.clone(), |width| cut(&line, width)))?;
        if output.is_closed() {
            break;
        }
    }
    Ok(Exit::Done)
}

/// What there is to see of a run, by place, in the order in which it came.
fn seen(history: &History) -> Vec<(String, Value)> {
    let mut seen = Vec::new();
    match &history.input {
        Value::Map(fields) => seen.extend(fields.iter().map(|(name, value)| (format!("input.{name}"), value.clone()))),
        Value::Null => {}
        other => seen.push(("input".to_owned(), other.clone())),
    }
    let mut newest: BTreeMap<&str, usize> = BTreeMap::new();
    // A fork has what its parent did by then, too.
    let inherited = match &history.origin {
        Some(Origin::Fork { steps, .. }) => steps.as_slice(),
        _ => &[],
    };
    let own = history.steps.iter().zip(&history.step_entries).filter(|(_, entry)| !history.is_undone(**entry));
    for step in inherited.iter().chain(own.map(|(step, _)| step)) {
        let gave = match &step.error {
            Some(error) => Value::map([("error", error.as_str().into())]),
            None => step.output.clone(),
        };
        match newest.get(step.path.as_str()) {
            Some(&place) => seen[place].1 = gave,
            None => {
                newest.insert(step.path.as_str(), seen.len());
                seen.push((step.path.to_string(), gave));
            }
        }
    }
    let ended = match &history.state {
        RunState::Completed(completed) => completed.output.clone(),
        RunState::Failed(failed) => Value::map([("error", failed.message.as_str().into())]),
        _ => Value::Null,
    };
    seen.push(("status".to_owned(), history.state.status().to_string().into()));
    seen.push(("output".to_owned(), ended));
    seen
}

fn compare(old: &[(String, Value)], new: &[(String, Value)]) -> Vec<Difference> {
    let find = |all: &[(String, Value)], place: &str| {
        all.iter().find(|(other, _)| other == place).map(|(_, value)| value.clone())
    };
    let mut differences = Vec::new();
    let only_new = new.iter().filter(|(place, _)| find(old, place).is_none());
    for (place, _) in old.iter().chain(only_new) {
        let sides = [find(old, place), find(new, place)];
        match &sides {
            [Some(old), Some(new)] if old == new => {}
            // Field by field, where both have some.
            [Some(Value::Map(old)), Some(Value::Map(new))] => {
                let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
                for name in names.filter(|name| old.get(*name) != new.get(*name)) {
                    let sides = [old.get(name).cloned(), new.get(name).cloned()];
                    differences.push(Difference { place: format!("{place}.{name}"), sides });
                }
            }
            _ => differences.push(Difference { place: place.clone(), sides }),
        }
    }
    differences
}
