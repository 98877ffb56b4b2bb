//! `piton import`: takes runs over from a file that `piton export` wrote. The file is copied first, so that nothing is
//! written beside it.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use piton::{SqliteOptions, SqliteStore};
use piton_store::{Store, StoreError};
use rustix::fs::OFlags;

use crate::arguments::store::Import;
use crate::commands::copy::{all, copy_all};
use crate::commands::export::Scratch;
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Import) -> Result<Exit, Failure> {
    let scratch = Scratch::new(session)?;
    let is_stdin = arguments.file.as_os_str() == "-";
    let shown = if is_stdin { "stdin".to_owned() } else { arguments.file.display().to_string() };
    let fail = |error| Failure::fixable(format!("can't read {shown}")).because(&error);
    let mut copy = File::create_new(scratch.database()).map_err(fail)?;
    let bytes = match is_stdin {
        true => std::io::copy(&mut std::io::stdin().lock(), &mut copy).map_err(fail)?,
        false => std::io::copy(&mut open(&arguments.file).map_err(fail)?, &mut copy).map_err(fail)?,
    };
    drop(copy);
    let foreign = |detail: &str| {
        // The copy has a name that means nothing to anybody.
        let detail = detail.replace(&scratch.database().display().to_string(), &shown);
        Failure::fixable(format!("{shown} isn't what `piton export` writes"))
            .because(&std::io::Error::other(detail))
            .hint("nothing was taken over; `piton export RUN > FILE` writes such a file.")
    };
    if bytes == 0 {
        return Err(foreign("it is empty"));
    }
    let from = SqliteStore::open(scratch.database(), SqliteOptions::default().with_create(false));
    let from: Arc<dyn Store> = match from {
        Ok(from) => Arc::new(from),
        Err(error @ (StoreError::Invalid { .. } | StoreError::Corrupt { .. } | StoreError::NotFound { .. })) => {
            return Err(foreign(&error.to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    let from = session.unlock(from, &session.surroundings.keys).await?;
    let to = session.store_or_create().await?;
    let runs = all(&from).await?;
    let copied = copy_all(session, &from, &to, &runs).await;
    to.close().await?;
    from.close().await?;
    copied?;
    Ok(Exit::Done)
}

/// Opens a file or a pipe. A pipe that nobody writes to is found empty, and not waited for.
fn open(path: &Path) -> std::io::Result<File> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).expect("flags of open(2) are ints");
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}
