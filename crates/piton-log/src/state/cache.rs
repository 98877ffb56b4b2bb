//! Nodes in memory, by id.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use piton_types::BlobId;

use super::grammar::{LIST, LONG_BYTES};

/// How many bytes of stored nodes a state keeps, about.
const CACHE_MAX: usize = 4 << 20;
/// What an entry costs beside its bytes.
const OVERHEAD: usize = 96;

/// A map by id.
pub(crate) type IdMap<V> = HashMap<BlobId, V>;
pub(crate) type IdSet = HashSet<BlobId>;

/// Stored nodes with entries, which the next edit or read is likely to pass through again.
///
/// Two generations: what isn't used while the young one fills goes with the old one. That costs
/// nothing per use, and is all the order that matters here.
#[derive(Debug, Default)]
pub(super) struct Cache {
    young: IdMap<Bytes>,
    old: IdMap<Bytes>,
    young_bytes: usize,
}

impl Cache {
    pub(super) fn get(&mut self, id: BlobId) -> Option<Bytes> {
        if let Some(node) = self.young.get(&id) {
            return Some(node.clone());
        }
        let node = self.old.remove(&id)?;
        self.admit(id, node.clone());
        Some(node)
    }

    pub(super) fn contains(&self, id: BlobId) -> bool {
        self.young.contains_key(&id) || self.old.contains_key(&id)
    }

    /// Keeps a stored node if it has entries. Bytes that are shared are copied: a slice would keep alive the
    /// whole buffer that it was cut from.
    pub(super) fn insert(&mut self, id: BlobId, node: Bytes) {
        if node.first().is_some_and(|tag| (LIST..=LONG_BYTES).contains(tag)) && !self.contains(id) {
            let own = if node.is_unique() { node } else { Bytes::copy_from_slice(&node) };
            self.admit(id, own);
        }
    }

    fn admit(&mut self, id: BlobId, node: Bytes) {
        self.young_bytes += node.len() + OVERHEAD;
        self.young.insert(id, node);
        if self.young_bytes > CACHE_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use piton_store::Hashing;

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut cache = Cache::default();
        let hot = BlobId::new([9; 32]);
        cache.insert(hot, Bytes::from_static(&[LIST, 0]));
        for n in 0..40_000_u32 {
            let mut node = vec![LIST; 400];
            node.extend(n.to_le_bytes());
            cache.insert(Hashing::PLAIN.blob(&node), node.into());
            assert!(cache.get(hot).is_some());
        }
        let bytes: usize = cache.young.values().chain(cache.old.values()).map(|node| node.len() + OVERHEAD).sum();
        assert!(bytes <= CACHE_MAX, "{bytes}");
    }
}
