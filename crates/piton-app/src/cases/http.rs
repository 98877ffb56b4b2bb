//! An HTTP server on loopback that gives the answers of a case, in the order in which they stand. A request with an
//! `Idempotency-Key` that it had before gets the answer that it got then.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use regex::{Regex, RegexBuilder};
use tokio::net::TcpListener;

use super::case::MockAnswer;

/// The largest request.
const MAX_REQUEST: usize = 64 << 20;

/// An answer, ready.
struct Prepared {
    answer: MockAnswer,
    body: Option<Regex>,
    given: AtomicU64,
}

/// What a server has answered, by key.
type Answered = Arc<Mutex<HashMap<String, usize>>>;

/// A server that ends with its value.
pub(crate) struct MockHttp {
    address: SocketAddr,
    /// Requests that nothing fitted.
    unmatched: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for MockHttp {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MockHttp {
    /// Starts a server with these answers, on a port that is free.
    pub(crate) async fn start(answers: Vec<MockAnswer>) -> Result<Self, String> {
        let mut prepared = Vec::with_capacity(answers.len());
        for answer in answers {
            let body = match &answer.match_body {
                Some(source) => {
                    let pattern = RegexBuilder::new(source).size_limit(1 << 20).dot_matches_new_line(true).build();
                    Some(pattern.map_err(|error| format!("mock_server: match_body: {error}"))?)
                }
                None => None,
            };
            StatusCode::from_u16(answer.response_status)
                .map_err(|_| format!("mock_server: there is no status {}", answer.response_status))?;
            prepared.push(Prepared { answer, body, given: AtomicU64::new(0) });
        }
        let prepared = Arc::new(prepared);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let unmatched = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&unmatched);
        let answered = Answered::default();
        let task = tokio::spawn(async move {
            // Connections end with the server.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (prepared, seen, answered) = (Arc::clone(&prepared), Arc::clone(&seen), Arc::clone(&answered));
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        answer(request, Arc::clone(&prepared), Arc::clone(&seen), Arc::clone(&answered))
                    });
                    // A client that goes away is its own business.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, unmatched, task })
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests that nothing fitted, for the report of a case that fails.
    pub(crate) fn unmatched(&self) -> Vec<String> {
        self.unmatched.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn answer(
    request: Request<Incoming>,
    prepared: Arc<Vec<Prepared>>,
    unmatched: Arc<Mutex<Vec<String>>>,
    answered: Answered,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body =
        Limited::new(body, MAX_REQUEST).collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let whole = head.uri.path_and_query().map_or("/", |found| found.as_str());
    let key = head.headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(|key| format!("{key} {whole}"));
    let before = key.as_ref().and_then(|key| answered.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied());
    let remember = |key, place| answered.lock().unwrap_or_else(PoisonError::into_inner).insert(key, place);
    for (place, prepared) in prepared.iter().enumerate() {
        let wanted = &prepared.answer;
        let path = if wanted.path.contains('?') { whole } else { head.uri.path() };
        let headers = wanted.match_headers.iter().all(|(name, value)| {
            head.headers.get_all(name.as_str()).iter().any(|found| found.to_str().is_ok_and(|found| found == value))
        });
        let fits = head.method.as_str().eq_ignore_ascii_case(&wanted.method)
            && path == wanted.path
            && headers
            && prepared.body.as_ref().is_none_or(|pattern| pattern.is_match(&text));
        if !fits {
            continue;
        }
        match before {
            Some(before) if before != place => continue,
            Some(_) => {}
            None => {
                // Taken before it is given: of several at once each counts.
                let number = prepared.given.fetch_add(1, Ordering::Relaxed);
                if wanted.expect.is_some_and(|most| number >= most) {
                    continue;
                }
                if let Some(key) = &key {
                    remember(key.clone(), place);
                }
            }
        }
        if wanted.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(wanted.delay_ms)).await;
        }
        let mut response = Response::builder().status(wanted.response_status);
        for (name, value) in &wanted.response_headers {
            response = response.header(name, value);
        }
        let body = Full::new(Bytes::from(wanted.response_body.clone()));
        return Ok(response.body(body).unwrap_or_else(|error| plain(500, format!("the mock can't answer: {error}"))));
    }
    let told = format!("{} {whole}", head.method);
    unmatched.lock().unwrap_or_else(PoisonError::into_inner).push(told.clone());
    Ok(plain(501, format!("no mock_server entry fits {told}")))
}

fn plain(status: u16, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
