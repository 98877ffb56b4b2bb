//! `piton lease take|drop|check|ls`: file reservations.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use piton::workspace::{RelPath, Reservation, Reservations, ReserveMode, Take};
use piton::{Liveness, liveness, process, this_process};
use piton_app::views::files::{ReservationView, WritableView};

use crate::arguments::agents::{Lease, LeaseAction, Owner};
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::Table;
use piton_app::files::Capture;
use piton_app::files::inside;
use piton_app::files::open;

pub(crate) async fn execute(session: &Session, arguments: Lease) -> Result<Exit, Failure> {
    let store = session.store_or_create().await?;
    let capture = Capture::ACCEPTED;
    let workspace = open(session, &store, capture).await?;
    let me = this_process();
    let book = {
        let me = me.clone();
        workspace.reservations(&me.clone(), Arc::new(move |holder| liveness(holder, &me) == Liveness::Dead))
    };
    let root = workspace.root().to_owned();
    let paths = |paths: &[PathBuf]| paths.iter().map(|path| inside(&root, path)).collect::<Result<Vec<_>, _>>();
    match arguments.action {
        LeaseAction::Take { paths: named, read, lasting, wait, pid, owner } => {
            let holder = match pid {
                Some(pid) => Some(
                    process(pid).ok_or_else(|| Failure::fixable(format!("there is no process {pid} on this host")))?,
                ),
                None => None,
            };
            let mode = if read { ReserveMode::Read } else { ReserveMode::Write };
            let wanted: Vec<_> = paths(&named)?.into_iter().map(|path| (path, mode)).collect();
            let wait = wait.unwrap_or(Duration::ZERO);
            let how = Take { owner: whose(session, owner), lasting, wait, holder };
            let taken = book.take(&wanted, &how).await?;
            show(session, &taken)?;
        }
        LeaseAction::Drop { paths: named, owner } => {
            let owner = whose(session, owner);
            let dropped = book.release(&owner, &paths(&named)?).await?;
            if dropped.is_empty() {
                session.output.note(&format!("{} has reserved nothing of that", clean(&owner)));
            }
            show(session, &dropped)?;
        }
        LeaseAction::Check { paths: named, owner } => {
            let (named, owner) = (paths(&named)?, whose(session, owner));
            check(&book, &named, &owner).await?;
            for path in named.iter().filter(|_| session.output.is_json()) {
                let (path, owner) = (path.to_string(), owner.clone());
                session.output.view(&WritableView { path, owner, writable: true })?;
            }
        }
        LeaseAction::Ls => show(session, &book.list().await.map_err(Failure::from)?)?,
    }
    store.close().await?;
    Ok(Exit::Done)
}

/// On whose behalf.
fn whose(session: &Session, owner: Owner) -> String {
    let from = |name| session.variable(name);
    owner.owner.or_else(|| from("PITON_RUN")).or_else(|| from("USER")).unwrap_or_else(|| "somebody".to_owned())
}

async fn check(book: &Reservations, paths: &[RelPath], owner: &str) -> Result<(), Failure> {
    for path in paths {
        book.check_write(path, owner).await?;
    }
    Ok(())
}

fn show(session: &Session, held: &[Reservation]) -> Result<(), Failure> {
    let held: Vec<ReservationView> = held.iter().map(ReservationView::from).collect();
    let output = &session.output;
    if output.is_json() {
        return output.list(&held);
    }
    if held.is_empty() {
        return Ok(());
    }
    let mut table = Table::with_heading(&["PATH", "FOR", "OWNER", "NUMBER", "UNTIL"]);
    for held in &held {
        table.row(vec![
            clean(&held.path),
            held.mode.to_owned(),
            clean(&held.owner),
            held.fence.to_string(),
            held.expires_at.to_string(),
        ]);
    }
    output.data(&table.render(output.width()))
}
