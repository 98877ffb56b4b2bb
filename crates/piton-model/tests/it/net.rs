//! Promise 23: what the HTTP client reaches, and how much it takes.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, Method};
use piton_model::net::{Client, NetError, NetPolicy, Request, Resolver};

use crate::server::{Received, Server, Step, json, open, reply};

fn get(url: impl Into<String>) -> Request {
    Request::new(Method::GET, url)
}

fn local() -> NetPolicy {
    NetPolicy::public().trusting("127.0.0.1")
}

async fn text(client: &Client, request: Request) -> Result<String, NetError> {
    let mut response = client.send(request).await?;
    Ok(String::from_utf8(response.bytes().await?).unwrap())
}

/// Answers with the addresses in turn, the last one for ever.
struct Names {
    answers: Vec<&'static str>,
    asked: AtomicUsize,
}

impl Names {
    fn new(answers: &[&'static str]) -> Arc<Self> {
        Arc::new(Self { answers: answers.to_vec(), asked: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst).min(self.answers.len() - 1);
        Ok(self.answers[turn].split(' ').map(|address| address.parse().unwrap()).collect())
    }
}

#[tokio::test]
async fn loopback_is_reached_only_if_the_policy_says_so() {
    let server = Server::start(|_| reply(200, &[], "inside")).await;
    let refused = text(&Client::new(NetPolicy::public()).unwrap(), get(server.url("/"))).await.unwrap_err();
    assert!(matches!(refused, NetError::AddressRefused { .. }) && refused.is_refusal(), "{refused}");
    assert!(server.received().is_empty(), "it was reached");
    for policy in [NetPolicy::open(), local()] {
        assert_eq!(text(&Client::new(policy).unwrap(), get(server.url("/"))).await.unwrap(), "inside");
    }
}

#[tokio::test]
async fn a_name_is_as_good_as_its_address() {
    let server = Server::start(|_| reply(200, &[], "inside")).await;
    let url = format!("http://innocent.example:{}/", server.address.port());
    for inside in ["127.0.0.1", "::ffff:127.0.0.1"] {
        let client = Client::with_resolver(NetPolicy::public(), Names::new(&[inside])).unwrap();
        let refused = text(&client, get(&url)).await.unwrap_err();
        assert!(matches!(&refused, NetError::AddressRefused { host, .. } if host == "innocent.example"), "{refused}");
    }
    assert!(server.received().is_empty(), "it was reached");
    let client = Client::with_resolver(NetPolicy::open(), Names::new(&["127.0.0.1"])).unwrap();
    assert_eq!(text(&client, get(&url)).await.unwrap(), "inside", "the control");
}

/// DNS rebinding: the name is public when it is looked at and private when it is used. There is one
/// look-up per connection here, and it is the one that counts.
#[tokio::test]
async fn a_name_that_changes_between_look_ups_gains_nothing() {
    let server = Server::start(|_| reply(200, &[], "inside")).await;
    let names = Names::new(&["127.0.0.1"]);
    let client = Client::with_resolver(NetPolicy::public(), names.clone()).unwrap();
    let url = format!("http://rebinding.example:{}/", server.address.port());
    assert!(text(&client, get(&url)).await.unwrap_err().is_refusal());
    assert_eq!(names.asked.load(Ordering::SeqCst), 1, "one look-up for one connection");
    // A public address beside a private one: only the public one is tried.
    let mut policy = NetPolicy::public();
    policy.connect_timeout = Duration::from_millis(200);
    let client = Client::with_resolver(policy, Names::new(&["127.0.0.1 192.0.2.1 2001:db8::1"])).unwrap();
    assert!(text(&client, get(&url)).await.unwrap_err().is_refusal(), "all three are refused");
    assert!(server.received().is_empty(), "it was reached");
}

#[tokio::test]
async fn a_redirect_is_checked_like_the_first_url() {
    let inner = Server::start(|_| reply(200, &[], "inside")).await;
    for target in
        [inner.url("/"), format!("http://0x7f000001:{}/", inner.address.port()), "file:///etc/passwd".to_owned()]
    {
        let outer = Server::start(move |_| reply(302, &[("location", &target)], "")).await;
        // The first host is trusted by name, so that the redirect's target isn't.
        let url = format!("http://trusted.example:{}/", outer.address.port());
        let policy = NetPolicy::public().trusting("trusted.example");
        let client = Client::with_resolver(policy, Names::new(&["127.0.0.1"])).unwrap();
        let error = text(&client, get(url)).await.unwrap_err();
        assert!(error.is_refusal() || matches!(error, NetError::Url(_)), "{error}");
        assert_eq!(outer.received().len(), 1);
    }
    assert!(inner.received().is_empty(), "it was reached");
}

#[tokio::test]
async fn redirects_end() {
    let server = Server::start(|received| {
        let next = format!("{}x", received.path);
        reply(302, &[("location", &next)], "")
    })
    .await;
    let error = text(&Client::new(local()).unwrap(), get(server.url("/"))).await.unwrap_err();
    assert!(matches!(error, NetError::TooManyRedirects { limit: 5 }), "{error}");
    assert_eq!(server.received().len(), 6);
}

/// The request after a redirect to `location` of `status`, and the answer's text.
async fn redirected(status: u16, cross: bool) -> Received {
    let target = Arc::new(Server::start(|_| reply(200, &[], "there")).await);
    let place = if cross { target.url("/there") } else { "/there".to_owned() };
    let origin = Server::start(move |received| match received.path.as_str() {
        "/there" => reply(200, &[], "there"),
        _ => reply(status, &[("location", &place)], ""),
    })
    .await;
    let mut request = Request::new(Method::POST, origin.url("/here"));
    request.body = "payload".into();
    for (name, value) in
        [("authorization", "Bearer secret"), ("cookie", "id=secret"), ("x-api-key", "secret"), ("accept", "text/plain")]
    {
        request.headers.insert(name, HeaderValue::from_static(value));
    }
    assert_eq!(text(&Client::new(local()).unwrap(), request).await.unwrap(), "there");
    let server = if cross { &target } else { &origin };
    server.received().pop().unwrap()
}

#[tokio::test]
async fn credentials_do_not_cross_origins() {
    for status in [301, 302, 303, 307, 308] {
        let crossed = redirected(status, true).await;
        assert!(!format!("{:?}", crossed.headers).contains("secret"), "{status}: {crossed:?}");
        assert_eq!(crossed.headers["accept"], "text/plain");
        let stayed = redirected(status, false).await;
        for name in ["authorization", "cookie", "x-api-key"] {
            assert!(stayed.headers[name].contains("secret"), "{status}: the control lost {name}");
        }
        let keeps = status >= 307;
        assert_eq!(
            (stayed.method.as_str(), stayed.body.as_str()),
            if keeps { ("POST", "payload") } else { ("GET", "") }
        );
    }
}

#[tokio::test]
async fn a_body_without_an_end_is_cut() {
    let server = Server::start(|_| {
        let mut steps = open("text/plain");
        steps.push(Step::Endlessly(vec![b'x'; 1 << 16]));
        steps
    })
    .await;
    let mut policy = local();
    policy.max_body = 1 << 20;
    let error = text(&Client::new(policy).unwrap(), get(server.url("/"))).await.unwrap_err();
    assert!(matches!(error, NetError::TooLarge { limit } if limit == 1 << 20), "{error}");
}

/// A thousand to one: 64 KiB on the wire, 64 MiB unpacked.
#[tokio::test]
async fn a_body_that_unpacks_without_an_end_is_cut() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..64 {
        packed.write_all(&vec![0; 1 << 20]).unwrap();
    }
    let packed = packed.finish().unwrap();
    assert!(packed.len() < 1 << 17, "it is small on the wire");
    let server = Server::start(move |_| reply(200, &[("content-encoding", "gzip")], &packed)).await;
    let mut policy = local();
    policy.max_body = 1 << 20;
    let error = text(&Client::new(policy).unwrap(), get(server.url("/"))).await.unwrap_err();
    assert!(matches!(error, NetError::TooLarge { .. }), "{error}");
    let mut policy = local();
    policy.max_body = 64 << 20;
    let whole = text(&Client::new(policy).unwrap(), get(server.url("/"))).await.unwrap();
    assert_eq!(whole.len(), 64 << 20, "the control");
}

#[tokio::test]
async fn silence_ends() {
    let headers = Server::start(|_| vec![Step::Hang]).await;
    let body = Server::start(|_| {
        let mut steps = open("text/plain");
        steps.extend([Step::Send(b"some".to_vec()), Step::Hang]);
        steps
    })
    .await;
    for server in [headers, body] {
        let mut request = get(server.url("/"));
        request.timeout = Some(Duration::from_millis(300));
        let error = text(&Client::new(local()).unwrap(), request).await.unwrap_err();
        assert!(matches!(error, NetError::Timeout { .. }) && error.is_retryable(), "{error}");
    }
}

#[tokio::test]
async fn a_broken_connection_is_not_a_short_body() {
    let server =
        Server::start(|_| vec![Step::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort".to_vec())]).await;
    let error = text(&Client::new(local()).unwrap(), get(server.url("/"))).await.unwrap_err();
    assert!(matches!(error, NetError::Broken { .. }) && error.is_retryable(), "{error}");
    let nonsense = Server::start(|_| vec![Step::Send(b"SSH-2.0-x\r\n".to_vec())]).await;
    let error = text(&Client::new(local()).unwrap(), get(nonsense.url("/"))).await.unwrap_err();
    assert!(matches!(error, NetError::Broken { .. }), "{error}");
}

#[tokio::test]
async fn an_error_does_not_show_the_url() {
    let server = Server::start(|_| vec![]).await;
    let error = text(&Client::new(local()).unwrap(), get(server.url("/path?key=secret"))).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    let closed = { std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let error = text(&Client::new(local()).unwrap(), get(format!("http://{closed}/?key=secret"))).await.unwrap_err();
    assert!(matches!(error, NetError::Connect { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

/// A proxy is used if the policy names one, and never because the environment does.
#[tokio::test]
async fn a_proxy_is_used_only_if_asked_for() {
    let proxy = Server::start(|_| json(200, "\"by proxy\"")).await;
    let mut policy = NetPolicy::public();
    policy.proxy = Some(proxy.url(""));
    assert_eq!(text(&Client::new(policy).unwrap(), get("http://somewhere.example/")).await.unwrap(), "\"by proxy\"");
    assert_eq!(proxy.received()[0].path, "http://somewhere.example/");
}
