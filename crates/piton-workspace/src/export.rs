//! A snapshot written into a folder of its own: what `fork --into` gives a branch to work in.
//!
//! Everything is written into a new folder beside the wanted one, which takes its name at the end: it is there whole or
//! not at all. Files that are still in the workspace as the snapshot has them are cloned where the file system can do
//! that (no byte is copied until a process writes to one of the two); their content is compared all the same.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_log::ContentReader;

use crate::content;
use crate::restore::Named;
use crate::tree::{Content, PERMISSIONS, StoredNodes, walk};
use crate::workspace::blocking;
use crate::{Entry, Progress, Reason, RelPath, Side, Snapshot, Workspace, WorkspaceError, system};

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exported {
    /// Files and links.
    pub files: usize,
    /// How many of them were cloned.
    pub cloned: usize,
    /// Files that no snapshot has and that were copied from the workspace.
    pub ignored: usize,
}

/// How a snapshot is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// What ignore files hide in the workspace is copied along, as it is now.
    pub ignored: bool,
    /// The snapshot is another folder's: nothing of the workspace is read.
    pub foreign: bool,
}

impl Workspace {
    /// Writes a snapshot into a folder that isn't there yet, or is empty.
    pub async fn export(
        &self,
        snapshot: Snapshot,
        into: &Path,
        options: ExportOptions,
    ) -> Result<Exported, WorkspaceError> {
        let refuse = |reason| WorkspaceError::Root { root: into.to_owned(), reason };
        let parent = into.parent().filter(|parent| parent.is_dir()).ok_or_else(|| refuse("in no folder"))?;
        let parent = parent.canonicalize().map_err(|error| WorkspaceError::file("find", parent, error))?;
        let name = into.file_name().ok_or_else(|| refuse("no folder that could be made"))?;
        let into = parent.join(name);
        let is_within = into.starts_with(self.root()) || self.root().starts_with(&into);
        if is_within && !options.foreign {
            return Err(refuse("in the workspace itself"));
        }
        match fs::read_dir(&into).map(Iterator::count) {
            Ok(1..) => return Err(refuse("not empty")),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(WorkspaceError::file("read", &into, error)),
        }
        let changed = match options.foreign {
            true => None,
            false => {
                let now = self.detect_changes(snapshot, Side::Now, &Arc::<Progress>::default()).await?;
                let paths = now.changes.into_iter().flat_map(|change| [Some(change.path), change.from]);
                Some(paths.flatten().collect::<HashSet<RelPath>>())
            }
        };
        let hidden = if options.ignored { self.hidden().await? } else { Vec::new() };
        let (workspace, reader, nodes) = (self.clone(), self.reader(), self.nodes());
        blocking(move || {
            let mut beside = into.clone().into_os_string();
            beside.push(format!(".piton-{}", std::process::id()));
            let export = Export { workspace, reader, nodes, beside: beside.into(), changed };
            let done = export.write(snapshot, &hidden).and_then(|done| {
                let fail = |error| WorkspaceError::file("make", &into, error);
                let _ = fs::remove_dir(&into);
                fs::rename(&export.beside, &into).map_err(fail)?;
                File::open(&parent).and_then(|folder| folder.sync_all()).map_err(fail)?;
                Ok(done)
            });
            if done.is_err() {
                let _ = fs::remove_dir_all(&export.beside);
            }
            done
        })
        .await
    }

    /// What ignore files hide in the workspace, as it is now.
    async fn hidden(&self) -> Result<Vec<RelPath>, WorkspaceError> {
        let looked = self.look(&HashSet::new(), &Arc::default()).await?;
        let stored = self.nodes();
        blocking(move || {
            let nodes = crate::tree::Overlay { new: &looked.nodes, below: &stored };
            let mut found = Vec::new();
            walk(&nodes, looked.snapshot.tree, &RelPath::default(), &mut |path, entry| {
                let wanted = [Reason::IgnoredFolder, Reason::IgnoredFile, Reason::Pitonignore];
                if matches!(entry, Entry::Excluded(reason) if wanted.contains(reason)) {
                    found.push(path);
                }
                Ok(())
            })?;
            Ok(found)
        })
        .await
    }
}

struct Export {
    workspace: Workspace,
    reader: ContentReader,
    nodes: StoredNodes,
    /// The new folder, until it gets its name.
    beside: PathBuf,
    /// What isn't in the workspace as the snapshot has it; nothing if the snapshot isn't the workspace's.
    changed: Option<HashSet<RelPath>>,
}

