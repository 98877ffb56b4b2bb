//! Whether the process that claimed a run still drives it (decision 2 of the design).
//!
//! On the same host the system knows. Elsewhere only signs of life tell: a holder counts its beat up in
//! the store's index, and a contender watches it by its own monotonic clock. No two clocks are
//! ever compared, so none can be wrong.

use std::collections::HashMap;
use std::time::Duration;

use piton_store::StoreError;
use piton_types::{Fence, Holder, RunId, RunState, RunStatus, Seq};

use crate::{Context, History, Liveness, RunError, live, liveness};

/// How long a claim outlives the last sign of life, and how long to wait for a run that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseOptions {
    /// A holder on another host that gives no sign of life for so long is taken for dead. It gives one
    /// three times as often. All who share a store should have the same.
    pub ttl: Duration,
    /// How long to wait for a run that another process drives; without it, the answer is
    /// [`RunError::Held`](crate::RunError::Held) at once. To take over from another host takes at least
    /// the `ttl`.
    pub wait: Option<Duration>,
}

impl Default for LeaseOptions {
    /// Half a minute, and no waiting.
    fn default() -> Self {
        Self { ttl: Duration::from_secs(30), wait: None }
    }
}

/// What is known of a run's holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// No process claims to drive it.
    Free,
    /// Its holder is alive, or gave a sign of life within the `ttl`.
    Held,
    /// Its holder is dead, or gave no sign of life for as long as the `ttl`: the run is stalled.
    Stalled,
}

/// Watches the signs of life of many runs. Keep it between looks: one look alone can't tell of another
/// host.
#[derive(Debug, Default)]
pub struct LeaseWatch {
    seen: HashMap<RunId, (Sign, Duration)>,
}

/// What moves as long as a holder lives: its beat, and the log that it writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sign {
    fence: Fence,
    beat: u64,
    head: Seq,
}

impl LeaseWatch {
    /// How a run's holder stands by now. The index answers for a run in progress that another process holds; the log
    /// is read only where the index can't tell.
    pub async fn look(&mut self, context: &Context, run: &RunId, ttl: Duration) -> Result<Standing, RunError> {
        match context.store.summary(run).await?.map(|run| run.status) {
            Some(RunStatus::InProgress) => {}
            Some(RunStatus::Waiting) => return self.look_in_log(context, run, ttl).await,
            Some(_) => return Ok(Standing::Free),
            None => return Err(StoreError::NotFound { what: format!("run {run}") }.into()),
        }
        // The lease is only a hint; the log knows. And of this process's own claims only the log has the numbers.
        match context.store.lease(run).await?.filter(|lease| lease.holder != context.holder) {
            Some(lease) => Ok(self.judge_holder(context, run, &lease.holder, lease.fence, ttl).await?),
            None => self.look_in_log(context, run, ttl).await,
        }
    }

    async fn look_in_log(&mut self, context: &Context, run: &RunId, ttl: Duration) -> Result<Standing, RunError> {
        let history = History::of(context, run).await?;
        Ok(self.judge(context, run, &history, ttl).await?)
    }

    pub(crate) async fn judge(
        &mut self,
        context: &Context,
        run: &RunId,
        history: &History,
        ttl: Duration,
    ) -> Result<Standing, StoreError> {
        let Some((fence, claim)) = history.claim.as_ref().filter(|_| is_held(history)) else {
            self.seen.remove(run);
            return Ok(Standing::Free);
        };
        if claim.holder == context.holder {
            let live = live::is_live(&claim.holder, claim.claim);
            return Ok(if live { Standing::Held } else { Standing::Stalled });
        }
        self.judge_holder(context, run, &claim.holder, *fence, ttl).await
    }

    /// How another process that holds a run stands: on this host the system knows.
    async fn judge_holder(
        &mut self,
        context: &Context,
        run: &RunId,
        holder: &Holder,
        fence: Fence,
        ttl: Duration,
    ) -> Result<Standing, StoreError> {
        match liveness(holder, &context.holder) {
            Liveness::Alive => Ok(Standing::Held),
            Liveness::Dead => Ok(Standing::Stalled),
            Liveness::Unknown => self.watch(context, run, fence, ttl).await,
        }
    }

    /// How a holder on another host stands, by its signs of life.
    async fn watch(
        &mut self,
        context: &Context,
        run: &RunId,
        fence: Fence,
        ttl: Duration,
    ) -> Result<Standing, StoreError> {
        let beat = context.store.lease(run).await?.filter(|lease| lease.fence == fence).map_or(0, |lease| lease.beat);
        let head = context.store.head(run).await?.map_or(Seq(0), |head| head.seq);
        let (sign, now) = (Sign { fence, beat, head }, context.clock.monotonic());
        let (seen, since) = self.seen.entry(run.clone()).or_insert((sign, now));
        if *seen != sign {
            (*seen, *since) = (sign, now);
        }
        Ok(if now.saturating_sub(*since) >= ttl { Standing::Stalled } else { Standing::Held })
    }
}

/// Whether the log says that a process drives the run: in progress, or waiting in a process that stays.
fn is_held(history: &History) -> bool {
    match &history.state {
        RunState::InProgress(_) => true,
        RunState::Waiting(_) => history.line.waiting_held,
        _ => false,
    }
}
