//! Ids. Each is a newtype, parsed strictly: a value of these types is safe as a file name, as a key
//! of any store, and in a terminal.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Random, Timestamp};

/// Crockford's alphabet in lower case: no `i`, `l`, `o`, `u`, and it sorts as its bits do.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {text:?} is not valid: {reason}")]
pub struct InvalidId {
    /// Which id was wanted, as in "run id".
    pub kind: &'static str,
    /// The offending text, cut to 80 characters.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl InvalidId {
    fn new(kind: &'static str, text: &str, reason: &'static str) -> Self {
        Self { kind, text: text.chars().take(80).collect(), reason }
    }
}

/// The name of a run: chosen by the user, or generated.
///
/// 1 to 64 characters from `A-Z a-z 0-9 . _ -`, the first a letter or digit. That leaves `@`, `/` and
/// `~` free for references such as `RUN@7`.
///
/// ```
/// use piton_types::RunId;
/// assert!("nightly-2026-11-15".parse::<RunId>().is_ok());
/// assert!("../../etc/passwd".parse::<RunId>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(Arc<str>);

impl RunId {
    /// The longest id, in bytes.
    pub const MAX_LEN: usize = 64;

    /// A new id: 40 random bits, 48 bits of time in milliseconds, 40 random bits, as 26 characters. What is random comes
    /// first, so that a few characters tell runs of the same day apart.
    pub fn generate(at: Timestamp, random: &dyn Random) -> Self {
        let mut whole = [0_u8; 16];
        random.fill(&mut whole);
        whole[5..11].copy_from_slice(&at.as_millis().max(0).cast_unsigned().to_be_bytes()[2..]);
        let bits = u128::from_be_bytes(whole);
        let text: String = (0..26)
            .rev()
            .map(|place| char::from(ALPHABET[usize::try_from((bits >> (place * 5)) & 31).expect("five bits")]))
            .collect();
        Self(text.into())
    }

    /// Whether it looks as if it was generated, and not chosen.
    pub fn is_generated(&self) -> bool {
        self.0.len() == 26 && self.0.bytes().all(|byte| ALPHABET.contains(&byte))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// An id for a name that may hold anything (an embedder's own workflow id): the name itself if it
    /// is a valid id, else `x.` and the first 40 hex digits of `digest`, which the caller computes
    /// over the name.
    pub fn for_foreign(name: &str, digest: impl FnOnce(&[u8]) -> [u8; 32]) -> Self {
        match name.parse() {
            Ok(id) if !name.starts_with("x.") => id,
            _ => Self(format!("x.{}", hex(&digest(name.as_bytes())[..20])).into()),
        }
    }
}

impl FromStr for RunId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let fail = |reason| Err(InvalidId::new("run id", text, reason));
        let Some(first) = text.bytes().next() else { return fail("it is empty") };
        if text.len() > Self::MAX_LEN {
            return fail("it is longer than 64 bytes");
        }
        if !first.is_ascii_alphanumeric() {
            return fail("it must start with a letter or a digit");
        }
        if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
            return fail("only letters, digits, '.', '_' and '-' are allowed");
        }
        Ok(Self(text.into()))
    }
}

/// The place of a step in its run: names joined by `/`, the n-th use of a name marked `#n`.
///
/// ```
/// use piton_types::StepPath;
/// assert!("research/fetch#3".parse::<StepPath>().is_ok());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StepPath(Arc<str>);

impl StepPath {
    /// The longest path, in bytes.
    pub const MAX_LEN: usize = 512;

    /// The path as shared text, for a caller that keeps it as a key.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StepPath {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let fail = |reason| Err(InvalidId::new("step path", text, reason));
        if text.len() > Self::MAX_LEN {
            return fail("it is longer than 512 bytes");
        }
        if text.split('/').any(str::is_empty) {
            return fail("a name in it is empty");
        }
        if text.chars().any(char::is_control) {
            return fail("control characters are not allowed");
        }
        Ok(Self(text.into()))
    }
}

