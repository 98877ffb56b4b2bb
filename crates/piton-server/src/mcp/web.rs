//! Agents over HTTP, at `/mcp`, behind the same door as every other request.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use http_body_util::BodyExt as _;
use piton_app::Failure;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use super::Tools;
use crate::gate::{self, Peer};
use crate::problem::Problem;
use crate::server::Server;

/// The most bytes of a message.
const MESSAGE: usize = 4 << 20;

/// The router with `/mcp` in it.
pub(crate) fn service(router: Router, server: &Arc<Server>) -> Result<Router, Failure> {
    // Host and Origin were checked at the door.
    let config = StreamableHttpServerConfig::default().disable_allowed_hosts().with_max_request_body_bytes(MESSAGE);
    let tools = Tools::new(server, None)?;
    let service =
        StreamableHttpService::new(move || Ok(tools.clone()), Arc::new(LocalSessionManager::default()), config);
    let server = Arc::clone(server);
    Ok(router.route(
        "/mcp",
        any(move |mut request: Request| {
            let (service, server) = (service.clone(), Arc::clone(&server));
            async move {
                match admitted(&server, &mut request) {
                    Ok(()) => service.handle(request).await.map(|body| Body::new(body.map_err(|never| match never {}))),
                    Err(problem) => problem.answer(),
                }
            }
        }),
    ))
}

/// Notes who asks, for the tools.
fn admitted(server: &Server, request: &mut Request) -> Result<(), Problem> {
    let peer = *request.extensions().get::<Peer>().ok_or_else(Problem::unauthenticated)?;
    let who = gate::who(server, request.method(), request.headers(), peer)?;
    request.extensions_mut().insert(who);
    Ok(())
}
