//! Appending: values become nodes, nodes a pack, the entry is sealed, and all of it is one commit.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Poll;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use piton_types::{
    BlobId, Durability, EntryHash, EntryKind, Fence, Part, PartName, Parts, RunId, RunSummary, Seq, Timestamp, Value,
};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{FIRST, NewRun, RunLog};
use crate::pack::Pack;
use crate::sealed::{self, Fields, MAX_LABEL};
use crate::state::{Fresh, IdSet, State, encode, encode_inside};
use piton_store::{Commit, Head, PackId, Pin, Store, StoreError};

/// Packs up to this size travel inside the commit; what is larger is staged ahead of it, so that the
/// commit itself stays short.
const INLINE_PACK: usize = 256 << 10;

/// How large a staged pack becomes. It isn't compressed: inflating one takes as long as everything else
/// about loading it.
const STAGED_PACK: usize = 1 << 20;

/// An entry to be appended.
#[derive(Debug)]
pub struct Draft<'a> {
    /// What it records.
    pub kind: EntryKind,
    /// What to show in a list; cut to 200 bytes.
    pub label: String,
    /// What the kind calls for.
    pub body: Value,
    /// The state of the run; with any part, the entry is a checkpoint.
    pub parts: Vec<DraftPart<'a>>,
    /// Packs that were staged for it ahead, as by [`ContentWriter`](crate::ContentWriter).
    pub staged: Vec<PackId>,
    /// What those packs are pinned with; the pins end with the commit.
    pub pin: Option<Pin>,
    /// The run's new index row, if its state changed.
    pub index: Option<RunSummary>,
    /// The writer's fence; `None` keeps the log's.
    pub fence: Option<Fence>,
    /// When.
    pub at: Timestamp,
    /// What the acknowledgement must survive.
    pub durability: Durability,
    /// How many bytes of new values it may bring, the part `workspace` aside; `None` for any number. More is
    /// `TooLarge`, and nothing is stored.
    pub limit: Option<u64>,
}

impl Draft<'_> {
    /// An entry with nothing but a kind and a time.
    pub fn new(kind: EntryKind, at: Timestamp) -> Self {
        Self {
            kind,
            label: String::new(),
            body: Value::Null,
            parts: Vec::new(),
            staged: Vec::new(),
            pin: None,
            index: None,
            fence: None,
            at,
            durability: Durability::Durable,
            limit: None,
        }
    }
}

/// A part of the state to be saved.
#[derive(Debug)]
pub struct DraftPart<'a> {
    /// Its name.
    pub name: PartName,
    /// The shape of the value.
    pub schema: String,
    /// The version of that shape.
    pub version: u32,
    /// The value.
    pub content: Content<'a>,
}

