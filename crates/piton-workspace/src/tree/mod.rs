//! Trees: what a snapshot says of every name in a folder, and of the folders below it.
//!
//! A folder is a node whose id is the hash of its bytes, so equal folders are one node, and comparing two
//! snapshots stops wherever they agree. Nothing in it depends on when or where it was taken: times are
//! kept beside it.

mod diff;
mod edit;
mod format;
mod nodes;

pub use diff::Difference;
pub(crate) use diff::{diff, diff_at};
pub(crate) use edit::edit;
pub(crate) use format::{FolderWriter, Leaf, MAX_DEPTH, Parsed, ParsedTimes, TimedEntry, parse_leaves, parse_times};
pub(crate) use nodes::{KeptNodes, Nodes, Overlay, StoredNodes, entry_at, folder, walk};

use piton_types::BlobId;
use serde::{Deserialize, Serialize};

/// The bits of a mode that are restored. Setuid, setgid and sticky aren't: of a file they are seen and not put back, of a
/// folder they stay as they are.
pub(crate) const PERMISSIONS: u16 = 0o777;

/// What a snapshot says of one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A regular file.
    File {
        /// Its mode, twelve bits.
        mode: u16,
        /// Its size.
        size: u64,
        /// Its content.
        content: Content,
    },
    /// A symbolic link.
    Link {
        /// Where it leads, as it is written.
        target: Vec<u8>,
    },
    /// A folder.
    Folder {
        /// Its permissions, nine bits.
        mode: u16,
        /// Its node.
        node: BlobId,
    },
    /// Seen, but not captured.
    Excluded(Reason),
}

impl Entry {
    /// Whether the two say the same of the name itself; for folders without what is in them.
    pub fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Folder { mode, .. }, Self::Folder { mode: other, .. }) => mode == other,
            _ => self == other,
        }
    }

    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        matches!(self, Self::Folder { .. })
    }
}

/// Whether two trees say the same of a name itself.
pub(crate) fn alike(a: &Option<Entry>, b: &Option<Entry>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.is_alike(b),
        _ => false,
    }
}

/// The bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Content {
    /// One blob.
    Whole(BlobId),
    /// A list of pieces, cut at places that the content decides.
    Pieces(BlobId),
}

impl Content {
    /// The blob to begin with.
    pub fn id(self) -> BlobId {
        match self {
            Self::Whole(id) | Self::Pieces(id) => id,
        }
    }
}

/// Why a name was seen but not captured.
///
/// The number is part of the stored format: never reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Reason {
    /// git's own folder.
    Git = 1,
    /// Piton's own store.
    Store = 2,
    /// A folder that the ignore files name.
    IgnoredFolder = 3,
    /// A file that the ignore files name, and that is large.
    IgnoredFile = 4,
    /// `.pitonignore` names it.
    Pitonignore = 5,
    /// A device, a socket or a pipe.
    Special = 6,
    /// Another file system.
    Mount = 7,
    /// It can't be read.
    Unreadable = 8,
    /// Folders nest too deeply.
    TooDeep = 9,
    /// What a restore that was cut short left.
    Temporary = 10,
    /// There is a secret in it, and the policy leaves such files out.
    Secret = 11,
}

impl Reason {
    const ALL: [Self; 11] = [
        Self::Git,
        Self::Store,
        Self::IgnoredFolder,
        Self::IgnoredFile,
        Self::Pitonignore,
        Self::Special,
        Self::Mount,
        Self::Unreadable,
        Self::TooDeep,
        Self::Temporary,
        Self::Secret,
    ];

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// In words, after "not captured:".
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Git => "git's own",
            Self::Store => "piton's own store",
            Self::IgnoredFolder => "an ignored folder",
            Self::IgnoredFile => "an ignored file over 1 MB",
            Self::Pitonignore => "named in .pitonignore",
            Self::Special => "a device, socket or pipe",
            Self::Mount => "another file system",
            Self::Unreadable => "unreadable",
            Self::TooDeep => "nested too deeply",
            Self::Temporary => "left by a restore",
            Self::Secret => "a secret is in it",
        }
    }
}
