//! `piton graph`: a document as a drawing, for people or for Mermaid.

use piton_flow::{Document, NodeSpec};

use crate::arguments::{Drawing, Graph};
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use piton_app::documents;
use piton_app::views::documents::GraphView;

pub(crate) async fn execute(session: &Session, arguments: Graph) -> Result<Exit, Failure> {
    let (_, document) = documents::read_valid(&arguments.document)?;
    if session.output.is_json() {
        session.output.view(&GraphView::from(&document))?;
        return Ok(Exit::Done);
    }
    session.output.data(&match arguments.format {
        Drawing::Text => text(&document),
        Drawing::Mermaid => mermaid(&document),
    })?;
    Ok(Exit::Done)
}

/// One line per node, in the order of the document, with where it leads.
fn text(document: &Document) -> String {
    let mut lines = Vec::new();
    write_text(document, 0, &mut lines);
    lines.join("\n")
}

fn write_text(document: &Document, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    for node in &document.nodes {
        let title = if node.title == node.id.as_str() { String::new() } else { format!(" {:?}", node.title) };
        lines.push(format!("{indent}{} [{}]{}", clean(node.id.as_str()), clean(&node.kind), clean(&title)));
        if let Some(inside) = &node.inside {
            write_text(inside, depth + 2, lines);
        }
        for edge in document.edges.iter().filter(|edge| edge.source == node.id.as_str()) {
            let exit = edge.source_handle.as_deref().filter(|exit| !exit.is_empty() && *exit != "source");
            let exit = exit.map(|exit| format!(" ({})", clean(exit))).unwrap_or_default();
            lines.push(format!("{indent}  → {}{exit}", clean(&edge.target)));
        }
    }
}

/// A flowchart. Names are numbers, so that no id can be mistaken for syntax.
fn mermaid(document: &Document) -> String {
    let mut lines = vec!["flowchart TD".to_owned()];
    let mut next = 0;
    write_mermaid(document, 1, &mut next, &mut lines);
    lines.join("\n")
}

fn write_mermaid(document: &Document, depth: usize, next: &mut usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    let mut names: Vec<(&str, String)> = Vec::new();
    for node in &document.nodes {
        let name = format!("n{next}");
        *next += 1;
        match &node.inside {
            Some(inside) => {
                lines.push(format!("{indent}subgraph {name}[\"{}\"]", label(node)));
                write_mermaid(inside, depth + 1, next, lines);
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
    for edge in &document.edges {
        let (Some(source), Some(target)) = (name(&edge.source), name(&edge.target)) else { continue };
        let exit = edge.source_handle.as_deref().filter(|exit| !exit.is_empty() && *exit != "source");
        match exit {
            Some(exit) => lines.push(format!("{indent}{source} -->|\"{}\"| {target}", quoted(exit))),
            None => lines.push(format!("{indent}{source} --> {target}")),
        }
    }
}

fn label(node: &NodeSpec) -> String {
    let title = quoted(&node.title);
    if node.title == node.kind { title } else { format!("{title}<br/><i>{}</i>", quoted(&node.kind)) }
}

/// A text inside quotation marks of Mermaid, which shows HTML.
fn quoted(text: &str) -> String {
    clean(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('#', "&num;")
}
