//! A value that lives in its encoded form and is edited by path.

mod merge;
mod unstored;

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{BlobId, Path, RunId, Segment, Seq, Value};

use super::cache::{Cache, IdMap, IdSet};
use super::cut::Sink;
use super::edit::{Edit, apply, find};
use super::encode::Encoder;
use super::grammar::{Kind, LIST, LIST_INNER, LONG_BYTES, MAP, Reader, reference_offsets};
use super::load::{NodeSource, load_node};
use super::node::{Entries, Node};
use super::splice::{Fail, Shelf};
use crate::difference::Base;
use piton_store::{Hashing, Redaction, StoreError};
use unstored::{New, SWEEP_MIN, Unstored};

/// A persistent value, edited by path. An edit, and a save after it, costs the change and not the size.
///
/// Equal states have equal [roots](Self::root), whatever edits led to them, and the same as
/// [`encode`](super::encode()) gives. An edit that returns an error has changed nothing. A clone shares
/// its nodes and goes its own way.
///
/// ```
/// use piton_log::state::State;
/// use piton_store::Hashing;
/// use piton_types::Value;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), piton_store::StoreError> {
/// let messages = "/messages".parse().unwrap();
/// let mut state = State::new(&Hashing::PLAIN, &Value::map([("messages", Value::List(vec![]))]))?;
/// state.push(&messages, Value::from("hello")).await?;
/// state.set(&"/turn".parse().unwrap(), Value::from(1)).await?;
/// assert_eq!(state.len(&messages).await?, Some(1));
///
/// // Saving: store these, then say so.
/// let nodes = state.unsaved();
/// assert_eq!(nodes.last().unwrap().0, state.root());
/// state.saved();
/// assert!(state.unsaved().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct State {
    hashing: Hashing,
    root: BlobId,
    fresh: Unstored,
    /// What the nodes of the next save may be written as differences from.
    bases: Bases,
    /// Stored nodes of a state without a source, which couldn't be had back.
    kept: IdMap<Bytes>,
    cache: Arc<Mutex<Cache>>,
    source: Option<Arc<dyn NodeSource>>,
    /// The log that has what was saved, if it is one.
    home: Option<Home>,
    /// What takes secrets out of what comes in, and puts them back into what is read.
    redaction: Option<Arc<Redaction>>,
}

/// Which log has the stored nodes of a state: the address of what its handle reads nodes with, which the state holds
/// too, the run, and how often the handle has seen checkpoints being removed.
pub(crate) type Home = (usize, RunId, u32);

/// A node to be stored.
#[derive(Debug, Clone)]
pub(crate) struct Fresh {
    pub(crate) id: BlobId,
    pub(crate) node: Bytes,
    /// The node whose place it took, if a reader of this one has that one at hand.
    pub(crate) base: Option<(Base, Bytes)>,
    /// Where the ids in it are, if it has a base.
    pub(crate) references: Vec<usize>,
}

impl Fresh {
    /// A node that is stored whole.
    pub(crate) fn whole(id: BlobId, node: Bytes) -> Self {
        Self { id, node, base: None, references: Vec::new() }
    }
}

/// Which nodes were saved last, and are in the packs of the same group of entries as those that come next.
#[derive(Clone, Default)]
struct Bases {
    group: u32,
    places: IdMap<Base>,
}

/// The nodes at hand during one call.
struct View<'a> {
    fresh: &'a IdMap<New>,
    kept: &'a IdMap<Bytes>,
    cache: &'a Mutex<Cache>,
    /// What this call has fetched. It stays until the call ends, so that each attempt gets further
    /// than the one before, however small the cache is.
    fetched: &'a IdMap<Bytes>,
}

impl Shelf for View<'_> {
    fn node(&self, id: BlobId) -> Result<Bytes, Fail> {
        let fresh = self.fresh.get(&id).map(|new| &new.node);
        let known = fresh.or_else(|| self.kept.get(&id)).or_else(|| self.fetched.get(&id)).cloned();
        known.or_else(|| lock(self.cache).get(id)).ok_or(Fail::Missing(id))
    }
}

