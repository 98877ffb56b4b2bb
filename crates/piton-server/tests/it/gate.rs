//! Promise 27: who is let in, and what is refused before a body is read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use piton_app::{App, FailureKind, Silent, Surroundings};
use piton_server::{Options, Serving};
use reqwest::Method;
use serde_json::json;

use crate::world::{GREETS, LOOK, OPERATE, World, said, sending};

/// The link signs one browser in; the cookie is out of reach of scripts and other sites, and outlives the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_signs_in_once_by_the_link() {
    let world = World::new().await;
    let path = world.link.strip_prefix(&world.url).unwrap().to_owned();
    let answer = world.bare(Method::GET, &path).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["location"].to_str().unwrap()), (303, "/"));
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let again = world.bare(Method::GET, &path).send().await.unwrap();
    assert_eq!(again.headers()["location"], "/?problem=code");
    assert!(!again.headers().contains_key("set-cookie"));
    let value = cookie.split(';').next().unwrap().to_owned();
    let signed_in = |world: &World, path: &str| world.bare(Method::GET, path).header("cookie", &value);
    assert_eq!(said(signed_in(&world, "/api/session")).await.1["role"], "operate");
    let world = world.restarted().await;
    assert_eq!(said(signed_in(&world, "/api/runs")).await.0, 200);

    // A browser that acts says from which page.
    let act = |origin: Option<String>| {
        let act = world.bare(Method::POST, "/api/documents/check").header("cookie", &value);
        let act = sending(act, &json!({ "document": GREETS }));
        origin.map_or_else(|| act.try_clone().unwrap(), |origin| act.try_clone().unwrap().header("origin", origin))
    };
    assert_eq!(said(act(Some(world.url.clone()))).await.0, 200);
    for origin in [None, Some("http://evil.example".to_owned()), Some("null".to_owned()), Some(String::new())] {
        assert_eq!(said(act(origin.clone())).await.0, 403, "{origin:?}");
    }
    let (status, out) = said(world.bare(Method::DELETE, "/api/session").header("origin", &world.url)).await;
    assert_eq!(status, 204, "{out}");
}

/// Wrong tokens get nothing, and after some of them not even an ear.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_refused_and_counted() {
    let world = World::new().await;
    let right = world.token(LOOK).to_owned();
    let mut refused = Vec::new();
    for wrong in ["", "x", &right[..right.len() - 1], &format!("{right}x"), "piton_look_", &right.to_uppercase()] {
        let (status, problem) = said(world.bare(Method::GET, "/api/runs").bearer_auth(wrong)).await;
        assert_eq!((status, problem["kind"].as_str()), (401, Some("unauthenticated")), "{wrong}");
        refused.push(problem.to_string());
    }
    for _ in 0..20 {
        let (status, problem) = said(sending(world.bare(Method::POST, "/api/session"), &json!({ "token": "x" }))).await;
        refused.push(problem.to_string());
        if status == 429 {
            break;
        }
    }
    assert!(refused.last().unwrap().contains("too many wrong tokens"), "{refused:?}");
    assert!(refused.iter().all(|text| !text.contains(&right)), "no answer has a token in it");
    assert_eq!(said(world.by(LOOK, Method::GET, "/api/runs")).await.0, 200, "a right one is let in");
}

/// Host and Origin are looked at before a body: the refusal comes though the body never does.
#[tokio::test(flavor = "multi_thread")]
async fn other_hosts_and_origins_are_refused_before_the_body_is_read() {
    let world = World::new().await;
    let (address, token) = (world.address, world.token(OPERATE));
    let head = |host: &str, more: &str| {
        format!(
            "POST /api/save HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: 100\r\nConnection: close\r\n{more}\r\n"
        )
    };
    let status = |text: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = [0; 64];
        let read = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..read]).split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let own = address.to_string();
    for host in ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost:1", "evil.example@127.0.0.1"] {
        assert_eq!(status(&head(host, "")), "421", "{host}");
    }
    assert_eq!(status(&head(&own, "Host: evil.example\r\n")), "400");
    for more in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: http://127.0.0.1:1\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
    ] {
        assert_eq!(status(&head(&own, more)), "403", "{more}");
    }
    assert_eq!(status(&head(&own, "").replace("POST /api/save", "POST http://evil.example/api/save")), "421");
    assert_eq!(status(&head(&own, "").replace("Content-Length: 100", "Content-Length: 100000000")), "413");
    assert_eq!(status(&head(&own, "").replace("Bearer", "Basic")), "401");
    // The control: what is right goes on to the body.
    let whole = head(&own, &format!("Origin: http://{own}\r\n")).replace("Length: 100", "Length: 2");
    assert!(world.raw(format!("{whole}{{}}").as_bytes()).starts_with("HTTP/1.1 200"));
}

