//! `piton export`: runs as a file. What is written is a store with those runs in it, so whatever reads a store reads it.

use std::fs::DirBuilder;
use std::io::IsTerminal as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use piton::upkeep::Copier;
use piton::workspace::SnapshotReach;

use crate::arguments::store::Export;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use piton_app::place::{Origin, Place};
use piton_app::references::run_id;

/// A private folder that goes away with the value. What is in it isn't encrypted, so it goes away with the process too,
/// however that ends: somebody waits for that.
pub(crate) struct Scratch {
    path: PathBuf,
    keeper: Option<Child>,
}

/// Deletes a folder when nobody holds the other end of its input any more.
const KEEPER: &str = r#"trap "" HUP INT QUIT TERM; while read -r _; do :; done; rm -rf -- "$1""#;

impl Scratch {
    pub(crate) fn new(session: &Session) -> Result<Self, Failure> {
        let name = format!("piton-{}-{}", std::process::id(), session.now().as_millis());
        let path = std::env::temp_dir().join(name);
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
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("export.db")
    }

    /// How many bytes there is room for.
    pub(crate) fn free(&self) -> u64 {
        rustix::fs::statvfs(&self.path).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    pub(crate) fn place(&self) -> Place {
        Place { url: format!("sqlite:{}", self.database().display()), origin: Origin::Option }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is in the folder for temporary files; whoever empties that takes it too.
        let _ = std::fs::remove_dir_all(&self.path);
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
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
    // No key is meant for it.
    let target = session.unlock_with(session.open_below(&scratch.place(), true).await?, None).await?;
    let exporting = async {
        let mut copier = Copier::new(&store, &target, &SnapshotReach);
        for run in &arguments.run {
            copier.run(&run_id(&store, run).await?).await?;
        }
        Ok::<_, Failure>(())
    };
    session.through_stores("exporting", exporting).await?;
    if store.hashing().is_keyed() {
        session.output.note("What was exported isn't encrypted: whoever has the file can read it.");
    }
    target.close().await?;
    store.close().await?;
    drop(target);
    let fail = |error| Failure::fixable("can't write to stdout").because(&error);
    let mut file = std::fs::File::open(scratch.database()).map_err(fail)?;
    // From here on it has no name: whoever reads slowly, or never, keeps no copy on the disk.
    drop(scratch);
    let mut stdout = std::io::stdout().lock();
    std::io::copy(&mut file, &mut stdout).map_err(fail)?;
    std::io::Write::flush(&mut stdout).map_err(fail)?;
    Ok(Exit::Done)
}
