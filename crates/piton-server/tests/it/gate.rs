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
