//! `piton hook`: an agent that tells of its prompts and tool calls by itself.
//!
//! Only Claude Code so far: its hooks are commands in its settings, each called with an event as JSON on stdin. The
//! settings are the user's: they are edited as text, so that everything that isn't ours stays to the byte, and written
//! by a rename.

mod call;
mod settings;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use piton_app::views::files::{HooksChanged, HooksView};

use crate::arguments::hook::{Agent, Hook, HookAction};
use crate::consent::agreed;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use piton_app::Plan;
use settings::{EVENTS, Hooks};

/// Where Claude Code looks in a folder: what the project shares, and what is the user's alone.
const FILES: [&str; 2] = [".claude/settings.json", ".claude/settings.local.json"];

pub(crate) async fn execute(session: &Session, arguments: Hook) -> Result<Exit, Failure> {
    match arguments.action {
        HookAction::Install { agent, local, consent } => {
            let file = FILES[usize::from(local)];
            let path = session.surroundings.folder.join(file);
            let command = command(session, agent)?;
            let before = read(&path)?;
            let after = settings::installed(before.as_deref().unwrap_or("{}\n"), &command)
                .map_err(|why| unreadable(file, &why))?;
            let mut plan = Plan::new(format!("add hooks for {} to {file}", agent.name()));
            plan.line(format!("on {}", EVENTS.map(|event| event.name).join(", ")));
            plan.line(format!("run {}", clean(&command)));
            let edits = if before.as_deref() == Some(&after) { vec![] } else { vec![(path, before, Some(after))] };
            change(session, &plan, edits, consent, said(agent, vec![file], Some(command)))
        }
        HookAction::Remove { agent, consent } => {
            let (mut edits, mut files) = (Vec::new(), Vec::new());
            for file in FILES {
                let path = session.surroundings.folder.join(file);
                let Some(before) = read(&path)? else { continue };
                let after = settings::removed(&before).map_err(|why| unreadable(file, &why))?;
                if let Some(after) = after {
                    files.push(file);
                    edits.push((path, Some(before), after));
                }
            }
            let mut plan = Plan::new(format!("take the hooks for {} out of {}", agent.name(), FILES.join(", ")));
            for (file, (_, _, after)) in files.iter().zip(&edits) {
                let all = if after.is_none() { "; nothing else is left in it, so it is deleted" } else { "" };
                plan.line(format!("{file}{all}"));
            }
            change(session, &plan, edits, consent, said(agent, files, None))
        }
        HookAction::Show { agent: _ } => show(session, Agent::ClaudeCode),
        HookAction::Call { agent: Agent::ClaudeCode } => Ok(call::execute(session).await),
    }
}

/// A file, its text before, and its text after; none for a file that isn't there.
type Edit = (PathBuf, Option<String>, Option<String>);

/// What is told of a change of hooks.
fn said(agent: Agent, files: Vec<&'static str>, command: Option<String>) -> HooksChanged {
    HooksChanged { agent: agent.name(), files, command, changed: false }
}

/// Carries the edits out if that is agreed to.
fn change(
    session: &Session,
    plan: &Plan,
    edits: Vec<Edit>,
    consent: crate::arguments::Consent,
    said: HooksChanged,
) -> Result<Exit, Failure> {
    let output = &session.output;
    if edits.is_empty() {
        match output.is_json() {
            true => output.view(&said)?,
            false => output.note("nothing to do: it is so already"),
        }
        return Ok(Exit::Done);
    }
    if !agreed(plan, session, consent)? {
        return Ok(Exit::Done);
    }
    for (path, before, after) in &edits {
        write(path, before.as_deref(), after.as_deref())
            .map_err(|error| Failure::fixable(format!("can't change {}", path.display())).because(&error))?;
    }
    match output.is_json() {
        true => output.view(&HooksChanged { changed: true, ..said })?,
        false => output.note("done; sessions that begin from now on go by it"),
    }
    Ok(Exit::Done)
}

fn show(session: &Session, agent: Agent) -> Result<Exit, Failure> {
    let output = &session.output;
    for file in FILES {
        let text = read(&session.surroundings.folder.join(file))?;
        let hooks = text.map(|text| settings::found(&text)).transpose().map_err(|why| unreadable(file, &why))?;
        let Hooks { events, commands } = hooks.unwrap_or_default();
        let state = match events.len() {
            0 => "no",
            some if some == EVENTS.len() => "yes",
            _ => "partly",
        };
        if output.is_json() {
            let events = events.iter().map(ToString::to_string).collect();
            output.view(&HooksView { agent: agent.name(), file, installed: state, events, commands })?;
            continue;
        }
        let mut line =
            format!("{}  {file}  {}", agent.name(), if state == "no" { "not installed" } else { "installed" });
        if state == "partly" {
            line.push_str(&format!(", but only for {}", events.join(", ")));
        }
        for command in &commands {
            line.push_str(&format!("\n  {}", clean(command)));
        }
        output.data(&line)?;
    }
    Ok(Exit::Done)
}

/// What the agent is to run: this program, by its name if the shell finds it by that. It ends well whatever happens,
/// a `piton` that doesn't know the verb included: an end with 2 would stop the agent.
fn command(session: &Session, agent: Agent) -> Result<String, Failure> {
    let fail = |error| Failure::fixable("this program can't be found").because(&error);
    let own = std::env::current_exe().and_then(|path| path.canonicalize()).map_err(fail)?;
    let path = session.variable("PATH").unwrap_or_default();
    let by_name = std::env::split_paths(&path).map(|folder| folder.join("piton")).find(|path| path.is_file());
    let program = match by_name.and_then(|path| path.canonicalize().ok()) {
        Some(found) if found == own => "piton".to_owned(),
        _ => match own.to_str() {
            Some(text) => format!("'{}'", text.replace('\'', r"'\''")),
            None => return Err(Failure::fixable(format!("{} is not Unicode", own.display()))),
        },
    };
    Ok(format!(r#"{program} -C "$CLAUDE_PROJECT_DIR" {} {} || true"#, settings::CALL, agent.name()))
}

fn unreadable(file: &str, why: &str) -> Failure {
    Failure::fixable(format!("{file} can't be read: {why}")).hint("nothing was changed; put it right first.")
}

/// The text of a file, if it is there.
fn read(path: &Path) -> Result<Option<String>, Failure> {
    match std::fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| Failure::fixable(format!("{} is not Unicode", path.display())).hint("nothing was changed.")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::fixable(format!("can't read {}", path.display())).because(&error)),
    }
}

/// Replaces a file by a rename, if it is still what it was. A link stays one: what it leads to is replaced.
fn write(path: &Path, before: Option<&str>, after: Option<&str>) -> std::io::Result<()> {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let now = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        now => Some(now?),
    };
    if now.as_deref() != before {
        return Err(std::io::Error::other("it was changed just now"));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let Some(after) = after else {
        std::fs::remove_file(path)?;
        // If something else is in there it stays.
        let _ = std::fs::remove_dir(folder);
        return Ok(());
    };
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(after.as_bytes())?;
    let mode = match before {
        Some(_) => std::fs::metadata(path)?.permissions(),
        None => std::os::unix::fs::PermissionsExt::from_mode(0o644),
    };
    file.as_file().set_permissions(mode)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
