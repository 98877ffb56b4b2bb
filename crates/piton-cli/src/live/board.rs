//! What a run that is being driven looks like: what has ended as lines that stay, and below them what is going on.
//! Events go in, lines come out; nothing here knows a terminal.
//!
//! Invariant: whatever a document or a model wrote, a line has no control character, is no wider than asked for, and
//! has a bounded number of characters.

use std::collections::BTreeMap;
use std::time::Instant;

use piton_types::{Event, TokenUsage};

use super::text::{Tail, figures, fit};
use super::titles::Titles;
use crate::table;

/// How many lines of a text that is being made are shown.
const TEXT_LINES: usize = 3;

/// What stands in front of a line, and says how it stands with the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Runs,
    Done,
    Failed,
    Again,
    Asks,
    /// Something else: the sum, a text, a checkpoint.
    Plain,
}

impl Mark {
    /// One column.
    pub(crate) const fn sign(self) -> char {
        match self {
            Self::Runs => '●',
            Self::Done => '✓',
            Self::Failed => '✗',
            Self::Again => '↻',
            Self::Asks => '?',
            Self::Plain => ' ',
        }
    }
}

/// A line with its mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) mark: Mark,
    pub(crate) text: String,
}

impl Line {
    /// A line of at most `width` columns, mark and all.
    fn new(mark: Mark, text: &str, width: usize) -> Self {
        Self { mark, text: fit(text, width.saturating_sub(2)) }
    }
}

/// A run that is being driven.
#[derive(Debug)]
pub(crate) struct Board {
    begun: Instant,
    /// In the order in which they began.
    running: Vec<Running>,
    ended: usize,
    failed: usize,
    /// By step. What a container used has what the nodes inside it used, so it takes their place.
    used: BTreeMap<String, TokenUsage>,
    titles: Titles,
}

#[derive(Debug)]
struct Running {
    step: String,
    name: String,
    since: Instant,
    mark: Mark,
    /// Why it is tried again, or what it asks.
    note: String,
    text: Tail,
}

impl Board {
    pub(crate) fn new(begun: Instant) -> Self {
        let (running, used, titles) = (Vec::new(), BTreeMap::new(), Titles::default());
        Self { begun, running, ended: 0, failed: 0, used, titles }
    }

    /// Takes an event in; the line that stays of it, if any.
    pub(crate) fn take(&mut self, event: &Event, now: Instant, width: usize) -> Option<Line> {
        match event {
            Event::StepStarted { step, title, .. } => {
                let step = step.to_string();
                title.iter().for_each(|title| self.titles.learn(&step, title));
                let name = self.titles.of(&step);
                self.running.retain(|running| running.step != step);
                let (mark, note, text) = (Mark::Runs, String::new(), Tail::default());
                self.running.push(Running { step, name, since: now, mark, note, text });
            }
            Event::StepText { step, text, .. } => {
                if let Some(running) = self.find(step.as_str()) {
                    running.text.push(text);
                }
            }
            Event::StepRetried { step, attempt, error, .. } => {
                if let Some(running) = self.find(step.as_str()) {
                    running.mark = Mark::Again;
                    running.note = format!("attempt {attempt} failed: {error}");
                    // What the failed attempt said isn't the answer's beginning.
                    running.text = Tail::default();
                }
            }
            Event::RunPaused { step: Some(step), prompt, .. } => {
                if let Some(running) = self.find(step.as_str()) {
                    running.mark = Mark::Asks;
                    running.note = prompt.clone();
                }
            }
            Event::RunResumed { step: Some(step), .. } => {
                if let Some(running) = self.find(step.as_str()) {
                    running.mark = Mark::Runs;
                    running.note.clear();
                }
            }
            Event::StepSkipped { step, .. } => {
                self.ended += 1;
                return Some(Line::new(
                    Mark::Done,
                    &format!("{}  finished before", self.titles.of(step.as_str())),
                    width,
                ));
            }
            Event::StepFinished { step, duration, usage, .. } => {
                self.ended += 1;
                self.count(step.as_str(), *usage);
                let name = self.remove(step.as_str());
                let text = figures(&name, Some(step.as_str()), &table::took(*duration), *usage);
                return Some(Line::new(Mark::Done, &text, width));
            }
            Event::StepFailed { step, error, .. } => {
                self.ended += 1;
                self.failed += 1;
                let name = self.remove(step.as_str());
                return Some(Line::new(Mark::Failed, &format!("{name}  failed: {error}"), width));
            }
            Event::CheckpointSaved { checkpoint, .. } => {
                return Some(Line::new(Mark::Plain, &format!("checkpoint {checkpoint}"), width));
            }
            _ => {}
        }
        None
    }

