//! `piton demo`: what Piton does, shown on a new folder with real processes. Whatever it claims at the end it has
//! measured before: hashes of files, requests that the model's server counted, exit codes.
//!
//! The verbs that it shows are run as a user would run them, as processes of their own.

mod agent;
mod files;
mod model;
mod person;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use piton_app::words::typed;
use piton_runtime::SystemRandom;
use piton_types::Random as _;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::arguments::first_use::Demo;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;
use crate::terminal::answer;

/// How long a reader gets between two acts who can't press a key.
const READING: Duration = Duration::from_secs(1);
/// How many lines of a command's output are shown.
const SHOWN: usize = 12;

pub(crate) async fn execute(session: &Session, arguments: &Demo) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let mut stage = Stage::new(session, arguments.into.as_deref())?;
    stage.say(&format!("Everything happens in {}.", stage.root.display()))?;
    files::show(&mut stage).await?;
    stage.pause("an agent that is killed").await;
    agent::show(&mut stage).await?;
    stage.pause("a person who is asked").await;
    person::show(&mut stage).await?;
    stage.finish(begun)
}

/// Something that was claimed, and whether it turned out so.
struct Claim {
    text: String,
    holds: bool,
}

/// Where it happens.
struct Stage<'a> {
    session: &'a Session,
    /// The new folder.
    root: PathBuf,
    /// The program itself.
    program: PathBuf,
    claims: Vec<Claim>,
}

/// A command that ended.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl<'a> Stage<'a> {
    fn new(session: &'a Session, into: Option<&Path>) -> Result<Self, Failure> {
        let root = into.map_or_else(|| temporary(session), Path::to_path_buf);
        let cannot = |error: std::io::Error| {
            Failure::fixable(format!("can't make {}", root.display()))
                .because(&error)
                .hint("name a folder that doesn't exist yet with `--into DIR`.")
        };
        std::fs::create_dir(&root).map_err(cannot)?;
        let root = root.canonicalize().map_err(cannot)?;
        std::fs::create_dir(root.join("project")).map_err(cannot)?;
        let program = std::env::current_exe()
            .and_then(|program| program.canonicalize())
            .map_err(|error| Failure::fixable("can't find the program that this is").because(&error))?;
        Ok(Self { session, root, program, claims: Vec::new() })
    }

    /// The folder that stands for a project.
    fn project(&self) -> PathBuf {
        self.root.join("project")
    }

    fn store(&self) -> String {
        format!("sqlite:{}", self.root.join("store.db").display())
    }

    /// A line for people.
    fn say(&self, text: &str) -> Result<(), Failure> {
        if self.session.output.is_json() { Ok(()) } else { self.session.output.data(text) }
    }

    /// Between two acts: a person says when it goes on; who only watches the output gets a second to read.
    async fn pause(&self, next: &'static str) {
        if self.session.output.is_json() || !self.session.output.is_terminal() {
            return;
        }
        let pressed = tokio::task::spawn_blocking(move || answer(&format!("\nEnter for the next act, {next}: ")));
        if !matches!(pressed.await, Ok(Some(_))) {
            tokio::time::sleep(READING).await;
        }
    }

    fn title(&self, text: &str) -> Result<(), Failure> {
        self.say(&format!("\n{}", self.painted("1;36", &format!("== {text}"))))
    }

    /// In a colour, if the terminal may have some.
    fn painted(&self, code: &str, text: &str) -> String {
        if self.session.output.has_colour() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn claim(&mut self, holds: bool, text: impl Into<String>) {
        self.claims.push(Claim { text: text.into(), holds });
    }

    /// Writes a file of the project.
    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.project().join(name);
        let folder = path.parent().unwrap_or(&self.root);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| Failure::fixable(format!("can't write {}", path.display())).because(&error))
    }

    /// `piton` with these arguments, in the project.
    fn piton(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(self.project())
            .env("PITON_STORE", self.store())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    fn start(&self, arguments: &[&str]) -> Result<Child, Failure> {
        self.piton(arguments).spawn().map_err(|error| Failure::fixable("can't start piton").because(&error))
    }

    /// Runs a verb to its end without showing it.
    async fn quietly(&self, arguments: &[&str]) -> Result<Ended, Failure> {
        finished(self.start(arguments)?).await
    }

    /// Runs a verb, shown with what it says.
    async fn run(&self, arguments: &[&str]) -> Result<Ended, Failure> {
        self.say(&self.painted("1", &format!("$ piton {}", typed(arguments))))?;
        let ended = self.quietly(arguments).await?;
        let said: Vec<&str> = ended.stdout.lines().chain(ended.stderr.lines()).collect();
        for line in said.iter().take(SHOWN) {
            self.say(&format!("  {}", clean(line)))?;
        }
        if said.len() > SHOWN {
            let more = said.len() - SHOWN;
            self.say(&format!("  … {more} line{} more", if more == 1 { "" } else { "s" }))?;
        }
        Ok(ended)
    }

    /// Whether the shell finds this program by its name.
    fn is_installed(&self) -> bool {
        let path = self.session.variable("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|folder| folder.join("piton"))
            .any(|found| found.canonicalize().is_ok_and(|found| found == self.program))
    }

    /// What was claimed and what became of it.
    fn finish(self, begun: Instant) -> Result<Exit, Failure> {
        let all = self.claims.iter().all(|claim| claim.holds);
        let seconds = begun.elapsed().as_secs_f64();
        if self.session.output.is_json() {
            self.session.output.object(&json!({
                "folder": self.root.to_string_lossy(),
                "store": self.store(),
                "ok": all,
                "seconds": seconds,
                "claims": self.claims.iter()
                    .map(|claim| json!({"claim": claim.text, "holds": claim.holds})).collect::<Vec<_>>(),
            }))?;
        } else {
            self.title("What you saw")?;
            for Claim { text, holds } in &self.claims {
                let word = if *holds { self.painted("1;32", "yes") } else { self.painted("1;31", "NO ") };
                self.say(&format!("{word} {text}"))?;
            }
            self.say(&format!("\nIt took {seconds:.0} s. The folder is yours to look around in:"))?;
            self.say(&format!("  cd {}", typed(&[&self.project().to_string_lossy()])))?;
            self.say(&format!("  export PITON_STORE={}", typed(&[&self.store()])))?;
            if !self.is_installed() {
                self.say(&format!("  piton() {{ {} \"$@\"; }}", typed(&[&self.program.to_string_lossy()])))?;
            }
            self.say("  piton log                     what happened to the files")?;
            self.say("  piton show killed --steps     what the agent did, turn by turn")?;
            self.say("In a project of your own: `piton guard -- your-agent`, then `piton status` and `piton undo`.")?;
        }
        if all {
            return Ok(Exit::Done);
        }
        Err(Failure::internal("the demo did not turn out as it should").hint("`piton doctor` may say why."))
    }
}

/// A name that isn't taken, among the temporary folders.
fn temporary(session: &Session) -> PathBuf {
    let mut bytes = [0; 4];
    SystemRandom.fill(&mut bytes);
    let name = format!("piton-demo-{:08x}", u32::from_le_bytes(bytes));
    PathBuf::from(session.variable("TMPDIR").unwrap_or_else(|| "/tmp".to_owned())).join(name)
}

/// Waits for a command and takes what it said.
async fn finished(child: Child) -> Result<Ended, Failure> {
    let output =
        child.wait_with_output().await.map_err(|error| Failure::fixable("can't wait for piton").because(&error))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) })
}