/// The same, with a place for new nodes.
struct Desk<'a> {
    hashing: &'a Hashing,
    fresh: &'a mut Unstored,
    kept: &'a IdMap<Bytes>,
    cache: &'a Mutex<Cache>,
    fetched: &'a IdMap<Bytes>,
    /// Stored nodes that were read on the way, so they belong to the state as it is. They are few.
    read: RefCell<Vec<BlobId>>,
    /// Nodes with entries that were read on the way, in order, with their tag and level: new ones of the
    /// same shape, which come in the reverse order, most likely take their places.
    trail: RefCell<Vec<(BlobId, [u8; 2])>>,
}

/// Where the ids in a node are that was made here.
fn offsets(node: &[u8]) -> Vec<usize> {
    reference_offsets(node).expect("a node that was made here is well formed")
}

/// The tag and the level of a node with entries.
fn shape(node: &[u8]) -> Option<[u8; 2]> {
    match node {
        [tag @ (LIST | MAP), ..] => Some([*tag, 0]),
        [tag @ LIST_INNER..=LONG_BYTES, level, ..] => Some([*tag, *level]),
        _ => None,
    }
}

impl Desk<'_> {
    /// Which stored node one of this shape takes the place of.
    fn replaced(&self, shape: [u8; 2]) -> Option<BlobId> {
        let mut trail = self.trail.borrow_mut();
        let at = trail.iter().rposition(|(_, known)| *known == shape)?;
        let (old, _) = trail.remove(at);
        self.fresh.nodes.get(&old).map_or(Some(old), |new| new.old)
    }
}

impl Shelf for Desk<'_> {
    fn node(&self, id: BlobId) -> Result<Bytes, Fail> {
        let node = match self.fresh.nodes.get(&id) {
            Some(new) => new.node.clone(),
            None => {
                self.read.borrow_mut().push(id);
                View { fresh: &self.fresh.nodes, kept: self.kept, cache: self.cache, fetched: self.fetched }.node(id)?
            }
        };
        if let Some(shape) = shape(&node) {
            self.trail.borrow_mut().push((id, shape));
        }
        Ok(node)
    }
}

impl Sink for Desk<'_> {
    fn put(&mut self, head: &[u8], body: &[u8]) -> BlobId {
        self.put_whole([head, body].concat().into())
    }

    fn put_whole(&mut self, node: Bytes) -> BlobId {
        let id = self.hashing.blob(&node);
        // Not everything that was stored once counts: a node that left the state may have been collected
        // since, though the cache still has it. What belongs to the state is there.
        if !self.read.borrow().contains(&id) && !self.fresh.nodes.contains_key(&id) {
            let old = shape(&node).and_then(|shape| self.replaced(shape));
            self.fresh.insert(id, node, old);
        }
        id
    }
}

impl State {
    /// A new state, of which nothing is stored.
    ///
    /// An error means that containers nest more than 128 deep.
    pub fn new(hashing: &Hashing, value: &Value) -> Result<Self, StoreError> {
        let encoded = super::encode(hashing, value)?;
        let mut fresh = Unstored::default();
        for (id, node) in encoded.nodes {
            fresh.insert(id, node, None);
        }
        fresh.limit = fresh.bytes * 2 + SWEEP_MIN;
        Ok(Self {
            hashing: hashing.clone(),
            root: encoded.root,
            fresh,
            bases: Bases::default(),
            kept: IdMap::default(),
            cache: Arc::default(),
            source: None,
            home: None,
            redaction: None,
        })
    }

    /// A new state for a store with this policy: secrets are taken out as they come in.
    pub(crate) fn redacted(
        hashing: &Hashing,
        redaction: Option<&Arc<Redaction>>,
        value: &Value,
    ) -> Result<Self, StoreError> {
        match redaction {
            None => Self::new(hashing, value),
            Some(redaction) => {
                let state = Self::new(hashing, &redaction.value(value))?;
                Ok(Self { redaction: Some(Arc::clone(redaction)), ..state })
            }
        }
    }

