//! From system calls to changes of inodes: follows names, descriptors and file positions through the
//! trace, as the kernel did.

mod tree;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Entry, Inode, Node, Op, Step};
use crate::strace::{Call, OpenPath, Trace};

/// An open file, shared by all descriptors that were duplicated from one.
struct Open {
    inode: Option<Inode>,
    position: usize,
    append: bool,
    sync: bool,
}

/// The threads that share descriptors and a working folder.
#[derive(Clone)]
struct Process {
    folder: PathBuf,
    descriptors: HashMap<i64, usize>,
}

pub(super) struct Resolver {
    given: PathBuf,
    root: PathBuf,
    folder: PathBuf,
    nodes: Vec<Node>,
    start: Vec<(Entry, Inode)>,
    names: HashMap<Entry, Inode>,
    /// Files that no name leads to any more, by the last one.
    nameless: HashMap<PathBuf, Inode>,
    sizes: HashMap<Inode, usize>,
    opens: Vec<Open>,
    processes: HashMap<u32, Process>,
    /// Which process a thread belongs to, and from which process it was forked.
    belongs: HashMap<u32, (u32, Option<u32>)>,
    steps: Vec<Step>,
    /// The trace line at which each step came back.
    ends: Vec<usize>,
    now: (usize, usize),
}

impl Resolver {
    pub(super) fn new(given: &Path, root: &Path, folder: Option<&Path>) -> Self {
        let here = || std::env::current_dir().expect("there is a current folder");
        let mut resolver = Self {
            given: given.to_owned(),
            root: root.to_owned(),
            folder: folder.map_or_else(here, Path::to_owned),
            nodes: vec![Node::Folder { mode: 0o700 }],
            start: Vec::new(),
            names: HashMap::new(),
            nameless: HashMap::new(),
            sizes: HashMap::new(),
            opens: Vec::new(),
            processes: HashMap::new(),
            belongs: HashMap::new(),
            steps: Vec::new(),
            ends: Vec::new(),
            now: (0, 0),
        };
        resolver.load(root, Inode::ROOT, &mut HashMap::new());
        resolver.start = resolver.names.iter().map(|(entry, &inode)| (entry.clone(), inode)).collect();
        resolver
    }

    pub(super) fn into_parts(self) -> (Vec<Node>, Vec<(Entry, Inode)>, Vec<Step>) {
        (self.nodes, self.start, self.steps)
    }

    /// Follows a whole trace.
    pub(super) fn follow(&mut self, trace: &Trace) {
        let calls = &trace.calls;
        // A child's first calls may come before the call that made it comes back.
        for call in calls.iter().filter(|call| call.succeeded() && is_fork(call)) {
            let child = call.result.and_then(|child| u32::try_from(child).ok()).expect("a thread id");
            let shares = call.args.iter().any(|arg| arg.contains("CLONE_FILES"));
            let parent = self.process_of(call.thread);
            self.belongs.insert(child, if shares { (parent, None) } else { (child, Some(parent)) });
        }
        for call in calls.iter().filter(|call| call.succeeded()) {
            self.now = (call.begin, call.end);
            if trace.says(call) {
                self.push(Op::Say { text: written(call) });
            } else {
                self.step(call);
            }
        }
    }

    fn process_of(&self, thread: u32) -> u32 {
        self.belongs.get(&thread).map_or(thread, |(process, _)| *process)
    }

    fn process(&mut self, call: &Call) -> &mut Process {
        let id = self.process_of(call.thread);
        if !self.processes.contains_key(&id) {
            let parent = self.belongs.get(&id).and_then(|(_, parent)| *parent);
            let inherited = parent.and_then(|parent| self.processes.get(&parent)).cloned();
            let fresh = || Process { folder: self.folder.clone(), descriptors: HashMap::new() };
            let process = inherited.unwrap_or_else(fresh);
            self.processes.insert(id, process);
        }
        self.processes.get_mut(&id).expect("it was just put there")
    }

    fn push(&mut self, op: Op) {
        let begin = self.ends.partition_point(|&end| end < self.now.0);
        self.steps.push(Step { op, begin });
        self.ends.push(self.now.1);
    }

