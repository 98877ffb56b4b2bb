//! Known secrets in texts, in every form in which they turn up: as they are, escaped for JSON or a URL, in hex, and in
//! base64 at each of three offsets, the last two also where they are broken into lines.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The fewest bytes of a secret. Shorter ones would turn up everywhere by chance.
pub const SHORTEST_SECRET: usize = 6;

/// The forms of which the letters may be broken into lines: hex and base64.
const BROKEN: Range<usize> = 1..9;

/// Secrets that are known by name, ready to be searched for.
pub struct KnownSecrets {
    forms: Vec<(String, Vec<String>)>,
    whole: Needles,
    broken: Needles,
    longest: usize,
}

/// What is searched for together, and which secret and form each is.
struct Needles(AhoCorasick, Vec<(usize, usize)>);

/// A secret in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretPlace {
    /// Which secret it is, by the order in which they were given.
    pub secret: usize,
    /// In which form it stands there.
    pub form: usize,
    /// Where its pieces are in the text, and which part of the form each is. One piece, unless it is broken into lines.
    pub pieces: Vec<(Range<usize>, Range<usize>)>,
}

impl SecretPlace {
    /// From its first byte to its last.
    pub fn range(&self) -> Range<usize> {
        let (first, last) = (self.pieces.first(), self.pieces.last());
        first.map_or(0, |(text, _)| text.start)..last.map_or(0, |(text, _)| text.end)
    }
}

impl KnownSecrets {
    /// These secrets by name.
    ///
    /// # Errors
    ///
    /// There are too many to be searched for.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (String, &'a str)>) -> Result<Self, String> {
        let forms: Vec<_> = secrets.into_iter().map(|(name, secret)| (name, forms(secret))).collect();
        let needles = |wanted: fn(usize) -> bool| {
            let (mut texts, mut places, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
            for (secret, (_, forms)) in forms.iter().enumerate() {
                for (form, text) in forms.iter().enumerate().filter(|(form, _)| wanted(*form)) {
                    if text.len() >= SHORTEST_SECRET && seen.insert(text) {
                        texts.push(text);
                        places.push((secret, form));
                    }
                }
            }
            let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts);
            Ok::<_, String>(Needles(built.map_err(|error| error.to_string())?, places))
        };
        let (whole, broken) = (needles(|_| true)?, needles(|form| BROKEN.contains(&form))?);
        let longest = forms.iter().flat_map(|(_, forms)| forms).map(String::len).max().unwrap_or(0);
        Ok(Self { forms, whole, broken, longest })
    }

    /// The name of a secret.
    pub fn name(&self, secret: usize) -> &str {
        self.forms.get(secret).map_or("", |(name, _)| name)
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.forms.iter().map(|(name, _)| name.as_str())
    }

    /// A secret in one of its forms; the last of that name, if there are several.
    pub fn form(&self, name: &str, form: usize) -> Option<&str> {
        let (_, forms) = self.forms.iter().rev().find(|(known, _)| known == name)?;
        forms.get(form).map(String::as_str)
    }

    /// Where they are, in order and without overlaps.
    pub fn find(&self, bytes: &[u8]) -> Vec<SecretPlace> {
        let mut found: Vec<SecretPlace> = Vec::new();
        if self.forms.is_empty() {
            return found;
        }
        for hit in self.whole.0.find_iter(bytes) {
            let (secret, form) = self.whole.1[hit.pattern().as_usize()];
            found.push(SecretPlace { secret, form, pieces: vec![(hit.range(), 0..hit.len())] });
        }
        let whole = found.len();
        let (letters, places) = joined(bytes);
        for hit in self.broken.0.find_iter(&letters) {
            let (secret, form) = self.broken.1[hit.pattern().as_usize()];
            let place = SecretPlace { secret, form, pieces: pieces(&places[hit.range()]) };
            let range = place.range();
            let next = found[..whole].partition_point(|other| other.range().end <= range.start);
            let is_free = next == whole || range.end <= found[next].range().start;
            // One that isn't broken was found before.
            if place.pieces.len() > 1 && is_free {
                found.push(place);
            }
        }
        found.sort_by_key(|place| place.range().start);
        found
    }

    /// How many bytes at the end of a text may be the beginning of a secret that goes on behind it.
    pub fn begun(&self, text: &str) -> usize {
        let from = text.floor_char_boundary(text.len().saturating_sub(4 * self.longest));
        let (letters, places) = joined(&text.as_bytes()[from..]);
        let tail = &text.as_bytes()[from..];
        let mut begun = 0;
        for (_, forms) in &self.forms {
            for (number, form) in forms.iter().enumerate() {
                let begins = |tail: &[u8], length: usize| tail[tail.len() - length..] == form.as_bytes()[..length];
                let longest =
                    |tail: &[u8]| (1..form.len().min(tail.len() + 1)).rev().find(|length| begins(tail, *length));
                begun = begun.max(longest(tail).unwrap_or(0));
                if BROKEN.contains(&number)
                    && let Some(length) = longest(&letters)
                {
                    begun = begun.max(tail.len() - places[letters.len() - length]);
                }
            }
        }
        begun
    }
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// The bytes without what breaks a long word into lines, white space and its escapes in JSON, and where each of them was.
fn joined(bytes: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let (mut letters, mut places) = (Vec::with_capacity(bytes.len()), Vec::with_capacity(bytes.len()));
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'\\' if matches!(bytes.get(at + 1), Some(b'n' | b'r' | b't')) => at += 1,
            b'\\' => {}
            letter => {
                letters.push(*letter);
                places.push(at);
            }
        }
        at += 1;
    }
    (letters, places)
}

