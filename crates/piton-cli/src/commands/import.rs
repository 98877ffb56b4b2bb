//! `piton import`: takes runs over from a file that `piton export` wrote.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use piton_app::store::transfer::import;
use rustix::fs::OFlags;

use crate::arguments::store::Import;
use crate::commands::copy::show;
use crate::failure::{Exit, Failure};
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: &Import) -> Result<Exit, Failure> {
    let is_stdin = arguments.file.as_os_str() == "-";
    let shown = if is_stdin { "stdin".to_owned() } else { arguments.file.display().to_string() };
    let source: Box<dyn Read> = match is_stdin {
        true => Box::new(std::io::stdin()),
        false => Box::new(
            open(&arguments.file).map_err(|error| Failure::fixable(format!("can't read {shown}")).because(&error))?,
        ),
    };
    show(session, &import(session, source, &shown).await?)?;
    Ok(Exit::Done)
}

/// Opens a file or a pipe. A pipe that no process writes to is found empty, and not waited for.
fn open(path: &Path) -> std::io::Result<File> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).expect("flags of open(2) are ints");
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}
