//! Files: checkpoints of a folder, what changed, what was restored.

use piton_store::Bytes;
use piton_types::{CheckpointRef, RunId, Timestamp, Verification};
use piton_workspace::{
    Advice, ChangeKind, Coverage, DriftReport, Entry, FileChange, GitMove, LineDelta, Maker, Moment, Plan,
    PlannedChange, Reason, Rescued, Reservation, ReserveMode, RestoreKind, RestoreResult, Saved, Snapshot,
};
use serde::Serialize;
use serde_json::Value as Json;

use super::{text, text_or_null};
use crate::references::FileAt;
use crate::words::typed;

/// A path that changed.
#[derive(Debug, Clone, Serialize)]
pub struct ChangeView {
    /// Which; the new name if it was renamed.
    pub path: String,
    /// What became of it.
    pub kind: ChangeKind,
    /// The name before, if it was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Whether it is a folder.
    #[serde(skip)]
    pub is_folder: bool,
}

impl From<&FileChange> for ChangeView {
    fn from(change: &FileChange) -> Self {
        Self {
            path: change.path.to_string(),
            kind: change.kind,
            from: change.from.as_ref().map(ToString::to_string),
            is_folder: matches!(change.new.as_ref().or(change.old.as_ref()), Some(Entry::Folder { .. })),
        }
    }
}

/// A path that wasn't captured, was left as it is, or is in conflict, and why.
#[derive(Debug, Clone, Serialize)]
pub struct ReasonView<R = String> {
    /// Which.
    pub path: String,
    /// Why.
    pub reason: R,
}

/// A checkpoint of files that was made.
#[derive(Debug, Clone, Serialize)]
pub struct SavedView {
    /// Its name.
    #[serde(serialize_with = "text")]
    pub id: CheckpointRef,
    /// The run that it belongs to.
    pub run: RunId,
    /// When it was made.
    #[serde(serialize_with = "text")]
    pub created_at: Timestamp,
    /// How many files it has.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// How many names weren't captured.
    pub excluded: u64,
    /// Whether anything differs from the checkpoint before, if there is one.
    pub changed: Option<bool>,
    /// Files that changed while they were read.
    pub unsteady: Vec<String>,
    /// Files with keys or tokens in them.
    pub secrets: Vec<String>,
}

