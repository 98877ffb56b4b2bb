//! Merging two versions of a text that began as one (W11).
//!
//! The lines are compared by imara-diff, with the algorithm and the sliding rules of git; what follows from the two
//! comparisons is decided here as git decides it, so that a merge of ours and one of `git merge-file` come to the
//! same text. Bytes are bytes: what isn't UTF-8, has other line ends or no line end at all is carried through as it
//! is.

mod chunk;
mod render;

use chunk::{Lines, chunks};

use crate::text_diff::is_binary;

/// The most bytes of one version; git has the same limit.
pub const MAX_MERGE: usize = 1 << 30;

/// How many signs a marker has.
const MARKER: usize = 7;

/// How conflicts are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConflictStyle {
    /// Both sides.
    #[default]
    Merge,
    /// Both sides, and what was there before them.
    Diff3,
    /// As `Diff3`, with lines that both sides begin or end with taken out of the conflict.
    Zdiff3,
}

/// Which side wins where both changed the same lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Favour {
    /// The first.
    Ours,
    /// The second.
    Theirs,
    /// Both, one after the other.
    Union,
}

/// How texts are merged.
#[derive(Debug, Clone)]
pub struct MergeOptions {
    /// How conflicts are shown.
    pub style: ConflictStyle,
    /// Which side wins; without one, conflicts are marked.
    pub favour: Option<Favour>,
    /// How many signs a marker has.
    pub marker_size: usize,
    /// What the markers call our version; nothing if empty.
    pub ours: Vec<u8>,
    /// What they call the version before.
    pub base: Vec<u8>,
    /// What they call their version.
    pub theirs: Vec<u8>,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self {
            style: ConflictStyle::default(),
            favour: None,
            marker_size: MARKER,
            ours: b"ours".to_vec(),
            base: b"base".to_vec(),
            theirs: b"theirs".to_vec(),
        }
    }
}

/// Two versions in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The text, with markers where there are conflicts.
    pub text: Vec<u8>,
    /// How many places are marked.
    pub conflicts: usize,
}

/// Why texts can't be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unmergeable {
    /// They aren't texts.
    #[error("binary files can't be merged")]
    Binary,
    /// They are too large.
    #[error("files of more than 1 GiB aren't merged")]
    TooLarge,
}

/// Merges what `ours` and `theirs` made of `base`.
pub fn merge(base: &[u8], ours: &[u8], theirs: &[u8], options: &MergeOptions) -> Result<Merged, Unmergeable> {
    let versions = [base, ours, theirs];
    if versions.iter().any(|text| text.len() > MAX_MERGE) {
        return Err(Unmergeable::TooLarge);
    }
    if versions.iter().any(|text| is_binary(text)) {
        return Err(Unmergeable::Binary);
    }
    if ours == theirs || theirs == base {
        return Ok(Merged { text: ours.to_vec(), conflicts: 0 });
    }
    if ours == base {
        return Ok(Merged { text: theirs.to_vec(), conflicts: 0 });
    }
    let lines = Lines::new(base, ours, theirs);
    let chunks = chunks(&lines, options.style);
    Ok(render::render(&lines, &chunks, options))
}

/// Both in one, if they touch different places.
pub fn merge_clean(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    match merge(base, ours, theirs, &MergeOptions::default()) {
        Ok(Merged { text, conflicts: 0 }) => Some(text),
        _ => None,
    }
}

/// Whether a text has lines that look as the markers of a conflict do.
pub fn has_markers(text: &[u8]) -> bool {
    let starts = |line: &[u8], sign: u8| {
        line.len() >= MARKER && line[..MARKER].iter().all(|byte| *byte == sign) && line.get(MARKER) != Some(&sign)
    };
    let lines = || text.split(|byte| *byte == b'\n');
    lines().any(|line| starts(line, b'<')) || lines().any(|line| starts(line, b'>'))
}
