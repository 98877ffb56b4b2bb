//! `piton status`: what changed in the folder since its newest checkpoint, which runs want somebody, and where the
//! store is.

use std::sync::Arc;

use piton::workspace::{ChangeKind, Entry, FileChange, Moment, Side};
use piton_store::{RunQuery, Store};
use piton_types::RunStatus;
use serde_json::{Value as Json, json};

use crate::arguments::files::Status;
use crate::commands::check::SIZES;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::{table, view};
use piton_app::files::{open, watched};

/// How many changes are named.
const NAMED: usize = 50;

pub(crate) async fn execute(session: &Session, arguments: &Status) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let workspace = open(session, &store, arguments.capture.into()).await?;
    let newest = workspace.newest().await?;
    let changes = match &newest {
        Some(moment) => {
            let old = moment.snapshot;
            Some(watched(session, async |progress| workspace.detect_changes(old, Side::Now, &progress).await).await?)
        }
        None => None,
    };
    let excluded = match &newest {
        Some(moment) if arguments.excluded => workspace.excluded(moment.snapshot).await?,
        _ => Vec::new(),
    };
    let usage = store.usage().await?;
    let budget = workspace.budget().await?;
    let url = store.url();
    let mut wanting = [(RunStatus::Waiting, 0), (RunStatus::Failed, 0)];
    for (status, count) in &mut wanting {
        *count = store.list(RunQuery { status: vec![*status], ..RunQuery::default() }).await?.len();
    }
    let [(_, waiting), (_, failed)] = wanting;
    let metrics = if session.output.is_json() { metrics(session, &store).await? } else { Json::Null };
    store.close().await?;

    let limit = Some(budget).filter(|budget| *budget < u64::MAX);
    let output = &session.output;
    let listed: &[FileChange] = changes.as_ref().map_or(&[], |changes| &changes.changes);
    if output.is_json() {
        output.object(&json!({
            "folder": workspace.root().to_string_lossy(),
            "store": url,
            "bytes": usage.bytes,
            "budget": limit,
            "runs": usage.runs,
            "waiting": waiting,
            "failed": failed,
            "metrics": metrics,
            "checkpoint": newest.as_ref().map(|moment| moment.checkpoint.to_string()),
            "created_at": newest.as_ref().map(|moment| view::time_json(moment.at)),
            "changes": listed.iter().map(change_json).collect::<Vec<_>>(),
            "excluded": excluded.iter().map(|(path, reason)| json!({"path": path.to_string(), "reason": reason}))
                .collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Done);
    }
    let most = limit.map_or_else(String::new, |limit| format!(" of at most {}", table::size(limit)));
    let mut lines = vec![
        format!("folder      {}", clean(&workspace.root().to_string_lossy())),
        format!("store       {url} ({}{most})", table::size(usage.bytes)),
    ];
    if waiting > 0 {
        let whose = if waiting == 1 { "1 run waits" } else { &format!("{waiting} runs wait") };
        lines.push(format!("questions   {whose} for an answer: `piton ls --waiting`"));
    }
    if failed > 0 {
        lines.push(format!("failed      {}: `piton ls --failed`", table::count(failed, "run")));
    }
    match &newest {
        None => lines.push("checkpoint  none of these files yet: `piton save` makes one".to_owned()),
        Some(moment) => lines.push(format!("checkpoint  {}", moment_line(session, moment))),
    }
    if newest.is_some() {
        lines.push(match listed.len() {
            0 => "changes     none since then".to_owned(),
            n => format!("changes     {n} since then"),
        });
    }
    lines.extend(listed.iter().take(NAMED).map(|change| format!("  {}", change_line(change))));
    if listed.len() > NAMED {
        lines.push(format!("  … {} more: `piton diff --stat @` shows all", listed.len() - NAMED));
    }
    if let Some(moment) = newest.filter(|_| !arguments.excluded)
        && moment.snapshot.excluded > 0
    {
        lines.push(format!("not captured  {} names: `piton status --excluded` shows them", moment.snapshot.excluded));
    }
    lines.extend(excluded.iter().map(|(path, reason)| format!("  {}: {}", clean(&path.to_string()), reason.as_str())));
    output.data(&lines.join("\n"))?;
    Ok(Exit::Done)
}

/// What the store holds, by counting; what the last check found about it; and what this command did with it so far.
async fn metrics(session: &Session, store: &Arc<dyn Store>) -> Result<Json, Failure> {
    let sizes = match store.note(SIZES).await? {
        Some(note) => serde_json::from_slice(&note).unwrap_or(Json::Null),
        None => Json::Null,
    };
    let calls: Vec<_> = session.metrics().iter().flat_map(|metrics| metrics.all()).collect();
    Ok(json!({
        "totals": store.totals().await?,
        "sizes": sizes,
        "commits": session.metrics().iter().map(|metrics| metrics.commits()).sum::<u64>(),
        "written": session.metrics().iter().map(|metrics| metrics.written()).sum::<u64>(),
        "syncs": store.syncs(),
        "calls": calls,
    }))
}

fn moment_line(session: &Session, moment: &Moment) -> String {
    let label = if moment.label.is_empty() { String::new() } else { format!("  {}", clean(&moment.label)) };
    format!("{} ({}){label}", moment.checkpoint, session.age(moment.at))
}

/// A letter and the path, as git's short form has it.
pub(crate) fn change_line(change: &FileChange) -> String {
    let is_folder = matches!(change.new.as_ref().or(change.old.as_ref()), Some(Entry::Folder { .. }));
    let path = format!("{}{}", clean(&change.path.to_string()), if is_folder { "/" } else { "" });
    match (&change.from, change.kind) {
        (Some(from), _) => format!("R {} → {path}", clean(&from.to_string())),
        (_, ChangeKind::Created) => format!("A {path}"),
        (_, ChangeKind::Deleted) => format!("D {path}"),
        (_, ChangeKind::ModeChanged) => format!("P {path}"),
        _ => format!("M {path}"),
    }
}

/// The same for programs.
pub(crate) fn change_json(change: &FileChange) -> Json {
    let mut object = json!({"path": change.path.to_string(), "kind": change.kind});
    if let Some(from) = &change.from {
        object["from"] = json!(from.to_string());
    }
    object
}
