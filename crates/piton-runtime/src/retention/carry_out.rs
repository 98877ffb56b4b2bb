//! Doing what a plan says, as far as the time allows. What is left is found again by the next plan.

use std::sync::Arc;
use std::time::Duration;

use piton_log::RunLog;
use piton_log::upkeep::{collect, drop_removed, expect_removal};
use piton_store::{StoreError, Sweep};
use piton_types::Timestamp;

use super::{Keeper, Plan, RunNote, clock};

/// How far one call goes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// No new piece of work is begun after so long.
    pub time: Duration,
    /// About so many bytes are deleted and no more.
    pub bytes: u64,
}

impl Bounds {
    /// As long as it takes.
    pub const NONE: Self = Self { time: Duration::MAX, bytes: u64::MAX };
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// Runs that were removed.
    pub runs: u64,
    /// Checkpoints that were removed from others.
    pub checkpoints: u64,
    /// Packs that gave way to smaller ones, because little of them was still needed.
    pub repacked: u64,
    /// Packs that are condemned now and deleted after the grace period.
    pub condemned: u64,
    /// Bytes that were deleted.
    pub bytes: u64,
    /// Something is left for the next time.
    pub more: bool,
}

impl Keeper<'_> {
    /// Does what the plan says.
    pub async fn carry_out(&self, plan: &Plan, bounds: Bounds) -> Result<Kept, StoreError> {
        let clock = &self.context.clock;
        let started = clock.monotonic();
        let over = || clock.monotonic().saturating_sub(started) >= bounds.time;
        let (store, now) = (self.store(), self.now());
        let mut kept = Kept::default();
        for removal in &plan.removals {
            if over() {
                kept.more = true;
                return Ok(kept);
            }
            expect_removal(&**store).await?;
            match store.remove(&removal.run.id, removal.head).await {
                Ok(()) => {
                    kept.runs += 1;
                    store.set_note(&RunNote::key(&removal.run.id), None).await?;
                }
                // The run went on, or another process was faster.
                Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        for thinning in &plan.thinnings {
            if over() {
                kept.more = true;
                return Ok(kept);
            }
            expect_removal(&**store).await?;
            let mut log = RunLog::open(Arc::clone(store), &thinning.run.id).await?;
            match log.remove_checkpoints(&thinning.checkpoints, "retention").await {
                Ok(seq) => {
                    kept.checkpoints += thinning.checkpoints.len() as u64;
                    RunNote { head: seq.0, pending: Some(now) }.write(&**store, &thinning.run.id).await?;
                }
                Err(StoreError::Conflict { .. } | StoreError::Fenced { .. }) => kept.more = true,
                Err(other) => return Err(other),
            }
        }
        for (run, head) in &plan.counted {
            RunNote { head: head.0, pending: None }.write(&**store, &run.id).await?;
        }
        let fresh = plan.thinnings.iter().map(|thinning| &thinning.run);
        // Without a clock no grace period has an end.
        let waits = plan.clock_doubted && !self.grace.is_zero();
        for run in plan.pending.iter().chain(fresh).filter(|_| !waits) {
            if over() {
                kept.more = true;
                return Ok(kept);
            }
            self.drop_if_due(run.id.clone(), now, &mut kept).await?;
        }
        // What was condemned earlier goes; what is found now waits, unless there is no grace.
        let mut due = Vec::new();
        loop {
            let collected = collect(store, self.reach, now, self.grace, &over).await?;
            kept.condemned += collected.condemned;
            kept.repacked += collected.repacked;
            kept.more |= collected.more;
            due.extend(collected.due);
            if collected.condemned == 0 || !self.grace.is_zero() || over() {
                break;
            }
        }
        if waits {
            due.clear();
        }
        while !over() && kept.bytes < bounds.bytes {
            let bytes = (bounds.bytes - kept.bytes).min(SLICE);
            let swept = store.sweep(Sweep { packs: due.clone(), bytes }).await?;
            kept.bytes += swept.bytes;
            if !swept.more {
                if !kept.more {
                    clock::done(&**store, now).await?;
                }
                return Ok(kept);
            }
        }
        kept.more = true;
        Ok(kept)
    }

    /// Drops what only removed checkpoints of the run had, once they have been removed for long enough.
    async fn drop_if_due(&self, run: piton_types::RunId, now: Timestamp, kept: &mut Kept) -> Result<(), StoreError> {
        let store = self.store();
        let note = RunNote::read(&**store, &run).await?.unwrap_or_default();
        let Some(since) = note.pending else {
            return RunNote { pending: Some(now), ..note }.write(&**store, &run).await;
        };
        // A clock that went back doesn't put it off for ever.
        if now >= since && now.since(since) < self.grace {
            return Ok(());
        }
        expect_removal(&**store).await?;
        match drop_removed(store, &run).await {
            Ok(_) => {
                let head = store.head(&run).await?.map_or(note.head, |head| head.seq.0);
                RunNote { head, pending: None }.write(&**store, &run).await
            }
            Err(StoreError::Conflict { .. }) => {
                kept.more = true;
                Ok(())
            }
            Err(StoreError::NotFound { .. }) if store.summary(&run).await?.is_none() => Ok(()),
            Err(other) => Err(other),
        }
    }
}

/// Bytes that are deleted between two looks at the time.
const SLICE: u64 = 16 << 20;