/// Where a part's value comes from.
#[derive(Debug)]
pub enum Content<'a> {
    /// A state that was edited: costs the change.
    State(&'a mut State),
    /// A whole value: costs a walk over it, and stores only what the last save didn't have.
    Value(&'a Value),
    /// What an earlier entry of this run has: the root of its part.
    Stored(BlobId),
}

/// A commit that is on its way. It gets there even if the caller stops waiting, and the handle asks later what came of
/// it.
pub(super) struct Submitted {
    /// Where the log ends if it does.
    head: Head,
    answer: Answer,
}

type Answering = std::pin::Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

enum Answer {
    /// Not asked for yet.
    New(Answering),
    /// It takes a while, and goes on by itself.
    Awaited(JoinHandle<Result<(), StoreError>>),
    /// Outside a runtime it goes on only while the caller waits.
    Alone(Answering),
    /// Something went wrong, which may mean that the entry is there or that it isn't.
    Failed(StoreError),
}

/// What the handle takes over once a commit is in the log.
pub(super) struct Accepted {
    pub(super) head: Head,
    at: Timestamp,
    parts: Parts,
    pack: Option<Arc<Pack>>,
    /// The ids of whole values, for the next save to leave out.
    saved: Vec<(PartName, Vec<BlobId>)>,
}

/// Appends entry 0 of a new run.
pub(super) async fn first(store: &Arc<dyn Store>, summary: &RunSummary, new: &NewRun) -> Result<Head, StoreError> {
    let (fence, durability) = (new.fence, new.durability);
    let (below, top) = encode_inside(store.hashing(), &incoming(&**store, &new.body))?;
    let mut nodes = made(below);
    let mut parts = Parts::new();
    for (name, part) in &new.parts {
        let encoded = encode(store.hashing(), &incoming(&**store, &part.value))?;
        nodes.extend(made(encoded.nodes));
        let (schema, version) = (part.schema.clone(), part.version);
        parts.insert(name.clone(), Part { schema, version, root: encoded.root });
    }
    keep_once(&mut nodes);
    let pin = Pin::new();
    let (pack, mut staged, _) = pack_nodes(&**store, nodes, pin).await?;
    let named = staged.len();
    staged.extend(&new.staged);
    let fields = Fields {
        parent: EntryHash::ROOT,
        fence,
        at: summary.created_at,
        kind: FIRST,
        label: &summary.name[..summary.name.floor_char_boundary(MAX_LABEL)],
        parts: &parts,
        packs: if has_files(&parts) { &staged[..named] } else { &staged },
        body: &top,
    };
    let (entry, hash) = sealed::seal(store.hashing(), &summary.id, Seq(0), &fields);
    let commit = Commit {
        run: summary.id.clone(),
        seq: Seq(0),
        parent: EntryHash::ROOT,
        hash,
        fence,
        at: summary.created_at,
        entry,
        pack,
        staged,
        owner: pin.owner,
        index: Some(summary.clone()),
        durability,
    };
    submit(&**store, commit).await
}

const NEVER_LOCKED: &str = "no task locks it";

/// Commits. After an answer that leaves the outcome open, the head tells.
pub(super) async fn submit(store: &dyn Store, commit: Commit) -> Result<Head, StoreError> {
    let head = Head { seq: commit.seq, hash: commit.hash, fence: commit.fence };
    let run = commit.run.clone();
    match store.append(vec![commit]).await {
        Ok(()) => Ok(head),
        Err(error) if is_there(store, &run, head, &error).await => Ok(head),
        Err(error) => Err(error),
    }
}

/// Whether the log ends with an entry whose append was answered so.
pub(super) async fn is_there(store: &dyn Store, run: &RunId, head: Head, error: &StoreError) -> bool {
    // Only then: a conflict means an entry of another writer, even if it is equal to ours.
    let unclear = matches!(error, StoreError::Unavailable { .. });
    unclear && matches!(store.head(run).await, Ok(Some(now)) if now == head)
}

impl Answer {
    /// Waits for it. Most are there at once. A caller that has to wait may give up before the answer is there, so then
    /// it gets a task.
    async fn get(&mut self) -> Result<(), StoreError> {
        if let Self::New(answering) = self {
            let first = std::future::poll_fn(|context| Poll::Ready(answering.as_mut().poll(context))).await;
            if let Poll::Ready(answer) = first {
                return answer;
            }
            *self = match (Handle::try_current(), std::mem::replace(self, Self::Failed(gone()))) {
                (Ok(runtime), Self::New(answering)) => Self::Awaited(runtime.spawn(answering)),
                (Err(_), Self::New(answering)) => Self::Alone(answering),
                (_, other) => other,
            };
        }
        match self {
            Self::New(answering) | Self::Alone(answering) => answering.await,
            Self::Awaited(task) => task.await.unwrap_or_else(|_| Err(gone())),
            Self::Failed(error) => Err(std::mem::replace(error, gone())),
        }
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable { detail: "the task that wrote the entry ended before it said so".to_owned() }
}

/// How many entries share what their nodes may be written as differences from. Segments begin and end with
/// such groups, so each stands alone.
pub(crate) const GROUP: u32 = 16;

/// The group that an entry belongs to; `None` if the store doesn't keep every entry, and so may not have
/// what a difference needs.
fn group(store: &dyn Store, seq: Seq) -> Option<u32> {
    store.capabilities().history.then_some(seq.0 / GROUP)
}

/// A value as it may be stored.
fn incoming<'v>(store: &dyn Store, value: &'v Value) -> Cow<'v, Value> {
    match store.redaction() {
        Some(redaction) => Cow::Owned(redaction.value(value)),
        None => Cow::Borrowed(value),
    }
}

/// Nodes that were encoded just now.
fn made(nodes: Vec<(BlobId, Bytes)>) -> Vec<Fresh> {
    nodes.into_iter().map(|(id, node)| Fresh::whole(id, node)).collect()
}

/// Takes out all but the first of equal nodes.
fn keep_once(nodes: &mut Vec<Fresh>) {
    let mut seen = IdSet::default();
    nodes.retain(|fresh| seen.insert(fresh.id));
}

