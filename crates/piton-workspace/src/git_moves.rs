//! Where git's names pointed, and how they moved: HEAD, branches, tags and the stash. Read from git's own files, without
//! running git; git is never written.
//!
//! What was seen last lies beside the store. Each checkpoint of the folder tells how the names moved since the checkpoint
//! before. The index, and what other repositories are known to have, aren't followed.

use std::collections::BTreeMap;
use std::path::Path;

use piton_types::{from_json, from_value, to_json, to_value};
use serde::{Deserialize, Serialize};

use crate::Workspace;
use crate::git_folder::{GitFolder, read};

/// The file that has what was seen last.
const SEEN: &str = "git";
/// A repository with more names isn't followed: reading them would take longer than a checkpoint may.
const MOST: usize = 5000;
const HEADS: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";
const STASH: &str = "refs/stash";
const HEAD: &str = "HEAD";

/// A name of git's that pointed elsewhere before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitMove {
    /// `HEAD`, or a ref such as `refs/heads/main`.
    pub name: String,
    /// A hash, or for HEAD the branch; `None` if there was no such name.
    pub old: Option<String>,
    /// The same, now.
    pub new: Option<String>,
}

impl GitMove {
    /// In words, as `HEAD master → topic` or `master deleted, was bd85c96`.
    pub fn words(&self) -> String {
        let name = match self.name.strip_prefix(TAGS) {
            Some(tag) => format!("tag {tag}"),
            None => short(&self.name).to_owned(),
        };
        let name = if self.name == STASH { "stash".to_owned() } else { name };
        match (self.old.as_deref().map(short), self.new.as_deref().map(short)) {
            (Some(old), Some(new)) => format!("{name} {old} → {new}"),
            (Some(old), None) => format!("{name} deleted, was {old}"),
            (None, Some(new)) => format!("{name} created at {new}"),
            (None, None) => format!("{name} came and went"),
        }
    }

    /// The words of a command of git that puts it back; `None` if nothing of the user's is lost by leaving it.
    pub fn put_back(&self) -> Option<Vec<String>> {
        let old = self.old.clone()?;
        let words: &[&str] = match &*self.name {
            HEAD if old.starts_with("refs/") => &["git", "symbolic-ref", HEAD],
            HEAD => &["git", "update-ref", "--no-deref", HEAD],
            STASH => &["git", "stash", "store"],
            name => &["git", "update-ref", name],
        };
        Some(words.iter().map(|word| (*word).to_owned()).chain([old]).collect())
    }

    /// Several moves of the same names, one after the other, as one each; names that are where they were are left out.
    pub fn together(moves: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for one in moves {
            match all.iter_mut().find(|known| known.name == one.name) {
                Some(known) => known.new = one.new,
                None => all.push(one),
            }
        }
        all.retain(|one| one.old != one.new);
        all
    }
}

/// A name or hash as people write it.
fn short(text: &str) -> &str {
    if let Some(name) = text.strip_prefix(HEADS) {
        return name;
    }
    if is_hash(text) { &text[..7] } else { text }
}

