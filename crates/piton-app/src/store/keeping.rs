//! Retention: by hand, what is due done in passing by commands that write, within a fraction of a second, and by workers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use piton_runtime::Context;
use piton_runtime::retention::{Bounds, GRACE, Keeper, Kept, by_the_store, is_due, is_past, rules};
use piton_store::{Store, StoreError};
use piton_types::{Retention, RunId};
use piton_workspace::{SnapshotReach, Workspace};

use crate::app::App;
use crate::runs::queue::DOCUMENT;
use crate::words;

/// How long a command that was asked for something else may take for it.
const IN_PASSING: Duration = Duration::from_millis(300);
/// A worker that gave no sign of life for so long doesn't do it.
const GONE: Duration = Duration::from_secs(5 * 60);
/// How long a worker may take for it at a time.
const BY_A_WORKER: Duration = Duration::from_secs(5 * 60);
/// How long it may take if nothing can be stored otherwise.
const FOR_SPACE: Duration = Duration::from_secs(20);
/// A disk that is fuller than this, in hundredths, is a reason to give space back at once.
const FULL: u64 = 80;
/// And if it stays so, to look again after this.
const WHILE_FULL: Duration = Duration::from_secs(60 * 60);

/// Whether the disk that holds `path` is nearly full.
pub fn disk_is_full(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|disk| {
        let used = disk.f_blocks.saturating_sub(disk.f_bfree);
        let usable = used + disk.f_bavail;
        usable > 0 && used.saturating_mul(100) / usable > FULL
    })
}

/// Does something with a keeper of the store, by these rules.
pub async fn with_keeper<T>(
    store: &Arc<dyn Store>,
    policy: Retention,
    grace: Duration,
    work: impl AsyncFnOnce(&Keeper<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let context = Context::system(Arc::clone(store));
    work(&Keeper { context: &context, policy, grace, reach: &SnapshotReach }).await
}

/// Whether the disk that holds a store is nearly full.
pub fn disk_of_is_full(store: &dyn Store) -> bool {
    store.url().split_once(':').is_some_and(|(_, path)| disk_is_full(Path::new(path)))
}

/// Does what is due, after a command that wrote something. Whatever goes wrong is said and no reason to fail.
pub async fn in_passing(app: &App, store: &Arc<dyn Store>) {
    let due = async || -> Result<Option<Kept>, StoreError> {
        if store.upkeep().is_none() {
            return Ok(None);
        }
        let full = disk_of_is_full(&**store) && is_past(&**store, app.now(), WHILE_FULL).await?;
        if !full && (!is_due(&**store, app.now()).await? || a_worker_does_it(store).await?) {
            return Ok(None);
        }
        let bounds = Bounds { time: IN_PASSING, bytes: 64 << 20 };
        let grace = if full { Duration::ZERO } else { GRACE };
        let kept = with_keeper(store, rules(&**store).await?, grace, async |keeper| {
            keeper.carry_out(&keeper.plan().await?, bounds).await
        });
        kept.await.map(Some)
    };
    match due().await {
        Ok(Some(kept)) if kept != Kept::default() => app.detail(&words(&kept)),
        Ok(_) => {}
        Err(error) => app.warn(&format!("space could not be given back: {error}")),
    }
}

/// Whether there is a worker that keeps house, so that no command has to wait for that.
async fn a_worker_does_it(store: &Arc<dyn Store>) -> Result<bool, StoreError> {
    let Some(queue) = store.queue() else { return Ok(false) };
    let workers = queue.workers().await?;
    Ok(workers
        .iter()
        .any(|worker| worker.silent_for < GONE && worker.info.labels.iter().any(|label| label == DOCUMENT)))
}

/// Does what is due of a store that workers share, by the time of the store. What takes too long goes on with the next call.
pub async fn by_a_worker(context: &Context) -> Result<Option<Kept>, StoreError> {
    let context = &by_the_store(context).await?;
    let store = &context.store;
    if store.upkeep().is_none() || !is_due(&**store, context.clock.now()).await? {
        return Ok(None);
    }
    let keeper = Keeper { context, policy: rules(&**store).await?, grace: GRACE, reach: &SnapshotReach };
    let bounds = Bounds { time: BY_A_WORKER, ..Bounds::NONE };
    keeper.carry_out(&keeper.plan().await?, bounds).await.map(Some)
}

/// Thins the checkpoints of a run that has completed by the rules of its store (C5). Whatever goes wrong is said and no reason
/// to fail.
pub async fn on_completion(app: &App, store: &Arc<dyn Store>, run: &RunId) {
    let thin = async || -> Result<Kept, StoreError> {
        if store.upkeep().is_none() {
            return Ok(Kept::default());
        }
        let bounds = Bounds { time: IN_PASSING, bytes: 64 << 20 };
        with_keeper(store, rules(&**store).await?, GRACE, async |keeper| match keeper.plan_of(run).await? {
            plan if plan.is_empty() => Ok(Kept::default()),
            plan => keeper.carry_out(&plan, bounds).await,
        })
        .await
    };
    match thin().await {
        Ok(kept) if kept != Kept::default() => app.detail(&words(&kept)),
        Ok(_) => {}
        Err(error) => app.warn(&format!("the checkpoints of run {run} could not be thinned: {error}")),
    }
}

/// Makes room if the store has reached its budget, before something is stored: what ended goes, and what would wait
/// goes at once.
pub async fn make_room(app: &App, store: &Arc<dyn Store>, workspace: &Workspace) {
    let room = async || -> Result<Option<Kept>, StoreError> {
        let used = store.usage().await?.bytes;
        if store.upkeep().is_none() || workspace.budget().await.is_ok_and(|budget| used <= budget) {
            return Ok(None);
        }
        let bounds = Bounds { time: FOR_SPACE, ..Bounds::NONE };
        let kept = with_keeper(store, rules(&**store).await?, Duration::ZERO, async |keeper| {
            let kept = keeper.carry_out(&keeper.plan().await?, bounds).await?;
            if store.usage().await?.bytes + kept.bytes <= used {
                return Ok(kept);
            }
            keeper.carry_out(&keeper.plan_for_space().await?, bounds).await
        });
        kept.await.map(Some)
    };
    match room().await {
        Ok(Some(kept)) => app.warn(&format!("the store had reached its budget: {}", words(&kept))),
        Ok(None) => {}
        Err(error) => app.warn(&format!("space could not be given back: {error}")),
    }
}

/// What was done, for people.
pub fn words(kept: &Kept) -> String {
    let many = |number: u64, one: &str| words::count(usize::try_from(number).unwrap_or(usize::MAX), one);
    let mut words = format!(
        "{} and {} of others removed, {} deleted",
        many(kept.runs, "run"),
        many(kept.checkpoints, "checkpoint"),
        words::size(kept.bytes)
    );
    if kept.condemned > 0 {
        words.push_str(&format!(", {} condemned", many(kept.condemned, "pack")));
    }
    if kept.more {
        words.push_str("; more is left for the next time");
    }
    words
}
