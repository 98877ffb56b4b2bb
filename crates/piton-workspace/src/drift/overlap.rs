//! How much the two sides are in each other's way: by files first, and only for files that both changed by lines
//! (D2).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use serde::{Deserialize, Serialize};

use super::git::pieces;
use super::repository::{Mirror, Repository};
use super::{DriftError, DriftSeverity};
use crate::merge::{MergeOptions, merge};

/// The largest file whose lines are compared.
const COMPARED: u64 = 16 << 20;

/// The mode of a link, and of a repository inside another.
const LINK: &str = "120000";
const SUBMODULE: &str = "160000";

/// A file that both sides changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contested {
    /// Which, from the top of the repository.
    pub path: String,
    /// Whether the same lines are concerned.
    pub severity: DriftSeverity,
    /// In words.
    pub why: String,
}

/// A change as git's raw form has it.
#[derive(Debug, Clone)]
struct Raw {
    old_mode: String,
    new_mode: String,
    old: String,
    new: String,
    /// The name before, and the name after.
    from: Vec<u8>,
    to: Vec<u8>,
}

/// `git diff-tree --raw -z`, read.
fn parse_raw(list: &[u8]) -> Vec<Raw> {
    let mut found = Vec::new();
    let mut pieces = pieces(list);
    while let Some(about) = pieces.next() {
        let about = String::from_utf8_lossy(about).into_owned();
        let [old_mode, new_mode, old, new, status] = about.trim_start_matches(':').split(' ').collect::<Vec<_>>()[..]
        else {
            continue;
        };
        let Some(from) = pieces.next().map(<[u8]>::to_vec) else { break };
        let renamed = status.starts_with(['R', 'C']);
        let to = if renamed { pieces.next().map(<[u8]>::to_vec).unwrap_or_default() } else { from.clone() };
        let [old_mode, new_mode, old, new] = [old_mode, new_mode, old, new].map(str::to_owned);
        found.push(Raw { old_mode, new_mode, old, new, from, to });
    }
    found
}

fn is_none(id: &str) -> bool {
    id.bytes().all(|byte| byte == b'0')
}

/// Files that differ from what is committed: in the index, on disk, or not known to git at all.
pub(super) fn uncommitted(repository: &Repository) -> Result<BTreeSet<Vec<u8>>, DriftError> {
    let git = &repository.git;
    let mut changed: BTreeSet<Vec<u8>> = BTreeSet::new();
    let touched =
        parse_raw(&git.ask(["diff-files", "-z", "--raw", "--no-renames", "--ignore-submodules=dirty"])?.stdout);
    // A file may only have been touched. Names with a line feed can't be asked about, and count as changed.
    let (asked, odd): (Vec<Raw>, Vec<Raw>) = touched
        .into_iter()
        .partition(|raw| raw.new_mode.starts_with("100") && raw.old_mode == raw.new_mode && !raw.from.contains(&b'\n'));
    changed.extend(odd.into_iter().map(|raw| raw.from));
    if !asked.is_empty() {
        let names = asked.iter().flat_map(|raw| [&raw.from[..], b"\n"]).collect::<Vec<_>>().concat();
        let limit = std::time::Duration::from_secs(120);
        match git.ask_with(["hash-object", "--no-filters", "--stdin-paths"], &names, limit) {
            Ok(said) => {
                let text = said.text();
                let differing = asked.iter().zip(text.lines()).filter(|(raw, hash)| raw.old != **hash);
                changed.extend(differing.map(|(raw, _)| raw.from.clone()));
            }
            // One of them is gone, or can't be read.
            Err(DriftError::Git { .. }) => changed.extend(asked.into_iter().map(|raw| raw.from)),
            Err(error) => return Err(error),
        }
    }
    if repository.head.is_some() {
        let staged = git.ask(["diff-index", "-z", "--cached", "--name-only", "--no-renames", "HEAD"])?;
        changed.extend(pieces(&staged.stdout).map(<[u8]>::to_vec));
    }
    let new = git.ask(["ls-files", "-z", "--others", "--exclude-standard"])?;
    changed.extend(pieces(&new.stdout).map(<[u8]>::to_vec));
    Ok(changed)
}

/// What was found, and how many files were read for it.
pub(super) struct Overlap {
    pub(super) contested: Vec<Contested>,
    pub(super) compared: usize,
}

