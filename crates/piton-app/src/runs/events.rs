//! What happens to a run, as it happens. Following reads only what is new.

use std::sync::Arc;
use std::time::Duration;

use piton_log::{RunLog, SealedEntry};
use piton_store::{Span, Store, StoreError};
use piton_types::{EntryKind, RunId, RunStatus, Seq, Value};

use crate::app::App;
use crate::failure::Failure;
use crate::references::run_id;
use crate::views::entry::{EntryView, EventView};
use crate::views::{told, value_json};

/// How often a followed log is looked at.
pub const LOOK: Duration = Duration::from_millis(200);
/// How many entries are read at a time.
const PAGE: u32 = 256;

/// The entries of a run's log from its beginning, and on as they are added.
pub struct Events {
    store: Arc<dyn Store>,
    log: RunLog,
    /// The next entry that hasn't been given yet.
    next: u32,
    is_over: bool,
}

impl Events {
    /// The events of the run that `prefix` means.
    pub async fn of(app: &App, prefix: &RunId) -> Result<Self, Failure> {
        let store = app.look().await?;
        let run = run_id(app, &store, prefix).await?;
        let log = RunLog::open(Arc::clone(&store), &run).await?;
        let is_over = false;
        Ok(Self { store, log, next: 0, is_over })
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        self.log.run()
    }

    /// Goes on after an entry that was given before.
    pub fn after(&mut self, seq: u32) {
        self.next = seq.saturating_add(1);
    }

    /// Whether all entries that there are were given.
    pub fn is_at_end(&self) -> bool {
        self.next > self.log.head().seq.0
    }

    /// The entries that weren't there yet, without waiting for them.
    pub async fn fresh(&mut self) -> Result<Vec<EventView>, Failure> {
        let new = self.log.refresh().await?;
        let Some(last) = new.last() else { return Ok(Vec::new()) };
        self.next = last.seq.0 + 1;
        self.views(new).await
    }

    /// Whether the entries that were given end the run.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// How the run ended, if it did: what was given before may have said so.
    pub async fn ended(&self) -> Result<Option<RunStatus>, Failure> {
        let summary = self.store.summary(self.log.run()).await?;
        Ok(summary.map(|summary| summary.status).filter(|status| status.is_final() || *status == RunStatus::Failed))
    }

    /// The next entries that there are, a page at most; none if all were given.
    pub async fn read(&mut self) -> Result<Vec<EventView>, Failure> {
        let head = self.log.head().seq;
        if self.next > head.0 {
            return Ok(Vec::new());
        }
        let to = head.min(Seq(self.next + PAGE - 1));
        let entries = self.log.entries(Span { from: Seq(self.next), to, ..Span::ALL }).await?;
        self.next = to.0 + 1;
        self.views(entries).await
    }

    /// Waits for entries that weren't there yet. None are given at the end of a run: when it is completed, failed or
    /// cancelled.
    pub async fn wait(&mut self) -> Result<Vec<EventView>, Failure> {
        while !self.is_over {
            tokio::time::sleep(LOOK).await;
            let new = self.log.refresh().await?;
            if let Some(last) = new.last() {
                self.next = last.seq.0 + 1;
                return self.views(new).await;
            }
        }
        Ok(Vec::new())
    }

    /// Ends the following.
    pub async fn close(self) -> Result<(), StoreError> {
        self.store.close().await
    }

    async fn views(&mut self, entries: Vec<SealedEntry>) -> Result<Vec<EventView>, Failure> {
        let mut views = Vec::with_capacity(entries.len());
        for entry in entries {
            let body = told(self.log.body(&entry).await?);
            self.is_over = ends(&entry, &body).unwrap_or(self.is_over);
            views.push(EventView { entry: EntryView::of(self.log.run(), &entry), body: value_json(&body) });
        }
        Ok(views)
    }
}

/// Whether the run is over since an entry, if the entry says anything of that.
fn ends(entry: &SealedEntry, body: &Value) -> Option<bool> {
    match entry.kind {
        EntryKind::Claimed => Some(false),
        EntryKind::StateChanged => {
            let over = [RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled];
            let status = body.field("status").and_then(Value::as_str);
            Some(status.is_some_and(|status| over.iter().any(|over| over.as_str() == status)))
        }
        _ => None,
    }
}
