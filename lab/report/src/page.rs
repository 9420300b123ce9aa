//! What a page consists of, without its form.

use serde::Serialize;

/// A page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// What kind of results it shows, as `advice`.
    pub kind: &'static str,
    /// Its heading: the trace.
    pub title: String,
    /// Facts about the trace, one after the other.
    pub facts: Vec<String>,
    /// What was found, the answer first.
    pub answer: Vec<Statement>,
    /// Curves and tables.
    pub sections: Vec<Section>,
    /// What the figures rest on.
    pub assumptions: Vec<Statement>,
    /// The command that made the results.
    pub command: String,
}

/// A sentence, and the commands that show its figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statement {
    /// The sentence.
    pub text: String,
    /// Command lines.
    pub runs: Vec<String>,
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq)]
pub enum Section {
    /// A heading above the sections that follow.
    Heading(String),
    /// Curves.
    Chart(Chart),
    /// A table that can be sorted.
    Table(Table),
}

/// Curves over a common axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// Heading.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// The axis from left to right.
    pub x: Axis,
    /// The axis from bottom to top.
    pub y: Axis,
    /// Values of the first axis, ascending.
    pub xs: Vec<f64>,
    /// The curves.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// What it shows.
    pub label: String,
    /// Its unit.
    pub unit: Unit,
    /// Whether equal steps are equal ratios.
    pub log: bool,
}

/// The unit of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes, by powers of 1024.
    Bytes,
    /// A number of things.
    Count,
    /// A share from 0 to 1, shown as percent.
    Share,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Ms,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// How it is drawn.
    pub shape: Shape,
    /// Whether it is shown at first.
    pub shown: bool,
    /// Its value at each of the chart's `xs`; `None`: it has no point there.
    pub ys: Vec<Option<f64>>,
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A line through points that are marked.
    Points,
    /// A line.
    Line,
    /// A line with dashes.
    Dashed,
    /// Steps, each from the point before it: a histogram.
    StepsBefore,
    /// Steps, each up to the next point.
    StepsAfter,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Heading.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows of cells.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// Whether it has numbers, which stand at the right.
    pub is_number: bool,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// What is read.
    pub text: String,
    /// What it is sorted by, if not by its text.
    pub value: Option<f64>,
    /// Whether it stands out.
    pub is_best: bool,
}

impl Cell {
    /// A cell that is sorted by its text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number, with the text that shows it.
    pub fn number(value: f64, text: impl Into<String>) -> Self {
        Self { text: text.into(), value: Some(value), is_best: false }
    }
}

impl Table {
    /// A table without rows. A name of a column that begins with `#` is one of numbers.
    pub fn new(title: &str, note: &str, columns: &[&str]) -> Self {
        let column = |name: &&str| Column {
            name: name.trim_start_matches('#').to_owned(),
            is_number: name.starts_with('#'),
        };
        Self {
            title: title.into(),
            note: note.into(),
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
        }
    }
}

impl Statement {
    /// A sentence alone.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), runs: Vec::new() }
    }
}
