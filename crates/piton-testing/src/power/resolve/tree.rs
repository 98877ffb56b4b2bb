//! The tree as the program sees it: what was there at the start, and which inode a path or a descriptor
//! stands for at this point of the trace.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::Resolver;
use crate::power::{Entry, Inode, Node};
use crate::strace::{Call, OpenPath};

impl Resolver {
    /// The folder as it is before the run.
    pub(super) fn load(&mut self, path: &Path, folder: Inode, seen: &mut HashMap<(u64, u64), Inode>) {
        for entry in fs::read_dir(path).expect("the folder can be listed") {
            let entry = entry.expect("the folder can be listed");
            let (path, meta) = (entry.path(), entry.metadata().expect("the file is there"));
            let key = (meta.dev(), meta.ino());
            let inode = seen.get(&key).copied().unwrap_or_else(|| {
                let mode = meta.mode() & 0o7777;
                self.add(if meta.is_dir() {
                    Node::Folder { mode }
                } else if meta.is_symlink() {
                    Node::Link { target: fs::read_link(&path).expect("the link can be read") }
                } else {
                    Node::File { start: fs::read(&path).expect("the file can be read"), mode }
                })
            });
            seen.insert(key, inode);
            self.names.insert((folder, entry.file_name()), inode);
            if meta.is_dir() {
                self.load(&path, inode, seen);
            }
        }
    }

    pub(super) fn add(&mut self, node: Node) -> Inode {
        let inode = Inode(self.nodes.len());
        if let Node::File { start, .. } = &node {
            self.sizes.insert(inode, start.len());
        }
        self.nodes.push(node);
        inode
    }

    pub(super) fn is_below(&self, path: &Path) -> bool {
        path.starts_with(&self.root)
    }

    /// The inode that a descriptor stands for, if it is below the root. Another thread may have removed
    /// its name just after `strace` read it.
    pub(super) fn inode_of(&self, call: &Call, arg: usize) -> Option<Inode> {
        let file = call.file(arg).filter(|file| self.is_below(&file.path))?;
        let inode = self.find(&file).or_else(|| self.nameless.get(&file.path).copied());
        Some(inode.unwrap_or_else(|| panic!("lost track of {}", file.path.display())))
    }

    pub(super) fn find(&self, file: &OpenPath) -> Option<Inode> {
        if file.deleted {
            self.nameless.get(&file.path).copied()
        } else if file.path == self.root {
            Some(Inode::ROOT)
        } else {
            self.names.get(&self.entry(&file.path)?).copied()
        }
    }

    /// The place in the tree that a path below the root stands for.
    pub(super) fn entry(&self, path: &Path) -> Option<Entry> {
        let inside = path.strip_prefix(&self.root).ok()?;
        let name = inside.file_name()?.to_owned();
        let mut folder = Inode::ROOT;
        for part in inside.parent()?.components() {
            let key: Entry = (folder, part.as_os_str().to_owned());
            folder = *self.names.get(&key).unwrap_or_else(|| panic!("lost track of {}", path.display()));
        }
        Some((folder, name))
    }

    pub(super) fn place(&mut self, call: &Call, base: Option<usize>, path: usize) -> Option<Entry> {
        let path = self.absolute(call, base, path)?;
        self.is_below(&path).then(|| self.entry(&path)).flatten()
    }

    /// A path argument made absolute, with the root spelled as the kernel spells it.
    pub(super) fn absolute(&mut self, call: &Call, base: Option<usize>, path: usize) -> Option<PathBuf> {
        let given = call.path(path)?;
        let base = base.and_then(|base| call.file(base)).map(|file| file.path);
        let base = base.unwrap_or_else(|| self.process(call).folder.clone());
        let mut clean = PathBuf::new();
        for part in base.join(given).components() {
            match part {
                Component::ParentDir => drop(clean.pop()),
                Component::CurDir => {}
                part => clean.push(part),
            }
        }
        match clean.strip_prefix(&self.given) {
            Ok(inside) if inside.as_os_str().is_empty() => Some(self.root.clone()),
            Ok(inside) => Some(self.root.join(inside)),
            Err(_) => Some(clean),
        }
    }
}
