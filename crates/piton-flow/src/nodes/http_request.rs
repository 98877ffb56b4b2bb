//! `http-request`: one request under the network policy. Gives `status_code`, `body`, `headers`, `files`.
//!
//! Headers and credentials are put in when the request is made and are never part of the recorded inputs.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use piton_model::ExposeSecret as _;
use piton_model::net::Request;
use piton_types::{Path, Value};
use serde::Deserialize;
use url::Url;

use super::files::{self, File};
use super::multipart::Multipart;
use crate::kind::{Build, Built, Faults};
use crate::need::Need;
use crate::node::{Effect, Node, NodeContext, NodeError, NodeOutput};
use crate::outside::{AuditKind, Outside};
use crate::pool::VariablePool;
use crate::reply::Reply;
use crate::selector::Selector;
use crate::settings::is_on;
use crate::value::to_text;

/// The header by which a service recognises a request that it had before.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Without a word in the document.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
struct Data {
    /// `GET` if nothing is said.
    #[serde(default = "get")]
    method: String,
    /// Where to; a template.
    url: String,
    /// By name, or as lines of `Name: value`; templates.
    #[serde(default)]
    headers: Value,
    /// The same for the query.
    #[serde(default)]
    params: Value,
    /// What is sent.
    body: Option<BodyData>,
    /// How it says who asks.
    authorization: Option<AuthorizationData>,
    /// Seconds, or `{connect, read, write}` as in an export; 60 if nothing is said.
    #[serde(default)]
    timeout: Value,
    /// A status of 400 and above is a failure; that is so if nothing is said and errors are retried or handled.
    fail_on_error_status: Option<bool>,
}

fn get() -> String {
    "GET".to_owned()
}

#[derive(Debug, Deserialize)]
struct BodyData {
    /// `none`, `json`, `raw-text`, `form-data`, `x-www-form-urlencoded` or `binary`.
    #[serde(rename = "type", default)]
    kind: String,
    /// A text, values by name, or a list of `{key, type, value}`.
    #[serde(default)]
    data: Value,
}

#[derive(Debug, Deserialize)]
struct AuthorizationData {
    /// `no-auth`, `api-key` (with `config`, or with `key`, `value` and `position`), `bearer`, `basic`, `custom-headers` or
    /// `credential`.
    #[serde(rename = "type", default)]
    kind: String,
    /// How a key of an export is sent.
    config: Option<AuthorizationConfig>,
    /// For `bearer`; a template.
    token: Option<String>,
    /// For `basic`; a template.
    username: Option<String>,
    /// For `basic`; a template.
    password: Option<String>,
    /// A credential group of the user's configuration.
    group: Option<String>,
    /// In the flat form: the name of a key, the key, and where it goes.
    key: Option<String>,
    /// The key itself; a template.
    value: Option<String>,
    /// Where the key goes: `header`, `query` or `body`.
    #[serde(default)]
    position: Position,
    /// For `custom-headers`: headers by name.
    #[serde(default)]
    headers: Value,
}

/// Where a key goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Position {
    #[default]
    Header,
    Query,
    /// Into a form, as one more field.
    Body,
}

#[derive(Debug, Deserialize)]
struct AuthorizationConfig {
    /// `bearer`, `basic` or `custom`.
    #[serde(rename = "type", default)]
    kind: Option<String>,
    /// The key; a template.
    api_key: Option<String>,
    /// The name of the header, for `custom`.
    header: Option<String>,
}

