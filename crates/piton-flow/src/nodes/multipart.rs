//! `multipart/form-data`, as a body in one piece.

use piton_types::Random;

use super::files::File;

pub(super) struct Multipart {
    boundary: String,
    body: Vec<u8>,
}

impl Multipart {
    pub(super) fn new(random: &dyn Random) -> Self {
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        let boundary = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { boundary, body: Vec::new() }
    }

    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.part(&format!("name=\"{}\"", quoted(name)), "", text.as_bytes());
    }

    pub(super) fn file(&mut self, name: &str, file: &File) {
        let kind = if file.kind.is_empty() { "application/octet-stream" } else { &file.kind };
        // A type with a line break in it would be a header of its own.
        let kind: String = kind.chars().filter(|c| !c.is_control()).collect();
        let named = format!("name=\"{}\"; filename=\"{}\"", quoted(name), quoted(&file.name));
        self.part(&named, &format!("Content-Type: {kind}\r\n"), &file.content);
    }

    fn part(&mut self, disposition: &str, headers: &str, content: &[u8]) {
        let head = format!("--{}\r\nContent-Disposition: form-data; {disposition}\r\n{headers}\r\n", self.boundary);
        self.body.extend_from_slice(head.as_bytes());
        self.body.extend_from_slice(content);
        self.body.extend_from_slice(b"\r\n");
    }

    /// The body and its type.
    pub(super) fn finish(mut self) -> (Vec<u8>, String) {
        self.body.extend_from_slice(format!("--{}--\r\n", self.boundary).as_bytes());
        (self.body, format!("multipart/form-data; boundary={}", self.boundary))
    }
}

/// A name as browsers write it between quotes.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}
