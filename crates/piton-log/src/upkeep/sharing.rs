//! What writers rely on without naming it: a save of files shares unchanged folders with an earlier snapshot, and names
//! only the packs that are new. Until its commit it says in a note which snapshot that is.
//!
//! The order makes it safe: the writer writes the note, then looks whether the snapshot is still there. A look for what
//! is needed reads the notes after the logs, and the logs again after the notes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use piton_types::{BlobId, Value};

use super::Reach;
use super::collect::reach_if_there;
use piton_store::{Owner, Pin, Store, StoreError};

const PREFIX: &str = "sharing/";

/// A note that a writer shares folders with a snapshot. One that is dropped without having [ended](Self::end) runs out
/// as pins do.
pub struct Sharing {
    store: Arc<dyn Store>,
    key: String,
    snapshot: Value,
    since: Instant,
}

impl Sharing {
    /// Writes the note. Only then may the caller look whether the snapshot is there.
    pub async fn begin(store: &Arc<dyn Store>, snapshot: Value) -> Result<Self, StoreError> {
        let key = format!("{PREFIX}{:016x}", Owner::new().0);
        let mut sharing = Self { store: Arc::clone(store), key, snapshot, since: Instant::now() };
        sharing.renew().await?;
        Ok(sharing)
    }

    /// Whether so much of its time is over that it should be renewed before a commit relies on it.
    pub fn is_old(&self) -> bool {
        self.since.elapsed() > Pin::LIFE / 2
    }

    /// Writes the note again. Then the caller looks again whether the snapshot is there.
    pub async fn renew(&mut self) -> Result<(), StoreError> {
        let invalid = |detail: String| StoreError::Invalid { what: "a snapshot".to_owned(), detail };
        let json = piton_types::to_json(&self.snapshot).map_err(|error| invalid(error.to_string()))?;
        let note = format!("{} {json}", now() + Pin::LIFE.as_millis());
        self.since = Instant::now();
        self.store.set_note(&self.key, Some(Bytes::from(note))).await
    }

    /// After the commit.
    pub async fn end(self) -> Result<(), StoreError> {
        self.store.set_note(&self.key, None).await
    }
}

impl std::fmt::Debug for Sharing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharing").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Milliseconds since 1970, by this machine's clock.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

/// The blobs that writers share just now.
pub(super) async fn shared(store: &Arc<dyn Store>, reach: &dyn Reach) -> Result<HashSet<BlobId>, StoreError> {
    let mut found = HashSet::new();
    for (key, note) in store.notes(PREFIX).await? {
        let parsed = std::str::from_utf8(&note).ok().and_then(|note| note.split_once(' '));
        let parsed =
            parsed.and_then(|(until, json)| Some((until.parse().ok()?, piton_types::from_json(json.as_bytes()).ok()?)));
        let Some((until, snapshot)): Option<(u128, Value)> = parsed else {
            return Err(StoreError::corrupt(format!("the note {key:?}"), "it isn't one that was ever written"));
        };
        if until <= now() {
            store.set_note(&key, None).await?;
            continue;
        }
        // If it was gone before the note was written, its writer finds that too.
        found.extend(reach_if_there(store, reach, snapshot).await?);
    }
    Ok(found)
}
