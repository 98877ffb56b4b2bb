//! `piton events`: what happens to a run, as it happens. Following reads only what is new.

use std::sync::Arc;
use std::time::Duration;

use piton_store::{RunLog, SealedEntry, Span};
use piton_types::{EntryKind, RunStatus, Value};
use serde_json::Value as Json;

use crate::arguments::Events;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::signals::{Ended, until_stopped};
use crate::table::{cut, took};
use crate::view;
use piton_app::references::run_id;

/// How often a followed log is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How many entries are read at a time.
const PAGE: u32 = 256;

pub(crate) async fn execute(session: &Session, arguments: &Events) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let run = run_id(&store, &arguments.run).await?;
    let mut log = RunLog::open(Arc::clone(&store), &run).await?;
    let ended = until_stopped(async {
        let mut over = false;
        let mut from = 0;
        while from <= log.head().seq.0 {
            let to = log.head().seq.min(piton_types::Seq(from + PAGE - 1));
            for entry in log.entries(Span { from: piton_types::Seq(from), to, ..Span::ALL }).await? {
                over = show(session, &log, &entry).await?.unwrap_or(over);
            }
            from = to.0 + 1;
        }
        while arguments.follow && !over && !session.output.is_closed() {
            tokio::time::sleep(LOOK).await;
            for entry in log.refresh().await? {
                over = show(session, &log, &entry).await?.unwrap_or(over);
            }
        }
        Ok::<_, Failure>(())
    })
    .await?;
    store.close().await?;
    match ended {
        Ended::Finished(result) => result.map(|()| Exit::Done),
        Ended::Stopped(exit) => Ok(exit),
    }
}

/// Shows an entry, and says whether the run is over since, if the entry says anything of that.
async fn show(session: &Session, log: &RunLog, entry: &SealedEntry) -> Result<Option<bool>, Failure> {
    let body = view::told(log.body(entry).await?);
    let output = &session.output;
    if output.is_json() {
        let mut object = view::entry_json(log.run(), entry);
        object.insert("body".to_owned(), view::value_json(&body));
        output.object(&Json::Object(object))?;
    } else {
        let line = format!("{}  {:>5}  {}", entry.at, entry.seq.0, describe(entry, &body));
        output.data(&output.width().map_or_else(|| line.clone(), |width| cut(&line, width)))?;
    }
    let text = |name: &str| body.field(name).and_then(Value::as_str);
    Ok(match entry.kind {
        EntryKind::Claimed => Some(false),
        EntryKind::StateChanged => {
            let over = [RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled];
            Some(text("status").is_some_and(|status| over.iter().any(|over| over.as_str() == status)))
        }
        _ => None,
    })
}

/// An entry on one line.
fn describe(entry: &SealedEntry, body: &Value) -> String {
    let word = view::kind_word(entry.kind);
    let text = |name: &str| body.field(name).and_then(Value::as_str).map(clean);
    let label = clean(&entry.label);
    let mut line = if label.is_empty() { word.to_owned() } else { format!("{word}  {label}") };
    if entry.kind == EntryKind::StepDone {
        let millis = body.field("duration_ms").and_then(Value::as_i64).and_then(|millis| u64::try_from(millis).ok());
        line += &format!("  {}", took(Duration::from_millis(millis.unwrap_or(0))));
    }
    for name in ["error", "message", "prompt", "reason"] {
        if let Some(text) = text(name).filter(|text| *text != label) {
            line += &format!("  {text}");
        }
    }
    if !entry.parts.is_empty() {
        let parts: Vec<_> = entry.parts.keys().map(|name| clean(&name.0)).collect();
        line += &format!("  [{}]", parts.join(", "));
    }
    line
}
