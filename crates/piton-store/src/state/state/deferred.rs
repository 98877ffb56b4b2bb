//! What is appended to a list of a stored state stays out of its tree.
//!
//! Saving it takes a [record](crate::state::appended) and no nodes but its own. The tree is made when somebody looks at the
//! state, or does anything else with it, and for the first entry of every group.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::OnceLock;

use bytes::Bytes;
use piton_types::{BlobId, Path};

use super::{Desk, Fresh, ON_THE_WAY, State, Unsaved, Unstored, View};
use crate::StoreError;
use crate::state::appended::{self, MAX_APPENDS};
use crate::state::cache::IdMap;
use crate::state::edit::{Edit, apply, find};
use crate::state::grammar::Kind;
use crate::state::load::NodeSource as _;
use crate::state::node::{Entries, Node};
use crate::state::splice::{Fail, Shelf, Spine};

/// The most items that one record of an append has.
const MAX_ITEMS: usize = 32;

/// Items that were appended to a list of a stored state and aren't in its tree yet.
pub(super) struct Deferred {
    /// Where the list is, and how that is written.
    path: Path,
    path_text: Box<str>,
    /// The nodes on the way to its end, so that the tree can be made from memory.
    way: IdMap<Bytes>,
    items: Entries,
    /// How many of the items are stored, and what the state with those is called.
    stored: usize,
    name: Name,
    /// The record with the others, from when it was given out to be stored.
    record: Option<Name>,
    tree: OnceLock<Tree>,
}

/// What a stored state is called: a root, or the newest of so many records.
#[derive(Clone)]
struct Name {
    id: BlobId,
    node: Bytes,
    appends: u32,
}

/// A root, and the nodes below it that aren't stored yet.
struct Tree {
    root: BlobId,
    fresh: Unstored,
}

/// A view that remembers what was asked for.
struct Way<'a> {
    view: View<'a>,
    seen: RefCell<IdMap<Bytes>>,
}

impl Shelf for Way<'_> {
    fn node(&self, id: BlobId) -> Result<Bytes, Fail> {
        let node = self.view.node(id)?;
        self.seen.borrow_mut().insert(id, node.clone());
        Ok(node)
    }
}

impl State {
    /// The root as of now, and what of its tree isn't stored.
    pub(super) fn tree(&self) -> (BlobId, &Unstored) {
        match &self.deferred {
            None => (self.root, &self.fresh),
            Some(deferred) => {
                let tree = deferred.tree.get_or_init(|| self.tree_with(deferred));
                (tree.root, &tree.fresh)
            }
        }
    }

    fn tree_with(&self, deferred: &Deferred) -> Tree {
        let mut fresh = self.fresh.clone();
        let mut desk = Desk {
            hashing: &self.hashing,
            fresh: &mut fresh,
            kept: &self.kept,
            cache: &self.cache,
            fetched: &deferred.way,
            read: RefCell::new(Vec::with_capacity(ON_THE_WAY)),
            trail: RefCell::new(Vec::with_capacity(ON_THE_WAY)),
        };
        let edit = Edit::Extend(Cow::Borrowed(&deferred.items));
        let applied = apply(&self.hashing, &mut desk, self.root, &deferred.path, &edit);
        let root = applied.ok().flatten().expect("all nodes on the way are held, and lead to a list");
        // Nothing was there before but the nodes of items.
        fresh.edits = 1;
        Tree { root, fresh }
    }

    /// Puts what was appended into the tree.
    pub(crate) fn make_tree(&mut self) {
        if let Some(mut deferred) = self.deferred.take() {
            let tree = deferred.tree.take().unwrap_or_else(|| self.tree_with(&deferred));
            (self.root, self.fresh) = (tree.root, tree.fresh);
        }
    }

