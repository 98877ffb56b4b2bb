//! `piton gc`: retention by hand, with a plan first.

use piton_app::store::gc::Collecting;
use piton_app::store::keeping;

use crate::arguments::store::Gc;
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Gc) -> Result<Exit, Failure> {
    let change = |rules| arguments.rules(rules);
    let collecting = Collecting::plan(session, change, arguments.remember, arguments.now).await?;
    if !agreed(&collecting.plan, session, arguments.consent)? {
        return Ok(Exit::Done);
    }
    let collected = collecting.carry_out(session).await?;
    match session.output.is_json() {
        true => session.output.view(&collected)?,
        false => session.output.data(&keeping::words(&collected.kept))?,
    }
    Ok(Exit::Done)
}
