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
use crate::table;

/// What an export begins with.
const HEADER: &[u8] = b"SQLite format 3\0";
/// How long the header of a database is.
const HEADER_LENGTH: u64 = 100;

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
    source.by_ref().take(HEADER_LENGTH).read_to_end(&mut header).map_err(fail)?;
    if header.is_empty() {
        return Err(foreign("it is empty"));
    }
    if !header.starts_with(HEADER) {
        return Err(foreign("it is not an SQLite database"));
    }
    let scratch = Scratch::new(session)?;
    let length = length(&header).ok_or_else(|| foreign("its header doesn't say how long it is"))?;
    let free = scratch.free();
    if length > free {
        let (length, free) = (table::size(length), table::size(free));
        return Err(Failure::fixable(format!("{shown} says that it has {length}, and there is room for {free}"))
            .hint("nothing was taken over; name a larger folder for temporary files with TMPDIR."));
    }
    let mut copy = File::create_new(scratch.database()).map_err(fail)?;
    // One byte more than it should have: then it goes on behind its end, perhaps for ever.
    let copied = std::io::copy(&mut header.as_slice().chain(source).take(length + 1), &mut copy).map_err(fail)?;
    if copied > length {
        return Err(foreign("it goes on behind its end"));
    }
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

/// How long the database is that has this header: so many pages of such a size.
fn length(header: &[u8]) -> Option<u64> {
    let size = match u16::from_be_bytes(header.get(16..18)?.try_into().ok()?) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes(header.get(28..32)?.try_into().ok()?);
    Some(size * u64::from(pages)).filter(|length| *length >= HEADER_LENGTH)
}

/// Opens a file or a pipe. A pipe that nobody writes to is found empty, and not waited for.
fn open(path: &Path) -> std::io::Result<File> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).expect("flags of open(2) are ints");
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}
