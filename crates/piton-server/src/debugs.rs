//! Sessions of the debugger. A task holds the console of each: it keeps what pages show, and says commands to a run that
//! stands. A session doesn't end with a page; it ends when it is left, or with the server, and then the run is left where
//! it stands.

use piton_app::Failure;
use piton_app::debug::{Breakpoint, Breaks, Command, Console};
use piton_app::views::debug::{ReplyView, StopView};
use piton_types::RunId;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

use crate::drives::Drives;

/// What a page knows of a session.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Seen {
    /// How often it changed.
    pub(crate) number: u64,
    /// Whether the run stands, and takes commands.
    pub(crate) standing: bool,
    /// Where it stands, or stood last.
    pub(crate) stop: Option<StopView>,
    pub(crate) breakpoints: Vec<Breakpoint>,
    pub(crate) on_error: bool,
}

struct Asked {
    command: Command,
    answer: oneshot::Sender<Result<ReplyView, Failure>>,
}

/// The end of a session that requests speak to.
#[derive(Clone)]
pub(crate) struct Desk {
    asks: mpsc::Sender<Asked>,
    seen: watch::Receiver<Seen>,
}

impl Desk {
    /// Takes a console over, of a run that is driven here.
    pub(crate) fn over(console: Console, breaks: &Breaks, drives: Drives, run: RunId) -> Self {
        let (asks, asked) = mpsc::channel(1);
        let seen = Seen { breakpoints: breaks.breakpoints.clone(), on_error: breaks.on_error, ..Seen::default() };
        let (tell, seen) = watch::channel(seen);
        tokio::spawn(tend(console, asked, tell, drives, run));
        Self { asks, seen }
    }

    /// What there is to see, and what comes.
    pub(crate) fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.clone()
    }

    /// Says a command.
    pub(crate) async fn say(&self, command: Command) -> Result<ReplyView, Failure> {
        let over = || Failure::refused("the session is over");
        let (answer, answered) = oneshot::channel();
        self.asks.send(Asked { command, answer }).await.map_err(|_| over())?;
        answered.await.map_err(|_| over())?
    }
}

/// Until the session is over, or no one can speak to it any more.
async fn tend(
    mut console: Console,
    mut asked: mpsc::Receiver<Asked>,
    seen: watch::Sender<Seen>,
    drives: Drives,
    mut run: RunId,
) {
    loop {
        tokio::select! {
            biased;
            stop = console.next_stop() => {
                let Some(stop) = stop else { return };
                if let Some(now) = stop.run.as_ref().filter(|now| **now != run) {
                    // It went back from its end, so another run goes on there.
                    drives.turn(&run, now);
                    run = now.clone();
                }
                seen.send_modify(|seen| {
                    seen.number += 1;
                    seen.standing = true;
                    seen.stop = Some(stop);
                });
            }
            said = asked.recv() => {
                let Some(Asked { command, answer }) = said else { return };
                let waits = !seen.borrow().standing && !is_at_any_time(&command);
                let reply = if waits {
                    Err(Failure::refused("the run is at work").hint("it takes this when it stands again."))
                } else {
                    console.say(command).await
                };
                if let Ok(reply) = &reply {
                    take(&seen, reply);
                }
                // One who has gone meanwhile sees what came of it.
                let _ = answer.send(reply);
            }
        }
    }
}

fn is_at_any_time(command: &Command) -> bool {
    matches!(command, Command::Break(_) | Command::OnError { .. } | Command::Clear { .. })
}

/// What a reply changes for all who look.
fn take(seen: &watch::Sender<Seen>, reply: &ReplyView) {
    if reply.leaves() || matches!(reply, ReplyView::Breakpoints { .. } | ReplyView::Set { .. }) {
        seen.send_modify(|seen| {
            seen.number += 1;
            seen.standing &= !reply.leaves();
            if let ReplyView::Breakpoints { breakpoints, on_error } = reply {
                seen.breakpoints.clone_from(breakpoints);
                seen.on_error = *on_error;
            }
        });
    }
}
