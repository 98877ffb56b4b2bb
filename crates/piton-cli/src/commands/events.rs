//! `piton events`: what happens to a run, as it happens.

use std::time::Duration;

use piton_app::runs::events::Events as Followed;
use piton_app::views::entry::EventView;
use piton_types::EntryKind;
use serde_json::Value as Json;

use crate::arguments::Events;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::signals::{Ended, until_stopped};
use crate::table::{cut, took};
use crate::view::kind_word;

pub(crate) async fn execute(session: &Session, arguments: &Events) -> Result<Exit, Failure> {
    let mut events = Followed::of(session, &arguments.run).await?;
    let ended = until_stopped(async {
        loop {
            let read = events.read().await?;
            if read.is_empty() {
                break;
            }
            show(session, &read)?;
        }
        while arguments.follow && !session.output.is_closed() {
            let new = events.wait().await?;
            if new.is_empty() {
                break;
            }
            show(session, &new)?;
        }
        Ok::<_, Failure>(())
    })
    .await?;
    events.close().await?;
    match ended {
        Ended::Finished(result) => result.map(|()| Exit::Done),
        Ended::Stopped(exit) => Ok(exit),
    }
}

fn show(session: &Session, events: &[EventView]) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        return output.list(events);
    }
    for event in events {
        let line = format!("{}  {:>5}  {}", event.entry.created_at, event.entry.seq, describe(event));
        output.data(&output.width().map_or_else(|| line.clone(), |width| cut(&line, width)))?;
    }
    Ok(())
}

/// An entry on one line.
fn describe(EventView { entry, body }: &EventView) -> String {
    let word = kind_word(entry.kind);
    let label = clean(&entry.label);
    let mut line = if label.is_empty() { word.to_owned() } else { format!("{word}  {label}") };
    if entry.kind == EntryKind::StepDone {
        let millis = body["duration_ms"].as_u64();
        line += &format!("  {}", took(Duration::from_millis(millis.unwrap_or(0))));
    }
    for name in ["error", "message", "prompt", "reason"] {
        if let Some(text) = body.get(name).and_then(Json::as_str).map(clean).filter(|text| *text != label) {
            line += &format!("  {text}");
        }
    }
    if entry.checkpoint {
        let parts: Vec<_> = entry.parts.keys().map(|name| clean(&name.0)).collect();
        line += &format!("  [{}]", parts.join(", "));
    }
    line
}
