//! One run, and what this handle knows of it.

use std::collections::HashMap;

use piton_store::{Head, StoreError};
use piton_types::{EntryHash, RunId, RunSummary};

use crate::commit::CommitObject;
use crate::names::{RunNames, entry_name, number};
use crate::objects::{Objects, Part};

/// How often a list is made again because something went while it was read.
pub(crate) const ATTEMPTS: usize = 100;

/// A run, which need not exist.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) names: RunNames,
    /// Writers of this handle take turns.
    pub(crate) known: tokio::sync::Mutex<Known>,
}

/// What the last look showed. It is looked at again before it counts.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) end: Option<End>,
    /// Where objects of several entries end, by their numbers.
    pub(crate) bursts: HashMap<u64, u64>,
    /// Under which mark the run moves, and after which entry (see `rows`).
    pub(crate) mark: Option<(u64, EntryHash)>,
    /// The readable history has every line.
    pub(crate) told: bool,
}

/// The end of a log.
#[derive(Debug, Clone)]
pub(crate) struct End {
    /// The number of the object of entry 0.
    pub(crate) base: u64,
    /// The number of the newest object.
    pub(crate) object: u64,
    pub(crate) head: Head,
    pub(crate) row: RunSummary,
}

impl End {
    /// The number of the next object.
    pub(crate) fn next(&self) -> u64 {
        self.base + u64::from(self.head.seq.0) + 1
    }
}

/// What is at the end of a run's objects.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    /// The run.
    Run(End),
    /// No run; a new one begins with this number.
    Free(u64),
}

impl Found {
    /// Where the log ends; `None` if there is no run.
    pub(crate) fn head(&self) -> Option<Head> {
        match self {
            Self::Run(end) => Some(end.head),
            Self::Free(_) => None,
        }
    }

    pub(crate) fn end(self) -> Option<End> {
        match self {
            Self::Run(end) => Some(end),
            Self::Free(_) => None,
        }
    }
}

impl Run {
    pub(crate) fn new(id: &RunId) -> Self {
        Self { id: id.clone(), names: RunNames::new(id), known: tokio::sync::Mutex::default() }
    }

    /// The numbers of the objects of entries, ascending, with their sizes.
    pub(crate) async fn numbers(&self, objects: &dyn Objects) -> Result<Vec<(u64, u64)>, StoreError> {
        let listed = objects.list(&self.names.at("entries"), None, usize::MAX).await?;
        Ok(listed
            .iter()
            .filter_map(|listed| Some((number(listed.name.strip_suffix(".json")?)?, listed.size.unwrap_or(0))))
            .collect())
    }

    /// The object with this number; `None` if it is gone.
    pub(crate) async fn object(&self, objects: &dyn Objects, number: u64) -> Result<Option<CommitObject>, StoreError> {
        match objects.get(&self.names.entry(number), Part::Whole).await? {
            None => Ok(None),
            Some(object) => CommitObject::decode(&object.bytes, &self.id, number).map(Some),
        }
    }

    /// Where the log ends. What was known is believed if the newest object is still there and the next one isn't.
    pub(crate) async fn end(&self, objects: &dyn Objects, known: &mut Known) -> Result<Found, StoreError> {
        if let Some(end) = &known.end
            && self.is_newest(objects, end).await?
        {
            return Ok(Found::Run(end.clone()));
        }
        known.end = None;
        // A fold may delete an object between the two looks, but never the newest.
        for _ in 0..ATTEMPTS {
            let Some((newest, _)) = self.numbers(objects).await?.pop() else { return Ok(Found::Free(0)) };
            let Some(object) = self.object(objects, newest).await? else { continue };
            let (Some(row), Some(last)) = (object.row, object.entries.last()) else {
                *known = Known::default();
                return Ok(Found::Free(newest + 1));
            };
            let end = End { base: object.base, object: newest, head: last.head(), row };
            known.end = Some(end.clone());
            return Ok(Found::Run(end));
        }
        Err(StoreError::corrupt(format!("run {}", self.id), "its newest entry can't be read"))
    }

    /// Whether the newest object is still there and the next one isn't.
    async fn is_newest(&self, objects: &dyn Objects, end: &End) -> Result<bool, StoreError> {
        if !objects.is_remote() {
            let is_there = objects.exists(&self.names.entry(end.object)).await?;
            return Ok(is_there && !objects.exists(&self.names.entry(end.next())).await?);
        }
        // One call for both.
        let before = end.object.checked_sub(1).map(entry_name);
        let listed = objects.list(&self.names.at("entries"), before.as_deref(), 2).await?;
        Ok(matches!(&listed[..], [newest] if newest.name == entry_name(end.object)))
    }

    /// The base of the run and, unless its newest object is damaged, where it ends. What lies before a damaged object
    /// can still be read. `NotFound` if there is no such run.
    pub(crate) async fn base(
        &self,
        objects: &dyn Objects,
        known: &mut Known,
    ) -> Result<(u64, Option<End>), StoreError> {
        match self.end(objects, known).await {
            Ok(Found::Run(end)) => return Ok((end.base, Some(end))),
            Ok(Found::Free(_)) => return Err(StoreError::no_run(&self.id)),
            Err(StoreError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        let numbers = self.numbers(objects).await?;
        for (number, _) in numbers.iter().rev() {
            if let Ok(Some(object)) = self.object(objects, *number).await {
                return Ok((if object.row.is_some() { object.base } else { number + 1 }, None));
            }
        }
        numbers.first().map(|(first, _)| (*first, None)).ok_or_else(|| StoreError::no_run(&self.id))
    }
}
