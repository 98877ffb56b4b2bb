//! Writing a snapshot into a store that names blobs and cuts files in another way, as a scan of the same files would
//! have done there: equal folders have equal names in it afterwards, whichever way they came.

use std::collections::HashSet;
use std::sync::Arc;

use piton_log::upkeep::{Transcribed, Transcript};
use piton_log::{ContentReader, ContentWriter};
use piton_store::{Hashing, Pin, Store, StoreError};
use piton_types::{BlobId, Value, from_value};
use tokio::runtime::Handle;

use crate::content::{self, Sink};
use crate::snapshot::Snapshot;
use crate::tree::{
    Content, Entry, FolderWriter, Leaf, MAX_DEPTH, Nodes, Parsed, ParsedTimes, StoredNodes, TimedEntry, folder,
    parse_leaves, parse_times,
};
use crate::{TreeError, WorkspaceError};

/// See [`Reach::transcribe`](piton_log::upkeep::Reach::transcribe).
pub(crate) async fn transcribe(
    [from, to]: [&Arc<dyn Store>; 2],
    transcript: &mut Transcript,
    snapshot: Value,
    mut body: Value,
    is_removed: bool,
) -> Result<Transcribed, StoreError> {
    let pin = Pin::new();
    let reader = || ContentReader::new(Arc::clone(from), Handle::current());
    let writer = || ContentWriter::new(Arc::clone(to), Handle::current(), pin);
    let (nodes, contents) = (StoredNodes::new(reader(), Arc::default()), reader());
    let sink = Copying { hashing: to.hashing().clone(), contents: writer(), nodes: writer() };
    let mut taken = std::mem::take(transcript);
    let work = move || {
        let mut scribe = Scribe { nodes, contents, sink, transcript: &mut taken };
        let mut snapshot: Snapshot =
            from_value(snapshot).map_err(|error| StoreError::corrupt("a snapshot", error.to_string()))?;
        (snapshot.tree, snapshot.times) = match scribe.tree(snapshot.tree, snapshot.times) {
            Err(error) if is_removed && is_gone(&error) => {
                (scribe.only_name(snapshot.tree), snapshot.times.map(|times| scribe.only_name(times)))
            }
            other => other?,
        };
        // What an entry says of other snapshots.
        let mut rename = |fields: &mut Value, name: &str| -> Result<(), WorkspaceError> {
            let Value::Map(fields) = fields else { return Ok(()) };
            let tree = fields.get(name).and_then(Value::as_str).and_then(|text| text.parse().ok());
            let Some(tree) = tree else { return Ok(()) };
            let there = match scribe.tree(tree, None) {
                Err(error) if is_gone(&error) => scribe.only_name(tree),
                other => other?.0,
            };
            fields.insert(name.to_owned(), Value::from(there.to_string()));
            Ok(())
        };
        rename(&mut body, "rules")?;
        if let Value::Map(body) = &mut body
            && let Some(role) = body.get_mut("role")
        {
            rename(role, "before")?;
            rename(role, "result")?;
        }
        let mut packs = scribe.sink.contents.finish()?;
        packs.extend(scribe.sink.nodes.finish()?);
        Ok((Transcribed { snapshot: snapshot.to_value(), body, packs }, taken))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => {
            let (transcribed, taken) = done.map_err(|error: WorkspaceError| match error {
                WorkspaceError::Store(error) => error,
                other => StoreError::corrupt("a snapshot", other.to_string()),
            })?;
            *transcript = taken;
            Ok(transcribed)
        }
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Whether something isn't there, as what only removed snapshots had.
fn is_gone(error: &WorkspaceError) -> bool {
    matches!(error, WorkspaceError::Store(StoreError::NotFound { .. }))
}

/// Where it goes.
struct Copying {
    hashing: Hashing,
    contents: ContentWriter,
    nodes: ContentWriter,
}

impl Sink for Copying {
    fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    fn content(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError> {
        Ok(self.contents.put(bytes)?)
    }

    fn node(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError> {
        Ok(self.nodes.put(bytes)?)
    }
}

struct Scribe<'a> {
    nodes: StoredNodes,
    contents: ContentReader,
    sink: Copying,
    transcript: &'a mut Transcript,
}

impl Scribe<'_> {
    /// A name for what isn't there any more; the same for the same.
    fn only_name(&self, id: BlobId) -> BlobId {
        self.sink.hashing.blob(id.as_bytes())
    }

    /// A tree and its times: contents first, many at a time, then the folders.
    fn tree(&mut self, tree: BlobId, times: Option<BlobId>) -> Result<(BlobId, Option<BlobId>), WorkspaceError> {
        let (mut small, mut large) = (HashSet::new(), HashSet::new());
        self.gather(tree, times, 0, &mut (&mut small, &mut large), &mut HashSet::new())?;
        let (sink, known) = (&self.sink, &mut self.transcript.contents);
        self.contents.get_all(&small.into_iter().collect::<Vec<_>>(), |id, bytes| {
            known.insert(id, sink.contents.put(&bytes)?);
            Ok(())
        })?;
        let get = |id: BlobId| Ok(self.contents.get(id)?);
        for (list, size) in large {
            known.insert(list, content::cut_anew(&get, list, size, sink)?);
        }
        self.folder(tree, times, 0)
    }

    /// Contents that aren't there yet.
    fn gather(
        &self,
        tree: BlobId,
        times: Option<BlobId>,
        depth: usize,
        found: &mut (&mut HashSet<BlobId>, &mut HashSet<(BlobId, u64)>),
        seen: &mut HashSet<BlobId>,
    ) -> Result<(), WorkspaceError> {
        if depth > MAX_DEPTH {
            return Err(TreeError("folders nest too deeply").into());
        }
        if self.transcript.folders.contains_key(&(tree, times)) || !seen.insert(tree) {
            return Ok(());
        }
        for leaf in folder(&self.nodes, tree)? {
            match leaf.entry {
                Entry::Folder { node, .. } => self.gather(node, None, depth + 1, found, seen)?,
                Entry::File { content, .. } if self.transcript.contents.contains_key(&content.id()) => {}
                Entry::File { content: Content::Whole(id), .. } => drop(found.0.insert(id)),
                Entry::File { content: Content::Pieces(list), size, .. } => drop(found.1.insert((list, size))),
                _ => {}
            }
        }
        Ok(())
    }

    fn folder(
        &mut self,
        tree: BlobId,
        times: Option<BlobId>,
        depth: usize,
    ) -> Result<(BlobId, Option<BlobId>), WorkspaceError> {
        if let Some(known) = self.transcript.folders.get(&(tree, times)) {
            return Ok(*known);
        }
        if depth > MAX_DEPTH {
            return Err(TreeError("folders nest too deeply").into());
        }
        let mut anew = Vec::new();
        for (leaf, time) in timed(&self.nodes, tree, times)? {
            let (mut entry, mut time) = (leaf.entry, time);
            match &mut entry {
                Entry::Folder { node, .. } => {
                    let below = match time {
                        TimedEntry::Folder(times) => Some(times),
                        _ => None,
                    };
                    let (there, times) = self.folder(*node, below, depth + 1)?;
                    *node = there;
                    time = times.map_or(TimedEntry::Nothing, TimedEntry::Folder);
                }
                Entry::File { content, .. } => {
                    let known = self.transcript.contents.get(&content.id()).copied();
                    let there = known.ok_or(TreeError("a file changed its content while it was copied"))?;
                    *content = match content {
                        Content::Whole(_) => Content::Whole(there),
                        Content::Pieces(_) => Content::Pieces(there),
                    };
                }
                _ => {}
            }
            anew.push((leaf.name, entry, time));
        }
        let sink = &self.sink;
        let mut writer = FolderWriter::new(&sink.hashing, times.is_some(), |bytes: &[u8]| sink.node(bytes));
        for (name, entry, time) in &anew {
            writer.add(name, entry, *time)?;
        }
        let (there, there_times) = writer.finish()?;
        let done = (there, times.map(|_| there_times));
        self.transcript.folders.insert((tree, times), done);
        Ok(done)
    }
}

/// The entries of a folder with their times.
fn timed(nodes: &dyn Nodes, tree: BlobId, times: Option<BlobId>) -> Result<Vec<(Leaf, TimedEntry)>, WorkspaceError> {
    let unfit = || WorkspaceError::from(TreeError("times don't fit their folder"));
    let Some(times) = times else {
        return Ok(folder(nodes, tree)?.into_iter().map(|leaf| (leaf, TimedEntry::Nothing)).collect());
    };
    match parse_leaves(&nodes.node(tree)?)? {
        Parsed::Entries(leaves) => match parse_times(&nodes.node(times)?, &leaves)? {
            ParsedTimes::Times(times) => Ok(leaves.into_iter().zip(times).collect()),
            ParsedTimes::Branch(_) => Err(unfit()),
        },
        Parsed::Branch(children) => {
            let ParsedTimes::Branch(times) = parse_times(&nodes.node(times)?, &[])? else { return Err(unfit()) };
            if times.len() != children.len() {
                return Err(unfit());
            }
            // Checks the order of the leaves and their counts.
            folder(nodes, tree)?;
            let mut whole = Vec::new();
            for ((child, _), times) in children.into_iter().zip(times) {
                whole.extend(timed(nodes, child, Some(times))?);
            }
            Ok(whole)
        }
    }
}
