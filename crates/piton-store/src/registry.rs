//! Choosing a store by URL. Engines never name a concrete store; a shell (CLI, server, binding) fills a
//! [`Registry`] with the drivers that it was built with.

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
        let invalid = |detail| StoreError::Invalid { what: format!("store URL {url:?}"), detail };
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
}
