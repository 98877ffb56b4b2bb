//! What every request passes before its body is read: is the server meant (`Host`), is the page that asks its own
//! (`Origin`), who asks, and how often. And what every answer has: a policy by which a browser runs nothing but the
//! server's own scripts.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use piton_app::Failure;
use tower_service::Service as _;

use crate::problem::Problem;
use crate::server::Server;
use crate::tokens::Role;

/// The cookie.
pub(crate) const COOKIE: &str = "piton";
/// The longest address of a request.
const TARGET: usize = 8 << 10;
/// Requests of one client at once, and how many are added each second.
const BURST: f64 = 2000.0;
const PER_SECOND: f64 = 1000.0;
/// Wrong tokens of one client at once, and how many are added each second.
const WRONG_BURST: f64 = 10.0;
const WRONG_PER_SECOND: f64 = 10.0 / 60.0;
/// Clients that are told apart.
const CLIENTS: usize = 4096;

/// Scripts, styles and connections of the server itself, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// From where a call comes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum From {
    Address(IpAddr),
    /// The program that started this one and holds the other ends of its pipes.
    Pipe,
}

impl std::fmt::Display for From {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Pipe => f.write_str("pipe"),
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who {
    pub(crate) role: Role,
    pub(crate) from: From,
}

impl Who {
    /// For the audit log and the logs of runs.
    pub(crate) fn name(self) -> String {
        format!("{} at {}", self.role.as_str(), self.from)
    }
}

/// Who is let in.
pub(crate) struct Gate {
    port: u16,
    names: Vec<String>,
    requests: Rates,
    wrong: Rates,
}

impl Gate {
    /// For a server at this address that may also be called by these names.
    pub(crate) fn new(address: SocketAddr, hosts: &[String]) -> Result<Self, Failure> {
        let mut names = vec![with_port("localhost", address.port())];
        for host in hosts {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
            if host.is_empty() || !host.chars().all(is_part) {
                return Err(Failure::usage(format!("{host:?} is no name of a host")));
            }
            // Without a port both are meant: ours, and that of a proxy in front of it.
            names.push(host.to_ascii_lowercase());
            names.push(with_port(host, address.port()).to_ascii_lowercase());
        }
        Ok(Self {
            port: address.port(),
            names,
            requests: Rates::new(BURST, PER_SECOND),
            wrong: Rates::new(WRONG_BURST, WRONG_PER_SECOND),
        })
    }

    /// Whether a `Host` means this server. A page elsewhere can point a name of its own at our address, but not an
    /// address: so addresses are let in, and of names only ours.
    fn is_ours(&self, host: &str) -> bool {
        host.parse::<SocketAddr>().is_ok_and(|address| address.port() == self.port)
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }

    fn check(&self, request: &Request<Incoming>, peer: Peer) -> Result<(), Problem> {
        if !self.requests.take(peer.0.ip()) {
            return Err(too_many("more requests than one client may send"));
        }
        if request.uri().to_string().len() > TARGET {
            let failure = Failure::usage("the address is too long");
            return Err(Problem::new(StatusCode::URI_TOO_LONG, "usage", failure));
        }
        let headers = request.headers();
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(Ok(host)), None) = (hosts.next().map(HeaderValue::to_str), hosts.next()) else {
            return Err(Problem::from(Failure::usage("a request names its host once")));
        };
        // An absolute address would name a host of its own.
        if request.uri().authority().is_some() || !self.is_ours(host) {
            let failure = Failure::refused("the request is for another host")
                .hint("`piton serve --host NAME` lets a name in, beside the address and localhost.");
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "forbidden", failure));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let is_own = |origin: &HeaderValue| {
            let authority = origin
                .to_str()
                .ok()
                .and_then(|text| text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")));
            authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
        };
        if !origins.all(is_own) {
            return Err(Problem::forbidden("the request comes from a page of another site"));
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let path = request.uri().path();
        let is_page = is_read && !path.starts_with("/api/") && !matches!(path, "/metrics" | "/mcp");
        if let Some(site) = headers.get("sec-fetch-site")
            && !is_page
            && !matches!(site.as_bytes(), b"same-origin" | b"none")
        {
            return Err(Problem::forbidden("the request comes from a page of another site"));
        }
        Ok(())
    }

    /// Counts a wrong token.
    pub(crate) fn wrong_token(&self, peer: IpAddr) -> Problem {
        match self.wrong.take(peer) {
            true => Problem::unauthenticated(),
            false => too_many("too many wrong tokens; wait a minute"),
        }
    }
}

/// Who asks, by token or cookie.
pub(crate) fn who(server: &Server, method: &Method, headers: &HeaderMap, peer: Peer) -> Result<Who, Problem> {
    let (door, peer) = (server.door()?, peer.0.ip());
    let from = From::Address(peer);
    if let Some(given) = headers.get(header::AUTHORIZATION) {
        let token = given.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
        return match token.and_then(|token| door.tokens.role_of(token.trim())) {
            Some(role) => Ok(Who { role, from }),
            None => Err(door.gate.wrong_token(peer)),
        };
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut ours = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE).then_some(value)
    });
    let role = ours.find_map(|cookie| door.tokens.role_of_cookie(cookie)).ok_or_else(Problem::unauthenticated)?;
    // A browser that acts says for which page it does.
    if !matches!(*method, Method::GET | Method::HEAD) && !headers.contains_key(header::ORIGIN) {
        return Err(Problem::forbidden("a request with a cookie that changes something has an Origin"));
    }
    Ok(Who { role, from })
}

