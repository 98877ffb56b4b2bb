//! TLS to the server: the certificate and the name in it are always checked.

use std::path::Path;
use std::sync::Arc;

use piton_store::StoreError;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// A configuration that trusts the authorities of the system, or those of a file.
pub(crate) fn config(roots: Option<&Path>) -> Result<ClientConfig, StoreError> {
    let mut store = RootCertStore::empty();
    match roots {
        Some(path) => {
            let unreadable = |detail: String| StoreError::Invalid { what: path.display().to_string(), detail };
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|error| unreadable(error.to_string()))?.collect::<Vec<_>>();
            for certificate in certificates {
                let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
                store.add(certificate).map_err(|error| unreadable(error.to_string()))?;
            }
            if store.is_empty() {
                return Err(unreadable("it has no certificate".to_owned()));
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::Unavailable { detail: format!("TLS can't be set up: {error}") })?;
    Ok(builder.with_root_certificates(store).with_no_client_auth())
}