/// Places of consecutive letters as ranges, each with the part of the word that it is.
fn pieces(places: &[usize]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut pieces: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    for (number, place) in places.iter().enumerate() {
        match pieces.last_mut() {
            Some((text, part)) if text.end == *place => (text.end, part.end) = (place + 1, number + 1),
            _ => pieces.push((*place..place + 1, number..number + 1)),
        }
    }
    pieces
}

/// Every form, the secret itself first. Their order is part of what is stored (`secret:NAME~3`).
fn forms(secret: &str) -> Vec<String> {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![secret.to_owned(), hex.to_uppercase(), hex];
    for offset in 0..3 {
        // What is inside is the same whatever stands around it, but for its edges.
        let padded = [vec![0; offset], secret.as_bytes().to_vec()].concat();
        let (start, end) = ((offset * 8).div_ceil(6), padded.len() * 8 / 6);
        for encoded in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            forms.push(encoded[start..end].to_owned());
        }
    }
    // As RFC 3986 says, with small letters, as forms are sent, as browsers do; and base64 in a URL.
    let escaped = |text: &str, plain: &str| -> String {
        let one = |byte: u8| match byte.is_ascii_alphanumeric() || plain.as_bytes().contains(&byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        };
        text.bytes().map(one).collect()
    };
    forms.push(escaped(secret, "-._~"));
    forms.push(small_escapes(&escaped(secret, "-._~")));
    forms.push(escaped(secret, "-._* ").replace(' ', "+"));
    forms.push(escaped(secret, "-._~!*'()"));
    for base64 in [3, 5, 7] {
        forms.push(escaped(&forms[base64], ""));
    }
    // As encoders of JSON write it: as little as they must, nothing but ASCII, with a slash or marks of HTML escaped.
    let first = forms.len();
    forms.push(json(secret, |_| false));
    forms.push(json(secret, |c| !c.is_ascii()));
    forms.push(json(secret, |c| !c.is_ascii()).replace('/', "\\/"));
    forms.push(json(secret, |_| false).replace('/', "\\/"));
    forms.push(json(secret, |c| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')));
    forms.push(large_escapes(&forms[first + 1]));
    // JSON in JSON.
    for once in first..forms.len() {
        forms.push(json(&forms[once], |_| false));
    }
    forms
}

/// A text inside a string of JSON; `escape` says which characters are escaped though they needn't be.
fn json(text: &str, escape: impl Fn(char) -> bool) -> String {
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => written.push_str("\\\""),
            '\\' => written.push_str("\\\\"),
            '\n' => written.push_str("\\n"),
            '\r' => written.push_str("\\r"),
            '\t' => written.push_str("\\t"),
            '\u{8}' => written.push_str("\\b"),
            '\u{c}' => written.push_str("\\f"),
            c if c < ' ' || escape(c) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| written.push_str(&format!("\\u{unit:04x}")));
            }
            c => written.push(c),
        }
    }
    written
}

