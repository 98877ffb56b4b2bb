//! `piton restore`: files back to a checkpoint. And what `undo` and `redo` share with it: the plan is shown,
//! then asked about, then carried out.

use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use piton::workspace::{
    Ask, Conflict as Contested, ConflictResolution, Entry, Goal, LineDelta, ModelResolver, ModelResolverOptions, Plan,
    PlannedChange, RelPath, Resolver, RestoreKind, RestoreOptions, RestoreResult, Selection, TextDiff, Workspace,
};
use piton_types::CheckpointRef;
use serde_json::{Value as Json, json};

use crate::arguments::Consent;
use crate::arguments::files::{Change, Conflict, Restore};
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::terminal::answer;
use piton_app::documents::outside::chosen_model;
use piton_app::files::{open, watched};
use piton_app::references::Reference;
use piton_app::references::resolve_checkpoint;
use piton_app::store::keeping;

/// How many paths of a plan are named before it is asked about.
const NAMED: usize = 40;

pub(crate) async fn execute(session: &Session, arguments: &Restore) -> Result<Exit, Failure> {
    let store = session.store().await?;
    let (log, entry) = resolve_checkpoint(session, &store, &arguments.reference).await?;
    let checkpoint = CheckpointRef { run: log.run().clone(), seq: entry.seq };
    let workspace = open(session, &store, arguments.change.capture.into()).await?;
    let root = workspace.root().to_owned();
    let paths = |paths: &[PathBuf]| paths.iter().map(|path| inside(&root, path)).collect::<Result<Vec<_>, _>>();
    let only = paths(&arguments.paths)?;
    if let Some(snapshot) = Workspace::snapshot_of(&log, entry.seq).await? {
        for path in &only {
            // What can't be read of the checkpoint is told by the restore.
            let is_known = root.join(path.as_path()).symlink_metadata().is_ok()
                || workspace.has(snapshot, path.clone()).await.unwrap_or(true);
            if !is_known {
                let shown = clean(&path.to_string());
                return Err(Failure::fixable(format!("neither {checkpoint} nor the folder has {shown}"))
                    .hint(format!("nothing was changed. `piton log {shown}` shows the checkpoints that changed it.")));
            }
        }
    }
    let options = RestoreOptions {
        selection: Selection { only, not: paths(&arguments.not)? },
        exact: arguments.exact,
        times: arguments.times,
        ..options(session, &arguments.change)?
    };
    let at = checkpoint.clone();
    let goal = Goal::Checkpoint(checkpoint);
    let exit = carry_out(session, &workspace, &goal, options, &arguments.change, arguments.note).await?;
    keeping::in_passing(session, &store, Some(&workspace)).await;
    store.close().await?;
    if arguments.both && exit == Exit::Done && !arguments.change.dry_run {
        // By its own name: the restore of the files has made newer ones.
        let named = Reference::Entry { run: at.run, seq: at.seq };
        let consent = Consent { yes: arguments.change.yes, dry_run: false };
        return super::restore_state::put_state_back(session, &named, arguments.usage, consent).await;
    }
    Ok(exit)
}

/// What the options that all three verbs have mean.
pub(crate) fn options(session: &Session, change: &Change) -> Result<RestoreOptions, Failure> {
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
    let resolver = match (conflict, &change.config) {
        (Conflict::Resolve, None) => {
            return Err(Failure::usage("`--conflict resolve` needs `--config FILE` with a provider of models"));
        }
        (Conflict::Resolve | Conflict::Ask, Some(config)) => {
            let (provider, model) = chosen_model(session, config, change.model.as_deref())?;
            let options = ModelResolverOptions { model, ..ModelResolverOptions::default() };
            let resolver = ModelResolver::new(provider, options)
                .map_err(|error| Failure::fixable("the network can't be set up").because(&error))?;
            Some(Arc::new(resolver) as Arc<dyn Resolver>)
        }
        _ => None,
    };
    let ask = Arc::new(Terminal { has_resolver: resolver.is_some(), said: Mutex::default() });
    Ok(RestoreOptions { resolution, ask, resolver, ..RestoreOptions::default() })
}

/// Whether somebody can be asked.
fn has_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// A path of the command line, as one in the workspace.
pub(crate) fn inside(root: &Path, path: &Path) -> Result<RelPath, Failure> {
    let mut whole = PathBuf::new();
    for part in root.join(path).components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            other => whole.push(other),
        }
    }
    let inside = whole
        .strip_prefix(root)
        .map_err(|_| Failure::usage(format!("{} isn't in {}", path.display(), root.display())))?;
    RelPath::new(inside.as_os_str().as_bytes()).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