    /// Whether so many items that are appended to the list at `path` may be kept out of the tree. Then there is a place
    /// for them.
    pub(super) fn defers(&mut self, path: &Path, items: usize) -> bool {
        if let Some(deferred) = &self.deferred {
            let unsaved = deferred.items.len() - deferred.stored;
            return deferred.path == *path && deferred.tree.get().is_none() && unsaved + items <= MAX_ITEMS;
        }
        // What is stored, and among the last entries, can be built on.
        if self.home.is_none() || !self.fresh.nodes.is_empty() || !self.bases.places.contains_key(&self.root) {
            return false;
        }
        if items == 0 || items > MAX_ITEMS {
            return false;
        }
        let Some(path_text) = appended::write_path(path) else { return false };
        let Some(way) = self.way_to_the_end(path) else { return false };
        let Some(node) = way.get(&self.root).cloned() else { return false };
        let name = Name { id: self.root, node, appends: 0 };
        let (path, items, tree) = (path.clone(), Entries::default(), OnceLock::new());
        self.deferred = Some(Deferred { path, path_text, way, items, stored: 0, name, record: None, tree });
        true
    }

    /// The nodes from the root to the end of the list at `path`, if there is one and they are at hand, and an edit
    /// there needs no others: where a list is cut depends on its items, and what is inside one of them changes it.
    fn way_to_the_end(&self, path: &Path) -> Option<IdMap<Bytes>> {
        let empty = IdMap::default();
        let view = View { fresh: &self.fresh.nodes, kept: &self.kept, cache: &self.cache, fetched: &empty };
        let way = Way { view, seen: RefCell::default() };
        let mut around = Path::root();
        for segment in path.segments() {
            let container = find(&way, self.root, &around).ok()??;
            Node::parse(&container).ok()?.filter(|container| container.kind() == Kind::Map)?;
            around.push(segment.clone());
        }
        let list = find(&way, self.root, path).ok()??;
        let list = Node::parse(&list).ok()?.filter(|list| list.kind() == Kind::List)?;
        Spine::to_end(&way, list).ok()?;
        Some(way.seen.into_inner())
    }

    /// Makes a state out of one that was opened by the newest of so many records.
    pub(crate) async fn unwind(&mut self, appends: u32) -> Result<(), StoreError> {
        appended::check(appends)?;
        let mut added = Vec::new();
        let mut here = None;
        for _ in 0..appends {
            let node = match here.take() {
                Some(node) => node,
                None => self.fetch(self.root).await?,
            };
            let record = appended::read(&node)?;
            self.root = record.before.id(&self.hashing);
            if let appended::Before::Here(node) = record.before {
                here = Some(node);
            }
            added.push((record.path, record.items));
        }
        for (path, items) in added.into_iter().rev() {
            self.edit(&path, &Edit::Extend(Cow::Owned(items))).await?;
        }
        Ok(())
    }

    /// Appends items for which there is a [place](Self::defers).
    pub(super) fn defer(&mut self, items: &Entries) {
        if let Some(deferred) = &mut self.deferred {
            deferred.items.append(items);
        }
    }

    /// What is to be stored with an entry of this `group`, if a record of what was appended will do.
    pub(super) fn unsaved_appends(&mut self, group: u32) -> Option<Unsaved> {
        let deferred = self.deferred.as_mut()?;
        let Name { id, node, appends } = &deferred.name;
        if deferred.stored == deferred.items.len() {
            return Some(Unsaved { nodes: Vec::new(), root: *id, appends: *appends });
        }
        if self.bases.group != group || *appends >= MAX_APPENDS || deferred.tree.get().is_some() {
            return None;
        }
        let node = appended::write((*id, node), &deferred.path_text, &deferred.items, deferred.stored);
        let record = Name { id: self.hashing.blob(&node), node, appends: appends + 1 };
        let mut nodes = self.fresh.all(|_| None);
        nodes.push(Fresh::made(record.id, record.node.clone()));
        let unsaved = Unsaved { nodes, root: record.id, appends: record.appends };
        deferred.record = Some(record);
        Some(unsaved)
    }

    /// What [`unsaved_appends`](Self::unsaved_appends) gave is stored, if it gave anything.
    pub(super) fn saved_appends(&mut self) -> bool {
        let Some(deferred) = &mut self.deferred else { return false };
        if let Some(record) = deferred.record.take() {
            (deferred.name, deferred.stored) = (record, deferred.items.len());
            self.fresh.clear();
        }
        true
    }
}
