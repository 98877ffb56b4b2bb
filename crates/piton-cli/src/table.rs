//! Tables without lines, for terminals and pipes alike.

pub(crate) use piton_app::words::{age, count, size, took};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What separates columns.
const GAP: usize = 2;

/// Rows of cells. All columns but the last are padded; the last is cut to the width of the terminal.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this heading.
    pub(crate) fn with_heading(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    /// Adds a row. Cells must be [`clean`](crate::output::clean).
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as text without a line feed at the end.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0)
            })
            .collect();
        let lines = self.rows.iter().map(|row| {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                line.push_str(cell);
                if column + 1 < row.len() {
                    line.extend(std::iter::repeat_n(' ', widths[column] - cell.width() + GAP));
                }
            }
            let line = line.trim_end();
            width.map_or_else(|| line.to_owned(), |width| cut(line, width))
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
    }
}
