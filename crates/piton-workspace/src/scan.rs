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

use piton_types::BlobId;
use rayon::prelude::*;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::cache::{Cache, CacheWriter, CachedFolder, FileStat, Known, TooMany, Totals, is_file};
use crate::content::{self, Sink, Unread};
use crate::path::reserved;
use crate::rules::{GITIGNORE, OuterRules, PITONIGNORE, Rules, Then, Verdict, is_rules};
use crate::secrets::Watch;
use crate::system::{self, Stat};
use crate::threads::Threads;
use crate::tree::{Content, Entry, FolderWriter, MAX_DEPTH, PERMISSIONS, Reason, TimedEntry};
use crate::{RelPath, WorkspaceError};

/// Ignored files up to this size are captured all the same: `.env` and its like.
pub(crate) const SMALL: u64 = 1_000_000;

/// How coarse the clock may be that files are stamped with, with room to spare: two ticks of the slowest.
pub(crate) const TICK: i64 = 20_000_000;

/// How often a file that changes while it is read is read again.
const ATTEMPTS: usize = 3;

/// Folders with more names than this are asked for by several threads.
const WIDE: u32 = 512;

/// A folder with at most this much below it is asked for by paths from the one above, and not opened. Each name
/// on the way costs some, but to open and close a folder costs as much as fifteen of them.
const SMALL_FOLDER: u64 = 16;

/// So many names to look at more closely are worth other threads, if there are none yet.
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
    /// If given, only these paths and the folders above them are looked at; the rest is as the cache has it.
    pub(crate) only: Option<&'a HashSet<RelPath>>,
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
    pub(crate) root: FolderScan,
    pub(crate) tree: BlobId,
    pub(crate) times: BlobId,
    pub(crate) totals: Totals,
    /// Files that changed each time they were read. What was read last was captured.
    pub(crate) unsteady: Vec<RelPath>,
    /// Files that were read and have secrets in them.
    pub(crate) secrets: Vec<RelPath>,
    /// What changed in the last ticks before, and may have changed again unseen.
    pub(crate) recent: Vec<RelPath>,
    /// When it began, by the clock that files are stamped with.
    pub(crate) taken_at: i64,
    /// The tree whose ignore files held, if it weren't those in the folder.
    pub(crate) rules: Option<BlobId>,
    /// Whether those are other ones than in the folder: then no cache speaks of it.
    pub(crate) by_other_rules: bool,
    /// Whether some of those can't be read any more, and those in the folder held instead.
    pub(crate) rules_lost: bool,
}

impl Scanned {
    /// Whether the cache says all of it already.
    pub(crate) fn is_cached(&self) -> bool {
        matches!(self.root, FolderScan::Same { .. })
    }

    /// The cache that says what was found; `None` if the old one does, or if there is too much for one.
    pub(crate) fn to_cache(&self, old: Option<&Arc<Cache>>) -> Option<CacheWriter> {
        if self.is_cached() || self.by_other_rules { None } else { self.root.to_cache(old).ok() }
    }
}

/// A folder and everything below it.
pub(crate) enum FolderScan {
    /// As the cache has it.
    Same {
        number: u32,
    },
    New(Box<NewFolder>),
}

pub(crate) struct NewFolder {
    stat: Stat,
    entries: Vec<(Vec<u8>, Seen)>,
    tree: BlobId,
    times: BlobId,
    totals: Totals,
}

/// What was found under a name.
enum Seen {
    File { stat: FileStat, content: Content },
    Link { stat: FileStat, target: Vec<u8> },
    Folder(FolderScan),
    Excluded(Reason),
}

/// What is still to be done about a name.
enum Pending {
    Known(Seen),
    Hash(Stat),
    Folder(Option<u32>),
}

/// What a folder turned out to be.
enum Looked {
    At(FolderScan),
    Excluded(Reason),
    Vanished,
}

struct Walk<'a> {
    scanner: &'a Scanner<'a>,
    dev: u64,
    mount: system::Mount,
    /// What changed after this may have changed again unseen since the cache was taken.
    settled: i64,
    /// What changed after this may change again unseen while this is taken.
    settles: i64,
    unsteady: Mutex<Vec<RelPath>>,
    recent: Mutex<Vec<RelPath>>,
    secrets: Mutex<BTreeSet<RelPath>>,
    forced_folders: HashSet<RelPath>,
}

