//! The rows of runs in a place where every look is a call to another machine: `rows/RUN.json`, so that a list needs not
//! look at every log.
//!
//! Invariant: a row that is there for a run is its index row as of its newest entry. Before a handle appends to a run it
//! writes that the run *moves*, under a mark of its own, and when its commit leaves the run at rest it writes the row, if
//! the mark is still its own. Commits follow each other: a handle whose commit doesn't follow its own last one marks anew
//! first. So whoever appends after a row was written has marked after that. Of a run that moves, the log tells.
//!
//! `rows.json` has the rows of many runs with the versions of their objects. It is only there so that a fresh handle needs
//! one call for them instead of one for each; a row whose object has another version is read.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use piton_store::checked::{self, FORMAT};
use piton_store::{Owner, StoreError};
use piton_types::{Durability, RunId, RunSummary};
use serde::{Deserialize, Serialize};

use crate::names::{ROWS, escape, run_of};
use crate::objects::{Objects, Part, Version, change, read};
use crate::run::{End, Known, Run};
use crate::store::ObjectStore;

/// The rows of many.
const MANY: &str = "rows.json";

/// How many calls are under way at once.
pub(crate) const AT_ONCE: usize = 16;

/// From so many on it is worth writing down what was read.
const WORTH_IT: usize = 32;

/// `rows/RUN.json`.
#[derive(Serialize, Deserialize)]
struct RowObject {
    format: u32,
    run: RunId,
    /// Of the handle that wrote it last.
    mark: u64,
    /// `None` while the run moves.
    row: Option<RunSummary>,
}

/// `rows.json`.
#[derive(Serialize, Deserialize)]
struct ManyObject {
    format: u32,
    rows: HashMap<String, (String, RunSummary)>,
}

/// The rows that a handle has read, by the names of their objects.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    known: HashMap<String, (Version, RunSummary)>,
    /// Whether those of many were looked at.
    begun: bool,
}

impl Run {
    fn row_name(&self) -> String {
        format!("{ROWS}/{}.json", escape(self.id.as_str()))
    }

    /// The run is about to get an entry after this one.
    pub(crate) async fn moves(
        &self,
        objects: &dyn Objects,
        known: &mut Known,
        before: Option<&End>,
    ) -> Result<(), StoreError> {
        let after = before.map(|end| end.head.hash);
        if after.is_some() && known.mark.is_some_and(|(_, at)| Some(at) == after) {
            return Ok(());
        }
        let mark = Owner::new().0;
        let object = || RowObject { format: FORMAT, run: self.id.clone(), mark, row: None };
        // Whatever is there, also if it is damaged.
        change(objects, &self.row_name(), Durability::Durable, |_: Result<Option<RowObject>, _>| {
            Ok((Some(object()), ()))
        })
        .await?;
        known.mark = Some((mark, after.unwrap_or(piton_types::EntryHash::ROOT)));
        Ok(())
    }

    /// The handle's commit left the run with this row. Another handle may have begun to append since.
    pub(crate) async fn rests(&self, objects: &dyn Objects, mark: u64, row: &RunSummary) -> Result<(), StoreError> {
        change(objects, &self.row_name(), Durability::Durable, |old: Result<Option<RowObject>, _>| {
            let is_ours = matches!(old, Ok(Some(RowObject { mark: now, row: None, .. })) if now == mark);
            let object = RowObject { format: FORMAT, run: self.id.clone(), mark, row: Some(row.clone()) };
            Ok((is_ours.then_some(object), ()))
        })
        .await
    }

    /// The run was removed under this mark.
    pub(crate) async fn is_gone(&self, objects: &dyn Objects, mark: u64) -> Result<(), StoreError> {
        let name = self.row_name();
        match read::<RowObject>(objects, &name).await? {
            Some((row, version)) if row.mark == mark => {
                objects.delete(&name, Some(&version), Durability::Relaxed).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}

impl ObjectStore {
    /// Every run that there may be, with its row unless its log has to tell.
    pub(crate) async fn rows(&self, objects: &dyn Objects) -> Result<Vec<(RunId, Option<RunSummary>)>, StoreError> {
        let mut rows = self.rows.lock().await;
        let listed = objects.list(ROWS, None, usize::MAX).await?;
        let runs = listed.into_iter().filter_map(|listed| {
            let run = run_of(listed.name.strip_suffix(".json")?)?;
            Some((listed.name, listed.version?, run))
        });
        let runs: Vec<(String, Version, RunId)> = runs.collect();
        let is_unknown =
            |rows: &Rows, name: &str, version: &Version| rows.known.get(name).is_none_or(|(known, _)| known != version);
        if !std::mem::replace(&mut rows.begun, true)
            && let Ok(Some((many, _))) = read::<ManyObject>(objects, MANY).await
        {
            rows.known.extend(many.rows.into_iter().map(|(name, (version, row))| (name, (Version(version), row))));
        }
        let unknown = runs.iter().filter(|(name, version, _)| is_unknown(&rows, name, version));
        let unknown: Vec<_> = unknown.map(|(name, version, _)| (name.clone(), version.clone())).collect();
        let fetched: Vec<(String, Option<(Version, RunSummary)>)> = futures_util::stream::iter(unknown)
            .map(|(name, version)| async move {
                let found = match read::<RowObject>(objects, &format!("{ROWS}/{name}")).await {
                    // If it was replaced since the list, the next list says so.
                    Ok(found) => found.and_then(|(object, _)| Some((version, object.row?))),
                    // Its log has to tell.
                    Err(StoreError::Corrupt { .. } | StoreError::TooNew { .. }) => None,
                    Err(error) => return Err(error),
                };
                Ok::<_, StoreError>((name, found))
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let mut read_now = 0;
        for (name, found) in fetched {
            match found {
                Some(found) => {
                    read_now += 1;
                    rows.known.insert(name, found);
                }
                None => drop(rows.known.remove(&name)),
            }
        }
        if read_now >= WORTH_IT {
            let there: HashMap<_, _> = runs.iter().map(|(name, ..)| (name.as_str(), ())).collect();
            rows.known.retain(|name, _| there.contains_key(name.as_str()));
            // Who else writes it writes the same.
            if let Err(error) = write_many(objects, &rows).await {
                tracing::warn!(%error, "the rows of runs aren't written down");
            }
        }
        let row =
            |name: &str, run: &RunId| rows.known.get(name).map(|(_, row)| row.clone()).filter(|row| row.id == *run);
        Ok(runs.iter().map(|(name, _, run)| (run.clone(), row(name, run))).collect())
    }
}

async fn write_many(objects: &dyn Objects, rows: &Rows) -> Result<(), StoreError> {
    let rows = rows.known.iter().map(|(name, (version, row))| (name.clone(), (version.0.clone(), row.clone())));
    let bytes: Bytes = checked::seal(&ManyObject { format: FORMAT, rows: rows.collect() })?.into();
    match objects.get(MANY, Part::Range(0..0)).await? {
        None => objects.create(MANY, bytes, Durability::Relaxed).await.map(drop),
        Some(old) => objects.replace(MANY, bytes, &old.version, Durability::Relaxed).await.map(drop),
    }
}
