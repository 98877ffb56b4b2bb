//! A server on loopback that answers as a test wants it to: one request a connection, one connection after the other.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its lines before the body, in small letters.
    pub head: Vec<String>,
    /// The body.
    pub body: String,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// As in `200 OK`.
    pub status: &'static str,
    /// As in `application/json`.
    pub kind: &'static str,
    /// The body.
    pub body: String,
}

impl Answer {
    /// That all is well.
    pub fn json(body: impl Into<String>) -> Self {
        Self { status: "200 OK", kind: "application/json", body: body.into() }
    }

    /// What a model of the usual protocol answers, in these pieces: as a stream if it is asked for one. Each
    /// answer costs five tokens and two.
    pub fn chat(asked: &Asked, pieces: &[&str]) -> Self {
        let usage = r#""usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}"#;
        let quoted =
            |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
        if !asked.body.contains("\"stream\":true") {
            let content = quoted(&pieces.concat());
            return Self::json(format!(
                r#"{{"choices":[{{"message":{{"content":{content}}},"finish_reason":"stop"}}],{usage}}}"#
            ));
        }
        let mut body = String::new();
        for piece in pieces {
            let content = quoted(piece);
            body.push_str(&format!("data: {{\"choices\":[{{\"delta\":{{\"content\":{content}}}}}]}}\n\n"));
        }
        let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"#;
        body.push_str(&format!("data: {end}{usage}}}\n\ndata: [DONE]\n\n"));
        Self { status: "200 OK", kind: "text/event-stream", body }
    }
}

/// A server that runs until the process ends.
#[derive(Debug)]
pub struct Web {
    /// Where it is, as in `http://127.0.0.1:1234`.
    pub address: String,
    asked: Arc<AtomicUsize>,
}

impl Web {
    /// Answers every request by `answer`.
    pub fn start(answer: impl Fn(&Asked) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a loopback");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that gave up in the middle gets no answer.
                let _ = serve(stream, &counter, &answer);
            }
        });
        Self { address, asked }
    }

    /// How many requests came.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, asked: &AtomicUsize, answer: &impl Fn(&Asked) -> Answer) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        head.push(line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    asked.fetch_add(1, Ordering::SeqCst);
    let Answer { status, kind, body } = answer(&Asked { head, body: String::from_utf8_lossy(&body).into_owned() });
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes())
}
