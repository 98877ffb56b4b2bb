//! What happens, as it happens: to one run, to all, and to a check of the store.

use std::sync::Arc;

use piton_app::runs::changes::Changing;
use piton_app::runs::events::{Events, LOOK};
use piton_app::shell::{Level, Shell};
use piton_app::store::check::check;
use piton_app::views::entry::EventView;
use piton_app::views::page::EventsPage;
use piton_types::RunId;
use serde_json::json;
use tokio::sync::{broadcast, watch};

use super::{Answer, Call, view};
use crate::problem::Problem;
use crate::stream::{Gone, Sink, events};

/// The last event that a client has, as its browser says it or as the address does.
fn seen(call: &Call) -> Result<Option<String>, Problem> {
    match call.headers.get("last-event-id").map(|id| id.to_str()) {
        Some(Ok(id)) => Ok(Some(id.to_owned())),
        Some(Err(_)) => Err(Problem::of_field("last-event-id", "it is no event of this stream")),
        None => Ok(call.query.text("after").map(str::to_owned)),
    }
}

pub(super) async fn of_run(call: Call) -> Answer {
    let run: RunId = call.part("run")?;
    let after = seen(&call)?.map(|seen| crate::query::parse::<u32>("after", &seen)).transpose()?;
    let mut entries = Events::of(&call.server.app, &run).await?;
    after.into_iter().for_each(|after| entries.after(after));
    if !call.accepts("text/event-stream") {
        let limit = call.query.limit(256, 256)?;
        let mut events = entries.read().await?;
        let more = events.len() > limit || !entries.is_at_end();
        events.truncate(limit);
        let next = events.last().map(|last| last.entry.seq).filter(|_| more);
        return view(&EventsPage { events, next });
    }
    let live = call.server.drives.live(entries.run());
    let server = Arc::clone(&call.server);
    events(&call.server, move |sink| async move {
        let followed = follow(&sink, &mut entries, &server, live).await;
        match followed {
            Ok(Ok(())) | Err(Gone) => followed.map(|_| ()),
            Ok(Err(problem)) => sink.problem(&problem).await,
        }
    })
}

/// Sends the entries of a run until it is over.
async fn follow(
    sink: &Sink,
    entries: &mut Events,
    server: &crate::server::Server,
    mut live: Option<broadcast::Receiver<Arc<str>>>,
) -> Result<Result<(), Problem>, Gone> {
    loop {
        match entries.read().await {
            Err(failure) => return Ok(Err(failure.into())),
            Ok(found) if found.is_empty() => break,
            Ok(found) => send(sink, &found).await?,
        }
    }
    // One that was over before is not waited for; else its entries say when it is.
    let mut over = match entries.ended().await {
        Err(failure) => return Ok(Err(failure.into())),
        Ok(status) => status.is_some(),
    };
    loop {
        match entries.fresh().await {
            Err(failure) => return Ok(Err(failure.into())),
            Ok(found) if !found.is_empty() => {
                send(sink, &found).await?;
                over = entries.is_over();
                continue;
            }
            Ok(_) if over => {
                let status = entries.ended().await.ok().flatten();
                sink.send("end", None, &json!({ "status": status }).to_string()).await?;
                return Ok(Ok(()));
            }
            Ok(_) => {}
        }
        if live.is_none() {
            live = server.drives.live(entries.run());
        }
        let until = tokio::time::Instant::now() + LOOK;
        let waiting = async { tokio::time::timeout_at(until, heard(&mut live)).await };
        match sink.while_there(waiting).await? {
            Ok(Some(said)) => sink.send("live", None, &said).await?,
            Ok(None) => live = None,
            Err(_) => {}
        }
    }
}

/// The next of what a driver tells; `None` when it tells no more.
async fn heard(live: &mut Option<broadcast::Receiver<Arc<str>>>) -> Option<Arc<str>> {
    let Some(receiver) = live else { return std::future::pending().await };
    loop {
        match receiver.recv().await {
            Ok(said) => return Some(said),
            // A slow client misses some; the log has what counts.
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return None,
        }
    }
}

async fn send(sink: &Sink, found: &[EventView]) -> Result<(), Gone> {
    for event in found {
        let id = event.entry.seq.to_string();
        let data = serde_json::to_value(event).unwrap_or_default().to_string();
        sink.send("entry", Some(&id), &data).await?;
    }
    Ok(())
}

pub(super) async fn of_all(call: Call) -> Answer {
    let after = seen(&call)?;
    let mut changing = Changing::since(&call.server.app, after.as_deref()).await?;
    events(&call.server, move |sink| async move {
        let begins = json!({ "cursor": changing.cursor() }).to_string();
        sink.send("ready", Some(&changing.cursor()), &begins).await?;
        loop {
            match sink.while_there(changing.wait()).await? {
                Err(failure) => return sink.problem(&failure.into()).await,
                Ok(runs) => {
                    let id = changing.cursor();
                    for run in &runs {
                        let data = serde_json::to_value(run).unwrap_or_default().to_string();
                        sink.send("run", Some(&id), &data).await?;
                    }
                }
            }
        }
    })
}

/// Hears how far a check has come.
struct Progress(watch::Sender<String>);

impl Shell for Progress {
    fn tell(&self, _level: Level, _text: &str) {}

    fn shows_progress(&self) -> bool {
        true
    }

    fn progress(&self, words: Option<&str>) {
        words.into_iter().for_each(|words| drop(self.0.send_replace(words.to_owned())));
    }
}

pub(super) async fn of_check(call: Call) -> Answer {
    let deep = call.query.flag("deep")?;
    let (tell, mut told) = watch::channel(String::new());
    let app = call.server.app.holding(Arc::new(Progress(tell)));
    events(&call.server, move |sink| async move {
        let mut checking = Box::pin(async { check(&app, None, deep).await });
        loop {
            let next = sink
                .while_there(async {
                    tokio::select! {
                        checked = &mut checking => Some(checked),
                        Ok(()) = told.changed() => None,
                    }
                })
                .await?;
            match next {
                None => {
                    let words = json!({ "words": *told.borrow_and_update() }).to_string();
                    sink.send("progress", None, &words).await?;
                }
                Some(Ok(checked)) => {
                    let data = serde_json::to_value(&checked).unwrap_or_default().to_string();
                    return sink.send("done", None, &data).await;
                }
                Some(Err(failure)) => return sink.problem(&failure.into()).await,
            }
        }
    })
}
