//! `piton key rotate`: another key for an encrypted store. No record is touched.

use std::sync::Arc;

use piton_store::{EncryptedStore, StoreError};
use serde_json::json;

use crate::arguments::{KeyArguments, KeyVerb};
use crate::failure::{Exit, Failure};
use crate::session::Session;
use piton_app::place::Found;
use piton_app::place::keys::read_or_make;

pub(crate) async fn execute(session: &Session, arguments: &KeyArguments) -> Result<Exit, Failure> {
    let KeyVerb::Rotate(arguments) = &arguments.verb;
    let Found::Place(place) = session.surroundings.find()? else { return Err(session.no_store()) };
    let store = session.open_below(&place, false).await?;
    if !piton_store::is_encrypted(&*store).await? {
        return Err(Failure::fixable(format!("{} isn't encrypted", store.url()))
            .hint("`piton init --encrypt` makes a new store that is."));
    }
    let old = session.surroundings.keys.key(session.shell())?;
    let (new, made) = match &arguments.new_key_file {
        Some(path) => read_or_make(path)?,
        None => (session.surroundings.keys.new_passphrase(session.shell())?, false),
    };
    if !made {
        // Whatever opens the store before it is rotated would still open it afterwards.
        match EncryptedStore::open(Arc::clone(&store), &new, Arc::new(piton::SystemRandom)).await {
            Ok(_) => {
                return Err(Failure::fixable("the new key opens the store already, and nothing was changed").hint(
                    match &arguments.new_key_file {
                        Some(_) => {
                            "name a file that isn't there yet with `--new-key-file FILE`: a new key is made in it."
                        }
                        None => {
                            "unset PITON_PASSPHRASE to be asked for both passphrases on a terminal; without one, give \
                             the old one by PITON_KEY_COMMAND and the new one in PITON_PASSPHRASE."
                        }
                    },
                ));
            }
            Err(StoreError::Locked { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    EncryptedStore::rotate(&*store, &old, &new, &piton::SystemRandom).await?;
    let url = store.url();
    store.close().await?;
    if session.output.is_json() {
        session.output.object(&json!({"store": url, "rotated": true}))?;
    } else {
        session.output.data("the store has another key; the old one opens it no longer")?;
    }
    if let (true, Some(path)) = (made, &arguments.new_key_file) {
        session
            .output
            .note(&format!("{} is new. Without it the store can't be read: keep a copy elsewhere.", path.display()));
    }
    session
        .output
        .note("Copies from before are still opened by the old key, and its traces may stay on the disk for a while.");
    Ok(Exit::Done)
}
