//! The names of objects. A text of the user is escaped: every text has exactly one name, no two share one, also where a
//! file system doesn't tell `A` from `a`, and none is `..`, hidden, or leads elsewhere.

use piton_types::RunId;

/// The mark of a store.
pub(crate) const STORE: &str = "store.json";
/// The folder of all runs.
pub(crate) const RUNS: &str = "runs";
/// The folder of packs.
pub(crate) const PACKS: &str = "packs";
/// The folder of the rows of runs, in a remote place.
pub(crate) const ROWS: &str = "rows";
/// The folder of what is said of staged packs, in a remote place.
pub(crate) const STAGED: &str = "staged";
/// The folder of notes.
pub(crate) const NOTES: &str = "notes";

/// The names of one run's objects.
///
/// The objects of entries are numbered from 0. A run that takes the id of a removed one goes on counting behind the
/// end of that one, so no name is ever used twice; the number of its first object is its *base*.
#[derive(Debug)]
pub(crate) struct RunNames {
    folder: String,
}

impl RunNames {
    pub(crate) fn new(run: &RunId) -> Self {
        Self { folder: format!("{RUNS}/{}", escape(run.as_str())) }
    }

    /// The name of something in the run's folder.
    pub(crate) fn at(&self, what: &str) -> String {
        format!("{}/{what}", self.folder)
    }

    pub(crate) fn entry(&self, number: u64) -> String {
        format!("{}/entries/{}", self.folder, entry_name(number))
    }

    pub(crate) fn segment(&self, first: u64, last: u64) -> String {
        format!("{}/segments/{first:010}-{last:010}.segment", self.folder)
    }
}

/// The name of the object of entries with this number, in the folder of those.
pub(crate) fn entry_name(number: u64) -> String {
    format!("{number:010}.json")
}

/// The run whose folder has this name.
pub(crate) fn run_of(name: &str) -> Option<RunId> {
    unescape(name)?.parse().ok()
}

/// The number that a name consists of.
pub(crate) fn number(text: &str) -> Option<u64> {
    (text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Two numbers with a dash in between.
pub(crate) fn numbers(text: &str) -> Option<(u64, u64)> {
    let (a, b) = text.split_once('-')?;
    Some((number(a)?, number(b)?))
}

/// How long a name may become. File systems end at 255 bytes; something is added behind.
const LONGEST: usize = 160;

/// The name for `text`: small letters, digits, `.`, `_` and `-` stand for themselves, a capital
/// is `~` and the small letter, any other byte `=` and two hex digits. What gets too long ends in its hash.
pub(crate) fn escape(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'.' if place == 0 => name.push_str("=2e"),
            b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => name.push(char::from(byte)),
            b'A'..=b'Z' => name.extend(['~', char::from(byte.to_ascii_lowercase())]),
            _ => name.push_str(&format!("={byte:02x}")),
        }
    }
    if name.is_empty() {
        // No escape begins so.
        return "=empty".to_owned();
    }
    if name.len() > LONGEST {
        // Nor so: an h is no hex digit.
        name.truncate(64);
        name.push_str("=h");
        name.push_str(&blake3::hash(text.as_bytes()).to_hex());
    }
    name
}

/// The text that a name stands for; `None` if no text has this name, or if it can't be had back.
pub(crate) fn unescape(name: &str) -> Option<String> {
    let mut text = Vec::with_capacity(name.len());
    let mut bytes = name.bytes();
    while let Some(byte) = bytes.next() {
        text.push(match byte {
            b'~' => bytes.next()?.to_ascii_uppercase(),
            b'=' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    let text = String::from_utf8(text).ok()?;
    (escape(&text) == name).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Promise 22.
    #[test]
    fn names_are_harmless_and_their_own() {
        let long = "x".repeat(300);
        let texts = [
            "", "run-7", "Run-7", "RUN-7", "..", ".", "../../x", "a/b", "a\0b", "a\nb", "-rf", "*", "=2e", "~a", "A",
            "é", "\u{202e}", "con ", &long,
        ];
        let mut folded = HashSet::new();
        for text in texts {
            let name = escape(text);
            assert!(!name.is_empty() && name.len() < 200 && !name.starts_with('.'), "{text:?}: {name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'), "{text:?}: {name}");
            assert!(folded.insert(name.to_lowercase()), "{text:?} has another's name: {name}");
            if name.len() < 100 && !text.is_empty() {
                assert_eq!(unescape(&name).as_deref(), Some(text));
            }
        }
        for foreign in ["A", "=2E", "~", "=", "=zz", ".x", "a b", "=61"] {
            assert_eq!(unescape(foreign), None, "{foreign}");
        }
    }
}
