//! Entries of a run's log. Everything that happens to a run is one of these, in order; nothing is ever
//! rewritten.

use serde::{Deserialize, Serialize};

use crate::{EntryHash, Fence, Parts, Seq, Timestamp, Value};

/// What an entry records.
///
/// The number is part of the stored format: never reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum EntryKind {
    /// The run came to be; the body has its document and inputs. Always entry 0, and only there.
    Created = 0,
    /// A process took the run, with a higher fence.
    Claimed = 1,
    /// The run moved to another state; the body is the [`RunState`](crate::RunState).
    StateChanged = 2,
    /// A step ended, well or badly.
    StepDone = 3,
    /// An effect on the world is about to be attempted.
    EffectIntent = 4,
    /// How an effect ended.
    EffectReceipt = 5,
    /// A question was answered, by a person or a service.
    Answer = 6,
    /// A checkpoint that is nothing else.
    Checkpoint = 7,
    /// The run was put back to an earlier entry: what lies between the two counts no more.
    Restored = 8,
    /// The run asked a question, and waits until it is answered.
    Asked = 9,
    /// The process that drives the run was asked to stop or to give it up.
    Requested = 10,
    /// Lines that the run wrote, for people.
    Logged = 11,
    /// Checkpoints were given up: their state may be gone. The body says which.
    Removed = 12,
    /// The files of a folder were put back; the run itself goes on as it was.
    FilesRestored = 13,
    /// What counts so far, so that the run can be opened without the entries before it.
    Indexed = 14,
}

impl EntryKind {
    /// Every kind, at the place of its number.
    pub const ALL: [Self; 15] = [
        Self::Created,
        Self::Claimed,
        Self::StateChanged,
        Self::StepDone,
        Self::EffectIntent,
        Self::EffectReceipt,
        Self::Answer,
        Self::Checkpoint,
        Self::Restored,
        Self::Asked,
        Self::Requested,
        Self::Logged,
        Self::Removed,
        Self::FilesRestored,
        Self::Indexed,
    ];

    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// One entry of a run's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log.
    pub seq: Seq,
    /// The hash of the entry before it.
    pub parent: EntryHash,
    /// The fence of its writer.
    pub fence: Fence,
    /// When it was written, by the writer's wall clock.
    pub at: Timestamp,
    /// What it records.
    pub kind: EntryKind,
    /// What to show in a list: a step's name, a description. At most 200 bytes.
    pub label: String,
    /// What the kind calls for.
    pub body: Value,
    /// The state of the run as of this entry; an entry with parts is a checkpoint.
    pub parts: Parts,
}

/// Who drives a run: enough to say so to a person, and to find out on the same host whether it still
/// lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The host's name.
    pub host: String,
    /// The host's boot, so that a process id of before a reboot isn't mistaken for one of now.
    pub boot: String,
    /// The process.
    pub pid: u32,
    /// When the process started, in the kernel's own ticks: process ids are used again.
    pub started: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_sit_at_their_numbers() {
        for (number, kind) in EntryKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(EntryKind::from_number(u8::try_from(number).unwrap()), Some(kind));
        }
        assert_eq!(EntryKind::from_number(15), None);
    }
}
