//! `piton init`: makes the store of a folder if there is none, and says where it is.

use piton_app::store::init::{MakeStore, init};

use crate::arguments::Init;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::table;

pub(crate) async fn execute(session: &Session, arguments: &Init) -> Result<Exit, Failure> {
    let Init { here, encrypt, passphrase } = *arguments;
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
