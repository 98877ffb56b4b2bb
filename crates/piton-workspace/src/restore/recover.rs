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
use rustix::io::Errno;

use super::apply::{Staging, content_of, remove_staging, staging_name, widened_from};
use super::execute::Begun;
use super::plan::PlannedChange;
use crate::record::{RestoreKind, Role};
use crate::scan::Progress;
use crate::snapshot::Snapshot;
use crate::tree::{Content, Difference, Entry, diff, entry_at};
use crate::workspace::{Inner, blocking};
use crate::{RelPath, Workspace, WorkspaceError, content, system};

/// What was found and done.
#[derive(Debug, Clone)]
pub struct Recovered {
    /// What the restore was for, in words.
    pub restore: String,
    /// What was left as it is, and why.
    pub left: Vec<(RelPath, String)>,
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
        let seq = mark.strip_prefix("restoring ").and_then(|seq| seq.trim().parse().ok().map(Seq));
        let Some(seq) = seq else {
            self.unmark()?;
            return Ok(None);
        };
        let backup = CheckpointRef { run: self.run(), seq };
        let timeline = self.timeline().await?;
        let found = timeline.find(&backup).map(|place| &timeline.moments[place]);
        let role = found.map(|moment| (moment.snapshot, moment.record.role.clone()));
        let Some((before, Role::Backup { result, restore })) = role else {
            let (inner, staging) = (Arc::clone(&self.0), staging_name(&self.tag(seq)));
            blocking(move || remove_staging(&inner, &staging)).await?;
            self.unmark()?;
            return Ok(None);
        };
        let ended = timeline
            .moments
            .iter()
            .any(|moment| matches!(&moment.record.role, Role::Restored { backup: of, .. } if *of == backup));
        let words = restore.as_words();
        let left = match ended {
            true => {
                let left = self.clear_staging(&self.tag(seq), Vec::new()).await?;
                self.unmark()?;
                left
            }
            false => self.go_on(backup, before, result, restore, progress).await?,
        };
        Ok(Some(Recovered { restore: words, left }))
    }

    async fn go_on(
        &self,
        backup: CheckpointRef,
        before: Snapshot,
        result: BlobId,
        restore: RestoreKind,
        progress: &Arc<Progress>,
    ) -> Result<Vec<(RelPath, String)>, WorkspaceError> {
        let tag = self.tag(backup.seq);
        let nodes = self.nodes();
        let planned = blocking(move || diff(&nodes, before.tree, result)).await?;
        let mut left = self.clear_staging(&tag, planned.clone()).await?;
        let staged = self.stage(&HashSet::new(), progress).await?;
        let (changes, changed) = self.what_is_left(planned, staged.scanned.tree).await?;
        left.extend(changed);
        let (inner, reader) = (Arc::clone(&self.0), self.reader());
        let (fill, staging_tag, progress) = (changes.clone(), tag.clone(), Arc::clone(progress));
        blocking(move || {
            let staging = Staging::create(&inner, &staging_tag)?;
            staging.fill(&fill, &HashMap::new(), &HashMap::new(), &reader, &progress)
        })
        .await?;
        let mut log = self.log(&backup.run).await?;
        // With something left, the result isn't what was planned.
        let result = left.is_empty().then_some(result);
        let begun = Begun { kind: restore, backup, before, result, changes, tag, cache: None, recent: Vec::new() };
        match self.finish(&mut log, begun).await {
            Err(WorkspaceError::Incomplete { failed, .. }) => left.extend(failed),
            other => drop(other?),
        }
        log.close().await?;
        Ok(left)
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
                let is = |entry: &Option<Entry>| match (&here, entry) {
                    (None, None) => true,
                    (Some(here), Some(entry)) => here.is_alike(entry),
                    _ => false,
                };
                if is(&change.new) {
                    continue;
                }
                // A folder is made narrow, and given its permissions last.
                let unfinished =
                    here.as_ref().is_some_and(Entry::is_folder) && change.new.as_ref().is_some_and(Entry::is_folder);
                if is(&change.old)
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

    /// Empties the folder that contents waited in, and gives folders the permissions that they had. What isn't in the
    /// store, because it was written at the very moment of the restore, is put where a person finds it.
    async fn clear_staging(
        &self,
        tag: &str,
        planned: Vec<Difference>,
    ) -> Result<Vec<(RelPath, String)>, WorkspaceError> {
        let (inner, staging, hashing) = (Arc::clone(&self.0), staging_name(tag), self.store().hashing().clone());
        let (reader, rescued) = (self.reader(), format!("piton-recovered-{tag}"));
        blocking(move || {
            let fail = |error| WorkspaceError::file("read", &inner.root, error);
            let folder = match system::open_folder(&inner.folder, &staging) {
                Ok(folder) => folder,
                Err(Errno::NOENT) => return Ok(Vec::new()),
                Err(error) => return Err(fail(error)),
            };
            let waiting: HashMap<BlobId, (Content, u64)> = planned
                .iter()
                .filter_map(|change| match change.new {
                    Some(Entry::File { size, content, .. }) => Some((content.id(), (content, size))),
                    _ => None,
                })
                .collect();
            let get = |id: BlobId| Ok(reader.get(id)?);
            let mut unknown = false;
            for entry in system::names(&folder).map_err(fail)? {
                let stat = system::stat(&folder, &entry).map_err(fail)?;
                if let Some(mode) = widened_from(&entry) {
                    narrow(&inner, &system::read_link(&folder, &entry).map_err(fail)?, mode);
                }
                if !crate::cache::is_file(&stat) {
                    continue;
                }
                let file = system::open_file(&folder, &entry).map_err(fail)?;
                let sink = super::apply::Named(&hashing);
                let stored = match content::read(&file, stat.size, &mut Vec::new(), &sink) {
                    Ok((content, _)) => reader.by_pack(&[content.id()]).is_ok(),
                    Err(_) => false,
                };
                unknown |= !stored
                    && match content_of(&entry).and_then(|id| waiting.get(&id)) {
                        Some((content, size)) => {
                            let file = system::open_file(&folder, &entry).map_err(fail)?;
                            !content::is_part_of(&file, &get, *content, *size)?
                        }
                        None => true,
                    };
            }
            if !unknown {
                remove_staging(&inner, &staging)?;
                return Ok(Vec::new());
            }
            rustix::fs::renameat(&inner.folder, system::name(&staging), &inner.folder, &rescued).map_err(fail)?;
            let path = RelPath::new(rescued.as_bytes())?;
            Ok(vec![(path, "it has what was written at the very moment of the restore".to_owned())])
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

/// Takes from a folder the permissions that were only there to change what is in it. If the folder has other
/// permissions, another process has set them, or the restore never got to widen them.
fn narrow(inner: &Inner, path: &[u8], mode: u16) {
    let Ok(path) = RelPath::new(path) else { return };
    let Ok(folder) = system::open_below(&inner.folder, &path) else { return };
    if system::stat_of(&folder).is_ok_and(|stat| stat.mode == mode | 0o700) {
        // If it can't be done, the folder is as open to its owner as it was a moment ago.
        let _ = system::change_mode(&folder, mode);
    }
}
