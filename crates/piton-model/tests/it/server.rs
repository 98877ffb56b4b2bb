//! A server that says exactly what a test tells it to, byte by byte.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// What the server does next. After the last one it closes the connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Send(Vec<u8>),
    /// Says nothing for a minute.
    Hang,
    /// Sends this until the client closes.
    Endlessly(Vec<u8>),
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), received.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer.clone(), log.clone()));
            }
        });
        Self { address, received }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: Arc<impl Fn(&Received) -> Vec<Step>>,
    log: Arc<Mutex<Vec<Received>>>,
) -> Option<()> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    let received = Received { method, path, headers, body: String::from_utf8_lossy(&body).into_owned() };
    log.lock().unwrap().push(received.clone());
    let steps = answer(&received);
    for step in steps {
        match step {
            Step::Send(bytes) => stream.write_all(&bytes).await.ok()?,
            Step::Hang => tokio::time::sleep(Duration::from_mins(1)).await,
            Step::Endlessly(bytes) => loop {
                stream.write_all(&bytes).await.ok()?;
            },
        }
    }
    stream.shutdown().await.ok()
}

/// A whole answer.
pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<Step> {
    let body = body.as_ref();
    let mut head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    vec![Step::Send([head.as_bytes(), body].concat())]
}

pub(crate) fn json(status: u16, body: &str) -> Vec<Step> {
    reply(status, &[("content-type", "application/json")], body)
}

/// The beginning of an answer of unknown length; what follows ends with the connection.
pub(crate) fn open(content_type: &str) -> Vec<Step> {
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {content_type}\r\n\r\n");
    vec![Step::Send(head.into_bytes())]
}

/// Server-sent events, in one piece.
pub(crate) fn events(data: &[&str]) -> Vec<Step> {
    let mut steps = open("text/event-stream");
    steps.push(Step::Send(data.iter().map(|data| format!("data: {data}\n\n")).collect::<String>().into_bytes()));
    steps
}
