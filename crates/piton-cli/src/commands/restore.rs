//! `piton restore`: files back to a checkpoint. And what `undo` and `redo` share with it: the plan is shown,
//! then asked about, then carried out.

use std::sync::Arc;

use piton_app::Reference;
use piton_app::files::bring::bring;
use piton_app::files::restore::{Conflicts, Previewed, Restoring, Selected};
use piton_app::views::files::{RestorePlanView, RestoredView};
use piton_workspace::{Ask, Conflict as Contested, ConflictResolution};

use crate::arguments::Consent;
use crate::arguments::files::{Change, Conflict, Restore};
use crate::commands::restore_state::put_state_back;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::table::count;
use crate::terminal::{answer, has_terminal};

/// How many paths of a plan are named before it is asked about.
const NAMED: usize = 40;

pub(crate) async fn execute(session: &Session, arguments: &Restore) -> Result<Exit, Failure> {
    if let Some(into) = &arguments.into {
        let brought = bring(session, &arguments.reference, into).await?;
        if session.output.is_json() {
            session.output.view(&brought)?;
        } else {
            let files = count(brought.files, "file");
            session.output.data(&clean(&format!("{files} of {} in {}", brought.checkpoint, brought.folder)))?;
        }
        return Ok(Exit::Done);
    }
    let change = &arguments.change;
    let selected = Selected {
        only: arguments.paths.clone(),
        not: arguments.not.clone(),
        exact: arguments.exact,
        times: arguments.times,
    };
    let capture = change.capture.into();
    let (restoring, at) = Restoring::to(session, &arguments.reference, &selected, &conflicts(change), capture).await?;
    let exit = carry_out(session, restoring, change, arguments.note).await?;
    if arguments.both && exit == Exit::Done && !change.dry_run {
        // By its own name: the restore of the files has made newer ones.
        let named = Reference::Entry { run: at.run, seq: at.seq };
        let consent = Consent { yes: change.yes, dry_run: false };
        return put_state_back(session, &named, arguments.usage, consent).await;
    }
    Ok(exit)
}

/// What the options that all three verbs have mean.
pub(crate) fn conflicts(change: &Change) -> Conflicts {
    let asks = !change.yes && !change.dry_run && has_terminal();
    let conflict = change.conflict.unwrap_or(if asks { Conflict::Ask } else { Conflict::Merge });
    let resolution = match conflict {
        Conflict::Merge => ConflictResolution::Merge,
        Conflict::Refuse => ConflictResolution::Refuse,
        Conflict::Checkpoint => ConflictResolution::PreferCheckpoint,
        Conflict::Current => ConflictResolution::PreferCurrent,
        Conflict::Beside => ConflictResolution::Beside,
        Conflict::Markers => ConflictResolution::Markers,
        Conflict::Resolve => ConflictResolution::Resolve,
        Conflict::Ask => ConflictResolution::Ask,
    };
    let ask = Arc::new(Terminal { has_resolver: change.config.is_some() });
    let unattributed = change.unattributed;
    Conflicts {
        resolution,
        ask,
        config: change.config.clone(),
        model: change.model.clone(),
        unattributed,
        shared: false,
    }
}

/// Shows the plan, asks, does it, and says what was done.
pub(crate) async fn carry_out(
    session: &Session,
    restoring: Restoring,
    change: &Change,
    note: bool,
) -> Result<Exit, Failure> {
    let previewed = restoring.preview(session).await?;
    let (restoring, previewed) = ask_about_shared(session, restoring, previewed, change).await?;
    let refusal = previewed.refusal();
    if change.dry_run {
        let plan = previewed.view(&restoring.workspace, usize::MAX).await?;
        show_plan(session, &restoring, &plan, true)?;
        restoring.close(session).await?;
        return Ok(if previewed.is_free() && refusal.is_none() { Exit::Done } else { Exit::Refused });
    }
    if let Some(refusal) = refusal {
        restoring.close(session).await?;
        return Err(refusal);
    }
    let beside = !previewed.beside().is_empty();
    if !change.yes && previewed.is_free() && !previewed.planned.plan.changes.is_empty() {
        if !session.output.is_json() {
            show_plan(session, &restoring, &previewed.view(&restoring.workspace, NAMED).await?, false)?;
        }
        confirm(session, &restoring, &previewed)?;
    }
    let restored = restoring.carry_out(session, previewed).await?;
    say(session, &restored, !change.yes)?;
    if beside && !session.output.is_json() {
        session.output.note("what was left may be another run's; the same command with `--both` takes it back too");
    }
    if note && !session.output.is_json() && !restored.note.is_empty() {
        session.output.data(&format!("\n{}", restored.note.lines().map(clean).collect::<Vec<_>>().join("\n")))?;
    }
    restoring.close(session).await?;
    Ok(Exit::Done)
}

/// If some of an undo may be another run's, a person is asked whether that goes too.
async fn ask_about_shared(
    session: &Session,
    restoring: Restoring,
    previewed: Previewed,
    change: &Change,
) -> Result<(Restoring, Previewed), Failure> {
    if previewed.beside().is_empty() || change.yes || change.dry_run || !has_terminal() {
        return Ok((restoring, previewed));
    }
    let others = previewed.beside().iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    let left = count(previewed.planned.plan.left.len(), "path");
    match answer(&format!("{left} changed while {others} worked here too; take that back as well? [y/N] ")).as_deref() {
        Some("y" | "Y" | "yes") => {
            let restoring = restoring.taking_shared();
            let previewed = restoring.preview(session).await?;
            Ok((restoring, previewed))
        }
        _ => Ok((restoring, previewed)),
    }
}

