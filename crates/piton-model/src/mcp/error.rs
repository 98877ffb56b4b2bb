//! What can go wrong with an MCP server.

use std::time::Duration;

use crate::net::NetError;

/// An error of an MCP server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// Its program can't be started.
    #[error("the MCP server {command:?} can't be started")]
    Start {
        /// The program.
        command: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It doesn't speak MCP with us.
    #[error("the MCP server can't be used: {reason}{}", if stderr.is_empty() { String::new() } else { format!("; it says: {stderr}") })]
    Connect {
        /// Why.
        reason: String,
        /// The end of what its program complained.
        stderr: String,
    },
    /// The network, or what the policy says of it.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A header or address of the configuration can't be used.
    #[error("the MCP server's configuration is not valid: {0}")]
    Config(String),
    /// It took too long.
    #[error("the MCP server gave no answer within {} seconds", after.as_secs_f64())]
    Timeout {
        /// How long it may take.
        after: Duration,
    },
    /// The call failed.
    #[error("the MCP server refused: {0}")]
    Call(String),
    /// The arguments can't be sent.
    #[error("the arguments can't be sent: {0}")]
    Arguments(String),
    /// The answer isn't what the protocol says.
    #[error("the MCP server's answer can't be read: {0}")]
    Malformed(String),
}