impl From<&Saved> for SavedView {
    fn from(saved: &Saved) -> Self {
        let Snapshot { files, bytes, excluded, .. } = saved.snapshot;
        Self {
            id: saved.checkpoint.clone(),
            run: saved.checkpoint.run.clone(),
            created_at: saved.at,
            files,
            bytes,
            excluded,
            changed: saved.changed,
            unsteady: saved.unsteady.iter().map(ToString::to_string).collect(),
            secrets: saved.secrets.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A checkpoint of files in a list.
#[derive(Debug, Clone, Serialize)]
pub struct MomentView {
    /// Its name.
    #[serde(serialize_with = "text")]
    pub id: CheckpointRef,
    /// The run that it belongs to.
    pub run: RunId,
    /// When it was made.
    #[serde(serialize_with = "text")]
    pub created_at: Timestamp,
    /// How many files it has, in a list of checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// What to show in a list.
    pub label: String,
    /// Who made what changed since the checkpoint before: `user`, `agent`, `unattributed` or `restore`.
    pub made_by: &'static str,
    /// What changed in it, in the history of a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Vec<ChangeView>>,
    /// How git's names moved since the checkpoint before, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub git: Vec<String>,
}

impl MomentView {
    /// A checkpoint, with who made what changed in it.
    pub fn of(moment: &Moment, made_by: &Maker) -> Self {
        Self {
            made_by: made_by.as_str(),
            id: moment.checkpoint.clone(),
            run: moment.checkpoint.run.clone(),
            created_at: moment.at,
            files: Some(moment.snapshot.files),
            label: moment.label.clone(),
            changes: None,
            git: moment.record.git.iter().map(GitMove::words).collect(),
        }
    }
}

/// A file in a checkpoint.
#[derive(Debug, Clone, Serialize)]
pub struct FileView {
    /// The checkpoint.
    #[serde(serialize_with = "text")]
    pub id: CheckpointRef,
    /// The run that it belongs to.
    pub run: RunId,
    /// The file.
    pub path: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// What is in it; null if that isn't Unicode text.
    pub text: Option<String>,
    /// What is in it.
    #[serde(skip)]
    pub content: Bytes,
}

impl From<FileAt> for FileView {
    fn from(file: FileAt) -> Self {
        Self {
            id: file.checkpoint.clone(),
            run: file.checkpoint.run,
            path: file.path.to_string(),
            bytes: file.content.len() as u64,
            text: std::str::from_utf8(&file.content).ok().map(str::to_owned),
            content: file.content,
        }
    }
}

/// A folder, its newest checkpoint and its store.
#[derive(Debug, Clone, Serialize)]
pub struct StatusView {
    /// The folder.
    pub folder: String,
    /// The URL of its store.
    pub store: String,
    /// How many bytes the store takes.
    pub bytes: u64,
    /// How many it may take.
    pub budget: Option<u64>,
    /// How many runs it has.
    pub runs: u64,
    /// The runs whose programs stand still until what changed upstream was seen to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub standing_still: Vec<RunId>,
    /// How many of them wait for an answer.
    pub waiting: usize,
    /// How many of them failed.
    pub failed: usize,
    /// What the store holds and did.
    pub metrics: Json,
    /// The newest checkpoint of the files.
    #[serde(serialize_with = "text_or_null")]
    pub checkpoint: Option<CheckpointRef>,
    /// When it was made.
    #[serde(serialize_with = "text_or_null")]
    pub created_at: Option<Timestamp>,
    /// What changed since then.
    pub changes: Vec<ChangeView>,
    /// Who made that: `user`, `agent`, or `unattributed`, during an agent's turn but in none of its tool calls.
    pub made_by: &'static str,
    /// What isn't captured, if that was asked for.
    pub excluded: Vec<ReasonView<Reason>>,
    /// How many names of the checkpoint aren't captured.
    #[serde(skip)]
    pub not_captured: u64,
    /// What the checkpoint is called.
    #[serde(skip)]
    pub label: String,
}

/// What a restore will do, or did, to a path.
#[derive(Debug, Clone, Serialize)]
pub struct PlannedView {
    /// Which.
    pub path: String,
    /// `create`, `write`, `delete`, `merge` or `resolve`.
    pub action: &'static str,
    /// How many lines are added, of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added: Option<usize>,
    /// How many lines are removed, of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<usize>,
    /// Whether it is a folder.
    #[serde(skip)]
    pub is_folder: bool,
}

impl PlannedView {
    /// What will be done to a path, with its lines if they were counted.
    pub fn of(change: &PlannedChange, lines: Option<LineDelta>) -> Self {
        let action = match (&change.now, &change.then) {
            _ if change.resolved => "resolve",
            _ if change.merged => "merge",
            (None, _) => "create",
            (_, None) => "delete",
            _ => "write",
        };
        Self {
            path: change.path.to_string(),
            action,
            added: lines.map(|lines| lines.added),
            removed: lines.map(|lines| lines.removed),
            is_folder: matches!(change.then.as_ref().or(change.now.as_ref()), Some(Entry::Folder { .. })),
        }
    }
}

/// What a restore will do.
#[derive(Debug, Clone, Serialize)]
pub struct RestorePlanView {
    /// What it is for, in words.
    pub restore: String,
    /// What will change.
    pub changes: Vec<PlannedView>,
    /// What keeps it from being done.
    pub conflicts: Vec<ReasonView>,
    /// What is left as it is.
    pub left: Vec<ReasonView>,
    /// Paths that changed during an agent's turn, but in none of its tool calls: those changes stay.
    pub unattributed: Vec<String>,
}

impl RestorePlanView {
    /// A plan, without the lines of its texts.
    pub fn of(kind: &RestoreKind, plan: &Plan) -> Self {
        let reason = |path: &dyn std::fmt::Display, reason: &str| ReasonView {
            path: path.to_string(),
            reason: reason.to_owned(),
        };
        Self {
            restore: kind.as_words(),
            changes: plan.changes.iter().map(|change| PlannedView::of(change, None)).collect(),
            conflicts: plan.conflicts.iter().map(|conflict| reason(&conflict.path, &conflict.reason)).collect(),
            left: plan.left.iter().map(|(path, why)| reason(path, why)).collect(),
            unattributed: plan.unattributed.iter().map(ToString::to_string).collect(),
        }
    }
}

/// What was written while it was replaced.
#[derive(Debug, Clone, Serialize)]
pub struct RescuedView {
    /// Where it was written; null if that isn't known any more.
    pub path: Option<String>,
    /// Where it is now.
    pub kept: String,
}

impl From<&Rescued> for RescuedView {
    fn from(one: &Rescued) -> Self {
        Self { path: one.path.as_ref().map(ToString::to_string), kept: one.kept.to_string() }
    }
}

/// What a restore did.
#[derive(Debug, Clone, Serialize)]
pub struct RestoredView {
    /// The plan that was carried out.
    #[serde(flatten)]
    pub plan: RestorePlanView,
    /// The entry that records it; null if there was nothing to do.
    #[serde(serialize_with = "text_or_null")]
    pub id: Option<CheckpointRef>,
    /// The checkpoint that was made just before.
    #[serde(serialize_with = "text_or_null")]
    pub backup: Option<CheckpointRef>,
    /// How many paths were changed.
    pub files_restored: usize,
    /// What was written to a path while it was replaced, and where that was kept.
    pub rescued: Vec<RescuedView>,
    /// What to tell an agent about its files.
    pub note: String,
    /// Whether it was an undo, which a redo takes back.
    #[serde(skip)]
    pub is_undo: bool,
}

impl From<&RestoreResult> for RestoredView {
    fn from(result: &RestoreResult) -> Self {
        Self {
            plan: RestorePlanView::of(&result.kind, &result.plan),
            id: result.checkpoint.clone(),
            backup: result.backup.clone(),
            files_restored: result.files_restored,
            rescued: result.rescued.iter().map(RescuedView::from).collect(),
            note: result.note(),
            is_undo: matches!(result.kind, RestoreKind::Undo { .. }),
        }
    }
}

/// What differs between the files of two checkpoints, or of one and the folder.
#[derive(Debug, Clone, Serialize)]
pub struct FilesDiffView {
    /// The older checkpoint.
    #[serde(serialize_with = "text")]
    pub from: CheckpointRef,
    /// The newer one; null for the folder as it is now.
    #[serde(serialize_with = "text_or_null")]
    pub to: Option<CheckpointRef>,
    /// What differs.
    pub changes: Vec<FileDiff>,
}

/// A path that differs, with its lines.
#[derive(Debug, Clone, Serialize)]
pub struct FileDiff {
    /// The path.
    #[serde(flatten)]
    pub change: ChangeView,
    /// How many lines were added, of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added: Option<usize>,
    /// How many lines were removed, of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<usize>,
    /// The lines, as a unified diff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Whether something of it changed during an agent's turn, but in none of its tool calls.
    pub unattributed: bool,
    /// Permissions before and after, if they differ.
    #[serde(skip)]
    pub modes: Option<(String, String)>,
    /// Whether a side of it is a file.
    #[serde(skip)]
    pub is_file: bool,
}

/// What a guarded program did.
#[derive(Debug, Clone, Serialize)]
pub struct GuardedView {
    /// The run.
    pub run: RunId,
    /// The checkpoint of how it left the files.
    #[serde(serialize_with = "text")]
    pub id: CheckpointRef,
    /// The checkpoint of how it found them.
    #[serde(serialize_with = "text")]
    pub opened: CheckpointRef,
    /// `completed` or `failed`; `paused` or `cancelled` if that was asked for.
    pub status: &'static str,
    /// What it ended with.
    pub exit_code: u8,
    /// What changed.
    pub changes: Vec<ChangeView>,
    /// Whether that was taken back, except for what `left` names.
    pub rolled_back: bool,
    /// What was not taken back though it was to be.
    pub left: Vec<ReasonView>,
    /// Other runs that worked here at the same time: what changed meanwhile can't be told apart.
    pub shared_with: Vec<RunId>,
    /// What was checked of its work.
    pub verification: Vec<Verification>,
    /// How closely checkpoints followed it.
    pub coverage: CoverageView,
    /// What no checkpoint has, in words; null if there is nothing.
    pub not_protected: Option<String>,
    /// What it moved in git, which is never written by Piton.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<GitMovesView>,
}

/// How git's names moved.
#[derive(Debug, Clone, Serialize)]
pub struct GitMovesView {
    /// Each in words.
    pub moves: Vec<String>,
    /// What puts back what would be missed, to be typed into a shell; null if nothing would.
    pub put_back: Option<String>,
}

impl GitMovesView {
    /// `None` if nothing moved.
    pub fn of(moves: &[GitMove]) -> Option<Self> {
        let commands = moves.iter().filter_map(GitMove::put_back).map(|words| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            typed(&words)
        });
        // Branches first: HEAD may be on one that is gone.
        let (head, mut commands): (Vec<_>, Vec<_>) = commands.partition(|command| command.contains(" HEAD "));
        commands.extend(head);
        let put_back = Some(commands.join(" && ")).filter(|commands| !commands.is_empty());
        (!moves.is_empty()).then(|| Self { moves: moves.iter().map(GitMove::words).collect(), put_back })
    }
}

/// How closely checkpoints followed a program.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CoverageView {
    /// How many were made while it ran.
    pub checkpoints: u32,
    /// How long a change waited for one at most. What came and went within that time may be in none.
    pub longest_gap_ms: u64,
}

impl From<&Coverage> for CoverageView {
    fn from(coverage: &Coverage) -> Self {
        let longest_gap_ms = u64::try_from(coverage.longest_gap.as_millis()).unwrap_or(u64::MAX);
        Self { checkpoints: coverage.checkpoints, longest_gap_ms }
    }
}

/// A reservation of a file.
#[derive(Debug, Clone, Serialize)]
pub struct ReservationView {
    /// Which file or folder.
    pub path: String,
    /// `read` or `write`.
    pub mode: &'static str,
    /// On whose behalf.
    pub owner: String,
    /// Its fencing number.
    pub fence: u64,
    /// Since when.
    #[serde(serialize_with = "text")]
    pub acquired_at: Timestamp,
    /// Until when.
    #[serde(serialize_with = "text")]
    pub expires_at: Timestamp,
    /// The process with which it ends.
    pub pid: Option<u32>,
}

impl From<&Reservation> for ReservationView {
    fn from(held: &Reservation) -> Self {
        Self {
            path: held.path.to_string(),
            mode: match held.mode {
                ReserveMode::Read => "read",
                ReserveMode::Write => "write",
            },
            owner: held.owner.clone(),
            fence: held.fence,
            acquired_at: held.acquired_at,
            expires_at: held.expires_at,
            pid: held.holder.as_ref().map(|holder| holder.pid),
        }
    }
}

/// A path that an owner may write.
#[derive(Debug, Clone, Serialize)]
pub struct WritableView {
    /// Which.
    pub path: String,
    /// On whose behalf.
    pub owner: String,
    /// Whether it may be written: a path that may not is a failure.
    pub writable: bool,
}

/// How the repository moved, and what is best done.
#[derive(Debug, Clone, Serialize)]
pub struct DriftView {
    /// How it moved.
    #[serde(flatten)]
    pub report: DriftReport,
    /// What is best done.
    pub advice: Advice,
    /// The checkpoint that was made because upstream's history was rewritten.
    #[serde(serialize_with = "text_or_null")]
    pub backup: Option<CheckpointRef>,
    /// Whether it is a reason to stop.
    #[serde(skip)]
    pub is_pause: bool,
}

/// Two versions of a file that were merged.
#[derive(Debug, Clone, Serialize)]
pub struct MergedView {
    /// How many places both changed.
    pub conflicts: usize,
    /// The merged text, if it isn't written to the file.
    pub text: Option<String>,
}

/// Hooks of a coding agent that were installed or removed.
#[derive(Debug, Clone, Serialize)]
pub struct HooksChanged {
    /// The agent.
    pub agent: &'static str,
    /// The files with its settings.
    pub files: Vec<&'static str>,
    /// What the hooks run.
    pub command: Option<String>,
    /// Whether anything had to be changed.
    pub changed: bool,
}

/// The hooks in a file with settings of a coding agent.
#[derive(Debug, Clone, Serialize)]
pub struct HooksView {
    /// The agent.
    pub agent: &'static str,
    /// The file.
    pub file: &'static str,
    /// `yes`, `no` or `partly`.
    pub installed: &'static str,
    /// The events that have one.
    pub events: Vec<&'static str>,
    /// What they run.
    pub commands: Vec<String>,
}