/// Asks whether to go on. Without a terminal the answer is yes if nothing is lost for good, which it never is:
/// the backup has all of it.
fn confirm(session: &Session, restoring: &Restoring, previewed: &Previewed) -> Result<(), Failure> {
    let resolved = previewed.resolved(&restoring.workspace);
    for (path, diff) in &resolved {
        let lines = diff.lines().map(clean).collect::<Vec<_>>().join("\n");
        session.output.note(&format!("the resolver's version of {}:\n{lines}", clean(path)));
    }
    if !has_terminal() {
        if !resolved.is_empty() {
            return Err(Failure::refused("no person can be asked whether what the resolver made is right")
                .hint("nothing was changed. `--yes` takes it as it is, `--dry-run` shows what would be done."));
        }
        return Ok(());
    }
    match answer(&format!("change {}? [y/N] ", count(previewed.planned.plan.changes.len(), "path"))).as_deref() {
        Some("y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::fixable("nothing was changed")),
    }
}

fn show_plan(session: &Session, restoring: &Restoring, plan: &RestorePlanView, is_data: bool) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        return output.view(plan);
    }
    let root = clean(&restoring.workspace.root().to_string_lossy());
    let mut lines = vec![format!("{} in {root}:", session.names().shorten(&plan.restore))];
    if plan.changes.is_empty() && plan.conflicts.is_empty() {
        lines.push("  nothing to change".to_owned());
    }
    for change in plan.changes.iter().take(if is_data { usize::MAX } else { NAMED }) {
        let slash = if change.is_folder { "/" } else { "" };
        let delta = match (change.added, change.removed) {
            (Some(added), Some(removed)) => format!("  +{added} -{removed}"),
            _ => String::new(),
        };
        lines.push(format!("  {:7} {}{slash}{delta}", change.action, clean(&change.path)));
    }
    if !is_data && plan.changes.len() > NAMED {
        lines.push(format!("  … and {} more", plan.changes.len() - NAMED));
    }
    let conflicts = plan.conflicts.iter();
    lines.extend(conflicts.map(|one| format!("  conflict {}: {}", clean(&one.path), clean(&one.reason))));
    lines.extend(plan.left.iter().map(|one| format!("  leave   {}: {}", clean(&one.path), clean(&one.reason))));
    lines.extend(unattributed(plan).map(|line| format!("  keep    {line}")));
    if is_data {
        return output.data(&lines.join("\n"));
    }
    output.note(&lines.join("\n"));
    Ok(())
}

/// What may be the user's, and stays.
fn unattributed(plan: &RestorePlanView) -> impl Iterator<Item = String> {
    plan.unattributed.iter().map(|path| {
        format!("{}: changed during the turn, outside its tool calls; --unattributed takes that back too", clean(path))
    })
}

fn say(session: &Session, restored: &RestoredView, shown: bool) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        return output.view(restored);
    }
    let was_shown = shown && !restored.plan.changes.is_empty();
    for left in restored.plan.left.iter().filter(|_| !was_shown) {
        output.note(&format!("left {}: {}", clean(&left.path), clean(&left.reason)));
    }
    unattributed(&restored.plan).filter(|_| !was_shown).for_each(|line| output.note(&format!("kept {line}")));
    for one in &restored.rescued {
        let to = one.path.as_ref().map(|path| format!(" to {}", clean(path))).unwrap_or_default();
        output.warn(&format!("what was written{to} during the restore is in {}", clean(&one.kept)));
    }
    match &restored.id {
        None => output.data("nothing to change"),
        Some(checkpoint) => {
            // By its whole name for programs, as people say it on a terminal; and what it was for.
            let checkpoint = match output.is_terminal() {
                true => session.named(checkpoint),
                false => checkpoint.to_string(),
            };
            let kind = session.names().shorten(&restored.plan.restore);
            let paths = count(restored.files_restored, "path");
            output.data(&format!("{checkpoint}  {kind}: {paths} changed"))?;
            output.note(if restored.is_undo { "`piton redo` takes it back." } else { "`piton undo` takes it back." });
            Ok(())
        }
    }
}

/// Asks on the terminal, if there is one.
struct Terminal {
    has_resolver: bool,
}

impl Ask for Terminal {
    fn ask(&self, conflict: &Contested) -> ConflictResolution {
        self.ask_showing(conflict, &|| None)
    }

    fn ask_showing(&self, conflict: &Contested, difference: &dyn Fn() -> Option<String>) -> ConflictResolution {
        if !has_terminal() {
            return ConflictResolution::Refuse;
        }
        let resolver = if self.has_resolver { "let the re(s)olver try, " } else { "" };
        let question = format!(
            "{}: {}\n  take the (c)heckpoint's, leave what is (t)here, write it (b)eside, (m)ark the conflict in it, \
             {resolver}show the (d)ifference, or (r)efuse? ",
            clean(&conflict.path.to_string()),
            clean(&conflict.reason)
        );
        let mut shown = String::new();
        loop {
            // A person who has gone has said nothing.
            let Some(answer) = answer(&format!("{shown}{question}")) else { break ConflictResolution::Refuse };
            shown.clear();
            if answer == "d" {
                shown = match difference() {
                    Some(diff) => diff.lines().map(|line| format!("  {}\n", clean(line))).collect(),
                    None => "  they aren't texts of which a difference could be shown\n".to_owned(),
                };
                continue;
            }
            break match answer.as_str() {
                "c" => ConflictResolution::PreferCheckpoint,
                "t" => ConflictResolution::PreferCurrent,
                "b" => ConflictResolution::Beside,
                "m" => ConflictResolution::Markers,
                "s" if self.has_resolver => ConflictResolution::Resolve,
                "r" => ConflictResolution::Refuse,
                _ => continue,
            };
        }
    }
}
