//! `piton gc`: retention by hand, with a plan first.

use std::time::Duration;

use piton::Retention;
use piton::retention::{Bounds, GRACE, Keeper, Plan as Retained, Why, rules, set_rules};
use serde_json::json;

use crate::arguments::store::Gc;
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table;
use piton_app::Plan;
use piton_app::files;
use piton_app::files::Capture;
use piton_app::store::keeping::{self, with_keeper};

/// How many of a kind are named.
const NAMED: usize = 20;

pub(crate) async fn execute(session: &Session, arguments: &Gc) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let workspace = files::open(session, &store, Capture::default()).await.ok();
    let over = match &workspace {
        Some(workspace) => store.usage().await?.bytes > workspace.budget().await?,
        None => false,
    };
    let full = keeping::disk_of_is_full(&*store);
    let grace = if arguments.now || over || full { Duration::ZERO } else { GRACE };
    let plan_for = async |keeper: &Keeper<'_>| if over { keeper.plan_for_space().await } else { keeper.plan().await };
    let rules = arguments.rules(rules(&*store).await?);
    let planning = with_keeper(&store, workspace.as_ref(), rules.clone(), grace, async |keeper| plan_for(keeper).await);
    let retained = session.through_stores("looking for what needn't be kept", planning).await?;
    let mut plan = show(&retained, grace, over);
    if rules != Retention::default() {
        plan.line(words(&rules));
    }
    if arguments.remember {
        plan.line("these are the store's rules from now on");
    }
    if !agreed(&plan, session, arguments.consent)? {
        store.close().await?;
        return Ok(Exit::Done);
    }
    if arguments.remember {
        set_rules(&*store, &rules).await?;
    }
    let before = store.usage().await?.bytes;
    let carrying_out = with_keeper(&store, workspace.as_ref(), rules, grace, async |keeper| {
        // As it is now: a run that went on since the plan was shown stays.
        keeper.carry_out(&retained, Bounds::NONE).await
    });
    let kept = session.through_stores("giving space back", carrying_out).await?;
    let budget = match &workspace {
        Some(workspace) => Some(workspace.budget().await?),
        None => None,
    };
    let after = store.usage().await?.bytes;
    store.close().await?;
    if let Some(budget) = budget.filter(|budget| after > *budget) {
        session.output.warn(&format!(
            "the store takes {} and may take {}: what is left is not finished or too new to go. \
             Raise PITON_BUDGET, or give runs up with `piton cancel`.",
            table::size(after),
            table::size(budget)
        ));
    }
    if session.output.is_json() {
        session.output.object(&json!({
            "runs": kept.runs,
            "checkpoints": kept.checkpoints,
            "repacked": kept.repacked,
            "condemned": kept.condemned,
            "bytes": kept.bytes,
            "more": kept.more,
            "bytes_before": before,
            "bytes_after": after,
        }))?;
    } else {
        session.output.data(&keeping::words(&kept))?;
    }
    Ok(Exit::Done)
}

/// Rules, for people.
fn words(rules: &Retention) -> String {
    format!(
        "completed runs are kept for {}, failed ones for {}; of a run {} checkpoints, of a folder {}",
        table::span(rules.completed),
        table::span(rules.failed),
        rules.per_run,
        rules.per_workspace
    )
}

fn show(retained: &Retained, grace: Duration, over: bool) -> Plan {
    let mut plan = Plan::new(format!(
        "{} of {} runs removed, {} checkpoints of others",
        retained.removals.len(),
        retained.runs,
        retained.thinnings.iter().map(|thinning| thinning.checkpoints.len()).sum::<usize>()
    ));
    if retained.clock_doubted {
        plan.line(
            "the clock is months ahead of everything in this store: nothing is removed for its age until tomorrow",
        );
    }
    if over {
        plan.line("the store is over its budget: what has ended goes whatever its age");
    }
    for removal in retained.removals.iter().take(NAMED) {
        let why = match removal.why {
            Why::Completed => "ended",
            Why::Failed => "failed",
            Why::Abandoned => "nobody has been at work since",
            Why::Space => "ended, for space,",
        };
        let name = clean(&removal.run.name);
        plan.line(format!("run {}  {name}  {why} {}", removal.run.id, table::age(removal.age)));
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
    if grace.is_zero() {
        plan.line("their space is given back at once");
    } else {
        plan.line(format!("their space is given back after {}", table::took(grace)));
    }
    plan
}
