//! The hooks of coding agents: put into an agent's settings, taken out, shown; and what happens when the agent calls
//! one.
//!
//! Settings are written by a rename, and only if they are still what the user was shown.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_agents::danger::Classifier;
use piton_agents::{Agent, Happening, Report, SettingsError};
use piton_runtime::calling_program;
use piton_types::RunId;
use piton_workspace::{Reports, ToolFailure, Workspace};

use crate::app::App;
use crate::failure::Failure;
use crate::files::{Capture, open, store_for_files};
use crate::plan::Plan;
use crate::store::keeping;
use crate::views::files::{HooksChanged, HooksView};

/// The largest event that is worth reading.
pub const MAX_EVENT: u64 = 64 << 20;

/// How long a hook waits for another process that works on the folder: the agent, and its user, wait with it.
const PATIENCE: Duration = Duration::from_secs(5);

/// A change of settings that can be looked at and carried out.
#[derive(Debug)]
pub struct HookChange {
    /// What it will do.
    pub plan: Plan,
    edits: Vec<Edit>,
    changed: HooksChanged,
}

/// A file, its text before, and its text after; none for a file that isn't there.
type Edit = (PathBuf, Option<String>, Option<String>);

impl HookChange {
    /// Whether it is so already.
    pub fn is_nothing(&self) -> bool {
        self.edits.is_empty()
    }

    /// Does it.
    pub fn carry_out(self) -> Result<HooksChanged, Failure> {
        for (path, before, after) in &self.edits {
            write(path, before.as_deref(), after.as_deref())
                .map_err(|error| Failure::fixable(format!("can't change {}", path.display())).because(&error))?;
        }
        Ok(HooksChanged { changed: !self.edits.is_empty(), ..self.changed })
    }
}

/// Adds hooks to the settings that the project shares, or to those that are the user's alone. `program` is how a shell
/// finds this program: its name, or its path.
pub fn install(app: &App, agent: Agent, local: bool, program: &str) -> Result<HookChange, Failure> {
    let file = agent.files()[usize::from(local)];
    let path = app.folder().join(file);
    let command = agent.command(program);
    let before = read(&path)?;
    let after = agent.installed(before.as_deref().unwrap_or("{}\n"), &command).map_err(|why| unreadable(file, &why))?;
    let mut plan = Plan::new(format!("add hooks for {} to {file}", agent.name()));
    plan.line(format!("on {}", agent.events().join(", ")));
    plan.line(format!("run {command}"));
    let edits = if before.as_deref() == Some(&after) { vec![] } else { vec![(path, before, Some(after))] };
    let changed = HooksChanged { agent: agent.name(), files: vec![file], command: Some(command), changed: false };
    Ok(HookChange { plan, edits, changed })
}

/// Takes the hooks out of all settings in the folder.
pub fn remove(app: &App, agent: Agent) -> Result<HookChange, Failure> {
    let (mut edits, mut files) = (Vec::new(), Vec::new());
    let mut plan = Plan::new(format!("take the hooks for {} out of {}", agent.name(), agent.files().join(", ")));
    for file in agent.files() {
        let path = app.folder().join(file);
        let Some(before) = read(&path)? else { continue };
        if let Some(after) = agent.removed(&before).map_err(|why| unreadable(file, &why))? {
            let all = if after.is_none() { "; nothing else is left in it, so it is deleted" } else { "" };
            plan.line(format!("{file}{all}"));
            files.push(file);
            edits.push((path, Some(before), after));
        }
    }
    let changed = HooksChanged { agent: agent.name(), files, command: None, changed: false };
    Ok(HookChange { plan, edits, changed })
}

/// Which hooks there are.
pub fn show(app: &App, agent: Agent) -> Result<Vec<HooksView>, Failure> {
    let one = |file: &'static str| {
        let text = read(&app.folder().join(file))?;
        let hooks = text.map(|text| agent.found(&text)).transpose().map_err(|why| unreadable(file, &why))?;
        let hooks = hooks.unwrap_or_default();
        let installed = match hooks.events.len() {
            0 => "no",
            some if some == agent.events().len() => "yes",
            _ => "partly",
        };
        Ok(HooksView { agent: agent.name(), file, installed, events: hooks.events, commands: hooks.commands })
    };
    agent.files().into_iter().map(one).collect()
}

/// An agent called a hook with this event: a checkpoint is made if files may have changed or may be about to.
pub async fn called(app: &App, agent: Agent, event: &str) -> Result<(), Failure> {
    let report = agent.report(event).map_err(|error| Failure::fixable(error.to_string()).causes_of(&error))?;
    if let Happening::Other { name } = &report.happening {
        app.detail(&format!("{name} is no event that matters"));
    }
    if !report.needs_checkpoint(&Classifier::default()) {
        return Ok(());
    }
    let capture = Capture { patience: Some(PATIENCE), ..Capture::default() };
    let store = store_for_files(app, capture).await?;
    let workspace = open(app, &store, capture).await?;
    let reports = reports(app, &workspace, agent, &report).await?;
    match report.happening {
        Happening::TurnBegins { prompt } => drop(reports.turn_begins(&prompt).await?),
        Happening::ToolBegins { tool, call, input } => {
            drop(reports.tool_begins(&tool, call.as_deref(), input).await?);
        }
        Happening::ToolEnded { tool, call, outcome, .. } => {
            let outcome = outcome.map_err(|message| ToolFailure { message, recoverable: true });
            drop(reports.tool_ended(&tool, call.as_deref(), outcome).await?);
        }
        Happening::TurnEnded => {
            drop(reports.turn_ended().await?);
            keeping::in_passing(app, &store).await;
        }
        Happening::SessionEnded => reports.end().await?,
        _ => {}
    }
    Ok(store.close().await?)
}

/// The session that it is about: that of `piton guard` if the agent runs under it, else one of its own.
async fn reports(app: &App, workspace: &Workspace, agent: Agent, report: &Report) -> Result<Reports, Failure> {
    let around = app.variable("PITON_RUN").and_then(|run| run.parse::<RunId>().ok());
    if let Some(run) = around
        && workspace.is_driven(&run).await?
    {
        return Ok(Reports::within(workspace, run).await?);
    }
    let (run, input) = agent.run(&report.session);
    Ok(Reports::of(workspace, &run, agent.title(), input, calling_program()).await?)
}

fn unreadable(file: &str, why: &SettingsError) -> Failure {
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
