//! `piton init`: makes the store of a folder if there is none, and says where it is.

use serde_json::json;

use crate::arguments::Init;
use crate::failure::{Exit, Failure};
use crate::place::{Found, Origin};
use crate::session::Session;
use crate::table;

pub(crate) async fn execute(session: &Session, arguments: &Init) -> Result<Exit, Failure> {
    let Session { output, surroundings, .. } = session;
    let before = surroundings.find()?;
    let place = if arguments.here {
        surroundings.create_here()?
    } else {
        surroundings.find_or_create(&session.now().to_string())?
    };
    let store = session.open(&place, true).await?;
    let usage = store.usage().await?;
    let url = store.url();
    store.close().await?;

    if output.is_json() {
        output.object(&json!({
            "store": url,
            "location": location(place.origin),
            "bytes": usage.bytes,
            "runs": usage.runs,
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

/// The word that programs get for why the store is where it is.
fn location(origin: Origin) -> &'static str {
    match origin {
        Origin::Option => "option",
        Origin::Variable => "variable",
        Origin::Here => "here",
        Origin::State => "state",
    }
}
