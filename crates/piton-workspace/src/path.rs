//! Names and paths inside a workspace: bytes, since a file's name need not be text. A path of this type
//! can't leave the folder: it has no empty, `.` or `..` name in it, and no NUL.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::TreeError;
use crate::tree::Reason;

/// The longest name that a file system takes.
const MAX_NAME: usize = 255;

/// Whether these bytes can be the name of a file.
pub(crate) fn check_name(name: &[u8]) -> Result<(), TreeError> {
    match name {
        b"" | b"." | b".." => Err(TreeError("a name is empty, '.' or '..'")),
        name if name.len() > MAX_NAME => Err(TreeError("a name is longer than 255 bytes")),
        name if name.contains(&b'/') || name.contains(&0) => Err(TreeError("a name has '/' or NUL in it")),
        _ => Ok(()),
    }
}

/// Why a file or folder of this name is never captured and never restored: it is git's own, Piton's store, or what a
/// restore leaves, or a file system that folds names would take it for one of those. As git does it: in any case, with
/// characters that HFS+ passes over, the short names, dots, spaces and streams of NTFS, and its other separator.
pub(crate) fn reserved(name: &[u8]) -> Option<Reason> {
    let text = String::from_utf8_lossy(name);
    let passed_over = |c: &char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    text.split('\\').find_map(|part| {
        let part: String = part.chars().filter(|c| !passed_over(c)).collect::<String>().to_ascii_lowercase();
        match part.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']) {
            ".git" | "git~1" => Some(Reason::Git),
            ".piton" | "piton~1" => Some(Reason::Store),
            other => other.starts_with(TEMPORARY).then_some(Reason::Temporary),
        }
    })
}

/// What a restore writes beside the files that it replaces begins with this.
pub(crate) const TEMPORARY: &str = ".piton-tmp-";

/// A path below the root of a workspace; empty for the root itself.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// The path with these bytes, names separated by `/`.
    pub fn new(bytes: &[u8]) -> Result<Self, TreeError> {
        if !bytes.is_empty() {
            bytes.split(|byte| *byte == b'/').try_for_each(check_name)?;
        }
        Ok(Self(bytes.to_vec()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As the system's calls want it.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The entry `name` of this folder; the name was checked.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let mut path = Vec::with_capacity(self.0.len() + 1 + name.len());
        if !self.0.is_empty() {
            path.extend_from_slice(&self.0);
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Self(path)
    }

    /// The folder that it is in, and its name; `None` for the root.
    pub fn split(&self) -> Option<(Self, &[u8])> {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            _ if self.0.is_empty() => None,
            None => Some((Self::default(), &self.0)),
            Some(at) => Some((Self(self.0[..at].to_vec()), &self.0[at + 1..])),
        }
    }

    /// The names on the way.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// Whether this is `other` or lies in it.
    pub fn is_within(&self, other: &Self) -> bool {
        other.is_root()
            || self.0.strip_prefix(&other.0[..]).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }
}

/// By names, so that a folder comes just before what is in it.
impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.names().cmp(other.names())
    }
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RelPath {
    /// Bytes that aren't text are shown as `\xNN`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise 16: no path of this type leads out.
    #[test]
    fn paths_that_lead_out_are_refused() {
        for wrong in ["/etc", "a//b", "a/", "..", "a/../b", ".", "./a", "a\0b", &"x".repeat(256)] {
            assert!(RelPath::new(wrong.as_bytes()).is_err(), "{wrong:?} was accepted");
        }
        for right in ["", "a", "a/b", ".env", "...", "\u{fc}", &"x".repeat(255)] {
            assert!(RelPath::new(right.as_bytes()).is_ok(), "{right:?}");
        }
    }

    /// What a file system may fold into a name that is ours or git's is that name; what only looks like it isn't.
    #[test]
    fn names_that_are_reserved_are_known_in_every_form() {
        let git = [".git", ".GIT", ".Git", ".g\u{200c}it", "\u{feff}.git", ".git.", ".git ..", "git~1", "GIT~1"];
        let more = [".git::$INDEX_ALLOCATION", "a\\.git", ".git\\hooks\\pre-commit"];
        for name in git.into_iter().chain(more) {
            assert_eq!(reserved(name.as_bytes()), Some(Reason::Git), "{name:?}");
        }
        assert_eq!(reserved(b".Piton"), Some(Reason::Store));
        assert_eq!(reserved(b".piton-TMP-7"), Some(Reason::Temporary));
        for fine in
            [".gitignore", ".github", "git", ".pitonignore", ".piton-", "a.git", ".git2", "x:.git", "...", "\u{fc}"]
        {
            assert_eq!(reserved(fine.as_bytes()), None, "{fine:?}");
        }
        assert_eq!(reserved(b"\xff.git"), None);
    }

    #[test]
    fn a_folder_comes_before_what_is_in_it() {
        let mut paths: Vec<_> = ["a.b", "a/c", "a", "b"].map(|path| RelPath::new(path.as_bytes()).unwrap()).into();
        paths.sort();
        assert_eq!(paths.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a", "a/c", "a.b", "b"]);
        assert!(paths[1].is_within(&paths[0]) && !paths[2].is_within(&paths[0]));
        assert_eq!(paths[1].split().unwrap(), (paths[0].clone(), &b"c"[..]));
        assert_eq!(RelPath::new(b"a/\xff").unwrap().to_string(), "a/\\xff");
    }
}
