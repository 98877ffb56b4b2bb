//! The verbs for work that workers do, as they are written.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::files::parse_seconds;
use super::{Start, store};

/// Put the run of a document into the queue, for a worker to drive
///
/// When this returns, a worker will drive the run, whatever happens to this process. Stores in SQLite have a queue, and so
/// several workers on one machine need no server.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton submit flow.yml -i topic=bees\n  piton submit flow.yml --label gpu --priority 5\n  piton submit nightly.yml --dedupe nightly-2026-11-18 --in 2h\n  piton submit nightly.yml --every \"0 3 * * *\"\n  piton submit flow.yml --limit api=2 --wait"
)]
pub(crate) struct Submit {
    #[command(flatten)]
    pub(crate) start: Start,
    /// Who takes more important work first: the larger, the sooner
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// A guess at the work, in a unit of yours; `show` tells it again
    #[arg(long, value_name = "NUMBER")]
    pub(crate) complexity: Option<f64>,
    /// Not before so long from now: a number and s, m, h, d or w
    #[arg(long = "in", value_name = "AGE", value_parser = store::age)]
    pub(crate) later: Option<Duration>,
    /// Not before this moment, as in 2026-11-18T03:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "later")]
    pub(crate) at: Option<piton_types::Timestamp>,
    /// Again and again: minute, hour, day, month, weekday, in UTC. Cancelling the run that waits ends it
    #[arg(long, value_name = "CRON", conflicts_with_all = ["later", "at", "id", "wait"])]
    pub(crate) every: Option<String>,
    /// One run for each key: the same key again names the run that is there
    #[arg(long, value_name = "KEY", conflicts_with = "id")]
    pub(crate) dedupe: Option<String>,
    /// Of the runs with this key at most N are driven at once
    #[arg(long, value_name = "KEY=N", value_parser = parse_limit)]
    pub(crate) limit: Option<(String, u32)>,
    /// Wait until the run is over, and end as `piton run` does
    #[arg(long)]
    pub(crate) wait: bool,
}

fn parse_limit(text: &str) -> Result<(String, u32), String> {
    match text.rsplit_once('=').map(|(key, number)| (key, number.parse())) {
        Some((key, Ok(number))) if !key.is_empty() && number > 0 => Ok((key.to_owned(), number)),
        _ => Err("a limit is KEY=N, and N is at least 1".to_owned()),
    }
}

/// Drive runs that wait in the queue
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton worker run --concurrency 4\n  piton worker run --labels gpu,eu\n  piton worker ls\n  piton worker drain NAME"
)]
pub(crate) struct Worker {
    #[command(subcommand)]
    pub(crate) action: WorkerAction,
}

/// What to do with workers.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerAction {
    /// Be a worker: take runs and drive them until SIGTERM, which stops them in peace and hands them on
    Run {
        /// How many runs it drives at once
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
        concurrency: u32,
        /// What it has; it takes runs that ask for none but these
        #[arg(long, value_name = "LABELS", value_delimiter = ',')]
        labels: Vec<String>,
        /// What it is called; the host and the process if nothing is said
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// What it has goes to others when it gives no sign of life for so long; the same for all workers of a store
        #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
        hold: Duration,
        /// End when nothing is due, or will be soon
        #[arg(long)]
        until_empty: bool,
        /// Models, knowledge bases, credentials, limits: a .toml, .yml or .json file
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// The workers of the store
    Ls,
    /// Ask a worker to take no more runs, to stop in peace and to end
    Drain {
        /// Which
        #[arg(value_name = "NAME", required_unless_present = "all")]
        name: Option<String>,
        /// All of them
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
}

/// Give an agent what this command line can, as tools of the Model Context Protocol
///
/// Started by the agent, over its pipes. Acts that change files are shown to the user first where the agent can ask, and need a
/// second call with the plan's id where it can't. `piton serve` gives the same at /mcp.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton mcp --role look\n  piton -C ~/project mcp --config piton.toml\n  claude mcp add piton -- piton mcp"
)]
pub(crate) struct Mcp {
    /// What the agent may: look; answer questions, too; or everything
    #[arg(long, value_name = "ROLE", default_value = "operate", value_parser = ["look", "answer", "operate"])]
    pub(crate) role: String,
    /// Models, knowledge bases, credentials, limits of the runs that it drives: a .toml, .yml or .json file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Look at runs and steer them from a browser or over HTTP
///
/// Serves this folder and its store on this machine only, unless something else is said. A link that signs a browser in once
/// is printed; programs use the tokens that lie in the folder that is named. Runs that are started there are driven by the
/// server; when it ends they stop in peace, and can be resumed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  piton serve\n  piton serve --listen 127.0.0.1:0 --json\n  piton serve --config piton.toml\n  piton serve --listen 0.0.0.0:7433 --tls-cert cert.pem --tls-key key.pem --host build.example"
)]
pub(crate) struct Serve {
    /// Where it listens; port 0 takes one that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7433")]
    pub(crate) listen: std::net::SocketAddr,
    /// A name by which it may be called, beside its address and localhost
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// Its certificate, with those that vouch for it: PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate: PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Others may reach it though it has no TLS: behind a proxy that has, or in a network of your own
    #[arg(long)]
    pub(crate) without_tls: bool,
    /// Models, knowledge bases, credentials, limits of the runs that it drives: a .toml, .yml or .json file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
