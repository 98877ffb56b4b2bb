//! What a driven run does in the background as long as its handle exists: signs of life for those who
//! watch from other hosts, a look at the log for requests and answers, and lines for those who follow.
//!
//! It beats in real time: it is about processes, not about what is in the log. A store that no other
//! process can use needs neither beats nor looks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::core::Core;

/// How often the log is looked at for requests.
const LOOK: Duration = Duration::from_secs(1);

/// Watches over a run until its last handle is dropped.
pub(crate) fn start(core: &Arc<Core>, ttl: Duration) {
    let Some(claim) = &core.claim else { return };
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let nudged = claim.nudged();
    let beats = core.context.store.capabilities().shared;
    let core = Arc::downgrade(core);
    // Not a handle of the task: it ends by itself when nothing is left to watch.
    runtime.spawn(async move {
        let beat_every = (ttl / 3).max(Duration::from_millis(1));
        let mut next_beat = Instant::now() + beat_every;
        loop {
            let until = next_beat.min(Instant::now() + LOOK);
            let told = timeout_at(until, nudged.notified()).await.is_ok();
            let Some(core) = Weak::upgrade(&core) else { return };
            let over = core.known().broken.is_some() || core.check_ready().is_err();
            if over {
                return;
            }
            if beats && Instant::now() >= next_beat {
                next_beat = Instant::now() + beat_every;
                beat(&core).await;
            }
            if beats || told {
                look(&core).await;
            }
            if let Err(error) = core.flush_lines().await {
                tracing::warn!(run = %core.id, %error, "lines of the log were not written");
            }
            drop(core);
        }
    });
}

async fn beat(core: &Core) {
    if let Err(error) = core.context.store.beat(&core.id, core.fence, &core.context.holder).await {
        // The next write finds out for itself whether the run was taken over.
        tracing::warn!(run = %core.id, %error, "a sign of life was not recorded");
    }
}

/// Takes in what others have added, unless a write is under way, which does that itself.
async fn look(core: &Core) {
    let Ok(mut writer) = core.writer.try_lock() else { return };
    match core.context.store.head(&core.id).await {
        Ok(Some(head)) if head.seq > writer.log.head().seq => {
            if let Err(error) = core.absorb(&mut writer).await {
                tracing::warn!(run = %core.id, %error, "the run can't go on here");
            }
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(run = %core.id, %error, "the log was not looked at"),
    }
    drop(writer);
    if let Some(claim) = &core.claim {
        // A task that waits for an answer listens to the same bell.
        claim.nudged().notify_waiters();
    }
}
