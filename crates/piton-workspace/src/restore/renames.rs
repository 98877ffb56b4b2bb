//! Files that have another name now: found in what changed between two snapshots, so that what was done under the
//! one name can be carried over to the other.
//!
//! A file that is gone and one that is new are the same if their contents are; else if they are small enough to be
//! looked at and have at least half of their lines in common, as git has it. A name that was used before or is used
//! again belongs to two files, and is left alone.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use piton_types::BlobId;

use super::plan::Step;
use crate::tree::{Content, Entry};
use crate::{RelPath, WorkspaceError};

/// The largest file that is looked at for being alike.
const LOOKED_AT: u64 = 256 << 10;

/// The most files on either side that are looked at for being alike.
const CANDIDATES: usize = 32;

/// A file that was renamed, once or several times.
pub(super) struct Renamed {
    pub(super) from: RelPath,
    /// The names that it was given, and in which interval each.
    pub(super) to: Vec<(usize, RelPath)>,
    /// Its whole life, under all of its names.
    pub(super) life: Vec<Step>,
}

impl Renamed {
    /// Every name that it had.
    pub(super) fn names(&self) -> impl Iterator<Item = &RelPath> {
        std::iter::once(&self.from).chain(self.to.iter().map(|(_, to)| to))
    }
}

type Lives = BTreeMap<RelPath, Vec<Step>>;
type Get<'a> = &'a dyn Fn(BlobId) -> Result<Bytes, WorkspaceError>;

/// The files that were renamed.
pub(super) fn renames(lives: &Lives, get: Get<'_>) -> Result<Vec<Renamed>, WorkspaceError> {
    // By interval: what ended there and what began there.
    let mut ended: BTreeMap<usize, Vec<&RelPath>> = BTreeMap::new();
    let mut begun: BTreeMap<usize, Vec<&RelPath>> = BTreeMap::new();
    for (path, life) in lives {
        let (Some(first), Some(last)) = (life.first(), life.last()) else { continue };
        if let (Some(Entry::File { .. }), None) = (&last.old, &last.new) {
            ended.entry(last.at).or_default().push(path);
        }
        if let (None, Some(Entry::File { .. })) = (&first.old, &first.new) {
            begun.entry(first.at).or_default().push(path);
        }
    }
    // By the name that they have so far: intervals come in their order, so a name that is given up was given before.
    let mut found: BTreeMap<RelPath, Renamed> = BTreeMap::new();
    for (at, gone) in ended {
        let Some(new) = begun.get(&at) else { continue };
        for (from, to) in pair(lives, &gone, new, get)? {
            let mut renamed = found.remove(from).unwrap_or_else(|| Renamed {
                from: from.clone(),
                to: Vec::new(),
                life: lives[from].clone(),
            });
            let (life, after) = (&mut renamed.life, &lives[to]);
            let Some(end) = life.pop() else { continue };
            // One step that ends under the one name and begins under the other.
            life.push(Step { at, fate: end.fate, old: end.old, new: after[0].new.clone() });
            life.extend(after[1..].iter().cloned());
            renamed.to.push((at, to.clone()));
            found.insert(to.clone(), renamed);
        }
    }
    Ok(found.into_values().collect())
}

fn file(entry: Option<&Entry>) -> Option<(Content, u64)> {
    match entry {
        Some(Entry::File { size, content, .. }) if *size > 0 => Some((*content, *size)),
        _ => None,
    }
}

fn pair<'a>(
    lives: &Lives,
    gone: &[&'a RelPath],
    new: &[&'a RelPath],
    get: Get<'_>,
) -> Result<Vec<(&'a RelPath, &'a RelPath)>, WorkspaceError> {
    let before = |path: &RelPath| file(lives[path].last().and_then(|step| step.old.as_ref()));
    let after = |path: &RelPath| file(lives[path].first().and_then(|step| step.new.as_ref()));
    let mut by_content: HashMap<(BlobId, u64), Vec<&RelPath>> = HashMap::new();
    for path in gone.iter().rev() {
        if let Some((content, size)) = before(path) {
            by_content.entry((content.id(), size)).or_default().push(path);
        }
    }
    let (mut pairs, mut open) = (Vec::new(), Vec::new());
    for &path in new {
        let Some((content, size)) = after(path) else { continue };
        match by_content.get_mut(&(content.id(), size)).and_then(Vec::pop) {
            Some(from) => pairs.push((from, path)),
            None => open.push((path, content, size)),
        }
    }
    let paired: Vec<&RelPath> = pairs.iter().map(|(from, _)| *from).collect();
    let rest: Vec<&&RelPath> = gone.iter().filter(|path| !paired.contains(path)).collect();
    if rest.len() > CANDIDATES || open.len() > CANDIDATES {
        return Ok(pairs);
    }
    let text = |(content, size): (Content, u64)| -> Result<Option<Bytes>, WorkspaceError> {
        match content {
            Content::Whole(id) if size <= LOOKED_AT => get(id).map(Some),
            _ => Ok(None),
        }
    };
    let mut rest: Vec<(&RelPath, Bytes)> = rest
        .into_iter()
        .filter_map(|path| Some((*path, before(path)?)))
        .map(|(path, file)| Ok(text(file)?.map(|text| (path, text))))
        .filter_map(Result::transpose)
        .collect::<Result<_, WorkspaceError>>()?;
    for (path, content, size) in open {
        let Some(new) = text((content, size))? else { continue };
        let best = rest.iter().enumerate().map(|(at, (_, old))| (likeness(old, &new), at)).max();
        if let Some((likeness, at)) = best.filter(|(likeness, _)| *likeness >= 50) {
            debug_assert!(likeness <= 100);
            pairs.push((rest.swap_remove(at).0, path));
        }
    }
    Ok(pairs)
}

/// How much of the larger text is in both, by lines, in percent.
fn likeness(a: &[u8], b: &[u8]) -> usize {
    let lines = |text: &[u8]| text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let mut left: HashMap<Vec<u8>, usize> = HashMap::new();
    for line in lines(a) {
        *left.entry(line).or_default() += 1;
    }
    let mut shared = 0;
    for line in lines(b) {
        if let Some(count) = left.get_mut(&line).filter(|count| **count > 0) {
            *count -= 1;
            shared += line.len();
        }
    }
    shared * 100 / a.len().max(b.len()).max(1)
}
