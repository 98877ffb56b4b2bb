//! Which names are left out: the ignore files of git and `.pitonignore`.
//!
//! From the strongest: `.pitonignore`, from the folder of the name upwards; `.gitignore`, likewise, up to
//! the top of the repository; `.git/info/exclude`; the user's own. Of those that say something of a name,
//! the first decides. A folder's files are read only when a name in or below it has to be decided.
//!
//! What an agent writes can't hide files from the checkpoints of its own session: those go by the ignore files that the
//! session began with, as its first snapshot has them. For that, ignore files are always captured.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use piton_log::ContentReader;
use piton_types::BlobId;

use crate::tree::{Entry, StoredNodes, entry_at};
use crate::{RelPath, WorkspaceError, content, system};

/// The files that say what is left out.
pub(crate) const GITIGNORE: &[u8] = b".gitignore";
/// Piton's own.
pub(crate) const PITONIGNORE: &[u8] = b".pitonignore";

/// Whether a path is that of a file with rules.
pub(crate) fn is_rules(path: &RelPath) -> bool {
    path.split().is_some_and(|(_, name)| matches!(name, GITIGNORE | PITONIGNORE))
}

/// How much of an ignore file is read, and how long its lines and how many they are. What is beyond hides nothing.
const MAX_FILE: usize = 1 << 20;
const MAX_LINE: usize = 4096;
const MAX_LINES: usize = 10_000;

/// The ignore files of a snapshot, which hold instead of those on disk.
pub(crate) struct Then {
    pub(crate) nodes: StoredNodes,
    pub(crate) reader: ContentReader,
    pub(crate) tree: BlobId,
    /// Whether one was found that isn't the same on disk.
    pub(crate) differs: AtomicBool,
    /// Whether one can't be read any more, because the checkpoint was removed: the one on disk holds instead.
    pub(crate) lost: AtomicBool,
}

impl Then {
    fn text(&self, path: &RelPath) -> Result<Option<Vec<u8>>, WorkspaceError> {
        let Some(Entry::File { size, content, .. }) = entry_at(&self.nodes, self.tree, path)? else { return Ok(None) };
        let get = |id| Ok(self.reader.get(id)?);
        let mut text = content::load_start(&get, content, size, MAX_FILE as u64)?.to_vec();
        text.truncate(MAX_FILE);
        Ok(Some(text))
    }
}

/// Rules from outside the folder, in the order of their strength.
#[derive(Debug, Clone, Default)]
pub struct OuterRules {
    /// Each with the folder that its patterns are relative to, and its text.
    pub sources: Vec<(PathBuf, Vec<u8>)>,
}

/// What the ignore files say of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing, or that it is wanted after all.
    Wanted,
    /// git leaves it out.
    Ignored,
    /// Piton is to leave it out.
    Refused,
}

/// The rules that hold in one folder.
pub(crate) struct Rules {
    parent: Option<Arc<Rules>>,
    path: RelPath,
    folder: Option<Arc<OwnedFd>>,
    loaded: OnceLock<Loaded>,
    root: Arc<PathBuf>,
    then: Option<Arc<Then>>,
}

struct Loaded {
    git: Vec<Gitignore>,
    piton: Option<Gitignore>,
}

impl Rules {
    /// Those of the world outside the folder.
    pub(crate) fn outer(root: &Path, outer: &OuterRules, then: Option<Arc<Then>>) -> Arc<Self> {
        let git = outer.sources.iter().map(|(base, text)| build(base, text)).collect();
        let loaded = OnceLock::from(Loaded { git, piton: None });
        let (root, path) = (Arc::new(root.to_owned()), RelPath::default());
        Arc::new(Self { parent: None, path, folder: None, loaded, root, then })
    }

    /// Those of a folder; its ignore files are read when they are first asked.
    pub(crate) fn of(parent: &Arc<Self>, path: &RelPath, folder: &Arc<OwnedFd>) -> Arc<Self> {
        Arc::new(Self {
            parent: Some(Arc::clone(parent)),
            path: path.clone(),
            folder: Some(Arc::clone(folder)),
            loaded: OnceLock::new(),
            root: Arc::clone(&parent.root),
            then: parent.then.clone(),
        })
    }

    fn load(&self) -> &Loaded {
        self.loaded.get_or_init(|| {
            let base = self.root.join(self.path.as_path());
            let on_disk = |name: &[u8]| {
                let file = system::open_file(self.folder.as_ref()?, name).ok()?;
                let mut text = Vec::new();
                let file = std::fs::File::from(file);
                if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                    return None;
                }
                std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_FILE as u64), &mut text).ok()?;
                Some(text)
            };
            let read = |name: &[u8]| {
                let now = on_disk(name);
                let text = match self.then.as_ref().map(|then| (then, then.text(&self.path.join(name)))) {
                    Some((then, Ok(text))) => {
                        then.differs.fetch_or(text != now, Ordering::Relaxed);
                        text
                    }
                    Some((then, Err(_))) => {
                        then.lost.store(true, Ordering::Relaxed);
                        now
                    }
                    None => now,
                };
                Some(build(&base, &text?))
            };
            Loaded { git: read(GITIGNORE).into_iter().collect(), piton: read(PITONIGNORE) }
        })
    }

    /// What is to become of `path`, which lies in this folder.
    pub(crate) fn verdict(&self, path: &RelPath, is_folder: bool) -> Verdict {
        let absolute = self.root.join(path.as_path());
        let levels = || std::iter::successors(Some(self), |rules| rules.parent.as_deref());
        for level in levels() {
            match level.load().piton.as_ref().map(|rules| rules.matched(&absolute, is_folder)) {
                Some(Match::Ignore(_)) => return Verdict::Refused,
                Some(Match::Whitelist(_)) => return Verdict::Wanted,
                Some(Match::None) | None => {}
            }
        }
        for rules in levels().flat_map(|level| &level.load().git) {
            match rules.matched(&absolute, is_folder) {
                Match::Ignore(_) => return Verdict::Ignored,
                Match::Whitelist(_) => return Verdict::Wanted,
                Match::None => {}
            }
        }
        Verdict::Wanted
    }
}

fn build(base: &Path, text: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new(base);
    let lines = text.split(|byte| *byte == b'\n').take(MAX_LINES).filter(|line| line.len() <= MAX_LINE);
    for line in lines {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A pattern that can't be understood is left out, as git does.
        if let Some(line) = OsStr::from_bytes(line).to_str() {
            let _ = builder.add_line(None, line);
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

impl OuterRules {
    /// Tells one set of rules from another.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for (base, text) in &self.sources {
            for part in [base.as_os_str().as_bytes(), text] {
                hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
            }
        }
        *hasher.finalize().as_bytes()
    }
}
