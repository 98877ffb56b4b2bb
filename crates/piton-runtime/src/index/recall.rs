//! The driver of a run and its index: recalling calls, and writing the next index.

use std::sync::Arc;

use piton_store::StoreError;
use piton_types::{Durability, Seq, StepPath};

use super::Base;
use crate::core::{Core, Writer, draft};
use crate::fact::Fact;
use crate::history::{By, History};
use crate::line::{needs, scope_of};
use crate::{Run, RunError};

impl Core {
    /// Sees to it that what the log has of a call is known.
    pub(crate) async fn recall(&self, path: &StepPath) -> Result<(), StoreError> {
        let Some(base) = self.known().line.missing(path) else { return Ok(()) };
        match Box::pin(base.call(path)).await {
            Ok(recalled) => {
                self.known().line.remember(path, recalled);
                Ok(())
            }
            Err(error) => Box::pin(self.pass_over(&base, error)).await,
        }
    }

    /// The same for a call at a place, and for the one that the log has there.
    pub(crate) async fn recall_at(&self, path: &StepPath, place: u32) -> Result<(), StoreError> {
        self.recall(path).await?;
        let scope = scope_of(path);
        let missing = self.known().line.missing_place(scope, place);
        if let Some(base) = missing {
            match Box::pin(base.at(scope, place)).await {
                Ok(found) => self.known().line.remember_place(scope, place, found),
                Err(error) => return Box::pin(self.pass_over(&base, error)).await,
            }
        }
        let other = self.known().line.at(scope, place).filter(|other| *other != path).cloned();
        match other {
            Some(other) => Box::pin(self.recall(&other)).await,
            None => Ok(()),
        }
    }

    /// Recalls what must be known before this entry is taken in.
    pub(crate) async fn prepare(&self, fact: &Fact) -> Result<(), StoreError> {
        let Some(base) = self.known().line.base().cloned() else { return Ok(()) };
        match Box::pin(needs(&base, fact)).await {
            Ok(paths) => {
                for path in paths {
                    self.recall(&path).await?;
                }
                Ok(())
            }
            Err(error) => Box::pin(self.pass_over(&base, error)).await,
        }
    }

    /// The index is damaged: what it should have said is read from the log.
    async fn pass_over(&self, base: &Base, error: StoreError) -> Result<(), StoreError> {
        if !matches!(error, StoreError::Corrupt { .. }) {
            return Err(error);
        }
        tracing::warn!(run = %self.id, %error, "the index of a run is damaged; its whole log is read");
        let whole = History::read_by(base.pages.log(), base.end, By::WholeLog).await.map_err(|_| error)?;
        self.known().line.complete(whole.line);
        Ok(())
    }

    /// Writes an index if enough entries came since the last. The run goes on without one: if it can't be written, that
    /// is tried again as many entries later.
    pub(crate) async fn index_if_due(&self, writer: &mut Writer) {
        let head = writer.log.head().seq;
        let due = head.0.saturating_sub(writer.indexed.0) >= self.index_every;
        if !due || !self.context.store.capabilities().history || self.claim.is_none() || self.check_ready().is_err() {
            return;
        }
        // Rare, and large: it stays out of the futures of all writes.
        writer.indexed = match Box::pin(self.write_index(writer)).await {
            Ok(seq) => seq,
            // The next write meets what others have added.
            Err(RunError::Store(StoreError::Conflict { .. } | StoreError::Fenced { .. })) => return,
            Err(error) => {
                tracing::warn!(run = %self.id, %error, "an index of a run wasn't written");
                head
            }
        };
    }

    async fn write_index(&self, writer: &mut Writer) -> Result<Seq, RunError> {
        let record = History::read(&writer.log).await?.index(&writer.log).await?;
        let mut draft = draft(&self.id, &Fact::Indexed(Arc::new(record)))?;
        (draft.at, draft.fence) = (self.context.clock.now(), Some(self.fence));
        // It is durable with what follows.
        draft.durability = Durability::Relaxed;
        Ok(writer.log.append(draft).await?)
    }
}

impl Run {
    /// The newest attempt at a step that the log has. For engines that name their steps themselves;
    /// others use [`step`](crate::Scope::step).
    pub async fn recorded(&self, path: &StepPath) -> Result<Option<Arc<crate::StepRecord>>, RunError> {
        let core = self.core();
        core.recall(path).await?;
        Ok(core.known().line.steps.get(path).cloned())
    }

    /// Those of these steps that ended well, in the order in which they ended.
    pub async fn finished_among(&self, paths: Vec<StepPath>) -> Result<Vec<Arc<crate::StepRecord>>, RunError> {
        let mut found = Vec::new();
        for path in paths {
            if let Some(step) = self.recorded(&path).await?.filter(|step| step.is_finished()) {
                found.push((self.core().known().line.order.get(&path).copied(), step));
            }
        }
        found.sort_by_key(|(order, _)| *order);
        Ok(found.into_iter().map(|(_, step)| step).collect())
    }
}
