//! One agent, over the pipes of this process: it is started by the agent and ends with it.

use std::path::PathBuf;
use std::sync::Arc;

use piton_app::place::private;
use piton_app::{App, Failure};
use rmcp::ServiceExt as _;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Tools;
use crate::audit::Audit;
use crate::gate::{From, Who};
use crate::server::{GRACE, Server};
use crate::tokens::Role;

/// Serves the agent at the other ends of two pipes, until it closes them. What it may do is what the role may; models,
/// credentials and limits of runs that it starts are those of `config`.
///
/// # Errors
///
/// If the audit log can't be opened, the configuration can't be read, or what comes in is no such protocol.
pub async fn serve_pipe(
    app: &App,
    pipes: (impl AsyncRead + Send + Unpin + 'static, impl AsyncWrite + Send + Unpin + 'static),
    role: Role,
    config: Option<PathBuf>,
) -> Result<(), Failure> {
    let folder = app.surroundings.state()?.join("server");
    private::create(&folder)?;
    let audit = Audit::open(&folder)?;
    let shell = app.shared_shell();
    let server = Arc::new(Server::new(app.holding(shell), None, audit, None, config));
    let tools = Tools::new(&server, Some(Who { role, from: From::Pipe }))?;
    let running = tools.serve(pipes).await.map_err(|error| {
        Failure::usage("the program at the other end doesn't speak the Model Context Protocol")
            .because(&error)
            .hint("`piton mcp` is started by an agent: name it as a server in the agent's configuration.")
    })?;
    let ended = running.waiting().await;
    server.drives.stop_all(GRACE).await;
    ended.map(drop).map_err(|error| Failure::internal("serving the agent has panicked").because(&error))
}
