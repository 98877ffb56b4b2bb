//! What would be removed, and why.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use piton_log::{RunLog, SealedEntry};
use piton_store::{Head, RunQuery, Span, StoreError};
use piton_types::{EntryKind, RunId, RunKind, RunStatus, RunSummary, Seq, Timestamp, Value};

use super::spread::to_give_up;
use super::{Keeper, RunNote, clock};
use crate::{Liveness, liveness};

/// How many runs are read at a time.
const PAGE: usize = 1000;

/// Why a run is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It ended well, or was given up, so long ago.
    Completed,
    /// It ended badly, so long ago.
    Failed,
    /// No process has worked for the session for so long.
    Abandoned,
    /// It ended, and the store has to become smaller.
    Space,
}

/// A run that is to go.
#[derive(Debug, Clone)]
pub struct Removal {
    /// The run.
    pub run: RunSummary,
    /// Where its log ends: if it goes on, it stays.
    pub head: Head,
    /// Why.
    pub why: Why,
    /// For how long nothing happened to it.
    pub age: Duration,
}

/// Checkpoints of a run that are to go.
#[derive(Debug, Clone)]
pub struct Thinning {
    /// The run.
    pub run: RunSummary,
    /// Those that go.
    pub checkpoints: BTreeSet<Seq>,
    /// How many stay.
    pub stay: usize,
}

/// What would be done.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Runs that are to go.
    pub removals: Vec<Removal>,
    /// Runs that are to lose checkpoints.
    pub thinnings: Vec<Thinning>,
    /// Runs with checkpoints that were removed and are still stored.
    pub pending: Vec<RunSummary>,
    /// Runs that were looked at.
    pub runs: u64,
    /// The clock may have jumped, so nothing is removed for its age.
    pub clock_doubted: bool,
    /// Runs whose checkpoints were counted and that need nothing, to be noted down.
    pub(super) counted: Vec<(RunSummary, Seq)>,
}

impl Plan {
    /// Whether there is nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.removals.is_empty() && self.thinnings.is_empty() && self.pending.is_empty()
    }
}

impl Keeper<'_> {
    /// What would be removed now. Nothing is, though a doubt about the clock is written down.
    pub async fn plan(&self) -> Result<Plan, StoreError> {
        self.plan_within(false).await
    }

    /// What would be removed if the store has to become smaller: all that ended, whatever its age.
    pub async fn plan_for_space(&self) -> Result<Plan, StoreError> {
        self.plan_within(true).await
    }

    /// What would be removed now of one run: when it has ended, it is thinned at once and not at the next upkeep.
    pub async fn plan_of(&self, run: &RunId) -> Result<Plan, StoreError> {
        let mut plan = Plan { clock_doubted: !clock::is_believed(self.context).await?, ..Plan::default() };
        if let Some(run) = self.store().summary(run).await? {
            plan.runs = 1;
            self.plan_run(run, false, &mut plan).await?;
        }
        Ok(plan)
    }

    async fn plan_within(&self, for_space: bool) -> Result<Plan, StoreError> {
        let mut plan = Plan { clock_doubted: !clock::is_believed(self.context).await?, ..Plan::default() };
        let mut query = RunQuery { limit: Some(PAGE), ..RunQuery::default() };
        loop {
            let page = self.store().list(query.clone()).await?;
            let Some(last) = page.last() else { break };
            query.after = Some((last.updated_at, last.id.clone()));
            let ended = page.len() < PAGE;
            for run in page {
                plan.runs += 1;
                self.plan_run(run, for_space, &mut plan).await?;
            }
            if ended {
                break;
            }
        }
        // The oldest first: if time runs out, what matters least is gone.
        plan.removals.reverse();
        Ok(plan)
    }

    async fn plan_run(&self, run: RunSummary, for_space: bool, plan: &mut Plan) -> Result<(), StoreError> {
        let store = self.store();
        let age = self.now().since(run.updated_at);
        let limit = match run.status {
            RunStatus::Completed | RunStatus::Cancelled => Some((self.policy.completed, Why::Completed)),
            RunStatus::Failed => Some((self.policy.failed, Why::Failed)),
            RunStatus::InProgress if run.kind == RunKind::Guard => Some((self.policy.failed, Why::Abandoned)),
            _ => None,
        };
        // What is kept for no time at all has no age.
        let is_old = |limit: Duration| limit.is_zero() || (age > limit && !plan.clock_doubted);
        let old = limit.filter(|(limit, _)| is_old(*limit)).map(|(_, why)| why);
        // What can still be retried or may be at work isn't for space.
        let for_space =
            (for_space && matches!(run.status, RunStatus::Completed | RunStatus::Cancelled)).then_some(Why::Space);
        if let Some(why) = old.or(for_space)
            && !self.is_driven(&run).await?
        {
            if let Some(head) = store.head(&run.id).await? {
                plan.removals.push(Removal { run, head, why, age });
            }
            return Ok(());
        }
        let most = self.most(run.kind);
        let Some(head) = store.head(&run.id).await? else { return Ok(()) };
        let note = RunNote::read(&**store, &run.id).await?;
        if note.is_some_and(|note| note.pending.is_some()) {
            plan.pending.push(run.clone());
        }
        if (head.seq.0 as usize) < most || note.is_some_and(|note| note.head == head.seq.0) {
            return Ok(());
        }
        // The folder's own log is written to by short commands, which look again; other runs have a driver that counts
        // on what it has stored.
        if run.kind != RunKind::Workspace && self.is_driven(&run).await? {
            return Ok(());
        }
        let log = RunLog::open(Arc::clone(store), &run.id).await?;
        let entries = log.entries(Span::ALL).await?;
        let removed = log.removed_in(&entries).await?;
        let unswept =
            removed.last.is_some() && note.is_none_or(|note| removed.last.is_some_and(|last| last.0 > note.head));
        if unswept && note.is_none_or(|note| note.pending.is_none()) {
            // The user removed some by hand.
            plan.pending.push(run.clone());
        }
        let all: Vec<(Seq, Timestamp)> = entries
            .iter()
            .filter(|entry| !entry.parts.is_empty() && !removed.checkpoints.contains(&entry.seq))
            .map(|entry| (entry.seq, entry.at))
            .collect();
        let recent = self.context.clock.now().as_millis().saturating_sub(BACKUPS);
        let stay = must_stay(&log, &entries, Timestamp::from_millis(recent)).await?;
        let checkpoints = to_give_up(&all, &stay, most);
        if checkpoints.is_empty() {
            plan.counted.push((run, head.seq));
        } else {
            let stay = all.len() - checkpoints.len();
            plan.thinnings.push(Thinning { run, checkpoints, stay });
        }
        Ok(())
    }

    fn most(&self, kind: RunKind) -> usize {
        let most = match kind {
            RunKind::Workspace | RunKind::Guard => self.policy.per_workspace,
            RunKind::Steps | RunKind::Workflow | RunKind::Embedded => self.policy.per_run,
        };
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Whether a process may be at work for the run: its lease says which, and the system whether it lives.
    async fn is_driven(&self, run: &RunSummary) -> Result<bool, StoreError> {
        let lease = self.store().lease(&run.id).await?;
        Ok(lease.is_some_and(|lease| liveness(&lease.holder, &self.context.holder) != Liveness::Dead))
    }
}

