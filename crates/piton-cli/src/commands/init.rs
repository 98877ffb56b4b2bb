//! `piton init`: makes the store of a folder if there is none, and says where it is.

use piton_app::store::init::{Adopting, MakeStore, init};

use crate::arguments::Init;
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::table;

pub(crate) async fn execute(session: &Session, arguments: &Init) -> Result<Exit, Failure> {
    let Init { here, adopt, consent, encrypt, passphrase } = *arguments;
    if adopt {
        match Adopting::plan(session).await? {
            Some(adopting) if agreed(&adopting.plan, session, consent)? => adopting.carry_out(session)?,
            Some(_) => return Ok(Exit::Done),
            None => session.output.note("nothing to do: it is yours already"),
        }
    }
    let made = init(session, MakeStore { here, encrypt, passphrase }).await?;
    let output = &session.output;
    if output.is_json() {
        output.view(&made)?;
    } else {
        output.data(&format!("store  {}\nsize   {}\nruns   {}", made.store, table::size(made.bytes), made.runs))?;
    }
    if here {
        output.note("It is inside the folder: git ignores it, but `git clean -fdx` and `rm -rf` take it away.");
    }
    if let Some(old) = &made.left {
        output.warn(&format!("the runs so far stay in {old}; look at them with `--store {old}`"));
    }
    Ok(Exit::Done)
}
