//! `piton mcp`: tools for the agent that started it, until it closes the pipes.

use piton_server::{Role, serve_pipe};

use crate::arguments::scale::Mcp;
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: Mcp) -> Result<Exit, Failure> {
    let Mcp { role, config } = arguments;
    let role = Role::named(&role).ok_or_else(|| Failure::usage("a role is look, answer or operate"))?;
    serve_pipe(session, (tokio::io::stdin(), tokio::io::stdout()), role, config).await?;
    Ok(Exit::Done)
}
