//! Endpoints by name: where they are, how to sign in, what they cost.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::{HeaderName, Method};
use piton_types::{Value, excerpt, from_json, to_json};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::error::ChatError;
use super::stream::ChatStream;
use super::{ChatRequest, anthropic, openai};
use crate::net::{Client, Request, Response};

/// How many characters of what a provider says about its failure are shown.
const MAX_MESSAGE: usize = 500;

/// Which language an endpoint speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// `POST /chat/completions`, which most servers speak.
    #[default]
    OpenAi,
    /// `POST /messages`.
    Anthropic,
}

/// What a model costs, as the user says. Piton knows no prices.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Price {
    /// For a million tokens sent.
    pub input: f64,
    /// For a million tokens received.
    pub output: f64,
}

/// An endpoint for models.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Which language it speaks.
    #[serde(default)]
    pub wire: Wire,
    /// Where it is; the public endpoint of the wire's maker without one.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The key; `env:NAME` takes it from the environment.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub api_key: Option<SecretString>,
    /// The model for requests that name none.
    #[serde(default)]
    pub default_model: Option<String>,
    /// The organisation that pays.
    #[serde(default, alias = "org_id")]
    pub organization: Option<String>,
    /// Prices by model.
    #[serde(default)]
    pub prices: BTreeMap<String, Price>,
}

/// Providers by name.
pub type Providers = BTreeMap<String, Provider>;

impl Provider {
    /// One without a key, of this wire, at its public endpoint.
    pub const fn new(wire: Wire) -> Self {
        Self { wire, base_url: None, api_key: None, default_model: None, organization: None, prices: BTreeMap::new() }
    }

    /// Where it is.
    pub fn base_url(&self) -> &str {
        let public = match self.wire {
            Wire::OpenAi => "https://api.openai.com/v1",
            Wire::Anthropic => "https://api.anthropic.com/v1",
        };
        self.base_url.as_deref().unwrap_or(public).trim_end_matches('/')
    }

    /// The model that a request is for.
    ///
    /// # Errors
    ///
    /// [`ChatError::Request`] if neither it nor the provider names one.
    pub fn model<'a>(&'a self, request: &'a ChatRequest) -> Result<&'a str, ChatError> {
        let named = request.model.as_deref().filter(|name| !name.is_empty()).or(self.default_model.as_deref());
        named.ok_or_else(|| ChatError::Request("no model is named".to_owned()))
    }

    /// Asks a model. Returns once the answer begins.
    ///
    /// # Errors
    ///
    /// Every kind of [`ChatError`] that can occur before the answer.
    pub async fn chat(&self, client: &Client, request: &ChatRequest) -> Result<ChatStream, ChatError> {
        let model = self.model(request)?;
        let (path, body) = match self.wire {
            Wire::OpenAi => ("chat/completions", openai::body(model, request)),
            Wire::Anthropic => ("messages", anthropic::body(model, request)?),
        };
        let body = to_json(&body).map_err(|error| ChatError::Request(error.to_string()))?;
        let mut http = Request::new(Method::POST, format!("{}/{path}", self.base_url()));
        http.headers = self.headers()?;
        if let Some(key) = &request.key {
            let bad = |_| ChatError::Request("the idempotency key has characters that no header may have".to_owned());
            let value = HeaderValue::from_str(key).map_err(bad)?;
            http.headers.insert(HeaderName::from_static("idempotency-key"), value);
        }
        http.body = body.to_string().into();
        http.timeout = request.timeout;
        let mut response = client.send(http).await?;
        if !response.status().is_success() {
            return Err(self.refusal(&mut response).await);
        }
        Ok(ChatStream::new(self.wire, response))
    }

    fn headers(&self) -> Result<HeaderMap, ChatError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut secret = |name: HeaderName, text: &str| {
            let bad = |_| ChatError::Request(format!("the value for {name} has characters that no header may have"));
            let mut value = HeaderValue::from_str(text).map_err(bad)?;
            value.set_sensitive(true);
            headers.insert(name, value);
            Ok::<_, ChatError>(())
        };
        let key = self.api_key.as_ref().map(ExposeSecret::expose_secret).filter(|key| !key.is_empty());
        match self.wire {
            Wire::OpenAi => {
                if let Some(key) = key {
                    secret(header::AUTHORIZATION, &format!("Bearer {key}"))?;
                }
                if let Some(organization) = &self.organization {
                    secret(HeaderName::from_static("openai-organization"), organization)?;
                }
            }
            Wire::Anthropic => {
                if let Some(key) = key {
                    secret(HeaderName::from_static("x-api-key"), key)?;
                }
                secret(HeaderName::from_static("anthropic-version"), anthropic::VERSION)?;
            }
        }
        Ok(headers)
    }

    /// What an answer that isn't a success says.
    async fn refusal(&self, response: &mut Response) -> ChatError {
        let status = response.status().as_u16();
        let seconds =
            response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        // A failure whose explanation can't be read is still that failure.
        let body = response.bytes().await.unwrap_or_default();
        let message = self.clean(&message(&body));
        match status {
            429 => ChatError::RateLimited { retry_after: seconds.map(Duration::from_secs), message },
            _ => ChatError::Status { status, message },
        }
    }

    /// A provider's words without our key, should it repeat it.
    fn clean(&self, message: &str) -> String {
        let key = self.api_key.as_ref().map(ExposeSecret::expose_secret).filter(|key| !key.is_empty());
        let message = key.map_or_else(|| message.to_owned(), |key| message.replace(key, "[redacted]"));
        excerpt(&message, MAX_MESSAGE).into_owned()
    }
}

/// What the body of a failure says: both wires have it at `error.message`.
fn message(body: &[u8]) -> String {
    let told = from_json(body).ok().and_then(|value| {
        let error = value.field("error")?;
        error.field("message").unwrap_or(error).as_str().map(str::to_owned)
    });
    told.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned())
}

/// The text of a field.
pub(super) fn text_of<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.field(key)?.as_str()
}

/// The count in a field.
pub(super) fn count_of(value: &Value, key: &str) -> Option<u64> {
    value.field(key)?.as_i64()?.try_into().ok()
}
