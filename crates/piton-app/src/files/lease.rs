//! Reservations of files, by which several agents in one folder keep out of each other's way.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use piton_runtime::{Liveness, liveness, process, this_process};
use piton_store::Store;
use piton_workspace::{RelPath, Reservation, Reservations, ReserveMode, Take, Workspace};

use crate::app::App;
use crate::failure::Failure;
use crate::files::{Capture, inside, look, open};
use crate::views::files::{ReservationView, WritableView};

/// What is reserved, and how.
#[derive(Debug, Clone)]
pub struct Reserve {
    /// Which files and folders.
    pub paths: Vec<PathBuf>,
    /// For reading only.
    pub read: bool,
    /// How long it lasts.
    pub lasting: Duration,
    /// How long to wait for what others have reserved.
    pub wait: Duration,
    /// The process with which it ends.
    pub pid: Option<u32>,
    /// On whose behalf.
    pub owner: String,
}

/// The reservations of a folder.
pub struct Book {
    store: Arc<dyn Store>,
    workspace: Workspace,
    book: Reservations,
    /// What paths are meant from.
    here: PathBuf,
}

impl Book {
    /// Opens the reservations of the folder, to be changed.
    pub async fn open(app: &App) -> Result<Self, Failure> {
        let store = app.store_or_create().await?;
        let workspace = open(app, &store, Capture::ACCEPTED).await?;
        Ok(Self::of(app, store, workspace))
    }

    /// Opens them for a caller that only lists or checks.
    pub async fn look(app: &App) -> Result<Self, Failure> {
        let store = app.look().await?;
        let workspace = look(app, &store, Capture::ACCEPTED).await?;
        Ok(Self::of(app, store, workspace))
    }

    fn of(app: &App, store: Arc<dyn Store>, workspace: Workspace) -> Self {
        let me = this_process();
        let is_dead = Arc::new(move |other: &_| liveness(other, &me) == Liveness::Dead);
        let book = workspace.reservations(is_dead);
        Self { store, workspace, book, here: app.path(Path::new("")) }
    }

    /// The owner that is named, or the run that this works for, or the user.
    pub fn owner(app: &App, named: Option<String>) -> String {
        let from = |name| app.variable(name);
        named.or_else(|| from("PITON_RUN")).or_else(|| from("USER")).unwrap_or_else(|| "an unnamed user".to_owned())
    }

    /// Reserves files, all or none.
    pub async fn take(&self, wanted: &Reserve) -> Result<Vec<ReservationView>, Failure> {
        let missing = |pid| Failure::fixable(format!("there is no process {pid} on this host"));
        let holder = wanted.pid.map(|pid| process(pid).ok_or_else(|| missing(pid))).transpose()?;
        let mode = if wanted.read { ReserveMode::Read } else { ReserveMode::Write };
        let paths: Vec<_> = self.paths(&wanted.paths)?.into_iter().map(|path| (path, mode)).collect();
        let how = Take { owner: wanted.owner.clone(), lasting: wanted.lasting, wait: wanted.wait, holder };
        Ok(views(&self.book.take(&paths, &how).await?))
    }

    /// Gives reservations back.
    pub async fn release(&self, paths: &[PathBuf], owner: &str) -> Result<Vec<ReservationView>, Failure> {
        Ok(views(&self.book.release(owner, &self.paths(paths)?).await?))
    }

    /// That an owner may write these files; else a failure says who may.
    pub async fn check(&self, paths: &[PathBuf], owner: &str) -> Result<Vec<WritableView>, Failure> {
        let paths = self.paths(paths)?;
        for path in &paths {
            self.book.check_write(path, owner).await?;
        }
        let view = |path: &RelPath| WritableView { path: path.to_string(), owner: owner.to_owned(), writable: true };
        Ok(paths.iter().map(view).collect())
    }

    /// All reservations.
    pub async fn list(&self) -> Result<Vec<ReservationView>, Failure> {
        Ok(views(&self.book.list().await?))
    }

    /// Ends it.
    pub async fn close(self) -> Result<(), Failure> {
        Ok(self.store.close().await?)
    }

    fn paths(&self, paths: &[PathBuf]) -> Result<Vec<RelPath>, Failure> {
        paths.iter().map(|path| inside(self.workspace.root(), &self.here.join(path))).collect()
    }
}

fn views(held: &[Reservation]) -> Vec<ReservationView> {
    held.iter().map(ReservationView::from).collect()
}