#[derive(Debug)]
enum Body {
    None,
    /// With the content type that it has unless a header says otherwise.
    Text(Reply, Option<&'static str>),
    Form(Vec<(Reply, Reply)>),
    Multipart(Vec<(Reply, Field)>),
    Binary(Selector),
}

#[derive(Debug)]
enum Field {
    Text(Reply),
    File(Selector),
}

#[derive(Debug)]
enum Authorization {
    None,
    Bearer {
        header: String,
        token: Reply,
    },
    /// `user:password`, or that already encoded.
    Basic {
        header: String,
        user: Reply,
    },
    Headers(Vec<(Reply, Reply)>),
    Query(Reply, Reply),
    /// Put into the form when the node is built.
    Field(Reply, Reply),
    Group(String),
}

#[derive(Debug)]
struct HttpRequest {
    method: Method,
    url: Reply,
    headers: Vec<(Reply, Reply)>,
    params: Vec<(Reply, Reply)>,
    body: Body,
    authorization: Authorization,
    timeout: Duration,
    fail_on_status: bool,
}

pub(super) fn build(build: &Build<'_>) -> Built {
    let data: Data = build.data()?;
    let mut faults = Faults::default();
    faults.keep(build.filled("url", &data.url));
    let method = data.method.trim().to_uppercase();
    let method = match method.as_str() {
        "" => Method::GET,
        "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "OPTIONS" => {
            Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET)
        }
        other => {
            faults.add(Path::root().key("method"), format!("there is no method {other:?}"));
            Method::GET
        }
    };
    let body = data.body.map_or(Ok(Body::None), body);
    let mut body = faults.keep(body).unwrap_or(Body::None);
    let authorization = data.authorization.map_or(Ok(Authorization::None), authorization);
    let mut authorization = faults.keep(authorization).unwrap_or(Authorization::None);
    if let Authorization::Field(key, value) = &authorization {
        let (key, value) = (key.clone(), value.clone());
        match &mut body {
            Body::Form(fields) => fields.push((key, value)),
            Body::Multipart(fields) => fields.push((key, Field::Text(value))),
            _ => {
                let at = Path::root().key("authorization").key("position");
                faults.add(at, "a key can only go into the body of a form");
            }
        }
        authorization = Authorization::None;
    }
    // An export says it by how failures are to be handled.
    let retries = build.spec.data.field("retry_config").and_then(|retry| retry.field("retry_enabled"));
    let handles = matches!(build.spec.data.field("error_strategy"), Some(Value::String(word)) if word != "none");
    let fail_on_status = data.fail_on_error_status.unwrap_or(handles || retries.is_some_and(is_on));
    let node = HttpRequest {
        method,
        url: Reply::parse(data.url.trim()),
        headers: pairs(&data.headers),
        params: pairs(&data.params),
        body,
        authorization,
        timeout: timeout(&data.timeout),
        fail_on_status,
    };
    faults.none_or(Box::new(node))
}

/// Pairs as lines of `name: value`, as a list of `{key, value}`, or as a map.
fn pairs(value: &Value) -> Vec<(Reply, Reply)> {
    let parse = |key: &str, value: &str| (Reply::parse(key.trim()), Reply::parse(value.trim()));
    match value {
        Value::String(text) => {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            lines
                .map(|line| line.split_once(':').map_or_else(|| parse(line, ""), |(key, value)| parse(key, value)))
                .collect()
        }
        Value::List(items) => {
            let text = |item: &Value, key: &str| item.field(key).map(to_text).unwrap_or_default();
            let named = items.iter().map(|item| (text(item, "key"), text(item, "value")));
            named.filter(|(key, _)| !key.trim().is_empty()).map(|(key, value)| parse(&key, &value)).collect()
        }
        Value::Map(fields) => fields.iter().map(|(key, value)| parse(key, &to_text(value))).collect(),
        _ => Vec::new(),
    }
}

fn body(data: BodyData) -> Result<Body, Faults> {
    // An export wraps the one text of a body into a list of one.
    let text = || match &data.data {
        Value::List(items) => items.first().and_then(|item| item.field("value")).map(to_text).unwrap_or_default(),
        other => to_text(other),
    };
    let selector = |item: &Value, at: Path| -> Result<Selector, Faults> {
        let words = item.field("file").cloned().unwrap_or_default();
        piton_types::from_value(words).map_err(|error| Faults::one(at.key("file"), error.to_string()))
    };
    let at = Path::root().key("body");
    Ok(match data.kind.as_str() {
        "" | "none" => Body::None,
        "raw-text" | "raw_text" => Body::Text(Reply::parse(&text()), Some("text/plain")),
        "json" => Body::Text(Reply::parse(&text()), Some("application/json")),
        "x-www-form-urlencoded" | "form_urlencoded" | "x_www_form_urlencoded" => Body::Form(pairs(&data.data)),
        "form-data" | "form_data" => match &data.data {
            Value::List(items) => {
                let field = |(place, item): (usize, &Value)| {
                    let key = Reply::parse(&item.field("key").map(to_text).unwrap_or_default());
                    let at = Path::root().key("body").key("data").index(place);
                    let is_file = item.field("type").and_then(Value::as_str) == Some("file");
                    let field = if is_file {
                        Field::File(selector(item, at)?)
                    } else {
                        Field::Text(Reply::parse(&item.field("value").map(to_text).unwrap_or_default()))
                    };
                    Ok((key, field))
                };
                Body::Multipart(items.iter().enumerate().map(field).collect::<Result<_, Faults>>()?)
            }
            other => Body::Multipart(pairs(other).into_iter().map(|(key, value)| (key, Field::Text(value))).collect()),
        },
        "binary" => {
            let item = data.data.as_list().and_then(<[Value]>::first).unwrap_or(&data.data);
            Body::Binary(selector(item, at.key("data"))?)
        }
        other => return Err(Faults::one(at.key("type"), format!("there is no kind of body {other:?}"))),
    })
}

