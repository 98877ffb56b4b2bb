//! Server-sent events. A stream ends when its client goes away, and says from time to time that it is there.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use futures_util::stream;
use piton_app::Failure;
use tokio::sync::mpsc;

use crate::problem::Problem;
use crate::server::Server;

/// How often a stream on which nothing happens says that it is there.
const ALIVE: Duration = Duration::from_secs(15);
/// Events that may wait for a slow client; the sender waits then.
const WAITING: usize = 64;

/// Where events are sent.
pub(crate) struct Sink(mpsc::Sender<Bytes>);

/// The client has gone away.
#[derive(Debug)]
pub(crate) struct Gone;

impl Sink {
    /// Sends an event.
    pub(crate) async fn send(&self, event: &str, id: Option<&str>, data: &str) -> Result<(), Gone> {
        let mut text = format!("event: {event}\n");
        if let Some(id) = id {
            text.push_str(&format!("id: {id}\n"));
        }
        // JSON has no line feeds in it.
        text.push_str(&format!("data: {data}\n\n"));
        self.0.send(text.into()).await.map_err(|_| Gone)
    }

    /// Sends why there are no more.
    pub(crate) async fn problem(&self, problem: &Problem) -> Result<(), Gone> {
        self.send("problem", None, &problem.object().to_string()).await
    }

    /// Waits for something, unless the client goes away meanwhile.
    pub(crate) async fn while_there<T>(&self, work: impl Future<Output = T>) -> Result<T, Gone> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = self.0.closed() => return Err(Gone),
                () = tokio::time::sleep(ALIVE) => {
                    self.0.send(Bytes::from_static(b": alive\n\n")).await.map_err(|_| Gone)?;
                }
            }
        }
    }
}

/// A stream of what `work` sends.
pub(crate) fn events<W: Future<Output = Result<(), Gone>> + Send + 'static>(
    server: &Server,
    work: impl FnOnce(Sink) -> W,
) -> Result<Response<Body>, Problem> {
    let place = Arc::clone(&server.streams).try_acquire_owned().map_err(|_| {
        let failure = Failure::refused("there are too many open streams of events").hint("close some pages.");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", failure)
    })?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let work: std::pin::Pin<Box<dyn Future<Output = Result<(), Gone>> + Send>> = Box::pin(work(Sink(sender.clone())));
    tokio::spawn(async move {
        let _place = place;
        let _ = sender.send(Bytes::from_static(b"retry: 1000\n\n")).await;
        drop(sender);
        let _ = work.await;
    });
    let body = stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|bytes: Bytes| (Ok::<_, std::convert::Infallible>(bytes), receiver))
    });
    let mut answer = Response::new(Body::from_stream(body));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}
