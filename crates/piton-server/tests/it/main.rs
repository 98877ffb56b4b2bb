//! The server as a client meets it: a real one on SQLite, over real connections.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod acts;
mod debug;
mod gate;
mod live;
mod looks;
mod mcp;
mod world;
