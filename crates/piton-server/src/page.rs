//! The page: files that are built into the binary. They hold no data, so they need no token.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use rust_embed::RustEmbed;

use crate::problem::Problem;

#[derive(RustEmbed)]
#[folder = "page/"]
#[include = "*.html"]
#[include = "*.js"]
#[include = "*.css"]
#[include = "*.svg"]
#[include = "*.png"]
#[include = "*.json"]
#[include = "*.woff2"]
struct Files;

/// A file of the page. A browser that has it already is told so.
pub(crate) fn file(path: &str, headers: &HeaderMap) -> Response<Body> {
    let Some(file) = Files::get(path) else {
        return Problem::not_found("there is no such page").answer();
    };
    let hash = file.metadata.sha256_hash();
    let tag: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{tag}\"");
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let body = if is_known { Body::empty() } else { Body::from(file.data.into_owned()) };
    let mut answer = Response::new(body);
    if is_known {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let kind = match path.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json") => "application/json",
        _ => "font/woff2",
    };
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.extend(HeaderValue::from_str(&tag).ok().map(|tag| (header::ETAG, tag)));
    answer
}
