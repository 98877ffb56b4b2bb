//! `piton graph`: a document as a drawing.

use piton_app::documents;
use piton_app::drawing::{Picture, exit, mermaid, svg};
use piton_app::views::documents::GraphView;

use crate::arguments::{Drawing, Graph};
use crate::boxes;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: Graph) -> Result<Exit, Failure> {
    let (_, document) = documents::read_valid(&arguments.document)?;
    let (graph, output) = (GraphView::from(&document), &session.output);
    if output.is_json() {
        output.view(&graph)?;
        return Ok(Exit::Done);
    }
    output.data(&match arguments.format {
        Drawing::Boxes => boxes::draw(&graph, output.width(), output.has_colour()).unwrap_or_else(|| {
            output.note("it is too large to be drawn here, so this is the list of it; --format svg draws more");
            list(&graph)
        }),
        Drawing::List => list(&graph),
        Drawing::Mermaid => mermaid(&graph),
        Drawing::Svg => svg(&Picture::of(&graph).ok_or_else(|| {
            Failure::fixable("the document has too many nodes and edges on one level for a drawing")
                .hint("`--format mermaid` leaves the drawing to another program; `--format list` lists them.")
        })?),
    })?;
    Ok(Exit::Done)
}

/// One line per node, in the order of the document, with where it leads.
fn list(graph: &GraphView) -> String {
    let mut lines = Vec::new();
    write_list(graph, 0, &mut lines);
    lines.join("\n")
}

fn write_list(graph: &GraphView, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    for node in &graph.nodes {
        let title = if node.title == node.id { String::new() } else { format!(" {:?}", node.title) };
        lines.push(format!("{indent}{} [{}]{}", clean(&node.id), clean(&node.kind), clean(&title)));
        if let Some(inside) = &node.inside {
            write_list(inside, depth + 2, lines);
        }
        for edge in graph.edges.iter().filter(|edge| edge.source == node.id) {
            let exit = exit(edge).map(|exit| format!(" ({})", clean(exit))).unwrap_or_default();
            lines.push(format!("{indent}  → {}{exit}", clean(&edge.target)));
        }
    }
}
