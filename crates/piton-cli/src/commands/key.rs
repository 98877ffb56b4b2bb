//! `piton key rotate`: another key for an encrypted store. No record is touched.

use piton_app::store::init::rotate_key;

use crate::arguments::{KeyArguments, KeyVerb};
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &KeyArguments) -> Result<Exit, Failure> {
    let KeyVerb::Rotate(arguments) = &arguments.verb;
    let (rotated, made) = rotate_key(session, arguments.new_key_file.as_deref()).await?;
    let output = &session.output;
    match output.is_json() {
        true => output.view(&rotated)?,
        false => output.data("the store has another key; the old one opens it no longer")?,
    }
    if let (true, Some(path)) = (made, &arguments.new_key_file) {
        output.note(&format!("{} is new. Without it the store can't be read: keep a copy elsewhere.", path.display()));
    }
    output.note("Copies from before are still opened by the old key, and its traces may stay on the disk for a while.");
    Ok(Exit::Done)
}
