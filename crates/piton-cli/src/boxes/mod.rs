//! A document as boxes and lines of characters, for a terminal.
//!
//! Which box is in which rank and where is [`arrange`]'s business. Here ranks become rows, and the lines between two
//! rows get a row of their own each where they would run over one another. A line enters a box by a column from which
//! no other line leaves above it, so two lines never share a column; where they cross, they cross.

mod canvas;

use piton_app::drawing::{Gaps, Link, Size, arrange, exit};
use piton_app::views::documents::{EdgeView, GraphView, NodeView};
use unicode_width::UnicodeWidthStr as _;

use self::canvas::{Canvas, DOWN, Ink, LEFT, RIGHT, UP};
use crate::output::clean;
use crate::table::cut;

/// How many columns a title may have, the more the better.
const LABELS: [usize; 4] = [36, 24, 14, 8];
/// How many columns the name of an exit may have.
const EXIT: usize = 14;
const GAPS: Gaps = Gaps { boxes: 4.0, lines: 3.0, ranks: 2.0 };

/// The document in at most so many columns; `None` if that is too narrow for it, or the document too large.
pub(crate) fn draw(graph: &GraphView, width: Option<usize>, colour: bool) -> Option<String> {
    let drawn = LABELS.iter().find_map(|&label| {
        let canvas = level(graph, label)?;
        (canvas.width <= width.unwrap_or(usize::MAX)).then_some(canvas)
    })?;
    let back = graph.edges.iter().filter(|edge| edge.source == edge.target);
    let back = back.map(|edge| format!("\n{} leads to itself", clean(&edge.source)));
    Some(drawn.render(colour) + &back.collect::<String>())
}

/// Something in a rank: a box, or a line that passes.
#[derive(Debug, Clone, Copy)]
struct Item {
    rank: usize,
    left: usize,
    width: usize,
}

impl Item {
    fn middle(self) -> usize {
        self.left + self.width / 2
    }
}

/// A line on its way through one gap.
#[derive(Debug, Clone, Copy)]
struct Segment {
    from: usize,
    to: usize,
    /// Where it ends: an item.
    target: usize,
    /// In which row of the gap it goes sideways.
    track: usize,
}

/// A level of the document: its boxes, then the places where lines pass through ranks.
struct Level<'g> {
    graph: &'g GraphView,
    inside: Vec<Option<Canvas>>,
    label: usize,
    items: Vec<Item>,
    /// By edge: the items that it goes through, from its source to its target. Empty if it isn't drawn.
    ways: Vec<Vec<usize>>,
    ranks: usize,
}

fn level(graph: &GraphView, label: usize) -> Option<Canvas> {
    let mut inside = Vec::new();
    for node in &graph.nodes {
        inside.push(match &node.inside {
            Some(graph) => Some(level(graph, label)?),
            None => None,
        });
    }
    let mut level = Level { graph, inside, label, items: Vec::new(), ways: Vec::new(), ranks: 0 };
    level.place()?;
    Some(level.draw())
}

