//! What the steps of a run are called: by the titles that a document gives its nodes, and what is inside a node as a part
//! of it, as in `Research: turn 2`.

use std::collections::HashMap;

/// The titles that were met.
#[derive(Debug, Default)]
pub(crate) struct Titles(HashMap<String, String>);

impl Titles {
    /// A step with a title has begun.
    pub(crate) fn learn(&mut self, step: &str, title: &str) {
        self.0.insert(step.to_owned(), title.to_owned());
    }

    /// What a step is called; as it is written if nothing else is known.
    pub(crate) fn of(&self, step: &str) -> String {
        if let Some(title) = self.0.get(step) {
            return title.clone();
        }
        match step.rsplit_once('/') {
            Some((node, part)) => format!("{}: {}", self.of(node), spoken(part)),
            None => step.to_owned(),
        }
    }
}

/// A part of a node as people say it: `turn-2` is turn 2, a number is a round.
fn spoken(part: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if is_number(part) {
        return format!("round {part}");
    }
    match part.split_once('-') {
        Some((name @ ("turn" | "call"), number)) if number.split('-').all(is_number) => format!("{name} {number}"),
        _ => part.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_after_their_node() {
        let mut titles = Titles::default();
        titles.learn("research", "Read the pages");
        titles.learn("each/3/ask", "Ask");
        let said = ["research", "research/turn-2", "research/turn-2/bash-1", "each/3", "each/3/ask", "other-9"];
        let said = said.map(|step| titles.of(step));
        let expected = [
            "Read the pages",
            "Read the pages: turn 2",
            "Read the pages: turn 2: bash-1",
            "each: round 3",
            "Ask",
            "other-9",
        ];
        assert_eq!(said, expected);
    }
}
