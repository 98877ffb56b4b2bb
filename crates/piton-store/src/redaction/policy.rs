//! What counts as a secret.

use piton_types::SHORTEST_SECRET;
use zeroize::Zeroizing;

use super::is_name;

/// Names of fields that hold secrets, without case and separators.
const NAMES: [&str; 22] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "clientsecret",
    "apikey",
    "xapikey",
    "accesskey",
    "secretkey",
    "secretaccesskey",
    "privatekey",
    "authtoken",
    "accesstoken",
    "refreshtoken",
    "idtoken",
    "sessiontoken",
    "bearertoken",
    "authorization",
    "proxyauthorization",
    "cookie",
    "setcookie",
    "credential",
];

/// What counts as a secret: values that are known by name, names of fields, patterns, well-known formats.
///
/// ```
/// use piton_store::{Redaction, RedactionPolicy};
///
/// let policy = RedactionPolicy::default().with_secret("DB_PASSWORD", "correct horse");
/// let redaction = Redaction::new(&policy).unwrap();
/// assert_eq!(redaction.text("login with correct horse"), "login with secret:DB_PASSWORD");
/// assert_eq!(redaction.resolve_text("login with secret:DB_PASSWORD"), "login with correct horse");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedactionPolicy {
    /// Known secrets by name.
    pub(super) secrets: Vec<(String, Zeroizing<String>)>,
    /// Names of fields whose values are secret; case, `-` and `_` don't count.
    pub names: Vec<String>,
    /// Patterns (regular expressions), each with the name that stands for what it matches.
    pub patterns: Vec<(String, String)>,
    /// Whether keys and tokens of well-known services are found by their format.
    pub formats: bool,
    /// Whether texts that look random are warned of. They are stored all the same.
    pub entropy: bool,
    /// What becomes of files with secrets in them.
    pub files: SecretFiles,
}

/// What becomes of files in which a secret is found: their bytes are never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SecretFiles {
    /// They aren't looked at.
    Capture,
    /// Those whose names say that they may hold secrets, such as `.env`, are looked at, captured, and named in what a save
    /// returns.
    Likely,
    /// They are captured, and named in what a save returns.
    #[default]
    Report,
    /// They are left out, and listed as such.
    Exclude,
}

/// What is wrong with a policy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedactionError {
    /// It can't be told from ordinary text.
    #[error("the secret {name:?} is shorter than {SHORTEST_SECRET} bytes")]
    TooShort {
        /// Its name.
        name: String,
    },
    /// It can't stand in a text.
    #[error("{name:?} is not a name for a secret: letters, digits, `.`, `_` and `-` are")]
    Name {
        /// The name.
        name: String,
    },
    /// It isn't a regular expression, or too large a one.
    #[error("the pattern {name:?} can't be used")]
    Pattern {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: regex::Error,
    },
    /// There are too many secrets to look for.
    #[error("the secrets can't be searched for: {detail}")]
    TooMany {
        /// Why.
        detail: String,
    },
}

impl Default for RedactionPolicy {
    /// Names of fields, well-known formats, and warnings.
    fn default() -> Self {
        Self {
            secrets: Vec::new(),
            names: NAMES.map(str::to_owned).to_vec(),
            patterns: Vec::new(),
            formats: true,
            entropy: true,
            files: SecretFiles::default(),
        }
    }
}

impl RedactionPolicy {
    /// Nothing but what is added.
    pub fn none() -> Self {
        Self { names: Vec::new(), formats: false, entropy: false, ..Self::default() }
    }

    /// A secret that the caller knows, and will know again when the run is resumed.
    #[must_use]
    pub fn with_secret(mut self, name: impl Into<String>, secret: impl Into<String>) -> Self {
        self.secrets.push((name.into(), Zeroizing::new(secret.into())));
        self
    }

    /// A name of fields that hold secrets.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// A pattern, and the name for what it matches.
    #[must_use]
    pub fn with_pattern(mut self, name: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.patterns.push((name.into(), pattern.into()));
        self
    }

    /// What becomes of files with secrets in them.
    #[must_use]
    pub fn with_files(mut self, files: SecretFiles) -> Self {
        self.files = files;
        self
    }

    pub(super) fn check(&self) -> Result<(), RedactionError> {
        let names = self.secrets.iter().map(|(name, _)| name).chain(self.patterns.iter().map(|(name, _)| name));
        if let Some(wrong) = names.into_iter().find(|name| name.is_empty() || !name.bytes().all(is_name)) {
            return Err(RedactionError::Name { name: wrong.clone() });
        }
        match self.secrets.iter().find(|(_, secret)| secret.len() < SHORTEST_SECRET) {
            Some((name, _)) => Err(RedactionError::TooShort { name: name.clone() }),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for RedactionPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secrets: Vec<_> = self.secrets.iter().map(|(name, _)| name).collect();
        f.debug_struct("RedactionPolicy").field("secrets", &secrets).finish_non_exhaustive()
    }
}