impl<'g> Level<'g> {
    /// Finds the rank and the columns of each box, and of each line in the ranks that it passes.
    fn place(&mut self) -> Option<()> {
        let nodes = &self.graph.nodes;
        let widths: Vec<usize> = (0..nodes.len()).map(|node| self.width(node)).collect();
        #[expect(clippy::cast_precision_loss, reason = "no box is that wide")]
        let sizes: Vec<Size> = widths.iter().map(|&width| Size { width: width as f64, height: 1.0 }).collect();
        let find = |id: &str| nodes.iter().position(|node| node.id == id).unwrap_or(usize::MAX);
        let link = |edge: &EdgeView| Link { source: find(&edge.source), target: find(&edge.target), label: None };
        let links: Vec<Link> = self.graph.edges.iter().map(link).collect();
        let arranged = arrange(&sizes, &links, GAPS)?;

        let mut heights: Vec<f64> = arranged.boxes.iter().map(|(_, y)| *y).collect();
        heights.sort_by(f64::total_cmp);
        heights.dedup_by(|a, b| (*a - *b).abs() < 0.1);
        self.ranks = heights.len();
        let rank = |y: f64| heights.iter().position(|height| (height - y).abs() < 0.1).unwrap_or(0);
        // With the middle of each, until it is rounded.
        let mut items: Vec<(Item, f64)> = Vec::new();
        for ((x, y), width) in arranged.boxes.iter().zip(&widths) {
            items.push((Item { rank: rank(*y), left: 0, width: *width }, *x));
        }
        for (link, corners) in links.iter().zip(&arranged.lines) {
            let mut way = Vec::new();
            if corners.len() > 1 {
                // A circle has a line that leads up. It is drawn as any other, from above.
                let (above, below) = match items[link.source].0.rank <= items[link.target].0.rank {
                    true => (link.source, link.target),
                    false => (link.target, link.source),
                };
                way.push(above);
                let passed = items[above].0.rank + 1..items[below].0.rank;
                for (rank, height) in heights.iter().enumerate().filter(|(rank, _)| passed.contains(rank)) {
                    let x = corners.iter().find(|(_, y)| (y - height).abs() < 0.1).map_or(0.0, |(x, _)| *x);
                    items.push((Item { rank, left: 0, width: 1 }, x));
                    way.push(items.len() - 1);
                }
                way.push(below);
            }
            self.ways.push(way);
        }
        self.items = rounded(items, self.ranks);
        Some(())
    }

    fn title(&self, node: &NodeView) -> String {
        cut(&clean(&node.title), self.label)
    }

    fn kind(&self, node: &NodeView) -> String {
        cut(&clean(&node.kind), self.label)
    }

