//! Files as values: a map with a name, a type, and its content or the address that has it.
//!
//! A path of this machine is not a file here: a document could make one up. The caller that starts a run with a
//! file gives its content.

use http::Method;
use piton_model::net::Request;
use piton_types::Value;

use crate::node::{NodeContext, NodeError};
use crate::outside::{AuditKind, Outside};

/// A file, loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) name: String,
    /// The MIME type, if it is known.
    pub(super) kind: String,
    pub(super) content: Vec<u8>,
}

impl File {
    pub(super) fn value(self) -> Value {
        let extension = self.name.rsplit_once('.').map(|(_, extension)| format!(".{extension}")).unwrap_or_default();
        let general = match self.kind.split('/').next() {
            Some("image") => "image",
            Some("audio") => "audio",
            Some("video") => "video",
            _ => "document",
        };
        Value::map([
            ("type", general.into()),
            ("filename", self.name.as_str().into()),
            ("extension", extension.into()),
            ("mime_type", self.kind.as_str().into()),
            ("size", (self.content.len() as u64).into()),
            ("content", Value::Bytes(self.content)),
        ])
    }
}

/// The address of a file that has one.
pub(super) fn address(value: &Value) -> Option<&str> {
    let found = ["remote_url", "url"].iter().find_map(|key| value.field(key)?.as_str());
    found.filter(|url| !url.is_empty())
}

/// The files that a value is: one, several, or none.
pub(super) async fn load(value: &Value, context: &NodeContext<'_>, outside: &Outside) -> Result<Vec<File>, NodeError> {
    let items = match value {
        Value::Null => return Ok(Vec::new()),
        Value::List(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut files = Vec::with_capacity(items.len());
    for item in items {
        files.push(load_one(item, context, outside).await?);
    }
    Ok(files)
}

async fn load_one(value: &Value, context: &NodeContext<'_>, outside: &Outside) -> Result<File, NodeError> {
    let text = |key: &str| value.field(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = Some(text("filename")).filter(|name| !name.is_empty()).unwrap_or_else(|| text("name"));
    let kind = text("mime_type");
    match value.field("content") {
        Some(Value::Bytes(content)) => return Ok(File { name, kind, content: content.clone() }),
        Some(Value::String(content)) => return Ok(File { name, kind, content: content.clone().into_bytes() }),
        _ => {}
    }
    let Some(url) = address(value) else {
        return Err(NodeError::new("FileError", "a file should be here, with its content or its address"));
    };
    outside.governor().take_request(context.run_id())?;
    let host = url::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    outside.record(context, AuditKind::Http, &format!("GET {host}"))?;
    let sent = outside.http().send(Request::new(Method::GET, url)).await;
    let mut response = sent.map_err(|error| Outside::net_error(&error))?;
    if !response.status().is_success() {
        let status = response.status().as_u16();
        return Err(NodeError::passing("FileError", format!("the file can't be fetched: HTTP {status}")));
    }
    let told = response.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = if kind.is_empty() { told.unwrap_or_default().to_owned() } else { kind };
    let last = response.url().path_segments().and_then(|mut segments| segments.next_back()).unwrap_or_default();
    let name = if name.is_empty() { last.to_owned() } else { name };
    let content = response.bytes().await.map_err(|error| Outside::net_error(&error))?;
    Ok(File { name, kind, content })
}
