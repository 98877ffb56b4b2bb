//! Documents as drawings: where each box and each line goes, for a page, a file or a terminal.
//!
//! [`arrange`] places what is on one level in ranks from top to bottom, whatever the unit; [`Picture`] is a whole
//! document in pixels, ready to be drawn by a page; [`svg`] and [`mermaid`] are the drawing as text. Nothing that a
//! document says is taken for markup, and a document that is too large isn't drawn at all, so what a drawing costs is
//! bounded.

mod arrange;
mod mermaid;
mod picture;
mod svg;

pub use arrange::{Arranged, Gaps, Link, Size, arrange};
pub use mermaid::mermaid;
pub use picture::{DrawnEdge, DrawnNode, Picture};
pub use svg::svg;

use crate::views::documents::EdgeView;

/// The exit by which an edge leaves its node; `None` if the node has one only.
pub fn exit(edge: &EdgeView) -> Option<&str> {
    edge.exit.as_deref().filter(|exit| !exit.is_empty() && *exit != "source")
}

/// At most so many characters of a text, with `…` at the end if something is missing. Control characters are gone.
fn short(text: &str, most: usize) -> String {
    let mut clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut kept: String = clean.by_ref().take(most).collect();
    if clean.next().is_some() {
        kept.pop();
        kept.push('…');
    }
    kept
}
