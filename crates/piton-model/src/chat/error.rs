//! What can go wrong with a model. No message has the key in it.

use std::time::Duration;

use crate::net::NetError;

/// An error of a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The network, or what the policy says of it.
    #[error(transparent)]
    Net(#[from] NetError),

    /// Too many requests, or too many tokens.
    #[error("the provider is limiting requests (429): {message}")]
    RateLimited {
        /// When to ask again, if the provider said it in seconds.
        retry_after: Option<Duration>,
        /// What the provider says.
        message: String,
    },

    /// The provider refused or failed.
    #[error("the provider answered {status}: {message}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// What the provider says.
        message: String,
    },

    /// The provider failed in the middle of its answer.
    #[error("the provider broke off: {message}")]
    Failed {
        /// What the provider says.
        message: String,
    },

    /// The connection ended before the answer did.
    #[error("the connection ended before the answer did")]
    Closed,

    /// The answer isn't what the wire format says.
    #[error("the answer can't be read: {0}")]
    Malformed(String),

    /// The request can't be put into the wire format.
    #[error("the request can't be sent: {0}")]
    Request(String),
}

impl ChatError {
    /// Whether the same request may do better later.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Net(error) => error.is_retryable(),
            Self::RateLimited { .. } | Self::Failed { .. } | Self::Closed => true,
            Self::Status { status, .. } => *status >= 500 || *status == 408,
            _ => false,
        }
    }

    /// When to ask again, if the provider said.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
