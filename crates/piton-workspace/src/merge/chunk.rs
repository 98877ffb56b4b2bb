//! Where two versions of a text differ from the one before, and which of these places are in each other's way.
//!
//! As in git: changes that touch or overlap are one conflict, unless both sides did just the same. A conflict is then
//! made as small as it can be (lines on which both sides agree are taken out), and conflicts with no more than three
//! lines, or no letter or digit, between them are joined again, since they read better so.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput, NoSliderHeuristic, Token};

use super::ConflictStyle;

/// Conflicts with at most so many lines between them are shown as one.
const JOINED: usize = 3;

/// Three versions, cut into lines. Lines keep their ends.
pub(crate) struct Lines<'a> {
    pub(super) base: Vec<&'a [u8]>,
    pub(super) ours: Vec<&'a [u8]>,
    pub(super) theirs: Vec<&'a [u8]>,
    /// The same lines as numbers: equal lines have equal ones.
    base_tokens: Vec<Token>,
    our_tokens: Vec<Token>,
    their_tokens: Vec<Token>,
    /// How many different lines there are.
    distinct: u32,
}

/// A place where the versions differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Who changed it.
    pub(crate) by: By,
    /// The lines before.
    pub(crate) base: Range<usize>,
    /// Our lines.
    pub(crate) ours: Range<usize>,
    /// Their lines.
    pub(crate) theirs: Range<usize>,
}

/// Who changed a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// We alone.
    Us,
    /// They alone.
    Them,
    /// Both, to the same.
    BothAlike,
    /// Both, differently.
    Both,
}

/// A change from one version to another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    before: Range<usize>,
    after: Range<usize>,
}

impl<'a> Lines<'a> {
    /// Cuts three versions into lines.
    pub(crate) fn new(base: &'a [u8], ours: &'a [u8], theirs: &'a [u8]) -> Self {
        let cut = |text: &'a [u8]| text.split_inclusive(|byte| *byte == b'\n').collect::<Vec<_>>();
        let (base, ours, theirs) = (cut(base), cut(ours), cut(theirs));
        let mut input: InternedInput<&[u8]> = InternedInput::default();
        let most = base.len().max(ours.len()).max(theirs.len());
        input.reserve(u32::try_from(base.len()).unwrap_or(u32::MAX), u32::try_from(most).unwrap_or(u32::MAX));
        input.update_before(base.iter().copied());
        input.update_after(ours.iter().copied());
        let our_tokens = std::mem::take(&mut input.after);
        input.update_after(theirs.iter().copied());
        let distinct = input.interner.num_tokens();
        Self { base, ours, theirs, base_tokens: input.before, our_tokens, their_tokens: input.after, distinct }
    }

    fn changes(&self, before: &[Token], after: &[Token]) -> Vec<Change> {
        let mut diff = Diff::default();
        diff.compute_with(Algorithm::Myers, before, after, self.distinct);
        diff.postprocess_with(before, after, NoSliderHeuristic);
        let range = |range: Range<u32>| range.start as usize..range.end as usize;
        diff.hunks().map(|hunk| Change { before: range(hunk.before), after: range(hunk.after) }).collect()
    }
}

/// Everything that differs, in order.
pub(super) fn chunks(lines: &Lines<'_>, style: ConflictStyle) -> Vec<Chunk> {
    let ours = lines.changes(&lines.base_tokens, &lines.our_tokens);
    let theirs = lines.changes(&lines.base_tokens, &lines.their_tokens);
    let all = side_by_side(lines, &ours, &theirs);
    match style {
        ConflictStyle::Merge => join(lines, all.into_iter().flat_map(|chunk| refine(lines, chunk)).collect()),
        ConflictStyle::Diff3 => all,
        ConflictStyle::Zdiff3 => all.into_iter().map(|chunk| trim(lines, chunk)).collect(),
    }
}

