//! The table of routes, and what each request of the API passes: who asks, may they, what do they send, and, if it is an
//! act, is it written down.

mod acts;
mod debug;
mod live;
mod looks;
mod planned;
mod session;
mod table;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::routing::{MethodFilter, MethodRouter, on};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use piton_app::Failure;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value as Json;

use crate::gate::{self, Peer, Who};
use crate::page;
use crate::problem::Problem;
use crate::query::{self, Parameter, Query};
use crate::server::Server;
use crate::tokens::Role;

pub(crate) use table::TABLE;

/// How long a client may take for its body.
const BODY_TIME: Duration = Duration::from_secs(10);
/// How long a request waits for its turn.
const TURN: Duration = Duration::from_secs(10);
/// The parts of the page that are views of one file.
const VIEWS: [&str; 7] = ["/", "/runs", "/runs/{*rest}", "/files", "/files/{*rest}", "/store", "/start"];

/// What comes of a request.
pub(crate) type Answer = Result<Response<Body>, Problem>;
type Handled = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What a route takes.
#[derive(Clone, Copy)]
pub(crate) enum Taken {
    /// No body.
    Nothing,
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
}

/// A row of the table.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// Who may; none is needed where nothing is said.
    pub(crate) role: Option<Role>,
    /// What the audit log calls it, if it changes something.
    pub(crate) act: Option<&'static str>,
    pub(crate) about: &'static str,
    pub(crate) gives: &'static str,
    pub(crate) query: &'static [Parameter],
    pub(crate) takes: Taken,
    /// The most bytes that it takes.
    pub(crate) most: usize,
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) handler: fn(Call) -> Handled,
}

impl Route {
    /// A name that no other route has.
    pub(crate) fn name(&self) -> String {
        let path: String = self.path.trim_start_matches("/api/").chars().filter(|c| !matches!(c, '{' | '}')).collect();
        format!("{}_{}", self.method.as_str().to_ascii_lowercase(), path.replace(['/', '-', '.'], "_"))
    }
}

/// A request that may be done.
pub(crate) struct Call {
    pub(crate) server: Arc<Server>,
    /// Who asks; only routes for all have none.
    who: Option<Who>,
    /// Over HTTP, the other end of the connection.
    peer: Option<Peer>,
    path: Vec<(String, String)>,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    /// Who asks.
    pub(crate) fn who(&self) -> Result<Who, Problem> {
        self.who.ok_or_else(Problem::unauthenticated)
    }

    /// The other end of the connection.
    pub(crate) fn peer(&self) -> Result<Peer, Problem> {
        self.peer.ok_or_else(Problem::unauthenticated)
    }

    /// A call that doesn't come over HTTP, by a caller that is known.
    pub(crate) fn by(
        who: Who,
        server: Arc<Server>,
        path: Vec<(String, String)>,
        query: Query,
        body: impl Into<Bytes>,
    ) -> Self {
        Self { server, who: Some(who), peer: None, path, query, headers: HeaderMap::new(), body: body.into() }
    }

    /// Whether the client takes answers of this kind.
    pub(crate) fn accepts(&self, kind: &str) -> bool {
        self.headers.get(header::ACCEPT).is_some_and(|accept| accept.to_str().is_ok_and(|accept| accept.contains(kind)))
    }

    /// A part of the path as what it is.
    pub(crate) fn part<T: std::str::FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<T, Problem> {
        let text = self.path.iter().find(|(known, _)| known == name).map_or("", |(_, text)| text.as_str());
        query::parse(name, text)
    }

    /// The body as what the route takes.
    pub(crate) fn taken<T: serde::de::DeserializeOwned>(&self) -> Result<T, Problem> {
        query::body(&self.body)
    }
}

/// The routes as a router.
pub(crate) fn router(server: &Arc<Server>) -> Router {
    let mut router = Router::new();
    for route in TABLE {
        router = router.route(route.path, method(route, server));
    }
    for view in VIEWS {
        router =
            router.route(view, on(MethodFilter::GET, async |headers: HeaderMap| page::file("index.html", &headers)));
    }
    let file = async |path: RawPathParams, headers: HeaderMap| {
        let path = path.iter().next().map_or("", |(_, path)| path);
        page::file(path, &headers)
    };
    router
        .route("/page/{*path}", on(MethodFilter::GET, file))
        .fallback(async || Problem::not_found("there is nothing here").answer())
        .method_not_allowed_fallback(async || {
            let failure = Failure::usage("this isn't done with that method");
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", failure).answer()
        })
}

fn method(route: &'static Route, server: &Arc<Server>) -> MethodRouter {
    let server = Arc::clone(server);
    let filter = match route.method {
        Method::POST => MethodFilter::POST,
        Method::DELETE => MethodFilter::DELETE,
        _ => MethodFilter::GET,
    };
    on(
        filter,
        move |path: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>, request: Request| {
            let server = Arc::clone(&server);
            async move {
                let path = match path {
                    Ok(path) => path.iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect(),
                    Err(_) => return Problem::from(Failure::usage("the path is not Unicode")).answer(),
                };
                match done(route, server, path, request).await {
                    Ok(answer) => answer,
                    Err(problem) => problem.answer(),
                }
            }
        },
    )
}

