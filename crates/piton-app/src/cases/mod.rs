//! Test cases as data: a folder with a document, its inputs, the world around it and what should come
//! out. `docs/workflows.md` describes the format.
//!
//! A case touches nothing outside: its HTTP, models and tools are answered by servers of its own on
//! loopback, its time stands still, its ids are counted.

mod acts;
mod case;
mod compare;
mod durable;
mod dying;
mod http;
mod junit;
mod kill;
mod run;
mod seen;
mod tools;
mod world;

pub use case::{Case, find};
pub use dying::Death;
pub use junit::junit;
pub use kill::{Campaign, Counts, Victim, kill_everywhere, run_and_die};
pub use run::{Outcome, Verdict, run};
