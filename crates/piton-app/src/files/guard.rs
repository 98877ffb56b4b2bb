//! A program under checkpoints: of the folder before, while and after it runs.
//!
//! The shell starts the program and waits for it; what is around it is here. A request to stop the run ends the program:
//! `SIGTERM`, and after the time that the request leaves to it `SIGKILL`.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use piton_process::Job;
use piton_runtime::{Order, RequestRecord, SystemRandom, listen_for_nudges};
use piton_store::Store;
use piton_types::{CheckpointRef, RunId, Value, Verification};
use piton_workspace::{Coverage, Goal, RestoreOptions, Session, SessionOptions, Side, Standing, Workspace};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch::Receiver;

use crate::app::App;
use crate::failure::Failure;
use crate::files::drift_watch::{PAUSES, watch};
use crate::files::outlive::Keeper;
use crate::files::unprotected::unprotected;
use crate::files::{Capture, open, store_for_files, watched};
use crate::place::is_shared;
use crate::place::keys::KEY_VARIABLES;
use crate::runs::drive::DriftWatch;
use crate::store::keeping;
use crate::views::files::{ChangeView, CoverageView, GitMovesView, GuardedView, ReasonView};
use crate::words::typed;

/// How long a program may take to end when its run is given up for good.
const GRACE: Duration = Duration::from_secs(5);

/// How much is kept of what a check said.
const SAID: usize = 2000;

/// How a program is guarded.
#[derive(Debug, Clone, Copy, Default)]
pub struct GuardOptions {
    /// What is captured.
    pub capture: Capture,
    /// When checkpoints are made while it runs.
    pub checkpoints: SessionOptions,
    /// How the repository is watched; a program that is to pause stands still.
    pub drift: DriftWatch,
    /// What it did is taken back if it fails.
    pub rollback_on_failure: bool,
    /// The program goes on if this process is killed.
    pub outlives: bool,
}

/// A program that is about to begin, runs or has ended.
pub struct Guarding {
    options: GuardOptions,
    store: Arc<dyn Store>,
    workspace: Workspace,
    run: RunId,
    session: Session,
    /// How closely checkpoints followed the program.
    coverage: Coverage,
    verification: Vec<Verification>,
}

impl Guarding {
    /// Makes the run of a program and the checkpoint of how it finds the files.
    pub async fn begin(app: &App, command: &[String], options: GuardOptions) -> Result<Self, Failure> {
        let store = store_for_files(app, options.capture).await?;
        let workspace = open(app, &store, options.capture).await?;
        let run = RunId::generate(app.now(), &SystemRandom);
        let words = Value::List(command.iter().map(|word| Value::from(word.as_str())).collect());
        let pauses = Value::Bool(options.drift.pauses);
        let input = Value::Map([("command".to_owned(), words), (PAUSES.to_owned(), pauses)].into());
        // A process that stops the run is heard at once; without it, within a second.
        if let Err(error) = listen_for_nudges() {
            app.detail(&format!("other processes are heard only once a second: {error}"));
        }
        let begin =
            async |progress| Session::begin_as(&workspace, run.clone(), command.join(" "), input, &progress).await;
        let session = watched(app, begin).await?;
        if let Some(line) = unprotected(&workspace, session.opened().snapshot).await? {
            app.note(&format!("piton: {line}"));
        }
        Ok(Self { options, store, workspace, run, session, coverage: Coverage::default(), verification: Vec::new() })
    }

    /// Its run. Whatever the program starts learns from `PITON_RUN` on whose behalf it works.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Waits for `program`, and meanwhile makes checkpoints, looks after the repository, and stops the program if its
    /// run is to stop. `pid` says which process it is, once it is one.
    pub async fn around<T>(&mut self, app: &App, pid: Receiver<Option<Pid>>, program: impl Future<Output = T>) -> T {
        let orders = self.session.orders();
        let outlives = self.options.outlives;
        let (workspace, run, drift) = (self.workspace.clone(), self.run.clone(), self.options.drift);
        let (ended, coverage) = self
            .session
            .run_with_checkpoints(self.options.checkpoints, async {
                tokio::select! {
                    ended = program => ended,
                    never = watch(app, &workspace, &run, drift, pid.clone()) => match never {},
                    never = stop_when_asked(orders, pid.clone()) => match never {},
                    never = keep(pid.clone(), outlives) => match never {},
                }
            })
            .await;
        self.coverage = coverage;
        ended
    }

