//! The HTTP client: one request with its redirects, one bounded answer.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::header::{self, HeaderMap, HeaderName};
use http::{Method, StatusCode};
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::error::NetError;
use super::policy::NetPolicy;
use super::resolve::{Checked, Resolver, SystemResolver};
use super::tls;

/// Headers that are sent on to another origin. Every other may be a credential, whatever its name.
const CROSS_ORIGIN: [HeaderName; 5] =
    [header::ACCEPT, header::ACCEPT_LANGUAGE, header::CONTENT_TYPE, header::RANGE, header::USER_AGENT];

/// A client under a policy. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    policy: Arc<NetPolicy>,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// GET, POST, …
    pub method: Method,
    /// Where.
    pub url: String,
    /// With which headers.
    pub headers: HeaderMap,
    /// With what in it.
    pub body: Bytes,
    /// How long it may take, if that is less than the policy allows.
    pub timeout: Option<Duration>,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self { method, url: url.into(), headers: HeaderMap::new(), body: Bytes::new(), timeout: None }
    }
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub struct Response {
    inner: reqwest::Response,
    host: String,
    deadline: Instant,
    timeout: Duration,
    limit: u64,
    read: u64,
}

impl Client {
    /// A client that looks names up as the system does.
    ///
    /// # Errors
    ///
    /// [`NetError::Setup`] if a certificate or the proxy of the policy can't be used.
    pub fn new(policy: NetPolicy) -> Result<Self, NetError> {
        Self::with_resolver(policy, Arc::new(SystemResolver))
    }

    /// A client that looks names up with `resolver`.
    ///
    /// # Errors
    ///
    /// As for [`Client::new`].
    pub fn with_resolver(policy: NetPolicy, resolver: Arc<dyn Resolver>) -> Result<Self, NetError> {
        let setup = |error: reqwest::Error| NetError::Setup(reason(&error));
        let policy = Arc::new(policy);
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::config(&policy.roots)?)
            .dns_resolver(Checked { resolver, policy: policy.clone() })
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(policy.connect_timeout)
            .user_agent(concat!("piton/", env!("CARGO_PKG_VERSION")))
            .no_proxy();
        if let Some(proxy) = &policy.proxy {
            builder = builder.proxy(reqwest::Proxy::all(proxy).map_err(setup)?);
        }
        Ok(Self { http: builder.build().map_err(setup)?, policy })
    }

    /// The policy.
    pub fn policy(&self) -> &NetPolicy {
        &self.policy
    }

    /// Sends a request, follows its redirects, and returns once the headers of the answer are there.
    ///
    /// # Errors
    ///
    /// A refusal of the policy, or what went wrong on the way. An answer of any status is no error.
    pub async fn send(&self, request: Request) -> Result<Response, NetError> {
        let timeout = request.timeout.map_or(self.policy.timeout, |asked| asked.min(self.policy.timeout));
        let deadline = Instant::now() + timeout;
        let Request { mut method, url, mut headers, mut body, .. } = request;
        let mut url = Url::parse(&url).map_err(|error| NetError::Url(error.to_string()))?;
        for _ in 0..=self.policy.max_redirects {
            self.policy.check_url(&url)?;
            let host = url.host_str().unwrap_or_default().to_owned();
            let mut next = self.http.request(method.clone(), url.clone()).headers(headers.clone());
            if !body.is_empty() {
                next = next.body(body.clone());
            }
            let sent = timeout_at(deadline, next.send()).await;
            let inner =
                sent.map_err(|_| NetError::Timeout { after: timeout })?.map_err(|error| explain(error, &host))?;
            let Some(target) = redirect(&inner, &url)? else {
                return Ok(Response { inner, host, deadline, timeout, limit: self.policy.max_body, read: 0 });
            };
            if url.scheme() == "https" && target.scheme() == "http" {
                return Err(NetError::Redirect("it leads from https to http".to_owned()));
            }
            let status = inner.status();
            let was_post =
                method == Method::POST && matches!(status, StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND);
            if was_post || status == StatusCode::SEE_OTHER && method != Method::HEAD {
                method = Method::GET;
                body = Bytes::new();
                for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING] {
                    headers.remove(name);
                }
            }
            if target.origin() != url.origin() {
                headers = headers
                    .into_iter()
                    .filter_map(|(name, value)| Some((name?, value)))
                    .filter(|(name, _)| CROSS_ORIGIN.contains(name))
                    .collect();
            }
            url = target;
        }
        Err(NetError::TooManyRedirects { limit: self.policy.max_redirects })
    }
}

/// Where an answer sends us, if it does.
fn redirect(response: &reqwest::Response, url: &Url) -> Result<Option<Url>, NetError> {
    let follows = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = response.headers().get(header::LOCATION).filter(|_| follows) else {
        return Ok(None);
    };
    let location = location.to_str().map_err(|_| NetError::Redirect("its target isn't text".to_owned()))?;
    let target = url.join(location).map_err(|error| NetError::Redirect(error.to_string()))?;
    if !target.username().is_empty() || target.password().is_some() {
        return Err(NetError::Redirect("its target has a password".to_owned()));
    }
    Ok(Some(target))
}

impl Response {
    /// The status.
    pub fn status(&self) -> StatusCode {
        self.inner.status()
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        self.inner.headers()
    }

    /// The URL that answered, which redirects may have led to.
    pub fn url(&self) -> &Url {
        self.inner.url()
    }

    /// With another bound on the body, if it is lower than the policy's.
    #[must_use]
    pub fn limited(mut self, limit: u64) -> Self {
        self.limit = self.limit.min(limit);
        self
    }

    /// The next piece of the body, unpacked; `None` at its end.
    ///
    /// # Errors
    ///
    /// [`NetError::TooLarge`] and [`NetError::Timeout`] once the body is longer, in bytes or time, than
    /// the policy allows, [`NetError::Broken`] if it ends too soon.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, NetError> {
        let next = timeout_at(self.deadline, self.inner.chunk()).await;
        let next = next.map_err(|_| NetError::Timeout { after: self.timeout })?;
        let Some(chunk) = next.map_err(|error| explain(error, &self.host))? else { return Ok(None) };
        self.read += chunk.len() as u64;
        if self.read > self.limit {
            return Err(NetError::TooLarge { limit: self.limit });
        }
        Ok(Some(chunk))
    }

    /// The whole body.
    ///
    /// # Errors
    ///
    /// As for [`Response::chunk`].
    pub async fn bytes(&mut self) -> Result<Vec<u8>, NetError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

impl Response {
    /// The rest of the body as a stream, which ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, NetError>> + Send {
        stream::unfold(Some(self), |response| async {
            let mut response = response?;
            match response.chunk().await {
                Ok(Some(chunk)) => Some((Ok(chunk), Some(response))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }
}

/// Our own error if one is inside, else what the library says, without the URL.
fn explain(error: reqwest::Error, host: &str) -> NetError {
    let error = error.without_url();
    let mut source: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(inner) = source {
        if let Some(NetError::AddressRefused { host, address, kind }) = inner.downcast_ref() {
            return NetError::AddressRefused { host: host.clone(), address: *address, kind: *kind };
        }
        if let Some(NetError::Lookup { host, source }) = inner.downcast_ref() {
            let source = std::io::Error::new(source.kind(), source.to_string());
            return NetError::Lookup { host: host.clone(), source };
        }
        source = inner.source();
    }
    let (host, reason) = (host.to_owned(), reason(&error));
    if error.is_connect() { NetError::Connect { host, reason } } else { NetError::Broken { host, reason } }
}

/// The innermost cause, which is the one that says something.
fn reason(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
