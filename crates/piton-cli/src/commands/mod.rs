//! The verbs, one per file. Each is given the session and its own arguments, writes its data, and says
//! how the program ends.

mod answer;
mod cancel;
mod check;
mod checkpoint;
mod completions;
mod copy;
mod demo;
mod diff;
mod doctor;
mod drift;
mod events;
mod export;
mod file_diff;
mod fork;
mod gc;
mod graph;
mod guard;
mod hook;
mod import;
mod init;
mod key;
mod lease;
mod log;
mod ls;
mod merge_file;
mod path_log;
mod reference;
mod restore;
mod restore_state;
mod resume;
mod retry;
mod run;
mod run_diff;
mod save;
mod show;
mod status;
mod stop;
mod test;
mod undo;
mod validate;

use crate::arguments::Verb;
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Does what was asked.
pub(crate) async fn execute(session: &Session, verb: Verb) -> Result<Exit, Failure> {
    match verb {
        Verb::Guard(arguments) => guard::execute(session, arguments).await,
        Verb::Hook(arguments) => hook::execute(session, arguments).await,
        Verb::Save(arguments) => save::execute(session, &arguments).await,
        Verb::Status(arguments) => status::execute(session, &arguments).await,
        Verb::Undo(arguments) => undo::undo(session, &arguments).await,
        Verb::Redo(arguments) => undo::redo(session, &arguments).await,
        Verb::Restore(arguments) if arguments.state => restore_state::execute(session, &arguments).await,
        Verb::Restore(arguments) => restore::execute(session, &arguments).await,
        Verb::Drift(arguments) => drift::execute(session, arguments).await,
        Verb::Lease(arguments) => lease::execute(session, arguments).await,
        Verb::MergeFile(arguments) => Ok(merge_file::execute(session, &arguments)),
        Verb::Checkpoint(arguments) => checkpoint::execute(session, arguments).await,
        Verb::Init(arguments) => init::execute(session, &arguments).await,
        Verb::Key(arguments) => key::execute(session, &arguments).await,
        Verb::Doctor(_) => doctor::execute(session).await,
        Verb::Demo(arguments) => demo::execute(session, &arguments).await,
        Verb::ReferenceBook(arguments) => reference::execute(session, &arguments),
        Verb::Ls(arguments) => ls::execute(session, &arguments).await,
        Verb::Log(arguments) => log::execute(session, &arguments).await,
        Verb::Show(arguments) => show::execute(session, &arguments).await,
        Verb::Diff(arguments) => diff::execute(session, &arguments).await,
        Verb::Events(arguments) => events::execute(session, &arguments).await,
        Verb::Run(arguments) => run::execute(session, arguments).await,
        Verb::Validate(arguments) => validate::execute(session, arguments).await,
        Verb::Graph(arguments) => graph::execute(session, arguments).await,
        Verb::Test(arguments) => test::execute(session, arguments).await,
        Verb::Resume(arguments) => resume::execute(session, &arguments).await,
        Verb::Answer(arguments) => answer::execute(session, arguments).await,
        Verb::Retry(arguments) => retry::execute(session, &arguments).await,
        Verb::Fork(arguments) => fork::execute(session, arguments).await,
        Verb::Stop(arguments) => stop::execute(session, &arguments).await,
        Verb::Cancel(arguments) => cancel::execute(session, &arguments).await,
        Verb::Completions(arguments) => completions::execute(session, &arguments),
        Verb::Gc(arguments) => gc::execute(session, &arguments).await,
        Verb::Check(arguments) => check::execute(session, &arguments).await,
        Verb::Copy(arguments) => copy::execute(session, &arguments).await,
        Verb::Export(arguments) => export::execute(session, &arguments).await,
        Verb::Import(arguments) => import::execute(session, &arguments).await,
    }
}
