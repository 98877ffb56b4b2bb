//! What every shell of Piton does, with no printing, no argument parsing and no terminal: a command line, a server or a
//! binding parses, calls this, and shows the view that it gets.
//!
//! [`App`] is opened once for a folder: it knows where the store is, opens it, and has the clock and the variables that
//! the shell gave it. [`references`] find what a user means; [`runs`], [`files`], [`documents`] and [`store`] are what
//! can be done; [`views`] is the one place for the JSON of every verb; [`failure`] says why something couldn't be done
//! and what to do about it. What needs a person goes through the [`Shell`] port or comes back as a [`Plan`].

pub mod app;
pub mod cases;
pub mod debug;
pub mod documents;
pub mod drawing;
pub mod failure;
pub mod files;
mod held;
pub mod hooks;
pub mod names;
pub mod place;
pub mod plan;
pub mod references;
pub mod runs;
pub mod shell;
pub mod store;
#[cfg(feature = "otlp")]
mod traces;
pub mod views;
pub mod words;

pub use app::{Access, App};
pub use failure::{Failure, FailureKind, Hint};
pub use names::Names;
pub use piton_store::SecretFiles;
pub use place::{Surroundings, keys::KeySources};
pub use plan::Plan;
pub use references::Reference;
pub use shell::{Level, Shell, Silent};
