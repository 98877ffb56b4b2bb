//! The verb for the hooks of coding agents, as it is written.

use clap::{Args, Subcommand, ValueEnum};

use crate::arguments::Consent;

/// Install, remove or show the hooks of a coding agent
///
/// With its hooks an agent tells Piton of every prompt and every tool call. Each session becomes a run, each tool call that
/// may change something a step of it with the files before and after: `piton undo RUN/STEP` takes one back,
/// `piton undo RUN/turn-2` all that came of a prompt, and what you typed meanwhile stays. A hook never stops the agent: if a
/// checkpoint can't be made, the agent says so and goes on.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton hook install claude-code\n  piton hook install claude-code --local --dry-run\n  piton hook show\n  piton hook remove claude-code"
)]
pub(crate) struct Hook {
    #[command(subcommand)]
    pub(crate) action: HookAction,
}

/// What to do with hooks.
#[derive(Debug, Subcommand)]
pub(crate) enum HookAction {
    /// Add them to the agent's settings in this folder; everything else there stays as it is
    Install {
        /// Which agent
        agent: Agent,
        /// In the settings that are yours alone, .claude/settings.local.json, not in those of the project
        #[arg(long)]
        local: bool,
        #[command(flatten)]
        consent: Consent,
    },
    /// Take them out of the settings in this folder; a file in which nothing else is left goes
    Remove {
        /// Which agent
        agent: Agent,
        #[command(flatten)]
        consent: Consent,
    },
    /// Which are there
    Show {
        /// Which agent; all if none is named
        agent: Option<Agent>,
    },
    /// What the agent calls: an event as JSON on stdin
    #[command(hide = true)]
    Call {
        /// Which agent
        agent: Agent,
    },
}

/// An agent whose hooks are known.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Agent {
    /// Claude Code
    ClaudeCode,
}

impl From<Agent> for piton_agents::Agent {
    fn from(agent: Agent) -> Self {
        match agent {
            Agent::ClaudeCode => Self::ClaudeCode,
        }
    }
}
