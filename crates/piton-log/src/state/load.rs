//! Where nodes come from, and the loading of whole values.

use async_trait::async_trait;
use bytes::Bytes;
use piton_types::{BlobId, Value};

use super::decode::{Decoder, Nodes, Progress, Resolved};
use super::grammar::Reader;
use piton_store::StoreError;

/// Where stored nodes come from.
#[async_trait]
pub trait NodeSource: Send + Sync {
    /// The bytes of a node. [`State`](super::State) checks them against the id; [`load()`] and
    /// [`diff`](super::diff()) take the source's word for it.
    async fn fetch(&self, id: BlobId) -> Result<Bytes, StoreError>;
}

/// Loads a whole value.
///
/// ```
/// # use std::collections::HashMap;
/// # use bytes::Bytes;
/// # use piton_types::{BlobId, Value};
/// use piton_log::state::{NodeSource, encode, load};
/// use piton_store::{Hashing, StoreError};
///
/// struct Memory(HashMap<BlobId, Bytes>);
///
/// #[async_trait::async_trait]
/// impl NodeSource for Memory {
///     async fn fetch(&self, id: BlobId) -> Result<Bytes, StoreError> {
///         self.0.get(&id).cloned().ok_or_else(|| StoreError::NotFound { what: format!("node {id}") })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), StoreError> {
/// let value = Value::from(vec![Value::from("x".repeat(10_000)), Value::from(7)]);
/// let encoded = encode(&Hashing::PLAIN, &value)?;
/// let memory = Memory(encoded.nodes.into_iter().collect());
/// assert_eq!(load(&memory, encoded.root).await?, value);
/// # Ok(())
/// # }
/// ```
pub async fn load(source: &dyn NodeSource, root: BlobId) -> Result<Value, StoreError> {
    load_node(source, source.fetch(root).await?).await
}

/// Loads the value whose node is at hand.
pub(super) async fn load_node(source: &dyn NodeSource, node: Bytes) -> Result<Value, StoreError> {
    let mut loader = Loader::new(node);
    loop {
        match loader.run()? {
            Progress::Done(value) => return Ok(value),
            Progress::Missing(id) => loader.provide(id, source.fetch(id).await?),
        }
    }
}

/// A decoder with the nodes from its root to where it stands, and none beside.
struct Loader {
    decoder: Decoder<usize>,
    line: Line,
}

/// A node at index `n + 1` was referred to by the one at `n`, or by one that stands inside it. So the
/// child of a node takes the place of what its earlier children left.
struct Line {
    nodes: Vec<(Option<BlobId>, Bytes)>,
    asking: std::cell::Cell<usize>,
}

impl Nodes for Line {
    type Ref = usize;

    const CANONICAL: bool = true;

    fn node(&self, node: usize) -> Result<&[u8], StoreError> {
        self.nodes
            .get(node)
            .map(|(_, bytes)| &bytes[..])
            .ok_or_else(|| StoreError::corrupt("a state", "a node is gone"))
    }

    fn child(&self, parent: usize, reader: &mut Reader<'_>) -> Result<Resolved<usize>, StoreError> {
        let id = reader.id()?;
        if self.nodes.get(parent + 1).is_some_and(|(known, _)| *known == Some(id)) {
            return Ok(Resolved::Here(parent + 1));
        }
        self.asking.set(parent);
        Ok(Resolved::Missing(id))
    }
}

impl Loader {
    fn new(root: Bytes) -> Self {
        Self { decoder: Decoder::new(0), line: Line { nodes: vec![(None, root)], asking: std::cell::Cell::new(0) } }
    }

    fn run(&mut self) -> Result<Progress, StoreError> {
        self.decoder.run(&self.line)
    }

    fn provide(&mut self, id: BlobId, node: Bytes) {
        self.line.nodes.truncate(self.line.asking.get() + 1);
        self.line.nodes.push((Some(id), node));
    }
}
