//! Piton over HTTP: every look and act of the command line as an API with the same JSON, live events, a page, metrics; and
//! for agents, as tools.
//!
//! One server serves one store. Each route is a row of a table (`routes`), from which the router, the roles, the audit log
//! and the description at `/api/openapi.json` are made. Before a body is read, `gate` has checked who asks, from where and
//! for what. What is done is done by `piton-app`; this crate holds no store, log or run of its own, and prints nothing.
//!
//! Runs that the server drives are tasks of its process. If it is killed they go on from their logs when a server of that
//! folder starts again, or when they are resumed; a page that was open goes on behind the last event that it has seen.

mod audit;
mod debugs;
mod driven;
mod drives;
mod gate;
mod listen;
mod mcp;
mod metrics;
mod openapi;
mod page;
mod plans;
mod problem;
mod query;
mod routes;
mod server;
mod stream;
mod tokens;

pub use listen::{Options, Serving, Tls};
pub use mcp::serve_pipe;
pub use tokens::{Role, Tokens};