/// Where a folder is, and what is known of it.
struct Spot<'w> {
    path: RelPath,
    rules: &'w Arc<Rules>,
    known: Option<u32>,
    /// The rules above have changed.
    fresh: bool,
    /// It lies in an ignored folder, and only what is forced is wanted.
    ignored: bool,
}

thread_local! {
    static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Scanner<'_> {
    /// Looks at all of it.
    pub(crate) fn scan(&self) -> Result<Scanned, WorkspaceError> {
        let taken_at = system::now();
        let fail = |error| WorkspaceError::file("read", self.root, error);
        let stat = system::stat_of(self.folder).map_err(fail)?;
        let ancestors = self.forced.iter().flat_map(|path| {
            std::iter::successors(path.split().map(|(parent, _)| parent), |path| path.split().map(|(parent, _)| parent))
        });
        let walk = Walk {
            scanner: self,
            dev: stat.dev,
            mount: system::mount(self.folder),
            settled: self.cache.map_or(i64::MIN, |cache| cache.taken_at() - TICK),
            settles: taken_at - TICK,
            unsteady: Mutex::default(),
            recent: Mutex::default(),
            secrets: Mutex::default(),
            forced_folders: ancestors.collect(),
        };
        let rules = Rules::outer(self.root, self.outer, self.then.clone());
        let root = system::open_below(self.folder, &RelPath::default()).map_err(fail)?;
        let known = self.cache.map(Cache::root);
        let spot = Spot { path: RelPath::default(), rules: &rules, known, fresh: false, ignored: false };
        let few = self.cache.is_some_and(|cache| !cache.folder(cache.root()).totals.are_many());
        let looked = self.threads.run_if(!few, || walk.folder(root, spot, 0))??;
        let root = match looked {
            Looked::At(root) => root,
            Looked::Vanished | Looked::Excluded(_) => return Err(fail(Errno::ACCESS)),
        };
        let (tree, times, totals) = walk.ids(&root);
        let unsteady = walk.unsteady.into_inner().unwrap_or_else(PoisonError::into_inner);
        let recent = walk.recent.into_inner().unwrap_or_else(PoisonError::into_inner);
        let secrets = walk.secrets.into_inner().unwrap_or_else(PoisonError::into_inner);
        let secrets = secrets.into_iter().collect();
        let by_other_rules = self.then.as_ref().is_some_and(|then| then.differs.load(Ordering::Relaxed));
        let rules_lost = self.then.as_ref().is_some_and(|then| then.lost.load(Ordering::Relaxed));
        let rules = self.then.as_ref().map(|then| then.tree);
        Ok(Scanned {
            root,
            tree,
            times,
            totals,
            unsteady,
            secrets,
            recent,
            taken_at,
            rules,
            by_other_rules,
            rules_lost,
        })
    }
}

/// Whether a path is a file or folder of the store, or one beside it: `store.db-wal` and its like.
fn belongs(own: &RelPath, path: &RelPath) -> bool {
    let rest = path.as_bytes().strip_prefix(own.as_bytes());
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/' | b'-')))
}

