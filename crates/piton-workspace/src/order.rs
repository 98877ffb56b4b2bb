//! The order of a folder's checkpoints, whichever runs they are in. Each carries a number, one more than any before it,
//! that its writer took under the folder's lock. So a clock that jumps changes no order.
//!
//! The newest number is also kept in a small file beside the lock. It is believed only in the boot in which it was
//! written: a process that is killed leaves it whole, but a power cut may leave an older one. Otherwise the logs of the
//! folder's runs are asked.

use async_recursion::async_recursion as boxed;
use piton_log::RunLog;
use piton_runtime::History;
use piton_store::{RunQuery, Span};
use piton_types::{PartName, Parts, RunId, RunKind, RunSummary, Seq};

use crate::timeline::{Moment, is_passed_over, moment};
use crate::{Workspace, WorkspaceError};

/// How many entries are read at a time when looking back; the first look is at the newest alone.
const PAGE: usize = 16;

/// A run with so many entries is looked into by its index.
const LONG: Seq = Seq(256);

/// The file with the newest number.
const NUMBER: &str = "moment";

impl Workspace {
    /// The number of the folder's newest checkpoint, or a higher one that no checkpoint got; 0 if there is none.
    pub(crate) async fn last_number(&self) -> Result<u64, WorkspaceError> {
        if let Some(number) = self.kept_number() {
            return Ok(number);
        }
        let mut highest = 0;
        for run in self.runs().await? {
            let newest = self.newest_of(&run.id, true).await?;
            highest = highest.max(newest.map_or(0, |newest| newest.record.moment));
        }
        Ok(highest)
    }

    /// The number of the next checkpoint. The caller has the folder's lock.
    pub(crate) async fn next_number(&self) -> Result<u64, WorkspaceError> {
        let next = self.last_number().await? + 1;
        let state = &self.0.state;
        // An older number must not stay behind.
        state
            .write(NUMBER, &[format!("{next}{}", self.place_and_time()).as_bytes()], false)
            .or_else(|_| state.remove(NUMBER))
            .map_err(|error| WorkspaceError::file("write", state.path(NUMBER), error))?;
        Ok(next)
    }

    /// The number that the file says, if the file is of this boot and store.
    pub(crate) fn kept_number(&self) -> Option<u64> {
        let text = String::from_utf8(self.0.state.read(NUMBER).ok()??).ok()?;
        let here = !self.context().holder.boot.is_empty();
        text.strip_suffix(&self.place_and_time()).filter(|_| here)?.parse().ok()
    }

    fn place_and_time(&self) -> String {
        let store = blake3::Hash::from_bytes(self.0.binding.store).to_hex();
        format!(" {} {store}\n", self.context().holder.boot)
    }

    /// The newest checkpoint of the folder's files.
    #[boxed]
    pub async fn newest(&self) -> Result<Option<Moment>, WorkspaceError> {
        let kept = self.kept_number();
        let mut newest: Option<Moment> = None;
        // The run that was active last mostly has it. If a clock jumped, another one may.
        for run in self.runs().await? {
            let found = match self.newest_of(&run.id, false).await {
                Err(error) if is_passed_over(&run, &error) => None,
                found => found?,
            };
            newest = newest.into_iter().chain(found).max_by_key(|moment| moment.record.moment);
            if newest.as_ref().is_some_and(|newest| Some(newest.record.moment) == kept) {
                break;
            }
        }
        Ok(newest)
    }

    /// The runs of this folder, the one that was active last first.
    pub(crate) async fn runs(&self) -> Result<Vec<RunSummary>, WorkspaceError> {
        Ok(self.store().list(RunQuery { folders: self.folder_names(), ..RunQuery::default() }).await?)
    }

    /// The newest checkpoint of files in a run's log.
    pub(crate) async fn newest_of(&self, run: &RunId, with_removed: bool) -> Result<Option<Moment>, WorkspaceError> {
        let log = RunLog::open(std::sync::Arc::clone(self.store()), run).await?;
        if !may_have_files(&log).await? {
            return Ok(None);
        }
        let mut to = log.head().seq;
        // What removes a checkpoint comes after it, and so is met first.
        let mut removed = std::collections::BTreeSet::new();
        for size in std::iter::once(1).chain(std::iter::repeat(PAGE)) {
            let page = log.entries(Span { to, ..Span::newest(size) }).await?;
            removed.extend(log.removed_in(&page).await?.checkpoints);
            for entry in page.iter().filter(|entry| with_removed || !removed.contains(&entry.seq)) {
                if let Some(found) = moment(&log, entry).await? {
                    return Ok(Some(found));
                }
            }
            match page.last().and_then(|oldest| oldest.seq.0.checked_sub(1)) {
                Some(before) => to = Seq(before),
                None => break,
            }
        }
        Ok(None)
    }
}

/// Whether a run is looked into by its index.
pub(crate) async fn is_long(log: &RunLog) -> Result<bool, WorkspaceError> {
    Ok(log.head().seq >= LONG && !matches!(log.summary().await?.kind, RunKind::Workspace | RunKind::Guard))
}

/// Whether a run may have checkpoints of files. A long run that has none isn't gone through: its index knows.
pub(crate) async fn may_have_files(log: &RunLog) -> Result<bool, WorkspaceError> {
    if !is_long(log).await? {
        return Ok(true);
    }
    let history = History::read(log).await?;
    let has_files = |parts: &Parts| parts.contains_key(&PartName::from(PartName::WORKSPACE));
    // A checkpoint has the parts of the one before, unless the run was put back in between.
    Ok(history.totals.restores > 0 || history.checkpoint.is_some_and(|(_, parts)| has_files(&parts)))
}
