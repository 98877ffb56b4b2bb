//! Going back: the run goes on from an earlier entry. Nothing is rewritten; an entry says what counts no
//! more. What was done in the world meanwhile stays done, so the caller is told what that is, and
//! can have it taken back where the effect said how.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::sync::Arc;

use piton_log::{Content, DraftPart, RunLog};
use piton_store::StoreError;
use piton_types::{BlobId, CheckpointRef, EntryKind, IllegalMove, PartName, RunId, RunStatus, Seq, StepPath, Value};

use crate::core::Core;
use crate::fact::Fact;
use crate::open::StartAt;
use crate::pages::PAGE;
use crate::record::{EffectRecord, EffectStatus, ReceiptRecord, RestoreRecord, Witness};
use crate::{Compensation, Context, Cursor, History, OpenRun, Pager, Run, RunError};

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
        let mut history = History::read(&writer.log).await?;
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
/// after that entry. Newest first. Changes nothing, and reads what lies behind that entry.
pub async fn undone_effects(context: &Context, run: &RunId, at: &StartAt) -> Result<Vec<UndoneEffect>, RunError> {
    let log = RunLog::open(Arc::clone(&context.store), run).await?;
    let history = History::read(&log).await?;
    let Some(to) = target(run, &history, at).await? else { return Ok(Vec::new()) };
    let kept = History::read_to(&log, to).await?;
    let mut left = Vec::new();
    for path in intents_since(&log, to).await? {
        let Some(effect) = history.effect(&path).await? else { continue };
        let stays = kept.effect(&path).await?.is_some_and(|kept| kept.intent.key == effect.intent.key);
        if !stays && matches!(effect.status(), EffectStatus::Done | EffectStatus::Uncertain) {
            let compensation = effect.intent.compensation.clone();
            left.push((history.first_entry(&path).await?, UndoneEffect { effect, compensation }));
        }
    }
    left.sort_by_key(|(first, _)| std::cmp::Reverse(*first));
    Ok(left.into_iter().map(|(_, left)| left).collect())
}

/// The effects with an intent that counts now and didn't when `to` was the newest entry.
async fn intents_since(log: &RunLog, to: Seq) -> Result<BTreeSet<StepPath>, RunError> {
    let (mut now, mut then) = (Pager::new(log), Pager::from(log, Cursor { next: to, counts: Some(to) }));
    let (mut found, mut kept) = (BTreeSet::new(), VecDeque::new());
    while now.cursor().is_some() {
        for past in now.entries(PAGE).await?.into_iter().filter(|past| !past.undone) {
            while past.entry.seq <= to
                && kept.back().is_none_or(|last| *last > past.entry.seq)
                && then.cursor().is_some()
            {
                kept.extend(then.entries(PAGE).await?.iter().filter(|past| !past.undone).map(|past| past.entry.seq));
            }
            // What led to an entry is the same then and now.
            if kept.binary_search_by(|kept| past.entry.seq.cmp(kept)).is_ok() {
                return Ok(found);
            }
            if past.entry.kind == EntryKind::EffectIntent
                && let Fact::Intent(intent) = Fact::read(log, &past.entry).await?
            {
                found.insert(intent.path);
            }
        }
    }
    Ok(found)
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
    context.check_history("roll back")?;
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
