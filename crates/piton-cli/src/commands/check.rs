//! `piton check`: finds damage and what it affects; for one checkpoint, the report of what going on from it needs.

use piton_app::Plan;
use piton_app::store::check::{Checked, check};
use piton_app::store::repair::{self, Repaired, Stage, WalDamage, repair};
use piton_app::views::store::{CheckedRun, CheckedView};
use serde_json::json;

use crate::arguments::Consent;
use crate::arguments::store::Check;
use crate::consent::{self, agreed};
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table;

/// How many of a kind are named.
const NAMED: usize = 20;

pub(crate) async fn execute(session: &Session, arguments: &Check) -> Result<Exit, Failure> {
    if arguments.repair {
        return repair_store(session, arguments).await;
    }
    let checked = check(session, arguments.reference.as_ref(), arguments.deep).await?;
    match &checked {
        _ if session.output.is_json() => session.output.view(&checked)?,
        Checked::Store(found) => show(session, found)?,
        Checked::Checkpoint(found) => {
            session.output.data(&found.text.lines().map(clean).collect::<Vec<_>>().join("\n"))?;
        }
    }
    Ok(if checked.is_whole() { Exit::Done } else { Exit::UserFixable })
}

fn show(session: &Session, found: &CheckedView) -> Result<(), Failure> {
    let mut lines = Vec::new();
    for defect in found.defects.iter().take(NAMED) {
        lines.push(format!("damaged: {}: {}", clean(&defect.what), clean(&defect.detail)));
    }
    for pack in found.packs.iter().take(NAMED) {
        lines.push(format!("damaged: {}: {}", clean(&pack.what), clean(&pack.detail)));
    }
    for run in found.runs.iter().filter(|run| !run.whole) {
        lines.extend(run_lines(run));
    }
    let (entries, whole): (u64, u64) =
        found.runs.iter().fold((0, 0), |(entries, whole), run| (entries + run.entries, whole + run.checkpoints));
    let verdict = if found.whole { "all well" } else { "damaged" };
    lines.push(format!(
        "{verdict}: {}, {entries} entries, {whole} whole checkpoints, {} of files",
        table::count(found.runs.len(), "run"),
        table::size(found.pack_bytes)
    ));
    session.output.data(&lines.join("\n"))?;
    if found.in_outline {
        session
            .output
            .note("the store is on a server: only the logs were read; `piton check --deep` reads all that is in it");
    }
    if !found.whole {
        session.output.note("`piton check --repair` keeps what is whole in a new store and sets this one aside");
    }
    Ok(())
}

fn run_lines(run: &CheckedRun) -> Vec<String> {
    let mut lines = vec![format!("run {}: {} whole checkpoints", run.run, run.checkpoints)];
    for defect in run.defects.iter().take(NAMED) {
        lines.push(format!("  {}: {}", clean(&defect.what), clean(&defect.detail)));
    }
    for damaged in run.damaged.iter().take(NAMED) {
        lines.push(format!("  {} can't be read whole: {}", damaged.checkpoint, clean(&damaged.parts.join(", "))));
        lines.extend(damaged.files.iter().take(NAMED).map(|file| format!("    {}", clean(file))));
    }
    if run.damaged.len() > NAMED {
        lines.push(format!("  … and {} more checkpoints", run.damaged.len() - NAMED));
    }
    lines.push(match &run.newest_whole {
        Some(checkpoint) => format!("  the newest whole checkpoint is {checkpoint}"),
        None => "  no checkpoint is whole".to_owned(),
    });
    lines
}

async fn repair_store(session: &Session, arguments: &Check) -> Result<Exit, Failure> {
    let consent = arguments.consent;
    let mut asking = Asking { session, consent };
    let output = &session.output;
    match repair(session, arguments.deep, consent.dry_run, &mut asking).await? {
        Repaired::Whole(found) if output.is_json() => output.view(&found)?,
        Repaired::Whole(found) => show(session, &found)?,
        // What was asked for is whether it is damaged.
        Repaired::Declined => return Ok(if consent.dry_run { Exit::UserFixable } else { Exit::Done }),
        Repaired::Done(done, _) if output.is_json() => output.view(&done)?,
        Repaired::Done(done, found) => {
            let mut lines: Vec<_> = done.notes.iter().map(|note| clean(note)).collect();
            lines.extend(done.set_aside.map(|aside| format!("the damaged store is kept as {aside}")));
            output.data(&lines.join("\n"))?;
            found.iter().try_for_each(|found| show(session, found))?;
        }
    }
    Ok(Exit::Done)
}

/// Shows what is damaged, and asks.
struct Asking<'a> {
    session: &'a Session,
    consent: Consent,
}

impl repair::Consent for Asking<'_> {
    fn agrees(&mut self, stage: Stage<'_>, plan: &Plan) -> Result<bool, Failure> {
        let output = &self.session.output;
        match stage {
            Stage::Wal(wal) if self.consent.dry_run => {
                tell_wal(self.session, wal, plan)?;
                return Ok(false);
            }
            Stage::Wal(wal) if !output.is_json() => output.data(&wal_line(wal))?,
            Stage::Wal(_) => {}
            Stage::Store { found, is_gathered } => {
                if is_gathered {
                    output.note("the store can't be opened as it is: this is what was found of it, page by page");
                }
                if !output.is_json() {
                    show(self.session, found)?;
                }
            }
        }
        agreed(plan, self.session, self.consent)
    }
}

fn wal_line(wal: &WalDamage) -> String {
    let defect = wal.defect();
    format!("damaged: {}: {}", clean(&defect.what), defect.detail)
}

/// The damage of the store's WAL, and what a repair would do about it.
fn tell_wal(session: &Session, wal: &WalDamage, plan: &Plan) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        let mut object = serde_json::to_value(plan).unwrap_or_default();
        object["whole"] = json!(false);
        object["defects"] = json!([wal.defect()]);
        output.object(&object)?;
    } else {
        output.data(&format!("{}\n{}", wal_line(wal), consent::text(plan)))?;
    }
    output.note("nothing was done");
    Ok(())
}
