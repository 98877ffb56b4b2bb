//! Values as Merkle trees.
//!
//! A value is a tree of *nodes*: byte strings named by their hash. Small values stand inside their
//! parents; a longer string is a node of its own; lists, maps and long strings are cut by content into
//! trees of nodes of about 512 bytes. Equal values have equal roots in every process, whatever edits
//! led to them, so what two checkpoints have in common is stored once and compared by one look.
//!
//! Two entrances: [`encode()`] takes a whole value, [`State`] is edited by path and saves at the cost of
//! the change. [`load()`] and [`diff()`] read what was stored.

mod cache;
mod cut;
pub(crate) mod decode;
mod diff;
mod edit;
mod encode;
pub(crate) mod grammar;
mod load;
mod merge;
mod node;
mod splice;
#[expect(clippy::module_inception, reason = "the file is named after its type")]
mod state;
#[cfg(test)]
mod tests;

pub(crate) use cache::{IdMap, IdSet};
pub use diff::{Change, diff};
pub(crate) use encode::encode_inside;
pub use encode::{Encoded, encode};
pub use load::{NodeSource, load};
pub(crate) use state::Fresh;
pub use state::State;
