//! Keeping secrets out of what is stored: values are searched before they are encoded, and what is found gives way
//! to `secret:NAME`. When they are read again, the secrets that the caller knows by that name are put back.
//!
//! Invariant: for every value, with the same known secrets, putting back what was taken out gives the value again,
//! whatever texts it held: a `secret:` that was there before is marked (`secret::`) and can't be taken for a place
//! to put a secret. What was taken out by the name of its field, a pattern or a known format has no value to be
//! put back unless the caller knows a secret of that name; then the place stays.

mod entropy;
mod find;
mod policy;
mod store;

use std::borrow::Cow;

use piton_types::Value;

pub use find::{Finding, FoundBy};
pub use policy::{RedactionError, RedactionPolicy, SecretFiles};
pub use store::RedactedStore;

use find::Finder;

/// What stands before the name of a secret.
const MARK: &str = "secret:";

/// Deeper than any value that can be stored.
const DEEPEST: usize = 200;

/// What a text is redacted for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// To be stored, and to have its secrets put back.
    Stored,
    /// To be read by people.
    Shown,
}

/// A policy that is ready for use.
pub struct Redaction {
    finder: Finder,
    files: SecretFiles,
}

impl Redaction {
    /// Compiles a policy.
    pub fn new(policy: &RedactionPolicy) -> Result<Self, RedactionError> {
        policy.check()?;
        Ok(Self { finder: Finder::new(policy)?, files: policy.files })
    }

