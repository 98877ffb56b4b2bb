//! `piton completions SHELL`: verbs, options and their values, for a shell to complete.

use clap::CommandFactory as _;

use crate::arguments::{Arguments, Completions};
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) fn execute(session: &Session, arguments: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    // What could be completed behind `help` would be all verbs once more.
    let mut command = Arguments::command().disable_help_subcommand(true);
    clap_complete::generate(arguments.shell, &mut command, "piton", &mut script);
    session.output.data(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
