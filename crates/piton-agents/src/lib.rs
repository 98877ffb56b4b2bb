//! Coding agents: one adapter each, which knows the agent's settings and turns its events into one kind of
//! [`Report`]; and what of all that agents do is [dangerous](danger).
//!
//! Settings are the user's: they are edited as text, so that everything that isn't ours stays to the byte. Nothing here
//! reads or writes a file.

mod agent;
mod claude_code;
pub mod danger;
mod report;

pub use agent::{Agent, Hooks, SESSION, SettingsError};
pub use report::{Happening, Report, ReportError};