    /// The exits of a node that lines leave by, in the order of the document.
    fn exits(&self, node: usize) -> Vec<Option<&'g str>> {
        let id = &self.graph.nodes[node].id;
        let mut found: Vec<Option<&str>> = Vec::new();
        for edge in self.graph.edges.iter().filter(|edge| edge.source == *id && edge.target != *id) {
            if !found.contains(&exit(edge)) {
                found.push(exit(edge));
            }
        }
        found
    }

    /// How wide the box of a node is: odd, so that it has a middle.
    fn width(&self, node: usize) -> usize {
        let spec = &self.graph.nodes[node];
        let (title, kind) = (self.title(spec).width(), self.kind(spec).width());
        let text = match &self.inside[node] {
            Some(inside) => (title + kind + 7).max(inside.width + 4),
            None if spec.title == spec.kind => title + 4,
            None => (title + 4).max(kind + 5),
        };
        let exits: usize = self.exits(node).into_iter().map(|exit| exit_width(exit) + 2).sum();
        text.max(exits + 3) | 1
    }

    /// The exits of a node with their columns, so that lines cross as little as can be: by where they lead to.
    fn ports(&self, node: usize) -> Vec<(Option<&'g str>, usize)> {
        let mut exits: Vec<_> = self
            .exits(node)
            .into_iter()
            .map(|name| {
                let ways = self.graph.edges.iter().zip(&self.ways);
                let next = ways.filter(|(edge, way)| exit(edge) == name && way.first() == Some(&node));
                let ends: Vec<usize> = next.map(|(_, way)| self.items[way[1]].middle()).collect();
                (name, ends.iter().sum::<usize>() / ends.len().max(1))
            })
            .collect();
        exits.sort_by_key(|(name, end)| (*end, *name));
        let item = self.items[node];
        let room: usize = exits.iter().map(|(name, _)| exit_width(*name) + 2).sum();
        let mut column = item.left + (item.width + 1).saturating_sub(room) / 2;
        let ports = exits.into_iter().map(|(name, _)| {
            let port = column + exit_width(name);
            column = port + 2;
            (name, port)
        });
        ports.collect()
    }

    fn draw(&self) -> Canvas {
        let blocks: Vec<Canvas> = (0..self.graph.nodes.len()).map(|node| self.block(node)).collect();
        let mut heights = vec![0; self.ranks];
        for (block, item) in blocks.iter().zip(&self.items) {
            heights[item.rank] = heights[item.rank].max(block.height());
        }
        let mut gaps: Vec<Vec<Segment>> = (0..self.ranks.saturating_sub(1)).map(|gap| self.segments(gap)).collect();
        gaps.iter_mut().for_each(|gap| spread(gap));
        let tracks =
            |gap: &Vec<Segment>| gap.iter().filter(|line| line.from != line.to).map(|line| line.track + 1).max();
        // Its rows that go sideways, and one for the heads.
        let depth: Vec<usize> = gaps.iter().map(|gap| tracks(gap).unwrap_or(0) + 1).collect();

        let width = self.items.iter().map(|item| item.left + item.width).max().unwrap_or(1);
        let mut canvas = Canvas::new(width, heights.iter().sum::<usize>() + depth.iter().sum::<usize>());
        let mut top = 0;
        for rank in 0..self.ranks {
            for (place, item) in self.items.iter().enumerate().filter(|(_, item)| item.rank == rank) {
                let Some(block) = blocks.get(place) else {
                    (top..top + heights[rank]).for_each(|row| canvas.line(row, item.left, UP | DOWN));
                    continue;
                };
                canvas.paste(block, top, item.left);
                for (_, port) in self.ports(place) {
                    (top + block.height()..top + heights[rank]).for_each(|row| canvas.line(row, port, UP | DOWN));
                }
            }
            top += heights[rank];
            if let Some(gap) = gaps.get(rank) {
                gap.iter().for_each(|line| self.connect(&mut canvas, line, top, depth[rank]));
                top += depth[rank];
            }
        }
        canvas
    }

    /// The box of a node, with what is inside it.
    fn block(&self, node: usize) -> Canvas {
        let (spec, item) = (&self.graph.nodes[node], self.items[node]);
        let (title, kind) = (self.title(spec), self.kind(spec));
        let mut block = Canvas::new(item.width, self.inside[node].as_ref().map_or(3, |inside| inside.height() + 2));
        block.frame();
        match &self.inside[node] {
            Some(inside) => {
                block.text(0, 1, &format!(" {kind} "), Ink::Kind);
                block.text(0, 3 + kind.width(), &format!("{title} "), Ink::Title);
                block.paste(inside, 1, (item.width - inside.width) / 2);
            }
            None => {
                if spec.title != spec.kind {
                    block.text(0, 1, &format!(" {kind} "), Ink::Kind);
                }
                block.text(1, (item.width - title.width()) / 2, &title, Ink::Title);
            }
        }
        let last = block.height() - 1;
        for (name, port) in self.ports(node) {
            let port = port - item.left;
            block.line(last, port, DOWN);
            let name = cut(&clean(name.unwrap_or_default()), EXIT);
            block.text(last, port - name.width(), &name, Ink::Exit);
        }
        block
    }

    /// The lines in a gap, with the columns that they come from and lead to.
    fn segments(&self, gap: usize) -> Vec<Segment> {
        let mut found: Vec<Segment> = Vec::new();
        for (edge, way) in self.graph.edges.iter().zip(&self.ways) {
            let steps = way.windows(2).filter(|step| self.items[step[0]].rank == gap);
            for step in steps {
                let (source, target) = (step[0], step[1]);
                let port =
                    || self.ports(source).into_iter().find(|(name, _)| *name == exit(edge)).map(|(_, port)| port);
                let is_box = source < self.graph.nodes.len();
                // A line that leads up comes from a box by no exit of it.
                let from = is_box.then(port).flatten().unwrap_or_else(|| self.items[source].middle());
                found.push(Segment { from, to: self.items[target].middle(), target, track: 0 });
            }
        }
        for place in 0..found.len() {
            let Segment { from, target, .. } = found[place];
            let (item, is_box) = (self.items[target], target < self.graph.nodes.len());
            if !is_box {
                continue;
            }
            let is_only = found.iter().filter(|other| other.target == target).count() == 1;
            let is_below = from > item.left && from + 1 < item.left + item.width;
            let is_taken = |column: usize| found.iter().any(|other| other.from == column && other.target != target);
            let inner = item.left + 1..item.left + item.width - 1;
            let mut columns: Vec<usize> = inner.collect();
            columns.sort_by_key(|column| column.abs_diff(item.middle()));
            let free = columns.into_iter().find(|column| !is_taken(*column));
            found[place].to = if is_only && is_below { from } else { free.unwrap_or_else(|| item.middle()) };
        }
        found
    }

    /// Draws a line through a gap.
    fn connect(&self, canvas: &mut Canvas, line: &Segment, top: usize, depth: usize) {
        let is_box = line.target < self.graph.nodes.len();
        let (turn, end) = (top + line.track, top + depth - 1);
        for row in top..=end {
            if line.from == line.to {
                canvas.line(row, line.to, UP | DOWN);
                continue;
            }
            match row.cmp(&turn) {
                std::cmp::Ordering::Less => canvas.line(row, line.from, UP | DOWN),
                std::cmp::Ordering::Greater => canvas.line(row, line.to, UP | DOWN),
                std::cmp::Ordering::Equal => {
                    let (left, right) = (line.from.min(line.to), line.from.max(line.to));
                    (left + 1..right).for_each(|column| canvas.line(row, column, LEFT | RIGHT));
                    canvas.line(row, left, RIGHT);
                    canvas.line(row, right, LEFT);
                    canvas.line(row, line.from, UP);
                    canvas.line(row, line.to, DOWN);
                }
            }
        }
        if is_box {
            canvas.text(end, line.to, "▼", Ink::Exit);
        }
    }
}

