//! `piton init`: makes the store of a folder if there is none, and says where it is.

use std::sync::Arc;

use piton::SystemRandom;
use piton_store::{EncryptedStore, Store};
use serde_json::json;

use crate::arguments::Init;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::table;
use piton_app::place::keys::read_or_make;
use piton_app::place::{Found, Origin, Place};

pub(crate) async fn execute(session: &Session, arguments: &Init) -> Result<Exit, Failure> {
    let (output, surroundings) = (&session.output, &session.surroundings);
    if !arguments.encrypt {
        session.wants_none_in_clear().await?;
        if arguments.here && surroundings.keys.option.is_some() && !surroundings.has_store_here() {
            return Err(session.no_store_for_a_key());
        }
    }
    let before = surroundings.find()?;
    let place = if arguments.here {
        surroundings.create_here()?
    } else {
        surroundings.find_or_create(&session.now().to_string())?
    };
    let encrypted = match arguments.encrypt {
        true => encrypt(session, arguments, &place).await?,
        false => None,
    };
    let store = match encrypted {
        Some(store) => store,
        None => session.open(&place, true).await?,
    };
    let usage = store.usage().await?;
    let url = store.url();
    let encrypted = store.hashing().is_keyed();
    store.close().await?;

    if output.is_json() {
        output.object(&json!({
            "store": url,
            "location": location(place.origin),
            "bytes": usage.bytes,
            "runs": usage.runs,
            "encrypted": encrypted,
        }))?;
    } else {
        output.data(&format!("store  {url}\nsize   {}\nruns   {}", table::size(usage.bytes), usage.runs))?;
    }
    if arguments.here {
        output.note("It is inside the folder: git ignores it, but `git clean -fdx` and `rm -rf` take it away.");
        if let Found::Place(old) = before
            && old.origin == Origin::State
        {
            output.warn(&format!("the runs so far stay in {0}; look at them with `--store {0}`", old.url));
        }
    }
    Ok(Exit::Done)
}

/// Turns encryption on in the new store. `None` if it is on already.
async fn encrypt(session: &Session, arguments: &Init, place: &Place) -> Result<Option<Arc<dyn Store>>, Failure> {
    let keys = &session.surroundings.keys;
    if !arguments.passphrase && keys.named_file().is_none() {
        return Err(Failure::usage("--encrypt needs a key")
            .hint("name a file for it with `--key-file FILE` (made if it isn't there), or say `--passphrase`."));
    }
    // Looked at before a key file is made; and a store is made only when there is a key.
    if let Ok(below) = session.open_below(place, false).await {
        if piton_store::is_encrypted(&*below).await? {
            return Ok(None);
        }
        if below.usage().await?.runs > 0 {
            return Err(Failure::refused(format!("{} holds runs that aren't encrypted", below.url()))
                .hint("make a new store with `--store URL --encrypt`, and copy them there."));
        }
    }
    let key = match keys.named_file() {
        Some(path) if !arguments.passphrase => {
            let (key, made) = read_or_make(path)?;
            if made {
                let shown = path.display();
                session.output.note(&format!(
                    "{shown} is the new key. Without it the store can't be read: keep a copy elsewhere."
                ));
            }
            key
        }
        _ => keys.new_passphrase(session.shell())?,
    };
    let below = session.open_below(place, true).await?;
    Ok(Some(Arc::new(EncryptedStore::create(below, &key, Arc::new(SystemRandom)).await?)))
}

/// The word that programs get for why the store is where it is.
fn location(origin: Origin) -> &'static str {
    match origin {
        Origin::Option => "option",
        Origin::Variable => "variable",
        Origin::Here => "here",
        Origin::State => "state",
    }
}
