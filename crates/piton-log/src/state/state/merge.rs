//! Many entries of a map, set at once.

use std::borrow::{Borrow, Cow};
use std::sync::Arc;

use bytes::Bytes;
use piton_types::{BlobId, Path, Value};

use super::{State, incoming};
use crate::state::borrowed::{Borrowed, check_order};
use crate::state::edit::Edit;
use crate::state::encode::Encoder;
use crate::state::grammar::INLINE_MAX;
use crate::state::node::Entries;
use piton_store::{Hashing, Redaction, Store, StoreError};

impl State {
    /// Sets entries of the map at `path`, at the cost of one edit. Of two with the same key the later one counts.
    ///
    /// ```
    /// # use piton_log::state::State;
    /// # use piton_store::{Hashing, StoreError};
    /// # use piton_types::{Path, Value};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), StoreError> {
    /// let mut state = State::new(&Hashing::PLAIN, &Value::map([("turn", Value::from(1))]))?;
    /// state.merge(&Path::root(), &[("turn", Value::from(2)), ("name", Value::from("Ada"))]).await?;
    /// assert_eq!(state.value().await?, Value::map([("name", Value::from("Ada")), ("turn", Value::from(2))]));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn merge<K, V>(&mut self, path: &Path, entries: &[(K, V)]) -> Result<(), StoreError>
    where
        K: AsRef<str>,
        V: Borrow<Value>,
    {
        // Of those with the same key the last one comes first, and stays.
        let values = entries.iter().rev().map(|(key, value)| (key.as_ref(), Borrowed::Value(value.borrow())));
        let mut values: Vec<(&str, Borrowed<'_>)> = values.collect();
        values.sort_by_key(|(key, _)| *key);
        values.dedup_by(|(one, _), (other, _)| one == other);
        let entries = MapEntries::new(&self.hashing, self.redaction.as_ref(), path.segments().len(), &values)?;
        self.merge_encoded(path, &entries).await
    }

    /// [`merge`](Self::merge) of entries that were encoded ahead, for the store that this state is saved in.
    pub async fn merge_encoded(&mut self, path: &Path, entries: &MapEntries) -> Result<(), StoreError> {
        if !self.fits(&entries.hashing, entries.redaction.as_ref()) || entries.depth != path.segments().len() {
            let detail = "they were encoded for another store, or for another place".to_owned();
            return Err(StoreError::Invalid { what: "entries of a map".to_owned(), detail });
        }
        if entries.entries.is_empty() {
            return Ok(());
        }
        self.keep(&entries.nodes);
        self.edit(path, &Edit::Merge(Cow::Borrowed(&entries.entries))).await.map(drop)
    }
}

/// Entries for a map in a state, encoded: for a caller that has the time for that before the state's turn comes.
///
/// ```
/// # use piton_log::state::{MapEntries, State};
/// # use piton_store::{StoreError, Store};
/// # use piton_store_objects::ObjectStore;
/// # use piton_types::{Path, Value};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), StoreError> {
/// let store = ObjectStore::in_memory();
/// let entries = MapEntries::encode(&store, &Path::root(), &[("turn", (&Value::from(2)).into())])?;
/// let mut state = State::new(store.hashing(), &Value::map([("turn", Value::from(1))]))?;
/// state.merge_encoded(&Path::root(), &entries).await?;
/// assert_eq!(state.value().await?, Value::map([("turn", Value::from(2))]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MapEntries {
    hashing: Hashing,
    redaction: Option<Arc<Redaction>>,
    /// How many containers are around the map.
    depth: usize,
    /// In the order of their keys, none twice.
    entries: Entries,
    /// The nodes below them.
    nodes: Vec<(BlobId, Bytes)>,
}

impl MapEntries {
    /// Encodes entries for the map at `path` of a state that is saved in this store. They are in the order of their keys,
    /// each once; anything else is `Invalid`.
    pub fn encode(store: &dyn Store, path: &Path, entries: &[(&str, Borrowed<'_>)]) -> Result<Self, StoreError> {
        Self::new(store.hashing(), store.redaction(), path.segments().len(), entries)
    }

    fn new(
        hashing: &Hashing,
        redaction: Option<&Arc<Redaction>>,
        depth: usize,
        values: &[(&str, Borrowed<'_>)],
    ) -> Result<Self, StoreError> {
        check_order(values)?;
        let mut encoder = Encoder::new(hashing);
        let mut entries = Entries::default();
        let mut slot = Vec::with_capacity(INLINE_MAX);
        for (key, value) in values {
            slot.clear();
            match redaction {
                Some(_) => {
                    let value = value.to_value();
                    encoder.slot(&incoming(redaction, Some(key), &value), depth + 1, &mut slot)?;
                }
                None => encoder.slot_of(*value, depth + 1, &mut slot)?,
            }
            entries.push_keyed(key.as_bytes(), &slot);
        }
        let nodes = encoder.finish();
        Ok(Self { hashing: hashing.clone(), redaction: redaction.cloned(), depth, entries, nodes })
    }
}

impl std::fmt::Debug for MapEntries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MapEntries").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}