/// Shows the plan, asks, does it, and says what was done.
pub(crate) async fn carry_out(
    session: &Session,
    workspace: &Workspace,
    goal: &Goal,
    options: RestoreOptions,
    change: &Change,
    note: bool,
) -> Result<Exit, Failure> {
    // With `--yes` and nobody to read along, the plan would only be made twice.
    let look = change.dry_run || !change.yes;
    if look {
        let (kind, plan) =
            watched(session, async |progress| workspace.preview_restore(goal, &options, &progress).await).await?;
        if change.dry_run {
            show_plan(session, workspace, &kind, &plan, true).await?;
            let refused = if plan.conflicts.is_empty() { Exit::Done } else { Exit::Refused };
            return Ok(refused);
        }
        if plan.conflicts.is_empty() && !plan.changes.is_empty() {
            show_plan(session, workspace, &kind, &plan, false).await?;
            show_resolved(session, workspace, &plan);
            confirm(&plan)?;
        }
    }
    let result = watched(session, async |progress| workspace.restore(goal, &options, &progress).await).await?;
    say(session, &result, look)?;
    if note && !session.output.is_json() && !result.note().is_empty() {
        session.output.data(&format!("\n{}", result.note().lines().map(clean).collect::<Vec<_>>().join("\n")))?;
    }
    Ok(Exit::Done)
}

/// Shows what somebody else made of two versions: nobody should agree to what he hasn't seen.
fn show_resolved(session: &Session, workspace: &Workspace, plan: &Plan) {
    for change in plan.changes.iter().filter(|change| change.resolved) {
        let Some(text) = plan.merged_text(change) else { continue };
        let now = workspace.read_now(&change.path).unwrap_or_default();
        let diff = TextDiff::compute(&now, text).to_string();
        let lines = diff.lines().map(clean).collect::<Vec<_>>().join("\n");
        session.output.note(&format!("the resolver's version of {}:\n{lines}", clean(&change.path.to_string())));
    }
}

/// Asks whether to go on. Without a terminal the answer is yes if nothing is lost for good, which it never is:
/// the backup has all of it.
fn confirm(plan: &Plan) -> Result<(), Failure> {
    let resolved = plan.changes.iter().filter(|change| change.resolved).count();
    if !has_terminal() {
        if resolved > 0 {
            return Err(Failure::refused("nobody can be asked whether what the resolver made is right")
                .hint("nothing was changed. `--yes` takes it as it is, `--dry-run` shows what would be done."));
        }
        return Ok(());
    }
    match answer(&format!("change {} paths? [y/N] ", plan.changes.len())).as_deref() {
        Some("y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::fixable("nothing was changed")),
    }
}

fn verb(change: &PlannedChange) -> &'static str {
    match (&change.now, &change.then) {
        _ if change.resolved => "resolve",
        _ if change.merged => "merge",
        (None, _) => "create",
        (_, None) => "delete",
        _ => "write",
    }
}

async fn show_plan(
    session: &Session,
    workspace: &Workspace,
    kind: &RestoreKind,
    plan: &Plan,
    is_data: bool,
) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        if !is_data {
            return Ok(());
        }
        let mut object = plan_json(kind, plan);
        for (place, change) in plan.changes.iter().enumerate() {
            if let Some(LineDelta { added, removed }) = workspace.line_delta(plan, change).await? {
                object["changes"][place]["added"] = json!(added);
                object["changes"][place]["removed"] = json!(removed);
            }
        }
        return output.object(&object);
    }
    let mut lines = vec![format!("{} in {}:", kind.as_words(), clean(&workspace.root().to_string_lossy()))];
    if plan.is_empty() {
        lines.push("  nothing to change".to_owned());
    }
    for change in plan.changes.iter().take(if is_data { usize::MAX } else { NAMED }) {
        let slash =
            if matches!(change.then.as_ref().or(change.now.as_ref()), Some(Entry::Folder { .. })) { "/" } else { "" };
        let delta = match workspace.line_delta(plan, change).await? {
            Some(LineDelta { added, removed }) => format!("  +{added} -{removed}"),
            None => String::new(),
        };
        lines.push(format!("  {:7} {}{slash}{delta}", verb(change), clean(&change.path.to_string())));
    }
    if !is_data && plan.changes.len() > NAMED {
        lines.push(format!("  … and {} more", plan.changes.len() - NAMED));
    }
    lines.extend(
        plan.conflicts
            .iter()
            .map(|conflict| format!("  conflict {}: {}", clean(&conflict.path.to_string()), clean(&conflict.reason))),
    );
    lines.extend(plan.left.iter().map(|(path, why)| format!("  leave   {}: {}", clean(&path.to_string()), clean(why))));
    if is_data {
        return output.data(&lines.join("\n"));
    }
    output.note(&lines.join("\n"));
    Ok(())
}