/// Does what a request asks for, if it may be done.
async fn done(route: &'static Route, server: Arc<Server>, path: Vec<(String, String)>, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    let peer = *parts.extensions.get::<Peer>().ok_or_else(Problem::unauthenticated)?;
    let who = match route.role {
        None => None,
        Some(role) => {
            let who = gate::who(&server, &parts.method, &parts.headers, peer)?;
            may(who, role)?;
            Some(who)
        }
    };
    let query = Query::read(parts.uri.query().unwrap_or_default(), route.query)?;
    let body = sent(route, &parts.headers, body).await?;
    let call = Call { server, who, peer: Some(peer), path, query, headers: parts.headers, body };
    perform(route, call).await
}

/// Whether the caller has the role that is needed, or one that may do more.
fn may(who: Who, role: Role) -> Result<(), Problem> {
    if who.role < role {
        let (is, needs) = (who.role.as_str(), role.as_str());
        return Err(Problem::forbidden(format!("the role {is} may not do that; {needs} may")));
    }
    Ok(())
}

/// Does what a caller asks for who isn't known yet to have the role for it.
pub(crate) async fn perform_as(route: &'static Route, who: Who, call: Call) -> Answer {
    may(who, route.role.unwrap_or(Role::Operate))?;
    perform(route, call).await
}

/// Does what a route does, in its turn, and writes it down if it is an act.
async fn perform(route: &'static Route, call: Call) -> Answer {
    let server = Arc::clone(&call.server);
    let turn = tokio::time::timeout(TURN, server.work.acquire()).await;
    let Ok(Ok(_turn)) = turn else {
        let failure = Failure::refused("the server has too much to do");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", failure));
    };
    let answer = match route.act {
        None => (route.handler)(call).await,
        Some(act) => acted(act, route.handler, call).await,
    };
    if let Err(problem) = &answer
        && problem.doubts_store()
    {
        server.app.let_go().await;
    }
    answer
}

/// Does an act between two lines of the audit log. It is a task of its own: a client that goes away doesn't end it halfway.
async fn acted(act: &'static str, handler: fn(Call) -> Handled, call: Call) -> Answer {
    let (server, who) = (Arc::clone(&call.server), call.who()?);
    let (at, from) = (server.app.now().to_string(), who.from.to_string());
    let subject: String = call.path.first().map_or("", |(_, text)| text.as_str()).chars().take(200).collect();
    let begun = server
        .audit
        .begin(at, act, who.role.as_str(), &from, &subject)
        .map_err(|failure| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", failure))?;
    let task = tokio::spawn(async move {
        let answer = handler(call).await;
        let (status, detail) = match &answer {
            Ok(answer) => (answer.status(), None),
            Err(problem) => (problem.status(), problem.object()["title"].as_str().map(str::to_owned)),
        };
        if let Err(failure) = server.audit.end(&begun, status.as_u16(), detail.as_deref()) {
            server.app.warn(&failure.message());
        }
        answer
    });
    task.await.unwrap_or_else(|error| Err(Failure::internal("an act has panicked").because(&error).into()))
}

/// The body, if it is what the route takes.
async fn sent(route: &Route, headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let most = match route.takes {
        Taken::Nothing => 0,
        Taken::Json(_) => {
            let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            let kind = kind.split(';').next().unwrap_or_default().trim();
            if !kind.eq_ignore_ascii_case("application/json") {
                let failure = Failure::usage("the body is sent as `application/json`");
                return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", failure));
            }
            route.most
        }
    };
    let too_large = || {
        let failure = Failure::usage(format!("the body has more than {most} bytes"));
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", failure)
    };
    let said = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if said.is_some_and(|said| said > most) {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_TIME, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::from(Failure::usage("the body was cut short"))),
        Err(_) => {
            let failure = Failure::usage("the body took too long");
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", failure))
        }
    }
}

/// A view as an answer.
pub(crate) fn view(view: &impl Serialize) -> Answer {
    answer(StatusCode::OK, &as_json(view)?)
}

/// A view as JSON, to which more can be added.
pub(crate) fn as_json(view: &impl Serialize) -> Result<Json, Problem> {
    serde_json::to_value(view).map_err(|error| Failure::internal("a view has no JSON form").because(&error).into())
}

/// JSON as an answer.
pub(crate) fn answer(status: StatusCode, json: &Json) -> Answer {
    let mut answer = Response::new(Body::from(json.to_string()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

/// An answer that says nothing more.
pub(crate) fn nothing() -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Promise 27: each route that changes something has a role, and a name in the audit log.
    #[test]
    fn acts_are_audited_and_looks_are_not_open_to_all() {
        let open: Vec<_> = TABLE.iter().filter(|route| route.role.is_none()).map(|route| route.path).collect();
        assert_eq!(open, ["/sign-in", "/api/session", "/api/session", "/api/session", "/health"]);
        for route in TABLE.iter().filter(|route| route.role.is_some()) {
            let looks = route.method == Method::GET || route.path == "/api/documents/check";
            assert_eq!(route.act.is_none(), looks, "{}", route.path);
            let is_for_operators = !looks && route.act != Some("answer") || route.path == "/api/audit";
            assert_eq!(route.role == Some(Role::Operate), is_for_operators, "{}", route.path);
        }
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = TABLE.iter().map(Route::name).collect();
        assert_eq!(names.len(), TABLE.len());
    }
}