/// A body that is larger than it says, or comes too slowly, is given up.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_too_large_or_too_slow_are_given_up() {
    let world = World::new().await;
    let head = format!(
        "POST /api/save HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Connection: close\r\n",
        world.address,
        world.token(OPERATE)
    );
    let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..17 {
        chunked.extend(format!("{:x}\r\n{}\r\n", 1 << 16, " ".repeat(1 << 16)).as_bytes());
    }
    chunked.extend(b"0\r\n\r\n");
    assert!(world.raw(&chunked).starts_with("HTTP/1.1 413"));
    let slow = world.raw(format!("{head}Content-Length: 10\r\n\r\n{{").as_bytes());
    assert!(slow.starts_with("HTTP/1.1 408"), "{slow}");
    // Headers that never end.
    let answer = world.raw(b"GET / HTTP/1.1\r\nHost: x\r\nX: ");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
}

/// Whatever a path, a method or a body is, it is refused clearly: no 5xx, no answer without its policy, no file from
/// elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn odd_requests_get_clear_refusals() {
    let world = World::new().await;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    let pieces = [
        "/",
        "api",
        "runs",
        "..",
        "%2e%2e",
        "%2f",
        "%00",
        "%ff",
        "page",
        "etc",
        "passwd",
        "@",
        "~",
        "*",
        "?",
        "limit=",
        "-1",
        "999999999999999999999",
        "ref=",
        "a/b",
        "%0d%0aX:%20y",
        "'; DROP",
        "<script>",
        "events",
        "after=",
        "plans",
        "execute",
        "index.html",
        "..%5c",
        "//",
        ".",
        "audit",
        "store",
        "check",
        "metrics",
        "%",
        "{",
        "\u{fc}",
    ];
    let methods = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"];
    let bodies =
        ["", "{}", "[", "null", "{\"act\":\"undo\"}", "{\"act\":\"x\"}", "{\"document\":1}", "\u{0}", "[[[[[[[["];
    for round in 0..600 {
        let path: String = (0..=next(5)).map(|_| pieces[next(pieces.len())]).collect();
        let path: String = format!("/{path}").chars().filter(|c| !matches!(c, ' ')).collect();
        let (method, body) = (methods[next(methods.len())], bodies[next(bodies.len())]);
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            world.address,
            world.token(LOOK),
            body.len()
        );
        let answer = world.raw(request.as_bytes());
        let status: u16 = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        // Hyper itself refuses what is no HTTP, with a bare 400.
        assert!((200..500).contains(&status), "{round}: {method} {path} {body}: {answer}");
        assert!(!answer.contains("root:"), "{path}");
        let is_bare = status == 400 && answer.ends_with("\r\n\r\n");
        assert!(is_bare || answer.contains("content-security-policy: default-src 'none'"), "{path}: {answer}");
        if status >= 400 && method != "HEAD" && !is_bare {
            assert!(answer.contains("application/problem+json"), "{method} {path}: {answer}");
        }
    }
    // The control: the same text reaches the server.
    let control = format!("GET /health HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", world.address);
    assert!(world.raw(control.as_bytes()).starts_with("HTTP/1.1 200"));
}

/// Others can't reach it unprotected, unless the operator says so.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_not_open_to_others_without_tls() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("work")).unwrap();
    let top = root.path().canonicalize().unwrap();
    let surroundings = Surroundings { folder: top.join("work"), home: Some(top.clone()), ..Surroundings::default() };
    let app = App::new(std::sync::Arc::new(Silent), surroundings, |_| None);
    let open = |without_tls| Options {
        listen: "0.0.0.0:0".parse().unwrap(),
        hosts: Vec::new(),
        tls: None,
        without_tls,
        config: None,
    };
    let Err(refusal) = Serving::bind(&app, open(false)).await else { panic!("it was bound") };
    assert_eq!(refusal.kind(), FailureKind::Refused);
    assert!(!top.join(".local").exists(), "a refusal leaves nothing behind");
    assert!(Serving::bind(&app, open(true)).await.is_ok());
}

