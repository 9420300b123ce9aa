//! Tables and numbers as people read them.

use std::io::{self, Write};

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

/// `1234567` as `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A ratio as `32.83 %`.
pub(crate) fn percent(ratio: f64) -> String {
    format!("{:.2} %", 100.0 * ratio)
}

/// A number of bytes as `3.9 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 100.0 && value.fract() != 0.0);
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::{bytes, count};

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(4_096_000), "3.9 MiB");
        assert_eq!(bytes(200 << 30), "200 GiB");
    }
}
