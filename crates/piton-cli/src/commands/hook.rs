//! `piton hook`: an agent that tells of its prompts and tool calls by itself.

use std::io::Read as _;

use piton_agents::Agent;
use piton_app::hooks::{self, HookChange, MAX_EVENT};

use crate::arguments::Consent;
use crate::arguments::hook::{Hook, HookAction};
use crate::consent::agreed;
use crate::failure::{Exit, Failure, render};
use crate::output::clean;
use crate::session::Session;

pub(crate) async fn execute(session: &Session, arguments: Hook) -> Result<Exit, Failure> {
    match arguments.action {
        HookAction::Install { agent, local, consent } => {
            change(session, hooks::install(session, agent.into(), local, &program(session)?)?, consent)
        }
        HookAction::Remove { agent, consent } => change(session, hooks::remove(session, agent.into())?, consent),
        HookAction::Show { agent } => {
            let chosen = agent.map(Agent::from);
            Agent::ALL
                .into_iter()
                .filter(|one| chosen.is_none_or(|agent| agent == *one))
                .try_for_each(|agent| show(session, agent))?;
            Ok(Exit::Done)
        }
        HookAction::Call { agent } => Ok(call(session, agent.into()).await),
    }
}

/// Carries a change out if that is agreed to.
fn change(session: &Session, change: HookChange, consent: Consent) -> Result<Exit, Failure> {
    let output = &session.output;
    let nothing = change.is_nothing();
    if !nothing && !agreed(&change.plan, session, consent)? {
        return Ok(Exit::Done);
    }
    let changed = change.carry_out()?;
    match output.is_json() {
        true => output.view(&changed)?,
        false if nothing => output.note("nothing to do: it is so already"),
        false => output.note("done; sessions that begin from now on go by it"),
    }
    Ok(Exit::Done)
}

fn show(session: &Session, agent: Agent) -> Result<(), Failure> {
    let output = &session.output;
    for hooks in hooks::show(session, agent)? {
        if output.is_json() {
            output.view(&hooks)?;
            continue;
        }
        let state = if hooks.installed == "no" { "not installed" } else { "installed" };
        let mut line = format!("{}  {}  {state}", hooks.agent, hooks.file);
        if hooks.installed == "partly" {
            line.push_str(&format!(", but only for {}", hooks.events.join(", ")));
        }
        for command in &hooks.commands {
            line.push_str(&format!("\n  {}", clean(command)));
        }
        output.data(&line)?;
    }
    Ok(())
}

/// What the agent calls. Never stops the agent, and never speaks to its model: whatever goes wrong is a message for the
/// user, and the exit code is 0.
async fn call(session: &Session, agent: Agent) -> Exit {
    let mut event = String::new();
    let read = std::io::stdin().lock().take(MAX_EVENT).read_to_string(&mut event);
    let called = match read {
        Ok(_) => hooks::called(session, agent, &event).await,
        Err(error) => Err(Failure::fixable("the event can't be read").because(&error)),
    };
    if let Err(failure) = called {
        let message = format!("piton made no checkpoint\n{}", render(&failure, str::to_owned));
        session.output.note(&message);
        // The agent shows this to its user. If it can't be written there is no reader to tell.
        let _ = session.output.object(&agent.notice(&message));
    }
    Exit::Done
}

/// This program as a shell finds it: by its name if it is found by that, else by its path.
fn program(session: &Session) -> Result<String, Failure> {
    let fail = |error| Failure::fixable("this program can't be found").because(&error);
    let own = std::env::current_exe().and_then(|path| path.canonicalize()).map_err(fail)?;
    let path = session.variable("PATH").unwrap_or_default();
    let by_name = std::env::split_paths(&path).map(|folder| folder.join("piton")).find(|path| path.is_file());
    match by_name.and_then(|path| path.canonicalize().ok()) {
        Some(found) if found == own => Ok("piton".to_owned()),
        _ => match own.to_str() {
            Some(text) => Ok(format!("'{}'", text.replace('\'', r"'\''"))),
            None => Err(Failure::fixable(format!("{} is not Unicode", own.display()))),
        },
    }
}
