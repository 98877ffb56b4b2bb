//! Differences between two texts, line by line (W3).

use std::fmt;

use imara_diff::{Algorithm, Diff, InternedInput};

use crate::WorkspaceError;

/// How many equal lines are shown around a change.
const CONTEXT: usize = 3;

/// What differs between two texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextDiff {
    /// Where they differ, in order.
    pub hunks: Vec<DiffHunk>,
}

/// A place where two texts differ, with some lines around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffHunk {
    /// The first line of it in the old text, counted from 1.
    pub old_start: usize,
    /// The first line of it in the new text, counted from 1.
    pub new_start: usize,
    /// Its lines.
    pub lines: Vec<DiffLine>,
}

/// A line of a hunk, with its end of line if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffLine {
    /// In both texts.
    Context(Vec<u8>),
    /// Only in the old text.
    Removed(Vec<u8>),
    /// Only in the new text.
    Added(Vec<u8>),
}

impl DiffLine {
    fn text(&self) -> &[u8] {
        match self {
            Self::Context(text) | Self::Removed(text) | Self::Added(text) => text,
        }
    }
}

/// Whether bytes are better not shown as text.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(8000)].contains(&0)
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

impl TextDiff {
    /// What differs between `old` and `new`.
    pub fn compute(old: &[u8], new: &[u8]) -> Self {
        let (old, new) = (lines(old), lines(new));
        let mut input = InternedInput::default();
        input.update_before(old.iter().copied());
        input.update_after(new.iter().copied());
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        let mut hunks: Vec<DiffHunk> = Vec::new();
        // How far the last hunk reaches, context included.
        let mut reached = (0, 0);
        for change in diff.hunks() {
            let range = |range: std::ops::Range<u32>| range.start as usize..range.end as usize;
            let (before, after) = (range(change.before.clone()), range(change.after.clone()));
            let start = before.start.saturating_sub(CONTEXT);
            let joins = !hunks.is_empty() && start <= reached.0;
            if !joins {
                if let Some(last) = hunks.last_mut() {
                    // The context after the hunk before.
                    let end = (reached.0).min(old.len());
                    last.close(&old, end);
                }
                let back = before.start - start;
                hunks.push(DiffHunk { old_start: start + 1, new_start: after.start - back + 1, lines: Vec::new() });
            }
            let hunk = hunks.last_mut().expect("one was pushed");
            hunk.close(&old, before.start);
            hunk.lines.extend(old[before.clone()].iter().map(|line| DiffLine::Removed(line.to_vec())));
            hunk.lines.extend(new[after].iter().map(|line| DiffLine::Added(line.to_vec())));
            reached = ((before.end + CONTEXT).min(old.len()), 0);
        }
        if let Some(last) = hunks.last_mut() {
            last.close(&old, reached.0);
        }
        Self { hunks }
    }

    /// The new text from the old one. Refuses a text that it wasn't computed from, as far as the lines that
    /// it knows tell: nothing is guessed or moved.
    pub fn apply(&self, old: &[u8]) -> Result<Vec<u8>, WorkspaceError> {
        let old = lines(old);
        let mut out = Vec::new();
        let mut next = 0;
        for (number, hunk) in self.hunks.iter().enumerate() {
            let misfit = |line: usize| WorkspaceError::DoesNotFit { hunk: number + 1, line: line + 1 };
            let start = hunk.old_start.checked_sub(1).filter(|start| (next..=old.len()).contains(start));
            let start = start.ok_or_else(|| misfit(next))?;
            old[next..start].iter().for_each(|line| out.extend_from_slice(line));
            next = start;
            for line in &hunk.lines {
                if let DiffLine::Context(text) | DiffLine::Removed(text) = line {
                    if old.get(next) != Some(&text.as_slice()) {
                        return Err(misfit(next));
                    }
                    next += 1;
                }
                if let DiffLine::Context(text) | DiffLine::Added(text) = line {
                    out.extend_from_slice(text);
                }
            }
        }
        // A line without its end can only be the last one.
        old[next..].iter().for_each(|line| out.extend_from_slice(line));
        Ok(out)
    }