    /// The text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => {
                Cow::Owned(String::from_utf8(bytes).expect("whole characters are replaced by whole characters"))
            }
        }
    }

    /// The text without secrets, for people: nothing is put back into it, so doing it twice is doing it once.
    pub fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.replace(text.as_bytes(), |text, out| out.extend_from_slice(text)) {
            None => Cow::Borrowed(text),
            Some(bytes) => {
                Cow::Owned(String::from_utf8(bytes).expect("whole characters are replaced by whole characters"))
            }
        }
    }

    /// The bytes without secrets.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match self.replace(bytes, escape) {
            Some(redacted) => Cow::Owned(redacted),
            None if find(bytes, MARK.as_bytes()).is_none() => Cow::Borrowed(bytes),
            None => {
                let mut marked = Vec::with_capacity(bytes.len() + 8);
                escape(bytes, &mut marked);
                Cow::Owned(marked)
            }
        }
    }

    /// Puts names in the place of secrets, and what `between` makes of the rest around them. `None` if there are
    /// no secrets.
    fn replace(&self, bytes: &[u8], between: impl Fn(&[u8], &mut Vec<u8>)) -> Option<Vec<u8>> {
        let found = self.finder.find(bytes);
        if found.is_empty() {
            return None;
        }
        let mut out = Vec::with_capacity(bytes.len());
        let mut from = 0;
        for place in found {
            for (text, part) in &place.pieces {
                between(&bytes[from..text.start], &mut out);
                out.extend_from_slice(MARK.as_bytes());
                out.extend_from_slice(place.name.as_bytes());
                if place.form > 0 {
                    out.extend_from_slice(format!("~{}", place.form).as_bytes());
                }
                if place.pieces.len() > 1 {
                    out.extend_from_slice(format!(".{}.{}", part.start, part.end).as_bytes());
                }
                // What follows must not be read as part of the name.
                if bytes.get(text.end).is_some_and(|next| is_name(*next) || matches!(next, b'~' | b';')) {
                    out.push(b';');
                }
                from = text.end;
            }
        }
        between(&bytes[from..], &mut out);
        Some(out)
    }

    /// The value without secrets. Entropy that looks like a secret is told as a warning, without the content.
    pub fn value(&self, value: &Value) -> Value {
        self.walk(value, Manner::Stored, 0)
    }

    /// The value without secrets, for people: nothing is put back into it.
    pub fn shown_value(&self, value: &Value) -> Value {
        self.walk(value, Manner::Shown, 0)
    }

    /// The value for an entry of a map, or for an item of a list if there is no key.
    pub fn entry(&self, key: Option<&str>, value: &Value) -> Value {
        match key.and_then(|key| self.finder.named(key)) {
            Some(name) => self.field(&name, value, Manner::Stored, 0),
            None => self.value(value),
        }
    }

    fn in_manner<'a>(&self, text: &'a str, manner: Manner) -> Cow<'a, str> {
        match manner {
            Manner::Stored => self.text(text),
            Manner::Shown => self.shown(text),
        }
    }

    fn walk(&self, value: &Value, manner: Manner, depth: usize) -> Value {
        match value {
            Value::String(text) => {
                if manner == Manner::Stored {
                    self.finder.warn(text.as_bytes());
                }
                self.in_manner(text, manner).into_owned().into()
            }
            Value::Bytes(bytes) => Value::Bytes(self.bytes(bytes).into_owned()),
            // The encoder refuses what nests much less deep; this keeps the stack whole until it is asked.
            _ if depth > DEEPEST => Value::Null,
            Value::List(items) => Value::List(items.iter().map(|item| self.walk(item, manner, depth + 1)).collect()),
            Value::Map(entries) => {
                let entry = |(key, value): (&String, &Value)| {
                    let redacted = match self.finder.named(key) {
                        Some(name) => self.field(&name, value, manner, depth + 1),
                        None => self.walk(value, manner, depth + 1),
                    };
                    (self.in_manner(key, manner).into_owned(), redacted)
                };
                Value::Map(entries.iter().map(entry).collect())
            }
            other => other.clone(),
        }
    }

    /// The value of a field whose name says that it is secret.
    fn field(&self, name: &str, value: &Value, manner: Manner, depth: usize) -> Value {
        match value {
            Value::String(text) => {
                let known = self.in_manner(text, manner);
                // All of it is a secret with a better name, which can be put back.
                let whole = |name: &str| name.bytes().all(|byte| is_name(byte) || byte == b'~');
                match known.strip_prefix(MARK).is_some_and(whole) {
                    true => known.into_owned().into(),
                    false if text.is_empty() => value.clone(),
                    false => format!("{MARK}{name}").into(),
                }
            }
            Value::Null | Value::Bool(_) => value.clone(),
            _ if depth > DEEPEST => Value::Null,
            Value::List(items) => {
                Value::List(items.iter().map(|item| self.field(name, item, manner, depth + 1)).collect())
            }
            Value::Map(_) => self.walk(value, manner, depth),
            _ => format!("{MARK}{name}").into(),
        }
    }

    /// Puts the known secrets back into a text.
    pub fn resolve_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.resolve_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // Of a text that isn't ours half a form may be left; then it is better left alone.
            Cow::Owned(bytes) => String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned),
        }
    }

    /// Puts the known secrets back.
    pub fn resolve_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mark = MARK.as_bytes();
        let Some(first) = find(bytes, mark) else { return Cow::Borrowed(bytes) };
        let mut out = bytes[..first].to_vec();
        let mut rest = &bytes[first..];
        while let Some(at) = find(rest, mark) {
            out.extend_from_slice(&rest[..at]);
            let after = &rest[at + mark.len()..];
            rest = match after.first() {
                Some(b':') => {
                    out.extend_from_slice(mark);
                    &after[1..]
                }
                _ => match self.known(after) {
                    Some((secret, length)) => {
                        out.extend_from_slice(secret);
                        &after[length..]
                    }
                    None => {
                        out.extend_from_slice(mark);
                        after
                    }
                },
            };
        }
        out.extend_from_slice(rest);
        Cow::Owned(out)
    }

    /// The secret, or the piece of one, whose name `after` begins with, and how long name, form, piece and end are:
    /// `NAME`, `NAME~FORM`, `NAME~FORM.START.END`.
    fn known(&self, after: &[u8]) -> Option<(&[u8], usize)> {
        let number = |at: usize, before: u8| -> Option<(usize, usize)> {
            let digits =
                after.get(at..)?.strip_prefix(&[before])?.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let end = at + 1 + digits;
            Some((std::str::from_utf8(&after[at + 1..end]).ok()?.parse().ok()?, end))
        };
        let name = after.iter().take_while(|byte| is_name(**byte)).count();
        let (form, mut length) = number(name, b'~').unwrap_or((0, name));
        let secret = self.finder.known.form(std::str::from_utf8(&after[..name]).ok()?, form)?.as_bytes();
        let mut piece = 0..secret.len();
        if form > 0
            && let Some((start, behind)) = number(length, b'.')
            && let Some((end, behind)) = number(behind, b'.')
        {
            (piece, length) = (start..end, behind);
        }
        length += usize::from(after.get(length) == Some(&b';'));
        secret.get(piece).map(|secret| (secret, length))
    }

    /// Puts the known secrets back into a value.
    pub fn resolve(&self, value: Value) -> Value {
        match value {
            Value::String(text) => match self.resolve_text(&text) {
                Cow::Borrowed(_) => Value::String(text),
                Cow::Owned(resolved) => resolved.into(),
            },
            Value::Bytes(bytes) => match self.resolve_bytes(&bytes) {
                Cow::Borrowed(_) => Value::Bytes(bytes),
                Cow::Owned(resolved) => Value::Bytes(resolved),
            },
            Value::List(items) => Value::List(items.into_iter().map(|item| self.resolve(item)).collect()),
            Value::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| (self.resolve_text(&key).into_owned(), self.resolve(value)))
                    .collect(),
            ),
            other => other,
        }
    }

    /// What becomes of files with secrets in them.
    pub fn secret_files(&self) -> SecretFiles {
        self.files
    }

    /// Whether there is a secret in the bytes. What only looks like one doesn't count.
    pub fn has_secret(&self, bytes: &[u8]) -> bool {
        !self.finder.find(bytes).is_empty()
    }

    /// What of it is secret or looks like it, and where: for files, which are reported and not rewritten.
    pub fn findings(&self, bytes: &[u8]) -> Vec<Finding> {
        self.finder.findings(bytes)
    }
}

