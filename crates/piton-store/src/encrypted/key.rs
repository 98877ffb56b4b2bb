//! Keys as people have them: a file with random bytes, or a passphrase. Either only wraps the key that the
//! store is encrypted with, so it can be changed without touching a record.

use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use piton_types::Random;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::cipher::{self, DataKey};
use crate::StoreError;

/// What a key file begins with.
const MARK: &str = "PITON-KEY-1-";

/// No key file is longer.
const LONGEST: u64 = 4096;

/// How much work a guess at a passphrase takes: 64 MiB, three passes.
const WORK: Work = Work { memory: 64 << 10, passes: 3 };

/// More than this is not asked of us by any store that we made.
const MOST: Work = Work { memory: 1 << 20, passes: 16 };

/// A key that opens a store. It doesn't print, and is wiped when it goes.
pub struct Key(Kind);

enum Kind {
    Random(Zeroizing<[u8; 32]>),
    Passphrase { bytes: Zeroizing<Vec<u8>>, work: Work },
}

/// How hard a passphrase is made to guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    /// KiB.
    memory: u32,
    passes: u32,
}

impl Key {
    /// A new random key. `random` must be unpredictable.
    pub fn generate(random: &dyn Random) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        random.fill(&mut *bytes);
        Self(Kind::Random(bytes))
    }

    /// A passphrase: these very bytes, whatever their encoding. An empty one is `Invalid`.
    pub fn passphrase(bytes: impl Into<Vec<u8>>) -> Result<Self, StoreError> {
        let bytes = Zeroizing::new(bytes.into());
        match bytes.is_empty() {
            false => Ok(Self(Kind::Passphrase { bytes, work: WORK })),
            true => Err(invalid("the passphrase", "it is empty")),
        }
    }

    /// A passphrase that is quick to guess, for tests.
    #[doc(hidden)]
    pub fn weak_passphrase(bytes: &[u8]) -> Self {
        let work = Work { memory: 8, passes: 1 };
        Self(Kind::Passphrase { bytes: Zeroizing::new(bytes.to_vec()), work })
    }

    /// The text of a key file. `None` for a passphrase, which belongs into no file.
    pub fn to_text(&self) -> Option<Zeroizing<String>> {
        match &self.0 {
            Kind::Random(bytes) => Some(Zeroizing::new(format!("{MARK}{}\n", URL_SAFE_NO_PAD.encode(**bytes)))),
            Kind::Passphrase { .. } => None,
        }
    }

    /// Reads what [`to_text`](Self::to_text) gave.
    pub fn from_text(text: &[u8]) -> Result<Self, StoreError> {
        let wrong = || invalid("the key", "a key is one line that begins with PITON-KEY-1-");
        let line = text.trim_ascii().strip_prefix(MARK.as_bytes()).ok_or_else(wrong)?;
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(line).map_err(|_| wrong())?);
        let bytes = <[u8; 32]>::try_from(&bytes[..]).map_err(|_| wrong())?;
        Ok(Self(Kind::Random(Zeroizing::new(bytes))))
    }

    /// Reads a key file. One that other users may read, or that belongs to another user, is `Denied`.
    pub fn read_file(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        use std::io::Read as _;
        let path = path.as_ref();
        let failed = |error: std::io::Error| StoreError::from_io(&error, path);
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("flags of open(2) are ints");
        let file = std::fs::File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let data = file.metadata().map_err(failed)?;
        let what = path.display().to_string();
        if !data.is_file() {
            return Err(invalid(&what, "a key is read from a regular file"));
        }
        let us = rustix::process::geteuid().as_raw();
        if data.mode() & 0o077 != 0 || ![us, 0].contains(&data.uid()) {
            let detail = format!(
                "a key file must be its owner's alone (mode 600); this one is user {}'s and has mode {:o}",
                data.uid(),
                data.mode() & 0o777
            );
            return Err(StoreError::Denied { what, detail });
        }
        let mut text = Zeroizing::new(Vec::new());
        file.take(LONGEST).read_to_end(&mut text).map_err(failed)?;
        Self::from_text(&text).map_err(|error| match error {
            StoreError::Invalid { detail, .. } => StoreError::Invalid { what, detail },
            other => other,
        })
    }

    /// Writes the key to a new file, readable by its owner only. One that is there is left alone.
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<(), StoreError> {
        use std::io::Write as _;
        let path = path.as_ref();
        let text = self.to_text().ok_or_else(|| invalid("a passphrase", "it is not kept in a file"))?;
        let file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => invalid(&path.display().to_string(), "there is a file already"),
            _ => StoreError::from_io(&error, path),
        })
    }

    /// Wraps a store's key.
    pub(crate) fn wrap(&self, data: &DataKey, store: &[u8; 16], random: &dyn Random) -> Result<Wrapped, StoreError> {
        let mut salt = [0; 16];
        random.fill(&mut salt);
        let (passphrase, work) = match &self.0 {
            Kind::Random(_) => (false, None),
            Kind::Passphrase { work, .. } => (true, Some(*work)),
        };
        let sealed = cipher::seal(&*self.wrapping(&salt, work)?, random, &bound(store), &**data);
        Ok(Wrapped { passphrase, salt: hex(&salt), work, sealed })
    }

    /// The store's key, if this key wrapped it.
    pub(crate) fn unwrap(&self, wrapped: &Wrapped, store: &[u8; 16]) -> Result<DataKey, StoreError> {
        let locked = |detail: &str| StoreError::Locked { what: "the store".to_owned(), detail: detail.to_owned() };
        match (&self.0, wrapped.passphrase) {
            (Kind::Random(_), true) => return Err(locked("it is opened by a passphrase, and a key file was given")),
            (Kind::Passphrase { .. }, false) => {
                return Err(locked("it is opened by a key file, and a passphrase was given"));
            }
            _ => {}
        }
        let salt =
            unhex(&wrapped.salt).ok_or_else(|| StoreError::corrupt("the store's key ring", "its salt is wrong"))?;
        let plain = cipher::open(&*self.wrapping(&salt, wrapped.work)?, &bound(store), wrapped.sealed.clone());
        let plain = plain.map(|plain| Zeroizing::new(plain.to_vec())).ok_or_else(|| match self.0 {
            Kind::Random(_) => locked("this key doesn't open it"),
            Kind::Passphrase { .. } => locked("this passphrase doesn't open it"),
        })?;
        let data = <[u8; 32]>::try_from(&plain[..]);
        data.map(Zeroizing::new).map_err(|_| StoreError::corrupt("the store's key ring", "its key has a wrong length"))
    }

    fn wrapping(&self, salt: &[u8; 16], work: Option<Work>) -> Result<DataKey, StoreError> {
        let mut wrapping = Zeroizing::new([0; 32]);
        match &self.0 {
            Kind::Random(bytes) => {
                let material = Zeroizing::new([&bytes[..], salt].concat());
                *wrapping = blake3::derive_key("piton 1 key file that wraps a store's key", &material);
            }
            Kind::Passphrase { bytes, .. } => {
                let wrong = |detail: &str| StoreError::corrupt("the store's key ring", detail);
                let work = work.filter(|work| work.memory <= MOST.memory && work.passes <= MOST.passes);
                let work = work.ok_or_else(|| wrong("its parameters are not ours"))?;
                let params = argon2::Params::new(work.memory, work.passes, 1, Some(32));
                let params = params.map_err(|error| wrong(&error.to_string()))?;
                argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params)
                    .hash_password_into(bytes, salt, &mut *wrapping)
                    .map_err(|error| invalid("the passphrase", &error.to_string()))?;
            }
        }
        Ok(wrapping)
    }
}

/// A store's key as it stands in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Wrapped {
    passphrase: bool,
    salt: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    work: Option<Work>,
    #[serde(with = "crate::checked::base64")]
    sealed: bytes::Bytes,
}

fn bound(store: &[u8; 16]) -> Vec<u8> {
    [b"piton key ring", &store[..]].concat()
}

/// Sixteen bytes from their digits.
pub(crate) fn unhex(text: &str) -> Option<[u8; 16]> {
    let mut out = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (place, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(out)
}

/// The digits of sixteen bytes.
pub(crate) fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn invalid(what: &str, detail: &str) -> StoreError {
    StoreError::Invalid { what: what.to_owned(), detail: detail.to_owned() }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Kind::Random(_) => "Key(file)",
            Kind::Passphrase { .. } => "Key(passphrase)",
        })
    }
}
