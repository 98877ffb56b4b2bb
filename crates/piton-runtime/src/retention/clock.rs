//! When retention is due, and whether the clock can be believed.

use std::time::Duration;

use piton_store::{Bytes, Store, StoreError};
use piton_types::Timestamp;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The hour of the day, in UTC, after which it is due again.
const HOUR: i64 = 3;
/// A clock that is so far ahead of everything that the store has seen may have jumped.
const JUMP: Duration = Duration::from_secs(60 * 24 * 60 * 60);

/// When retention last ended.
const LAST: &str = "retention/last";
/// When a clock was first seen that may have jumped.
const DOUBTED: &str = "retention/doubted";

async fn read(store: &dyn Store, key: &str) -> Result<Option<Timestamp>, StoreError> {
    let note = store.note(key).await?;
    let millis = note.and_then(|note| std::str::from_utf8(&note).ok()?.parse().ok());
    Ok(millis.map(Timestamp::from_millis))
}

async fn write(store: &dyn Store, key: &str, at: Option<Timestamp>) -> Result<(), StoreError> {
    store.set_note(key, at.map(|at| Bytes::from(at.as_millis().to_string()))).await
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
    write(store, LAST, Some(now)).await
}

/// Whether ages can be told by the clock. `newest` is the newest time in the store. One that is months ahead of
/// everything is believed when it still says so a day later.
pub(super) async fn is_believed(store: &dyn Store, newest: Timestamp, now: Timestamp) -> Result<bool, StoreError> {
    let seen = read(store, LAST).await?.map_or(newest, |last| last.max(newest));
    if now.since(seen) < JUMP {
        write_if(store, DOUBTED, None).await?;
        return Ok(true);
    }
    match read(store, DOUBTED).await? {
        Some(since) if now.since(since) >= DAY && now.since(since) < JUMP => Ok(true),
        Some(since) if now >= since && now.since(since) < DAY => Ok(false),
        _ => {
            write(store, DOUBTED, Some(now)).await?;
            Ok(false)
        }
    }
}

/// Writes only what is different, so that a plan alone mostly writes nothing.
async fn write_if(store: &dyn Store, key: &str, at: Option<Timestamp>) -> Result<(), StoreError> {
    if read(store, key).await? == at {
        return Ok(());
    }
    write(store, key, at).await
}

#[cfg(test)]
mod tests {
    use piton_store_objects::ObjectStore;

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

    /// A clock that jumped by ten years is believed only if it stays there.
    #[tokio::test]
    async fn a_clock_that_jumped_is_doubted_for_a_day() {
        let store = ObjectStore::in_memory();
        let newest = at(100, 0);
        assert!(is_believed(&store, newest, at(130, 0)).await.unwrap());
        assert!(!is_believed(&store, newest, at(3750, 0)).await.unwrap());
        assert!(!is_believed(&store, newest, at(3750, 20)).await.unwrap());
        assert!(is_believed(&store, newest, at(100, 5)).await.unwrap(), "it went back, and all is forgotten");
        assert!(!is_believed(&store, newest, at(3750, 21)).await.unwrap());
        assert!(is_believed(&store, newest, at(3752, 0)).await.unwrap(), "it stayed");
    }
}
