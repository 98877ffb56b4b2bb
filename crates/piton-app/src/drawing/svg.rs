//! A drawing as SVG. Each box says which node it is (`data-node`), so that a page can colour it by the state of a run.

use std::fmt::Write as _;

use super::picture::{DrawnNode, Picture, TITLE};
use super::short;

/// In the colours of who looks at it.
const STYLE: &str = "<style>
.piton{--ink:#1f2328;--faint:#656d76;--line:#8c959f;--fill:#fff;--group:#f6f8fa;font:13px system-ui,sans-serif}
@media (prefers-color-scheme:dark){.piton{--ink:#e6edf3;--faint:#8d96a0;--line:#768390;--fill:#161b22;--group:#0d1117}}
.piton rect{fill:var(--fill);stroke:var(--line)}.piton .group rect{fill:var(--group);stroke-dasharray:4 3}
.piton text{fill:var(--ink)}.piton .kind,.piton .exit{fill:var(--faint);font-size:11px}
.piton path{fill:none;stroke:var(--line)}.piton .head{fill:var(--line);stroke:none}
</style>";

/// The drawing as the text of an SVG file.
pub fn svg(picture: &Picture) -> String {
    let (width, height) = (picture.width, picture.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"piton\" role=\"img\" aria-label=\"workflow\" \
         width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n{STYLE}\n\
         <defs><marker id=\"piton-head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n"
    );
    level(picture, &mut out);
    out.push_str("</svg>");
    out
}

/// Adds what is on one level. Writing into a string doesn't fail.
fn level(picture: &Picture, out: &mut String) {
    for node in &picture.nodes {
        let _ = writeln!(
            out,
            "<g class=\"{}\" data-node=\"{}\" data-kind=\"{}\" transform=\"translate({} {})\"><title>{}</title>\
             <rect width=\"{}\" height=\"{}\" rx=\"6\"/>{}",
            if node.inside.is_some() { "group" } else { "node" },
            escaped(&node.id),
            escaped(&node.kind),
            node.x,
            node.y,
            escaped(&format!("{} ({})", node.title, node.kind)),
            node.width,
            node.height,
            texts(node),
        );
        if let Some(inside) = &node.inside {
            level(inside, out);
        }
        out.push_str("</g>\n");
    }
    for edge in &picture.edges {
        let _ = write!(
            out,
            "<g class=\"edge\" data-source=\"{}\" data-target=\"{}\"><path d=\"{}\" marker-end=\"url(#piton-head)\"/>",
            escaped(&edge.source),
            escaped(&edge.target),
            curve(&edge.points),
        );
        if let (Some(exit), Some((x, y))) = (&edge.exit, edge.label) {
            let (y, exit) = (y + 4.0, escaped(exit));
            let _ = write!(out, "<text class=\"exit\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{exit}</text>");
        }
        out.push_str("</g>\n");
    }
}

/// The title, and the kind below it if it says more.
fn texts(node: &DrawnNode) -> String {
    let (x, title) = (node.width / 2.0, escaped(&short(&node.title, TITLE)));
    let text = |class: &str, y: f64, text: &str| {
        format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>")
    };
    if node.title == node.kind {
        return text("title", 27.0, &title);
    }
    text("title", 19.0, &title) + &text("kind", 34.0, &escaped(&short(&node.kind, TITLE)))
}

/// A line through its corners, rounded.
fn curve(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (place, (x, y)) in points.iter().enumerate() {
        let _ = match (place, points.get(place + 1)) {
            (0, _) => write!(path, "M{x} {y}"),
            (_, None) => write!(path, "L{x} {y}"),
            (_, Some((next_x, next_y))) => {
                write!(path, "Q{x} {y} {:.1} {:.1}", f64::midpoint(*x, *next_x), f64::midpoint(*y, *next_y))
            }
        };
    }
    path
}

/// A text inside markup. What XML has no place for is left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::documents::{EdgeView, GraphView, NodeView};

    /// What a document says is never markup of the page that shows it.
    #[test]
    fn texts_of_documents_are_never_markup() {
        let hostile = "</title><script>alert(1)</script>\" onload='x'\x1b&\u{0}";
        let node = |id: &str| NodeView {
            id: id.to_owned(),
            kind: hostile.to_owned(),
            title: hostile.to_owned(),
            inside: None,
        };
        let edge = EdgeView { source: hostile.to_owned(), target: "b".to_owned(), exit: Some(hostile.to_owned()) };
        let graph = GraphView { nodes: vec![node(hostile), node("b")], edges: vec![edge] };
        let drawn = svg(&Picture::of(&graph).unwrap());
        assert!(!drawn.contains("<script") && !drawn.contains("onload='") && !drawn.contains('\x1b'), "{drawn}");
        assert_eq!(drawn.matches("<g ").count(), 3);
        assert_eq!(drawn.matches("class=\"exit\"").count(), 1, "{drawn}");
    }
}
