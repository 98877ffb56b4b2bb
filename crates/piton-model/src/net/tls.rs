//! TLS by rustls with ring, trusting the system's authorities. Nothing process-wide is installed.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use super::error::NetError;

pub(super) fn config(roots: &[Vec<u8>]) -> Result<ClientConfig, NetError> {
    let setup = |error: rustls::Error| NetError::Setup(error.to_string());
    let mut store = RootCertStore::empty();
    // A machine without authorities can still speak HTTP; HTTPS fails there with an unknown issuer.
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for root in roots {
        store.add(CertificateDer::from(root.clone())).map_err(setup)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(setup)?;
    Ok(builder.with_root_certificates(store).with_no_client_auth())
}
