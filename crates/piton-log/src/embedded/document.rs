//! What an embedder's store is given for a run: one JSON document. People and programs read its fields; Piton goes on
//! from the field `log`, which has the run's entries as bytes. A checksum at the end covers every byte before it, so
//! fields that were changed are refused rather than believed.
//!
//! The fields tell of the newest checkpoint in the log, and `status` and `updated_at` of the run. `docs/format.md` lists
//! them.

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use piton_types::{BlobId, PartName, RunSummary, to_json};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::codec::{CHECKSUM, checksum};
use crate::sealed::SealedEntry;
use crate::state::{IdMap, NodeSource, load};
use piton_store::StoreError;

const FORMAT: &str = "piton.checkpoint";
const VERSION: u64 = 1;

/// The fields that are parts of the checkpoint, and which.
const SHOWN: [(&str, &str); 5] = [
    ("variables", PartName::VARIABLES),
    ("state", PartName::APP),
    ("context", "context"),
    ("conversation", PartName::CONVERSATION),
    ("usage", PartName::USAGE),
];

/// The document of a run with this newest checkpoint.
pub(super) async fn write(
    summary: &RunSummary,
    checkpoint: Option<&SealedEntry>,
    nodes: &IdMap<Bytes>,
    log: &[u8],
) -> Result<Bytes, StoreError> {
    let mut fields = Map::new();
    if let Some(checkpoint) = checkpoint {
        // The fields of a workflow's checkpoint are the document's own.
        if let Some(Json::Object(own)) = shown(checkpoint, PartName::CHECKPOINT, nodes).await? {
            fields.extend(own);
        }
        for (field, part) in SHOWN {
            if let Some(value) = shown(checkpoint, part, nodes).await? {
                fields.insert(field.to_owned(), value);
            }
        }
        fields.insert("created_at".to_owned(), checkpoint.at.as_millis().into());
    }
    let kind = serde_json::to_value(summary.kind).unwrap_or_default();
    let status = serde_json::to_value(summary.status).unwrap_or_default();
    let own = [
        ("format", FORMAT.into()),
        ("version", VERSION.into()),
        ("workflow_id", summary.id.as_str().into()),
        ("name", summary.name.as_str().into()),
        ("kind", kind),
        ("status", status),
        ("updated_at", summary.updated_at.as_millis().into()),
    ];
    fields.extend(own.map(|(name, value)| (name.to_owned(), value)));
    let mut text = format!("{:#}", Json::Object(fields));
    // Without the end of the object: what is not for people comes last.
    text.truncate(text.trim_end_matches('}').trim_end().len());
    text.push_str(",\n  \"log\": \"");
    STANDARD.encode_string(log, &mut text);
    text.push('"');
    let end = end_of(text.as_bytes());
    text.push_str(&end);
    Ok(text.into())
}

/// A part as JSON. What JSON has no form for is said in its place: the log has it.
async fn shown(entry: &SealedEntry, part: &str, nodes: &IdMap<Bytes>) -> Result<Option<Json>, StoreError> {
    let Some(part) = entry.parts.get(&PartName::from(part)) else { return Ok(None) };
    let value = load(&Kept(nodes), part.root).await?;
    Ok(Some(to_json(&value).unwrap_or_else(|error| Json::from(format!("not shown: {error}")))))
}

struct Kept<'a>(&'a IdMap<Bytes>);

#[async_trait]
impl NodeSource for Kept<'_> {
    async fn fetch(&self, id: BlobId) -> Result<Bytes, StoreError> {
        self.0.get(&id).cloned().ok_or_else(|| StoreError::NotFound { what: format!("node {id}") })
    }
}

/// The bytes of the log in a document.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
    #[derive(Deserialize)]
    struct Document {
        format: String,
        version: u64,
        log: String,
    }
    let corrupt = |detail: &str| StoreError::corrupt("a saved checkpoint", detail);
    let Some(length) = bytes.len().checked_sub(end_of(&[]).len()) else { return Err(corrupt("it is cut off")) };
    if bytes[length..] != *end_of(&bytes[..length]).as_bytes() {
        return Err(corrupt("its checksum doesn't fit its content"));
    }
    let document: Document = serde_json::from_slice(bytes).map_err(|error| corrupt(&error.to_string()))?;
    if document.format != FORMAT {
        return Err(corrupt("it is of another kind"));
    }
    if document.version > VERSION {
        let what = "a saved checkpoint".to_owned();
        return Err(StoreError::TooNew { what, found: document.version, known: VERSION });
    }
    STANDARD.decode(document.log).map_err(|error| corrupt(&error.to_string()))
}

/// How a document ends that begins so.
fn end_of(text: &[u8]) -> String {
    let sum = u64::from_be_bytes(checksum(text));
    format!(",\n  \"checksum\": \"{sum:0width$x}\"\n}}\n", width = 2 * CHECKSUM)
}
