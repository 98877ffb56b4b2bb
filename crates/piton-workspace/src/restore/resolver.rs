//! A resolver puts two versions of a text together where their lines are in each other's way (W11). It may be a
//! language model, a tool or a person. What it gives is checked before it counts.

use bytes::Bytes;

use crate::RelPath;
use crate::merge::{MAX_MERGE, MergeOptions, has_markers, merge};
use crate::text_diff::is_binary;

/// How many times the size of both versions an answer may have.
const MOST: usize = 2;

/// Room that small texts get beyond that.
const SPARE: usize = 1024;

/// A text that two sides changed in the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContestedText {
    /// Which.
    pub path: RelPath,
    /// What both began with.
    pub base: Bytes,
    /// What another writer made of it since, which is there now.
    pub current: Bytes,
    /// What is to be returned to.
    pub checkpoint: Bytes,
    /// What the writer that changed it since was after, in words.
    pub current_intent: String,
    /// What the return is for, in words.
    pub checkpoint_intent: String,
}

impl ContestedText {
    /// Both in one, with markers where they are in each other's way.
    pub fn marked(&self) -> Option<Vec<u8>> {
        let options =
            MergeOptions { ours: b"current".to_vec(), theirs: b"checkpoint".to_vec(), ..MergeOptions::default() };
        merge(&self.base, &self.current, &self.checkpoint, &options).ok().map(|merged| merged.text)
    }

    /// What a resolver makes of the two, if it can be taken for a merge of them.
    pub fn answer(&self, resolver: &dyn Resolver) -> Result<Vec<u8>, String> {
        let text = resolver.resolve(self)?;
        self.check(&text)?;
        Ok(text)
    }

    /// Whether an answer can be taken for a merge of the two; the reason if not.
    pub fn check(&self, answer: &[u8]) -> Result<(), &'static str> {
        let both = self.current.len() + self.checkpoint.len();
        if answer.len() > MAX_MERGE.min(both.saturating_mul(MOST).saturating_add(SPARE)) {
            return Err("its answer is far larger than both versions");
        }
        if has_markers(answer) {
            return Err("its answer still has markers of a conflict");
        }
        if is_binary(answer) {
            return Err("its answer isn't text");
        }
        let was_text = [&self.current, &self.checkpoint].into_iter().all(|text| std::str::from_utf8(text).is_ok());
        if was_text && std::str::from_utf8(answer).is_err() {
            return Err("its answer isn't UTF-8, and both versions are");
        }
        let lines = |text: &[u8]| -> std::collections::HashSet<Vec<u8>> {
            text.split(|byte| *byte == b'\n')
                .map(|line| line.trim_ascii().to_vec())
                .filter(|line| !line.is_empty())
                .collect()
        };
        let (base, answered) = (lines(&self.base), lines(answer));
        // A side that only took lines away has brought none that could be looked for.
        let brought = [&self.current, &self.checkpoint].map(|side| {
            let mut new = lines(side);
            new.retain(|line| !base.contains(line));
            new
        });
        let keeps = |new: &std::collections::HashSet<Vec<u8>>| new.iter().any(|line| answered.contains(line));
        if brought.iter().any(|new| !new.is_empty()) && !brought.iter().any(keeps) {
            return Err("its answer has nothing of either version");
        }
        if answer.is_empty() && !(self.current.is_empty() || self.checkpoint.is_empty()) {
            return Err("its answer is empty");
        }
        Ok(())
    }
}

/// Puts two versions together. Called on a thread that may wait.
pub trait Resolver: Send + Sync {
    /// The merged text, or why there is none. What it gives is checked by [`ContestedText::check`].
    fn resolve(&self, contested: &ContestedText) -> Result<Vec<u8>, String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_no_merge_are_refused() {
        let contested = ContestedText {
            path: RelPath::default(),
            base: Bytes::from_static(b"a\nb\nc\n"),
            current: Bytes::from_static(b"a\nmine\nc\n"),
            checkpoint: Bytes::from_static(b"a\nold\nc\n"),
            current_intent: String::new(),
            checkpoint_intent: String::new(),
        };
        assert_eq!(contested.check(b"a\nmine and old\nmine\nc\n"), Ok(()));
        assert_eq!(contested.check(b"a\n  old\nc\n"), Ok(()));
        for (answer, why) in [
            (contested.marked().unwrap(), "markers"),
            (b"a\nb\nc\n".to_vec(), "nothing of either"),
            (b"".to_vec(), "nothing of either"),
            (b"Sorry, I can't.\n".to_vec(), "nothing of either"),
            (b"mine\n".repeat(10_000), "larger"),
            (b"mine\n\0".to_vec(), "isn't text"),
            (b"mine\n\xff".to_vec(), "UTF-8"),
        ] {
            let refused = contested.check(&answer).unwrap_err();
            assert!(refused.contains(why), "{why}: {refused}");
        }
    }
}