fn authorization(data: AuthorizationData) -> Result<Authorization, Faults> {
    let text = |text: Option<String>| Reply::parse(&text.unwrap_or_default());
    let usual = || "Authorization".to_owned();
    Ok(match data.kind.as_str() {
        "" | "no-auth" | "no_auth" | "none" => Authorization::None,
        "bearer_token" | "bearer" => Authorization::Bearer { header: usual(), token: text(data.token) },
        "basic_auth" | "basic" => {
            let user = format!("{}:{}", data.username.unwrap_or_default(), data.password.unwrap_or_default());
            Authorization::Basic { header: usual(), user: Reply::parse(&user) }
        }
        "credential" => match data.group {
            Some(group) => Authorization::Group(group),
            None => return Err(Faults::one(Path::root().key("authorization").key("group"), "a group should be here")),
        },
        "custom_headers" | "custom-headers" => Authorization::Headers(pairs(&data.headers)),
        "api-key" | "api_key" => {
            let Some(config) = data.config else {
                let Some(key) = data.key.filter(|key| !key.trim().is_empty()) else { return Ok(Authorization::None) };
                let pair = (Reply::parse(key.trim()), text(data.value));
                return Ok(match data.position {
                    Position::Header => Authorization::Headers(vec![pair]),
                    Position::Query => Authorization::Query(pair.0, pair.1),
                    Position::Body => Authorization::Field(pair.0, pair.1),
                });
            };
            let header = config.header.filter(|header| !header.trim().is_empty()).unwrap_or_else(usual);
            let key = text(config.api_key);
            match config.kind.as_deref() {
                Some("basic") => Authorization::Basic { header, user: key },
                Some("custom") => Authorization::Headers(vec![(Reply::parse(&header), key)]),
                _ => Authorization::Bearer { header, token: key },
            }
        }
        other => {
            let message = format!("there is no kind of authorization {other:?}");
            return Err(Faults::one(Path::root().key("authorization").key("type"), message));
        }
    })
}

