//! The live view of a run: lines at the end of the terminal that are drawn again and again, and lines above them that
//! stay. It writes to stderr, and only if that is a terminal.
//!
//! A drawing is one write. It takes the old lines away, says what stays, and draws the new ones with wrapping switched
//! off, so that a line is one row whatever the terminal makes of wide characters; so the next drawing knows how far up
//! to go. Nothing is left switched off between two drawings: a process that is killed leaves a terminal that works.

mod board;
mod text;
mod titles;

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use piton_types::Event;

use self::board::{Board, Line, Mark};
pub(crate) use self::titles::Titles;

/// The most often that is drawn. What happens in between is drawn together.
const PAUSE: Duration = Duration::from_millis(40);

/// How often durations are drawn again.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The live view of a run.
#[derive(Debug)]
pub(crate) struct Live {
    board: Board,
    colour: bool,
    /// What stays and isn't drawn yet.
    above: Vec<Line>,
    drawn: Vec<Line>,
    drawn_at: Option<Instant>,
}

impl Live {
    pub(crate) fn new(colour: bool) -> Self {
        Self { board: Board::new(Instant::now()), colour, above: Vec::new(), drawn: Vec::new(), drawn_at: None }
    }

    /// Something happened.
    pub(crate) fn event(&mut self, event: &Event) {
        let (now, (width, _)) = (Instant::now(), size());
        self.above.extend(self.board.take(event, now, width));
        if self.drawn_at.is_none_or(|at| now.saturating_duration_since(at) >= PAUSE) {
            self.draw(now);
        }
    }

    /// Time went by.
    pub(crate) fn tick(&mut self) {
        self.draw(Instant::now());
    }

    /// Says something that stays.
    pub(crate) fn say(&mut self, text: &str) {
        let mut out = self.erase();
        self.drawn.clear();
        self.stay(&mut out);
        out.push_str(text);
        out.push('\n');
        self.put(out, Instant::now());
    }

    /// Takes the lines away that don't stay.
    pub(crate) fn end(mut self) {
        let mut out = self.erase();
        self.stay(&mut out);
        write(&out);
    }

    fn draw(&mut self, now: Instant) {
        let mut out = self.erase();
        self.stay(&mut out);
        self.put(out, now);
    }

    /// Draws what is going on below `out`, unless nothing changed.
    fn put(&mut self, mut out: String, now: Instant) {
        let (width, height) = size();
        let lines = self.board.lines(now, width, height.saturating_sub(1));
        self.drawn_at = Some(now);
        if lines == self.drawn && out == self.erase() {
            return;
        }
        out.push_str("\x1b[?7l");
        for line in &lines {
            self.line(line, &mut out);
        }
        out.push_str("\x1b[?7h");
        self.drawn = lines;
        write(&out);
    }

    /// What takes the drawn lines away.
    fn erase(&self) -> String {
        match self.drawn.len() {
            0 => String::new(),
            rows => format!("\x1b[{rows}A\r\x1b[J"),
        }
    }

    fn stay(&mut self, out: &mut String) {
        for line in std::mem::take(&mut self.above) {
            self.line(&line, out);
        }
    }

    fn line(&self, Line { mark, text }: &Line, out: &mut String) {
        let colour = match mark {
            Mark::Runs => "36",
            Mark::Done => "32",
            Mark::Failed => "31",
            Mark::Again | Mark::Asks => "33",
            Mark::Plain => "",
        };
        let sign = mark.sign();
        match self.colour && !colour.is_empty() {
            true => out.push_str(&format!("\x1b[{colour}m{sign}\x1b[0m {text}\n")),
            false => out.push_str(&format!("{sign} {text}\n")),
        }
    }
}

/// If it can't be written there is no reader to tell.
fn write(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Columns and rows of the terminal, which may change at any time.
fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    let known = |size: Option<u16>, usual| size.map(usize::from).filter(|size| *size > 0).unwrap_or(usual);
    (known(size.as_ref().map(|size| size.ws_col), 80), known(size.as_ref().map(|size| size.ws_row), 24))
}
