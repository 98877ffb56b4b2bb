//! Runs as a file, and back. What is exported is a store with those runs in it, so that any reader of stores reads it; what
//! is imported is copied first, so that nothing is written beside it.

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use piton_log::upkeep::Copier;
use piton_store::{Store, StoreError};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_types::RunId;
use piton_workspace::SnapshotReach;

use super::copy::{all, copy_all};
use crate::app::{Access, App};
use crate::failure::Failure;
use crate::place::{Origin, Place};
use crate::references::run_id;
use crate::views::store::CopiedView;
use crate::words;

/// What an export begins with.
const HEADER: &[u8] = b"SQLite format 3\0";
/// How long the header of a database is.
const HEADER_LENGTH: u64 = 100;

/// A private folder that goes away with the value. What is in it isn't encrypted, so it goes away with the process too,
/// however that ends: a keeper waits for that.
struct Scratch {
    path: PathBuf,
    keeper: Option<Child>,
}

/// Deletes a folder when no process holds the other end of its input any more.
const KEEPER: &str = r#"trap "" HUP INT QUIT TERM; while read -r _; do :; done; rm -rf -- "$1""#;

impl Scratch {
    fn new(app: &App) -> Result<Self, Failure> {
        let name = format!("piton-{}-{}", std::process::id(), app.now().as_millis());
        let path = PathBuf::from(app.variable("TMPDIR").unwrap_or_else(|| "/tmp".to_owned())).join(name);
        let path = std::path::absolute(&path).unwrap_or(path);
        let fail = |error| Failure::fixable(format!("can't make {}", path.display())).because(&error);
        DirBuilder::new().mode(0o700).create(&path).map_err(fail)?;
        // In a group of its own: what kills ours must not reach it. The folder is used without one too.
        let mut keeper = Command::new("/bin/sh");
        keeper.args(["-c", KEEPER, "piton-scratch"]).arg(&path).process_group(0).current_dir("/");
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { path, keeper: keeper.spawn().ok() })
    }

    /// The database in it.
    fn database(&self) -> PathBuf {
        self.path.join("export.db")
    }

    /// How many bytes there is room for.
    fn free(&self) -> u64 {
        rustix::fs::statvfs(&self.path).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn place(&self) -> Place {
        Place { url: format!("sqlite:{}", self.database().display()), origin: Origin::Option }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is in the folder for temporary files; a process that empties that takes it too.
        let _ = std::fs::remove_dir_all(&self.path);
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }
}

/// Runs as a file without a name: a reader that is slow, or never comes, keeps no copy on the disk.
pub async fn export(app: &App, runs: &[RunId]) -> Result<File, Failure> {
    let store = app.look().await?;
    let scratch = Scratch::new(app)?;
    // No key is meant for it.
    let target = app.unlock_with(app.open_below(&scratch.place(), Access::Create).await?, None).await?;
    let exporting = async {
        let mut copier = Copier::new(&store, &target, &SnapshotReach);
        for run in runs {
            copier.run(&run_id(app, &store, run).await?).await?;
        }
        Ok::<_, Failure>(())
    };
    app.through_stores("exporting", exporting).await?;
    if store.hashing().is_keyed() {
        app.note("What was exported isn't encrypted: every person who has the file can read it.");
    }
    target.close().await?;
    store.close().await?;
    drop(target);
    File::open(scratch.database()).map_err(|error| Failure::fixable("can't read what was exported").because(&error))
}

/// Takes runs over from what [`export`] wrote. `shown` is what the source is called.
pub async fn import(app: &App, mut source: Box<dyn Read>, shown: &str) -> Result<CopiedView, Failure> {
    let fail = |error| Failure::fixable(format!("can't read {shown}")).because(&error);
    let foreign = |detail: &str| {
        Failure::fixable(format!("{shown} isn't what an export writes"))
            .because(&std::io::Error::other(detail.to_owned()))
            .hint("nothing was taken over; `piton export RUN > FILE` writes such a file.")
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
    let scratch = Scratch::new(app)?;
    let length = length(&header).ok_or_else(|| foreign("its header doesn't say how long it is"))?;
    let free = scratch.free();
    if length > free {
        let (length, free) = (words::size(length), words::size(free));
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
            // The copy has a name that means nothing to the user.
            return Err(foreign(&error.to_string().replace(&scratch.database().display().to_string(), shown)));
        }
        Err(error) => return Err(error.into()),
    };
    let from = app.unlock(from, &app.surroundings.keys).await?;
    let to = app.store_or_create().await?;
    let runs = all(&from).await?;
    let copied = copy_all(app, &from, &to, runs).await;
    to.close().await?;
    from.close().await?;
    copied
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