    /// A sync that covers all so far, as after a write with `O_SYNC`.
    fn push_sync_of_all_before(&mut self, inode: Inode) {
        let begin = self.steps.len();
        self.steps.push(Step { op: Op::Sync { inode, data_only: true }, begin });
        self.ends.push(self.now.1);
    }

    fn step(&mut self, call: &Call) {
        match call.name.as_str() {
            "open" | "openat" | "openat2" | "creat" => self.open(call),
            "close" => drop(call.descriptor(0).and_then(|fd| self.process(call).descriptors.remove(&fd))),
            "dup" | "dup2" | "dup3" => self.duplicate(call),
            "fcntl" if call.args.get(1).is_some_and(|command| command.starts_with("F_DUPFD")) => self.duplicate(call),
            "read" | "readv" => self.seek(call, |position, result| position + result),
            "lseek" => self.seek(call, |_, result| result),
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => self.write(call),
            "truncate" => {
                let inode = self.place(call, None, 0).and_then(|entry| self.names.get(&entry).copied());
                self.resize(inode, argument(call, 1));
            }
            "ftruncate" => self.resize(self.inode_of(call, 0), argument(call, 1)),
            "fallocate" => self.allocate(call),
            "fsync" | "fdatasync" => {
                if let Some(inode) = self.inode_of(call, 0) {
                    self.push(Op::Sync { inode, data_only: call.name == "fdatasync" });
                }
            }
            "sync" | "syncfs" => self.push(Op::SyncAll),
            "rename" => self.rename(call, (None, 0), (None, 1), None),
            "renameat" => self.rename(call, (Some(0), 1), (Some(2), 3), None),
            "renameat2" => self.rename(call, (Some(0), 1), (Some(2), 3), Some(4)),
            "link" => self.link(call, (None, 0), (None, 1)),
            "linkat" => self.link(call, (Some(0), 1), (Some(2), 3)),
            "symlink" => self.symlink(call, (None, 1)),
            "symlinkat" => self.symlink(call, (Some(1), 2)),
            "unlink" | "rmdir" => self.unlink(call, (None, 0)),
            "unlinkat" => self.unlink(call, (Some(0), 1)),
            "mkdir" => self.make_folder(call, (None, 0)),
            "mkdirat" => self.make_folder(call, (Some(0), 1)),
            "chdir" => {
                let path = self.absolute(call, None, 0).expect("chdir has a path");
                self.process(call).folder = path;
            }
            "fchdir" => self.process(call).folder = call.file(0).expect("fchdir has a folder").path,
            _ => self.refuse_what_is_not_modelled(call),
        }
    }

    fn open(&mut self, call: &Call) {
        let (Some(file), Some(fd)) = (call.opened.clone(), call.result) else { return };
        let flags = call.args.iter().find(|arg| arg.contains("O_")).map_or("", String::as_str);
        let inode = self.is_below(&file.path).then(|| self.opened(call, &file, flags));
        let sync = flags.contains("O_SYNC") || flags.contains("O_DSYNC");
        self.opens.push(Open { inode, position: 0, append: flags.contains("O_APPEND"), sync });
        let open = self.opens.len() - 1;
        self.process(call).descriptors.insert(fd, open);
    }

    fn opened(&mut self, call: &Call, file: &OpenPath, flags: &str) -> Inode {
        let new = |call: &Call| {
            let executable = call.args.last().and_then(|_| call.number(call.args.len() - 1)).unwrap_or(0) & 0o100;
            Node::File { start: Vec::new(), mode: if executable == 0 { 0o600 } else { 0o700 } }
        };
        if flags.contains("O_TMPFILE") {
            let inode = self.add(new(call));
            self.nameless.insert(file.path.clone(), inode);
            return inode;
        }
        if let Some(inode) = self.find(file) {
            if (flags.contains("O_TRUNC") || call.name == "creat")
                && self.sizes.get(&inode).is_some_and(|&size| size > 0)
            {
                self.resize(Some(inode), 0);
            }
            return inode;
        }
        assert!(flags.contains("O_CREAT") || call.name == "creat", "lost track of {}", file.path.display());
        let entry = self.entry(&file.path).unwrap_or_else(|| panic!("lost track of {}", file.path.display()));
        let inode = self.add(new(call));
        self.name(entry, inode);
        inode
    }

