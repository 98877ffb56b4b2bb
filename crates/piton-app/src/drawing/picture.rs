//! A document as boxes and lines in pixels. A page draws it as it is; the state of a run is laid over it by the ids.

use serde::Serialize;

use super::arrange::{Gaps, Link, Size, arrange};
use super::{exit, short};
use crate::views::documents::{GraphView, NodeView};

/// How wide a character is, more or less.
const CHARACTER: f64 = 7.2;
/// How many characters of a title are shown.
pub(super) const TITLE: usize = 34;
/// How many characters of an exit are shown.
const EXIT: usize = 20;
const NODE_HEIGHT: f64 = 44.0;
/// Around what is inside a container.
const FRAME: f64 = 16.0;
/// Above what is inside a container: its title.
const HEADER: f64 = 40.0;
const GAPS: Gaps = Gaps { boxes: 32.0, lines: 16.0, ranks: 40.0 };

/// A document as boxes and lines.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Picture {
    /// How wide.
    pub width: f64,
    /// How high.
    pub height: f64,
    /// The boxes.
    pub nodes: Vec<DrawnNode>,
    /// The lines.
    pub edges: Vec<DrawnEdge>,
}

/// A box.
#[derive(Debug, Clone, Serialize)]
pub struct DrawnNode {
    /// The node's id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// Its title.
    pub title: String,
    /// Its left edge.
    pub x: f64,
    /// Its upper edge.
    pub y: f64,
    /// How wide.
    pub width: f64,
    /// How high.
    pub height: f64,
    /// What is inside it, of a container. Its places are counted from the corner of this box.
    pub inside: Option<Box<Picture>>,
}

/// A line.
#[derive(Debug, Clone, Serialize)]
pub struct DrawnEdge {
    /// From which node.
    pub source: String,
    /// To which node.
    pub target: String,
    /// By which of its exits, if it has several.
    pub exit: Option<String>,
    /// Where the exit's name stands: its middle.
    pub label: Option<(f64, f64)>,
    /// Its corners, from the source to the target.
    pub points: Vec<(f64, f64)>,
}

impl Picture {
    /// Draws a document; `None` if it is too large for a drawing.
    pub fn of(graph: &GraphView) -> Option<Self> {
        Self::level(graph, FRAME)
    }

    /// Draws one level below a header of this height, with what is inside its containers.
    fn level(graph: &GraphView, header: f64) -> Option<Self> {
        let mut inside = Vec::new();
        for node in &graph.nodes {
            inside.push(match &node.inside {
                Some(graph) => Some(Box::new(Self::level(graph, HEADER)?)),
                None => None,
            });
        }
        let sizes: Vec<Size> = graph.nodes.iter().zip(&inside).map(|(node, inside)| size(node, inside)).collect();
        let place = |id: &str| graph.nodes.iter().position(|node| node.id == id).unwrap_or(usize::MAX);
        let links: Vec<Link> = graph
            .edges
            .iter()
            .map(|edge| Link {
                source: place(&edge.source),
                target: place(&edge.target),
                label: exit(edge).map(|exit| Size { width: text_width(exit, EXIT) + 8.0, height: 18.0 }),
            })
            .collect();
        let arranged = arrange(&sizes, &links, GAPS)?;
        let at = |(x, y): (f64, f64)| (round(FRAME + x), round(header + y));
        let drawn = graph.nodes.iter().zip(inside).zip(sizes.iter().zip(&arranged.boxes));
        let nodes = drawn.map(|((node, inside), (size, (x, y)))| {
            let (x, y) = at((x - size.width / 2.0, y - size.height / 2.0));
            DrawnNode {
                id: node.id.clone(),
                kind: node.kind.clone(),
                title: node.title.clone(),
                x,
                y,
                width: size.width,
                height: size.height,
                inside,
            }
        });
        let edges = graph.edges.iter().enumerate().map(|(place, edge)| DrawnEdge {
            source: edge.source.clone(),
            target: edge.target.clone(),
            exit: exit(edge).map(|exit| short(exit, EXIT)),
            label: arranged.labels[place].map(at),
            points: arranged.lines[place].iter().copied().map(at).collect(),
        });
        Some(Self {
            width: (arranged.size.width + 2.0 * FRAME).ceil(),
            height: (arranged.size.height + header + FRAME).ceil(),
            nodes: nodes.collect(),
            edges: edges.filter(|edge| edge.points.len() > 1).collect(),
        })
    }
}

fn size(node: &NodeView, inside: &Option<Box<Picture>>) -> Size {
    let text = text_width(&node.title, TITLE).max(text_width(&node.kind, TITLE)) + 28.0;
    match inside {
        Some(inside) => Size { width: inside.width.max(text).ceil(), height: inside.height },
        None => Size { width: text.max(96.0).ceil(), height: NODE_HEIGHT },
    }
}

/// How wide a text is, more or less. Letters of East Asia count twice, as everything outside of the first few scripts.
fn text_width(text: &str, most: usize) -> f64 {
    short(text, most).chars().map(|c| if c < '\u{1100}' || c == '…' { CHARACTER } else { 2.0 * CHARACTER }).sum()
}

/// To a tenth of a pixel.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, inside: Option<GraphView>) -> NodeView {
        NodeView { id: id.to_owned(), kind: "code".to_owned(), title: id.to_owned(), inside: inside.map(Box::new) }
    }

    fn edge(source: &str, target: &str) -> crate::views::documents::EdgeView {
        crate::views::documents::EdgeView { source: source.to_owned(), target: target.to_owned(), exit: None }
    }

    #[test]
    fn what_is_inside_a_container_is_drawn_inside_its_box() {
        let inside = GraphView { nodes: vec![node("x", None), node("y", None)], edges: vec![edge("x", "y")] };
        let graph = GraphView {
            nodes: vec![node("a", None), node("each", Some(inside)), node("b", None)],
            edges: vec![edge("a", "each"), edge("each", "b")],
        };
        let picture = Picture::of(&graph).unwrap();
        let find = |id: &str| picture.nodes.iter().find(|node| node.id == id).unwrap();
        let (each, a) = (find("each"), find("a"));
        assert!(a.inside.is_none() && a.y + a.height < each.y);
        let inside = each.inside.as_deref().unwrap();
        assert_eq!((inside.nodes.len(), inside.edges.len()), (2, 1));
        for node in &inside.nodes {
            assert!(node.x > 0.0 && node.x + node.width < each.width, "{picture:?}");
            assert!(node.y > 0.0 && node.y + node.height < each.height, "{picture:?}");
        }
        for node in &picture.nodes {
            assert!(node.x >= 0.0 && node.x + node.width <= picture.width, "{picture:?}");
            assert!(node.y >= 0.0 && node.y + node.height <= picture.height, "{picture:?}");
        }
        assert_eq!(picture.edges.len(), 2);
    }
}
