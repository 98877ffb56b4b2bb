//! The vocabulary of Piton, shared by every other crate: ids, clock and randomness as traits, the
//! value that state is made of, the states of a run and the moves between them, log entries,
//! checkpoints, triggers, events and policies.
//!
//! Nothing here does I/O, reads a clock or draws a random number; those come in through [`Clock`]
//! and [`Random`].

mod checkpoint;
mod entry;
mod event;
mod id;
mod path;
mod policy;
mod record;
mod run;
mod secrets;
mod text;
mod time;
mod trigger;
mod value;
mod value_de;
mod value_json;
mod value_ser;

pub use checkpoint::{CheckpointKind, CheckpointRef, Part, PartName, Parts, StepRef, TokenUsage};
pub use entry::{Entry, EntryKind, Holder};
pub use event::Event;
pub use id::{BlobId, EntryHash, Fence, InvalidId, PackId, RunId, Seq, StepPath};
pub use path::{InvalidPath, Path, Segment};
pub use policy::{Durability, Retention, RunKind};
pub use record::{
    CheckpointRecord, FileChanges, Outcome, Progress, ProgressReport, RecoveryInfo, RequiredFile, RequiredProgram,
    Requirements,
};
pub use run::{
    Completed, Failed, IllegalMove, InProgress, Paused, Queued, RunState, RunStatus, RunSummary, Verification, WaitFor,
    Waiting,
};
pub use secrets::{KnownSecrets, SHORTEST_SECRET, SecretPlace};
pub use text::excerpt;
pub use time::{Clock, Random, Sleep, Timestamp};
pub use trigger::{Priority, Trigger};
pub use value::{Value, ValueKind};
pub use value_de::from_value;
pub use value_json::{JsonError, from_json, to_json};
pub use value_ser::{ValueError, to_value};