    /// Checks the work once the program has ended well: each command by the shell, in the folder. What they write is part
    /// of the run, and what they come to is recorded.
    pub async fn verify(&mut self, commands: &[String]) -> Result<(), Failure> {
        for command in commands {
            if !matches!(self.workspace.standing(), Standing::There) {
                break;
            }
            let mut job = Job::new("sh").arguments(["-c", command]);
            job.folder = Some(self.workspace.root().to_owned());
            job.withheld = KEY_VARIABLES.iter().map(Into::into).collect();
            let (passed, said) = match piton_process::run(job).await {
                Ok(ended) => {
                    let said = if ended.stderr.is_empty() { ended.stdout } else { ended.stderr };
                    (ended.exit_code == 0, String::from_utf8_lossy(&said).into_owned())
                }
                Err(error) => (false, error.to_string()),
            };
            let said = said.trim();
            let from = said.ceil_char_boundary(said.len().saturating_sub(SAID));
            let check = Verification { name: command.clone(), passed, detail: said[from..].to_owned() };
            self.session.verified(check.clone()).await?;
            self.verification.push(check);
        }
        Ok(())
    }

    /// Ends the run of a program that could not be started.
    pub async fn not_started(self) -> Result<(), Failure> {
        self.session.end(Err("the program could not be started".to_owned())).await?;
        Ok(self.store.close().await?)
    }

    /// Makes the last checkpoint and ends the run. The program ended with `code`, and the shell should too, even if this
    /// fails.
    pub async fn finish(mut self, app: &App, code: u8) -> Result<GuardedView, Failure> {
        match self.workspace.standing() {
            Standing::There => {}
            Standing::Replaced if is_there(&self.store.url()) => {
                self.workspace = open(app, &self.store, self.options.capture).await?;
                self.session.move_to(&self.workspace);
            }
            standing => {
                let opened = self.session.opened().checkpoint.clone();
                // If the store was inside, nothing can be written to it either.
                let _ = self.session.abandon("the folder was gone when the program ended").await;
                let failure = match standing {
                    Standing::Moved => moved(&self.workspace, &opened),
                    _ => deleted(&self.workspace, &self.store.url(), &opened, code),
                };
                let _ = self.store.close().await;
                return Err(failure);
            }
        }
        let (workspace, run) = (&self.workspace, &self.run);
        let outcome = if code == 0 { Ok(Value::from(0)) } else { Err(format!("the program ended with {code}")) };
        let opened = self.session.opened().checkpoint.clone();
        let session = self.session;
        let end = watched(app, async |progress| session.end_with(outcome, &progress).await)
            .await
            .map_err(|failure| not_saved(&failure, &opened))?;
        if let Some(problem) = &self.coverage.problem {
            app.warn(&format!("a checkpoint in between could not be made: {problem}"));
        }
        if let Some(collapsed) = end.collapsed {
            app.warn(&format!("{collapsed}. `piton undo {run}` brings them back"));
        }
        let status = match end.obeyed {
            Some(Order::Cancel) => "cancelled",
            Some(Order::Stop { .. }) => "paused",
            None if code == 0 => "completed",
            None => "failed",
        };
        let timeline = workspace.timeline().await?;
        let places = timeline.find(&end.opened).zip(timeline.find(&end.closed));
        let git = places.and_then(|(start, close)| GitMovesView::of(&timeline.git_moves(start, close)));
        let shared_with = places.map(|(start, close)| timeline.beside(run, start, close)).unwrap_or_default();
        let (mut rolled_back, mut left) = (false, Vec::new());
        if status == "failed" && self.options.rollback_on_failure && end.before.tree != end.after.tree {
            let goal = Goal::Undo(Some(end.closed.clone()));
            let options = RestoreOptions::default();
            let restoring = async |progress| workspace.restore_to(&goal, &options, &progress).await;
            let plan = watched(app, restoring).await?.plan;
            rolled_back = !plan.changes.is_empty();
            left = plan.left.into_iter().map(|(path, reason)| ReasonView { path: path.to_string(), reason }).collect();
        }
        let changes = workspace.detect_changes(end.before, Side::Stored(end.after), &Arc::default()).await?.changes;
        let changes = changes.iter().map(ChangeView::from).collect();
        if let Some(severity) = workspace.drift_tracker(run).await?.pending() {
            app.warn(&format!("the repository moved meanwhile ({severity}); `piton drift` says how"));
        }
        let not_protected = unprotected(workspace, end.after).await?;
        keeping::in_passing(app, &self.store).await;
        self.store.close().await?;
        let (id, opened) = (end.closed, end.opened);
        let coverage = CoverageView::from(&self.coverage);
        Ok(GuardedView {
            run: self.run,
            id,
            opened,
            status,
            exit_code: code,
            changes,
            rolled_back,
            left,
            shared_with,
            verification: self.verification,
            coverage,
            not_protected,
            git,
        })
    }
}

