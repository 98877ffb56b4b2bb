//! `piton export`: runs as a file on stdout.

use std::io::IsTerminal as _;

use piton_app::store::transfer::export;

use crate::arguments::store::Export;
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Export) -> Result<Exit, Failure> {
    if std::io::stdout().is_terminal() {
        return Err(
            Failure::usage("what is exported is no text").hint("write it to a file: `piton export RUN > run.piton`.")
        );
    }
    let mut file = export(session, &arguments.run).await?;
    let fail = |error| Failure::fixable("can't write to stdout").because(&error);
    let mut stdout = std::io::stdout().lock();
    std::io::copy(&mut file, &mut stdout).map_err(fail)?;
    std::io::Write::flush(&mut stdout).map_err(fail)?;
    Ok(Exit::Done)
}
