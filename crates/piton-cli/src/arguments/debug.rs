//! The arguments of `piton debug`.

use clap::Args;

use super::{LimitFlags, Start};
use crate::commands::debug::words::parse_breakpoint;
use piton_app::debug::Breakpoint;

/// Step through a run: break, look, set variables, go back
///
/// The run stops before its first node, and then where it is told to; `help` lists the commands, which come from the
/// terminal or from a pipe, one a line. In the place of the document may stand a run to go on with. It is kept like any
/// other: after `quit`, the end of the commands or a crash, `piton debug RUN` goes on with it.
#[derive(Debug, Args)]
#[command(
    override_usage = "piton debug [OPTIONS] <DOC|RUN> [QUESTION]",
    after_help = "Examples:\n  piton debug flow.yml -i topic=bees\n  piton debug RUN\n  piton debug flow.yml --break \"check if fetch.status > 299\" --on-error\n  printf 'to check\\nvars fetch\\nback fetch\\ncontinue\\n' | piton debug flow.yml --json"
)]
pub(crate) struct Debug {
    #[command(flatten)]
    pub(crate) start: Start,
    /// Stop at a node, as the command `break` takes it; may be given again
    #[arg(long = "break", value_name = "NODE", value_parser = parse_breakpoint)]
    pub(crate) breakpoints: Vec<Breakpoint>,
    /// Stop after nodes that fail
    #[arg(long)]
    pub(crate) on_error: bool,
    /// Go on with a run although something dangerous changed since it was begun
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
}