impl Walk<'_> {
    fn ids(&self, scan: &FolderScan) -> (BlobId, BlobId, Totals) {
        match scan {
            FolderScan::New(new) => (new.tree, new.times, new.totals),
            FolderScan::Same { number } => {
                let cached = self.cache().folder(*number);
                (cached.tree, cached.times, cached.totals)
            }
        }
    }

    fn mode(&self, scan: &FolderScan) -> u16 {
        match scan {
            FolderScan::New(new) => new.stat.mode & PERMISSIONS,
            FolderScan::Same { number } => self.cache().folder(*number).mode & PERMISSIONS,
        }
    }

    fn cache(&self) -> &Cache {
        self.scanner.cache.expect("what is the same is the same as in the cache")
    }

    /// Whether what was known can be relied on.
    fn is_settled(&self, mtime: i64, ctime: i64) -> bool {
        mtime < self.settled && ctime < self.settled
    }

    /// Remembers a path that may still change unseen.
    fn note(&self, stat: &Stat, path: impl FnOnce() -> RelPath) {
        if stat.mtime >= self.settles || stat.ctime >= self.settles {
            self.recent.lock().unwrap_or_else(PoisonError::into_inner).push(path());
        }
    }

    fn is_same(&self, known: &FileStat, stat: &Stat) -> bool {
        *known == FileStat::from(stat) && self.is_settled(stat.mtime, stat.ctime)
    }

    fn folder(&self, fd: OwnedFd, spot: Spot<'_>, depth: usize) -> Result<Looked, WorkspaceError> {
        let Ok(stat) = system::stat_of(&fd) else { return Ok(Looked::Vanished) };
        if system::mount(&fd) != self.mount {
            return Ok(Looked::Excluded(Reason::Mount));
        }
        if depth > MAX_DEPTH {
            return Ok(Looked::Excluded(Reason::TooDeep));
        }
        let fd = Arc::new(fd);
        let rules = Rules::of(spot.rules, &spot.path, &fd);
        let cached = spot.known.map(|number| (number, self.cache().folder(number)));
        if let Some((number, cached)) = &cached
            && !spot.fresh
            && (cached.mtime, cached.ctime, cached.ino, cached.mode) == (stat.mtime, stat.ctime, stat.ino, stat.mode)
            && self.is_settled(stat.mtime, stat.ctime)
            && !self.rules_changed(&fd, cached, true)
        {
            return self.same_names(&fd, &stat, &spot, &rules, *number, cached, depth);
        }
        self.note(&stat, || spot.path.clone());
        let cached = cached.map(|(_, cached)| cached);
        // Only rules of this folder or above, not every change, make what is below it look different.
        let fresh = spot.fresh || cached.as_ref().is_none_or(|cached| self.rules_changed(&fd, cached, false));
        let mut names = match system::names(&*fd) {
            Ok(names) => names,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Looked::Vanished),
            Err(_) => return Ok(Looked::Excluded(Reason::Unreadable)),
        };
        names.sort_unstable();
        let pending = names
            .into_iter()
            .filter_map(|name| {
                let known = cached.as_ref().and_then(|cached| self.cache().find(cached, &name));
                let known = known.map(|entry| self.cache().entry(entry));
                self.decide(&fd, &spot, &rules, &name, known).map(|pending| (name, pending))
            })
            .collect();
        self.complete(&fd, stat, &spot.path, &rules, pending, fresh, spot.ignored, depth)
    }

    /// Whether an ignore file of this folder came, went or changed. A folder whose names are `same` has no
    /// new ones, and isn't asked for them.
    fn rules_changed(&self, fd: &OwnedFd, cached: &CachedFolder, same: bool) -> bool {
        [GITIGNORE, PITONIGNORE].into_iter().any(|name| {
            match self.cache().find(cached, name).map(|entry| self.cache().entry(entry)) {
                Some(Known::File { stat, .. }) => {
                    !system::stat(fd, name).is_ok_and(|now| is_file(&now) && self.is_same(&stat, &now))
                }
                Some(_) => true,
                None => !same && system::stat(fd, name).is_ok(),
            }
        })
    }

    /// A folder whose names are known.
    #[expect(clippy::too_many_arguments, reason = "the state of one folder, taken apart")]
    fn same_names(
        &self,
        fd: &Arc<OwnedFd>,
        stat: &Stat,
        spot: &Spot<'_>,
        rules: &Arc<Rules>,
        number: u32,
        cached: &CachedFolder,
        depth: usize,
    ) -> Result<Looked, WorkspaceError> {
        let range = cached.first..cached.first + cached.count;
        let changed = |entry: &u32| self.is_changed(fd, spot, *entry);
        let changed: Vec<u32> = if cached.count > WIDE && Threads::is_one() {
            range.clone().into_par_iter().with_min_len(128).filter(changed).collect()
        } else {
            range.clone().filter(changed).collect()
        };
        let folders = range.clone().filter_map(|entry| match self.cache().entry(entry) {
            Known::Folder(number) => Some((entry, number)),
            _ => None,
        });
        let folders: Vec<_> = folders.collect();
        let below = |(entry, number): (u32, u32)| -> Result<(u32, Looked), WorkspaceError> {
            let name = self.cache().name(entry);
            if self.is_passed_over(&spot.path, name) {
                return Ok((entry, Looked::At(FolderScan::Same { number })));
            }
            if self.is_plain(spot) && self.is_small(number) && self.looks_same(fd, &mut name.to_vec(), number) {
                return Ok((entry, Looked::At(FolderScan::Same { number })));
            }
            Ok((entry, self.subfolder(fd, &spot.path, rules, name, Some(number), spot.fresh, spot.ignored, depth)?))
        };
        let looked: Vec<(u32, Looked)> = match folders.len() {
            2.. if Threads::is_one() => folders.into_par_iter().map(below).collect::<Result<_, _>>()?,
            _ => folders.into_iter().map(below).collect::<Result<_, _>>()?,
        };
        let same = changed.is_empty()
            && looked.iter().all(|(_, looked)| matches!(looked, Looked::At(FolderScan::Same { .. })));
        if same {
            return Ok(Looked::At(FolderScan::Same { number }));
        }
        let mut pending = Vec::with_capacity(cached.count as usize);
        let mut looked = looked.into_iter().peekable();
        for entry in range {
            let name = self.cache().name(entry);
            let known = self.cache().entry(entry);
            let todo = if let Some((_, looked)) = looked.next_if(|(at, _)| *at == entry) {
                match looked {
                    Looked::At(scan) => Some(Pending::Known(Seen::Folder(scan))),
                    Looked::Excluded(reason) => Some(Pending::Known(Seen::Excluded(reason))),
                    Looked::Vanished => self.decide(fd, spot, rules, name, None),
                }
            } else if changed.binary_search(&entry).is_ok() {
                self.decide(fd, spot, rules, name, Some(known))
            } else {
                match known {
                    Known::File { stat, content } => Some(Pending::Known(Seen::File { stat, content })),
                    Known::Link { .. } => self.decide(fd, spot, rules, name, Some(known)),
                    Known::Excluded(reason) => Some(Pending::Known(Seen::Excluded(reason))),
                    Known::Folder(_) => None,
                }
            };
            pending.extend(todo.map(|todo| (name.to_vec(), todo)));
        }
        self.complete(fd, *stat, &spot.path, rules, pending, spot.fresh, spot.ignored, depth)
    }

    /// Whether the cache is to be taken at its word for a path.
    fn is_passed_over(&self, folder: &RelPath, name: &[u8]) -> bool {
        self.scanner.only.is_some_and(|only| !only.contains(&folder.join(name)))
    }

    /// Whether nothing but the cache decides what is in the folder.
    fn is_plain(&self, spot: &Spot<'_>) -> bool {
        !spot.fresh && !spot.ignored && self.scanner.forced.is_empty()
    }

    fn is_small(&self, number: u32) -> bool {
        let folder = self.cache().folder(number);
        folder.totals.files + folder.totals.excluded + u64::from(folder.folders) <= SMALL_FOLDER
    }

    /// Whether the folder at `path` from `fd` on and all below it look as the cache has them. If not, it is looked
    /// at properly. A link that another process puts in the place of a folder meanwhile is followed here; what lies
    /// behind it doesn't have the inodes and times of the cache, and nothing is opened.
    fn looks_same(&self, fd: &OwnedFd, path: &mut Vec<u8>, number: u32) -> bool {
        let cache = self.cache();
        let cached = cache.folder(number);
        let Ok(stat) = system::stat(fd, path) else { return false };
        let same = stat.kind == FileType::Directory
            && stat.dev == self.dev
            && (cached.mtime, cached.ctime, cached.ino, cached.mode) == (stat.mtime, stat.ctime, stat.ino, stat.mode)
            && self.is_settled(stat.mtime, stat.ctime);
        let length = path.len();
        path.push(b'/');
        let same = same
            && (cached.first..cached.first + cached.count).all(|entry| {
                path.truncate(length + 1);
                path.extend_from_slice(cache.name(entry));
                let known = cache.entry(entry);
                if matches!(cache.name(entry), GITIGNORE | PITONIGNORE) && !matches!(known, Known::File { .. }) {
                    return false;
                }
                match known {
                    Known::File { stat, .. } => {
                        system::stat(fd, path).is_ok_and(|now| is_file(&now) && self.is_same(&stat, &now))
                    }
                    Known::Link { stat } => system::stat(fd, path)
                        .is_ok_and(|now| now.kind == FileType::Symlink && self.is_same(&stat, &now)),
                    Known::Folder(number) => self.looks_same(fd, path, number),
                    Known::Excluded(Reason::IgnoredFile | Reason::Unreadable | Reason::Mount) => false,
                    Known::Excluded(_) => true,
                }
            });
        path.truncate(length);
        same
    }

    /// Whether an entry of a folder whose names are known has to be looked at more closely.
    fn is_changed(&self, fd: &OwnedFd, spot: &Spot<'_>, entry: u32) -> bool {
        let name = self.cache().name(entry);
        if self.is_passed_over(&spot.path, name) {
            return false;
        }
        match self.cache().entry(entry) {
            Known::Folder(_) => false,
            Known::File { stat, .. } => {
                !system::stat(fd, name).is_ok_and(|now| is_file(&now) && self.is_same(&stat, &now))
            }
            Known::Link { stat } => {
                !system::stat(fd, name).is_ok_and(|now| now.kind == FileType::Symlink && self.is_same(&stat, &now))
            }
            // Small now, and it is captured.
            Known::Excluded(Reason::IgnoredFile) => {
                self.is_forced(&spot.path.join(name))
                    || !system::stat(fd, name).is_ok_and(|now| is_file(&now) && now.size > SMALL)
            }
            Known::Excluded(Reason::Unreadable | Reason::Secret | Reason::Mount) => true,
            Known::Excluded(_) => !self.scanner.forced.is_empty() && self.is_forced(&spot.path.join(name)),
        }
    }

    fn is_forced(&self, path: &RelPath) -> bool {
        self.scanner.forced.contains(path) || self.forced_folders.contains(path)
    }

    /// What is to be done about a name; `None` if it vanished.
    fn decide(
        &self,
        fd: &OwnedFd,
        spot: &Spot<'_>,
        rules: &Rules,
        name: &[u8],
        known: Option<Known>,
    ) -> Option<Pending> {
        let excluded = |reason| Some(Pending::Known(Seen::Excluded(reason)));
        match known {
            Some(Known::File { stat, content }) if self.is_passed_over(&spot.path, name) => {
                return Some(Pending::Known(Seen::File { stat, content }));
            }
            Some(Known::Folder(number)) if self.is_passed_over(&spot.path, name) => {
                return Some(Pending::Known(Seen::Folder(FolderScan::Same { number })));
            }
            _ => {}
        }
        let stat = match system::stat(fd, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return None,
            Err(_) => return excluded(Reason::Unreadable),
        };
        let path = spot.path.join(name);
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
        let verdict = match rules.verdict(&path, is_folder) {
            _ if forced || (!is_folder && is_rules(&path)) => Verdict::Wanted,
            _ if spot.ignored => Verdict::Ignored,
            Verdict::Ignored if self.scanner.include_ignored => Verdict::Wanted,
            verdict => verdict,
        };
        match verdict {
            Verdict::Refused => return excluded(Reason::Pitonignore),
            Verdict::Ignored if is_folder => return excluded(Reason::IgnoredFolder),
            Verdict::Ignored if spot.ignored || stat.size > SMALL => return excluded(Reason::IgnoredFile),
            Verdict::Ignored | Verdict::Wanted => {}
        }
        Some(match (stat.kind, known) {
            (FileType::Directory, Some(Known::Folder(number))) => Pending::Folder(Some(number)),
            (FileType::Directory, _) => Pending::Folder(None),
            (FileType::Symlink, _) => match system::read_link(fd, name) {
                Ok(target) => {
                    self.note(&stat, || path);
                    Pending::Known(Seen::Link { stat: FileStat::from(&stat), target })
                }
                Err(Errno::NOENT) => return None,
                Err(_) => return excluded(Reason::Unreadable),
            },
            (_, Some(Known::File { stat: before, content })) if self.is_same(&before, &stat) => {
                Pending::Known(Seen::File { stat: before, content })
            }
            _ => Pending::Hash(stat),
        })
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one folder, taken apart")]
    fn subfolder(
        &self,
        fd: &OwnedFd,
        path: &RelPath,
        rules: &Arc<Rules>,
        name: &[u8],
        known: Option<u32>,
        fresh: bool,
        ignored: bool,
        depth: usize,
    ) -> Result<Looked, WorkspaceError> {
        let folder = match system::open_folder(fd, name) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Looked::Vanished),
            Err(Errno::MFILE | Errno::NFILE) => {
                return Err(WorkspaceError::file("open", self.scanner.root.join(path.as_path()), Errno::MFILE));
            }
            Err(_) => return Ok(Looked::Excluded(Reason::Unreadable)),
        };
        let path = path.join(name);
        let ignored = ignored
            || (!self.forced_folders.is_empty()
                && self.forced_folders.contains(&path)
                && rules.verdict(&path, true) != Verdict::Wanted);
        let spot = Spot { path, rules, known, fresh: fresh || ignored, ignored };
        if depth < SHALLOW || Threads::is_one() {
            return self.folder(folder, spot, depth + 1);
        }
        self.scanner.threads.run(|| self.folder(folder, spot, depth + 1))?
    }

    /// Does what is still to be done, and writes the folder's nodes.
    #[expect(clippy::too_many_arguments, reason = "the state of one folder, taken apart")]
    fn complete(
        &self,
        fd: &Arc<OwnedFd>,
        stat: Stat,
        path: &RelPath,
        rules: &Arc<Rules>,
        pending: Vec<(Vec<u8>, Pending)>,
        fresh: bool,
        ignored: bool,
        depth: usize,
    ) -> Result<Looked, WorkspaceError> {
        let open = pending.iter().filter(|(_, todo)| !matches!(todo, Pending::Known(_))).count();
        let finish = |(name, todo): (Vec<u8>, Pending)| -> Result<Option<(Vec<u8>, Seen)>, WorkspaceError> {
            let seen = match todo {
                Pending::Known(seen) => Some(seen),
                Pending::Hash(stat) => self.hash(fd, path, &name, stat)?,
                Pending::Folder(known) => {
                    match self.subfolder(fd, path, rules, &name, known, fresh, ignored, depth)? {
                        Looked::At(scan) => Some(Seen::Folder(scan)),
                        Looked::Excluded(reason) => Some(Seen::Excluded(reason)),
                        Looked::Vanished => None,
                    }
                }
            };
            Ok(seen.map(|seen| (name, seen)))
        };
        let done: Vec<_> = if open >= MUCH || open > 1 && Threads::is_one() {
            self.scanner
                .threads
                .run(|| pending.into_par_iter().map(finish).collect::<Result<_, WorkspaceError>>())??
        } else {
            pending.into_iter().map(finish).collect::<Result<_, _>>()?
        };
        let entries: Vec<_> = done.into_iter().flatten().collect();
        let (tree, times, totals) = self.write(&entries)?;
        Ok(Looked::At(FolderScan::New(Box::new(NewFolder { stat, entries, tree, times, totals }))))
    }

    /// Reads a file. If it changes meanwhile it is read again; what was read last is kept either way.
    fn hash(&self, fd: &OwnedFd, path: &RelPath, name: &[u8], seen: Stat) -> Result<Option<Seen>, WorkspaceError> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let file = match system::open_file(fd, name) {
                Ok(file) => file,
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::MFILE | Errno::NFILE) => {
                    let path = self.scanner.root.join(path.join(name).as_path());
                    return Err(WorkspaceError::file("open", path, Errno::MFILE));
                }
                Err(_) => return Ok(Some(Seen::Excluded(Reason::Unreadable))),
            };
            let before = match system::stat_of(&file) {
                Ok(stat) if is_file(&stat) => stat,
                // It became something else, which the next scan will find in its place.
                _ => return Ok(Some(Seen::Excluded(Reason::Special))),
            };
            if system::mount(&file) != self.mount {
                return Ok(Some(Seen::Excluded(Reason::Mount)));
            }
            self.note(&before, || path.join(name));
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
                Err(Unread::System) => return Ok(Some(Seen::Excluded(Reason::Unreadable))),
                Err(Unread::Sink(error)) => return Err(error),
            };
            if watch.found() {
                self.secrets.lock().unwrap_or_else(PoisonError::into_inner).insert(path.join(name));
            }
            if watch.refuses() {
                return Ok(Some(Seen::Excluded(Reason::Secret)));
            }
            let progress = self.scanner.progress;
            progress.files.fetch_add(1, Ordering::Relaxed);
            progress.bytes.fetch_add(size, Ordering::Relaxed);
            if size == before.size && system::stat_of(&file).is_ok_and(|after| after == before) {
                return Ok(Some(Seen::File { stat: FileStat::from(&before), content }));
            }
            // A time that no file has: next time it is read again.
            last = Some(Seen::File { stat: FileStat { size, ctime: i64::MIN, ..FileStat::from(&seen) }, content });
        }
        self.unsteady.lock().unwrap_or_else(PoisonError::into_inner).push(path.join(name));
        Ok(last)
    }

    fn write(&self, entries: &[(Vec<u8>, Seen)]) -> Result<(BlobId, BlobId, Totals), WorkspaceError> {
        let mut totals = Totals::default();
        let sink = self.scanner.sink;
        let mut writer = FolderWriter::new(sink.hashing(), true, |node: &[u8]| sink.node(node));
        for (name, seen) in entries {
            let (entry, time) = match seen {
                Seen::File { stat, content } => {
                    totals += Totals { files: 1, bytes: stat.size, excluded: 0 };
                    let entry = Entry::File { mode: stat.mode, size: stat.size, content: *content };
                    (entry, TimedEntry::Modified(stat.mtime))
                }
                Seen::Link { stat, target } => {
                    totals += Totals { files: 1, bytes: 0, excluded: 0 };
                    (Entry::Link { target: target.clone() }, TimedEntry::Modified(stat.mtime))
                }
                Seen::Folder(scan) => {
                    let (node, times, below) = self.ids(scan);
                    totals += below;
                    (Entry::Folder { mode: self.mode(scan), node }, TimedEntry::Folder(times))
                }
                Seen::Excluded(reason) => {
                    totals += Totals { files: 0, bytes: 0, excluded: 1 };
                    (Entry::Excluded(*reason), TimedEntry::Nothing)
                }
            };
            writer.add(name, &entry, time)?;
        }
        let (tree, times) = writer.finish()?;
        Ok((tree, times, totals))
    }
}

