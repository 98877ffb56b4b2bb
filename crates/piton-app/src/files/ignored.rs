//! git's ignore rules from outside a folder: of the folders above it in the same repository, of the repository, and
//! the user's own (`core.excludesFile`), which any of git's configuration files may name. Files that those include
//! are not read.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use piton_workspace::OuterRules;

use crate::app::App;

/// A larger file has no rules that a person wrote.
const MOST: u64 = 4 << 20;

/// The rules that reach the folder of a app.
pub fn outer_rules(app: &App) -> OuterRules {
    let root = &*app.surroundings.folder;
    let mut sources = Vec::new();
    let mut add = |base: &Path, file: PathBuf| {
        if let Some(text) = read(&file) {
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
    if let Some(own) = users_rules(app, top, git.as_deref()) {
        add(top, own);
    }
    OuterRules { sources }
}

/// The repository behind `.git`, which is a file in a worktree.
fn git_folder(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_owned());
    }
    let text = read(path)?;
    let folder = path.parent()?.join(OsStr::from_bytes(text.strip_prefix(b"gitdir:")?.trim_ascii()));
    match read(&folder.join("commondir")) {
        Some(common) => Some(folder.join(OsStr::from_bytes(common.trim_ascii()))),
        None => Some(folder),
    }
}

/// A file as a whole, if it is one and not too large. Its name may come from a repository that isn't the user's, and must not
/// lead to a pipe that is never written to or a device that never ends.
fn read(path: &Path) -> Option<Vec<u8>> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(i32::try_from(flags.bits()).ok()?).open(path).ok()?;
    let length = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    let mut text = Vec::new();
    (length <= MOST).then_some(())?;
    file.take(MOST).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Where the user's own rules are: as the last of git's configuration files says that speaks of it.
fn users_rules(app: &App, top: &Path, git: Option<&Path>) -> Option<PathBuf> {
    let home = app.surroundings.home.as_deref();
    let given = |name: &str| app.lookup()(name).map(PathBuf::from);
    let named = |name: &str| given(name).filter(|value| !value.as_os_str().is_empty());
    let own = named("XDG_CONFIG_HOME").or_else(|| Some(home?.join(".config"))).map(|folder| folder.join("git"));
    let system = (named("GIT_CONFIG_NOSYSTEM").is_none())
        .then(|| named("GIT_CONFIG_SYSTEM").unwrap_or_else(|| PathBuf::from("/etc/gitconfig")));
    // An empty name is that of no file.
    let global = match given("GIT_CONFIG_GLOBAL") {
        Some(only) => vec![only],
        None => own.iter().map(|own| own.join("config")).chain(home.map(|home| home.join(".gitconfig"))).collect(),
    };
    let local = git.map(|git| git.join("config"));
    let files = local.into_iter().chain(global.into_iter().rev()).chain(system);
    let said = files.filter_map(|file| read(&file)).find_map(|text| excludes_file(&text));
    match said {
        // Said to be none.
        Some(path) if path.is_empty() => None,
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
    let mut lines = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).split(|byte| *byte == b'\n');
    while let Some(line) = lines.next() {
        let mut line = line.trim_ascii();
        if let Some(header) = line.strip_prefix(b"[") {
            let end = header.iter().position(|byte| *byte == b']').unwrap_or(header.len());
            in_core = header[..end].trim_ascii().eq_ignore_ascii_case(b"core");
            // The first key may stand behind it.
            line = header.get(end + 1..).unwrap_or_default().trim_ascii();
        }
        let Some(at) = line.iter().position(|byte| *byte == b'=') else { continue };
        let is_comment = line.starts_with(b"#") || line.starts_with(b";");
        let mut written = line[at + 1..].trim_ascii_start().to_vec();
        // A value may go on in the next line.
        while !is_comment && goes_on(&written) {
            written.pop();
            let Some(more) = lines.next() else { break };
            written.extend_from_slice(more.strip_suffix(b"\r").unwrap_or(more));
        }
        if in_core && line[..at].trim_ascii().eq_ignore_ascii_case(b"excludesfile") {
            found = Some(value(&written));
        }
    }
    found
}

/// Whether a value ends with a backslash that nothing protects.
fn goes_on(written: &[u8]) -> bool {
    written.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
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
            "[core",
        ] {
            assert_eq!(said(text), None, "{text:?}");
        }
    }
}
