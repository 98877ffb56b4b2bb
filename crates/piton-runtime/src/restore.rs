//! Going back: the run goes on from an earlier entry. Nothing is rewritten; an entry says what counts no
//! more. What was done in the world meanwhile stays done, so the caller is told what that is, and
//! can have it taken back where the effect said how.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use piton_log::{Content, DraftPart, RunLog};
use piton_store::StoreError;
use piton_types::{BlobId, CheckpointRef, IllegalMove, PartName, RunId, RunStatus, Seq, Value};

use crate::core::Core;
use crate::fact::Fact;
use crate::history::By;
use crate::open::StartAt;
use crate::record::{EffectRecord, EffectStatus, ReceiptRecord, RestoreRecord, Witness};
use crate::{Compensation, Context, History, OpenRun, Run, RunError, WholeHistory};

/// The entry that a run is to go on from; nothing if it is where it was left.
pub(crate) async fn target(run: &RunId, history: &History, at: &StartAt) -> Result<Option<Seq>, RunError> {
    match at {
        StartAt::End => Ok(None),
        StartAt::Entry(seq) if *seq > history.head => {
            Err(StoreError::NotFound { what: format!("entry {seq} of run {run}") }.into())
        }
        StartAt::Entry(seq) => Ok(Some(*seq)),
        StartAt::Step(step) => {
            let first = history.first_entry(step).await?;
            let first = first.ok_or_else(|| RunError::NoSuchStep { run: run.clone(), step: step.clone() })?;
            Ok(Some(Seq(first.0.saturating_sub(1))))
        }
    }
}

impl Core {
    /// Puts the run back to the entry `to`: what is known is what was known then.
    pub(crate) async fn restore(&self, to: Seq, at: &StartAt, usage_back: bool) -> Result<(), RunError> {
        let mut writer = self.writer().await?;
        let before = History::read_to(&writer.log, to).await?;
        let reason = match at {
            StartAt::Step(step) => format!("again from {step}"),
            _ => format!("back to {}@{to}", self.id),
        };
        let epoch = self.known().line.epoch + 1;
        let mut parts = before.checkpoint.map(|(_, parts)| parts).unwrap_or_default();
        let usage = PartName::from(PartName::USAGE);
        if let Some(spent) = writer.parts.get(&usage).filter(|_| !usage_back) {
            parts.insert(usage, spent.clone());
        }
        // The entry has the whole state of then; what came into being since isn't carried on.
        writer.parts.clear();
        let drafts = parts.iter().map(|(name, part)| DraftPart {
            name: name.clone(),
            schema: part.schema.clone(),
            version: part.version,
            content: Content::Stored(part.root),
        });
        let restored = Fact::Restored(RestoreRecord { to, reason, epoch });
        self.commit_parts(&mut writer, restored, drafts.collect(), self.durability).await?;
        let by = if self.all_steps { By::WholeLog } else { By::Index };
        let mut history = Box::pin(History::read_by(&writer.log, writer.log.head().seq, by)).await?;
        history.line.untrack();
        self.known().line = history.line;
        // The next process that opens the run needn't go back beyond this entry.
        writer.indexed = Seq(0);
        Ok(())
    }
}

/// An effect that going back doesn't undo in the world.
#[derive(Debug, Clone, PartialEq)]
pub struct UndoneEffect {
    /// What was intended, and what became of it: done, or uncertain.
    pub effect: EffectRecord,
    /// How to take it back, if the effect said so.
    pub compensation: Option<Compensation>,
}

/// What a run that goes on from `at` leaves behind in the world: effects that took place, or may have,
/// after that entry. Newest first. Changes nothing.
pub async fn undone_effects(context: &Context, run: &RunId, at: &StartAt) -> Result<Vec<UndoneEffect>, RunError> {
    let log = RunLog::open(Arc::clone(&context.store), run).await?;
    let history = WholeHistory::read(&log).await?;
    let Some(to) = target(run, &history, at).await? else { return Ok(Vec::new()) };
    let kept = WholeHistory::read_to(&log, to).await?;
    let mut order = HashMap::new();
    for effect in &history.effects {
        let path = effect.intent.path.clone();
        let first = history.first_entry(&path).await?;
        order.insert(path, first);
    }
    let mut left: Vec<_> = history
        .effects
        .into_iter()
        .filter(|effect| matches!(effect.status(), EffectStatus::Done | EffectStatus::Uncertain))
        .filter(|effect| !kept.effects.iter().any(|kept| kept.intent.key == effect.intent.key))
        .map(|effect| UndoneEffect { compensation: effect.intent.compensation.clone(), effect })
        .collect();
    left.sort_by_key(|left| std::cmp::Reverse(order.get(&left.effect.intent.path).copied().flatten()));
    Ok(left)
}

/// What became of going back.
#[derive(Debug, Clone, PartialEq)]
pub struct RolledBack {
    /// The entry that the run goes on from.
    pub to: CheckpointRef,
    /// Effects that were taken back, with their keys.
    pub compensated: Vec<BlobId>,
    /// What the world keeps.
    pub left: Vec<UndoneEffect>,
}

/// Puts a run back and leaves it paused there. Effects after `at` for which a [`Compensation`] was
/// recorded are first given to `compensate`, newest first, with a key that is the same for every attempt;
/// each one that it takes back is recorded before the next. If one can't be, the run stays as it is, and
/// what was taken back so far isn't taken back again.
///
/// # Errors
///
/// As [`Run::open`]; [`RunError::Effect`] if a compensation fails.
pub async fn roll_back<E, W>(
    context: &Context,
    run: &RunId,
    at: StartAt,
    mut compensate: impl FnMut(Compensation, BlobId) -> W + Send,
) -> Result<RolledBack, RunError>
where
    E: std::fmt::Display + Send,
    W: Future<Output = Result<Value, E>> + Send,
{
    let history = History::of(context, run).await?;
    if history.state.status().is_final() {
        let cause = IllegalMove { from: history.state.status(), to: RunStatus::InProgress };
        return Err(RunError::Illegal { run: run.clone(), cause });
    }
    let to = target(run, &history, &at).await?.unwrap_or(history.head);
    let held = Run::open(context, OpenRun { id: Some(run.clone()), existing: true, ..OpenRun::default() }).await?;
    let mut done =
        RolledBack { to: CheckpointRef { run: run.clone(), seq: to }, compensated: Vec::new(), left: Vec::new() };
    for undone in undone_effects(context, run, &at).await? {
        let intent = &undone.effect.intent;
        match &undone.compensation {
            Some(compensation) if undone.effect.status() == EffectStatus::Done => {
                let started = context.clock.monotonic();
                let key = crate::effect::compensation_key(intent.key);
                let taken_back = compensate(compensation.clone(), key).await.map_err(|error| RunError::Effect {
                    step: intent.path.clone(),
                    status: EffectStatus::Done,
                    message: format!("it can't be taken back: {error}"),
                })?;
                let receipt = ReceiptRecord {
                    path: intent.path.clone(),
                    key: intent.key,
                    status: EffectStatus::Compensated,
                    output: taken_back,
                    error: None,
                    retry: None,
                    by: Witness::Call,
                    duration_ms: crate::deadline::millis(context.clock.monotonic().saturating_sub(started)),
                };
                let core = held.core();
                let mut writer = core.writer().await?;
                core.commit(&mut writer, Fact::Receipt(receipt)).await?;
                done.compensated.push(intent.key);
            }
            _ => done.left.push(undone),
        }
    }
    if at != StartAt::End {
        held.core().restore(to, &at, false).await?;
    }
    held.pause(&format!("rolled back to {}", done.to)).await?;
    Ok(done)
}
