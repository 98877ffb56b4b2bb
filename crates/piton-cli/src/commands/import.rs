//! `piton import`: takes runs over from a file that `piton export` wrote. The file is copied first, so that nothing is
//! written beside it.

use std::fs::File;
use std::io::Read;
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

/// What an export begins with.
const HEADER: &[u8] = b"SQLite format 3\0";

pub(crate) async fn execute(session: &Session, arguments: &Import) -> Result<Exit, Failure> {
    let is_stdin = arguments.file.as_os_str() == "-";
    let shown = if is_stdin { "stdin".to_owned() } else { arguments.file.display().to_string() };
    let fail = |error| Failure::fixable(format!("can't read {shown}")).because(&error);
    let foreign = |detail: &str| {
        Failure::fixable(format!("{shown} isn't what `piton export` writes"))
            .because(&std::io::Error::other(detail.to_owned()))
            .hint("nothing was taken over; `piton export RUN > FILE` writes such a file.")
    };
    let mut source: Box<dyn Read> = match is_stdin {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(open(&arguments.file).map_err(fail)?),
    };
    // Before anything is copied: what is no export may have no end.
    let mut header = Vec::new();
    source.by_ref().take(HEADER.len() as u64).read_to_end(&mut header).map_err(fail)?;
    if header.is_empty() {
        return Err(foreign("it is empty"));
    }
    if header != HEADER {
        return Err(foreign("it is not an SQLite database"));
    }
    let scratch = Scratch::new(session)?;
    let mut copy = File::create_new(scratch.database()).map_err(fail)?;
    std::io::copy(&mut header.as_slice().chain(source), &mut copy).map_err(fail)?;
    drop(copy);
    let from = SqliteStore::open(scratch.database(), SqliteOptions::default().with_create(false));
    let from: Arc<dyn Store> = match from {
        Ok(from) => Arc::new(from),
        Err(error @ (StoreError::Invalid { .. } | StoreError::Corrupt { .. } | StoreError::NotFound { .. })) => {
            // The copy has a name that means nothing to anybody.
            return Err(foreign(&error.to_string().replace(&scratch.database().display().to_string(), &shown)));
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