/// Seconds; or the times of an export, of which the one for reading counts. Zero is the default there.
fn timeout(value: &Value) -> Duration {
    let seconds = |value: &Value| {
        let seconds = crate::value::as_f64(value).filter(|seconds| *seconds > 0.0)?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    let found = match value {
        Value::Map(_) => ["read", "max_read_timeout"].iter().find_map(|key| seconds(value.field(key)?)),
        other => seconds(other),
    };
    found.unwrap_or(DEFAULT_TIMEOUT)
}

#[async_trait]
impl Node for HttpRequest {
    fn inputs(&self, variables: &VariablePool) -> Result<Value, NodeError> {
        let mut inputs = BTreeMap::from([
            ("method".to_owned(), Value::from(self.method.as_str())),
            ("url".to_owned(), self.url.render(variables).into()),
        ]);
        if let Body::Text(text, _) = &self.body {
            inputs.insert("body".to_owned(), text.render(variables).into());
        }
        Ok(Value::Map(inputs))
    }

    async fn run(&self, inputs: &Value, context: &NodeContext<'_>) -> Result<NodeOutput, NodeError> {
        let outside = Outside::of(context)?;
        outside.guard(context, self.send(inputs, context, outside)).await
    }

    fn gives(&self) -> Option<Vec<&str>> {
        Some(vec!["status_code", "body", "headers", "files"])
    }

    fn references(&self) -> Vec<&Selector> {
        let pairs = self.headers.iter().chain(&self.params).flat_map(|(key, value)| [key, value]);
        let mut texts: Vec<&Reply> = pairs.chain([&self.url]).collect();
        let mut selectors = Vec::new();
        match &self.body {
            Body::None => {}
            Body::Text(text, _) => texts.push(text),
            Body::Form(fields) => texts.extend(fields.iter().flat_map(|(key, value)| [key, value])),
            Body::Multipart(fields) => {
                for (key, field) in fields {
                    texts.push(key);
                    match field {
                        Field::Text(text) => texts.push(text),
                        Field::File(selector) => selectors.push(selector),
                    }
                }
            }
            Body::Binary(selector) => selectors.push(selector),
        }
        match &self.authorization {
            Authorization::Bearer { token: text, .. } | Authorization::Basic { user: text, .. } => texts.push(text),
            Authorization::Headers(pairs) => texts.extend(pairs.iter().flat_map(|(key, value)| [key, value])),
            Authorization::Query(key, value) | Authorization::Field(key, value) => texts.extend([key, value]),
            Authorization::None | Authorization::Group(_) => {}
        }
        selectors.extend(texts.into_iter().flat_map(Reply::references));
        selectors
    }

    fn effect(&self) -> Effect {
        // Reading changes nothing; the answer is durable before anything outward follows.
        if self.method.is_safe() { Effect::Pure } else { Effect::Outward }
    }

    fn needs(&self) -> Vec<Need> {
        vec![Need::Network]
    }
}

impl HttpRequest {
    async fn send(
        &self,
        inputs: &Value,
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<NodeOutput, NodeError> {
        let pool = context.variables();
        let invalid = |message: String| NodeError::new("HttpError", message);
        if context.is_strict()
            && let Some(missing) = self.references().into_iter().find(|selector| pool.find(selector).is_none())
        {
            return Err(NodeError::new("TemplateError", format!("Variable not found: {missing}")));
        }
        let address = inputs.field("url").and_then(Value::as_str).unwrap_or_default();
        let mut url = Url::parse(address).map_err(|error| invalid(format!("the URL is not valid: {error}")))?;
        if !self.params.is_empty() {
            let pairs = self.params.iter().map(|(key, value)| (key.render(pool), value.render(pool)));
            url.query_pairs_mut().extend_pairs(pairs);
        }
        if let Authorization::Query(key, value) = &self.authorization {
            url.query_pairs_mut().append_pair(&key.render(pool), &value.render(pool));
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut request = Request::new(self.method.clone(), url.as_str());
        request.timeout = Some(self.timeout);
        for (name, value) in &self.headers {
            put(&mut request.headers, &name.render(pool), &value.render(pool), false)?;
        }
        self.authorize(&mut request.headers, &host, context, outside)?;
        if let Some(key) = context.next_key().filter(|_| !request.headers.contains_key(IDEMPOTENCY_KEY)) {
            put(&mut request.headers, IDEMPOTENCY_KEY, &key, false)?;
        }
        let (body, kind) = self.body(inputs, context, outside).await?;
        if let Some(kind) = kind.filter(|_| !request.headers.contains_key(header::CONTENT_TYPE)) {
            put(&mut request.headers, "content-type", &kind, false)?;
        }
        request.body = body.into();
        outside.governor().take_request(context.run_id())?;
        outside.record(context, AuditKind::Http, &format!("{} {host}", self.method))?;
        let sent = outside.http().send(request).await;
        let mut response = sent.map_err(|error| Outside::net_error(&error))?;
        let bytes = response.bytes().await.map_err(|error| Outside::net_error(&error))?;
        let status = response.status().as_u16();
        let mut headers: BTreeMap<String, Value> = BTreeMap::new();
        for (name, value) in response.headers() {
            let value = String::from_utf8_lossy(value.as_bytes());
            let joined = headers.get(name.as_str()).and_then(Value::as_str).map(|before| format!("{before}, {value}"));
            headers.insert(name.to_string(), joined.unwrap_or_else(|| value.into_owned()).into());
        }
        let kind = headers.get("content-type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = url.path_segments().and_then(|mut segments| segments.next_back()).unwrap_or_default().to_owned();
        let (text, files) = match String::from_utf8(bytes) {
            Ok(text) => (text, Vec::new()),
            Err(error) => (String::new(), vec![File { name, kind, content: error.into_bytes() }.value()]),
        };
        if self.fail_on_status && status >= 400 {
            let message = format!("HTTP {status} {text}");
            let passing = status >= 500 || matches!(status, 408 | 429);
            return Err(if passing {
                NodeError::passing("HTTPResponseCodeError", message)
            } else {
                NodeError::new("HTTPResponseCodeError", message)
            });
        }
        Ok(NodeOutput::of([
            ("status_code", Value::from(u32::from(status))),
            ("body", text.into()),
            ("headers", Value::Map(headers)),
            ("files", Value::List(files)),
        ]))
    }

    fn authorize(
        &self,
        headers: &mut HeaderMap,
        host: &str,
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<(), NodeError> {
        let pool = context.variables();
        match &self.authorization {
            // What goes into the URL or a form is there already.
            Authorization::None | Authorization::Query(..) | Authorization::Field(..) => Ok(()),
            Authorization::Bearer { header, token } => {
                put(headers, header, &format!("Bearer {}", token.render(pool)), true)
            }
            Authorization::Basic { header, user } => {
                let user = user.render(pool);
                let encoded = if user.contains(':') { STANDARD.encode(user) } else { user };
                put(headers, header, &format!("Basic {encoded}"), true)
            }
            Authorization::Headers(pairs) => {
                pairs.iter().try_for_each(|(name, value)| put(headers, &name.render(pool), &value.render(pool), true))
            }
            Authorization::Group(group) => {
                let credential = outside.credential(group, host)?;
                outside.record(context, AuditKind::Credential, &format!("{group} to {host}"))?;
                put(headers, &credential.header, credential.value.expose_secret(), true)
            }
        }
    }

    /// The body, and the type that it has.
    async fn body(
        &self,
        inputs: &Value,
        context: &NodeContext<'_>,
        outside: &Outside,
    ) -> Result<(Vec<u8>, Option<String>), NodeError> {
        let pool = context.variables();
        Ok(match &self.body {
            Body::None => (Vec::new(), None),
            Body::Text(_, kind) => {
                let text = inputs.field("body").and_then(Value::as_str).unwrap_or_default();
                (text.as_bytes().to_vec(), kind.map(str::to_owned))
            }
            Body::Form(fields) => {
                let mut form = url::form_urlencoded::Serializer::new(String::new());
                form.extend_pairs(fields.iter().map(|(key, value)| (key.render(pool), value.render(pool))));
                (form.finish().into_bytes(), Some("application/x-www-form-urlencoded".to_owned()))
            }
            Body::Multipart(fields) => {
                let mut form = Multipart::new(&*outside.random);
                for (key, field) in fields {
                    let key = key.render(pool);
                    match field {
                        Field::Text(text) => form.text(&key, &text.render(pool)),
                        Field::File(selector) => {
                            for file in files::load(&pool.select(selector), context, outside).await? {
                                form.file(&key, &file);
                            }
                        }
                    }
                }
                let (body, kind) = form.finish();
                (body, Some(kind))
            }
            Body::Binary(selector) => {
                let mut files = files::load(&pool.select(selector), context, outside).await?;
                let missing = || NodeError::new("HttpError", format!("there is no file at {selector}"));
                let file = files.pop().ok_or_else(missing)?;
                (file.content, Some(file.kind).filter(|kind| !kind.is_empty()))
            }
        })
    }
}

fn put(headers: &mut HeaderMap, name: &str, value: &str, is_secret: bool) -> Result<(), NodeError> {
    let bad = |what: &str| NodeError::new("HttpError", format!("the header {name:?} has {what} that can't be sent"));
    let key = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| bad("a name"))?;
    let mut value = HeaderValue::from_str(value).map_err(|_| bad("a value"))?;
    value.set_sensitive(is_secret);
    headers.insert(key, value);
    Ok(())
}
