//! What differs between two values, found in the time of the difference: what has one id in both is
//! the same, and isn't looked into.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use piton_types::{BlobId, Path, Segment, Value};

use super::grammar::{Kind, MAX_DEPTH, Malformed};
use super::load::{NodeSource, load_node};
use super::node::{Entry, Node, slot_reference};
use piton_store::StoreError;

/// One difference between two values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where. In a list, places are counted in the value that has the item.
    pub path: Path,
    /// What was there; `None` if nothing.
    pub old: Option<Value>,
    /// What is there now; `None` if nothing.
    pub new: Option<Value>,
}

/// The differences between two stored values, in the order of their paths.
///
/// Maps are compared by key. Of two lists, what both begin with and what both end with is the same;
/// the items between are compared in pairs, and those left over are added or removed. A string is
/// compared as a whole.
///
/// ```
/// use piton_log::state::{State, diff};
/// use piton_store::Hashing;
/// use piton_types::Value;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), piton_store::StoreError> {
/// let mut state = State::new(&Hashing::PLAIN, &Value::map([("todo", Value::List(vec![]))]))?;
/// let before = state.root();
/// state.push(&"/todo".parse().unwrap(), Value::from("rest")).await?;
/// let changes = diff(&state, before, state.root()).await?;
/// assert_eq!(changes.len(), 1);
/// assert_eq!(changes[0].path.to_string(), "/todo/0");
/// assert_eq!(changes[0].new, Some(Value::from("rest")));
/// # Ok(())
/// # }
/// ```
pub async fn diff(source: &dyn NodeSource, a: BlobId, b: BlobId) -> Result<Vec<Change>, StoreError> {
    let mut comparison = Comparison { source, path: Path::root(), changes: Vec::new() };
    if a != b {
        let (a, b) = (source.fetch(a).await?, source.fetch(b).await?);
        comparison.values(a, b).await?;
    }
    Ok(comparison.changes)
}

struct Comparison<'s> {
    source: &'s dyn NodeSource,
    path: Path,
    changes: Vec<Change>,
}

type Comparing<'c> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'c>>;

impl Comparison<'_> {
    /// Compares two nodes that differ. Boxed, as it comes back here for what is inside; the length of
    /// the path bounds how often.
    fn values(&mut self, a: Bytes, b: Bytes) -> Comparing<'_> {
        Box::pin(async move {
            match (Node::parse(&a)?, Node::parse(&b)?) {
                (Some(a), Some(b)) if a.kind() == Kind::List && b.kind() == Kind::List => self.lists(a, b).await,
                (Some(a), Some(b)) if a.kind() == Kind::Map && b.kind() == Kind::Map => self.maps(a, b).await,
                _ => {
                    let old = load_node(self.source, a).await?;
                    let new = load_node(self.source, b).await?;
                    self.changes.push(Change { path: self.path.clone(), old: Some(old), new: Some(new) });
                    Ok(())
                }
            }
        })
    }

    async fn lists(&mut self, a: Node, b: Node) -> Result<(), StoreError> {
        let (a_len, b_len) = (a.items()?, b.items()?);
        let shorter = a_len.min(b_len);
        let (a, b) = (Arc::new(a), Arc::new(b));
        let (mut left, mut right) = (Walk::from_start(a.clone()), Walk::from_start(b.clone()));
        let prefix = self.skip_common(&mut left, &mut right, shorter).await?;
        let suffix = self.skip_common(&mut Walk::from_end(a), &mut Walk::from_end(b), shorter - prefix).await?;
        let (mut index, a_end, b_end) = (prefix, a_len - suffix, b_len - suffix);
        while index < a_end && index < b_end {
            let same = self.skip_common(&mut left, &mut right, (a_end - index).min(b_end - index)).await?;
            index += same;
            if let (Some(old), Some(new)) = (left.slot(), right.slot())
                && index < a_end
                && index < b_end
            {
                self.part(list_segment(index), Some(old), Some(new)).await?;
                left.pass();
                right.pass();
                index += 1;
            }
        }
        for (walk, end, added) in [(&mut left, a_end, false), (&mut right, b_end, true)] {
            for index in index..end {
                walk.enter_leaf(self.source).await?;
                let slot = walk.slot().ok_or(Malformed("a number of items doesn't add up"))?;
                let (old, new) = if added { (None, Some(slot)) } else { (Some(slot), None) };
                self.part(list_segment(index), old, new).await?;
                walk.pass();
            }
        }
        Ok(())
    }

    /// Passes over what is the same in both, up to `limit` items, and returns how many items that were.
    /// Both stand at a slot then, unless the limit was reached.
    async fn skip_common(&self, left: &mut Walk, right: &mut Walk, limit: u64) -> Result<u64, StoreError> {
        let mut passed = 0;
        while passed < limit {
            let (Some((a, a_level)), Some((b, b_level))) = (left.current(), right.current()) else {
                return Err(Malformed("a number of items doesn't add up").into());
            };
            if a_level == b_level && a.bytes == b.bytes && a.items <= limit - passed {
                passed += a.items;
                left.pass();
                right.pass();
            } else if a_level == 0 && b_level == 0 {
                break;
            } else {
                self.enter_higher(left, right, a_level, b_level).await?;
            }
        }
        Ok(passed)
    }

    async fn enter_higher(&self, left: &mut Walk, right: &mut Walk, a: u8, b: u8) -> Result<(), StoreError> {
        if a >= b {
            left.enter(self.source).await?;
        }
        if b >= a {
            right.enter(self.source).await?;
        }
        Ok(())
    }

    async fn maps(&mut self, a: Node, b: Node) -> Result<(), StoreError> {
        let (mut left, mut right) = (Walk::from_start(Arc::new(a)), Walk::from_start(Arc::new(b)));
        loop {
            let order = match (left.current(), right.current()) {
                (None, None) => return Ok(()),
                (Some((a, a_level)), Some((b, b_level))) => {
                    if a_level == b_level && a.bytes == b.bytes {
                        left.pass();
                        right.pass();
                        continue;
                    }
                    if a_level > 0 || b_level > 0 {
                        self.enter_higher(&mut left, &mut right, a_level, b_level).await?;
                        continue;
                    }
                    a.key().cmp(b.key())
                }
                // One has ended; the rest of the other was added or removed.
                (Some(_), None) => {
                    left.enter_leaf(self.source).await?;
                    std::cmp::Ordering::Less
                }
                (None, Some(_)) => {
                    right.enter_leaf(self.source).await?;
                    std::cmp::Ordering::Greater
                }
            };
            let segment = if order.is_le() { left.key() } else { right.key() }?;
            let old = if order.is_le() { left.slot() } else { None };
            let new = if order.is_ge() { right.slot() } else { None };
            self.part(segment, old, new).await?;
            if order.is_le() {
                left.pass();
            }
            if order.is_ge() {
                right.pass();
            }
        }
    }

    /// Two slots that differ, or one that has no counterpart.
    async fn part(&mut self, segment: Segment, old: Option<Bytes>, new: Option<Bytes>) -> Result<(), StoreError> {
        if self.path.segments().len() >= MAX_DEPTH {
            return Err(Malformed("it nests too deeply").into());
        }
        let old = open(self.source, old).await?;
        let new = open(self.source, new).await?;
        self.path.push(segment);
        match (old, new) {
            (Some(old), Some(new)) => self.values(old, new).await?,
            (old, new) => {
                let old = load_if(self.source, old).await?;
                let new = load_if(self.source, new).await?;
                self.changes.push(Change { path: self.path.clone(), old, new });
            }
        }
        self.path.pop();
        Ok(())
    }
}

