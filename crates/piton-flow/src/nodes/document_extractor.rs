//! `document-extractor`: the text of files: plain text, HTML, CSV, PDF. Gives `text`, a list for a list of files.
//!
//! Files are hostile until read: they are bounded in size, and a reader that panics or takes too long fails the
//! node and nothing else.

use std::io::{self, Read};
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use piton_types::Value;
use serde::Deserialize;

use super::files::{self, File};
use crate::kind::{Build, Built};
use crate::node::{Node, NodeContext, NodeError, NodeOutput};
use crate::outside::Outside;
use crate::pool::VariablePool;
use crate::selector::Selector;

/// How large a file may be, how many pages are read of it, and how long that may take.
const MAX_FILE: usize = 32 << 20;
const MAX_PAGES: usize = 2000;
const MAX_TIME: Duration = Duration::from_secs(60);

/// The width at which HTML is broken into lines; wide enough that a paragraph is one.
const WIDTH: usize = 10_000;

#[derive(Debug, Deserialize)]
struct Data {
    /// A file, or a list of files.
    variable_selector: Selector,
}

#[derive(Debug)]
struct DocumentExtractor {
    files: Selector,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    Ok(Box::new(DocumentExtractor { files: data.variable_selector }))
}

#[async_trait]
impl Node for DocumentExtractor {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        Ok(Value::map([("files", variables.select(&self.files))]))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let outside = Outside::of(context)?;
        let work = async {
            let value = inputs.field("files").ok_or("its inputs have no files")?;
            let mut texts = Vec::new();
            for file in files::load(value, context, outside).await? {
                texts.push(Value::from(text(file).await?));
            }
            let text = match value {
                Value::List(_) => Value::List(texts),
                _ => texts.pop().unwrap_or_else(|| "".into()),
            };
            Ok(NodeOutput::of([("text", text)]))
        };
        outside.guard(context, work).await
    }

    fn gives(&self) -> Option<Vec<&str>> {
        Some(vec!["text"])
    }

    fn references(&self) -> Vec<&Selector> {
        vec![&self.files]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Html,
    Csv,
    Pdf,
}

/// By its name, else by its type, else by how it begins.
fn kind(file: &File) -> Option<Kind> {
    let extension = file.name.rsplit_once('.').map(|(_, extension)| extension.to_lowercase());
    match extension.as_deref() {
        Some(
            "txt" | "md" | "markdown" | "mdx" | "json" | "yaml" | "yml" | "xml" | "log" | "toml" | "ini" | "vtt"
            | "srt",
        ) => return Some(Kind::Plain),
        Some("html" | "htm" | "xhtml") => return Some(Kind::Html),
        Some("csv" | "tsv") => return Some(Kind::Csv),
        Some("pdf") => return Some(Kind::Pdf),
        _ => {}
    }
    match file.kind.split(';').next().unwrap_or_default().trim() {
        "text/html" | "application/xhtml+xml" => Some(Kind::Html),
        "text/csv" => Some(Kind::Csv),
        "application/pdf" => Some(Kind::Pdf),
        "application/json" | "application/xml" | "application/yaml" => Some(Kind::Plain),
        text if text.starts_with("text/") => Some(Kind::Plain),
        "" if file.content.starts_with(b"%PDF-") => Some(Kind::Pdf),
        "" if extension.is_none() && std::str::from_utf8(&file.content).is_ok() => Some(Kind::Plain),
        _ => None,
    }
}

async fn text(file: File) -> Result<String, NodeError> {
    let failed = |message: String| NodeError::new("DocumentError", message);
    if file.content.len() > MAX_FILE {
        return Err(failed(format!("{:?} has more than {MAX_FILE} bytes", file.name)));
    }
    let Some(kind) = kind(&file) else {
        return Err(failed(format!("Unsupported Extension Type: {:?} ({})", file.name, file.kind)));
    };
    let name = file.name.clone();
    let work = tokio::task::spawn_blocking(move || read(kind, &file.content));
    match tokio::time::timeout(MAX_TIME, work).await {
        Ok(Ok(text)) => text.map_err(|reason| failed(format!("{name:?} can't be read: {reason}"))),
        Ok(Err(_)) => Err(failed(format!("{name:?} can't be read: it is damaged"))),
        Err(_) => Err(failed(format!("{name:?} can't be read within {} seconds", MAX_TIME.as_secs()))),
    }
}

fn read(kind: Kind, content: &[u8]) -> Result<String, String> {
    match kind {
        Kind::Plain => {
            Ok(String::from_utf8_lossy(content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content)).into_owned())
        }
        Kind::Html => html(content, Instant::now() + MAX_TIME),
        Kind::Csv => csv(content),
        Kind::Pdf => pdf(content),
    }
}

/// How deep the elements of an HTML file may lie inside one another: about what browsers allow.
const MAX_DEPTH: usize = 512;