impl Export {
    fn write(&self, snapshot: Snapshot, hidden: &[RelPath]) -> Result<Exported, WorkspaceError> {
        let fail = |error| WorkspaceError::file("make", &self.beside, error);
        fs::create_dir(&self.beside).map_err(fail)?;
        let (mut done, mut modes) = (Exported::default(), Vec::new());
        walk(&self.nodes, snapshot.tree, &RelPath::default(), &mut |path, entry| {
            let place = self.beside.join(path.as_path());
            let fail = |error| WorkspaceError::file("write", &place, error);
            match entry {
                Entry::Folder { mode, .. } => {
                    fs::create_dir(&place).map_err(fail)?;
                    modes.push((place.clone(), *mode));
                }
                Entry::Link { target } => {
                    symlink(std::ffi::OsStr::from_bytes(target), &place).map_err(fail)?;
                    done.files += 1;
                }
                Entry::File { mode, size, content } => {
                    let file = File::options().write(true).read(true).create_new(true).open(&place).map_err(fail)?;
                    let is_here = self.changed.as_ref().is_some_and(|changed| !changed.contains(&path));
                    let cloned = is_here && self.clone_here(&path, &file, *content, *size)?;
                    if !cloned {
                        self.fill(&file, &place, *content, *size)?;
                    }
                    file.set_permissions(fs::Permissions::from_mode((mode & PERMISSIONS).into())).map_err(fail)?;
                    done.files += 1;
                    done.cloned += usize::from(cloned);
                }
                Entry::Excluded(_) => {}
            }
            Ok(())
        })?;
        for path in hidden {
            done.ignored += self.copy(path)?;
        }
        // From the innermost, since some may forbid to write in them.
        for (place, mode) in modes.into_iter().rev() {
            fs::set_permissions(&place, fs::Permissions::from_mode((mode & PERMISSIONS).into()))
                .map_err(|error| WorkspaceError::file("write", &place, error))?;
        }
        File::open(&self.beside).and_then(|folder| Ok(rustix::fs::syncfs(folder)?)).map_err(fail)?;
        Ok(done)
    }

    /// Clones the workspace's file, if the file system can and it is what the snapshot has.
    fn clone_here(&self, path: &RelPath, file: &File, content: Content, size: u64) -> Result<bool, WorkspaceError> {
        let Some((parent, entry)) = path.split() else { return Ok(false) };
        let source = system::open_below(&self.workspace.0.folder, &parent)
            .and_then(|folder| system::open_file(folder, entry))
            .ok();
        let Some(source) = source.filter(|source| rustix::fs::ioctl_ficlone(file, source).is_ok()) else {
            return Ok(false);
        };
        drop(source);
        let hashing = self.workspace.store().hashing().clone();
        let owned =
            file.as_fd().try_clone_to_owned().map_err(|error| WorkspaceError::file("read", path.as_path(), error))?;
        match content::read(&owned, size, &mut Vec::new(), &Named(&hashing)) {
            Ok(read) if read == (content, size) => Ok(true),
            // It changed while we looked.
            _ => {
                file.set_len(0).map_err(|error| WorkspaceError::file("write", path.as_path(), error))?;
                Ok(false)
            }
        }
    }

    fn fill(&self, file: &File, place: &Path, content: Content, size: u64) -> Result<(), WorkspaceError> {
        let fail = |error| WorkspaceError::file("write", place, error);
        content::write(file, &|id| Ok(self.reader.get(id)?), content, size, fail)
    }

    /// Copies what no snapshot has; says how many files that were. Links are made anew, and devices, sockets and
    /// pipes left out.
    fn copy(&self, path: &RelPath) -> Result<usize, WorkspaceError> {
        let (from, to) = (self.workspace.root().join(path.as_path()), self.beside.join(path.as_path()));
        let fail = |error| WorkspaceError::file("copy", &from, error);
        // Its folder may not have been in the snapshot.
        if to.parent().is_some_and(|parent| !parent.is_dir()) {
            return Ok(0);
        }
        let about = match from.symlink_metadata() {
            Ok(about) => about,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(fail(error)),
        };
        if about.is_symlink() {
            symlink(fs::read_link(&from).map_err(fail)?, &to).map_err(fail)?;
            return Ok(1);
        }
        if about.is_file() {
            // Clones by itself where the file system can.
            fs::copy(&from, &to).map_err(fail)?;
            return Ok(1);
        }
        if !about.is_dir() {
            return Ok(0);
        }
        fs::create_dir(&to).map_err(fail)?;
        let mut count = 0;
        for entry in fs::read_dir(&from).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            count += self.copy(&path.join(name.as_bytes()))?;
        }
        fs::set_permissions(&to, about.permissions()).map_err(fail)?;
        Ok(count)
    }
}
