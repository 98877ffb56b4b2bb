//! A home, a folder with a store, and a server of it in this process.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_app::{App, Silent, Surroundings};
use piton_server::{Options, Serving};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value as Json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Takes a name and greets.
pub(crate) const GREETS: &str = "
nodes:
  - {id: in, data: {type: start, variables: [{variable: name, required: true}]}}
  - {id: greet, data: {type: template-transform, template: 'Hello {{ name }}!', variables: [{variable: name, value_selector: [in, name]}]}}
  - {id: out, data: {type: end, outputs: [{variable: greeting, value_selector: [greet, output]}]}}
edges:
  - {source: in, target: greet}
  - {source: greet, target: out}
";

/// Asks a person for an amount.
pub(crate) const ASKS: &str = "
nodes:
  - {id: in, data: {type: start}}
  - id: approval
    data:
      type: human-input
      title: Amount
      prompt: How much?
      variables: [{name: amount, type: number, required: true}]
  - {id: out, data: {type: end, outputs: [{variable: amount, value_selector: [approval, amount]}]}}
edges:
  - {source: in, target: approval}
  - {source: approval, target: out}
";

/// A home, a folder and a server.
pub(crate) struct World {
    root: tempfile::TempDir,
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    pub(crate) link: String,
    tokens: [String; 3],
    client: Client,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

pub(crate) const LOOK: usize = 0;
pub(crate) const ANSWER: usize = 1;
pub(crate) const OPERATE: usize = 2;

fn no_variables(_: &str) -> Option<OsString> {
    None
}

impl World {
    pub(crate) async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("work")).unwrap();
        Self::of(root, "127.0.0.1:0".parse().unwrap()).await
    }

    async fn of(root: tempfile::TempDir, listen: SocketAddr) -> Self {
        let top = root.path().canonicalize().unwrap();
        let surroundings =
            Surroundings { folder: top.join("work"), home: Some(top.join("home")), ..Surroundings::default() };
        let app = App::new(Arc::new(Silent), surroundings, no_variables);
        let options = Options { listen, hosts: Vec::new(), tls: None, without_tls: false, config: None };
        let serving = Serving::bind(&app, options).await.unwrap();
        let (url, link, folder) = (serving.url().to_owned(), serving.link().unwrap(), serving.folder().to_owned());
        let tokens = ["look", "answer", "operate"]
            .map(|role| std::fs::read_to_string(folder.join(format!("{role}.token"))).unwrap().trim().to_owned());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(serving.serve(async { drop(stopped.await) }));
        let address = url.strip_prefix("http://").unwrap().parse().unwrap();
        // Another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { root, url, address, link, tokens, client, stop: Some(stop), task }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("work")
    }

    pub(crate) fn token(&self, role: usize) -> &str {
        &self.tokens[role]
    }

    /// The server ends, and another one begins at the same address.
    pub(crate) async fn restarted(mut self) -> Self {
        drop(self.stop.take());
        self.task.await.unwrap();
        Self::of(self.root, self.address).await
    }

    /// A request without a token.
    pub(crate) fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// A request of a role.
    pub(crate) fn by(&self, role: usize, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(&self.tokens[role])
    }

    /// What an operator is shown.
    pub(crate) async fn get(&self, path: &str) -> (u16, Json) {
        said(self.by(OPERATE, Method::GET, path)).await
    }

    /// What comes of an operator's act.
    pub(crate) async fn post(&self, path: &str, body: Json) -> (u16, Json) {
        said(sending(self.by(OPERATE, Method::POST, path), &body)).await
    }

    /// Starts a document and waits until it is over, or asks.
    pub(crate) async fn run(&self, document: &str, inputs: Json, id: &str) -> Json {
        let start = serde_json::json!({ "document": document, "inputs": inputs, "id": id });
        let (status, said) = self.post("/api/runs", start).await;
        assert_eq!(status, 202, "{said}");
        self.settled(id).await
    }

    /// A run, once it is over or asks, and isn't driven any more.
    pub(crate) async fn settled(&self, id: &str) -> Json {
        let patience = Instant::now();
        loop {
            let (status, run) = self.get(&format!("/api/runs/{id}")).await;
            let moves = run["status"] == "queued" || run["status"] == "in_progress" || run["driven_here"] == true;
            if status == 200 && !moves {
                return run;
            }
            assert!(patience.elapsed() < Duration::from_secs(60), "{run}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What bytes get for an answer, as they are.
    pub(crate) fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        // A server that refuses may close before everything was sent.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// The status of an answer and its JSON.
pub(crate) async fn said(request: RequestBuilder) -> (u16, Json) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Json::String(text)))
}

/// A request with a body.
pub(crate) fn sending(request: RequestBuilder, body: &Json) -> RequestBuilder {
    request.header("content-type", "application/json").body(body.to_string())
}