/// The parser looks through all open elements at each tag, so what is deep takes long: it gets no more to read when its
/// time is over.
fn html(content: &[u8], until: Instant) -> Result<String, String> {
    let config = html2text::config::plain();
    let document = config.parse_html(Until { content, until }).map_err(|_| "it takes too long".to_owned())?;
    let mut open = vec![(Rc::clone(&document.document), 0)];
    while let Some((node, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(format!("its elements lie more than {MAX_DEPTH} deep in one another"));
        }
        open.extend(node.children.borrow().iter().map(|child| (Rc::clone(child), depth + 1)));
    }
    let tree = config.dom_to_render_tree(&document).map_err(|error| error.to_string())?;
    let text = config.render_to_string(tree, WIDTH).map_err(|error| error.to_string())?;
    Ok(text.trim().to_owned())
}

/// A content that can be read until some time.
struct Until<'a> {
    content: &'a [u8],
    until: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.content.read(buffer)
    }
}

/// As a table that models read well.
fn csv(content: &[u8]) -> Result<String, String> {
    let first = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let delimiter =
        [b'\t', b';', b','].into_iter().max_by_key(|mark| first.iter().filter(|byte| *byte == mark).count());
    let mut reader = csv::ReaderBuilder::new();
    let mut reader = reader.has_headers(false).flexible(true).delimiter(delimiter.unwrap_or(b',')).from_reader(content);
    let mut lines = Vec::new();
    for (row, record) in reader.byte_records().enumerate() {
        let record = record.map_err(|error| error.to_string())?;
        let cell = |cell: &[u8]| String::from_utf8_lossy(cell).trim().replace('|', "\\|").replace(['\r', '\n'], " ");
        lines.push(format!("| {} |", record.iter().map(cell).collect::<Vec<_>>().join(" | ")));
        if row == 0 {
            lines.push(format!("|{}", " --- |".repeat(record.len())));
        }
    }
    Ok(lines.join("\n"))
}

fn pdf(content: &[u8]) -> Result<String, String> {
    let document = lopdf::Document::load_mem(content).map_err(|error| error.to_string())?;
    let pages: Vec<u32> = document.get_pages().into_keys().take(MAX_PAGES).collect();
    let text = document.extract_text(&pages).map_err(|error| error.to_string())?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, content: &[u8]) -> File {
        File { name: name.to_owned(), kind: String::new(), content: content.to_vec() }
    }

    /// One page that says what it is told, as a PDF is written by hand.
    fn page(words: &str) -> Vec<u8> {
        let stream = format!("BT /F1 12 Tf 72 720 Td ({words}) Tj ET");
        let objects = [
            "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
            "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>".to_owned(),
            format!("<< /Length {} >>\nstream\n{stream}\nendstream", stream.len()),
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
        ];
        let (mut pdf, mut places) = (String::from("%PDF-1.4\n"), Vec::new());
        for (number, object) in objects.iter().enumerate() {
            places.push(pdf.len());
            pdf.push_str(&format!("{} 0 obj\n{object}\nendobj\n", number + 1));
        }
        let start = pdf.len();
        pdf.push_str(&format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1));
        for place in places {
            pdf.push_str(&format!("{place:010} 00000 n \n"));
        }
        pdf.push_str(&format!("trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n", objects.len() + 1));
        pdf.into_bytes()
    }

    #[tokio::test]
    async fn the_text_of_each_kind_is_read() {
        assert_eq!(text(file("a.md", "\u{feff}# Grüß".as_bytes())).await.unwrap(), "# Grüß");
        let html = text(file("a.html", b"<html><head><style>x{}</style></head><body><h1>Bees</h1><p>six &amp; legs<script>no()</script></p></body></html>")).await.unwrap();
        assert!(html.contains("Bees") && html.contains("six & legs") && !html.contains("no()"), "{html}");
        assert_eq!(
            text(file("a.csv", b"n,of\n1,\"a|b\"\n")).await.unwrap(),
            "| n | of |\n| --- | --- |\n| 1 | a\\|b |"
        );
        assert_eq!(text(file("a.tsv", b"n\tof\n1\t2\n")).await.unwrap(), "| n | of |\n| --- | --- |\n| 1 | 2 |");
        assert_eq!(text(file("", &page("Hello bees"))).await.unwrap(), "Hello bees");
    }

    #[tokio::test]
    async fn what_is_no_document_is_an_error() {
        for (name, content) in
            [("a.exe", &b"MZ"[..]), ("a.docx", b"PK"), ("a.pdf", b"not a pdf"), ("a.pdf", b"%PDF-1.4\ntrailer << >>")]
        {
            assert!(text(file(name, content)).await.is_err(), "{name}");
        }
        let good = page("x");
        for cut in (0..good.len()).step_by(37) {
            // Any outcome but a panic that leaves the node.
            let _ = text(file("a.pdf", &good[..cut])).await;
        }
        assert!(text(file("a.txt", &vec![b'x'; MAX_FILE + 1])).await.is_err());
    }

    #[test]
    fn html_is_bounded_in_depth_and_time() {
        let soon = Instant::now() + MAX_TIME;
        let nested = |depth: usize| format!("{}x{}", "<div>".repeat(depth), "</div>".repeat(depth));
        assert_eq!(html(nested(500).as_bytes(), soon).unwrap(), "x");
        assert!(html(nested(600).as_bytes(), soon).unwrap_err().contains("512 deep"));
        assert!(html(b"<p>x", Instant::now()).unwrap_err().contains("too long"));
    }
}
