//! The streamable HTTP transport, by way of our own client: its policy holds here too.
//!
//! The long-lived stream on which a server may speak unasked isn't opened: we offer servers nothing to
//! ask for.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::header::{self, HeaderMap};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use secrecy::{ExposeSecret, SecretString};
use sse_stream::{Sse, SseStream};

use super::ServerConfig;
use super::error::McpError;
use crate::net::{Client, NetError, Request, Response};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Our client as the library wants it.
#[derive(Debug, Clone)]
pub(super) struct PolicyClient {
    client: Client,
    max_message: u64,
    /// The library turns errors to text; a refusal of the policy is kept here as what it is.
    refused: Arc<Mutex<Option<NetError>>>,
}

impl PolicyClient {
    pub(super) fn refusal(&self) -> Option<McpError> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take().map(McpError::Net)
    }

    async fn send(&self, request: Request) -> Result<Response, StreamableHttpError<NetError>> {
        match self.client.send(request).await {
            Ok(response) => Ok(response.limited(self.max_message)),
            Err(error) => {
                let told = NetError::Setup(error.to_string());
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Err(StreamableHttpError::Client(told))
            }
        }
    }
}

pub(super) fn transport(
    client: &Client,
    config: &ServerConfig,
    url: &str,
    headers: &BTreeMap<String, SecretString>,
) -> Result<(PolicyClient, StreamableHttpClientTransportConfig), McpError> {
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let bad = || McpError::Config(format!("the header {name:?} can't be sent"));
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| bad())?;
        value.set_sensitive(true);
        custom.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?, value);
    }
    let max_message = config.max_message as u64;
    let client = PolicyClient { client: client.clone(), max_message, refused: Arc::default() };
    Ok((client, StreamableHttpClientTransportConfig::with_uri(url).custom_headers(custom)))
}

type Result_<T> = Result<T, StreamableHttpError<NetError>>;

impl StreamableHttpClient for PolicyClient {
    type Error = NetError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result_<StreamableHttpPostResponse> {
        let mut request = Request::new(Method::POST, &*uri);
        request.headers = headers(session_id.as_deref(), auth_header.as_deref(), custom_headers)?;
        request.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.body = serde_json::to_vec(&message)?.into();
        let mut response = self.send(request).await?;
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session_id.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        if !status.is_success() {
            return Err(HttpStatusError::new(status.as_u16(), None).into());
        }
        let text = |name: &HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        let session = text(&SESSION).map(str::to_owned);
        let kind = text(&header::CONTENT_TYPE).unwrap_or_default().to_owned();
        if kind.starts_with("text/event-stream") {
            let events: BoxStream<'static, Result<Sse, SseError>> =
                SseStream::from_bytes_stream(response.into_stream()).boxed();
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        let bytes = response.bytes().await.map_err(StreamableHttpError::Client)?;
        if bytes.is_empty() {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        Ok(StreamableHttpPostResponse::Json(serde_json::from_slice::<ServerJsonRpcMessage>(&bytes)?, session))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result_<()> {
        let mut request = Request::new(Method::DELETE, &*uri);
        request.headers = headers(Some(&session_id), auth_header.as_deref(), custom_headers)?;
        self.send(request).await.map(drop)
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        _session_id: Option<Arc<str>>,
        _last_event_id: Option<String>,
        _auth_header: Option<String>,
        _custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result_<BoxStream<'static, Result<Sse, SseError>>> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
}

fn headers(session: Option<&str>, token: Option<&str>, custom: HashMap<HeaderName, HeaderValue>) -> Result_<HeaderMap> {
    let bad = |_| StreamableHttpError::UnexpectedServerResponse("a header that can't be sent".into());
    let mut headers: HeaderMap = custom.into_iter().collect();
    if let Some(session) = session {
        headers.insert(SESSION, HeaderValue::from_str(session).map_err(bad)?);
    }
    if let Some(token) = token {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(bad)?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(headers)
}
