//! After a restore that was cut short: the next process that uses the workspace finishes it.
//!
//! The mark beside the store says which entry of the log was to be its backup. If the log doesn't have it, nothing
//! had changed, and what waits in the staging folder is thrown away. Otherwise the log has the backup and the tree
//! that it was to lead to: each path between the two is old, or new, or there in part because the power went, or it was
//! changed since. The last are left, and said; the others are done now. This can be killed and
//! repeated itself.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use piton_log::ContentReader;
use piton_types::{BlobId, CheckpointRef, Seq};

use super::execute::Begun;
use super::plan::PlannedChange;
use super::staging::{Planned, Rescued, Staging};
use crate::record::{RestoreKind, Role};
use crate::scan::Progress;
use crate::snapshot::Snapshot;
use crate::tree::{Difference, Entry, alike, diff, entry_at};
use crate::workspace::{Inner, blocking};
use crate::{RelPath, Workspace, WorkspaceError, content, system};

/// What was found and done.
#[derive(Debug, Clone)]
pub struct Recovered {
    /// What the restore was for, in words.
    pub restore: String,
    /// What was left as it is, and why.
    pub left: Vec<(RelPath, String)>,
    /// What was written at the very moment of the restore, and where that was kept.
    pub rescued: Vec<Rescued>,
}

impl Workspace {
    /// Finishes a restore that was cut short, if there is one.
    #[boxed]
    pub async fn recover(&self, progress: &Arc<Progress>) -> Result<Option<Recovered>, WorkspaceError> {
        if self.read_mark()?.is_none() {
            return Ok(None);
        }
        let _lock = self.lock(progress).await?;
        // The process that held the lock may have finished it.
        let Some(mark) = self.read_mark()? else { return Ok(None) };
        let said = mark.strip_prefix("restoring ").and_then(|mark| mark.split_once(' '));
        let said = said.and_then(|(seq, place)| Some((Seq(seq.parse().ok()?), place)));
        let Some((seq, place)) = said else {
            self.unmark()?;
            return Ok(None);
        };
        let staging = Staging::find(&self.0, place);
        let backup = CheckpointRef { run: self.run(), seq };
        let timeline = self.timeline().await?;
        let found = timeline.find(&backup).map(|place| &timeline.moments[place]);
        let role = found.map(|moment| (moment.snapshot, moment.record.role.clone()));
        let Some((before, Role::Backup { result, restore })) = role else {
            // What can't be removed isn't ours.
            let _ = staging.map(|staging| staging.remove());
            self.unmark()?;
            return Ok(None);
        };
        let nodes = self.nodes();
        let (planned, lost) = match blocking(move || diff(&nodes, before.tree, result)).await {
            Err(error) if error.is_lost() => (Vec::new(), Some(error)),
            other => (other?, None),
        };
        let rescued = match staging {
            Some(staging) => {
                let (reader, known) =
                    (self.reader(), Planned::new(planned.iter().flat_map(|one| [&one.old, &one.new])));
                blocking(move || staging.clear(&known, &HashMap::new(), Some(&reader), |_| None)).await?
            }
            None => Vec::new(),
        };
        let ended = timeline
            .moments
            .iter()
            .any(|moment| matches!(&moment.record.role, Role::Restored { backup: of, .. } if *of == backup));
        let left = lost.map(|error| (RelPath::default(), format!("what it was to be can't be read: {error}")));
        let mut recovered = Recovered { restore: restore.as_words(), left: Vec::from_iter(left), rescued };
        match ended {
            true => self.unmark()?,
            false => self.go_on(backup, before, result, restore, planned, progress, &mut recovered).await?,
        }
        Ok(Some(recovered))
    }