/// How many columns the name of an exit takes.
fn exit_width(exit: Option<&str>) -> usize {
    exit.map_or(0, |exit| cut(&clean(exit), EXIT).width())
}

/// From middles to columns: things of one rank stay in their order and don't touch.
fn rounded(mut items: Vec<(Item, f64)>, ranks: usize) -> Vec<Item> {
    for rank in 0..ranks {
        let mut row: Vec<usize> = (0..items.len()).filter(|&place| items[place].0.rank == rank).collect();
        row.sort_by(|&a, &b| items[a].1.total_cmp(&items[b].1));
        let mut free = 0;
        for place in row {
            let (item, middle) = &mut items[place];
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is small, and not below 0")]
            let middle = middle.max(0.0).round() as usize;
            item.left = middle.saturating_sub(item.width / 2).max(free);
            free = item.left + item.width + 2;
        }
    }
    items.into_iter().map(|(item, _)| item).collect()
}

/// Gives lines that would run over one another rows of their own. Those that come from one exit, or meet where they
/// enter a box, may share one.
fn spread(gap: &mut [Segment]) {
    let mut order: Vec<usize> = (0..gap.len()).filter(|&place| gap[place].from != gap[place].to).collect();
    order.sort_by_key(|&place| (gap[place].from.abs_diff(gap[place].to), place));
    let mut placed: Vec<usize> = Vec::new();
    for place in order {
        let line = gap[place];
        let (left, right) = (line.from.min(line.to), line.from.max(line.to));
        let clashes = |other: &Segment| {
            let (other_left, other_right) = (other.from.min(other.to), other.from.max(other.to));
            let meets = left <= other_right && other_left <= right;
            let meets_at_end =
                line.target == other.target && line.to == other.to && (left == other_right || right == other_left);
            meets && line.from != other.from && !meets_at_end
        };
        let free = (0..gap.len())
            .find(|&track| placed.iter().all(|&other| gap[other].track != track || !clashes(&gap[other])));
        gap[place].track = free.unwrap_or(0);
        placed.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: &[(&str, &str)], edges: &[(&str, &str, Option<&str>)]) -> GraphView {
        let node = |(id, kind): &(&str, &str)| NodeView {
            id: (*id).to_owned(),
            kind: (*kind).to_owned(),
            title: (*id).to_owned(),
            inside: None,
        };
        let edge = |(source, target, exit): &(&str, &str, Option<&str>)| EdgeView {
            source: (*source).to_owned(),
            target: (*target).to_owned(),
            exit: exit.map(str::to_owned),
        };
        GraphView { nodes: nodes.iter().map(node).collect(), edges: edges.iter().map(edge).collect() }
    }

    #[test]
    fn branches_have_their_names_and_meet_again() {
        let graph = graph(
            &[("in", "start"), ("check", "if-else"), ("publish", "code"), ("drop", "code"), ("out", "end")],
            &[
                ("in", "check", None),
                ("check", "publish", Some("true")),
                ("check", "drop", Some("false")),
                ("publish", "out", None),
                ("drop", "out", None),
            ],
        );
        insta::assert_snapshot!(draw(&graph, None, false).unwrap(), @r"
              ┌ start ──┐
              │   in    │
              └────┬────┘
                   ▼
           ┌ if-else ──────┐
           │     check     │
           └─false┬─true┬──┘
            ┌─────┘     │
            ▼           ▼
        ┌ code ─┐    ┌ code ───┐
        │ drop  │    │ publish │
        └───┬───┘    └────┬────┘
            └──────┬──────┘
                   ▼
               ┌ end ──┐
               │  out  │
               └───────┘
        ");
    }

    /// Every pair of two rows is joined: no two lines may share a column or a row that don't belong together.
    #[test]
    fn lines_that_cross_can_be_told_apart() {
        let graph = graph(
            &[("a", "code"), ("b", "code"), ("c", "code"), ("d", "code")],
            &[("a", "c", None), ("a", "d", None), ("b", "c", None), ("b", "d", None)],
        );
        insta::assert_snapshot!(draw(&graph, None, false).unwrap(), @r"
        ┌ code ─┐       ┌ code ─┐
        │   b   │       │   a   │
        └───┬───┘       └───┬───┘
            └┬────────────┬─┤
             ├────────────┼─┘
             ▼            ▼
         ┌ code ─┐    ┌ code ─┐
         │   d   │    │   c   │
         └───────┘    └───────┘
        ");
    }

    #[test]
    fn containers_have_their_nodes_inside_and_long_lines_go_around() {
        let mut outer = graph(
            &[("in", "start"), ("each", "iteration"), ("note", "code"), ("out", "end")],
            &[
                ("in", "each", None),
                ("in", "note", None),
                ("each", "out", None),
                ("note", "out", None),
                ("in", "out", None),
            ],
        );
        outer.nodes[1].inside = Some(Box::new(graph(&[("ask", "llm"), ("keep", "code")], &[("ask", "keep", None)])));
        insta::assert_snapshot!(draw(&outer, None, false).unwrap(), @r"
         ┌ start ──┐
         │   in    │
         └────┬────┘
        ┌─────┼──────────────────┐
        │     ▼                  ▼
        │  ┌ code ─┐   ┌ iteration each ───┐
        │  │ note  │   │     ┌ llm ──┐     │
        │  └───┬───┘   │     │  ask  │     │
        │      │       │     └───┬───┘     │
        │      │       │         ▼         │
        │      │       │     ┌ code ─┐     │
        │      │       │     │ keep  │     │
        │      │       │     └───────┘     │
        │      │       └─────────┬─────────┘
        └─────┬┘                 │
              ├──────────────────┘
              ▼
          ┌ end ──┐
          │  out  │
          └───────┘
        ");
    }

    #[test]
    fn what_is_too_wide_is_not_drawn_and_titles_control_no_terminal() {
        let wide: Vec<String> = (0..12).map(|n| format!("a-long-title-{n}")).collect();
        let nodes: Vec<(&str, &str)> =
            std::iter::once(("in", "start")).chain(wide.iter().map(|id| (&**id, "code"))).collect();
        let edges: Vec<(&str, &str, Option<&str>)> = wide.iter().map(|id| ("in", &**id, None)).collect();
        let found = graph(&nodes, &edges);
        assert!(draw(&found, Some(80), false).is_none());
        assert!(draw(&found, Some(240), false).unwrap().lines().all(|line| line.width() <= 240));
        let hostile = graph(&[("\x1b[2J\u{202e}日本", "a\nb")], &[("\x1b[2J\u{202e}日本", "gone", Some("\x07"))]);
        let drawn = draw(&hostile, None, false).unwrap();
        assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'), "{drawn:?}");
        assert!(drawn.lines().all(|line| line.width() == drawn.lines().next().unwrap().width()), "{drawn}");
    }
}
