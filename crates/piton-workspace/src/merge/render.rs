//! The merged text: our lines, with their changes put in and conflicts marked in the usual form.

use super::chunk::{By, Chunk, Lines};
use super::{ConflictStyle, Favour, MergeOptions, Merged};

/// Writes the merged text.
pub(super) fn render(lines: &Lines<'_>, chunks: &[Chunk], options: &MergeOptions) -> Merged {
    let mut out = Writer { text: Vec::with_capacity(lines.ours.iter().map(|line| line.len()).sum()) };
    let (mut next, mut conflicts) = (0, 0);
    for chunk in chunks {
        out.lines(&lines.ours[next..chunk.ours.start]);
        next = chunk.ours.end;
        let (ours, theirs) = (&lines.ours[chunk.ours.clone()], &lines.theirs[chunk.theirs.clone()]);
        match (chunk.by, options.favour) {
            (By::Us | By::BothAlike, _) | (By::Both, Some(Favour::Ours)) => out.lines(ours),
            (By::Them, _) | (By::Both, Some(Favour::Theirs)) => out.lines(theirs),
            (By::Both, Some(Favour::Union)) => {
                out.whole_lines(ours, end_of_line(lines, chunk));
                out.lines(theirs);
            }
            (By::Both, None) => {
                conflicts += 1;
                let end = end_of_line(lines, chunk);
                out.marker(b'<', &options.ours, options.marker_size, end);
                out.whole_lines(ours, end);
                if options.style != ConflictStyle::Merge {
                    out.marker(b'|', &options.base, options.marker_size, end);
                    out.whole_lines(&lines.base[chunk.base.clone()], end);
                }
                out.marker(b'=', b"", options.marker_size, end);
                out.whole_lines(theirs, end);
                out.marker(b'>', &options.theirs, options.marker_size, end);
            }
        }
    }
    out.lines(&lines.ours[next..]);
    Merged { text: out.text, conflicts }
}

struct Writer {
    text: Vec<u8>,
}

impl Writer {
    fn lines(&mut self, lines: &[&[u8]]) {
        lines.iter().for_each(|line| self.text.extend_from_slice(line));
    }

    /// With an end behind the last one, since something follows.
    fn whole_lines(&mut self, lines: &[&[u8]], end: &[u8]) {
        self.lines(lines);
        if lines.last().is_some_and(|last| !last.ends_with(b"\n")) {
            self.text.extend_from_slice(end);
        }
    }

    fn marker(&mut self, sign: u8, label: &[u8], size: usize, end: &[u8]) {
        self.text.extend(std::iter::repeat_n(sign, size));
        if !label.is_empty() {
            self.text.push(b' ');
            self.text.extend_from_slice(label);
        }
        self.text.extend_from_slice(end);
    }
}

/// How lines end around a conflict: with `\r\n` only if the version before begins so and neither side speaks
/// against it.
fn end_of_line(lines: &Lines<'_>, chunk: &Chunk) -> &'static [u8] {
    let ours = is_crlf(&lines.ours, chunk.ours.start.saturating_sub(1));
    let theirs = is_crlf(&lines.theirs, chunk.theirs.start.saturating_sub(1));
    let crlf = ours != Some(false) && theirs != Some(false) && is_crlf(&lines.base, 0) == Some(true);
    if crlf { b"\r\n" } else { b"\n" }
}

/// Whether the line at `at` ends with `\r\n`; if it has no end, the one before it tells.
fn is_crlf(lines: &[&[u8]], at: usize) -> Option<bool> {
    let line = lines.get(at)?;
    match line.strip_suffix(b"\n") {
        Some(rest) => Some(rest.ends_with(b"\r")),
        None => lines.get(at.checked_sub(1)?).map(|before| before.ends_with(b"\r\n")),
    }
}
