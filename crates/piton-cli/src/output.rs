//! What the program says. Data goes to stdout, everything else to stderr; a reader that goes away
//! (`piton log | head`) is not an error; nothing that a run or an agent wrote reaches the terminal as a
//! control character.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use piton_app::{Level, Names, Shell};
use piton_types::Event;
use serde::Serialize;
use serde_json::Value as Json;

use crate::failure::{Exit, Failure, json, render};
use crate::given::Given;
use crate::live::Live;
use crate::terminal::ask_hidden;

/// How much to say on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors and warnings only.
    Quiet,
    /// Progress too.
    Normal,
    /// Details too.
    Verbose,
}

/// The way to the user.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    verbosity: Verbosity,
    colour: bool,
    /// The width of the terminal; `None` if stdout isn't one, and then nothing is cut.
    width: Option<usize>,
    /// The reader of stdout has gone away.
    closed: AtomicBool,
    /// Something has been written to stdout.
    told: AtomicBool,
    /// What is drawn at the end of the terminal while a run is being driven. All that is written to it goes through here.
    live: Mutex<Option<Live>>,
    /// What runs are called: messages say names instead of ids.
    names: OnceLock<Arc<Names>>,
    /// What this command was told of where to work, for the commands that messages name.
    given: OnceLock<Given>,
}

impl Output {
    /// The output of this process. `no_colour` is whether `NO_COLOR` is set.
    pub(crate) fn new(json: bool, verbosity: Verbosity, no_colour: bool) -> Self {
        Self {
            json,
            verbosity,
            colour: !no_colour && io::stderr().is_terminal(),
            width: terminal_width(),
            closed: AtomicBool::new(false),
            told: AtomicBool::new(false),
            live: Mutex::new(None),
            names: OnceLock::new(),
            given: OnceLock::new(),
        }
    }

    /// From now on messages say what runs are called instead of their ids.
    pub(crate) fn call_runs_by(&self, names: &Arc<Names>) {
        self.names.get_or_init(|| Arc::clone(names));
    }

    /// From now on commands in messages have these options: without them they would work elsewhere when pasted.
    pub(crate) fn name_commands_with(&self, given: Given) {
        self.given.get_or_init(|| given);
    }

    /// A text whose commands work when pasted.
    pub(crate) fn pasted(&self, text: &str) -> String {
        self.given.get().map_or_else(|| text.to_owned(), |given| given.put_into(text))
    }

    /// Begins a live view, if there is a terminal for one and a person who looks at it.
    pub(crate) fn begin_live(&self, dumb: bool) -> bool {
        let shown = !dumb && !self.json && self.is_chatty() && io::stderr().is_terminal();
        if shown {
            *self.live() = Some(Live::new(self.colour));
        }
        shown
    }

    /// Ends the live view. What it said of things that ended stays.
    pub(crate) fn end_live(&self) {
        let live = self.live().take();
        live.into_iter().for_each(Live::end);
    }

    /// Draws the live view again.
    pub(crate) fn tick(&self) {
        self.live().iter_mut().for_each(Live::tick);
    }

    /// Shows an event in the live view; `false` if there is none.
    pub(crate) fn show_live(&self, event: &Event) -> bool {
        self.live().as_mut().map(|live| live.event(event)).is_some()
    }

    fn live(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether programs read along: then stdout has JSON only.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether progress is wanted.
    pub(crate) fn is_chatty(&self) -> bool {
        self.verbosity >= Verbosity::Normal
    }

    /// Whether data may have colours: stdout is a terminal and `NO_COLOR` isn't set.
    pub(crate) fn has_colour(&self) -> bool {
        self.colour && self.width.is_some()
    }

    /// Whether stdout is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.width.is_some()
    }

    /// The width to keep to, if any.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Whether stdout is a terminal with fewer lines than a text has.
    pub(crate) fn is_higher(&self, text: &str) -> bool {
        let stdout = io::stdout();
        let size = rustix::termios::tcgetwinsize(&stdout).ok().filter(|_| stdout.is_terminal());
        size.is_some_and(|size| size.ws_row > 0 && text.lines().count() >= usize::from(size.ws_row))
    }

