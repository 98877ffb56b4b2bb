//! A Piton store over plain objects: named byte strings that are created if absent, read, listed, replaced if unchanged
//! and deleted. Whatever can do that can hold a store.
//!
//! - [`Objects`]: what is asked of a place that keeps objects. [`MemoryObjects`] and [`FolderObjects`] are two.
//! - [`ObjectStore`]: the one layout of a store over any of them. There is no rename, no lock and no change of several
//!   objects at once in it.
//! - `CloudObjects` (feature `cloud`): S3, Google Cloud Storage, Azure. `RedisObjects` (feature `redis`): a Redis.
//! - [`ObjectPacks`]: objects as a place for the large packs of another store.
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
//! rows/RUN.json  rows.json                      the rows of runs at rest, in a remote place
//! staged/N.json  staged.json                    which packs have which blobs, in a remote place
//! ```
//!
//! A commit is the exclusive creation of one object, which holds everything of the commit. A fold creates a segment
//! and then deletes what it covers; readers prefer the segment.

mod checkpoints;
#[cfg(feature = "cloud")]
mod cloud;
mod commit;
mod folder;
mod index;
mod log;
mod memory;
mod names;
mod objects;
mod outside;
mod packs;
mod readable;
#[cfg(feature = "redis")]
mod redis;
mod replace;
mod rows;
mod run;
mod segment;
mod shape;
mod staged;
mod store;
mod sweep;
mod upkeep;

pub use checkpoints::FileCheckpointStore;
#[cfg(feature = "cloud")]
pub use cloud::{CloudDriver, CloudKind, CloudObjects, CloudPlace, CloudSettings};
pub use folder::{FolderObjects, FolderOptions};
pub use memory::MemoryObjects;
pub use objects::{Listed, Object, Objects, Part, Version};
pub use outside::ObjectPacks;
#[cfg(feature = "redis")]
pub use redis::{RedisDriver, RedisDurability, RedisObjects, RedisUrl, Secret};
pub use replace::replace_folder;
pub use store::{FolderDriver, MemoryDriver, ObjectStore};
