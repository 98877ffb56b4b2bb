//! A journal of fixed-size records, with deliberate flaws to choose from: its format and its reader,
//! for the victim and for the tests. The good one keeps what it acknowledges; each flaw is one that a
//! harness must find.
//!
//! A record is 1024 bytes: its number, a payload that follows from the number, a checksum.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

pub(crate) const RECORD: usize = 1024;
pub(crate) const MAGIC: &[u8; 16] = b"journal victim 1";

/// What is wrong with the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    None,
    /// Records are never synced.
    NoFsync,
    /// The folder is never synced.
    NoDirsync,
    /// Checksums aren't looked at.
    NoChecksum,
    /// A record is acknowledged before it is written.
    EarlyAck,
    /// A failed sync is taken for a good one.
    IgnoredError,
}

impl Flaw {
    pub(crate) const ALL: [Self; 6] =
        [Self::None, Self::NoFsync, Self::NoDirsync, Self::NoChecksum, Self::EarlyAck, Self::IgnoredError];

    /// How it is asked for on the command line.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::None => "--good",
            Self::NoFsync => "--no-fsync",
            Self::NoDirsync => "--no-dirsync",
            Self::NoChecksum => "--no-checksum",
            Self::EarlyAck => "--early-ack",
            Self::IgnoredError => "--ignored-error",
        }
    }

    /// The flaw that an option asks for.
    pub(crate) fn of_option(option: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flaw| flaw.option() == option)
    }
}

/// What record `number` must hold.
pub(crate) fn record(number: u64) -> [u8; RECORD] {
    let mut text = String::new();
    while text.len() < RECORD {
        write!(text, "record {number} ").expect("a text can always grow");
    }
    let mut bytes = [0; RECORD];
    bytes.copy_from_slice(&text.as_bytes()[..RECORD]);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    let sum = checksum(&bytes[..RECORD - 8]);
    bytes[RECORD - 8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// FNV-1a: a flipped byte always changes it.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Reads all records, oldest first. A bad last one is taken for torn and left out.
pub(crate) fn read(dir: &Path, flaw: Flaw) -> Result<Vec<[u8; RECORD]>, String> {
    let bytes = match fs::read(dir.join("journal")) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let Some(rest) = bytes.strip_prefix(MAGIC) else { return Err("this is not a journal".to_owned()) };
    let (whole, _torn) = rest.as_chunks::<RECORD>();
    let mut records = Vec::new();
    for (place, bytes) in whole.iter().enumerate() {
        let sum = checksum(&bytes[..RECORD - 8]).to_le_bytes();
        if flaw == Flaw::NoChecksum || sum == bytes[RECORD - 8..] {
            records.push(*bytes);
        } else if place + 1 < whole.len() {
            return Err(format!("record {place} is damaged"));
        }
    }
    Ok(records)
}