    #[expect(clippy::too_many_arguments, reason = "all that is known of a restore")]
    async fn go_on(
        &self,
        backup: CheckpointRef,
        before: Snapshot,
        result: BlobId,
        restore: RestoreKind,
        planned: Vec<Difference>,
        progress: &Arc<Progress>,
        recovered: &mut Recovered,
    ) -> Result<(), WorkspaceError> {
        let rules = self.rules_now().await?;
        let mut staged = self.stage(&HashSet::new(), rules, progress).await?;
        let (changes, changed) = self.what_is_left(planned, staged.scanned.root.tree).await?;
        staged.let_go().await?;
        recovered.left.extend(changed);
        let (this, reader) = (self.clone(), self.reader());
        let (seq, progress) = (backup.seq, Arc::clone(progress));
        let (staging, changes, lost) = blocking(move || {
            let make = || Staging::create(&this.0, |place| this.mark(seq, place));
            let staging = make()?;
            match staging.fill(&changes, &HashMap::new(), &HashMap::new(), &reader, &progress) {
                Ok(()) => Ok((staging, changes, Vec::new())),
                // It never can be finished: then it ends with what is there.
                Err(error) if error.is_lost() => {
                    staging.remove()?;
                    let lost = changes.into_iter().map(|change| (change.path, error.to_string())).collect();
                    Ok((make()?, Vec::new(), lost))
                }
                Err(error) => Err(error),
            }
        })
        .await?;
        recovered.left.extend(lost);
        let mut log = self.log(&backup.run).await?;
        // With something left, or kept in the folder, the result isn't what was planned.
        let result = (recovered.left.is_empty() && recovered.rescued.is_empty()).then_some(result);
        let begun = Begun { kind: restore, backup, before, result, changes, staging, rules };
        match self.finish(&mut log, begun).await {
            Err(WorkspaceError::Incomplete { failed, rescued, .. }) => {
                recovered.left.extend(failed);
                recovered.rescued.extend(rescued);
            }
            other => recovered.rescued.extend(other?.rescued),
        }
        Ok(log.close().await?)
    }

    /// Which of the planned changes are still to be made, and which paths were changed since.
    async fn what_is_left(
        &self,
        planned: Vec<Difference>,
        now: BlobId,
    ) -> Result<(Vec<PlannedChange>, Vec<(RelPath, String)>), WorkspaceError> {
        let (inner, nodes, reader) = (Arc::clone(&self.0), self.nodes(), self.reader());
        blocking(move || {
            let (mut changes, mut changed) = (Vec::new(), Vec::new());
            for change in planned {
                let here = entry_at(&nodes, now, &change.path)?;
                if alike(&here, &change.new) {
                    continue;
                }
                // A folder is made narrow, and given its permissions last.
                let unfinished =
                    here.as_ref().is_some_and(Entry::is_folder) && change.new.as_ref().is_some_and(Entry::is_folder);
                if alike(&here, &change.old)
                    || here.is_none()
                    || unfinished
                    || is_there_in_part(&inner, &reader, &change.path, &here, &change.new)?
                {
                    let (path, then) = (change.path, change.new);
                    changes.push(PlannedChange { path, now: here, then, merged: false, resolved: false });
                } else {
                    changed.push((change.path, "it was changed since".to_owned()));
                }
            }
            Ok((changes, changed))
        })
        .await
    }
}

/// Whether what is there is what a restore was writing when the power went. Nothing is lost with it.
fn is_there_in_part(
    inner: &Inner,
    reader: &ContentReader,
    path: &RelPath,
    here: &Option<Entry>,
    then: &Option<Entry>,
) -> Result<bool, WorkspaceError> {
    let (Some(Entry::File { mode: now, size: is, .. }), Some(Entry::File { mode, size, content })) = (here, then)
    else {
        return Ok(false);
    };
    // While it waits, only its owner can read it.
    if is > size || (now != mode && *now != 0o600) {
        return Ok(false);
    }
    let Some((parent, name)) = path.split() else { return Ok(false) };
    let opened = system::open_below(&inner.folder, &parent).and_then(|parent| system::open_file(parent, name));
    let Ok(file) = opened else { return Ok(false) };
    content::is_part_of(&file, &|id| Ok(reader.get(id)?), *content, *size)
}