macro_rules! text_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.as_str().to_owned()
            }
        }
    };
}

text_id!(RunId);
text_id!(StepPath);

macro_rules! hash_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// The id with these bytes.
            pub const fn new(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The 32 bytes of the id.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), &hex(&self.0[..6]))
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                unhex(text).map(Self).ok_or_else(|| InvalidId::new($kind, text, "64 lower-case hex digits are wanted"))
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&hex(&self.0))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hash_id! {
    /// The name of a blob: the BLAKE3 hash of its bytes (keyed in an encrypted store).
    BlobId, "blob id"
}

hash_id! {
    /// The name of a pack: the hash of its bytes, as blobs are hashed.
    PackId, "pack id"
}

hash_id! {
    /// The hash of a log entry. It covers the run, the sequence number, the parent's hash and the
    /// content, so an entry that is changed, moved or swapped no longer fits.
    EntryHash, "entry hash"
}

impl EntryHash {
    /// The parent of a run's first entry.
    pub const ROOT: Self = Self([0; 32]);
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = Vec::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    String::from_utf8(text).expect("digits are ASCII")
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != 64 {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl $name {
            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The place of an entry in its run's log, counted from 0.
    Seq(u32)
}

number! {
    /// The fencing number of a lease. A process that takes a run over writes a higher one; an entry with a
    /// lower one than the head's is refused.
    Fence(u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u8);
    impl Random for Fixed {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    /// Promise 22: what a user may try to smuggle in through an id.
    #[test]
    fn hostile_run_ids_are_refused() {
        let long = "a".repeat(300);
        for hostile in [
            "",
            ".",
            "..",
            "../../x",
            "a/b",
            "a\0b",
            "a\nb",
            "'; DROP TABLE runs; --",
            "*",
            "-rf",
            "<script>",
            "a b",
            "run@1",
            "~",
            "ü",
            "a:b",
            &long,
        ] {
            assert!(hostile.parse::<RunId>().is_err(), "{hostile:?} was accepted");
        }
    }

    #[test]
    fn generated_ids_are_valid_and_differ_in_their_first_characters() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let (one, other) = (RunId::generate(at, &Fixed(255)), RunId::generate(at, &Fixed(1)));
        assert_ne!(one.as_str()[..2], other.as_str()[..2]);
        assert_ne!(one, RunId::generate(Timestamp::from_millis(1_700_000_000_001), &Fixed(255)));
        assert_eq!(one.as_str().len(), 26);
        assert_eq!(one.as_str().parse(), Ok(one.clone()));
        assert!(one.is_generated() && !"nightly".parse::<RunId>().unwrap().is_generated());
    }

    #[test]
    fn foreign_names_become_valid_ids_that_cannot_be_forged() {
        let digest = |bytes: &[u8]| [u8::try_from(bytes.len()).unwrap(); 32];
        assert_eq!(RunId::for_foreign("plain", digest).as_str(), "plain");
        let id = RunId::for_foreign("../../x", digest);
        assert!(id.as_str().parse::<RunId>().is_ok());
        assert_ne!(RunId::for_foreign(id.as_str(), digest), id, "a name in the escaped form is escaped again");
    }

    #[test]
    fn hashes_parse_what_they_print_and_nothing_else() {
        let id = BlobId::new([0xa5; 32]);
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "a5", &"A5".repeat(32), &"g5".repeat(32)] {
            assert!(bad.parse::<BlobId>().is_err());
        }
    }

    #[test]
    fn step_paths() {
        for good in ["fetch", "a/b#2", "Über/ß"] {
            assert!(good.parse::<StepPath>().is_ok());
        }
        for bad in ["", "/", "a//b", "a\n", &"x".repeat(513)] {
            assert!(bad.parse::<StepPath>().is_err());
        }
    }
}
