//! Debugging a workflow: a run that stops at its nodes, is looked at, changed, put back, and goes on.
//!
//! A [`Session`] is what the engine asks at every node; its [`Console`] is for a shell, which shows stops and says
//! [`Command`]s. [`Debugging`] drives a run under a session, again after each time that it was put back. The run is
//! durable like any other: a process that dies at a stop leaves it to be gone on with. Breakpoints belong to the session
//! and aren't kept.

mod command;
mod past;
mod session;

use std::sync::Arc;

use piton_flow::{ResumePolicy, RunOutcome, SafeStopSignal};
use piton_runtime::{ForkRun, Listener, StartAt};
use piton_types::{CheckpointRef, RunStatus};

pub use command::{Breakpoint, Command};
pub use session::{Breaks, Console, Session};

use crate::app::App;
use crate::failure::Failure;
use crate::runs::back::put_back;
use crate::runs::drive::{Driving, Prepared, Work};
use crate::views::debug::StopReason;
use past::Past;
use session::Leaving;

/// A run that is ready to be debugged.
pub struct Debugging {
    driving: Driving,
    session: Arc<Session>,
    work: Work,
}

/// How a session ended.
pub struct Debugged {
    /// How the run stands.
    pub outcome: RunOutcome,
    /// It was left where it stood, to be gone on with.
    pub quit: bool,
}

impl Debugging {
    /// Puts together what a run needs to be debugged. `events` is told what happens.
    ///
    /// # Errors
    ///
    /// If a breakpoint names no node; and as [`Driving::prepare`].
    pub async fn prepare(
        app: &App,
        prepared: Prepared,
        breaks: Breaks,
        events: Listener,
    ) -> Result<(Self, Console), Failure> {
        let document = prepared.document().await?;
        let (mut driving, work) = Driving::prepare(app, prepared, events).await?;
        let (session, console) = Session::new(document, breaks, driving.secrecy().cloned())?;
        session.set_past(Past::of(driving.context().clone(), driving.run().clone()));
        driving.debug(Arc::clone(&session) as _);
        Ok((Self { driving, session, work }, console))
    }

    /// Stops the run in peace, or at once.
    pub fn stop(&self) -> SafeStopSignal {
        self.driving.stop()
    }

    /// Whether the run has begun.
    pub fn has_started(&self) -> bool {
        self.driving.has_started()
    }

    /// Drives the run until the session is over. The future may be dropped at any moment.
    ///
    /// # Errors
    ///
    /// Why the run can't be driven, or not be put back.
    pub async fn go(&mut self, app: &App) -> Result<Debugged, Failure> {
        let mut work = std::mem::replace(&mut self.work, again(ResumePolicy::Normal));
        loop {
            let policy = work.policy();
            let outcome = self.driving.go(app, work).await?;
            let leaving = match self.session.take_leaving() {
                Some(leaving) => Some(leaving),
                None if outcome.stopped.is_some() => return Ok(Debugged { outcome, quit: false }),
                None => match reason_of(outcome.status) {
                    Some(reason) => self.session.at_rest(reason, &outcome).await,
                    None => return Ok(Debugged { outcome, quit: false }),
                },
            };
            match leaving {
                Some(Leaving::Quit) => {
                    let quit = outcome.status == RunStatus::Paused;
                    return Ok(Debugged { outcome, quit });
                }
                Some(Leaving::Back(at)) => {
                    self.go_back(outcome.status, at).await?;
                    self.session.went_back();
                }
                None => {}
            }
            work = again(policy);
        }
    }

    /// Puts the run back; a completed one stays as it is, and a new one branches off.
    async fn go_back(&mut self, status: RunStatus, at: StartAt) -> Result<(), Failure> {
        let (context, run) = (self.driving.context().clone(), self.driving.run().clone());
        if !status.is_final() {
            return put_back(&context, &run, at, false, "put back by a debugger").await;
        }
        let seq = Past::of(context.clone(), run.clone()).entry(&at).await?;
        let forked = piton_runtime::fork(&context, &CheckpointRef { run, seq }, ForkRun::default()).await?;
        self.session.set_past(Past::of(context, forked.clone()));
        self.driving.turn_to(forked);
        Ok(())
    }

    /// What the run came to, without secrets; what is due in the store is done.
    pub async fn finish(self, app: &App, ended: Result<Debugged, Failure>) -> Result<Debugged, Failure> {
        match ended {
            Ok(Debugged { outcome, quit }) => {
                let outcome = self.driving.finish(app, Ok(outcome)).await?;
                Ok(Debugged { outcome, quit })
            }
            Err(failure) => {
                self.driving.abandon(app).await?;
                Err(failure)
            }
        }
    }

    /// The same for work that was dropped where it stood.
    pub async fn abandon(self, app: &App) -> Result<(), Failure> {
        self.driving.abandon(app).await
    }
}

fn again(policy: ResumePolicy) -> Work {
    Work::Resume { document: None, policy }
}

/// Why a run stands that no one left; nothing if the session is over with it.
fn reason_of(status: RunStatus) -> Option<StopReason> {
    Some(match status {
        RunStatus::Completed => StopReason::Completed,
        RunStatus::Failed => StopReason::Failed,
        RunStatus::Waiting => StopReason::Waiting,
        RunStatus::Paused => StopReason::Paused,
        _ => return None,
    })
}
