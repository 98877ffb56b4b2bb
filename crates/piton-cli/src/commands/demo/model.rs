//! A language model for the demo: a server on loopback that speaks the protocol of OpenAI, wants one page after the
//! other, and counts what it is asked. The pages are here too, and the hand that kills the reader of a certain one.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;

use crate::failure::Failure;

/// How many pages there are.
const PAGES: usize = 10;
/// The largest request.
const MAX_REQUEST: usize = 4 << 20;

/// A server that ends with its value.
pub(super) struct Model {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    asked: AtomicU64,
    /// The page whose reader is killed; 0 for none.
    deadly: AtomicU32,
    victim: Mutex<Option<Pid>>,
}

impl Drop for Model {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Model {
    pub(super) async fn start() -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| Failure::fixable("can't listen on 127.0.0.1").because(&error);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(request, Arc::clone(&shared), address));
                    // A client that is killed is what this is about.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, shared, task })
    }

    /// What `--config` is given.
    pub(super) fn config(&self) -> String {
        format!(
            "reachable = [\"http://{0}\"]\n\n[providers.openai]\nbase_url = \"http://{0}/v1\"\napi_key = \"none\"\n",
            self.address
        )
    }

    /// Where the pages are.
    pub(super) fn pages(&self) -> String {
        format!("http://{}/pages", self.address)
    }

    /// How often it was asked.
    pub(super) fn asked(&self) -> u64 {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// The same, and counts from zero again.
    pub(super) fn take_asked(&self) -> u64 {
        self.shared.asked.swap(0, Ordering::SeqCst)
    }

    /// Kills this process when it reads that page.
    pub(super) fn kill_at(&self, page: u32, victim: Option<Pid>) {
        *self.shared.victim.lock().unwrap_or_else(PoisonError::into_inner) = victim;
        self.shared.deadly.store(page, Ordering::SeqCst);
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
    address: SocketAddr,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    if let Some(page) = head.uri.path().strip_prefix("/pages/") {
        return Ok(page_text(page, &shared));
    }
    let body = Limited::new(body, MAX_REQUEST).collect().await.map(http_body_util::Collected::to_bytes);
    let asked: Json = body.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
    shared.asked.fetch_add(1, Ordering::SeqCst);
    let said = asked["messages"].as_array().into_iter().flatten();
    let turn = said.filter(|message| message["role"] == "assistant").count() + 1;
    let streamed = asked["stream"] == true;
    let usage = json!({"prompt_tokens": 100 * turn, "completion_tokens": 20, "total_tokens": 100 * turn + 20});
    let (kind, body) = match (streamed, turn <= PAGES) {
        (streamed, true) => {
            let arguments = json!({"url": format!("http://{address}/pages/{turn}")}).to_string();
            let call = json!({"index": 0, "id": format!("call-{turn}"), "type": "function",
                "function": {"name": "fetch", "arguments": arguments}});
            reply(streamed, json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls", &usage)
        }
        (streamed, false) => {
            let text = format!("All {PAGES} pages say that bees hum.");
            reply(streamed, json!({"role": "assistant", "content": text}), "stop", &usage)
        }
    };
    let response = Response::builder().header("content-type", kind).body(Full::new(Bytes::from(body)));
    Ok(response.unwrap_or_default())
}

/// A message as the protocol has it, in one piece or as a stream of one piece.
fn reply(streamed: bool, message: Json, reason: &str, usage: &Json) -> (&'static str, String) {
    let part = if streamed { "delta" } else { "message" };
    let object = json!({"id": "demo", "object": "chat.completion", "model": "demo", "usage": usage,
        "choices": [{"index": 0, part: message, "finish_reason": reason}]});
    match streamed {
        true => ("text/event-stream", format!("data: {object}\n\ndata: [DONE]\n\n")),
        false => ("application/json", object.to_string()),
    }
}

fn page_text(page: &str, shared: &Shared) -> Response<Full<Bytes>> {
    let deadly = shared.deadly.load(Ordering::SeqCst);
    if deadly > 0 && page.parse() == Ok(deadly) {
        shared.deadly.store(0, Ordering::SeqCst);
        if let Some(victim) = shared.victim.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // If it has ended already, the claims at the end will say so.
            let _ = kill_process(victim, Signal::KILL);
        }
    }
    Response::new(Full::new(Bytes::from(format!("Page {page}: bees hum."))))
}