/// Copies a text, marking what would be taken for a place of a secret.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = find(rest, MARK.as_bytes()) {
        let end = at + MARK.len();
        out.extend_from_slice(&rest[..end]);
        out.push(b':');
        rest = &rest[end..];
    }
    out.extend_from_slice(rest);
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// Whether it may stand in the name of a secret.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redaction").field("secrets", &self.finder.known).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CANARY: &str = "canary/söngs+7";

    fn redaction() -> Redaction {
        let policy = RedactionPolicy::default()
            .with_secret("CANARY", CANARY)
            .with_secret("pass", "hunter22")
            .with_pattern("badge", "badge-[0-9]{4}")
            .with_name("shoe_size");
        Redaction::new(&policy).unwrap()
    }

    /// Promise 26: in clear, escaped, in base64 at every offset and in hex, whole and in lines; and all of it comes back.
    #[test]
    fn known_secrets_are_found_in_every_form_and_come_back() {
        use base64::Engine as _;
        use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
        let redaction = redaction();
        let hex: String = CANARY.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut texts = vec![CANARY.to_owned(), hex.to_uppercase(), hex, format!("Bearer {CANARY}x;~1")];
        for before in ["", "x", "xy", "xyz", "user:"] {
            for after in ["", "a", "ab"] {
                texts.push(STANDARD.encode(format!("{before}{CANARY}{after}")));
                texts.push(URL_SAFE_NO_PAD.encode(format!("{before}{CANARY}{after}")));
            }
        }
        let lines = |text: &String, with: &str| {
            let lines: Vec<_> = text.as_bytes().chunks(9).map(String::from_utf8_lossy).collect();
            lines.join(with)
        };
        let broken: Vec<_> =
            texts[1..].iter().flat_map(|text| [lines(text, "\n"), lines(text, "\r\n  "), lines(text, "\\n")]).collect();
        texts.extend(broken.into_iter().filter(|text| !text.contains("Bearer")));
        texts.push("canary\\/s\\u00f6ngs+7".to_owned());
        texts.push("canary%2fs%c3%b6ngs%2b7".to_owned());
        for text in texts {
            let text = format!("failed: <{text}>");
            let redacted = redaction.text(&text);
            assert!(redacted.contains("secret:CANARY"), "{text}: {redacted}");
            assert_eq!(redaction.resolve_text(&redacted), text);
        }
        assert_eq!(redaction.text(CANARY), "secret:CANARY");
        assert!(matches!(redaction.text("nothing here"), Cow::Borrowed(_)));
    }

    /// A text that only looks like a place of a secret never gets one.
    #[test]
    fn nobody_can_ask_for_a_secret_by_writing_its_name() {
        let redaction = redaction();
        for text in ["secret:CANARY", "secret::CANARY", "secret:secret:pass", "x secret:pass~1; y", "secret:"] {
            let stored = redaction.text(text);
            assert_ne!(stored, text);
            assert_eq!(redaction.resolve_text(&stored), text, "{stored}");
        }
        let both = redaction.text("secret:hunter22");
        assert_eq!((&*both, &*redaction.resolve_text(&both)), ("secret::secret:pass", "secret:hunter22"));
    }

    #[test]
    fn fields_patterns_and_known_formats_give_way() {
        let redaction = redaction();
        let aws = format!("AKIA{}", "ABCDEFGHIJ234567");
        let value = Value::map([
            ("Api-Key", Value::from("0123")),
            ("password", Value::from(1234)),
            ("known", Value::from("hunter22")),
            ("client_secret", Value::from("hunter22")),
            ("tokens", Value::from(17)),
            ("shoe_size", Value::from(45)),
            ("note", Value::from(format!("badge-1234 opens {aws}."))),
            ("list", Value::List(vec![Value::from("hunter22"), Value::Bytes(b"..hunter22..".to_vec())])),
            ("hunter22", Value::Null),
        ]);
        let expected = Value::map([
            ("Api-Key", Value::from("secret:Api-Key")),
            ("password", Value::from("secret:password")),
            ("known", Value::from("secret:pass")),
            ("client_secret", Value::from("secret:pass")),
            ("tokens", Value::from(17)),
            ("shoe_size", Value::from("secret:shoe_size")),
            ("note", Value::from("secret:badge opens secret:aws-access-key;.")),
            ("list", Value::List(vec![Value::from("secret:pass"), Value::Bytes(b"..secret:pass;..".to_vec())])),
            ("secret:pass", Value::Null),
        ]);
        assert_eq!(redaction.value(&value), expected);
        let back = redaction.resolve(expected);
        assert_eq!(back.field("client_secret"), value.field("client_secret"));
        assert_eq!(back.field("list"), value.field("list"));
        assert_eq!(back.field("Api-Key"), Some(&Value::from("secret:Api-Key")), "nobody knows it: the place stays");
    }

    proptest! {
        /// Whatever the texts: taken out and put back gives the same, and nothing known is left in between.
        #[test]
        fn taking_out_and_putting_back_gives_the_same(
            pieces in prop::collection::vec(
                prop_oneof![
                    Just("hunter22".to_owned()), Just("secret:".to_owned()), Just("pass".to_owned()), Just(";".to_owned()),
                    Just("~1".to_owned()), Just(":".to_owned()), Just(CANARY.to_owned()), "[a-z:;~ é]{0,6}",
                    Just(".1.3".to_owned()), Just("68756e7465".to_owned()), Just("\n".to_owned()), Just("\\n".to_owned()),
                    Just("723232".to_owned()), Just("aHVu".to_owned()), Just("dGVyMjI".to_owned()),
                ],
                0..12,
            ),
        ) {
            let redaction = Redaction::new(
                &RedactionPolicy::none().with_secret("CANARY", CANARY).with_secret("pass", "hunter22"),
            ).unwrap();
            let text = pieces.concat();
            let stored = redaction.text(&text).into_owned();
            prop_assert!(!stored.contains("hunter22") && !stored.contains(CANARY), "{}", stored);
            prop_assert_eq!(redaction.resolve_text(&stored), text);
        }
    }
}
