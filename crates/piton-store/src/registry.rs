//! Choosing a store by URL. Engines never name a concrete store; a shell (CLI, server, binding) fills a
//! [`Registry`] with the drivers that it was built with.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{Store, StoreError};

/// Opens the stores of one URL scheme.
#[async_trait]
pub trait Driver: Send + Sync {
    /// Opens the store at `location`, which is what follows `scheme:` in the URL.
    async fn open(&self, location: &str) -> Result<Arc<dyn Store>, StoreError>;
}

/// A URL as it may be shown: without a password, and without parameters, which may be keys.
pub fn without_secrets(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once(':') else { return Cow::Borrowed(url) };
    // Stores on this machine have paths, in which none of these characters means anything.
    if matches!(scheme, "file" | "memory" | "sqlite") {
        return Cow::Borrowed(url);
    }
    let begin = rest.find(|character| character != '/').unwrap_or(rest.len());
    // A password that wasn't written as URLs want it may have any character in it.
    let user = match rest.rfind('@').filter(|end| *end >= begin) {
        Some(end) => (begin + rest[begin..end].find(':').unwrap_or(end - begin), end),
        None => (begin, begin),
    };
    let host = rest[user.1..].split('?').next().unwrap_or_default();
    Cow::Owned(format!("{scheme}:{}{host}", &rest[..user.0]))
}

/// The stores that can be opened by URL.
///
/// ```
/// # tokio_test(async {
/// use piton_store::Registry;
/// use piton_store_objects::MemoryDriver;
///
/// let store = Registry::default().with("memory", MemoryDriver).open("memory:").await.unwrap();
/// assert!(!store.capabilities().persistent);
/// # });
/// # fn tokio_test(f: impl Future<Output = ()>) { tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(f) }
/// ```
#[derive(Default)]
pub struct Registry {
    drivers: BTreeMap<&'static str, Box<dyn Driver>>,
}

impl Registry {
    /// Adds or replaces the driver of a scheme.
    #[must_use]
    pub fn with(mut self, scheme: &'static str, driver: impl Driver + 'static) -> Self {
        self.drivers.insert(scheme, Box::new(driver));
        self
    }

    /// The schemes that can be opened.
    pub fn schemes(&self) -> impl Iterator<Item = &'static str> {
        self.drivers.keys().copied()
    }

    /// Opens the store that a URL such as `sqlite:/var/lib/piton.db` names.
    pub async fn open(&self, url: &str) -> Result<Arc<dyn Store>, StoreError> {
        let invalid = |detail| StoreError::Invalid { what: format!("store URL {:?}", without_secrets(url)), detail };
        let known = || self.schemes().map(|scheme| format!("{scheme}:")).collect::<Vec<_>>().join(", ");
        let Some((scheme, location)) = url.split_once(':') else {
            return Err(invalid(format!("it must begin with one of {}", known())));
        };
        match self.drivers.get(scheme) {
            Some(driver) => driver.open(location).await,
            None => Err(invalid(format!("{scheme}: is not known here, only {}", known()))),
        }
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.schemes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoDriver;

    #[async_trait]
    impl Driver for NoDriver {
        async fn open(&self, location: &str) -> Result<Arc<dyn Store>, StoreError> {
            Err(StoreError::NotFound { what: location.to_owned() })
        }
    }

    #[tokio::test]
    async fn wrong_urls_say_what_would_be_right() {
        let registry = Registry::default().with("none", NoDriver).with("other", NoDriver);
        for (url, expected) in [
            ("", "must begin with one of none:, other:"),
            ("/tmp/x.db", "must begin with one of none:, other:"),
            ("mongodb://x", "mongodb: is not known here, only none:, other:"),
            ("none:/x", "/x doesn't exist"),
        ] {
            let error = registry.open(url).await.err().expect(url).to_string();
            assert!(error.contains(expected), "{url}: {error}");
        }
    }

    /// No error shows a password, not even of a URL that isn't one.
    #[test]
    fn what_is_shown_has_no_password() {
        for (url, shown) in [
            ("postgres://me:secret@host/x?schema=a", "postgres://me@host/x"),
            ("postgress://me:se@cr/et@host:1/x", "postgress://me@host:1/x"),
            ("redis:me:secret@host", "redis:me@host"),
            ("s3://bucket/x?secret_key=secret", "s3://bucket/x"),
            ("redis://:secret@host", "redis://@host"),
            ("postgres://host/x", "postgres://host/x"),
            ("sqlite:/a:b@c?/x.db", "sqlite:/a:b@c?/x.db"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }
}