fn is_hash(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Where the names point.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GitNames(BTreeMap<String, String>);

impl GitNames {
    /// Of the working tree that a folder is in; `None` if there is none, or it can't be told.
    fn of(root: &Path) -> Option<Self> {
        let git = GitFolder::of(root)?;
        // Names that aren't files can't be read without git.
        if git.common.join("reftable").symlink_metadata().is_ok() {
            return None;
        }
        let mut names = BTreeMap::new();
        if let Some(packed) = text(&git.common.join("packed-refs")) {
            let refs = packed.lines().filter_map(|line| line.split_once(' '));
            names.extend(refs.filter(|(hash, name)| is_hash(hash) && is_followed(name)).map(owned));
        }
        for folder in git.folders_of_refs() {
            for entry in folder.read_dir().into_iter().flatten().flatten() {
                let path = entry.path();
                let name = path.strip_prefix(&git.common).ok().and_then(Path::to_str).filter(|name| is_followed(name));
                if let (Some(name), Some(hash)) = (name, text(&path).filter(|hash| is_hash(hash))) {
                    names.insert(name.to_owned(), hash);
                }
                if names.len() > MOST {
                    return None;
                }
            }
        }
        let head = text(&git.directory.join(HEAD))?;
        names.insert(HEAD.to_owned(), head.strip_prefix("ref: ").unwrap_or(&head).to_owned());
        Some(Self(names))
    }

    /// How they moved since `before`.
    fn since(&self, before: &Self) -> Vec<GitMove> {
        let names = before.0.keys().chain(self.0.keys().filter(|name| !before.0.contains_key(*name)));
        let moves = names.map(|name| {
            let (old, new) = (before.0.get(name).cloned(), self.0.get(name).cloned());
            GitMove { name: name.clone(), old, new }
        });
        moves.filter(|one| one.old != one.new).collect()
    }
}

fn owned((hash, name): (&str, &str)) -> (String, String) {
    (name.to_owned(), hash.to_owned())
}

fn is_followed(name: &str) -> bool {
    let is_plain = !name.ends_with(".lock") && !name.chars().any(char::is_control);
    is_plain && (name.starts_with(HEADS) || name.starts_with(TAGS) || name == STASH)
}

fn text(path: &Path) -> Option<String> {
    Some(String::from_utf8(read(path)?).ok()?.trim_ascii().to_owned())
}

impl Workspace {
    /// How git's names moved since the last checkpoint of this folder, and where they point now. What was seen last may be
    /// unknown: then nothing has moved.
    pub(crate) fn git_moves(&self) -> (Vec<GitMove>, Option<GitNames>) {
        let Some(now) = GitNames::of(&self.0.root) else { return (Vec::new(), None) };
        let seen = self.0.state.read(SEEN).ok().flatten();
        let hashing = self.store().hashing();
        let seen = match hashing.is_keyed() {
            true => seen.and_then(|sealed| hashing.open_beside(SEEN, sealed.into())),
            false => seen.map(Into::into),
        };
        let before = seen.and_then(|text| from_value::<GitNames>(from_json(&text).ok()?).ok());
        let moves = before.as_ref().map(|before| now.since(before)).unwrap_or_default();
        let is_new = before.as_ref() != Some(&now);
        (moves, Some(now).filter(|_| is_new))
    }

    /// Remembers where git's names pointed at a checkpoint. If that can't be written, the next one tells of the moves again.
    pub(crate) fn git_seen(&self, names: &GitNames) {
        let text = to_value(names).ok().and_then(|value| to_json(&value).ok()).map(|json| json.to_string());
        if let Some(text) = text {
            let sealed = self.store().hashing().seal_beside(SEEN, &[text.as_bytes()]);
            let _ = self.0.state.write(SEEN, &[sealed.as_deref().unwrap_or(text.as_bytes())], false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pairs: &[(&str, &str)]) -> GitNames {
        GitNames(pairs.iter().map(|(name, to)| ((*name).to_owned(), (*to).to_owned())).collect())
    }

    #[test]
    fn moves_are_told_in_words_with_the_command_that_puts_them_back() {
        let (old, new) = ("bd85c96".repeat(6)[..40].to_owned(), "a".repeat(40));
        let before = names(&[("HEAD", "refs/heads/master"), ("refs/heads/master", &old), (STASH, &old)]);
        let after = names(&[("HEAD", "refs/heads/agent-branch"), ("refs/heads/agent-branch", &new)]);
        let moves = after.since(&before);
        let words: Vec<_> = moves.iter().map(GitMove::words).collect();
        let expected = [
            "HEAD master → agent-branch",
            "master deleted, was bd85c96",
            "stash deleted, was bd85c96",
            "agent-branch created at aaaaaaa",
        ];
        assert_eq!(words, expected);
        let back: Vec<_> = moves.iter().filter_map(GitMove::put_back).map(|words| words.join(" ")).collect();
        let expected = [
            "git symbolic-ref HEAD refs/heads/master".to_owned(),
            format!("git update-ref refs/heads/master {old}"),
            format!("git stash store {old}"),
        ];
        assert_eq!(back, expected);
        assert!(GitMove::together(moves.into_iter().chain(before.since(&after))).is_empty());
    }

    #[test]
    fn only_names_of_the_users_are_followed() {
        for (name, followed) in [
            ("refs/heads/a/b", true),
            ("refs/tags/v1", true),
            ("refs/stash", true),
            ("refs/remotes/origin/main", false),
            ("refs/heads/main.lock", false),
            ("refs/heads/a\nb", false),
        ] {
            assert_eq!(is_followed(name), followed, "{name}");
        }
    }
}
