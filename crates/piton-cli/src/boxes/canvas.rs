//! Characters on a grid. Lines are kept as the directions that they go in, so that those that meet become corners,
//! branches and crossings.

use unicode_width::UnicodeWidthChar as _;

use crate::output::clean;

pub(super) const UP: u8 = 1;
pub(super) const DOWN: u8 = 2;
pub(super) const LEFT: u8 = 4;
pub(super) const RIGHT: u8 = 8;

/// By the directions of a line.
const LINES: [char; 16] = [' ', '│', '│', '│', '─', '┘', '┐', '┤', '─', '└', '┌', '├', '─', '┴', '┬', '┼'];

/// What a text is, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Title,
    Kind,
    Exit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Line(u8),
    Text(char, Ink),
    /// The second column of the character before.
    Wide,
}

/// A grid of characters.
#[derive(Debug, Clone)]
pub(super) struct Canvas {
    pub(super) width: usize,
    rows: Vec<Vec<Cell>>,
}

impl Canvas {
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self { width, rows: vec![vec![Cell::Line(0); width]; height] }
    }

    pub(super) fn height(&self) -> usize {
        self.rows.len()
    }

    /// Adds directions to the line at a place. Outside of the grid, and where a text stands, nothing happens.
    pub(super) fn line(&mut self, row: usize, column: usize, directions: u8) {
        if let Some(Cell::Line(line)) = self.rows.get_mut(row).and_then(|row| row.get_mut(column)) {
            *line |= directions;
        }
    }

    /// A frame around all of it.
    pub(super) fn frame(&mut self) {
        let (last_row, last) = (self.height() - 1, self.width - 1);
        for column in 1..last {
            self.line(0, column, LEFT | RIGHT);
            self.line(last_row, column, LEFT | RIGHT);
        }
        for row in 1..last_row {
            self.line(row, 0, UP | DOWN);
            self.line(row, last, UP | DOWN);
        }
        self.line(0, 0, DOWN | RIGHT);
        self.line(0, last, DOWN | LEFT);
        self.line(last_row, 0, UP | RIGHT);
        self.line(last_row, last, UP | LEFT);
    }

    /// A text from a place on, over what is there.
    pub(super) fn text(&mut self, row: usize, mut column: usize, text: &str, ink: Ink) {
        for c in clean(text).chars() {
            let width = c.width().unwrap_or(0);
            if width == 0 || column + width > self.width {
                continue;
            }
            self.rows[row][column] = Cell::Text(c, ink);
            if width == 2 {
                self.rows[row][column + 1] = Cell::Wide;
            }
            column += width;
        }
    }

    /// Puts another grid here.
    pub(super) fn paste(&mut self, other: &Self, row: usize, column: usize) {
        for (place, cells) in other.rows.iter().enumerate() {
            self.rows[row + place][column..column + other.width].copy_from_slice(cells);
        }
    }

    /// The grid as lines.
    pub(super) fn render(&self, colour: bool) -> String {
        let lines = self.rows.iter().map(|row| {
            let mut line = String::new();
            let mut now = "";
            for cell in row {
                let (c, code) = match cell {
                    Cell::Line(0) => (' ', now),
                    Cell::Line(directions) => (LINES[usize::from(directions & 15)], "2"),
                    Cell::Text(c, Ink::Title) => (*c, "1"),
                    Cell::Text(c, Ink::Kind) => (*c, "36"),
                    Cell::Text(c, Ink::Exit) => (*c, "33"),
                    Cell::Wide => continue,
                };
                if colour && code != now {
                    line.push_str(&format!("\x1b[0;{code}m"));
                    now = code;
                }
                line.push(c);
            }
            let line = line.trim_end();
            if now.is_empty() { line.to_owned() } else { format!("{line}\x1b[0m") }
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
