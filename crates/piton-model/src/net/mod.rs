//! HTTP under a policy (promise 23).
//!
//! The invariant: a connection is only ever made to an address that the policy allows *at the moment of
//! connecting*. Names are resolved by `resolve::Checked` inside the connector, which hands on allowed
//! addresses alone, so there is nothing between the check and the connection that a second DNS answer
//! could slip into. Addresses written into a URL never reach a resolver; they are checked when the URL
//! is, with the odd spellings (`0x7f.1`, `2130706433`) already made plain by the URL parser.
//!
//! Redirects are followed here and not by the HTTP library, each one checked like the first URL.

mod address;
mod client;
mod error;
mod policy;
mod resolve;
mod tls;

pub use address::{Reserved, reserved};
pub use client::{Client, Request, Response};
pub use error::NetError;
pub use policy::NetPolicy;
pub use resolve::{Resolver, SystemResolver};
