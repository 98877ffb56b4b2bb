//! `piton export`: runs as a file. What is written is a store with those runs in it, so whatever reads a store reads it.

use std::fs::DirBuilder;
use std::io::IsTerminal as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use piton::upkeep::Copier;
use piton::workspace::SnapshotReach;

use crate::arguments::store::Export;
use crate::failure::{Exit, Failure};
use crate::place::{Origin, Place};
use crate::progress::through_stores;
use crate::resolve::run_id;
use crate::session::Session;

/// A private folder that goes away with the value.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(session: &Session) -> Result<Self, Failure> {
        let name = format!("piton-{}-{}", std::process::id(), session.now().as_millis());
        let path = std::env::temp_dir().join(name);
        let fail = |error| Failure::fixable(format!("can't make {}", path.display())).because(&error);
        DirBuilder::new().mode(0o700).create(&path).map_err(fail)?;
        Ok(Self(path))
    }

    /// The database in it.
    pub(crate) fn database(&self) -> PathBuf {
        self.0.join("export.db")
    }

    pub(crate) fn place(&self) -> Place {
        Place { url: format!("sqlite:{}", self.database().display()), origin: Origin::Option }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is in the folder for temporary files; whoever empties that takes it too.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) async fn execute(session: &Session, arguments: &Export) -> Result<Exit, Failure> {
    if std::io::stdout().is_terminal() {
        return Err(
            Failure::usage("what is exported is no text").hint("write it to a file: `piton export RUN > run.piton`.")
        );
    }
    let store = session.store().await?;
    let scratch = Scratch::new(session)?;
    let target = session.open(&scratch.place(), true).await?;
    let exporting = async {
        let mut copier = Copier::new(&store, &target, &SnapshotReach);
        for run in &arguments.run {
            copier.run(&run_id(&store, run).await?).await?;
        }
        Ok::<_, Failure>(())
    };
    through_stores(session, "exporting", exporting).await?;
    if store.hashing().is_keyed() {
        session.output.note("What was exported isn't encrypted: whoever has the file can read it.");
    }
    target.close().await?;
    store.close().await?;
    drop(target);
    let fail = |error| Failure::fixable("can't write to stdout").because(&error);
    let mut file = std::fs::File::open(scratch.database()).map_err(fail)?;
    let mut stdout = std::io::stdout().lock();
    std::io::copy(&mut file, &mut stdout).map_err(fail)?;
    std::io::Write::flush(&mut stdout).map_err(fail)?;
    Ok(Exit::Done)
}
