//! The verbs, one per file. Each is given the session and its own arguments, writes its data, and says
//! how the program ends.

mod answer;
mod cancel;
mod check;
mod checkpoint;
mod completions;
mod copy;
pub(crate) mod debug;
mod demo;
mod diff;
mod doctor;
mod drift;
mod events;
mod export;
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
mod mcp;
mod merge_file;
mod reference;
mod restore;
mod restore_state;
mod resume;
mod retry;
mod run;
mod save;
mod serve;
mod show;
mod status;
mod stop;
mod store;
mod submit;
mod test;
mod undo;
mod validate;
mod worker;

use crate::arguments::Verb;
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Does what was asked. The futures of the verbs are boxed: else all of them would be one.
pub(crate) async fn execute(session: &Session, verb: Verb) -> Result<Exit, Failure> {
    match verb {
        Verb::Guard(arguments) => Box::pin(guard::execute(session, arguments)).await,
        Verb::Hook(arguments) => Box::pin(hook::execute(session, arguments)).await,
        Verb::Save(arguments) => Box::pin(save::execute(session, &arguments)).await,
        Verb::Status(arguments) => Box::pin(status::execute(session, &arguments)).await,
        Verb::Undo(arguments) => Box::pin(undo::undo(session, &arguments)).await,
        Verb::Redo(arguments) => Box::pin(undo::redo(session, &arguments)).await,
        Verb::Restore(arguments) if arguments.state => Box::pin(restore_state::execute(session, &arguments)).await,
        Verb::Restore(arguments) => Box::pin(restore::execute(session, &arguments)).await,
        Verb::Drift(arguments) => Box::pin(drift::execute(session, arguments)).await,
        Verb::Lease(arguments) => Box::pin(lease::execute(session, arguments)).await,
        Verb::MergeFile(arguments) => Ok(merge_file::execute(session, &arguments)),
        Verb::Checkpoint(arguments) => Box::pin(checkpoint::execute(session, arguments)).await,
        Verb::Init(arguments) => Box::pin(init::execute(session, &arguments)).await,
        Verb::Key(arguments) => Box::pin(key::execute(session, &arguments)).await,
        Verb::Doctor(_) => Box::pin(doctor::execute(session)).await,
        Verb::Demo(arguments) => Box::pin(demo::execute(session, &arguments)).await,
        Verb::ReferenceBook(arguments) => reference::execute(session, &arguments),
        Verb::Ls(arguments) => Box::pin(ls::execute(session, &arguments)).await,
        Verb::Log(arguments) => Box::pin(log::execute(session, &arguments)).await,
        Verb::Show(arguments) => Box::pin(show::execute(session, &arguments)).await,
        Verb::Diff(arguments) => Box::pin(diff::execute(session, &arguments)).await,
        Verb::Events(arguments) => Box::pin(events::execute(session, &arguments)).await,
        Verb::Run(arguments) => Box::pin(run::execute(session, arguments)).await,
        Verb::Validate(arguments) => Box::pin(validate::execute(session, arguments)).await,
        Verb::Graph(arguments) => Box::pin(graph::execute(session, arguments)).await,
        Verb::Test(arguments) => Box::pin(test::execute(session, arguments)).await,
        Verb::Submit(arguments) => Box::pin(submit::execute(session, arguments)).await,
        Verb::Serve(arguments) => Box::pin(serve::execute(session, arguments)).await,
        Verb::Mcp(arguments) => Box::pin(mcp::execute(session, arguments)).await,
        Verb::Worker(arguments) => Box::pin(worker::execute(session, arguments)).await,
        Verb::Resume(arguments) => Box::pin(resume::execute(session, &arguments)).await,
        Verb::Answer(arguments) => Box::pin(answer::execute(session, arguments)).await,
        Verb::Retry(arguments) => Box::pin(retry::execute(session, &arguments)).await,
        Verb::Fork(arguments) => Box::pin(fork::execute(session, arguments)).await,
        Verb::Stop(arguments) => Box::pin(stop::execute(session, &arguments)).await,
        Verb::Cancel(arguments) => Box::pin(cancel::execute(session, &arguments)).await,
        Verb::Debug(arguments) => Box::pin(debug::execute(session, arguments)).await,
        Verb::Completions(arguments) => completions::execute(session, &arguments),
        Verb::Gc(arguments) => Box::pin(gc::execute(session, &arguments)).await,
        Verb::Store(arguments) => Box::pin(store::execute(session, arguments)).await,
        Verb::Check(arguments) => Box::pin(check::execute(session, &arguments)).await,
        Verb::Copy(arguments) => Box::pin(copy::execute(session, &arguments)).await,
        Verb::Export(arguments) => Box::pin(export::execute(session, &arguments)).await,
        Verb::Import(arguments) => Box::pin(import::execute(session, &arguments)).await,
    }
}