    /// Lines added and removed.
    pub fn counts(&self) -> (usize, usize) {
        let lines = || self.hunks.iter().flat_map(|hunk| &hunk.lines);
        (
            lines().filter(|line| matches!(line, DiffLine::Added(_))).count(),
            lines().filter(|line| matches!(line, DiffLine::Removed(_))).count(),
        )
    }
}

impl DiffHunk {
    /// Adds the equal lines up to `end` of the old text.
    fn close(&mut self, old: &[&[u8]], end: usize) {
        let here = self.old_start - 1 + self.lines.iter().filter(|line| !matches!(line, DiffLine::Added(_))).count();
        if here < end {
            self.lines.extend(old[here..end].iter().map(|line| DiffLine::Context(line.to_vec())));
        }
    }

    /// How many lines of the old text it has.
    pub fn old_lines(&self) -> usize {
        self.lines.iter().filter(|line| !matches!(line, DiffLine::Added(_))).count()
    }

    /// How many lines of the new text it has.
    pub fn new_lines(&self) -> usize {
        self.lines.iter().filter(|line| !matches!(line, DiffLine::Removed(_))).count()
    }

    fn header(&self) -> String {
        // Where a side has no lines, the line before is named.
        let side = |start: usize, count: usize| match count {
            0 => format!("{},0", start - 1),
            1 => format!("{start}"),
            _ => format!("{start},{count}"),
        };
        format!("@@ -{} +{} @@", side(self.old_start, self.old_lines()), side(self.new_start, self.new_lines()))
    }
}

impl fmt::Display for TextDiff {
    /// The unified form, without names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for hunk in &self.hunks {
            writeln!(f, "{}", hunk.header())?;
            for line in &hunk.lines {
                let sign = match line {
                    DiffLine::Context(_) => ' ',
                    DiffLine::Removed(_) => '-',
                    DiffLine::Added(_) => '+',
                };
                let text = line.text();
                let shown = String::from_utf8_lossy(text.strip_suffix(b"\n").unwrap_or(text));
                writeln!(f, "{sign}{shown}")?;
                if !text.ends_with(b"\n") {
                    writeln!(f, "\\ No newline at end of file")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unified_text_is_what_others_read() {
        let old = b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n";
        let new = b"a\nB\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm";
        insta::assert_snapshot!(TextDiff::compute(old, new), @r"
        @@ -1,5 +1,5 @@
         a
        -b
        +B
         c
         d
         e
        @@ -10,3 +10,4 @@
         j
         k
         l
        +m
        \ No newline at end of file
        ");
        insta::assert_snapshot!(TextDiff::compute(b"", b"x\n"), @r"
        @@ -0,0 +1 @@
        +x
        ");
        insta::assert_snapshot!(TextDiff::compute(b"x\n", b""), @r"
        @@ -1 +0,0 @@
        -x
        ");
    }

    /// W3: what doesn't fit is refused and says where.
    #[test]
    fn a_difference_is_applied_only_where_it_fits() {
        let diff = TextDiff::compute(b"a\nb\nc\n", b"a\nX\nc\n");
        assert_eq!(diff.apply(b"a\nb\nc\n").unwrap(), b"a\nX\nc\n");
        for other in ["a\nz\nc\n", "b\nc\n", "", "a\nb\nc", "zero\na\nb\nc\n"] {
            assert!(diff.apply(other.as_bytes()).is_err(), "{other:?}");
        }
        assert_eq!(diff.counts(), (1, 1));
    }

    proptest! {
        #[test]
        fn any_difference_leads_from_the_old_to_the_new(
            old in proptest::collection::vec("[ab]{0,2}", 0..30),
            new in proptest::collection::vec("[ab]{0,2}", 0..30),
            ends in any::<(bool, bool)>(),
        ) {
            let text = |lines: &[String], end: bool| lines.join("\n") + if end { "\n" } else { "" };
            let (old, new) = (text(&old, ends.0), text(&new, ends.1));
            let diff = TextDiff::compute(old.as_bytes(), new.as_bytes());
            prop_assert_eq!(diff.apply(old.as_bytes()).unwrap(), new.as_bytes());
            prop_assert_eq!(diff.hunks.is_empty(), old == new);
        }
    }
}