    fn find(&mut self, step: &str) -> Option<&mut Running> {
        self.running.iter_mut().find(|running| running.step == step)
    }

    /// Takes a node out that has ended; what it is called.
    fn remove(&mut self, step: &str) -> String {
        match self.running.iter().position(|running| running.step == step) {
            Some(place) => self.running.remove(place).name,
            None => self.titles.of(step),
        }
    }

    fn count(&mut self, step: &str, usage: TokenUsage) {
        let inside = format!("{step}/");
        let replaced: Vec<String> = self
            .used
            .range(inside.clone()..)
            .map(|(step, _)| step.clone())
            .take_while(|step| step.starts_with(&inside))
            .collect();
        for step in replaced {
            self.used.remove(&step);
        }
        if usage != TokenUsage::default() {
            self.used.insert(step.to_owned(), usage);
        }
    }

    /// What was used so far.
    pub(crate) fn usage(&self) -> TokenUsage {
        self.used.values().fold(TokenUsage::default(), |sum, more| TokenUsage {
            input: sum.input + more.input,
            output: sum.output + more.output,
            cost: sum.cost + more.cost,
        })
    }

    /// What is going on, in at most `height` lines; the last has the sums.
    pub(crate) fn lines(&self, now: Instant, width: usize, height: usize) -> Vec<Line> {
        let room = height.saturating_sub(1);
        let mut lines = Vec::new();
        // A text takes room only if all nodes have some.
        let texts = room.saturating_sub(self.running.len());
        for running in &self.running {
            let took = table::took(now.saturating_duration_since(running.since));
            let step = Some(running.step.as_str()).filter(|step| *step != running.name);
            let mut text = figures(&running.name, step, &took, TokenUsage::default());
            if !running.note.is_empty() {
                text = format!("{}  {}", running.name, running.note);
            }
            lines.push(Line::new(running.mark, &text, width));
            let shown = running.text.lines(width.saturating_sub(4), TEXT_LINES.min(texts));
            lines.extend(shown.into_iter().map(|text| Line::new(Mark::Plain, &format!("  {text}"), width)));
        }
        if lines.len() > room {
            let hidden = self.running.len().saturating_sub(room.saturating_sub(1));
            lines.truncate(room.saturating_sub(1));
            if room > 0 {
                lines.push(Line::new(Mark::Plain, &format!("… and {hidden} more"), width));
            }
        }
        lines.push(Line::new(Mark::Plain, &self.sum(now), width));
        lines
    }

