//! Whole values from packs and segments, without a copy of each node: the decoder reads nodes where they
//! lie, follows references inside a pack or segment by place, and asks for another one only when a
//! reference leads out.

use bytes::Bytes;
use piton_types::{BlobId, Seq, Value};

use super::blobs::{Holding, RunBlobs};
use crate::codec::Reader;
use crate::segment::{SegmentNodes, Target};
use crate::state::IdMap;
use crate::state::decode::{Decoder, Nodes, Progress, Resolved};
use piton_store::StoreError;

/// The holdings that a value is spread over.
#[derive(Default)]
struct Graph {
    holdings: Vec<Holding>,
    /// References that led out of their holding.
    far: IdMap<Place>,
    /// A node that is in no holding: the top of an entry's body.
    top: Bytes,
}

#[derive(Clone, Copy)]
enum Place {
    Top,
    In { holding: u32, place: u32 },
}

impl Graph {
    /// Makes a node known that a reference leads to.
    fn add(&mut self, id: BlobId, holding: &Holding, place: u32) {
        let place = self.place(holding, place);
        self.far.insert(id, place);
    }

    /// The place of a node.
    fn place(&mut self, holding: &Holding, place: u32) -> Place {
        let known = self.holdings.iter().position(|known| known.is(holding));
        let holding = known.unwrap_or_else(|| {
            self.holdings.push(holding.clone());
            self.holdings.len() - 1
        });
        Place::In { holding: u32::try_from(holding).expect("far fewer holdings"), place }
    }

    /// A node that a reference leads to, out of its own holding.
    fn elsewhere(&self, id: BlobId) -> Resolved<Place> {
        if let Some(place) = self.far.get(&id) {
            return Resolved::Here(*place);
        }
        let packs = self.holdings.iter().zip(0..).filter_map(|(holding, n)| match holding {
            Holding::Pack(pack) => Some((pack, n)),
            Holding::Segment(_) => None,
        });
        for (pack, holding) in packs {
            if let Some(place) = pack.place(&id).filter(|place| pack.is_whole(*place)) {
                return Resolved::Here(Place::In { holding, place });
            }
        }
        Resolved::Missing(id)
    }
}

impl Nodes for Graph {
    type Ref = Place;

    const CANONICAL: bool = false;

    fn node(&self, node: Place) -> Result<&[u8], StoreError> {
        Ok(match node {
            Place::Top => &self.top,
            Place::In { holding, place } => match &self.holdings[holding as usize] {
                Holding::Pack(pack) => pack.node(place),
                Holding::Segment(nodes) => nodes.compact(place),
            },
        })
    }

    fn child(&self, parent: Place, reader: &mut Reader<'_>) -> Result<Resolved<Place>, StoreError> {
        let Place::In { holding, place } = parent else { return Ok(self.elsewhere(reader.id()?)) };
        match &self.holdings[holding as usize] {
            Holding::Pack(pack) => {
                let id = reader.id()?;
                Ok(match pack.place(&id).filter(|place| pack.is_whole(*place)) {
                    Some(place) => Resolved::Here(Place::In { holding, place }),
                    None => self.elsewhere(id),
                })
            }
            Holding::Segment(_) => Ok(match SegmentNodes::reference(place, reader)? {
                Target::Near(place) => Resolved::Here(Place::In { holding, place }),
                Target::Far(id) => self.elsewhere(id),
            }),
        }
    }
}

impl RunBlobs {
    /// The value with this root.
    pub(super) async fn load(&self, root: BlobId) -> Result<Value, StoreError> {
        let mut graph = Graph::default();
        let (holding, place) = self.find(root).await?;
        let top = graph.place(&holding, place);
        self.decode(graph, Decoder::new(top), None).await
    }

    /// The body of entry `seq`, whose top node is at hand and the rest of which is stored.
    pub(super) async fn load_body(&self, seq: Seq, top: Bytes) -> Result<Value, StoreError> {
        let graph = Graph { top, ..Graph::default() };
        self.decode(graph, Decoder::new(Place::Top), Some(seq)).await
    }

    async fn decode(
        &self,
        mut graph: Graph,
        mut decoder: Decoder<Place>,
        near: Option<Seq>,
    ) -> Result<Value, StoreError> {
        loop {
            match decoder.run(&graph)? {
                Progress::Done(value) => return Ok(value),
                Progress::Missing(id) => {
                    // An unknown root is a mistake of the caller; a node that another one names is lost.
                    let found = match near {
                        Some(seq) => self.find_near(id, seq).await,
                        None => self.find(id).await,
                    };
                    let (holding, place) = found.map_err(|error| match error {
                        StoreError::NotFound { what } => {
                            StoreError::corrupt("a stored value", format!("{what} is missing"))
                        }
                        other => other,
                    })?;
                    graph.add(id, &holding, place);
                }
            }
        }
    }
}