    fn duplicate(&mut self, call: &Call) {
        let (Some(old), Some(new)) = (call.descriptor(0), call.result) else { return };
        let descriptors = &mut self.process(call).descriptors;
        match descriptors.get(&old).copied() {
            Some(open) => drop(descriptors.insert(new, open)),
            None => drop(descriptors.remove(&new)),
        }
    }

    fn seek(&mut self, call: &Call, position: impl FnOnce(usize, usize) -> usize) {
        let result = call.result.and_then(|result| usize::try_from(result).ok()).expect("a call that succeeded");
        if let Some(open) = self.open_file(call) {
            let open = &mut self.opens[open];
            open.position = position(open.position, result);
        }
    }

    fn open_file(&mut self, call: &Call) -> Option<usize> {
        let fd = call.descriptor(0)?;
        self.process(call).descriptors.get(&fd).copied()
    }

    fn write(&mut self, call: &Call) {
        let Some(inode) = self.inode_of(call, 0) else { return };
        let data = written(call);
        let count = data.len();
        let open =
            self.open_file(call).unwrap_or_else(|| panic!("{} is written by an unknown descriptor", call.args[0]));
        let (size, open) = (self.sizes.get(&inode).copied().unwrap_or(0), &mut self.opens[open]);
        let given =
            call.name.starts_with('p').then(|| call.number(3).expect("an offset")).filter(|&offset| offset >= 0);
        let offset = match given {
            // Linux appends even with an offset.
            _ if open.append => size,
            Some(offset) => usize::try_from(offset).expect("it is not negative"),
            None => open.position,
        };
        if given.is_none() {
            open.position = offset + count;
        }
        let durable = open.sync || call.args.get(4).is_some_and(|flags| flags.contains("SYNC"));
        let end = offset + count;
        self.sizes.insert(inode, size.max(end));
        self.push(Op::Write { inode, offset, data, grows: end > size });
        if durable {
            self.push_sync_of_all_before(inode);
        }
    }

    fn resize(&mut self, inode: Option<Inode>, size: usize) {
        let Some(inode) = inode else { return };
        self.sizes.insert(inode, size);
        self.push(Op::Resize { inode, size });
    }

    fn allocate(&mut self, call: &Call) {
        let Some(inode) = self.inode_of(call, 0) else { return };
        let (offset, len) = (argument(call, 2), argument(call, 3));
        let mode = call.args[1].as_str();
        let keep_size = mode.contains("FALLOC_FL_KEEP_SIZE");
        if mode.contains("FALLOC_FL_PUNCH_HOLE") || mode.contains("FALLOC_FL_ZERO_RANGE") {
            self.push(Op::Zero { inode, offset, len });
        } else {
            assert!(mode == "0" || mode == "FALLOC_FL_KEEP_SIZE", "fallocate with {mode} is not modelled");
        }
        if !keep_size && self.sizes.get(&inode).is_none_or(|&size| size < offset + len) {
            self.resize(Some(inode), offset + len);
        }
    }

    fn name(&mut self, entry: Entry, inode: Inode) {
        self.names.insert(entry.clone(), inode);
        self.push(Op::Name { entry, inode });
    }

    fn rename(&mut self, call: &Call, from: Place, to: Place, flags: Option<usize>) {
        let exchange = flags.is_some_and(|flags| call.args[flags].contains("RENAME_EXCHANGE"));
        let (old, new) = (self.place(call, from.0, from.1), self.place(call, to.0, to.1));
        if old.is_none() && new.is_none() {
            return;
        }
        let (Some(old), Some(new)) = (old, new) else {
            panic!("moving files into or out of the folder is not modelled")
        };
        if exchange {
            let [one, other] = [old, new].map(|entry| {
                let inode = *self.names.get(&entry).unwrap_or_else(|| panic!("lost track of {entry:?}"));
                (entry, inode)
            });
            self.names.insert(one.0.clone(), other.1);
            self.names.insert(other.0.clone(), one.1);
            return self.push(Op::Exchange { one, other });
        }
        let inode = self.names.remove(&old).unwrap_or_else(|| panic!("lost track of {old:?}"));
        if self.names.get(&new) == Some(&inode) {
            // Two names of one file: rename does nothing.
            self.names.insert(old, inode);
            return;
        }
        let path = self.absolute(call, to.0, to.1).expect("it was resolved before");
        if let Some(replaced) = self.names.insert(new.clone(), inode) {
            self.nameless.insert(path, replaced);
        }
        self.push(Op::Move { from: old, to: new, inode });
    }

