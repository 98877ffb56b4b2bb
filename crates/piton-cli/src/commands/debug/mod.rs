//! `piton debug`: a run that stops at its nodes. Commands come from the terminal or from a pipe, one a line; each stop and
//! each answer is written as text or as one JSON object.

mod show;
pub(crate) mod words;

use std::io::{BufRead as _, Read as _, Write as _};
use std::pin::pin;

use piton_app::debug::{Breaks, Console, Debugged, Debugging};
use piton_app::runs::drive::Prepared;
use piton_app::runs::resume::{self, ResumeRun};
use piton_app::runs::start::{self, StartRun};
use piton_flow::Format;
use tokio::sync::mpsc;

use super::run::started;
use crate::arguments::debug::Debug;
use crate::ask::AskTerminal;
use crate::drive::{dropped, progress, report};
use crate::failure::{self, Exit, Failure};
use crate::output::Output;
use crate::session::Session;
use crate::signals::{Ended, until_ended};
use crate::terminal::has_terminal;
use words::Said;

/// The longest line of a command.
const LONGEST: u64 = 1 << 20;

pub(crate) async fn execute(session: &Session, arguments: Debug) -> Result<Exit, Failure> {
    let breaks = Breaks { breakpoints: arguments.breakpoints.clone(), on_error: arguments.on_error, at_start: true };
    let prepared = prepared(session, arguments).await?;
    let (run, notice) = (prepared.run.clone(), prepared.notice.clone());
    let events = progress(session, notice);
    let (mut debugging, console) = Debugging::prepare(session, prepared, breaks, events).await?;
    let stop = debugging.stop();
    let ended = {
        let mut work = pin!(debugging.go(session));
        let mut talk = pin!(talk(session, console));
        let both = async {
            tokio::select! {
                biased;
                ended = &mut work => ended,
                talked = &mut talk => {
                    // The console is gone, so the run is left where it stands.
                    let ended = work.await;
                    talked.and(ended)
                }
            }
        };
        until_ended(&session.output, &stop, both).await
    };
    match ended? {
        (Ended::Finished(ended), signal) => {
            let Debugged { outcome, quit } = debugging.finish(session, ended).await?;
            if quit && signal.is_none() {
                return show::left(session, &outcome);
            }
            report(session, &outcome, signal)
        }
        (Ended::Stopped(exit), _) => {
            let started = debugging.has_started();
            debugging.abandon(session).await?;
            dropped(session, &run, started)?;
            Ok(exit)
        }
    }
}

/// The document that is started, or the run that goes on.
async fn prepared(session: &Session, arguments: Debug) -> Result<Prepared, Failure> {
    let Debug { start, limits, force, .. } = arguments;
    let name = start.document.to_string_lossy().into_owned();
    let is_document = start.document.exists() || Format::of_file_name(&name).is_some();
    match name.parse() {
        Ok(run) if !is_document => {
            if start.question.is_some() || start.query.is_some() || start.inputs.is_some() || !start.input.is_empty() {
                return Err(Failure::usage(format!("{name} is a run, which has its inputs already"))
                    .hint("`set NODE.VARIABLE=VALUE` changes variables while it stands."));
            }
            let wanted = ResumeRun { config: start.config, limits: limits.into(), force, ..ResumeRun::of(run) };
            resume::prepare(session, &wanted, &AskTerminal::default()).await
        }
        _ => {
            let wanted = StartRun { limits: limits.into(), force, ..started(start)? };
            start::prepare(session, wanted).await
        }
    }
}

/// Shows stops and says what the user says, until the session is over or nothing more is said.
async fn talk(session: &Session, mut console: Console) -> Result<(), Failure> {
    let output = &session.output;
    let prompts = has_terminal() && !output.is_json();
    let mut lines = lines(prompts);
    while let Some(stop) = console.next_stop().await {
        show::stop(output, &stop)?;
        loop {
            lines.ask();
            let Some(line) = lines.heard.recv().await else { return Ok(()) };
            let command = match words::read(&line) {
                Ok(Said::Nothing) => continue,
                Ok(Said::Help) => {
                    output.note(words::HELP);
                    continue;
                }
                Ok(Said::Command(command)) => command,
                Err(wrong) => {
                    refuse(output, &Failure::usage(wrong))?;
                    continue;
                }
            };
            match console.say(command).await {
                Ok(reply) => {
                    show::reply(output, &reply)?;
                    if reply.leaves() {
                        break;
                    }
                }
                Err(failure) => refuse(output, &failure)?,
            }
        }
    }
    Ok(())
}

/// A command that can't be done. The run stands as before.
fn refuse(output: &Output, failure: &Failure) -> Result<(), Failure> {
    if output.is_json() {
        output.object(&failure::json(failure, failure.into()))?;
    }
    output.failure(failure);
    Ok(())
}

/// The lines of standard input.
struct Lines {
    heard: mpsc::Receiver<String>,
    prompts: bool,
}

impl Lines {
    fn ask(&self) {
        if self.prompts {
            let mut stderr = std::io::stderr().lock();
            // A terminal that can't be written to is gone, and then there is no line either.
            let _ = write!(stderr, "piton> ").and_then(|()| stderr.flush());
        }
    }
}

/// Reads lines on a thread of its own, which nothing waits for: a read from a terminal can't be cut short.
fn lines(prompts: bool) -> Lines {
    let (tell, heard) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            match stdin.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
                Ok(1..) => {}
                _ => return,
            }
            if tell.blocking_send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    Lines { heard, prompts }
}