/// With a certificate the connection is encrypted, the cookie is for such connections only, and plain text gets nothing.
#[tokio::test(flavor = "multi_thread")]
async fn tls_is_served_with_a_certificate() {
    let root = tempfile::tempdir().unwrap();
    let top = root.path().canonicalize().unwrap();
    std::fs::create_dir(top.join("work")).unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(top.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(top.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let surroundings = Surroundings { folder: top.join("work"), home: Some(top.clone()), ..Surroundings::default() };
    let app = App::new(std::sync::Arc::new(Silent), surroundings, |_| None);
    let tls = piton_server::Tls { certificate: top.join("cert.pem"), key: top.join("key.pem") };
    let options = Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        hosts: Vec::new(),
        tls: Some(tls.clone()),
        without_tls: false,
        config: None,
    };
    let serving = Serving::bind(&app, options.clone()).await.unwrap();
    let (link, url) = (serving.link().unwrap(), serving.url().to_owned());
    let address: std::net::SocketAddr = url.strip_prefix("https://").unwrap().parse().unwrap();
    let served = tokio::spawn(serving.serve(std::future::pending()));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let answer = tokio::task::spawn_blocking(move || {
        let mut client =
            rustls::ClientConnection::new(std::sync::Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let mut tls = rustls::Stream::new(&mut client, &mut stream);
        let path = link.strip_prefix(&url).unwrap();
        let host = address.to_string();
        write!(tls, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = tls.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    })
    .await
    .unwrap();
    assert!(answer.starts_with("HTTP/1.1 303") && answer.contains("; Secure"), "{answer}");
    assert!(answer.contains("strict-transport-security"), "{answer}");
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let mut bytes = Vec::new();
    let _ = plain.read_to_end(&mut bytes);
    assert!(!String::from_utf8_lossy(&bytes).contains("HTTP/"));
    served.abort();
    std::fs::write(&tls.key, "nothing").unwrap();
    let Err(failure) = Serving::bind(&app, options).await else { panic!("a key that is none was taken") };
    assert!(failure.message().contains("key.pem"), "{failure}");
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoiled {
    Token,
    NoToken,
    Role,
    Host,
    Origin,
    Method,
    Path,
    Query,
    Body,
    NoJson,
    Kind,
    Length,
}

impl Spoiled {
    const ALL: [Self; 12] = [
        Self::Token,
        Self::NoToken,
        Self::Role,
        Self::Host,
        Self::Origin,
        Self::Method,
        Self::Path,
        Self::Query,
        Self::Body,
        Self::NoJson,
        Self::Kind,
        Self::Length,
    ];

    /// The statuses that say it.
    fn refusals(self) -> &'static [u16] {
        match self {
            // After some wrong tokens there is no ear for more.
            Self::Token | Self::NoToken => &[401, 429],
            Self::Role | Self::Origin => &[403],
            Self::Host => &[421],
            Self::Method => &[405],
            Self::Path => &[404],
            Self::Query | Self::NoJson => &[400],
            // A body where there is none to be is too large.
            Self::Body => &[400, 413],
            Self::Kind => &[415],
            Self::Length => &[413],
        }
    }
}

/// A route, as its description has it.
struct Described {
    method: String,
    path: String,
    role: Option<String>,
    takes: bool,
}

impl Described {
    fn can_be(&self, spoiled: Spoiled) -> bool {
        match spoiled {
            Spoiled::Token | Spoiled::NoToken => self.role.is_some(),
            Spoiled::Role => self.role.as_deref().is_some_and(|role| role != "look"),
            Spoiled::Kind | Spoiled::NoJson => self.takes,
            _ => true,
        }
    }

    /// The request with these things wrong with it.
    fn request(&self, world: &World, spoiled: &[Spoiled]) -> String {
        let has = |one| spoiled.contains(&one);
        let address = world.address.to_string();
        let host = if has(Spoiled::Host) { "evil.example" } else { &address };
        let origin = if has(Spoiled::Origin) { "http://evil.example".to_owned() } else { world.url.clone() };
        let method = if has(Spoiled::Method) { "PATCH" } else { &self.method };
        let mut path = self.path.clone();
        if has(Spoiled::Path) {
            path.push_str("/none/of/it");
        }
        if has(Spoiled::Query) {
            path.push_str("?surprise=1");
        }
        let token = match () {
            () if has(Spoiled::NoToken) => String::new(),
            () if has(Spoiled::Token) => "Authorization: Bearer piton_operate_x\r\n".to_owned(),
            () => {
                let role = if has(Spoiled::Role) { LOOK } else { OPERATE };
                format!("Authorization: Bearer {}\r\n", world.token(role))
            }
        };
        let kind = if has(Spoiled::Kind) { "text/plain" } else { "application/json" };
        let body = match () {
            () if has(Spoiled::NoJson) => "{\"a\":",
            () if has(Spoiled::Body) => "{\"surprise\":1}",
            () if self.takes => "{}",
            () => "",
        };
        let length = if has(Spoiled::Length) { 1 << 40 } else { body.len() };
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n{token}Content-Type: {kind}\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    }
}

/// Every route with its token, role, host, origin, method, path, query or body spoiled, each alone and several at once: a
/// problem that says what is wrong, and nothing is done. The control: what isn't spoiled isn't refused so.
#[tokio::test(flavor = "multi_thread")]
async fn every_route_refuses_whatever_is_spoiled() {
    let world = World::new().await;
    world.run(GREETS, json!({ "name": "Ada" }), "r").await;
    let (_, described) = world.get("/api/openapi.json").await;
    let mut routes = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            routes.push(Described {
                method: method.to_ascii_uppercase(),
                path: path.replace("{run}", "r").replace("{id}", "plan-9"),
                role: operation["x-role"].as_str().map(str::to_owned),
                takes: operation.get("requestBody").is_some(),
            });
        }
    }
    assert!(routes.len() > 40, "{}", routes.len());
    let status = |answer: &str| -> u16 { answer.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0) };
    let refused = |route: &Described, spoiled: &[Spoiled], answer: &str| {
        let what = || format!("{} {} with {spoiled:?}: {answer}", route.method, route.path);
        let found = status(answer);
        assert!(spoiled.iter().any(|one| one.refusals().contains(&found)), "{}", what());
        assert!(answer.contains("content-type: application/problem+json"), "{}", what());
        assert!(answer.contains("content-security-policy: default-src 'none'"), "{}", what());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let problem: serde_json::Value =
            serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {}", what()));
        assert!(problem["title"].as_str().is_some_and(|title| title.len() > 8), "{}", what());
        assert_eq!(problem["status"], found, "{}", what());
        assert!([LOOK, OPERATE].iter().all(|role| !answer.contains(world.token(*role))), "{}", what());
    };
    let mut asked = 0;
    for route in &routes {
        for spoiled in Spoiled::ALL.into_iter().filter(|spoiled| route.can_be(*spoiled)) {
            refused(route, &[spoiled], &world.raw(route.request(&world, &[spoiled]).as_bytes()));
            asked += 1;
        }
    }
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    for _ in 0..600 {
        let route = &routes[next(routes.len())];
        let spoiled: Vec<_> = (0..=next(4))
            .map(|_| Spoiled::ALL[next(Spoiled::ALL.len())])
            .filter(|spoiled| route.can_be(*spoiled))
            .collect();
        if !spoiled.is_empty() {
            refused(route, &spoiled, &world.raw(route.request(&world, &spoiled).as_bytes()));
            asked += 1;
        }
    }
    assert!(asked > 900, "{asked}");
    let (_, runs) = world.get("/api/runs").await;
    assert_eq!(
        (runs["runs"].as_array().unwrap().len(), &runs["runs"][0]["status"]),
        (1, &json!("completed")),
        "{runs}"
    );
    let (_, audit) = world.get("/api/audit?limit=1000").await;
    for act in audit["acts"].as_array().unwrap() {
        let started = act["act"] == "start" && act["status"] == 202;
        assert!(started || act["status"].as_u64().is_some_and(|status| status >= 400), "{act}");
    }

    // The control.
    let refusals = [401, 403, 405, 413, 415, 421, 429];
    for route in &routes {
        let method = Method::from_bytes(route.method.as_bytes()).unwrap();
        let request = world.by(OPERATE, method, &route.path).header("origin", &world.url);
        let request = if route.takes { sending(request, &json!({})) } else { request };
        let found = request.send().await.unwrap().status().as_u16();
        let is_bare_sign_in = route.method == "POST" && route.path == "/api/session";
        assert!(is_bare_sign_in || !refusals.contains(&found), "{} {}: {found}", route.method, route.path);
    }
}
