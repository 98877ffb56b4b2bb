//! Retention by hand, with a plan first.

use std::sync::Arc;
use std::time::Duration;

use piton_runtime::retention::{Bounds, GRACE, Plan as Retained, Why, rules, set_rules};
use piton_store::Store;
use piton_types::Retention;
use piton_workspace::Workspace;

use crate::app::App;
use crate::failure::Failure;
use crate::files::{self, Capture};
use crate::plan::Plan;
use crate::store::keeping::{disk_of_is_full, with_keeper};
use crate::views::store::CollectedView;
use crate::words::{age, count, size, span, took};

/// How many of a kind are named.
const NAMED: usize = 20;

/// Space that can be given back.
pub struct Collecting {
    store: Arc<dyn Store>,
    workspace: Option<Workspace>,
    rules: Retention,
    grace: Duration,
    retained: Retained,
    remember: bool,
    /// What that means.
    pub plan: Plan,
}

impl Collecting {
    /// Finds out what needn't be kept by the store's rules as `change` changes them. With `remember` they are the
    /// store's rules from then on; with `now` space is given back at once.
    pub async fn plan(
        app: &App,
        change: impl FnOnce(Retention) -> Retention,
        remember: bool,
        now: bool,
    ) -> Result<Self, Failure> {
        let store = app.store().await?;
        let workspace = files::open(app, &store, Capture::default()).await.ok();
        let over = match &workspace {
            Some(workspace) => store.usage().await?.bytes > workspace.budget().await?,
            None => false,
        };
        let grace = if now || over || disk_of_is_full(&*store) { Duration::ZERO } else { GRACE };
        let rules = change(rules(&*store).await?);
        let planning = with_keeper(&store, rules.clone(), grace, async |keeper| {
            if over { keeper.plan_for_space().await } else { keeper.plan().await }
        });
        let retained = app.through_stores("looking for what needn't be kept", planning).await?;
        let mut plan = planned(&retained, grace, over);
        if rules != Retention::default() {
            plan.line(format!(
                "completed runs are kept for {}, failed ones for {}; of a run {} checkpoints, of a folder {}",
                span(rules.completed),
                span(rules.failed),
                rules.per_run,
                rules.per_workspace
            ));
        }
        if remember {
            plan.line("these are the store's rules from now on");
        }
        Ok(Self { store, workspace, rules, grace, retained, remember, plan })
    }

    /// Gives space back, as the runs are now: one that went on since the plan was made stays.
    pub async fn carry_out(self, app: &App) -> Result<CollectedView, Failure> {
        let Self { store, workspace, rules, grace, retained, remember, .. } = self;
        if remember {
            set_rules(&*store, &rules).await?;
        }
        let before = store.usage().await?.bytes;
        let carrying_out =
            with_keeper(&store, rules, grace, async |keeper| keeper.carry_out(&retained, Bounds::NONE).await);
        let kept = app.through_stores("giving space back", carrying_out).await?;
        let budget = match &workspace {
            Some(workspace) => Some(workspace.budget().await?),
            None => None,
        };
        let after = store.usage().await?.bytes;
        store.close().await?;
        if let Some(budget) = budget.filter(|budget| after > *budget) {
            app.warn(&format!(
                "the store takes {} and may take {}: what is left is not finished or too new to go. \
                 Raise PITON_BUDGET, or give runs up: `piton ls` names them.",
                size(after),
                size(budget)
            ));
        }
        Ok(CollectedView {
            runs: kept.runs,
            checkpoints: kept.checkpoints,
            repacked: kept.repacked,
            condemned: kept.condemned,
            bytes: kept.bytes,
            more: kept.more,
            bytes_before: before,
            bytes_after: after,
            kept,
        })
    }
}

fn planned(retained: &Retained, grace: Duration, over: bool) -> Plan {
    let thinned = retained.thinnings.iter().map(|thinning| thinning.checkpoints.len()).sum();
    let runs = count(usize::try_from(retained.runs).unwrap_or(usize::MAX), "run");
    let mut plan =
        Plan::new(format!("{} of {runs} removed, {} of others", retained.removals.len(), count(thinned, "checkpoint")));
    if retained.clock_doubted && retained.runs > 0 {
        plan.line(
            "nothing is removed for its age yet: this store wasn't looked after before, or the clock may have jumped since",
        );
        plan.line("if the clock is right, `piton gc` a day from now removes what is due");
    }
    if over {
        plan.line("the store is over its budget: what has ended goes whatever its age");
    }
    for removal in retained.removals.iter().take(NAMED) {
        let why = match removal.why {
            Why::Completed => "ended",
            Why::Failed => "failed",
            Why::Abandoned => "no process has been at work since",
            Why::Space => "ended, for space,",
        };
        plan.line(format!("run {}  {}  {why} {}", removal.run.id, removal.run.name, age(removal.age)));
    }
    if retained.removals.len() > NAMED {
        plan.line(format!("… and {} more runs", retained.removals.len() - NAMED));
    }
    for thinning in retained.thinnings.iter().take(NAMED) {
        let (gone, stay) = (thinning.checkpoints.len(), thinning.stay);
        plan.line(format!("run {}  {gone} checkpoints go, {stay} stay", thinning.run.id));
    }
    if retained.thinnings.len() > NAMED {
        plan.line(format!("… and checkpoints of {} more runs", retained.thinnings.len() - NAMED));
    }
    if retained.is_empty() {
        return plan;
    }
    if grace.is_zero() {
        plan.line("their space is given back at once");
    } else {
        plan.line(format!("their space is given back after {}", took(grace)));
    }
    plan
}
