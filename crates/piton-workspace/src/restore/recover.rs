//! After a restore that was cut short: finished by whoever comes next.
//!
//! The mark beside the store says how far it came. While it was preparing, nothing had changed, and its
//! contents are thrown away. Once it was applying, the log has the backup and the tree that it was to lead
//! to: each path between the two is old, or new, or somebody has changed it since. The old ones are done
//! now; the last are left, and said. This can be killed and repeated itself: while it writes contents anew the
//! mark says `repeating`, since what lies there half written is nobody's then.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use piton_types::CheckpointRef;

use super::apply::{Staging, remove_staging, staging_name};
use super::plan::PlannedChange;
use crate::record::Role;
use crate::scan::Progress;
use crate::tree::{diff, entry_at};
use crate::workspace::blocking;
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
    pub async fn recover(&self, progress: &Arc<Progress>) -> Result<Option<Recovered>, WorkspaceError> {
        if !self.mark_path().exists() {
            return Ok(None);
        }
        let _lock = self.lock(progress).await?;
        // Whoever held the lock may have finished it.
        let Ok(mark) = std::fs::read_to_string(self.mark_path()) else { return Ok(None) };
        let words: Vec<&str> = mark.split_whitespace().collect();
        let (tag, backup, is_ours) = match words[..] {
            ["applying", tag, backup] => (tag, backup.parse::<CheckpointRef>().ok(), false),
            ["repeating", tag, backup] => (tag, backup.parse::<CheckpointRef>().ok(), true),
            ["preparing", tag] => (tag, None, true),
            _ => ("", None, false),
        };
        if is_ours {
            let (inner, staging) = (Arc::clone(&self.0), staging_name(tag));
            blocking(move || remove_staging(&inner, &staging)).await?;
        }
        let Some(backup) = backup else {
            self.unmark()?;
            return Ok(None);
        };
        self.go_on(tag, backup, progress).await.map(Some)
    }

    async fn go_on(
        &self,
        tag: &str,
        backup: CheckpointRef,
        progress: &Arc<Progress>,
    ) -> Result<Recovered, WorkspaceError> {
        let timeline = self.timeline().await?;
        let unknown = || WorkspaceError::NoFiles { checkpoint: backup.to_string() };
        let moment = &timeline.moments[timeline.find(&backup).ok_or_else(unknown)?];
        let Some(Role::Backup { result, restore }) = moment.record.as_ref().map(|record| record.role.clone()) else {
            return Err(unknown());
        };
        let words = restore.as_words();
        let ended = timeline.moments.iter().any(|moment| {
            let role = moment.record.as_ref().map(|record| &record.role);
            matches!(role, Some(Role::Restored { backup: of, .. }) if *of == backup)
        });
        let mut left = self.clear_staging(tag).await?;
        if ended {
            self.unmark()?;
            return Ok(Recovered { restore: words, left });
        }
        let before = moment.snapshot;
        let staged = self.stage(&HashSet::new(), progress).await?;
        let now = staged.scanned.tree;
        let nodes = self.nodes();
        let (changes, changed) = blocking(move || {
            let (mut changes, mut changed) = (Vec::new(), Vec::new());
            for change in diff(&nodes, before.tree, result)? {
                let here = entry_at(&nodes, now, &change.path)?;
                let is = |entry: &Option<crate::Entry>| match (&here, entry) {
                    (None, None) => true,
                    (Some(here), Some(entry)) => here.is_alike(entry),
                    _ => false,
                };
                if is(&change.new) {
                    continue;
                }
                // A folder is made narrow, and given its permissions last.
                let unfinished = here.as_ref().is_some_and(crate::Entry::is_folder)
                    && change.new.as_ref().is_some_and(crate::Entry::is_folder);
                if is(&change.old) || here.is_none() || unfinished {
                    changes.push(PlannedChange {
                        path: change.path,
                        now: here,
                        then: change.new,
                        merged: false,
                        resolved: false,
                    });
                } else {
                    changed.push((change.path, "it was changed since".to_owned()));
                }
            }
            Ok((changes, changed))
        })
        .await?;
        left.extend(changed);
        self.mark(&format!("repeating {tag} {backup}"))?;
        let (inner, reader) = (Arc::clone(&self.0), self.reader());
        let (fill, staging_tag, progress) = (changes.clone(), tag.to_owned(), Arc::clone(progress));
        blocking(move || {
            let staging = Staging::create(&inner, &staging_tag)?;
            staging.fill(&fill, &HashMap::new(), &HashMap::new(), &reader, &progress)
        })
        .await?;
        self.mark(&format!("applying {tag} {backup}"))?;
        let mut log = self.log(&backup.run).await?;
        // With something left, the result isn't what was planned.
        let outcome = if left.is_empty() {
            self.finish(&mut log, restore, backup, before, result, changes, tag).await
        } else {
            let result = self.result_of(now, &changes).await?;
            self.finish(&mut log, restore, backup, before, result, changes, tag).await
        };
        match outcome {
            Err(WorkspaceError::Incomplete { failed, .. }) => left.extend(failed),
            other => drop(other?),
        }
        log.close().await?;
        Ok(Recovered { restore: words, left })
    }

    async fn result_of(
        &self,
        now: piton_types::BlobId,
        changes: &[PlannedChange],
    ) -> Result<piton_types::BlobId, WorkspaceError> {
        let plan = super::Plan { changes: changes.to_vec(), ..super::Plan::default() };
        Ok(self.stage_result(now, &plan).await?.0)
    }

    /// Empties the folder that contents waited in. What nobody has stored, because it was written at the very
    /// moment of the restore, is put where a person finds it.
    async fn clear_staging(&self, tag: &str) -> Result<Vec<(RelPath, String)>, WorkspaceError> {
        let (inner, staging, hashing) = (Arc::clone(&self.0), staging_name(tag), self.store().hashing().clone());
        let (reader, rescued) = (self.reader(), format!("piton-recovered-{tag}"));
        blocking(move || {
            let fail = |error| WorkspaceError::file("read", &inner.root, error);
            let folder = match system::open_folder(&inner.folder, &staging) {
                Ok(folder) => folder,
                Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
                Err(error) => return Err(fail(error)),
            };
            let mut unknown = false;
            for entry in system::names(&folder).map_err(fail)? {
                let stat = system::stat(&folder, &entry).map_err(fail)?;
                if !crate::cache::is_file(&stat) {
                    continue;
                }
                let file = system::open_file(&folder, &entry).map_err(fail)?;
                let sink = super::apply::Named(&hashing);
                let known = match content::read(&file, stat.size, &mut Vec::new(), &sink) {
                    Ok((content, _)) => reader.by_pack(&[content.id()]).is_ok(),
                    Err(_) => false,
                };
                unknown |= !known;
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
