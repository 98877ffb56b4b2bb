//! When retention is due, and whether the clock can be believed.

use std::sync::Arc;
use std::time::Duration;

use piton_store::{Bytes, Store, StoreError};
use piton_types::{Clock, Sleep, Timestamp, from_json, from_value, to_json, to_value};

use crate::{Context, Deadline};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The hour of the day, in UTC, after which it is due again.
const HOUR: i64 = 3;
/// A clock that is so much later than at the last look may have jumped.
const JUMP: Duration = Duration::from_secs(2 * 24 * 60 * 60);
/// A look is written down if the last one is so long ago.
const LOOK: Duration = Duration::from_secs(60 * 60);

/// When retention last ended.
const LAST: &str = "retention/last";
/// The time at the last look at which the clock was believed.
const SEEN: &str = "retention/seen";
/// When a clock that may have jumped is believed, if it stays: a day after it was first seen.
const DOUBTED: &str = "retention/doubted";

async fn read(store: &dyn Store, key: &str) -> Result<Option<Timestamp>, StoreError> {
    let note = store.note(key).await?;
    let millis = note.and_then(|note| std::str::from_utf8(&note).ok()?.parse().ok());
    Ok(millis.map(Timestamp::from_millis))
}

async fn write(store: &dyn Store, key: &str, at: Timestamp) -> Result<(), StoreError> {
    store.set_note(key, Some(Bytes::from(at.as_millis().to_string()))).await
}

/// Whether three o'clock has passed since retention last ended.
pub async fn is_due(store: &dyn Store, now: Timestamp) -> Result<bool, StoreError> {
    Ok(read(store, LAST).await?.is_none_or(|last| day_of(last) != day_of(now)))
}

/// Whether retention ended so long ago or longer, or never.
pub async fn is_past(store: &dyn Store, now: Timestamp, time: Duration) -> Result<bool, StoreError> {
    // A clock that went back doesn't put it off for ever.
    Ok(read(store, LAST).await?.is_none_or(|last| now < last || now.since(last) >= time))
}

/// Days from three to three.
const fn day_of(at: Timestamp) -> i64 {
    (at.as_millis() - HOUR * 3_600_000).div_euclid(86_400_000)
}

pub(super) async fn done(store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
    write(store, LAST, now).await
}

/// This machine's clock, put right by the time of the store as it was once.
struct StoreTime {
    own: Arc<dyn Clock>,
    /// How many milliseconds the store's is ahead.
    ahead: i64,
}

impl Clock for StoreTime {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.own.now().as_millis().saturating_add(self.ahead))
    }

    fn monotonic(&self) -> Duration {
        self.own.monotonic()
    }

    fn since_boot(&self) -> Option<Duration> {
        self.own.since_boot()
    }

    fn sleep(&self, duration: Duration) -> Sleep<'_> {
        self.own.sleep(duration)
    }
}

/// The same context by the time of the store, if that tells one: of many machines one may have a clock that is wrong.
pub async fn by_the_store(context: &Context) -> Result<Context, StoreError> {
    let Some(queue) = context.store.queue() else { return Ok(context.clone()) };
    let (store, own) = (queue.now().await?, context.clock.now());
    let ahead = store.as_millis().saturating_sub(own.as_millis());
    Ok(Context { clock: Arc::new(StoreTime { own: Arc::clone(&context.clock), ahead }), ..context.clone() })
}

/// Whether ages can be told by the clock. It isn't asked what times the store has: a command whose clock is wrong has
/// written some of them. A clock that went on by more than [`JUMP`] since the last look, and one that is seen for the first
/// time, is believed if it still says so a day later; in one boot of the host that day is measured by a clock that doesn't
/// jump.
pub(super) async fn is_believed(context: &Context) -> Result<bool, StoreError> {
    let (store, now) = (&*context.store, context.clock.now());
    let seen = read(store, SEEN).await?;
    let is_near = seen.is_some_and(|seen| now.since(seen) <= JUMP);
    let doubted = store.note(DOUBTED).await?;
    if !is_near {
        let doubt = doubted.as_ref().and_then(|doubt| from_value::<Deadline>(from_json(doubt).ok()?).ok());
        let stayed = doubt.filter(|doubt| now.after(DAY) >= doubt.at && now.since(doubt.at) <= JUMP);
        match stayed {
            Some(doubt) if doubt.left(context).is_zero() => {}
            Some(_) => return Ok(false),
            None => {
                let doubt = to_value(&Deadline::after(context, DAY)).ok().and_then(|doubt| to_json(&doubt).ok());
                store.set_note(DOUBTED, doubt.map(|doubt| Bytes::from(doubt.to_string()))).await?;
                return Ok(false);
            }
        }
    }
    if doubted.is_some() {
        store.set_note(DOUBTED, None).await?;
    }
    // So that a plan alone mostly writes nothing. One that went back is followed.
    if seen.is_none_or(|seen| now < seen || now.since(seen) >= LOOK) {
        write(store, SEEN, now).await?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use piton_store_objects::ObjectStore;
    use piton_testing::ManualClock;

    use super::*;

    fn at(day: i64, hour: i64) -> Timestamp {
        Timestamp::from_millis((day * 24 + hour) * 3_600_000)
    }

    /// C5: daily at three, at the next command after it.
    #[tokio::test]
    async fn it_is_due_once_after_three() {
        let store = ObjectStore::in_memory();
        assert!(is_due(&store, at(10, 1)).await.unwrap(), "it was never done");
        done(&store, at(10, 1)).await.unwrap();
        assert!(!is_due(&store, at(10, 2)).await.unwrap());
        assert!(is_due(&store, at(10, 3)).await.unwrap());
        done(&store, at(10, 3)).await.unwrap();
        assert!(!is_due(&store, at(11, 2)).await.unwrap());
        assert!(is_due(&store, at(15, 0)).await.unwrap());
    }

    /// A clock that jumped is believed only if it stays there for a day, by a clock that doesn't jump.
    #[tokio::test]
    async fn a_clock_that_jumped_is_doubted_for_a_day() {
        let clock = Arc::new(ManualClock::new(at(100, 0)).booted());
        let context =
            Context { clock: clock.clone(), ..Context::system(Arc::new(ObjectStore::in_memory()) as Arc<dyn Store>) };
        let hours = |hours: u64| clock.advance(Duration::from_secs(hours * 3600));
        let is_believed = async || is_believed(&context).await.unwrap();
        assert!(!is_believed().await, "it is seen for the first time");
        hours(23);
        assert!(!is_believed().await);
        hours(1);
        assert!(is_believed().await);
        hours(40);
        assert!(is_believed().await, "not every day");
        clock.set_wall(at(150, 0));
        assert!(!is_believed().await);
        clock.set_wall(at(151, 1));
        assert!(!is_believed().await, "that wasn't a day");
        clock.set_wall(at(102, 17));
        assert!(is_believed().await, "it went back, and all is forgotten");
        clock.set_wall(at(150, 0));
        assert!(!is_believed().await);
        hours(23);
        assert!(!is_believed().await);
        hours(1);
        assert!(is_believed().await, "it stayed");
        clock.set_wall(at(30, 0));
        assert!(is_believed().await);
        clock.set_wall(at(151, 0));
        assert!(!is_believed().await, "one that went back is followed");
    }
}