/// Nodes as a pack for the commit, or staged if they are large. Either way every node is hashed again
/// from the bytes that will be stored.
async fn pack_nodes(
    store: &dyn Store,
    mut nodes: Vec<Fresh>,
    pin: Pin,
) -> Result<(Bytes, Vec<PackId>, Option<Arc<Pack>>), StoreError> {
    let hashing = store.hashing();
    if nodes.is_empty() {
        return Ok((Bytes::new(), Vec::new(), None));
    }
    if nodes.iter().map(|fresh| fresh.node.len() + 33).sum::<usize>() <= INLINE_PACK {
        let (pack, plain) = Pack::build(hashing, &nodes)?;
        return Ok((plain, Vec::new(), Some(Arc::new(pack))));
    }
    // A staged pack stays as it is when the entries around it are folded, so it stands alone.
    nodes.iter_mut().for_each(|fresh| fresh.base = None);
    let mut staged = Vec::new();
    let mut rest = &nodes[..];
    while !rest.is_empty() {
        let mut size = 0;
        let fitting = rest.iter().take_while(|fresh| {
            let fits = size == 0 || size + fresh.node.len() <= STAGED_PACK;
            size += fresh.node.len();
            fits
        });
        let (now, later) = rest.split_at(fitting.count());
        let (_, plain) = Pack::build(hashing, now)?;
        let ids: Vec<_> = now.iter().map(|fresh| fresh.id).collect();
        staged.push(piton_store::stage(store, plain, &ids, pin).await?);
        rest = later;
    }
    Ok((Bytes::new(), staged, None))
}

/// Whether a snapshot says what is needed of packs of file contents.
fn has_files(parts: &Parts) -> bool {
    parts.contains_key(&PartName::from(PartName::WORKSPACE))
}

fn size_of_nodes(nodes: &[Fresh]) -> u64 {
    nodes.iter().map(|fresh| fresh.node.len() as u64).sum()
}

impl RunLog {
    /// Appends an entry and returns its number once it is as durable as the draft asks.
    ///
    /// On `Conflict` or `Fenced` nothing was written and the states in the draft are unsaved, as before. If the future is
    /// dropped before it ends, the entry may get there all the same: see [`settle`](Self::settle).
    pub async fn append(&mut self, mut draft: Draft<'_>) -> Result<Seq, StoreError> {
        self.append_draft(&mut draft).await
    }

    /// [`append`](Self::append), for a caller that wants to try the same draft again after a `Conflict` and a
    /// [`refresh`](Self::refresh).
    #[boxed]
    pub async fn append_draft(&mut self, draft: &mut Draft<'_>) -> Result<Seq, StoreError> {
        self.settle().await;
        let (commit, accepted) = self.prepare(draft).await?;
        let head = accepted.head;
        let store = Arc::clone(&self.store);
        let answering: Answering = Box::pin(async move { store.append(vec![commit]).await });
        *self.submitted() = Some(Submitted { head, answer: Answer::New(answering) });
        self.outcome().await?;
        let seq = accepted.head.seq;
        self.accept(accepted, draft);
        self.fold_if_due();
        Ok(seq)
    }

    /// Whether the future of an append was dropped before it ended, so that its entry may be in the log.
    pub fn is_unsettled(&mut self) -> bool {
        self.submitted().is_some()
    }

    /// Waits for an append whose future was dropped before it ended, and says whether there was one. If its entry is in
    /// the log, [`refresh`](Self::refresh) gives it, as it gives those of others.
    ///
    /// An append does that first, and meets such an entry with `Conflict`. The states in its draft are unsaved still, and
    /// saving them again does no harm.
    pub async fn settle(&mut self) -> bool {
        let open = self.is_unsettled();
        if open {
            // What went wrong with it goes wrong again, or doesn't matter any more.
            drop(self.outcome().await);
        }
        open
    }

    /// What came of the commit that was submitted. It is kept until that is known, even if the caller stops waiting.
    async fn outcome(&mut self) -> Result<(), StoreError> {
        let submitted = self.submitted.get_mut().expect(NEVER_LOCKED);
        let Some(Submitted { head, answer }) = submitted else { return Ok(()) };
        if let Err(error) = answer.get().await {
            *answer = Answer::Failed(error);
        }
        let outcome = match answer {
            Answer::Failed(error) => is_there(&*self.store, &self.run, *head, error).await,
            _ => true,
        };
        match (submitted.take(), outcome) {
            (Some(Submitted { answer: Answer::Failed(error), .. }), false) => Err(error),
            _ => Ok(()),
        }
    }

    fn submitted(&mut self) -> &mut Option<Submitted> {
        self.submitted.get_mut().expect(NEVER_LOCKED)
    }