fn too_many(message: &str) -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many", Failure::refused(message))
}

/// A request on its way in and its answer on its way out.
pub(crate) async fn pass(
    server: Arc<Server>,
    mut router: Router,
    mut request: Request<Incoming>,
    peer: Peer,
) -> Response<Body> {
    let checked = server.door().map_err(Problem::from).and_then(|door| door.gate.check(&request, peer));
    let mut answer = match checked {
        Err(problem) => problem.answer(),
        Ok(()) => {
            request.extensions_mut().insert(peer);
            match router.call(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            }
        }
    };
    server.counts.answered(answer.status());
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if server.door.as_ref().is_some_and(|door| door.is_secure) {
        let value = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, value);
    }
    answer
}

/// A name with this port, unless it has one.
pub(crate) fn with_port(host: &str, port: u16) -> String {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && port.parse::<u16>().is_ok());
    if has_port { host.to_owned() } else { format!("{host}:{port}") }
}

/// How much of what each client has done lately.
struct Rates {
    burst: f64,
    per_second: f64,
    left: Mutex<HashMap<IpAddr, (f64, Instant)>>,
}

impl Rates {
    fn new(burst: f64, per_second: f64) -> Self {
        Self { burst, per_second, left: Mutex::default() }
    }

    /// Takes one, if the client has one left.
    fn take(&self, client: IpAddr) -> bool {
        let now = Instant::now();
        let mut clients = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= CLIENTS {
            // A client that did nothing for a while has all of its own again.
            clients
                .retain(|_, (left, at)| *left + now.duration_since(*at).as_secs_f64() * self.per_second < self.burst);
            if clients.len() >= CLIENTS {
                return false;
            }
        }
        let (left, at) = clients.entry(client).or_insert((self.burst, now));
        *left = (*left + now.duration_since(*at).as_secs_f64() * self.per_second).min(self.burst);
        *at = now;
        let is_left = *left >= 1.0;
        if is_left {
            *left -= 1.0;
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_own_names_are_ours() {
        let gate = Gate::new("127.0.0.1:7433".parse().unwrap(), &["piton.example".to_owned()]).unwrap();
        for ours in
            ["127.0.0.1:7433", "[::1]:7433", "localhost:7433", "LOCALHOST:7433", "piton.example", "piton.example:7433"]
        {
            assert!(gate.is_ours(ours), "{ours}");
        }
        for other in [
            "",
            "127.0.0.1",
            "127.0.0.1:80",
            "localhost",
            "evil.example",
            "evil.example:7433",
            "localhost:7433.evil.example",
            "piton.example.evil",
            "127.0.0.1:7433@evil",
        ] {
            assert!(!gate.is_ours(other), "{other}");
        }
        assert!(Gate::new("127.0.0.1:1".parse().unwrap(), &["a b".to_owned()]).is_err());
    }

    #[test]
    fn a_client_has_so_many_and_others_have_theirs() {
        let rates = Rates::new(3.0, 0.0);
        let [a, b] = ["127.0.0.1", "127.0.0.2"].map(|ip| ip.parse().unwrap());
        assert_eq!([a, a, a, a, b].map(|client| rates.take(client)), [true, true, true, false, true]);
    }
}
