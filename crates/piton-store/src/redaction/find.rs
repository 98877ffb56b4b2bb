//! Where the secrets of a policy are in some bytes.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use piton_types::KnownSecrets;
use regex::bytes::{Regex, RegexBuilder};

use super::entropy::random_words;
use super::policy::{RedactionError, RedactionPolicy};
use super::{MARK, is_name};

/// No pattern may grow beyond this when it is compiled.
const LARGEST_PATTERN: usize = 1 << 20;

/// Keys and tokens that say of themselves what they are.
const FORMATS: [(&str, &str); 14] = [
    (
        "private-key",
        r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----[A-Za-z0-9+/=\s\\nr:,-]{16,}-----END (?:[A-Z]+ )*PRIVATE KEY-----",
    ),
    ("aws-access-key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("github-token", r"\bgh[pousr]_[0-9A-Za-z]{36,}\b"),
    ("github-token", r"\bgithub_pat_[0-9A-Za-z_]{22,}\b"),
    ("gitlab-token", r"\bglpat-[0-9A-Za-z_-]{20,64}\b"),
    ("anthropic-key", r"\bsk-ant-[0-9A-Za-z_-]{20,}\b"),
    ("openai-key", r"\bsk-(?:proj-|svcacct-)?[0-9A-Za-z_-]{20,}\b"),
    ("slack-token", r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}\b"),
    ("google-key", r"\bAIza[0-9A-Za-z_-]{35}\b"),
    ("stripe-key", r"\b[rs]k_(?:live|test)_[0-9A-Za-z]{16,}\b"),
    ("npm-token", r"\bnpm_[0-9A-Za-z]{36}\b"),
    ("pypi-token", r"\bpypi-[0-9A-Za-z_-]{50,}\b"),
    ("jwt", r"\beyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}"),
    ("url-password", r"\b[a-z][a-z0-9+.-]{1,20}://[!-~&&[^/:@]]{1,64}:([!-~&&[^/:@]]{3,128})@"),
];

/// How a secret was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    /// The caller knows it.
    Value,
    /// A pattern of the policy.
    Pattern,
    /// A well-known format.
    Format,
    /// It looks random. A guess.
    Entropy,
}

/// Something secret, or that looks like it. Never its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is called.
    pub name: String,
    /// How it was found.
    pub by: FoundBy,
    /// Where it begins.
    pub offset: usize,
    /// How long it is.
    pub length: usize,
}

/// Something to be replaced.
pub(super) struct Found<'a> {
    pub(super) range: Range<usize>,
    pub(super) name: &'a str,
    pub(super) form: usize,
    /// Of a known secret: where its pieces are, and which part of the form each is.
    pub(super) pieces: Vec<(Range<usize>, Range<usize>)>,
    by: FoundBy,
}

pub(super) struct Finder {
    pub(super) known: KnownSecrets,
    patterns: Vec<(String, FoundBy, Regex)>,
    names: HashSet<String>,
    entropy: bool,
}

impl Finder {
    pub(super) fn new(policy: &RedactionPolicy) -> Result<Self, RedactionError> {
        let secrets = policy.secrets.iter().map(|(name, secret)| (name.clone(), secret.as_str()));
        let known = KnownSecrets::new(secrets).map_err(|detail| RedactionError::TooMany { detail })?;
        let own = policy.patterns.iter().map(|(name, pattern)| (name.as_str(), FoundBy::Pattern, pattern.as_str()));
        let formats =
            FORMATS.iter().filter(|_| policy.formats).map(|(name, pattern)| (*name, FoundBy::Format, *pattern));
        let compile = |(name, by, pattern): (&str, FoundBy, &str)| {
            let regex = RegexBuilder::new(pattern).size_limit(LARGEST_PATTERN).build();
            let regex = regex.map_err(|source| RedactionError::Pattern { name: name.to_owned(), source })?;
            Ok((name.to_owned(), by, regex))
        };
        let patterns = own.chain(formats).map(compile).collect::<Result<_, _>>()?;
        let names = policy.names.iter().map(|name| plain(name)).collect();
        Ok(Self { known, patterns, names, entropy: policy.entropy })
    }

    /// What to replace, in order and without overlaps. Known secrets come before patterns.
    pub(super) fn find(&self, bytes: &[u8]) -> Vec<Found<'_>> {
        let mut found: Vec<Found<'_>> = Vec::new();
        for place in self.known.find(bytes) {
            let (range, name, form) = (place.range(), self.known.name(place.secret), place.form);
            found.push(Found { range, name, form, pieces: place.pieces, by: FoundBy::Value });
        }
        for (name, by, regex) in &self.patterns {
            for hit in regex.captures_iter(bytes) {
                // The secret itself, if the pattern says which part that is.
                let hit = hit.get(1).or_else(|| hit.get(0)).expect("a match has a whole");
                let range = hit.range();
                if !range.is_empty() && std::str::from_utf8(hit.as_bytes()).is_ok() {
                    let pieces = vec![(range.clone(), 0..range.len())];
                    found.push(Found { range, name, form: 0, pieces, by: *by });
                }
            }
        }
        // A known secret inside a match is the part that can be put back; the rest of the match isn't one then.
        found.sort_by_key(|found| (found.by != FoundBy::Value, found.range.start, std::cmp::Reverse(found.range.end)));
        let mut kept: BTreeMap<usize, Found<'_>> = BTreeMap::new();
        for one in found {
            let before = kept.range(..one.range.end).next_back();
            if before.is_none_or(|(_, other)| other.range.end <= one.range.start) {
                kept.insert(one.range.start, one);
            }
        }
        kept.into_values().collect()
    }

    /// The name for what a field of this name holds, if that is secret.
    pub(super) fn named(&self, key: &str) -> Option<String> {
        self.names.contains(&plain(key)).then(|| {
            let kept: String = key.chars().filter(|c| c.is_ascii() && is_name(*c as u8)).collect();
            if kept.is_empty() { "field".to_owned() } else { kept }
        })
    }

    /// Says that something looks random, without showing it.
    pub(super) fn warn(&self, bytes: &[u8]) {
        if self.entropy
            && let Some(range) = random_words(bytes).next()
            && self.find(bytes).is_empty()
        {
            tracing::warn!(length = range.len(), "a text that looks like a secret is stored as it is");
        }
    }

    pub(super) fn findings(&self, bytes: &[u8]) -> Vec<Finding> {
        let place = |name: &str, by, range: Range<usize>| Finding {
            name: name.to_owned(),
            by,
            offset: range.start,
            length: range.len(),
        };
        let found = self.find(bytes);
        let mut findings: Vec<_> = found.iter().map(|found| place(found.name, found.by, found.range.clone())).collect();
        if self.entropy {
            for word in random_words(bytes) {
                let known = found.iter().any(|found| found.range.start < word.end && word.start < found.range.end);
                if !known && !bytes[..word.start].ends_with(MARK.as_bytes()) {
                    findings.push(place("random", FoundBy::Entropy, word));
                }
            }
        }
        findings.sort_by_key(|finding| finding.offset);
        findings
    }
}

/// A name without case and separators.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_' | ' ' | '.')).flat_map(char::to_lowercase).collect()
}
