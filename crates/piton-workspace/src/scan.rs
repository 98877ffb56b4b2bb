//! Looking at a folder: which names it has, what became of each since the last snapshot, and the tree that
//! says so.
//!
//! A folder that looks as it did is not read again: its names are the cache's, and each of them is asked
//! for its stat. A file that looks as it did is not opened. What changed within the last ticks before the
//! cache was taken may have changed again without looking different, so it is hashed again ('racily
//! clean'). Nothing is followed, nothing is waited for, and no device is opened.

use std::collections::{BTreeSet, HashSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use piton_store::Bytes;
use piton_types::BlobId;
use rayon::prelude::*;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::cache::{Cache, FileStat, Folder, Known, Totals, is_file};
use crate::content::{self, Sink, Unread};
use crate::path::reserved;
use crate::rules::{GITIGNORE, OuterRules, PITONIGNORE, Rules, Then, Verdict, is_rules};
use crate::secrets::Watch;
use crate::system::{self, Stat};
use crate::threads::Threads;
use crate::tree::{Entry, FolderWriter, MAX_DEPTH, PERMISSIONS, Reason, TimedEntry};
use crate::{RelPath, WorkspaceError};

/// Ignored files up to this size are captured all the same: `.env` and its like.
pub(crate) const SMALL: u64 = 1_000_000;

/// How coarse the clock may be that files are stamped with, with room to spare: two ticks of the slowest.
pub(crate) const TICK: i64 = 20_000_000;

/// How often a file that changes while it is read is read again.
const ATTEMPTS: usize = 3;

/// So many names in a folder that isn't as it was are worth other threads, if there are none yet.
const MUCH: usize = 32;
/// So many folders in each other have room on the stack of any thread.
const SHALLOW: usize = 64;

/// What to look at.
pub(crate) struct Scanner<'a> {
    pub(crate) root: &'a Path,
    pub(crate) folder: &'a OwnedFd,
    pub(crate) cache: Option<&'a Cache>,
    pub(crate) threads: &'a Threads,
    pub(crate) sink: &'a dyn Sink,
    pub(crate) include_ignored: bool,
    pub(crate) outer: &'a OuterRules,
    /// The ignore files that hold, if they aren't those on disk.
    pub(crate) then: Option<Arc<Then>>,
    /// What belongs to the store, if that is inside the folder, with what lies beside it under the same name and a dash.
    pub(crate) own: &'a [RelPath],
    /// Paths that are captured even if they are ignored.
    pub(crate) forced: &'a HashSet<RelPath>,
    pub(crate) progress: &'a Progress,
}

/// How far a save or a restore has come, for a front end that shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Files that were read.
    pub files: AtomicU64,
    /// Bytes that were read.
    pub bytes: AtomicU64,
    /// Files that were written.
    pub written: AtomicU64,
    /// Another process has the folder, and it is waited for.
    pub waiting: AtomicBool,
}

/// What a scan found.
pub(crate) struct Scanned {
    pub(crate) root: Arc<Folder>,
    /// Whether the cache says all of it already.
    pub(crate) is_cached: bool,
    /// Files that changed each time they were read. What was read last was captured.
    pub(crate) unsteady: Vec<RelPath>,
    /// Files that were read and have secrets in them.
    pub(crate) secrets: Vec<RelPath>,
    /// When it began, by the clock that files are stamped with.
    pub(crate) taken_at: i64,
    /// The tree whose ignore files held, if it weren't those in the folder.
    pub(crate) rules: Option<BlobId>,
    /// Whether those are other ones than in the folder: then no cache speaks of it.
    pub(crate) by_other_rules: bool,
    /// Whether some of those can't be read any more, and those in the folder held instead.
    pub(crate) rules_lost: bool,
}

struct Walk<'a> {
    scanner: &'a Scanner<'a>,
    mount: system::Mount,
    /// What changed after this may have changed again unseen since the cache was taken.
    settled: i64,
    unsteady: Mutex<Vec<RelPath>>,
    secrets: Mutex<BTreeSet<RelPath>>,
    forced_folders: HashSet<RelPath>,
}