    /// Whether it is made for a store with this hashing and this policy.
    pub(crate) fn fits(&self, hashing: &Hashing, redaction: Option<&Arc<Redaction>>) -> bool {
        let same = match (&self.redaction, redaction) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        };
        same && self.hashing == *hashing
    }

    /// Says by which policy its content was redacted, and what comes in is to be.
    pub(crate) fn set_redaction(&mut self, redaction: Option<&Arc<Redaction>>) {
        self.redaction = redaction.cloned();
    }

    /// The value that goes in at the end of `path`.
    fn incoming<'v>(&self, path: Option<&Path>, value: &'v Value) -> Cow<'v, Value> {
        let key = match path.and_then(|path| path.segments().last()) {
            Some(Segment::Key(key)) => Some(&**key),
            _ => None,
        };
        incoming(self.redaction.as_ref(), key, value)
    }

    /// A stored state. Nothing is loaded before it is needed, and then it is checked against its id.
    /// Without a `source` what is needed can't be had, but a state can still be replaced as a whole.
    pub fn open(hashing: Hashing, root: BlobId, source: Option<Arc<dyn NodeSource>>) -> Self {
        Self {
            hashing,
            root,
            fresh: Unstored { limit: SWEEP_MIN, ..Unstored::default() },
            bases: Bases::default(),
            kept: IdMap::default(),
            cache: Arc::default(),
            source,
            home: None,
            redaction: None,
        }
    }

    /// Says which log has what was saved, and can give it back.
    pub(crate) fn settle(&mut self, home: Home, source: Arc<dyn NodeSource>) {
        if self.home.as_ref() != Some(&home) {
            // Places are places of another log.
            self.bases = Bases::default();
            self.home = Some(home);
        }
        self.set_source(source);
    }

    /// Whether what is stored of it is in this log.
    pub(crate) fn is_at_home(&self, home: (usize, &RunId, u32)) -> bool {
        self.home.as_ref().is_some_and(|own| (own.0, &own.1, own.2) == home)
    }

    /// Whether some of it may be stored, but not in this log: then all of it is new there.
    pub(crate) fn is_foreign(&self, home: (usize, &RunId, u32)) -> bool {
        match &self.home {
            Some(_) => !self.is_at_home(home),
            None => self.source.is_some() || !self.kept.is_empty(),
        }
    }

    /// Says where stored nodes can be had from, so that they needn't stay in memory. `source` must
    /// have what was [saved](Self::saved) so far.
    pub fn set_source(&mut self, source: Arc<dyn NodeSource>) {
        self.source = Some(source);
        let mut cache = lock(&self.cache);
        for (id, node) in self.kept.drain() {
            cache.insert(id, node);
        }
    }

    /// The name of the whole value.
    pub const fn root(&self) -> BlobId {
        self.root
    }

    /// The value at `path`. Only what is on the way and below is loaded.
    pub async fn get(&self, path: &Path) -> Result<Option<Value>, StoreError> {
        match self.find(path).await? {
            Some(node) => load_node(self, node).await.map(|value| Some(self.outgoing(value))),
            None => Ok(None),
        }
    }

    /// The whole value.
    pub async fn value(&self) -> Result<Value, StoreError> {
        load_node(self, self.fetch(self.root).await?).await.map(|value| self.outgoing(value))
    }

    /// A value as the reader gets it.
    fn outgoing(&self, value: Value) -> Value {
        match &self.redaction {
            Some(redaction) => redaction.resolve(value),
            None => value,
        }
    }

    /// How many items or entries the list or map at `path` has; `None` if there is none.
    pub async fn len(&self, path: &Path) -> Result<Option<usize>, StoreError> {
        let Some(bytes) = self.find(path).await? else { return Ok(None) };
        match Node::parse(&bytes)? {
            Some(node) if matches!(node.kind(), Kind::List | Kind::Map) => Ok(usize::try_from(node.items()?).ok()),
            _ => Ok(None),
        }
    }

    /// Replaces what is at `path`, or creates it: an entry of a map, or the item behind the last of a
    /// list. What is around it must exist. The empty path replaces the whole state.
    pub async fn set(&mut self, path: &Path, value: Value) -> Result<(), StoreError> {
        let value = self.incoming(Some(path), &value);
        if path.segments().is_empty() {
            let mut encoder = Encoder::new(&self.hashing);
            let mut slot = Vec::new();
            encoder.slot(&value, 0, &mut slot)?;
            self.root = encoder.root(&slot);
            let nodes = encoder.finish();
            self.keep(&nodes);
            return Ok(());
        }
        let slot = self.slot(&value, path.segments().len())?;
        self.edit(path, &Edit::Set(slot)).await.map(drop)
    }

    /// Appends to the list at `path`.
    pub async fn push(&mut self, path: &Path, value: Value) -> Result<(), StoreError> {
        self.extend(path, vec![value]).await
    }

    /// Appends to the list at `path`, at the cost of one edit.
    pub async fn extend(&mut self, path: &Path, values: Vec<Value>) -> Result<(), StoreError> {
        let mut encoder = Encoder::new(&self.hashing);
        let mut entries = Entries::default();
        let mut slot = Vec::new();
        for value in &values {
            slot.clear();
            encoder.slot(&self.incoming(None, value), path.segments().len() + 1, &mut slot)?;
            entries.push_slot(&slot);
        }
        let nodes = encoder.finish();
        self.keep(&nodes);
        self.edit(path, &Edit::Extend(entries)).await.map(drop)
    }

    /// Puts an item into a list at the index that ends `path`; those from there on move up.
    pub async fn insert(&mut self, path: &Path, value: Value) -> Result<(), StoreError> {
        let value = self.incoming(None, &value);
        let slot = self.slot(&value, path.segments().len())?;
        self.edit(path, &Edit::Insert(slot)).await.map(drop)
    }

    /// Takes out an entry of a map, or an item of a list, where those behind it move down. Says whether
    /// there was one.
    pub async fn remove(&mut self, path: &Path) -> Result<bool, StoreError> {
        self.edit(path, &Edit::Remove).await
    }

    /// Appends to the string at `path`. Of a long one the last few kilobytes are cut anew.
    pub async fn append_text(&mut self, path: &Path, text: &str) -> Result<(), StoreError> {
        if self.redaction.is_some()
            && let Some(Value::String(before)) = self.get(path).await?
        {
            // A secret may come in pieces, so the whole is looked at again.
            return self.set(path, Value::from(before + text)).await;
        }
        self.edit(path, &Edit::AppendText(text)).await.map(drop)
    }

    /// The nodes of this state that aren't stored yet, each after those it refers to.
    ///
    /// Store them, then call [`saved`](Self::saved).
    pub fn unsaved(&self) -> Vec<(BlobId, Bytes)> {
        self.walk(false).into_iter().map(|fresh| (fresh.id, fresh.node)).collect()
    }

    /// What is to be stored with an entry of this `group`: nodes with those whose places they took, where those were
    /// saved in the same one.
    pub(crate) fn unsaved_in(&self, group: u32) -> Vec<Fresh> {
        self.walk(self.bases.group == group)
    }

    fn walk(&self, with_bases: bool) -> Vec<Fresh> {
        let base = |new: &New| {
            let old = new.old.filter(|_| with_bases)?;
            let place = self.bases.places.get(&old)?;
            Some((*place, lock(&self.cache).get(old)?))
        };
        let unstored = &self.fresh;
        if !unstored.nodes.contains_key(&self.root) {
            return Vec::new();
        }
        let (mut nodes, mut seen, mut stack) = (Vec::new(), IdSet::new(), vec![(self.root, None)]);
        while let Some((id, expanded)) = stack.pop() {
            // What a stored node refers to is stored.
            let Some(new) = unstored.nodes.get(&id) else { continue };
            if let Some(references) = expanded {
                nodes.push(Fresh { id, node: new.node.clone(), base: base(new), references });
            } else if seen.insert(id) {
                let offsets = offsets(&new.node);
                let at = stack.len();
                let children = offsets.iter().filter_map(|&at| Reader::at(&new.node, at).id().ok());
                stack.extend(children.filter(|child| unstored.nodes.contains_key(child)).map(|child| (child, None)));
                stack[at..].reverse();
                stack.insert(at, (id, Some(offsets)));
            }
        }
        nodes
    }

    /// What [`unsaved`](Self::unsaved) returns is stored now.
    pub fn saved(&mut self) {
        if self.source.is_none() {
            // They can't be fetched back, so they stay.
            self.kept.extend(self.unsaved());
        }
        if self.source.is_some() {
            // Some may be left from earlier edits. Nothing refers to those, so no reader will ask for them.
            let mut cache = lock(&self.cache);
            self.fresh.nodes.drain().for_each(|(id, new)| cache.insert(id, new.node));
        }
        self.fresh.clear();
    }

    /// An earlier copy of this state was saved: what of it this one still has is stored now.
    ///
    /// So a copy can be saved in the background while this one is edited. `nodes` are what the copy had
    /// [unsaved](Self::unsaved); if its save fails, nothing was said and nothing is lost.
    ///
    /// ```
    /// # use piton_log::state::State;
    /// # use piton_store::Hashing;
    /// # use piton_types::Value;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), piton_store::StoreError> {
    /// let mut state = State::new(&Hashing::PLAIN, &Value::List(vec![]))?;
    /// state.push(&"".parse().unwrap(), Value::from("long enough for a node of its own, ".repeat(9))).await?;
    /// let mut copy = state.clone();
    /// state.push(&"".parse().unwrap(), Value::from("more")).await?;
    /// let nodes = copy.unsaved(); // stored meanwhile
    /// copy.saved();
    /// state.saved_before(&copy, &nodes);
    /// assert_eq!(state.unsaved().len(), 1, "only the list changed");
    /// # Ok(())
    /// # }
    /// ```
    pub fn saved_before(&mut self, copy: &Self, nodes: &[(BlobId, Bytes)]) {
        if !copy.fits(&self.hashing, self.redaction.as_ref()) {
            // The copy was made anew for its store: nothing of this one was stored.
            return;
        }
        if self.home.is_some() && self.home != copy.home {
            // This one was saved elsewhere meanwhile, where nothing of the copy is.
            return;
        }
        if let Some(source) = &copy.source {
            self.set_source(Arc::clone(source));
        }
        self.home.clone_from(&copy.home);
        self.bases.clone_from(&copy.bases);
        for (id, node) in nodes {
            if let Some(fresh) = self.fresh.nodes.remove(id) {
                self.fresh.bytes -= fresh.node.len();
            }
            match &self.source {
                Some(_) => lock(&self.cache).insert(*id, node.clone()),
                None => drop(self.kept.insert(*id, node.clone())),
            }
        }
        if self.fresh.nodes.is_empty() {
            self.fresh.clear();
        }
    }

    /// What [`unsaved_in`](Self::unsaved_in) gave is in the pack of entry `seq`, which is one of this `group`.
    pub(crate) fn saved_in(&mut self, group: u32, seq: Seq, place: impl Fn(&BlobId) -> Option<u32>) {
        if self.bases.group != group {
            self.bases.group = group;
            self.bases.places.clear();
        }
        let nodes = self.fresh.nodes.keys().filter_map(|id| Some((*id, Base { seq, place: place(id)? })));
        self.bases.places.extend(nodes);
        self.saved();
    }

    /// How many bytes of unsaved nodes are in memory.
    #[cfg(test)]
    pub(super) const fn held(&self) -> usize {
        self.fresh.bytes
    }

    async fn find(&self, path: &Path) -> Result<Option<Bytes>, StoreError> {
        let mut fetched = IdMap::default();
        loop {
            let view = View { fresh: &self.fresh.nodes, kept: &self.kept, cache: &self.cache, fetched: &fetched };
            let id = match find(&view, self.root, path) {
                Ok(node) => return Ok(node),
                Err(Fail::Missing(id)) => id,
                Err(Fail::Error(error)) => return Err(error),
            };
            fetched.insert(id, self.fetch(id).await?);
        }
    }

    /// Says whether anything was done.
    async fn edit(&mut self, path: &Path, edit: &Edit<'_>) -> Result<bool, StoreError> {
        let mut fetched = IdMap::default();
        loop {
            let mut desk = Desk {
                hashing: &self.hashing,
                fresh: &mut self.fresh,
                kept: &self.kept,
                cache: &self.cache,
                fetched: &fetched,
                read: RefCell::default(),
                trail: RefCell::default(),
            };
            let id = match apply(&self.hashing, &mut desk, self.root, path, edit) {
                Ok(None) => return Ok(false),
                Ok(Some(root)) => {
                    self.root = root;
                    self.sweep();
                    return Ok(true);
                }
                Err(Fail::Missing(id)) => id,
                Err(Fail::Error(error)) => return Err(error),
            };
            fetched.insert(id, self.fetch(id).await?);
        }
    }

    /// Encodes a value that will have `depth` containers around it.
    fn slot(&mut self, value: &Value, depth: usize) -> Result<Vec<u8>, StoreError> {
        let mut encoder = Encoder::new(&self.hashing);
        let mut slot = Vec::new();
        encoder.slot(value, depth, &mut slot)?;
        let nodes = encoder.finish();
        self.keep(&nodes);
        Ok(slot)
    }

    fn keep(&mut self, nodes: &[(BlobId, Bytes)]) {
        for (id, node) in nodes {
            if !self.fresh.nodes.contains_key(id) {
                self.fresh.insert(*id, node.clone(), None);
            }
        }
    }

    /// Drops unsaved nodes that earlier edits left behind, once there are so many that the walk is
    /// small beside the edits that made them.
    fn sweep(&mut self) {
        if self.fresh.bytes <= self.fresh.limit {
            return;
        }
        let mut live = Unstored::default();
        for fresh in self.walk(false) {
            if let Some(new) = self.fresh.nodes.remove(&fresh.id) {
                live.bytes += new.node.len();
                live.nodes.insert(fresh.id, new);
            }
        }
        live.limit = live.bytes * 2 + SWEEP_MIN;
        self.fresh = live;
    }
}

