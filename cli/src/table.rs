//! Tables as people read them, on a terminal.

use std::io::{self, Write};

pub(crate) use undercroft_text::{bytes, count, percent, word};

use crate::error::Error;

/// Rows of cells under a heading: the first column to the left, the others to the right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(ToString::to_string).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Prints the table below an empty line, its first `left` columns to the left; nothing if it
    /// has but its heading.
    pub(crate) fn print_if_filled(&self, out: &mut impl Write, left: usize) -> Result<(), Error> {
        if self.rows.len() > 1 {
            writeln!(out)?;
            self.print(out, left)?;
        }
        Ok(())
    }

    /// Prints the table, its first `left` columns to the left.
    pub(crate) fn print(&self, out: &mut impl Write, left: usize) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row: &Vec<String>| row.get(column));
            cells.map(|cell: &String| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                if column < left {
                    line += &format!("{gap}{cell:<width$}");
                } else {
                    line += &format!("{gap}{cell:>width$}");
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A text in lines of at most 100 characters; see [`wrapped_at`].
pub(crate) fn wrapped(text: &str, first: &str, rest: &str) -> String {
    wrapped_at(100, text, first, rest)
}

/// A text in lines of at most `width` characters, the first after `first`, the others after `rest`.
/// A number stays beside its unit; a word that is longer has a line of its own.
pub(crate) fn wrapped_at(width: usize, text: &str, first: &str, rest: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_unit = ["%", "KiB", "MiB", "GiB", "TiB"].iter().any(|unit| word.starts_with(unit))
            || word.trim_end_matches(['.', ',']) == "s";
        match words.last_mut() {
            Some(number) if is_unit => *number += &format!(" {word}"),
            _ => words.push(word.to_owned()),
        }
    }
    let mut lines = vec![first.to_owned()];
    let mut is_begun = false;
    for word in &words {
        let line = lines.last_mut().expect("there is a first line");
        if is_begun && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(format!("{rest}{word}"));
        } else {
            if is_begun {
                line.push(' ');
            }
            line.push_str(word);
            is_begun = true;
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_of_a_text() {
        let text = wrapped(&"word ".repeat(30), "* ", "  ");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), &lines[1][..6]), (2, "  word"));
        assert!(lines.iter().all(|line| line.len() <= 100) && lines[0].starts_with("* word"));
        let text = wrapped(&"at 3.95 %, for 12 s. ".repeat(30), "", "");
        assert!(text.lines().all(|line| !line.starts_with(['%', 's'])), "{text}");
    }
}
