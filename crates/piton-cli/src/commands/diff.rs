//! `piton diff --state`: what differs between the states of two checkpoints, value by value. What both
//! have in common is compared by one look at its id and not read. Without `--state`, their files; of two runs that
//! are made of steps, what those gave.

use std::sync::Arc;

use async_trait::async_trait;
use piton_store::state::{Change, NodeSource, State, diff};
use piton_store::{Bytes, RunLog, SealedEntry, Store, StoreError};
use piton_types::{BlobId, PartName, Path, RunId, RunKind};
use serde_json::{Value as Json, json};

use crate::arguments::Diff;
use crate::commands::{file_diff, run_diff};
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::cut;
use crate::view;
use piton_app::references::Reference;
use piton_app::references::{resolve_checkpoint, run_id};

pub(crate) async fn execute(session: &Session, arguments: &Diff) -> Result<Exit, Failure> {
    let (from, to) = match (&arguments.from, &arguments.to) {
        (Some(from), Some(to)) if arguments.state => (from, to),
        (from, to) => {
            if let (Some(from), Some(to)) = (from, to) {
                refuse_mixed(from, to)?;
                if let (Reference::Run(from), Reference::Run(to), false) = (from, to, arguments.stat) {
                    let store = session.store().await?;
                    let runs = [run_id(&store, from).await?, run_id(&store, to).await?];
                    if steps(&store, &runs[0]).await? && steps(&store, &runs[1]).await? {
                        return run_diff::execute(session, &store, runs.each_ref()).await;
                    }
                    store.close().await?;
                }
            }
            return file_diff::execute(session, arguments).await;
        }
    };
    refuse_mixed(from, to)?;
    let store = session.store().await?;
    let from = resolve_checkpoint(session, &store, from).await?;
    let to = resolve_checkpoint(session, &store, to).await?;
    let changes = compare(&from, &to).await?;
    store.close().await?;

    let [from, to] = [&from, &to].map(|(log, entry)| view::entry_id(log.run(), entry).to_string());
    let output = &session.output;
    if output.is_json() {
        let changes: Vec<_> = changes.iter().map(change_json).collect();
        output.object(&json!({"from": from, "to": to, "changes": changes}))?;
        return Ok(Exit::Done);
    }
    if changes.is_empty() {
        output.note(&format!("the states of {from} and {to} are the same"));
    }
    for change in &changes {
        let line = change_line(change);
        output.data(&output.width().map_or_else(|| line.clone(), |width| cut(&line, width)))?;
        if output.is_closed() {
            break;
        }
    }
    Ok(Exit::Done)
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

/// A side that has nothing there is left out: null is a value.
fn change_json(change: &Change) -> Json {
    let sides = [("old", &change.old), ("new", &change.new)];
    let sides = sides.into_iter().filter_map(|(name, side)| Some((name.to_owned(), view::value_json(side.as_ref()?))));
    let path = ("path".to_owned(), Json::String(change.path.to_string()));
    Json::Object(std::iter::once(path).chain(sides).collect())
}

fn change_line(change: &Change) -> String {
    let path = clean(&change.path.to_string());
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => format!("~ {path}  {} → {}", view::value_line(old), view::value_line(new)),
        (None, Some(new)) => format!("+ {path}  {}", view::value_line(new)),
        (Some(old), None) => format!("- {path}  {}", view::value_line(old)),
        (None, None) => format!("~ {path}"),
    }
}

#[cfg(test)]
mod tests {
    use piton_types::Value;

    use super::*;

    fn change(old: Option<Value>, new: Option<Value>) -> Change {
        Change { path: "/variables/a~1b".parse().unwrap(), old, new }
    }

    #[test]
    fn null_is_told_from_nothing() {
        let added = change(None, Some(Value::Null));
        assert_eq!(change_json(&added).to_string(), r#"{"new":null,"path":"/variables/a~1b"}"#);
        assert_eq!(change_line(&added), "+ /variables/a~1b  null");
        let changed = change(Some(Value::from(1)), Some(Value::from("\x1b")));
        assert_eq!(change_line(&changed), r#"~ /variables/a~1b  1 → "\u001b""#);
        assert_eq!(change_line(&change(Some(Value::from(1)), None)), "- /variables/a~1b  1");
    }
}