impl FolderScan {
    /// The cache that says all of this: a patch for the old one, or a whole if that is as well.
    fn to_cache(&self, old: Option<&Arc<Cache>>) -> Result<CacheWriter, TooMany> {
        if let Some(mut patch) = old.and_then(CacheWriter::patch) {
            self.write(&mut patch)?;
            if !patch.is_too_large() {
                return Ok(patch);
            }
        }
        let mut whole = CacheWriter::whole(old);
        self.write(&mut whole)?;
        Ok(whole)
    }

    /// Writes it; gives its number, and how many folders it is with all below it.
    fn write(&self, writer: &mut CacheWriter) -> Result<(u32, u32), TooMany> {
        let new = match self {
            Self::New(new) => new,
            Self::Same { number } => return writer.keep(*number),
        };
        let number = writer.begin(&new.stat, new.tree, new.times, new.totals, new.entries.len())?;
        let mut below = Vec::new();
        for (name, seen) in &new.entries {
            let known = match seen {
                Seen::File { stat, content } => Known::File { stat: *stat, content: *content },
                Seen::Link { stat, .. } => Known::Link { stat: *stat },
                Seen::Folder(_) => Known::Folder(0),
                Seen::Excluded(reason) => Known::Excluded(*reason),
            };
            let place = writer.add(name, known)?;
            if let Seen::Folder(scan) = seen {
                below.push((place, scan));
            }
        }
        let mut folders = 1_u32;
        for (place, scan) in below {
            let (folder, more) = scan.write(writer)?;
            writer.set_folder(place, folder);
            folders = folders.checked_add(more).ok_or(TooMany)?;
        }
        writer.end(number, folders);
        Ok((number, folders))
    }
}
