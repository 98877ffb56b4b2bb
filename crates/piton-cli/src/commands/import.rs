//! `piton import`: takes runs over from a file that `piton export` wrote. The file is copied first, so that nothing is
//! written beside it.

use crate::commands::copy::{all, copy_all};
use crate::commands::export::Scratch;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::store_arguments::Import;

pub(crate) async fn execute(session: &Session, arguments: &Import) -> Result<Exit, Failure> {
    let scratch = Scratch::new(session)?;
    let shown = arguments.file.display().to_string();
    let fail = |error| Failure::fixable(format!("can't read {shown}")).because(&error);
    let mut copy = std::fs::File::create_new(scratch.database()).map_err(fail)?;
    if shown == "-" {
        std::io::copy(&mut std::io::stdin().lock(), &mut copy).map_err(fail)?;
    } else {
        let mut file = std::fs::File::open(&arguments.file).map_err(fail)?;
        std::io::copy(&mut file, &mut copy).map_err(fail)?;
    }
    drop(copy);
    let from = session.open(&scratch.place(), false).await?;
    let to = session.store_or_create().await?;
    let runs = all(&from).await?;
    let copied = copy_all(session, &from, &to, &runs).await;
    to.close().await?;
    from.close().await?;
    copied?;
    Ok(Exit::Done)
}
