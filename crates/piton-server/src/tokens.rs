//! Who may do what: a token for each role, cookies that are sealed with it, and a code that signs a browser in once.
//!
//! The tokens are files that only their owner can read. A cookie is the role and when it ends, under a key that is derived
//! from the role's token: the server keeps no list of those who signed in, so they stay signed in when it is started
//! again, and a token that is deleted makes its cookies void. Tokens and seals are compared by their hashes, which takes
//! equally long whatever they are.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use piton_app::Failure;
use piton_app::place::private;

/// How long a browser stays signed in.
pub(crate) const SIGNED_IN: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How long a code can be used.
const CODE: Duration = Duration::from_secs(10 * 60);
/// What the key of cookies is derived for.
const COOKIES: &str = "piton 2026 cookies of the server";

/// What may be done. Each role may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looking.
    Look,
    /// Answering questions, too.
    Answer,
    /// Everything.
    Operate,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Look, Self::Answer, Self::Operate];

    /// In a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Answer => "answer",
            Self::Operate => "operate",
        }
    }

    /// The role of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// The tokens, and the codes that weren't used yet.
pub struct Tokens {
    tokens: [String; 3],
    codes: Mutex<HashMap<blake3::Hash, (Role, Instant)>>,
}

impl Tokens {
    /// Reads the tokens in a folder of the user's, and makes those that aren't there.
    ///
    /// # Errors
    ///
    /// If a file can't be read or written, or others than its owner can read it.
    pub fn of(folder: &Path) -> Result<Self, Failure> {
        private::create(folder)?;
        let [look, answer, operate] = Role::ALL.map(|role| token(&file(folder, role), role));
        Ok(Self { tokens: [look?, answer?, operate?], codes: Mutex::default() })
    }

    /// The role of a token.
    pub(crate) fn role_of(&self, token: &str) -> Option<Role> {
        let given = blake3::hash(token.as_bytes());
        let is_it = |role: &Role| blake3::hash(self.tokens[*role as usize].as_bytes()) == given;
        Role::ALL.into_iter().rev().find(is_it)
    }

    /// A cookie for a role, from now on.
    pub(crate) fn cookie(&self, role: Role) -> String {
        let until = seconds(SystemTime::now() + SIGNED_IN);
        format!("{}.{until}.{}", role.as_str(), self.seal(role, until).to_hex())
    }

    /// The role of a cookie that is whole and hasn't ended.
    pub(crate) fn role_of_cookie(&self, cookie: &str) -> Option<Role> {
        let mut parts = cookie.splitn(3, '.');
        let (role, until, seal) = (Role::named(parts.next()?)?, parts.next()?.parse().ok()?, parts.next()?);
        let seal = blake3::Hash::from_hex(seal).ok()?;
        (self.seal(role, until) == seal && until > seconds(SystemTime::now())).then_some(role)
    }

    fn seal(&self, role: Role, until: u64) -> blake3::Hash {
        let key = blake3::derive_key(COOKIES, self.tokens[role as usize].as_bytes());
        blake3::keyed_hash(&key, format!("{}.{until}", role.as_str()).as_bytes())
    }

    /// A code that signs one browser in.
    pub(crate) fn code(&self, role: Role) -> Result<String, Failure> {
        let code = secret()?;
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, (_, made)| made.elapsed() < CODE);
        codes.insert(blake3::hash(code.as_bytes()), (role, Instant::now()));
        Ok(code)
    }

    /// The role of a code, which can't be used again.
    pub(crate) fn redeem(&self, code: &str) -> Option<Role> {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let (role, made) = codes.remove(&blake3::hash(code.as_bytes()))?;
        (made.elapsed() < CODE).then_some(role)
    }
}

/// The file of a role's token.
pub(crate) fn file(folder: &Path, role: Role) -> PathBuf {
    folder.join(format!("{}.token", role.as_str()))
}

fn token(path: &Path, role: Role) -> Result<String, Failure> {
    let shown = path.display();
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let token = format!("piton_{}_{}", role.as_str(), secret()?);
            private::write(path, format!("{token}\n").as_bytes()).map_err(|error| private::cant_write(path, &error))?;
            return Ok(token);
        }
        Ok(data) if !data.is_file() || data.mode() & 0o077 != 0 => {
            return Err(Failure::refused(format!("{shown} isn't a file that only you can read")).hint(format!(
                "if others may have read it, delete it and a new token is made; else `chmod 600 {shown}`."
            )));
        }
        _ => {}
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::fixable(format!("can't read {shown}")).because(&error))?;
    match text.trim() {
        token if token.len() >= 32 => Ok(token.to_owned()),
        _ => Err(Failure::refused(format!("{shown} has no token of at least 32 characters"))
            .hint("delete it, and a new one is made.")),
    }
}

/// 256 bits that nobody knows.
fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::fixable("the system gives no random numbers").because(&error))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Promise 28: the tokens are for their owner only, and are the same the next time.
    #[test]
    fn tokens_are_made_once_for_their_owner_only() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("server");
        let (first, again) = (Tokens::of(&folder).unwrap(), Tokens::of(&folder).unwrap());
        assert_eq!(first.tokens, again.tokens);
        for role in Role::ALL {
            assert_eq!(file(&folder, role).metadata().unwrap().mode() & 0o777, 0o600);
            assert_eq!(again.role_of(&first.tokens[role as usize]), Some(role));
        }
        assert_eq!(first.role_of(""), None);
        assert_eq!(first.role_of("piton_operate_"), None);
        std::fs::set_permissions(file(&folder, Role::Look), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Tokens::of(&folder).is_err(), "one that others can read is no secret");
    }

    #[test]
    fn cookies_outlive_the_server_and_end_with_their_token() {
        let root = tempfile::tempdir().unwrap();
        let tokens = Tokens::of(root.path()).unwrap();
        let cookie = tokens.cookie(Role::Answer);
        assert_eq!(Tokens::of(root.path()).unwrap().role_of_cookie(&cookie), Some(Role::Answer));
        let raised = cookie.replace("answer", "operate");
        let (role, rest) = cookie.split_once('.').unwrap();
        let (until, seal) = rest.split_once('.').unwrap();
        let longer = format!("{role}.{}.{seal}", until.parse::<u64>().unwrap() + 1);
        for wrong in [&*raised, &*longer, "", "answer", "answer.1", "answer.x.y", "answer.1.00"] {
            assert_eq!(tokens.role_of_cookie(wrong), None, "{wrong}");
        }
        std::fs::remove_file(file(root.path(), Role::Answer)).unwrap();
        assert_eq!(Tokens::of(root.path()).unwrap().role_of_cookie(&cookie), None);
    }

    #[test]
    fn a_code_is_used_once() {
        let root = tempfile::tempdir().unwrap();
        let tokens = Tokens::of(root.path()).unwrap();
        let code = tokens.code(Role::Operate).unwrap();
        assert_eq!(tokens.redeem("x"), None);
        assert_eq!(tokens.redeem(&code), Some(Role::Operate));
        assert_eq!(tokens.redeem(&code), None);
    }
}
