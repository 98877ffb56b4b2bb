//! Which names are left out: the ignore files of git and `.pitonignore`.
//!
//! From the strongest: `.pitonignore`, from the folder of the name upwards; `.gitignore`, likewise, up to
//! the top of the repository; `.git/info/exclude`; the user's own. Of those that say something of a name,
//! the first decides. A folder's files are read only when a name in or below it has to be decided.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::RelPath;
use crate::system;

/// The files that say what is left out.
pub(crate) const GITIGNORE: &[u8] = b".gitignore";
/// Piton's own.
pub(crate) const PITONIGNORE: &[u8] = b".pitonignore";

/// Whether a path is that of a file with rules.
pub(crate) fn is_rules(path: &RelPath) -> bool {
    path.split().is_some_and(|(_, name)| matches!(name, GITIGNORE | PITONIGNORE))
}

/// The largest ignore file that is read.
const MAX_FILE: usize = 4 << 20;

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
}

struct Loaded {
    git: Vec<Gitignore>,
    piton: Option<Gitignore>,
}

impl Rules {
    /// Those of the world outside the folder.
    pub(crate) fn outer(root: &Path, outer: &OuterRules) -> Arc<Self> {
        let git = outer.sources.iter().map(|(base, text)| build(base, text)).collect();
        let loaded = OnceLock::from(Loaded { git, piton: None });
        Arc::new(Self { parent: None, path: RelPath::default(), folder: None, loaded, root: Arc::new(root.to_owned()) })
    }

    /// Those of a folder; its ignore files are read when they are first asked.
    pub(crate) fn of(parent: &Arc<Self>, path: &RelPath, folder: &Arc<OwnedFd>) -> Arc<Self> {
        Arc::new(Self {
            parent: Some(Arc::clone(parent)),
            path: path.clone(),
            folder: Some(Arc::clone(folder)),
            loaded: OnceLock::new(),
            root: Arc::clone(&parent.root),
        })
    }

    fn load(&self) -> &Loaded {
        self.loaded.get_or_init(|| {
            let base = self.root.join(self.path.as_path());
            let read = |name: &[u8]| {
                let file = system::open_file(self.folder.as_ref()?, name).ok()?;
                let mut text = Vec::new();
                let file = std::fs::File::from(file);
                if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                    return None;
                }
                std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_FILE as u64), &mut text).ok()?;
                Some(build(&base, &text))
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
    for line in text.split(|byte| *byte == b'\n') {
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