/// Where a folder is, and what is known of it.
struct Spot<'w> {
    path: RelPath,
    /// Those of the folder above.
    rules: &'w Arc<Rules>,
    known: Option<&'w Arc<Folder>>,
    /// The rules above have changed.
    fresh: bool,
    /// It lies in an ignored folder, and only what is forced is wanted.
    ignored: bool,
    depth: usize,
}

/// A folder whose names are looked at.
struct Open<'w> {
    fd: &'w Arc<OwnedFd>,
    path: &'w RelPath,
    rules: Arc<Rules>,
    /// Its names are those that are known, and none is new.
    same: bool,
    /// Rules of this folder or above have changed.
    fresh: bool,
    ignored: bool,
    depth: usize,
}

thread_local! {
    static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Scanner<'_> {
    /// Looks at all of it.
    pub(crate) fn scan(&self) -> Result<Scanned, WorkspaceError> {
        let taken_at = system::now();
        let fail = |error| WorkspaceError::file("read", self.root, error);
        let ancestors = self.forced.iter().flat_map(|path| {
            std::iter::successors(path.split().map(|(parent, _)| parent), |path| path.split().map(|(parent, _)| parent))
        });
        let walk = Walk {
            scanner: self,
            mount: system::mount(self.folder),
            settled: self.cache.map_or(i64::MIN, |cache| cache.taken_at - TICK),
            unsteady: Mutex::default(),
            secrets: Mutex::default(),
            forced_folders: ancestors.collect(),
        };
        let rules = Rules::outer(self.root, self.outer, self.then.clone());
        let root = system::open_below(self.folder, &RelPath::default()).map_err(fail)?;
        let known = self.cache.map(|cache| &cache.root);
        let spot = Spot { path: RelPath::default(), rules: &rules, known, fresh: false, ignored: false, depth: 0 };
        let few = known.is_some_and(|known| !known.totals.are_many());
        let looked = self.threads.run_if(!few, || walk.folder(root, spot))??;
        let Some(Known::Folder(root)) = looked else { return Err(fail(Errno::ACCESS)) };
        let is_cached = known.is_some_and(|known| Arc::ptr_eq(known, &root));
        let unsteady = walk.unsteady.into_inner().unwrap_or_else(PoisonError::into_inner);
        let secrets = walk.secrets.into_inner().unwrap_or_else(PoisonError::into_inner);
        let secrets = secrets.into_iter().collect();
        let by_other_rules = self.then.as_ref().is_some_and(|then| then.differs.load(Ordering::Relaxed));
        let rules_lost = self.then.as_ref().is_some_and(|then| then.lost.load(Ordering::Relaxed));
        let rules = self.then.as_ref().map(|then| then.tree);
        Ok(Scanned { root, is_cached, unsteady, secrets, taken_at, rules, by_other_rules, rules_lost })
    }
}

/// Whether a path is a file or folder of the store, or one beside it: `store.db-wal` and its like.
fn belongs(own: &RelPath, path: &RelPath) -> bool {
    let rest = path.as_bytes().strip_prefix(own.as_bytes());
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/' | b'-')))
}

