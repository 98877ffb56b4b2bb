//! `piton reference`: the parts of the book that follow from the code, so that they can't say anything else.

mod commands;
mod configuration;

use crate::arguments::first_use::{Part, ReferenceBook};
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) fn execute(session: &Session, arguments: &ReferenceBook) -> Result<Exit, Failure> {
    let text = match arguments.part {
        Part::Commands => commands::markdown(),
        Part::Configuration => configuration::markdown(),
        Part::Schema => format!("{:#}", configuration::schema()),
    };
    session.output.data(text.trim_end())?;
    Ok(Exit::Done)
}
