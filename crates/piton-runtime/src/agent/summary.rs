//! Summaries of what is trimmed. A model makes better ones; the built-in one only picks sentences, and says so.

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;

/// Makes a long text short.
#[async_trait]
pub trait Summariser: Send + Sync {
    /// What stands with its summaries.
    fn name(&self) -> &str;

    /// At most about `bytes` bytes that stand for `text`. If it fails, [`Extractive`] takes its place for this
    /// text.
    async fn summarise(&self, text: &str, bytes: usize) -> Result<String, Box<dyn std::error::Error + Send + Sync>>;
}

/// Picks sentences of the text: the first, and those whose words come up most. It understands nothing, and its
/// summaries begin by saying that they are extracts.
///
/// ```
/// use piton_runtime::Extractive;
/// let text = "Bees dance. The weather was fine. A dance tells other bees where the flowers are. Lunch was late.";
/// assert_eq!(
///     Extractive.extract(text, 90),
///     "[extract] Bees dance. … A dance tells other bees where the flowers are. …",
/// );
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Extractive;

impl Extractive {
    /// An extract of at most `bytes` bytes; a text that fits is returned as it is.
    pub fn extract(&self, text: &str, bytes: usize) -> String {
        if text.len() <= bytes {
            return text.to_owned();
        }
        let sentences = sentences(text);
        let words = |sentence: &str| -> Vec<String> {
            let words = sentence.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 3);
            words.map(str::to_lowercase).collect()
        };
        let mut counts: HashMap<String, usize> = HashMap::new();
        sentences.iter().flat_map(|sentence| words(sentence)).for_each(|word| *counts.entry(word).or_default() += 1);
        let score = |sentence: &str| {
            let words = words(sentence);
            let sum: usize = words.iter().map(|word| counts[word] - 1).sum();
            // In thousandths, so that the order is the same everywhere.
            sum * 1000 / words.len().max(1)
        };
        let mut order: Vec<_> = (1..sentences.len()).map(|n| (score(sentences[n]), n)).collect();
        order.sort_by_key(|&(score, n)| (std::cmp::Reverse(score), n));
        let mut room = bytes.saturating_sub(LABEL.len() + GAP.len());
        let mut picked = BTreeSet::new();
        for n in std::iter::once(0).chain(order.into_iter().map(|(_, n)| n)) {
            let cost = sentences[n].len() + 1 + GAP.len();
            if cost <= room {
                room -= cost;
                picked.insert(n);
            }
        }
        let mut out = LABEL.to_owned();
        if picked.is_empty() && room > 1 {
            // Only long sentences: the beginning of the first.
            out.push(' ');
            out.push_str(&text[..text.floor_char_boundary(room - 1)]);
        }
        let mut next = 0;
        for n in picked {
            if n != next {
                out.push_str(GAP);
            }
            out.push(' ');
            out.push_str(sentences[n]);
            next = n + 1;
        }
        if next < sentences.len() {
            out.push_str(GAP);
        }
        out
    }
}

const LABEL: &str = "[extract]";
const GAP: &str = " …";

/// The sentences or lines of a text, without what is empty.
fn sentences(text: &str) -> Vec<&str> {
    let ends = |pair: &str| pair == "\n" || [". ", "! ", "? "].contains(&pair);
    let mut found = Vec::new();
    let mut from = 0;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        let next = text[end..].chars().next();
        if c == '\n' || ends(&format!("{c}{}", next.map_or(' ', |next| if next.is_whitespace() { ' ' } else { next })))
        {
            found.push(text[from..end].trim());
            from = end;
        }
    }
    found.push(text[from..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

#[async_trait]
impl Summariser for Extractive {
    fn name(&self) -> &str {
        "extract"
    }

    async fn summarise(&self, text: &str, bytes: usize) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.extract(text, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extracts_keep_to_their_length_and_say_what_they_are() {
        let text = "Erster Satz. ".repeat(40) + "日本語の長い文。\nline\n\n  other line! Last? yes";
        for bytes in [0, 9, 12, 40, 100, 300] {
            let extract = Extractive.extract(&text, bytes);
            assert!(extract.starts_with(LABEL), "{extract}");
            assert!(extract.len() <= bytes.max(LABEL.len() + GAP.len()), "{bytes}: {}", extract.len());
        }
        assert_eq!(Extractive.extract("short", 5), "short");
        assert_eq!(Extractive.extract(&"x".repeat(100), 20), "[extract] xxxxxx …");
    }
}
