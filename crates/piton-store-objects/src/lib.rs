//! A Piton store over plain objects: named byte strings that are created if absent, read, listed, replaced if unchanged
//! and deleted. Whatever can do that can hold a store.
//!
//! - [`Objects`]: what is asked of a place that keeps objects. [`MemoryObjects`] and [`FolderObjects`] are two.
//! - [`ObjectStore`]: the one layout of a store over any of them. There is no rename, no lock and no change of several
//!   objects at once in it.
//! - [`FileCheckpointStore`]: an embedder's checkpoints in a folder.
//! - [`FolderDriver`] and [`MemoryDriver`]: the URL schemes `file:` and `memory:`.
//!
//! ```text
//! store.json                                    what this is
//! runs/RUN/entries/0000000007.json              one commit: an entry, or several that follow each other
//! runs/RUN/segments/0000000000-0000000127.segment   folded entries
//! runs/RUN/lease.json                           who drives the run
//! runs/RUN/state.json  history.jsonl            for people; made from the entries
//! packs/HASH.pack  .state                       data that is stored ahead of its commit
//! notes/                                        what retention wrote down
//! ```
//!
//! A commit is the exclusive creation of one object, which holds everything of the commit. A fold creates a segment
//! and then deletes what it covers; readers prefer the segment.

mod checkpoints;
mod commit;
mod folder;
mod index;
mod log;
mod memory;
mod names;
mod objects;
mod packs;
mod readable;
mod replace;
mod run;
mod segment;
mod shape;
mod store;
mod sweep;
mod upkeep;

pub use checkpoints::FileCheckpointStore;
pub use folder::{FolderObjects, FolderOptions};
pub use memory::MemoryObjects;
pub use objects::{Listed, Object, Objects, Part, Version};
pub use replace::replace_folder;
pub use store::{FolderDriver, MemoryDriver, ObjectStore};