fn plan_json(kind: &RestoreKind, plan: &Plan) -> Json {
    json!({
        "restore": kind.as_words(),
        "changes": plan.changes.iter()
            .map(|change| json!({"path": change.path.to_string(), "action": verb(change)})).collect::<Vec<_>>(),
        "conflicts": plan.conflicts.iter()
            .map(|conflict| json!({"path": conflict.path.to_string(), "reason": conflict.reason})).collect::<Vec<_>>(),
        "left": plan.left.iter()
            .map(|(path, why)| json!({"path": path.to_string(), "reason": why})).collect::<Vec<_>>(),
    })
}

fn say(session: &Session, result: &RestoreResult, shown: bool) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        let mut object = plan_json(&result.kind, &result.plan);
        object["id"] = json!(result.checkpoint.as_ref().map(ToString::to_string));
        object["backup"] = json!(result.backup.as_ref().map(ToString::to_string));
        object["files_restored"] = json!(result.files_restored);
        object["note"] = json!(result.note());
        return output.object(&object);
    }
    let was_shown = shown && !result.plan.changes.is_empty();
    for (path, why) in result.plan.left.iter().filter(|_| !was_shown) {
        output.note(&format!("left {}: {}", clean(&path.to_string()), clean(why)));
    }
    match &result.checkpoint {
        None => output.data("nothing to change"),
        Some(checkpoint) => {
            let paths = if result.files_restored == 1 { "path" } else { "paths" };
            output.data(&format!(
                "{checkpoint}  {}: {} {paths} changed",
                result.kind.as_words(),
                result.files_restored
            ))?;
            output.note(match result.kind {
                RestoreKind::Undo { .. } => "`piton redo` takes it back.",
                _ => "`piton undo` takes it back.",
            });
            Ok(())
        }
    }
}

/// Asks on the terminal, if there is one.
struct Terminal {
    has_resolver: bool,
    /// What was said about a conflict holds for the plan that is shown and for the one that is carried out.
    said: Mutex<Vec<(Contested, ConflictResolution)>>,
}

impl Ask for Terminal {
    fn ask(&self, conflict: &Contested) -> ConflictResolution {
        if !has_terminal() {
            return ConflictResolution::Refuse;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, answer)) = said.iter().find(|(known, _)| known == conflict) {
            return *answer;
        }
        let resolver = if self.has_resolver { "let the re(s)olver try, " } else { "" };
        let question = format!(
            "{}: {}\n  take the (c)heckpoint's, leave what is (t)here, write it (b)eside, (m)ark the conflict in it, \
             {resolver}or (r)efuse? ",
            clean(&conflict.path.to_string()),
            clean(&conflict.reason)
        );
        let answer = loop {
            // Whoever has gone has said nothing.
            let Some(answer) = answer(&question) else { break ConflictResolution::Refuse };
            break match answer.as_str() {
                "c" => ConflictResolution::PreferCheckpoint,
                "t" => ConflictResolution::PreferCurrent,
                "b" => ConflictResolution::Beside,
                "m" => ConflictResolution::Markers,
                "s" if self.has_resolver => ConflictResolution::Resolve,
                "r" => ConflictResolution::Refuse,
                _ => continue,
            };
        };
        said.push((conflict.clone(), answer));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_command_line_stay_inside() {
        let root = Path::new("/work");
        assert_eq!(inside(root, Path::new("a/../b/./c")).unwrap().to_string(), "b/c");
        assert_eq!(inside(root, Path::new("/work/a")).unwrap().to_string(), "a");
        assert!(inside(root, Path::new(".")).unwrap().is_root());
        assert!(inside(root, Path::new("/etc/passwd")).is_err());
        assert!(inside(root, Path::new("../../x")).is_err(), "it isn't taken for another file either");
        assert!(inside(root, Path::new("a/../../x")).is_err());
    }
}
