//! What can go wrong on the network. No message has a URL in it: its query may be a secret.

use std::net::IpAddr;
use std::time::Duration;

use super::address::Reserved;

/// An error of the network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The URL can't be used.
    #[error("the URL is not valid: {0}")]
    Url(String),

    /// The policy doesn't let this host be reached.
    #[error("the network policy refuses {host}")]
    HostDenied {
        /// The host.
        host: String,
    },

    /// The host has an address that isn't public, and the policy wants public ones.
    #[error("the network policy refuses {host}: {address} is {kind}")]
    AddressRefused {
        /// The host.
        host: String,
        /// Its address.
        address: IpAddr,
        /// What the address is.
        kind: Reserved,
    },

    /// The name has no address.
    #[error("{host} can't be looked up")]
    Lookup {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },

    /// A redirect can't be followed.
    #[error("a redirect is refused: {0}")]
    Redirect(String),

    /// There is no end to the redirects.
    #[error("more than {limit} redirects")]
    TooManyRedirects {
        /// How many there may be.
        limit: usize,
    },

    /// The body is larger than the policy allows, unpacked.
    #[error("the answer has more than {limit} bytes")]
    TooLarge {
        /// How many there may be.
        limit: u64,
    },

    /// It took too long.
    #[error("no answer within {} seconds", after.as_secs_f64())]
    Timeout {
        /// How long it may take.
        after: Duration,
    },

    /// No connection.
    #[error("{host} can't be reached: {reason}")]
    Connect {
        /// The host.
        host: String,
        /// Why.
        reason: String,
    },

    /// The connection broke, or what came over it isn't HTTP.
    #[error("the connection to {host} failed: {reason}")]
    Broken {
        /// The host.
        host: String,
        /// Why.
        reason: String,
    },

    /// The client can't be made.
    #[error("HTTP can't be set up: {0}")]
    Setup(String),
}

impl NetError {
    /// Whether the same request may do better later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Lookup { .. } | Self::Timeout { .. } | Self::Connect { .. } | Self::Broken { .. })
    }

    /// Whether the policy said no.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::HostDenied { .. } | Self::AddressRefused { .. } | Self::Redirect(_))
    }
}