/// `%2F` as `%2f`.
fn small_escapes(text: &str) -> String {
    let mut pieces = text.split('%');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |done, piece| {
        let (digits, rest) = piece.split_at(piece.len().min(2));
        format!("{done}%{}{rest}", digits.to_lowercase())
    })
}

/// `\u00fc` as `\u00FC`.
fn large_escapes(text: &str) -> String {
    let mut pieces = text.split("\\u");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |done, piece| {
        let (digits, rest) = piece.split_at(piece.floor_char_boundary(4));
        format!("{done}\\u{}{rest}", digits.to_uppercase())
    })
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;

    const SECRET: &str = "canary/söngs+7\n\"<9>\\";

    fn broken(text: &str, width: usize, with: &str) -> String {
        text.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect::<Vec<_>>().join(with)
    }

    /// Texts as encoders write them, each with the secret in it.
    fn written() -> Vec<String> {
        let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
        let json = serde_json::to_string(SECRET).unwrap();
        let mut words = vec![hex.to_uppercase(), hex];
        for before in ["", "x", "xy", "xyz", "user:"] {
            for after in ["", "a", "ab", "abc"] {
                let text = format!("{before}{SECRET}{after}");
                words.extend([STANDARD.encode(&text), URL_SAFE.encode(&text)]);
            }
        }
        let mut texts = vec![
            SECRET.to_owned(),
            json.clone(),
            serde_json::to_string(&json).unwrap(),
            r#"canary/s\u00f6ngs+7\n\"<9>\\"#.to_owned(),
            r#"canary\/s\u00f6ngs+7\n\"<9>\\"#.to_owned(),
            r#"canary/s\u00F6ngs+7\n\"<9>\\"#.to_owned(),
            r#"canary/söngs+7\n\"\u003c9\u003e\\"#.to_owned(),
            "canary%2Fs%C3%B6ngs%2B7%0A%22%3C9%3E%5C".to_owned(),
            "canary%2fs%c3%b6ngs%2b7%0a%22%3c9%3e%5c".to_owned(),
            STANDARD.encode(SECRET).replace('/', "%2F").replace('+', "%2B").replace('=', "%3D"),
        ];
        for word in words {
            for (width, with) in [(4, "\n"), (16, "\r\n"), (7, "\n    "), (19, "\\n"), (5, "\\r\\n"), (9, " \\\n")] {
                texts.push(broken(&word, width, with));
            }
            texts.push(word.replace('/', "\\/"));
            texts.push(word);
        }
        texts
    }

    #[test]
    fn a_secret_is_found_in_every_form() {
        let known = KnownSecrets::new([("other".to_owned(), "hunter22"), ("key".to_owned(), SECRET)]).unwrap();
        for text in written() {
            let around = format!("failed: <{text}>\n and so on");
            let found = known.find(around.as_bytes());
            let [place] = &found[..] else { panic!("{around}: {found:?}") };
            assert_eq!(known.name(place.secret), "key");
            // What its pieces say is the form that it is said to be, and nothing of it is left outside but the edges of base64.
            let form = known.form("key", place.form).unwrap();
            let said: String = place.pieces.iter().map(|(text, _)| &around[text.clone()]).collect();
            assert_eq!(said, form, "{around}");
            assert!(place.pieces.iter().all(|(text, part)| around[text.clone()] == form[part.clone()]), "{around}");
        }
        assert!(known.find(b"nothing here, hunter 22").is_empty());
        assert_eq!(format!("{known:?}"), r#"["other", "key"]"#);
    }

    /// However a text is cut in two, what is said to have begun at the first end is all of the secret that is there.
    #[test]
    fn what_may_go_on_is_not_passed_on() {
        let known = KnownSecrets::new([("key".to_owned(), SECRET)]).unwrap();
        for text in written() {
            let around = format!("failed: <{text}>");
            let start = known.find(around.as_bytes())[0].range().start;
            let end = known.find(around.as_bytes())[0].range().end;
            for cut in (start + 1..end).filter(|cut| around.is_char_boundary(*cut)) {
                let begun = known.begun(&around[..cut]);
                assert!(cut - begun <= start, "{around}: {cut} {begun}");
            }
        }
        assert_eq!(known.begun("nothing to hide"), 0);
    }
}