/// Lays the changes of both sides along the version before.
fn side_by_side(lines: &Lines<'_>, ours: &[Change], theirs: &[Change]) -> Vec<Chunk> {
    let mut found = Vec::new();
    let (mut us, mut them) = (ours.iter().peekable(), theirs.iter().peekable());
    // By how much a line of the version before is further on in ours and theirs, behind the last change.
    let (mut our_shift, mut their_shift) = (0_isize, 0_isize);
    let moved = |at: usize, by: isize| at.saturating_add_signed(by);
    let shift = |change: &Change| change.after.end.cast_signed() - change.before.end.cast_signed();
    loop {
        match (us.peek().copied(), them.peek().copied()) {
            (None, None) => return found,
            // A change that ends before the other side's begins, with a line between them, doesn't touch it.
            (Some(mine), other) if other.is_none_or(|other| mine.before.end < other.before.start) => {
                let theirs = moved(mine.before.start, their_shift)..moved(mine.before.end, their_shift);
                let (base, ours) = (mine.before.clone(), mine.after.clone());
                append(&mut found, Chunk { by: By::Us, base, ours, theirs });
                our_shift = shift(mine);
                us.next();
            }
            (other, Some(its)) if other.is_none_or(|other| its.before.end < other.before.start) => {
                let ours = moved(its.before.start, our_shift)..moved(its.before.end, our_shift);
                let (base, theirs) = (its.before.clone(), its.after.clone());
                append(&mut found, Chunk { by: By::Them, base, ours, theirs });
                their_shift = shift(its);
                them.next();
            }
            (Some(mine), Some(its)) => {
                let alike = mine.before == its.before
                    && lines.our_tokens[mine.after.clone()] == lines.their_tokens[its.after.clone()];
                if !alike {
                    let start = mine.before.start.min(its.before.start);
                    let end = mine.before.end.max(its.before.end);
                    // A start that lies before the place before is only joined with it.
                    let widened = |change: &Change| {
                        change.after.start.saturating_sub(change.before.start - start)
                            ..change.after.end + (end - change.before.end)
                    };
                    append(
                        &mut found,
                        Chunk { by: By::Both, base: start..end, ours: widened(mine), theirs: widened(its) },
                    );
                }
                let (my_end, its_end) = (mine.before.end, its.before.end);
                if my_end >= its_end {
                    their_shift = shift(its);
                    them.next();
                }
                if its_end >= my_end {
                    our_shift = shift(mine);
                    us.next();
                }
            }
            (None, Some(_)) | (Some(_), None) => return found,
        }
    }
}

/// Adds a place, to the one before if they touch.
fn append(found: &mut Vec<Chunk>, chunk: Chunk) {
    match found.last_mut() {
        Some(last) if chunk.ours.start <= last.ours.end || chunk.theirs.start <= last.theirs.end => {
            if last.by != chunk.by {
                last.by = By::Both;
            }
            last.base.end = chunk.base.end;
            last.ours.end = chunk.ours.end;
            last.theirs.end = chunk.theirs.end;
        }
        _ => found.push(chunk),
    }
}

/// Makes a conflict as small as it can be: it falls apart into the places where the sides really differ.
fn refine(lines: &Lines<'_>, chunk: Chunk) -> Vec<Chunk> {
    if chunk.by != By::Both || chunk.ours.is_empty() || chunk.theirs.is_empty() {
        return vec![chunk];
    }
    let changes = lines.changes(&lines.our_tokens[chunk.ours.clone()], &lines.their_tokens[chunk.theirs.clone()]);
    if changes.is_empty() {
        return vec![Chunk { by: By::BothAlike, ..chunk }];
    }
    let within = |range: &Range<usize>, start: usize| range.start + start..range.end + start;
    changes
        .iter()
        .map(|change| Chunk {
            by: By::Both,
            base: chunk.base.clone(),
            ours: within(&change.before, chunk.ours.start),
            theirs: within(&change.after, chunk.theirs.start),
        })
        .collect()
}

/// Takes lines that both sides begin or end with out of a conflict.
fn trim(lines: &Lines<'_>, mut chunk: Chunk) -> Chunk {
    if chunk.by != By::Both {
        return chunk;
    }
    let (ours, theirs) = (&lines.our_tokens[chunk.ours.clone()], &lines.their_tokens[chunk.theirs.clone()]);
    let before = ours.iter().zip(theirs).take_while(|(ours, theirs)| ours == theirs).count();
    let rest = ours.len().min(theirs.len()) - before;
    let after = ours.iter().rev().zip(theirs.iter().rev()).take(rest).take_while(|(ours, theirs)| ours == theirs);
    let after = after.count();
    if before == ours.len() && before == theirs.len() {
        return Chunk { by: By::BothAlike, ..chunk };
    }
    chunk.ours = chunk.ours.start + before..chunk.ours.end - after;
    chunk.theirs = chunk.theirs.start + before..chunk.theirs.end - after;
    chunk
}

/// Joins conflicts that are close to each other.
fn join(lines: &Lines<'_>, all: Vec<Chunk>) -> Vec<Chunk> {
    let mut joined: Vec<Chunk> = Vec::with_capacity(all.len());
    for chunk in all {
        match joined.last_mut() {
            Some(last) if last.by == By::Both && chunk.by == By::Both => {
                let between = &lines.ours[last.ours.end..chunk.ours.start];
                let says_something = |line: &&[u8]| line.iter().any(u8::is_ascii_alphanumeric);
                if between.len() > JOINED && between.iter().any(says_something) {
                    joined.push(chunk);
                } else {
                    last.base.end = last.base.end.max(chunk.base.end);
                    last.ours.end = chunk.ours.end;
                    last.theirs.end = chunk.theirs.end;
                }
            }
            _ => joined.push(chunk),
        }
    }
    joined
}
