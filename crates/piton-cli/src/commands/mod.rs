//! The verbs, one per file. Each is given the session and its own arguments, writes its data, and says
//! how the program ends.

mod diff;
mod init;
mod log;
mod resume;
mod run;
mod show;

use crate::arguments::Verb;
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Does what was asked.
pub(crate) async fn execute(session: &Session, verb: Verb) -> Result<Exit, Failure> {
    match verb {
        Verb::Init(arguments) => init::execute(session, &arguments).await,
        Verb::Log(arguments) => log::execute(session, &arguments).await,
        Verb::Show(arguments) => show::execute(session, &arguments).await,
        Verb::Diff(arguments) => diff::execute(session, &arguments).await,
        Verb::Run(arguments) => run::execute(session, arguments).await,
        Verb::Resume(arguments) => resume::execute(session, &arguments).await,
    }
}