impl Walk<'_> {
    /// Whether what was known can be relied on.
    fn is_settled(&self, mtime: i64, ctime: i64) -> bool {
        mtime < self.settled && ctime < self.settled
    }

    fn is_same(&self, known: &FileStat, stat: &Stat) -> bool {
        *known == FileStat::from(stat) && self.is_settled(stat.mtime, stat.ctime)
    }

    /// Whether what was found is what was known, and need not be looked at more closely the next time.
    fn is_known(&self, then: &Known, now: &Known) -> bool {
        let settled = |stat: &FileStat| self.is_settled(stat.mtime, stat.ctime);
        match (then, now) {
            (Known::File { stat, content }, Known::File { stat: now, content: read }) => {
                stat == now && content == read && settled(now)
            }
            (Known::Link { stat, target }, Known::Link { stat: now, target: read }) => {
                stat == now && target == read && settled(now)
            }
            (Known::Folder(then), Known::Folder(now)) => Arc::ptr_eq(then, now),
            (Known::Excluded(then), Known::Excluded(now)) => then == now,
            _ => false,
        }
    }

    /// A folder and everything below it; `None` if it vanished.
    fn folder(&self, fd: OwnedFd, spot: Spot<'_>) -> Result<Option<Known>, WorkspaceError> {
        let Ok(stat) = system::stat_of(&fd) else { return Ok(None) };
        if system::mount(&fd) != self.mount {
            return Ok(Some(Known::Excluded(Reason::Mount)));
        }
        if spot.depth > MAX_DEPTH {
            return Ok(Some(Known::Excluded(Reason::TooDeep)));
        }
        let fd = Arc::new(fd);
        let rules = Rules::of(spot.rules, &spot.path, &fd);
        let Spot { path, known, fresh, ignored, depth, .. } = &spot;
        let same =
            known.filter(|known| !fresh && self.is_same(&known.stat, &stat) && !self.rules_changed(&fd, known, true));
        // Only rules of this folder or above, not every change, make what is below it look different.
        let fresh = same.is_none() && (*fresh || known.is_none_or(|known| self.rules_changed(&fd, known, false)));
        let (ignored, depth) = (*ignored, *depth);
        let open = Open { fd: &fd, path, rules, same: same.is_some(), fresh, ignored, depth };
        if let Some(same) = same {
            let look = |(name, known): &(Bytes, Known)| self.name(&open, name, Some(known));
            let looked: Vec<Option<Known>> = match Threads::is_one() {
                true => same.entries.par_iter().map(look).collect::<Result<_, _>>()?,
                false => same.entries.iter().map(look).collect::<Result<_, _>>()?,
            };
            let both = looked.iter().zip(&same.entries);
            if both.into_iter().all(|(now, (_, then))| now.as_ref().is_some_and(|now| self.is_known(then, now))) {
                return Ok(Some(Known::Folder(Arc::clone(same))));
            }
            let entries = same.entries.iter().zip(looked).filter_map(|((name, _), now)| Some((name.clone(), now?)));
            return self.write(&stat, entries.collect());
        }
        let mut names = match system::names(&*fd) {
            Ok(names) => names,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(_) => return Ok(Some(Known::Excluded(Reason::Unreadable))),
        };
        names.sort_unstable();
        let look = |name: Vec<u8>| -> Result<Option<(Bytes, Known)>, WorkspaceError> {
            let now = self.name(&open, &name, known.and_then(|known| known.find(&name)))?;
            Ok(now.map(|now| (name.into(), now)))
        };
        let looked: Vec<Option<(Bytes, Known)>> = match Threads::is_one() || names.len() >= MUCH {
            true => self.scanner.threads.run(|| names.into_par_iter().map(look).collect::<Result<_, _>>())??,
            false => names.into_iter().map(look).collect::<Result<_, _>>()?,
        };
        self.write(&stat, looked.into_iter().flatten().collect())
    }

    /// Whether an ignore file of this folder came, went or changed. A folder whose names are `same` has no
    /// new ones, and isn't asked for them.
    fn rules_changed(&self, fd: &OwnedFd, cached: &Folder, same: bool) -> bool {
        [GITIGNORE, PITONIGNORE].into_iter().any(|name| match cached.find(name) {
            Some(Known::File { stat, .. }) => {
                !system::stat(fd, name).is_ok_and(|now| is_file(&now) && self.is_same(stat, &now))
            }
            Some(_) => true,
            None => !same && system::stat(fd, name).is_ok(),
        })
    }

    /// Whether an entry of a folder whose names are known has to be looked at more closely.
    fn is_changed(&self, open: &Open<'_>, name: &[u8], known: &Known) -> bool {
        let fd = open.fd;
        match known {
            Known::Folder(_) => false,
            Known::File { stat, .. } => {
                !system::stat(fd, name).is_ok_and(|now| is_file(&now) && self.is_same(stat, &now))
            }
            Known::Link { stat, .. } => {
                !system::stat(fd, name).is_ok_and(|now| now.kind == FileType::Symlink && self.is_same(stat, &now))
            }
            // Small now, and it is captured.
            Known::Excluded(Reason::IgnoredFile) => {
                self.is_forced(&open.path.join(name))
                    || !system::stat(fd, name).is_ok_and(|now| is_file(&now) && now.size > SMALL)
            }
            Known::Excluded(Reason::Unreadable | Reason::Secret | Reason::Mount) => true,
            Known::Excluded(_) => !self.scanner.forced.is_empty() && self.is_forced(&open.path.join(name)),
        }
    }

    fn is_forced(&self, path: &RelPath) -> bool {
        self.scanner.forced.contains(path) || self.forced_folders.contains(path)
    }

    /// What is there under a name; `None` if it vanished.
    fn name(&self, open: &Open<'_>, name: &[u8], known: Option<&Known>) -> Result<Option<Known>, WorkspaceError> {
        let excluded = |reason| Ok(Some(Known::Excluded(reason)));
        match known.filter(|_| open.same) {
            Some(Known::Folder(below)) => return self.subfolder(open, name, Some(below)),
            Some(known) if !self.is_changed(open, name, known) => return Ok(Some(known.clone())),
            _ => {}
        }
        let stat = match system::stat(open.fd, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(_) => return excluded(Reason::Unreadable),
        };
        let path = open.path.join(name);
        if let Some(reason) = reserved(name) {
            return excluded(reason);
        }
        if self.scanner.own.iter().any(|own| belongs(own, &path)) {
            return excluded(Reason::Store);
        }
        let is_folder = stat.kind == FileType::Directory;
        if !is_folder && !is_file(&stat) && stat.kind != FileType::Symlink {
            return excluded(Reason::Special);
        }
        let forced = self.is_forced(&path);
        let verdict = match open.rules.verdict(&path, is_folder) {
            _ if forced || (!is_folder && is_rules(&path)) => Verdict::Wanted,
            _ if open.ignored => Verdict::Ignored,
            Verdict::Ignored if self.scanner.include_ignored => Verdict::Wanted,
            verdict => verdict,
        };
        match verdict {
            Verdict::Refused => return excluded(Reason::Pitonignore),
            Verdict::Ignored if is_folder => return excluded(Reason::IgnoredFolder),
            Verdict::Ignored if open.ignored || stat.size > SMALL => return excluded(Reason::IgnoredFile),
            Verdict::Ignored | Verdict::Wanted => {}
        }
        match (stat.kind, known) {
            (FileType::Directory, Some(Known::Folder(below))) => self.subfolder(open, name, Some(below)),
            (FileType::Directory, _) => self.subfolder(open, name, None),
            (FileType::Symlink, _) => match system::read_link(open.fd, name) {
                Ok(target) => Ok(Some(Known::Link { stat: FileStat::from(&stat), target: target.into() })),
                Err(Errno::NOENT) => Ok(None),
                Err(_) => excluded(Reason::Unreadable),
            },
            (_, Some(same @ Known::File { stat: before, .. })) if self.is_same(before, &stat) => Ok(Some(same.clone())),
            _ => self.hash(open.fd, open.path, name, stat),
        }
    }

    fn subfolder(
        &self,
        open: &Open<'_>,
        name: &[u8],
        known: Option<&Arc<Folder>>,
    ) -> Result<Option<Known>, WorkspaceError> {
        let folder = match system::open_folder(open.fd, name) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(Errno::MFILE | Errno::NFILE) => {
                return Err(WorkspaceError::file("open", self.scanner.root.join(open.path.as_path()), Errno::MFILE));
            }
            Err(_) => return Ok(Some(Known::Excluded(Reason::Unreadable))),
        };
        let (path, rules) = (open.path.join(name), &open.rules);
        let ignored = open.ignored
            || (!self.forced_folders.is_empty()
                && self.forced_folders.contains(&path)
                && rules.verdict(&path, true) != Verdict::Wanted);
        let spot = Spot { path, rules, known, fresh: open.fresh || ignored, ignored, depth: open.depth + 1 };
        if open.depth < SHALLOW || Threads::is_one() {
            return self.folder(folder, spot);
        }
        self.scanner.threads.run(|| self.folder(folder, spot))?
    }

    /// Reads a file. If it changes meanwhile it is read again; what was read last is kept either way.
    fn hash(&self, fd: &OwnedFd, path: &RelPath, name: &[u8], seen: Stat) -> Result<Option<Known>, WorkspaceError> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let file = match system::open_file(fd, name) {
                Ok(file) => file,
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::MFILE | Errno::NFILE) => {
                    let path = self.scanner.root.join(path.join(name).as_path());
                    return Err(WorkspaceError::file("open", path, Errno::MFILE));
                }
                Err(_) => return Ok(Some(Known::Excluded(Reason::Unreadable))),
            };
            let before = match system::stat_of(&file) {
                Ok(stat) if is_file(&stat) => stat,
                // It became something else, which the next scan will find in its place.
                _ => return Ok(Some(Known::Excluded(Reason::Special))),
            };
            if system::mount(&file) != self.mount {
                return Ok(Some(Known::Excluded(Reason::Mount)));
            }
            let watch = Watch::new(self.scanner.sink, name);
            let read = BUFFER.with_borrow_mut(|buffer| {
                let read = content::read(&file, before.size, buffer, &watch);
                // A large file must not leave its buffer behind for every thread.
                if buffer.capacity() > 8 << 20 {
                    *buffer = Vec::new();
                }
                read
            });
            let (content, size) = match read {
                Ok(read) => read,
                Err(Unread::System) => return Ok(Some(Known::Excluded(Reason::Unreadable))),
                Err(Unread::Sink(error)) => return Err(error),
            };
            if watch.found() {
                self.secrets.lock().unwrap_or_else(PoisonError::into_inner).insert(path.join(name));
            }
            if watch.refuses() {
                return Ok(Some(Known::Excluded(Reason::Secret)));
            }
            let progress = self.scanner.progress;
            progress.files.fetch_add(1, Ordering::Relaxed);
            progress.bytes.fetch_add(size, Ordering::Relaxed);
            if size == before.size && system::stat_of(&file).is_ok_and(|after| after == before) {
                return Ok(Some(Known::File { stat: FileStat::from(&before), content }));
            }
            // A time that no file has: next time it is read again.
            last = Some(Known::File { stat: FileStat { size, ctime: i64::MIN, ..FileStat::from(&seen) }, content });
        }
        self.unsteady.lock().unwrap_or_else(PoisonError::into_inner).push(path.join(name));
        Ok(last)
    }

    /// Writes a folder's nodes.
    fn write(&self, stat: &Stat, entries: Vec<(Bytes, Known)>) -> Result<Option<Known>, WorkspaceError> {
        let mut totals = Totals::default();
        let sink = self.scanner.sink;
        let mut writer = FolderWriter::new(sink.hashing(), true, |node: &[u8]| sink.node(node));
        for (name, known) in &entries {
            let (entry, time) = match known {
                Known::File { stat, content } => {
                    totals += Totals { files: 1, bytes: stat.size, excluded: 0 };
                    let entry = Entry::File { mode: stat.mode, size: stat.size, content: *content };
                    (entry, TimedEntry::Modified(stat.mtime))
                }
                Known::Link { stat, target } => {
                    totals += Totals { files: 1, bytes: 0, excluded: 0 };
                    (Entry::Link { target: target.to_vec() }, TimedEntry::Modified(stat.mtime))
                }
                Known::Folder(below) => {
                    totals += below.totals;
                    let entry = Entry::Folder { mode: below.stat.mode & PERMISSIONS, node: below.tree };
                    (entry, TimedEntry::Folder(below.times))
                }
                Known::Excluded(reason) => {
                    totals += Totals { files: 0, bytes: 0, excluded: 1 };
                    (Entry::Excluded(*reason), TimedEntry::Nothing)
                }
            };
            writer.add(name, &entry, time)?;
        }
        let (tree, times) = writer.finish()?;
        let folder = Folder { stat: FileStat::from(stat), tree, times, totals, entries };
        Ok(Some(Known::Folder(Arc::new(folder))))
    }
}
