//! Texts that look random. A guess, so nothing but a warning comes of it.

use std::ops::Range;

/// Shorter words are too often a name or a number.
const SHORTEST: usize = 24;
/// Longer ones are data.
const LONGEST: usize = 128;
/// Bits per byte. Words of languages and paths stay below, random base64 of that length lies above.
const LIMIT: f64 = 4.2;

/// The words that look random.
pub(super) fn random_words(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'_' | b'-');
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let start = at + bytes[at..].iter().position(is_word)?;
            let end = start + bytes[start..].iter().take_while(|byte| is_word(byte)).count();
            at = end;
            if (SHORTEST..=LONGEST).contains(&(end - start)) && looks_random(&bytes[start..end]) {
                return Some(start..end);
            }
        }
        None
    })
}

fn looks_random(word: &[u8]) -> bool {
    // Hashes and ids in hex are everywhere, and mostly no secret.
    let mixed = word.iter().any(u8::is_ascii_digit)
        && word.iter().any(u8::is_ascii_lowercase)
        && word.iter().any(u8::is_ascii_uppercase);
    let mut counts = [0_u32; 256];
    word.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let length = f64::from(u32::try_from(word.len()).expect("a short word"));
    let share = |count: &u32| f64::from(*count) / length;
    let entropy: f64 = counts.iter().filter(|count| **count > 0).map(share).map(|share| -share * share.log2()).sum();
    mixed && entropy > LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_words_are_told_from_ordinary_ones() {
        let count = |text: &str| random_words(text.as_bytes()).count();
        assert_eq!(count("key Zm9vYmFyQ3J5cHRvMTIzNDU2Nzg5MHF3ZXJ0eXVpb3A= end"), 1);
        assert_eq!(count("q8Zr2LkP0vXn7TjWbYc4Ms1DfGh6"), 1);
        assert_eq!(count("a perfectly ordinary sentence with Some-Hyphenated-Words and 2024 numbers"), 0);
        assert_eq!(count("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"), 0);
        assert_eq!(count("crates/piton-store/src/redaction/entropy.rs"), 0);
    }
}