/// The node that a slot holds or refers to.
async fn open(source: &dyn NodeSource, slot: Option<Bytes>) -> Result<Option<Bytes>, StoreError> {
    let Some(slot) = slot else { return Ok(None) };
    Ok(Some(match slot_reference(&slot)? {
        Some(id) => source.fetch(id).await?,
        None => slot,
    }))
}

async fn load_if(source: &dyn NodeSource, node: Option<Bytes>) -> Result<Option<Value>, StoreError> {
    match node {
        Some(node) => load_node(source, node).await.map(Some),
        None => Ok(None),
    }
}

fn list_segment(index: u64) -> Segment {
    Segment::Index(usize::try_from(index).unwrap_or(usize::MAX))
}

/// A place in a tree, at an entry of any level, that moves over the entry or into it.
struct Walk {
    stack: Vec<(Arc<Node>, usize)>,
    backwards: bool,
}

impl Walk {
    fn from_start(top: Arc<Node>) -> Self {
        let mut walk = Self { stack: Vec::new(), backwards: false };
        walk.push(top);
        walk
    }

    fn from_end(top: Arc<Node>) -> Self {
        let mut walk = Self { stack: Vec::new(), backwards: true };
        walk.push(top);
        walk
    }

    fn push(&mut self, node: Arc<Node>) {
        if node.len() > 0 {
            let at = if self.backwards { node.len() - 1 } else { 0 };
            self.stack.push((node, at));
        }
    }

    /// The entry and its level; `None` at the end.
    fn current(&self) -> Option<(Entry<'_>, u8)> {
        self.stack.last().map(|(node, at)| (node.entry(*at), node.level()))
    }

    /// The slot, if it stands at one.
    fn slot(&self) -> Option<Bytes> {
        self.stack.last().filter(|(node, _)| node.level() == 0).map(|(node, at)| node.slot(*at))
    }

    /// The key of the entry.
    fn key(&self) -> Result<Segment, Malformed> {
        let (entry, _) = self.current().ok_or(Malformed("a number of items doesn't add up"))?;
        let key = std::str::from_utf8(entry.key()).map_err(|_| Malformed("a key isn't UTF-8"))?;
        Ok(Segment::Key(key.to_owned()))
    }

    /// Moves over the entry and all below it.
    fn pass(&mut self) {
        while let Some((node, at)) = self.stack.last_mut() {
            if self.backwards && *at > 0 {
                *at -= 1;
                return;
            }
            if !self.backwards && *at + 1 < node.len() {
                *at += 1;
                return;
            }
            self.stack.pop();
        }
    }

    /// Moves to the nearest entry of the node below. The node is checked against what its parent says.
    async fn enter(&mut self, source: &dyn NodeSource) -> Result<(), StoreError> {
        let Some((node, at)) = self.stack.last() else { return Ok(()) };
        let bytes = source.fetch(node.branch(*at)?).await?;
        let child = Node::parse(&bytes)?.ok_or(Malformed("a child is of another level or kind"))?;
        node.check_child(*at, &child)?;
        self.push(Arc::new(child));
        Ok(())
    }

    /// Down to a slot.
    async fn enter_leaf(&mut self, source: &dyn NodeSource) -> Result<(), StoreError> {
        while self.current().is_some_and(|(_, level)| level > 0) {
            self.enter(source).await?;
        }
        Ok(())
    }
}
