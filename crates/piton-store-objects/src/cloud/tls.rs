//! TLS that trusts the system's authorities. Nothing process-wide is installed.

use std::sync::Arc;

use piton_store::StoreError;
use rustls::{ClientConfig, RootCertStore};

pub(crate) fn config() -> Result<ClientConfig, StoreError> {
    let mut store = RootCertStore::empty();
    // A machine without authorities can still speak HTTP to itself; HTTPS fails there with an unknown issuer.
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::Unavailable { detail: format!("TLS can't be set up: {error}") })?;
    Ok(builder.with_root_certificates(store).with_no_client_auth())
}
