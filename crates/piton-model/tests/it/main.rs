//! The network against real servers on loopback that speak real bytes, well and badly.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod anthropic;
mod mcp;
mod net;
mod openai;
mod server;
mod tls;
