//! One level of a drawing: boxes in ranks from top to bottom, with few crossings, and the way of each line between them.

use dagre::graph::{Graph, GraphOptions};
use dagre::layout::types::LabelPos;
use dagre::{EdgeLabel, LayoutOptions, NodeLabel};

/// How many boxes and lines a level may have. The time that placing them takes grows with the square.
const MOST: usize = 400;

/// How wide and high something is, in the unit of the caller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// From left to right.
    pub width: f64,
    /// From top to bottom.
    pub height: f64,
}

/// A line from one box to another, by their places in the list, with room for a label.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// Where it begins.
    pub source: usize,
    /// Where it ends.
    pub target: usize,
    /// The room that its label needs; nothing if it has none.
    pub label: Option<Size>,
}

/// How much stays free.
#[derive(Debug, Clone, Copy)]
pub struct Gaps {
    /// Between boxes that stand side by side.
    pub boxes: f64,
    /// Between lines that pass side by side.
    pub lines: f64,
    /// Between ranks.
    pub ranks: f64,
}

/// Where everything is. The upper left corner is 0, 0.
#[derive(Debug, Clone)]
pub struct Arranged {
    /// How large the whole is.
    pub size: Size,
    /// The middle of each box. Boxes of one rank have the same y.
    pub boxes: Vec<(f64, f64)>,
    /// The corners of each line, from its source to its target.
    pub lines: Vec<Vec<(f64, f64)>>,
    /// The middle of each line's label.
    pub labels: Vec<Option<(f64, f64)>>,
}

/// Places boxes and lines; `None` if they are too many. Lines to boxes that aren't there, and from a box to itself,
/// have no corners.
pub fn arrange(sizes: &[Size], links: &[Link], gaps: Gaps) -> Option<Arranged> {
    if sizes.len() + links.len() > MOST {
        return None;
    }
    let mut graph = Graph::with_options(GraphOptions { directed: true, multigraph: true, compound: false });
    for (place, size) in sizes.iter().enumerate() {
        let label = NodeLabel { width: size.width, height: size.height, ..NodeLabel::default() };
        graph.set_node(place.to_string(), Some(label));
    }
    let is_drawn = |link: &Link| link.source != link.target && link.source.max(link.target) < sizes.len();
    for (place, link) in links.iter().enumerate().filter(|(_, link)| is_drawn(link)) {
        let room = link.label.unwrap_or(Size { width: 0.0, height: 0.0 });
        let label =
            EdgeLabel { width: room.width, height: room.height, labelpos: LabelPos::Center, ..EdgeLabel::default() };
        graph.set_edge(link.source.to_string(), link.target.to_string(), Some(label), Some(&place.to_string()));
    }
    let options =
        LayoutOptions { nodesep: gaps.boxes, edgesep: gaps.lines, ranksep: gaps.ranks, ..LayoutOptions::default() };
    dagre::layout(&mut graph, Some(options));
    let boxes: Vec<(f64, f64)> = (0..sizes.len())
        .map(|place| graph.node(&place.to_string()).and_then(|label| Some((label.x?, label.y?))).unwrap_or_default())
        .collect();
    let drawn: Vec<_> = links
        .iter()
        .enumerate()
        .map(|(place, link)| graph.edge(&link.source.to_string(), &link.target.to_string(), Some(&place.to_string())))
        .collect();
    let lines: Vec<Vec<(f64, f64)>> = drawn
        .iter()
        .map(|label| label.map(|label| label.points.iter().map(|point| (point.x, point.y)).collect()))
        .map(Option::unwrap_or_default)
        .collect();
    let labels = links.iter().zip(&drawn).map(|(link, label)| {
        let label = link.label.and(*label)?;
        Some((label.x?, label.y?))
    });
    let size = extent_of(sizes, &boxes, &lines);
    Some(Arranged { size, boxes, labels: labels.collect(), lines })
}

/// How far boxes and lines reach.
fn extent_of(sizes: &[Size], boxes: &[(f64, f64)], lines: &[Vec<(f64, f64)>]) -> Size {
    let corners = boxes.iter().zip(sizes).map(|((x, y), size)| (x + size.width / 2.0, y + size.height / 2.0));
    corners.chain(lines.iter().flatten().copied()).fold(Size { width: 0.0, height: 0.0 }, |size, (x, y)| Size {
        width: size.width.max(x),
        height: size.height.max(y),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAPS: Gaps = Gaps { boxes: 4.0, lines: 2.0, ranks: 4.0 };

    fn link(source: usize, target: usize) -> Link {
        Link { source, target, label: None }
    }

    #[test]
    fn what_depends_on_something_is_below_it_and_nothing_overlaps() {
        let sizes: Vec<Size> = (0..5).map(|n| Size { width: 10.0 + f64::from(n), height: 3.0 }).collect();
        let links = [link(0, 1), link(0, 2), link(1, 3), link(2, 3), link(0, 3), link(3, 4)];
        let found = arrange(&sizes, &links, GAPS).unwrap();
        for Link { source, target, .. } in links {
            assert!(found.boxes[source].1 < found.boxes[target].1, "{found:?}");
        }
        for a in 0..sizes.len() {
            for b in (a + 1)..sizes.len() {
                let ((ax, ay), (bx, by)) = (found.boxes[a], found.boxes[b]);
                let apart = (ax - bx).abs() >= f64::midpoint(sizes[a].width, sizes[b].width) || (ay - by).abs() >= 3.0;
                assert!(apart, "{a} and {b}: {found:?}");
            }
        }
        assert!(found.lines.iter().all(|line| line.len() >= 2));
    }

    /// A page draws documents of others: circles, loops, names of nobody and sheer size are no fault.
    #[test]
    fn hostile_graphs_are_drawn_or_refused() {
        let sizes = [Size { width: 5.0, height: 3.0 }; 3];
        let links = [link(0, 1), link(1, 0), link(1, 1), link(2, 7), link(0, 1), link(0, 1)];
        let found = arrange(&sizes, &links, GAPS).unwrap();
        assert!(found.lines[2].is_empty() && found.lines[3].is_empty());
        assert!(found.boxes.iter().all(|(x, y)| x.is_finite() && y.is_finite()));
        assert_eq!(arrange(&[], &[], GAPS).unwrap().size, Size { width: 0.0, height: 0.0 });
        assert!(arrange(&vec![sizes[0]; MOST + 1], &[], GAPS).is_none());
        assert!(arrange(&sizes, &vec![link(0, 1); MOST], GAPS).is_none());
    }
}
