//! Texts of others, made to fit into lines of a terminal.

use piton_types::TokenUsage;
use unicode_width::UnicodeWidthChar as _;

use crate::output::clean;
use crate::view::amount;

/// How much of a text that is being made is kept: more than is ever shown.
const KEPT: usize = 4096;

/// The end of a text that is being made.
#[derive(Debug, Default)]
pub(super) struct Tail(String);

impl Tail {
    pub(super) fn push(&mut self, text: &str) {
        self.0.push_str(text);
        if self.0.len() > 2 * KEPT {
            let from = self.0.ceil_char_boundary(self.0.len() - KEPT);
            self.0.drain(..from);
        }
    }

    /// Its last lines, of at most `width` columns each.
    pub(super) fn lines(&self, width: usize, most: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for line in self.0.lines().rev().filter(|line| !line.trim().is_empty()) {
            if lines.len() >= most || width == 0 {
                break;
            }
            let mut pieces = wrapped(&clean(line), width);
            while let Some(piece) = pieces.pop().filter(|_| lines.len() < most) {
                lines.push(piece);
            }
        }
        lines.reverse();
        lines
    }
}

/// The text in pieces of at most `width` columns.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut pieces, mut piece, mut used, mut count) = (Vec::new(), String::new(), 0, 0);
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if used + columns > width && !piece.is_empty() {
            pieces.push(std::mem::take(&mut piece));
            (used, count) = (0, 0);
        }
        // Marks that take no room may be piled up without end.
        if columns <= width && (columns > 0 || count < 4 * width) {
            piece.push(c);
            used += columns;
            count += 1;
        }
    }
    pieces.push(piece);
    pieces
}

/// The text on one line of at most `width` columns.
pub(super) fn fit(text: &str, width: usize) -> String {
    // What doesn't fit anyway isn't looked at.
    let text: String = text.chars().take(4 * width + 1).collect();
    let text = clean(&text);
    let columns: usize = text.chars().map(|c| c.width().unwrap_or(0)).sum();
    let first = |width: usize| wrapped(&text, width).into_iter().next().unwrap_or_default();
    match (columns <= width, width) {
        (true, _) => first(width),
        (false, 0) => String::new(),
        (false, _) => first(width - 1) + "…",
    }
}

/// What something is called, how long it took, what it used, and where it is in the run.
pub(super) fn figures(name: &str, step: Option<&str>, took: &str, usage: TokenUsage) -> String {
    let mut text = format!("{name}  {took}");
    if usage.total() > 0 {
        text.push_str(&format!("  {} + {} tokens", usage.input, usage.output));
    }
    if usage.cost > 0.0 {
        text.push_str(&format!("  cost {}", amount(usage.cost)));
    }
    if let Some(step) = step.filter(|step| *step != name) {
        text.push_str(&format!("  {step}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_text_is_kept_and_its_last_lines_are_shown() {
        let mut tail = Tail::default();
        for number in 0..10_000 {
            tail.push(&format!("line {number}é\n"));
        }
        assert!(tail.0.len() <= 2 * KEPT);
        assert_eq!(tail.lines(20, 2), ["line 9998é", "line 9999é"]);
        tail.push("a long line that goes on");
        assert_eq!(tail.lines(10, 3), ["a long lin", "e that goe", "s on"]);
        assert!(tail.lines(10, 0).is_empty() && tail.lines(0, 3).is_empty());
    }

    #[test]
    fn what_is_too_wide_is_cut() {
        assert_eq!(fit("日本語", 6), "日本語");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 1), "…");
        assert_eq!(fit("a\nb", 9), "a\\nb");
        assert_eq!(fit("abc", 0), "");
    }
}
