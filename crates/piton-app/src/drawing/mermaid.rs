//! A drawing as a flowchart of Mermaid, which lays it out itself.

use super::exit;
use crate::views::documents::{GraphView, NodeView};

/// The document as a flowchart. Names are numbers, so that no id can be mistaken for syntax.
pub fn mermaid(graph: &GraphView) -> String {
    let mut lines = vec!["flowchart TD".to_owned()];
    let mut next = 0;
    write(graph, 1, &mut next, &mut lines);
    lines.join("\n")
}

fn write(graph: &GraphView, depth: usize, next: &mut usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    let mut names: Vec<(&str, String)> = Vec::new();
    for node in &graph.nodes {
        let name = format!("n{next}");
        *next += 1;
        match &node.inside {
            Some(inside) => {
                lines.push(format!("{indent}subgraph {name}[\"{}\"]", label(node)));
                write(inside, depth + 1, next, lines);
                lines.push(format!("{indent}end"));
            }
            None if matches!(node.kind.as_str(), "if-else" | "question-classifier") => {
                lines.push(format!("{indent}{name}{{\"{}\"}}", label(node)));
            }
            None if matches!(node.kind.as_str(), "start" | "end" | "answer") => {
                lines.push(format!("{indent}{name}([\"{}\"])", label(node)));
            }
            None => lines.push(format!("{indent}{name}[\"{}\"]", label(node))),
        }
        names.push((node.id.as_str(), name));
    }
    let name = |id: &str| names.iter().find(|(other, _)| *other == id).map(|(_, name)| name);
    for edge in &graph.edges {
        let (Some(source), Some(target)) = (name(&edge.source), name(&edge.target)) else { continue };
        match exit(edge) {
            Some(exit) => lines.push(format!("{indent}{source} -->|\"{}\"| {target}", quoted(exit))),
            None => lines.push(format!("{indent}{source} --> {target}")),
        }
    }
}

fn label(node: &NodeView) -> String {
    let title = quoted(&node.title);
    if node.title == node.kind { title } else { format!("{title}<br/><i>{}</i>", quoted(&node.kind)) }
}

/// A text inside quotation marks of Mermaid, which shows HTML.
fn quoted(text: &str) -> String {
    text.replace(char::is_control, " ")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('#', "&num;")
}
