//! What differs between the states of two checkpoints, value by value, and what two runs did differently. What two states
//! have in common is compared by one look at its id and not read.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use piton_log::state::{Change, NodeSource, State, diff};
use piton_log::{RunLog, SealedEntry};
use piton_runtime::{Context, Origin, WholeHistory};
use piton_store::{Bytes, Store, StoreError};
use piton_types::RunState;
use piton_types::{BlobId, PartName, Path, RunId, RunKind, Value};

use crate::app::App;
use crate::failure::Failure;
use crate::references::{Reference, resolve_checkpoint, run_id};
use crate::views::entry::{DiffView, ValueChange, entry_id};
use crate::views::value_json;

/// Compares the states of two checkpoints.
pub async fn diff_states(app: &App, from: &Reference, to: &Reference) -> Result<DiffView, Failure> {
    refuse_mixed(from, to)?;
    let store = app.look().await?;
    let from = resolve_checkpoint(app, &store, from).await?;
    let to = resolve_checkpoint(app, &store, to).await?;
    let changes = compare(&from, &to).await?;
    store.close().await?;
    let changes = changes.into_iter().map(|Change { path, old, new }| change(path.to_string(), [old, new]));
    let [from, to] = [&from, &to].map(|(log, entry)| entry_id(log.run(), entry).to_string());
    Ok(DiffView { from, to, changes: changes.collect() })
}

/// Compares two runs if both are made of steps: their inputs, what each step gave, how they ended. `None` if they are
/// something else, or if only their `files` are wanted.
pub async fn diff_runs(app: &App, from: &Reference, to: &Reference, files: bool) -> Result<Option<DiffView>, Failure> {
    refuse_mixed(from, to)?;
    let (Reference::Run(from), Reference::Run(to), false) = (from, to, files) else { return Ok(None) };
    let store = app.look().await?;
    let [from, to] = [run_id(app, &store, from).await?, run_id(app, &store, to).await?];
    let found = if steps(&store, &from).await? && steps(&store, &to).await? {
        let context = Context::system(Arc::clone(&store));
        let [old, new] = [WholeHistory::of(&context, &from).await?, WholeHistory::of(&context, &to).await?];
        let changes = compare_runs(&seen(&old), &seen(&new));
        Some(DiffView { from: from.to_string(), to: to.to_string(), changes })
    } else {
        None
    };
    store.close().await?;
    Ok(found)
}

fn change(path: String, [old, new]: [Option<Value>; 2]) -> ValueChange {
    ValueChange { path, old: old.as_ref().map(value_json), new: new.as_ref().map(value_json) }
}

/// Whether a run is made of steps, and not of a folder's snapshots.
async fn steps(store: &Arc<dyn Store>, run: &RunId) -> Result<bool, Failure> {
    let kind = store.summary(run).await?.map(|summary| summary.kind);
    Ok(matches!(kind, Some(RunKind::Workflow | RunKind::Steps)))
}

fn refuse_mixed(from: &Reference, to: &Reference) -> Result<(), Failure> {
    let is_run = |reference: &Reference| matches!(reference, Reference::Run(_));
    if is_run(from) != is_run(to) {
        return Err(Failure::usage(format!("{from} and {to} are of different kinds"))
            .hint("compare two checkpoints or two runs; RUN@ is the newest checkpoint of a run."));
    }
    Ok(())
}

/// The differences of all parts; a path begins with the part's name.
async fn compare(from: &(RunLog, SealedEntry), to: &(RunLog, SealedEntry)) -> Result<Vec<Change>, Failure> {
    let mut names: Vec<&PartName> = from.1.parts.keys().chain(to.1.parts.keys()).collect();
    names.sort();
    names.dedup();
    let mut changes = Vec::new();
    for name in names {
        let part = Path::root().key(&name.0);
        match (from.1.parts.get(name), to.1.parts.get(name)) {
            (Some(old), Some(new)) => {
                let (old, new) = (from.0.state(old), to.0.state(new));
                let (before, after) = (old.root(), new.root());
                for Change { path, old, new } in diff(&Both(old, new), before, after).await? {
                    let mut whole = part.clone();
                    path.segments().iter().for_each(|segment| whole.push(segment.clone()));
                    changes.push(Change { path: whole, old, new });
                }
            }
            (Some(old), None) => {
                changes.push(Change { path: part, old: Some(from.0.load(old).await?), new: None });
            }
            (None, Some(new)) => changes.push(Change { path: part, old: None, new: Some(to.0.load(new).await?) }),
            (None, None) => {}
        }
    }
    Ok(changes)
}

/// The nodes of two states.
struct Both(State, State);

#[async_trait]
impl NodeSource for Both {
    async fn fetch(&self, id: BlobId) -> Result<Bytes, StoreError> {
        match self.0.fetch(id).await {
            // Then it is the other one's. Damage is told, and not taken for absence.
            Err(StoreError::NotFound { .. }) => self.1.fetch(id).await,
            other => other,
        }
    }
}

/// What there is to see of a run, by place, in the order in which it came.
fn seen(history: &WholeHistory) -> Vec<(String, Value)> {
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

fn compare_runs(old: &[(String, Value)], new: &[(String, Value)]) -> Vec<ValueChange> {
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
                    differences.push(change(format!("{place}.{name}"), sides));
                }
            }
            _ => differences.push(change(place.clone(), sides)),
        }
    }
    differences
}
