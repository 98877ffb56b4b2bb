//! Piton's workspace: snapshots of a working folder, what changed in it and by whom, and the way back
//! without losing the user's edits.
//!
//! A session of an agent is a run of `piton-runtime`: created, claimed, fenced and ended there. This crate adds the
//! entries that speak of files.

mod budget;
mod cache;
mod changes;
mod chat;
mod content;
mod drift;
mod error;
mod export;
mod git_folder;
mod git_moves;
mod history;
mod line;
mod merge;
mod optimistic;
mod order;
mod path;
mod reach;
mod record;
mod reports;
mod reservation;
mod restore;
mod rules;
mod scan;
mod secrets;
mod session;
mod snapshot;
mod state;
mod system;
mod text_diff;
mod threads;
mod timeline;
mod transcribe;
mod tree;
mod watch;
mod wire;
mod workspace;

pub use cache::Totals;
pub use changes::{ChangeKind, Changes, FileChange, Side};
pub use chat::{ChatCommand, ChatError, USAGE, parse_chat_command};
pub use drift::{
    Advice, CHECKED_EVERY, Contested, DriftError, DriftEvent, DriftOptions, DriftReport, DriftSeverity, DriftTracker,
    Known, Preference, Rebased, Resolution, Tracked, advise,
};
pub use error::{TreeError, WorkspaceError};
pub use export::{ExportOptions, Exported};
pub use git_moves::GitMove;
pub use history::Changed;
pub use merge::{ConflictStyle, Favour, MAX_MERGE, MergeOptions, Merged, Unmergeable, has_markers, merge, merge_clean};
pub use optimistic::{FileVersion, OptimisticLock, WriteConflict, WriteError, Written};
pub use path::RelPath;
pub use reach::SnapshotReach;
pub use record::{Record, RestoreKind, Role};
pub use reports::Reports;
pub use reservation::{
    IsDead, RESERVED_FOR, Reservation, ReservationError, Reservations, ReserveMode, Take, WriteRight,
};
pub use restore::{
    Ask, CannotAsk, Conflict, ConflictResolution, ContestedText, Goal, LineDelta, Plan, PlannedChange, Recovered,
    Rescued, Resolver, RestoreOptions, RestorePlan, RestoreResult, Selection,
};
pub use rules::OuterRules;
pub use scan::Progress;
pub use secrets::is_likely as is_likely_secret;
pub use session::{Coverage, PreTool, Session, SessionEnd, SessionOptions, ToolCall, ToolFailure, ToolOutcome};
pub use snapshot::{Collapsed, Saved, Snapshot};
pub use text_diff::{DiffHunk, DiffLine, TextDiff, is_binary};
pub use timeline::{Maker, Moment, Timeline};
pub use tree::{Content, Difference, Entry, Reason};
pub use workspace::{Standing, Workspace, WorkspaceOptions};
