//! Many entries of a map, set at once.

use std::borrow::Borrow;

use piton_types::{Path, Value};

use super::{State, incoming};
use crate::state::edit::Edit;
use crate::state::encode::Encoder;
use crate::state::grammar::INLINE_MAX;
use crate::state::node::Entries;
use piton_store::StoreError;

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
        let mut values: Vec<_> = entries.iter().rev().map(|(key, value)| (key.as_ref(), value.borrow())).collect();
        values.sort_by_key(|(key, _)| *key);
        values.dedup_by_key(|(key, _)| *key);
        if values.is_empty() {
            return Ok(());
        }
        let depth = path.segments().len() + 1;
        let hashing = self.hashing.clone();
        let mut encoder = Encoder::new(&hashing);
        let mut entries = Entries::default();
        let mut slot = Vec::with_capacity(INLINE_MAX);
        for (key, value) in values {
            slot.clear();
            encoder.slot(&incoming(self.redaction.as_ref(), Some(key), value), depth, &mut slot)?;
            entries.push_keyed(key.as_bytes(), &slot);
        }
        self.keep(&encoder.finish());
        self.edit(path, &Edit::Merge(entries)).await.map(drop)
    }
}