/// Sees to it that the program ends with this process, for as long as it is polled.
async fn keep(mut pid: Receiver<Option<Pid>>, outlives: bool) -> Infallible {
    let program = pid.wait_for(Option::is_some).await.ok().and_then(|pid| *pid);
    let _keeper = program.filter(|_| !outlives).and_then(Keeper::of);
    std::future::pending().await
}

/// Ends the program once its run is asked to end.
async fn stop_when_asked(
    orders: Option<Receiver<Option<RequestRecord>>>,
    mut pid: Receiver<Option<Pid>>,
) -> Infallible {
    let Some(mut orders) = orders else { return std::future::pending().await };
    let order = orders.wait_for(Option::is_some).await.ok().and_then(|asked| asked.as_ref().map(|asked| asked.order));
    let program = pid.wait_for(Option::is_some).await.ok().and_then(|pid| *pid);
    if let (Some(order), Some(program)) = (order, program) {
        // If it has just ended there is no process to tell. One that stands still hears the first signal when it goes on.
        let _ = kill_process(program, Signal::TERM);
        let _ = kill_process(program, Signal::CONT);
        let grace = match order {
            Order::Stop { grace_ms: Some(millis) } => Duration::from_millis(millis),
            _ => GRACE,
        };
        tokio::time::sleep(grace).await;
        let _ = kill_process(program, Signal::KILL);
    }
    std::future::pending().await
}

/// Whether a store is still where it was: one inside the folder goes with it.
fn is_there(store: &str) -> bool {
    is_shared(store) || Path::new(store.split_once(':').map_or(store, |(_, path)| path)).exists()
}

/// There is no checkpoint of how the program left the files.
fn not_saved(failure: &Failure, opened: &CheckpointRef) -> Failure {
    let why = failure.causes().iter().fold(
        Failure::new(failure.kind(), "the last checkpoint could not be made").cause(failure.title()),
        Failure::cause,
    );
    why.hint(format!(
        "the files are as the program left them. Put right what is named above, then `piton save` keeps them; \
         `piton restore {opened}` returns them to what they were when the program began."
    ))
}

/// The program moved the folder in which it ran.
fn moved(workspace: &Workspace, opened: &CheckpointRef) -> Failure {
    let root = workspace.root().to_string_lossy();
    Failure::fixable(format!("the program moved {root}, the folder that it ran in"))
        .cause("so there is no checkpoint of how it left it")
        .hint(format!(
            "go to where it is now; there `piton restore {opened}` returns it to what it was when the program began."
        ))
}

/// The program deleted the folder in which it ran.
fn deleted(workspace: &Workspace, store: &str, opened: &CheckpointRef, code: u8) -> Failure {
    let root = workspace.root().to_string_lossy();
    let hint = match is_there(store) {
        true => format!(
            "`mkdir -p {0}` and `piton -C {0} restore {opened}` bring back what was in it when the program began.",
            typed(&[&root])
        ),
        false => "its store was inside it, and is gone with it. A store that `piton init` makes without `--here` is \
                  outside, and survives that."
            .to_owned(),
    };
    Failure::fixable(format!("the program deleted {root}, the folder that it ran in"))
        .cause(format!("it ended with {code}"))
        .hint(hint)
}