    pub(super) async fn prepare(&mut self, draft: &mut Draft<'_>) -> Result<(Commit, Accepted), StoreError> {
        if draft.kind == FIRST {
            return Err(StoreError::Invalid {
                what: format!("an entry of run {}", self.run),
                detail: "only a run's first entry records its creation".to_owned(),
            });
        }
        let (hashing, home) = (self.store.hashing(), self.home());
        let group = group(&*self.store, self.head.seq.next());
        let redaction = self.store.redaction();
        let (below, top) = encode_inside(hashing, &incoming(&*self.store, &draft.body))?;
        let has_body = !below.is_empty();
        let mut nodes = made(below);
        let (mut parts, mut saved) = (Parts::new(), Vec::new());
        let mut unlimited = 0;
        for part in &mut draft.parts {
            let before = nodes.len();
            let root = match &mut part.content {
                // It may be a part of a checkpoint that was removed: then it has to be stored again.
                Content::Stored(root) if self.removals > 0 => {
                    let encoded = encode(hashing, &self.blobs.load(*root).await?)?;
                    nodes.extend(made(encoded.nodes));
                    encoded.root
                }
                Content::Stored(root) => *root,
                Content::State(state) if !state.fits(hashing, redaction) => {
                    // It was made for another store, or for none in particular.
                    **state = State::redacted(hashing, redaction, &state.value().await?)?;
                    nodes.extend(made(state.unsaved()));
                    state.root()
                }
                Content::State(state) if state.is_foreign(home) => {
                    nodes.extend(made(encode(hashing, &incoming(&*self.store, &state.value().await?))?.nodes));
                    state.root()
                }
                Content::State(state) => {
                    match group {
                        Some(group) => nodes.extend(state.unsaved_in(group)),
                        None => nodes.extend(made(state.unsaved())),
                    }
                    state.root()
                }
                Content::Value(value) => {
                    let encoded = encode(hashing, &incoming(&*self.store, value))?;
                    let known = self.known.get(&part.name).map_or(&[][..], Vec::as_slice);
                    let new = encoded.nodes.iter().filter(|(id, _)| known.binary_search(id).is_err());
                    nodes.extend(new.map(|(id, node)| Fresh::whole(*id, node.clone())));
                    let mut ids: Vec<_> = encoded.nodes.iter().map(|(id, _)| *id).collect();
                    ids.sort_unstable();
                    saved.push((part.name.clone(), ids));
                    encoded.root
                }
            };
            if part.name.0 == PartName::WORKSPACE {
                unlimited += size_of_nodes(&nodes[before..]);
            }
            let described = Part { schema: part.schema.clone(), version: part.version, root };
            if parts.insert(part.name.clone(), described).is_some() {
                return Err(StoreError::Invalid {
                    what: format!("an entry of run {}", self.run),
                    detail: format!("it has two parts named {:?}", part.name.0),
                });
            }
        }
        // What a step gave out is often part of the state too. One part alone has each of its nodes once.
        if has_body || parts.len() > 1 {
            keep_once(&mut nodes);
        }
        let size = size_of_nodes(&nodes).saturating_sub(unlimited);
        if let Some(limit) = draft.limit.filter(|limit| size > *limit) {
            return Err(StoreError::TooLarge {
                what: format!("the new data of an entry of run {}", self.run),
                size,
                limit,
            });
        }
        let at = draft.at.max(self.at);
        let fence = draft.fence.unwrap_or(self.head.fence);
        let seq = self.head.seq.next();
        let (mut label, mut index) = (Cow::Borrowed(draft.label.as_str()), draft.index.clone());
        if let Some(redaction) = redaction {
            label = redaction.shown(&draft.label);
            if let Some(row) = &mut index {
                row.name = redaction.shown(&row.name).into_owned();
            }
        }
        let pin = draft.pin.unwrap_or_else(Pin::new);
        let (bytes, mut staged, pack) = pack_nodes(&*self.store, nodes, pin).await?;
        let named = staged.len();
        // They stay in the draft, which may be tried again.
        staged.extend(&draft.staged);
        let fields = Fields {
            parent: self.head.hash,
            fence,
            at,
            kind: draft.kind,
            label: &label[..label.floor_char_boundary(MAX_LABEL)],
            parts: &parts,
            packs: if has_files(&parts) { &staged[..named] } else { &staged },
            body: &top,
        };
        let (entry, hash) = sealed::seal(hashing, &self.run, seq, &fields);
        let commit = Commit {
            run: self.run.clone(),
            seq,
            parent: self.head.hash,
            hash,
            fence,
            at,
            entry,
            pack: bytes,
            staged,
            owner: pin.owner,
            index,
            durability: draft.durability,
        };
        Ok((commit, Accepted { head: Head { seq, hash, fence }, at, parts, pack, saved }))
    }

    /// The commit is in the log, or queued to get there in order.
    pub(super) fn accept(&mut self, accepted: Accepted, draft: &mut Draft<'_>) {
        let seq = accepted.head.seq;
        self.head = accepted.head;
        self.at = accepted.at;
        self.newest = None;
        self.parts = accepted.parts;
        for part in &mut draft.parts {
            if let Content::State(state) = &mut part.content {
                // From now on it can be read back from here, and need not be kept in memory.
                self.settle_state(state);
                match group(&*self.store, seq) {
                    Some(group) => state.saved_in(group, seq, |id| accepted.pack.as_ref()?.place(id)),
                    None => state.saved(),
                }
            }
        }
        if let Some(pack) = accepted.pack {
            self.blobs.add(seq, pack);
        }
        self.known.extend(accepted.saved);
    }
}
