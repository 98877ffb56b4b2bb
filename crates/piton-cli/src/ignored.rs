//! git's ignore rules from outside a folder: of the folders above it in the same repository, of the repository, and
//! the user's own (`core.excludesFile`), which any of git's configuration files may name. Files that those include
//! are not read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use piton::workspace::OuterRules;

use crate::session::Session;

/// The rules that reach the folder `root`.
pub(crate) fn outer_rules(session: &Session) -> OuterRules {
    let root = &*session.surroundings.folder;
    let mut sources = Vec::new();
    let mut add = |base: &Path, file: PathBuf| {
        if let Ok(text) = std::fs::read(file) {
            sources.push((base.to_owned(), text));
        }
    };
    let top = root.ancestors().find(|folder| folder.join(".git").exists());
    let git = top.and_then(|top| git_folder(&top.join(".git")));
    if let Some(top) = top {
        for folder in root.ancestors().skip(1).take_while(|folder| folder.starts_with(top)) {
            add(folder, folder.join(".gitignore"));
        }
        if let Some(git) = &git {
            add(top, git.join("info/exclude"));
        }
    }
    let top = top.unwrap_or(root);
    if let Some(own) = users_rules(session, top, git.as_deref()) {
        add(top, own);
    }
    OuterRules { sources }
}

/// The repository behind `.git`, which is a file in a worktree.
fn git_folder(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    let text = std::fs::read_to_string(path).ok()?;
    let folder = path.parent()?.join(text.strip_prefix("gitdir:")?.trim());
    match std::fs::read_to_string(folder.join("commondir")) {
        Ok(common) => Some(folder.join(common.trim())),
        Err(_) => Some(folder),
    }
}

/// Where the user's own rules are: as the last of git's configuration files says that speaks of it.
fn users_rules(session: &Session, top: &Path, git: Option<&Path>) -> Option<PathBuf> {
    let home = session.surroundings.home.as_deref();
    let named = |name: &str| session.lookup()(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = named("XDG_CONFIG_HOME").or_else(|| Some(home?.join(".config"))).map(|folder| folder.join("git"));
    let system = (named("GIT_CONFIG_NOSYSTEM").is_none())
        .then(|| named("GIT_CONFIG_SYSTEM").unwrap_or_else(|| PathBuf::from("/etc/gitconfig")));
    let global = match named("GIT_CONFIG_GLOBAL") {
        Some(only) => vec![only],
        None => own.iter().map(|own| own.join("config")).chain(home.map(|home| home.join(".gitconfig"))).collect(),
    };
    let local = git.map(|git| git.join("config"));
    let files = local.into_iter().chain(global.into_iter().rev()).chain(system);
    let said = files.filter_map(|file| std::fs::read(file).ok()).find_map(|text| excludes_file(&text));
    match said {
        Some(path) => match path.strip_prefix(b"~/") {
            Some(below) => Some(home?.join(OsStr::from_bytes(below))),
            None => Some(top.join(OsStr::from_bytes(&path))),
        },
        None => Some(own?.join("ignore")),
    }
}

/// What a configuration file of git says of `core.excludesFile`, at last.
fn excludes_file(text: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    let mut in_core = false;
    for line in text.split(|byte| *byte == b'\n') {
        let mut line = line.trim_ascii();
        if let Some(header) = line.strip_prefix(b"[") {
            let end = header.iter().position(|byte| *byte == b']').unwrap_or(header.len());
            in_core = header[..end].trim_ascii().eq_ignore_ascii_case(b"core");
            // The first key may stand behind it.
            line = header.get(end + 1..).unwrap_or_default().trim_ascii();
        }
        let Some(at) = line.iter().position(|byte| *byte == b'=').filter(|_| in_core) else { continue };
        if line[..at].trim_ascii().eq_ignore_ascii_case(b"excludesfile") {
            found = Some(value(line[at + 1..].trim_ascii_start()));
        }
    }
    found.filter(|path| !path.is_empty())
}

/// A value as it is written: quotes around any part of it, what a backslash protects, a comment behind it.
fn value(written: &[u8]) -> Vec<u8> {
    let (mut value, mut kept) = (Vec::new(), 0);
    let mut quoted = false;
    let mut bytes = written.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'#' | b';' if !quoted => break,
            b'\\' => match bytes.next() {
                Some(b'n') => value.push(b'\n'),
                Some(b't') => value.push(b'\t'),
                Some(other) => value.push(other),
                None => break,
            },
            _ => value.push(byte),
        }
        if quoted || byte == b'\\' || byte == b'"' || !byte.is_ascii_whitespace() {
            kept = value.len();
        }
    }
    value.truncate(kept);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<String> {
        excludes_file(text.as_bytes()).map(|path| String::from_utf8(path).unwrap())
    }

    #[test]
    fn the_key_is_found_as_git_finds_it() {
        let some = |path: &str| Some(path.to_owned());
        assert_eq!(said("[core]\n\texcludesFile = ~/ignored\n"), some("~/ignored"));
        assert_eq!(said("[CORE] ExcludesFile=/a b # not this\n"), some("/a b"));
        assert_eq!(said("[core]\nexcludesfile = \"/a #b \" ; no\n"), some("/a #b "));
        assert_eq!(said("[core]\nexcludesfile = /a\\\\b\\\"c\n"), some("/a\\b\"c"));
        assert_eq!(
            said("[core]\nexcludesfile = /first\n[user]\nname = x\n[core]\nexcludesfile = /last\n"),
            some("/last")
        );
    }

    #[test]
    fn what_only_looks_like_it_is_none() {
        for text in [
            "",
            "excludesfile = /a\n",
            "[user]\nexcludesfile = /a\n",
            "[core \"sub\"]\nexcludesfile = /a\n",
            "[core]\n# excludesfile = /a\n",
            "[core]\nexcludesfiles = /a\n",
            "[core]\nexcludesfile\n",
            "[core]\nexcludesfile =\n",
            "[core",
        ] {
            assert_eq!(said(text), None, "{text:?}");
        }
    }
}
