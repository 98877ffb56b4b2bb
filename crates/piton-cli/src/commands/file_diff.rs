//! `piton diff`: what differs between the files of two checkpoints, or of one and the folder as it is now.

use piton::workspace::{Entry, FileChange, Side, Snapshot, TextDiff, Workspace, is_binary};
use piton_store::{RunLog, SealedEntry};
use serde_json::{Value as Json, json};

use crate::arguments::Diff;
use crate::commands::status::{change_json, change_line};
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use piton_app::files::Capture;
use piton_app::files::{open, watched};
use piton_app::references::Reference;
use piton_app::references::resolve_checkpoint;

/// The largest file whose lines are compared.
const MAX_TEXT: u64 = 16 << 20;

pub(crate) async fn execute(session: &Session, arguments: &Diff) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let newest = Reference::Back { run: None, steps: 0 };
    let from = resolve_checkpoint(session, &store, arguments.from.as_ref().unwrap_or(&newest)).await?;
    let to = match &arguments.to {
        Some(to) => Some(resolve_checkpoint(session, &store, to).await?),
        None => None,
    };
    let capture = Capture { include_ignored: false, force: false };
    let workspace = open(session, &store, capture).await?;
    let old = snapshot(&from).await?;
    let side = match &to {
        Some(to) => Side::Stored(snapshot(to).await?),
        None => Side::Now,
    };
    let found = watched(session, async |progress| workspace.detect_changes(old, side, &progress).await).await?;
    let output = &session.output;
    if output.is_json() {
        let name = |(log, entry): &(RunLog, SealedEntry)| format!("{}@{}", log.run(), entry.seq);
        let mut changes = Vec::new();
        for change in &found.changes {
            let mut object = change_json(change);
            if let Some(diff) = lines(&workspace, change, side).await? {
                let (added, removed) = diff.counts();
                object["added"] = json!(added);
                object["removed"] = json!(removed);
                if !arguments.stat {
                    object["diff"] = json!(diff.to_string());
                }
            }
            changes.push(object);
        }
        output.object(&json!({
            "from": name(&from),
            "to": to.as_ref().map_or(Json::Null, |to| json!(name(to))),
            "changes": changes,
        }))?;
    } else {
        for change in &found.changes {
            show(session, &workspace, change, side, arguments.stat).await?;
            if output.is_closed() {
                break;
            }
        }
        if found.changes.is_empty() {
            output.note("no file differs");
        }
    }
    store.close().await?;
    Ok(Exit::Done)
}

async fn snapshot((log, entry): &(RunLog, SealedEntry)) -> Result<Snapshot, Failure> {
    Workspace::snapshot_of(log, entry.seq).await?.ok_or_else(|| {
        Failure::fixable(format!("{}@{} has no files", log.run(), entry.seq))
            .hint("`piton diff --state A B` compares states; `piton checkpoint list` shows checkpoints of files.")
    })
}

/// The lines that differ, of a change of a text; `None` for anything else.
async fn lines(workspace: &Workspace, change: &FileChange, side: Side) -> Result<Option<TextDiff>, Failure> {
    let is_large = |entry: &Option<Entry>| matches!(entry, Some(Entry::File { size, .. }) if *size > MAX_TEXT);
    let is_file = |entry: &Option<Entry>| matches!(entry, Some(Entry::File { .. }));
    if is_large(&change.old) || is_large(&change.new) || !(is_file(&change.old) || is_file(&change.new)) {
        return Ok(None);
    }
    let old = match &change.old {
        Some(entry) => workspace.read(entry).await?.unwrap_or_default(),
        None => Default::default(),
    };
    let new = match (&change.new, side) {
        (Some(Entry::File { .. }), Side::Now) => workspace.read_now(&change.path)?.into(),
        (Some(entry), _) => workspace.read(entry).await?.unwrap_or_default(),
        (None, _) => Default::default(),
    };
    if is_binary(&old) || is_binary(&new) {
        return Ok(None);
    }
    Ok(Some(TextDiff::compute(&old, &new)))
}

async fn show(
    session: &Session,
    workspace: &Workspace,
    change: &FileChange,
    side: Side,
    stat: bool,
) -> Result<(), Failure> {
    let output = &session.output;
    let line = change_line(change);
    let Some(diff) = lines(workspace, change, side).await? else {
        let is_file = |entry: &Option<Entry>| matches!(entry, Some(Entry::File { .. }));
        let what = if is_file(&change.old) || is_file(&change.new) { "  (binary or large)" } else { "" };
        return output.data(&format!("{line}{what}"));
    };
    let (added, removed) = diff.counts();
    if stat {
        return output.data(&format!("{line}  +{added} -{removed}"));
    }
    let mode = |entry: &Option<Entry>| match entry {
        Some(Entry::File { mode, .. } | Entry::Folder { mode, .. }) => format!("{mode:04o}"),
        _ => "none".to_owned(),
    };
    let mut text = vec![line];
    if mode(&change.old) != mode(&change.new) && change.old.is_some() && change.new.is_some() {
        text.push(format!("mode {} → {}", mode(&change.old), mode(&change.new)));
    }
    for line in diff.to_string().lines() {
        let line = clean(line);
        let code = match line.as_bytes().first() {
            Some(b'+') => "32",
            Some(b'-') => "31",
            Some(b'@') => "36",
            _ => "",
        };
        text.push(match output.has_colour() && !code.is_empty() {
            true => format!("\x1b[{code}m{line}\x1b[0m"),
            false => line,
        });
    }
    output.data(&text.join("\n"))
}
