//! `piton lease take|drop|check|ls`: file reservations.

use std::time::Duration;

use piton_app::files::lease::{Book, Reserve};
use piton_app::views::files::ReservationView;

use crate::arguments::agents::{Lease, LeaseAction};
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::Table;

pub(crate) async fn execute(session: &Session, arguments: Lease) -> Result<Exit, Failure> {
    let book = match &arguments.action {
        LeaseAction::Take { .. } | LeaseAction::Drop { .. } => Book::open(session).await?,
        LeaseAction::Check { .. } | LeaseAction::Ls => Book::look(session).await?,
    };
    match arguments.action {
        LeaseAction::Take { paths, read, lasting, wait, pid, owner } => {
            let (wait, owner) = (wait.unwrap_or(Duration::ZERO), Book::owner(session, owner.owner));
            show(session, &book.take(&Reserve { paths, read, lasting, wait, pid, owner }).await?)?;
        }
        LeaseAction::Drop { paths, owner } => {
            let owner = Book::owner(session, owner.owner);
            let dropped = book.release(&paths, &owner).await?;
            if dropped.is_empty() {
                session.output.note(&format!("{} has reserved nothing of that", clean(&owner)));
            }
            show(session, &dropped)?;
        }
        LeaseAction::Check { paths, owner } => {
            let writable = book.check(&paths, &Book::owner(session, owner.owner)).await?;
            if session.output.is_json() {
                session.output.list(&writable)?;
            }
        }
        LeaseAction::Ls => show(session, &book.list().await?)?,
    }
    book.close().await?;
    Ok(Exit::Done)
}

fn show(session: &Session, held: &[ReservationView]) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        return output.list(held);
    }
    if held.is_empty() {
        return Ok(());
    }
    let mut table = Table::with_heading(&["PATH", "FOR", "OWNER", "NUMBER", "UNTIL"]);
    for held in held {
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
