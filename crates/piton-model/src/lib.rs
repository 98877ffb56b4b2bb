//! What Piton reaches over the network: HTTP under a policy, language models, MCP servers.
//!
//! - [`net`] is the only way out: every connection of this crate is made by [`net::Client`], whose
//!   [`net::NetPolicy`] decides which addresses may be reached and how much may come back.
//! - [`chat`] speaks the wire formats of OpenAI and Anthropic.
//! - [`mcp`] lists and calls the tools of MCP servers.
//!
//! Nothing here reads the environment, keeps a global, or prints. Secrets are [`SecretString`]s, which
//! never print themselves.

pub mod chat;
pub mod mcp;
pub mod net;

pub use secrecy::{ExposeSecret, SecretString};