    /// The last line: how many, how long, how much.
    fn sum(&self, now: Instant) -> String {
        let mut counts = vec![format!("{} running", self.running.len()), format!("{} done", self.ended)];
        if self.failed > 0 {
            counts.push(format!("{} failed", self.failed));
        }
        figures(&counts.join(", "), None, &table::took(now.saturating_duration_since(self.begun)), self.usage())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    fn started(step: &str, title: Option<&str>) -> Event {
        let title = title.map(str::to_owned);
        Event::StepStarted { run: "r".parse().unwrap(), step: step.parse().unwrap(), title }
    }

    fn text(step: &str, text: &str) -> Event {
        Event::StepText { run: "r".parse().unwrap(), step: step.parse().unwrap(), text: text.to_owned() }
    }

    fn finished(step: &str, usage: TokenUsage) -> Event {
        let duration = Duration::from_millis(1500);
        Event::StepFinished { run: "r".parse().unwrap(), step: step.parse().unwrap(), duration, usage }
    }

    fn shown(lines: &[Line]) -> String {
        lines.iter().map(|line| format!("{} {}", line.mark.sign(), line.text).trim_end().to_owned() + "\n").collect()
    }

    const USAGE: TokenUsage = TokenUsage { input: 1200, output: 34, cost: 0.0021 };

    #[test]
    fn what_runs_is_shown_with_its_time_and_text_and_what_ended_stays() {
        let begun = Instant::now();
        let mut board = Board::new(begun);
        assert_eq!(board.take(&started("ask", Some("Ask the model")), begun, 80), None);
        board.take(&started("wait", None), begun, 80);
        board.take(&text("ask", "Bees hum.\nThey dance, and they "), begun, 80);
        board.take(&text("ask", "sting."), begun, 80);
        let now = begun + Duration::from_millis(2300);
        insta::assert_snapshot!(shown(&board.lines(now, 80, 24)), @r"
        ● Ask the model  2.3 s  ask
            Bees hum.
            They dance, and they sting.
        ● wait  2.3 s
          2 running, 0 done  2.3 s
        ");
        let stays = board.take(&finished("ask", USAGE), now, 80).unwrap();
        insta::assert_snapshot!(shown(&[stays]), @"✓ Ask the model  1.5 s  1200 + 34 tokens  cost 0.0021  ask");
        let error = "no such\x1b[2Jfile".to_owned();
        let failed = Event::StepFailed { run: "r".parse().unwrap(), step: "wait".parse().unwrap(), error };
        let stays = board.take(&failed, now, 80).unwrap();
        insta::assert_snapshot!(shown(&[stays]), @r"✗ wait  failed: no such\u{1b}[2Jfile");
        insta::assert_snapshot!(shown(&board.lines(now, 80, 24)), @"0 running, 2 done, 1 failed  2.3 s  1200 + 34 tokens  cost 0.0021");
    }

    /// What a container used is what the nodes inside it used, not more.
    #[test]
    fn nothing_is_counted_twice() {
        let now = Instant::now();
        let mut board = Board::new(now);
        for step in ["each/0/ask", "each/1/ask", "each-other", "each"] {
            board.take(
                &finished(
                    step,
                    if step == "each" { TokenUsage { input: 2400, output: 68, cost: 0.0042 } } else { USAGE },
                ),
                now,
                80,
            );
        }
        assert_eq!((board.usage().input, board.usage().output), (3600, 102));
    }

    /// Titles and texts are a document's and a model's: they control neither the terminal nor the layout.
    #[test]
    fn hostile_titles_and_texts_stay_within_their_lines() {
        let zalgo = format!("Z{}", "\u{0301}".repeat(100_000));
        let hostile = [
            "\x1b]0;owned\x07\x1b[2J\x1b[999A",
            "line\nbreak\rreturn\ttab",
            "\u{202e}gnp.exe\u{2066}\u{9b}31m",
            "日本語の長い題名がここにあります日本語の長い題名がここにあります",
            "👨‍👩‍👧‍👦👨‍👩‍👧‍👦👨‍👩‍👧‍👦",
            &zalgo,
            "",
        ];
        let now = Instant::now();
        for width in [0, 1, 2, 3, 5, 10, 40, 200] {
            for height in [0, 1, 2, 3, 10] {
                let mut board = Board::new(now);
                for (place, title) in hostile.into_iter().enumerate() {
                    let step = format!("n{place}");
                    board.take(&started(&step, Some(title)), now, width);
                    board.take(&text(&step, title), now, width);
                }
                let lines = board.lines(now, width, height);
                assert!(lines.len() <= height.max(1), "{height}: {lines:?}");
                for line in &lines {
                    assert!(line.text.width() <= width.saturating_sub(2), "{width}: {line:?}");
                    assert!(line.text.chars().count() <= 10 * width.max(1), "{width}");
                    assert!(!line.text.chars().any(char::is_control), "{line:?}");
                }
            }
        }
    }

    #[test]
    fn more_nodes_than_lines_are_counted() {
        let now = Instant::now();
        let mut board = Board::new(now);
        for place in 0..100 {
            board.take(&started(&format!("n{place}"), None), now, 40);
        }
        let lines = board.lines(now, 40, 4);
        insta::assert_snapshot!(shown(&lines), @r"
        ● n0  0 ms
        ● n1  0 ms
          … and 98 more
          100 running, 0 done  0 ms
        ");
    }
}