    fn link(&mut self, call: &Call, from: Place, to: Place) {
        let Some(new) = self.place(call, to.0, to.1) else { return };
        let source = call.path(from.1).expect("link has a path");
        let by_number = source.strip_prefix("/proc/self/fd").ok().and_then(|fd| fd.to_str()?.parse::<i64>().ok());
        let inode = if let Some(fd) = by_number {
            let open = self.process(call).descriptors.get(&fd).copied();
            open.and_then(|open| self.opens[open].inode)
        } else if source.as_os_str().is_empty() {
            self.inode_of(call, 0)
        } else {
            self.place(call, from.0, from.1).and_then(|entry| self.names.get(&entry).copied())
        };
        let inode = inode.unwrap_or_else(|| panic!("the file linked to {new:?} is not known"));
        self.name(new, inode);
    }

    fn symlink(&mut self, call: &Call, at: Place) {
        let Some(entry) = self.place(call, at.0, at.1) else { return };
        let inode = self.add(Node::Link { target: call.path(0).expect("a link has a target") });
        self.name(entry, inode);
    }

    fn unlink(&mut self, call: &Call, at: Place) {
        let Some(entry) = self.place(call, at.0, at.1) else { return };
        let inode = self.names.remove(&entry).unwrap_or_else(|| panic!("lost track of {entry:?}"));
        let path = self.absolute(call, at.0, at.1).expect("it was resolved before");
        self.nameless.insert(path, inode);
        self.push(Op::Unname { entry, inode });
    }

    fn make_folder(&mut self, call: &Call, at: Place) {
        let Some(entry) = self.place(call, at.0, at.1) else { return };
        let inode = self.add(Node::Folder { mode: 0o700 });
        self.name(entry, inode);
    }

    fn refuse_what_is_not_modelled(&mut self, call: &Call) {
        let target = match call.name.as_str() {
            "sendfile" => 0,
            "copy_file_range" | "splice" => 2,
            "ioctl" if call.args.get(1).is_some_and(|request| request.contains("FICLONE")) => 0,
            "io_uring_setup" => panic!("io_uring is not modelled"),
            "mmap" if call.has_flag(2, "PROT_WRITE") && call.args[3].contains("MAP_SHARED") => 4,
            _ => return,
        };
        let Some(file) = call.file(target) else { return };
        let shared_index = call.name == "mmap" && file.path.as_os_str().to_string_lossy().ends_with("-shm");
        assert!(shared_index || !self.is_below(&file.path), "{} on {} is not modelled", call.name, file.path.display());
    }
}

/// The argument with the folder, if any, and the one with the path.
type Place = (Option<usize>, usize);

fn is_fork(call: &Call) -> bool {
    matches!(call.name.as_str(), "clone" | "clone3" | "fork" | "vfork")
}

/// What a call wrote.
fn written(call: &Call) -> Vec<u8> {
    let mut data = if call.name.contains("writev") { call.buffers(1) } else { call.text(1).unwrap_or_default() };
    let count = call.result.and_then(|result| usize::try_from(result).ok()).expect("a call that succeeded");
    data.truncate(count);
    assert_eq!(data.len(), count, "strace cut short the data of {}", call.name);
    data
}

fn argument(call: &Call, arg: usize) -> usize {
    let number = call.number(arg).and_then(|number| usize::try_from(number).ok());
    number.unwrap_or_else(|| panic!("{} has no number in {:?}", call.name, call.args))
}