/// For so many milliseconds the checkpoints before restores stay.
const BACKUPS: i64 = 24 * 60 * 60 * 1000;

/// Checkpoints that stay whatever their number: those with a name, the backups of the last day, and those that something that can be taken back
/// leads to.
async fn must_stay(log: &RunLog, entries: &[SealedEntry], recent: Timestamp) -> Result<BTreeSet<Seq>, StoreError> {
    let mut stay = BTreeSet::new();
    let (mut closed, mut restored) = (false, false);
    for entry in entries.iter().rev() {
        if entry.parts.is_empty() && entry.kind != EntryKind::Restored {
            continue;
        }
        let body = log.body(entry).await?;
        let text = |name: &str| body.field(name).and_then(Value::as_str).unwrap_or_default();
        if text("kind") == "manual" && !text("description").is_empty() {
            stay.insert(entry.seq);
        }
        // Going back to an entry needs the state that was there: the newest up to it.
        if let Some(to) = body.field("to").and_then(Value::as_i64).and_then(|to| u32::try_from(to).ok()) {
            let target = entries.iter().rev().find(|entry| entry.seq.0 <= to && !entry.parts.is_empty());
            stay.extend(target.map(|entry| entry.seq));
        }
        let role = body.field("role").unwrap_or(&Value::Null);
        let role_name = role.field("role").or(Some(role)).and_then(Value::as_str).unwrap_or_default();
        // What a restore overwrote may be missed only later.
        if role_name == "backup" && entry.at >= recent {
            stay.insert(entry.seq);
        }
        let newest = match role_name {
            "closed" => !std::mem::replace(&mut closed, true),
            "restored" => !std::mem::replace(&mut restored, true),
            _ => false,
        };
        if newest {
            stay.insert(entry.seq);
            for name in ["since", "backup"] {
                let named = role.field(name).and_then(Value::as_str).and_then(|name| name.rsplit_once('@'));
                if let Some((run, seq)) = named
                    && run == log.run().as_str()
                    && let Ok(seq) = seq.parse()
                {
                    stay.insert(Seq(seq));
                }
            }
        }
    }
    Ok(stay)
}