/// Compares what was changed here since `base`, committed or not, with what `upstream` changed since.
pub(super) fn overlap(
    repository: &Repository,
    mirror: &Mirror,
    base: &str,
    upstream: &str,
    uncommitted: &BTreeSet<Vec<u8>>,
) -> Result<Overlap, DriftError> {
    let tree = |from: &str, to: &str| {
        mirror.git.ask(["diff-tree", "-r", "-z", "-M", "--raw", from, to]).map(|said| parse_raw(&said.stdout))
    };
    let theirs = tree(base, upstream)?;
    let mut ours: BTreeMap<Vec<u8>, Option<Raw>> = uncommitted.iter().map(|path| (path.clone(), None)).collect();
    if let Some(head) = &repository.head {
        for raw in tree(base, head)? {
            ours.insert(raw.from.clone(), Some(raw.clone()));
            ours.insert(raw.to.clone(), Some(raw));
        }
    }
    let (mut contested, mut compared) = (Vec::new(), 0);
    for raw in &theirs {
        let Some(path) = [&raw.from, &raw.to].into_iter().find(|path| ours.contains_key(*path)) else { continue };
        let (severity, why) = judge(repository, mirror, raw, path, &mut compared)?;
        let path = String::from_utf8_lossy(path).into_owned();
        contested.push(Contested { path, severity, why: why.to_owned() });
    }
    Ok(Overlap { contested, compared })
}

/// Whether both changed the same lines of a file.
fn judge(
    repository: &Repository,
    mirror: &Mirror,
    raw: &Raw,
    path: &[u8],
    compared: &mut usize,
) -> Result<(DriftSeverity, &'static str), DriftError> {
    use DriftSeverity::{High, Medium};
    if [&raw.old_mode, &raw.new_mode].into_iter().any(|mode| mode == LINK || mode == SUBMODULE) {
        return Ok((High, "both changed it, and it is no plain file"));
    }
    // Where we renamed it, our version is under another name; git's own merge would find it, a person can too.
    let here = match read_here(repository, path) {
        Ok(here) => here,
        Err(why) => return Ok((High, why)),
    };
    let Some(here) = here else {
        return Ok(if is_none(&raw.new) {
            (Medium, "both deleted it")
        } else {
            (High, "it was deleted here and changed upstream")
        });
    };
    if is_none(&raw.new) {
        return Ok((High, "it was changed here and deleted upstream"));
    }
    let blob = |id: &str| -> Result<Vec<u8>, DriftError> {
        if is_none(id) {
            return Ok(Vec::new());
        }
        Ok(mirror.git.ask(["cat-file", "blob", id])?.stdout)
    };
    let large = |id: &str| -> Result<bool, DriftError> {
        let size =
            if is_none(id) { 0 } else { mirror.git.ask(["cat-file", "-s", id])?.text().parse().unwrap_or(u64::MAX) };
        Ok(size > COMPARED)
    };
    if large(&raw.old)? || large(&raw.new)? {
        return Ok((High, "both changed it, and it is too large to compare"));
    }
    *compared += 1;
    let (base, theirs) = (blob(&raw.old)?, blob(&raw.new)?);
    let here = as_committed(here, &base, &theirs);
    if here == theirs {
        return Ok((Medium, "both changed it to the same"));
    }
    Ok(match merge(&base, &here, &theirs, &MergeOptions::default()) {
        Ok(merged) if merged.conflicts == 0 => (Medium, "both changed it, in different places"),
        Ok(_) => (High, "both changed the same lines"),
        Err(_) => (High, "both changed it, and it is no text"),
    })
}

/// Line ends may be others on disk than in a commit.
fn as_committed(here: Vec<u8>, base: &[u8], theirs: &[u8]) -> Vec<u8> {
    let crlf = |text: &[u8]| text.windows(2).any(|pair| pair == b"\r\n");
    if !crlf(&here) || crlf(base) || crlf(theirs) {
        return here;
    }
    let mut out = Vec::with_capacity(here.len());
    for (at, byte) in here.iter().enumerate() {
        if !(*byte == b'\r' && here.get(at + 1) == Some(&b'\n')) {
            out.push(*byte);
        }
    }
    out
}

/// A file of the working tree; `None` if it isn't there. No link on the way is followed.
fn read_here(repository: &Repository, path: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    use crate::system;
    const ODD: &str = "both changed it, and it can't be read here";
    let path = crate::RelPath::new(path).map_err(|_| ODD)?;
    let (parent, entry) = path.split().ok_or(ODD)?;
    let opened = system::open_root(&repository.top)
        .and_then(|root| system::open_below(root, &parent))
        .and_then(|folder| system::open_file(folder, entry));
    let file = match opened {
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        other => other.map_err(|_| ODD)?,
    };
    let stat = system::stat_of(&file).map_err(|_| ODD)?;
    if !crate::cache::is_file(&stat) {
        return Err("both changed it, and it is no plain file here");
    }
    if stat.size > COMPARED {
        return Err("both changed it, and it is too large to compare");
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file).read_to_end(&mut bytes).map_err(|_| ODD)?;
    Ok(Some(bytes))
}
