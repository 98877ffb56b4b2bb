//! HTTP for the clients of object stores: TLS by rustls with ring, no redirects, no proxy, every request bounded.

use std::time::Duration;

use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientConfigKey, ClientOptions};
use piton_store::StoreError;
use reqwest::redirect::Policy;

use super::tls;

/// How long to wait for a connection.
const TO_CONNECT: Duration = Duration::from_secs(5);

/// After how long without a byte from the other side a request has failed.
const UNANSWERED: Duration = Duration::from_secs(30);

/// How long a request may take in all: a pack of some megabytes on a slow line.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// Makes clients. All that are made share its connections.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    secure: reqwest::Client,
    plain: reqwest::Client,
}

impl Connector {
    pub(super) fn new() -> Result<Self, StoreError> {
        let failed =
            |error: reqwest::Error| StoreError::Unavailable { detail: format!("HTTP can't be set up: {error}") };
        let build = |secure: bool, tls: rustls::ClientConfig| {
            reqwest::Client::builder()
                .tls_backend_preconfigured(tls)
                .https_only(secure)
                .redirect(Policy::none())
                .no_proxy()
                .connect_timeout(TO_CONNECT)
                .read_timeout(UNANSWERED)
                .timeout(LONGEST)
                .build()
                .map_err(failed)
        };
        let tls = tls::config()?;
        Ok(Self { secure: build(true, tls.clone())?, plain: build(false, tls)? })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let may_be_plain = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        Ok(HttpClient::new(if may_be_plain { self.plain.clone() } else { self.secure.clone() }))
    }
}