/// Nodes of the state itself, stored or not.
#[async_trait]
impl NodeSource for State {
    async fn fetch(&self, id: BlobId) -> Result<Bytes, StoreError> {
        let empty = IdMap::default();
        let view = View { fresh: &self.fresh.nodes, kept: &self.kept, cache: &self.cache, fetched: &empty };
        if let Ok(node) = view.node(id) {
            return Ok(node);
        }
        let Some(source) = &self.source else {
            return Err(StoreError::NotFound { what: format!("node {id} of the state") });
        };
        let node = source.fetch(id).await?;
        if self.hashing.blob(&node) != id {
            return Err(StoreError::corrupt(format!("node {id} of the state"), "its bytes don't match its id"));
        }
        lock(&self.cache).insert(id, node.clone());
        Ok(node)
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("root", &self.root)
            .field("unsaved", &self.fresh.nodes.len())
            .finish_non_exhaustive()
    }
}

/// A value that goes in at this key, as it may be stored.
fn incoming<'v>(redaction: Option<&Arc<Redaction>>, key: Option<&str>, value: &'v Value) -> Cow<'v, Value> {
    match redaction {
        None => Cow::Borrowed(value),
        Some(redaction) => Cow::Owned(redaction.entry(key, value)),
    }
}

/// A panic elsewhere can't leave a cache half changed in a way that matters.
fn lock(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}
