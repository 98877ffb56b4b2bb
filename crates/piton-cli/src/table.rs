//! Tables without lines, for terminals and pipes alike.

pub(crate) use piton_app::words::{age, count, size, took};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What separates columns.
const GAP: usize = 2;

/// Rows of cells. All columns but the last are padded; what doesn't fit into the width of the terminal is cut.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
    colour: bool,
}

/// A text, and the code of its colour if it has one.
#[derive(Debug, Default)]
struct Cell {
    text: String,
    code: &'static str,
}

impl Table {
    /// A table with this heading.
    pub(crate) fn with_heading(heading: &[&str]) -> Self {
        let cell = |text: &&str| Cell { text: (*text).to_owned(), code: "2" };
        Self { rows: vec![heading.iter().map(cell).collect()], colour: false }
    }

    /// The same, in colours if the terminal has some.
    pub(crate) fn coloured(self, colour: bool) -> Self {
        Self { colour, ..self }
    }

    /// Adds a row. Cells must be [`clean`](crate::output::clean).
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|text| Cell { text, code: "" }).collect());
    }

    /// Gives a cell of the newest row a colour.
    pub(crate) fn paint(&mut self, column: usize, code: &'static str) {
        if let Some(cell) = self.rows.last_mut().and_then(|row| row.get_mut(column)) {
            cell.code = code;
        }
    }

    /// The table as text without a line feed at the end.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.width()).max())
            .map(Option::unwrap_or_default)
            .collect();
        let lines = self.rows.iter().map(|row| {
            let (mut line, mut used, mut room) = (String::new(), 0, width.unwrap_or(usize::MAX));
            for (column, cell) in row.iter().enumerate().filter(|(_, cell)| !cell.text.is_empty()) {
                let start: usize = widths[..column].iter().map(|width| width + GAP).sum();
                if start.saturating_add(1) > width.unwrap_or(usize::MAX) {
                    break;
                }
                line.extend(std::iter::repeat_n(' ', start - used));
                room = room.min(width.unwrap_or(usize::MAX) - start);
                let text = cut(&cell.text, room);
                used = start + text.width();
                match self.colour && !cell.code.is_empty() {
                    true => line.push_str(&format!("\x1b[{}m{text}\x1b[0m", cell.code)),
                    false => line.push_str(&text),
                }
            }
            line
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// At most `width` columns of `text`, with `…` at the end if something is missing.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let kept = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= width
    });
    kept.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_the_last_is_cut() {
        let mut table = Table::with_heading(&["ID", "WHAT"]);
        table.row(vec!["日本".to_owned(), "a long description".to_owned()]);
        table.row(vec!["x".to_owned(), String::new()]);
        assert_eq!(table.render(None), "ID    WHAT\n日本  a long description\nx");
        assert_eq!(table.render(Some(12)), "ID    WHAT\n日本  a lon…\nx");
        assert_eq!(table.render(Some(3)), "ID\n日…\nx", "a column that has no room isn't shown");
        table.paint(0, "32");
        assert!(!table.render(None).contains('\x1b'), "there are no colours");
        let table = table.coloured(true);
        assert!(table.render(Some(12)).ends_with("\n\x1b[32mx\x1b[0m"));
    }
}