    /// Whether stdout has no reader any more, so that a long list can stop.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Data: one or more lines on stdout.
    pub(crate) fn data(&self, text: &str) -> Result<(), Failure> {
        if self.is_closed() {
            return Ok(());
        }
        self.told.store(true, Ordering::Relaxed);
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(b"\n")).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(Failure::fixable("can't write to stdout").because(&error)),
            Ok(()) => Ok(()),
        }
    }

    /// Data as it is: what is in a file. On a terminal nothing of it controls that.
    pub(crate) fn bytes(&self, content: &[u8]) -> Result<(), Failure> {
        if self.width.is_none() {
            self.told.store(true, Ordering::Relaxed);
            let mut stdout = io::stdout().lock();
            return match stdout.write_all(content).and_then(|()| stdout.flush()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                done => done.map_err(|error| Failure::fixable("can't write to stdout").because(&error)),
            };
        }
        let text = String::from_utf8_lossy(content);
        let lines: Vec<_> = text.lines().map(|line| clean(&line.replace('\t', "    "))).collect();
        self.data(&lines.join("\n"))
    }

    /// Data for programs: one object on one line.
    pub(crate) fn object(&self, object: &Json) -> Result<(), Failure> {
        self.data(&object.to_string())
    }

    /// Data for programs: a list, one object a line, as far as it is read.
    pub(crate) fn list(&self, views: &[impl Serialize]) -> Result<(), Failure> {
        for view in views {
            self.view(view)?;
            if self.is_closed() {
                break;
            }
        }
        Ok(())
    }

    /// Progress, on stderr.
    pub(crate) fn note(&self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.complain(text);
        }
    }

    /// What only `-v` shows, on stderr.
    pub(crate) fn detail(&self, text: &str) {
        if self.verbosity >= Verbosity::Verbose {
            self.complain(text);
        }
    }

    /// Something the user should know though it isn't an error.
    pub(crate) fn warn(&self, text: &str) {
        self.complain(&format!("{} {text}", self.paint("warning:")));
    }

    /// The last word of a verb that failed. A program that reads along gets it as an object too, unless the verb has
    /// already given its own. Returns the exit code of the failure.
    pub(crate) fn failure(&self, failure: &Failure) -> Exit {
        self.failure_with(failure, failure.into())
    }

    /// The same where a verb ends with an exit code of its own.
    pub(crate) fn failure_with(&self, failure: &Failure, exit: Exit) -> Exit {
        if self.json && !self.told.load(Ordering::Relaxed) {
            // If stdout can't be written to, stderr says so next.
            let mut object = json(failure, exit);
            if let Some(hint) = object["hint"].as_str().map(|hint| self.pasted(hint)) {
                object["hint"] = hint.into();
            }
            let _ = self.object(&object);
        }
        self.complain(&render(failure, |word| self.paint(word)));
        exit
    }

    /// Data for programs: a view as one object on one line.
    pub(crate) fn view(&self, view: &impl Serialize) -> Result<(), Failure> {
        // As text at once: that keeps the fields in the order in which people read them.
        let object = serde_json::to_string(view)
            .map_err(|error| Failure::internal("a view has no JSON form").because(&error))?;
        self.data(&object)
    }

    /// A line on stderr. If it can't be written there is no reader to tell.
    fn complain(&self, text: &str) {
        let named = self.names.get().map(|names| names.shorten(text));
        let text = &self.pasted(named.as_deref().unwrap_or(text));
        match &mut *self.live() {
            Some(live) => live.say(text),
            None => drop(writeln!(io::stderr().lock(), "{text}")),
        }
    }

    fn paint(&self, word: &str) -> String {
        let code = match word {
            _ if !self.colour => return word.to_owned(),
            "error:" => "1;31",
            "warning:" => "1;33",
            _ => "1;36",
        };
        format!("\x1b[{code}m{word}\x1b[0m")
    }
}

impl Shell for Output {
    fn tell(&self, level: Level, text: &str) {
        let text = clean(text);
        match level {
            Level::Detail => self.detail(&text),
            Level::Note => self.note(&text),
            Level::Warning => self.warn(&text),
        }
    }

    fn passphrase(&self, prompt: &str) -> Result<Option<Vec<u8>>, Failure> {
        ask_hidden(prompt)
    }

    /// Nothing is shown to a program, to a user who wants it quiet, or beside data.
    fn shows_progress(&self) -> bool {
        !self.json && self.is_chatty() && io::stderr().is_terminal()
    }

    fn progress(&self, words: Option<&str>) {
        let _ = write!(io::stderr(), "\r\x1b[K{}", words.unwrap_or_default());
    }
}

fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Text of others, safe for a terminal: control characters (and those that turn the direction of
/// writing) become visible escapes.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(clean("a\x1b[31mb\r\n\u{9b}c\u{202e}d"), r"a\u{1b}[31mb\r\n\u{9b}c\u{202e}d");
        assert_eq!(clean("Über 日本"), "Über 日本");
    }
}
