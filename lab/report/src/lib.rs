//! Self-contained HTML pages of what `undercroft` found: the answer first, then curves and tables,
//! and the command that made them.
//!
//! A page is made from the JSON that `sweep`, `characterize` and `advise` write, so one that was
//! kept can be shown later. `page.rs` is what a page consists of, `html.rs` writes it, and one file
//! for each kind of JSON says what of it is shown. The script is in `assets`, the style is that of
//! a server's live page; a page needs no network, and forbids itself any.
//!
//! ```
//! let found = serde_json::json!([{
//!     "trace": "a.csv", "upper": "", "policy": "lru", "placement": "access", "size": "1MiB",
//!     "capacity_blocks": 256, "block_bytes": 4096, "requests": 900, "unique_blocks": 300,
//!     "reads": 800, "read_hits": 400, "read_hit_ratio": 0.5, "cold_reads": 300,
//!     "aggregate_read_hit_ratio": 0.5, "disk_demand_reads": 400, "disk_reloads": 0,
//!     "response_time_ms": 6.0
//! }]);
//! let page = undercroft_report::page(found, &["undercroft".into(), "sweep".into()])?;
//! assert!(page.html().contains("<!doctype html>"));
//! # Ok::<(), undercroft_report::Error>(())
//! ```
#![forbid(unsafe_code)]

mod advice;
mod characterization;
mod html;
mod page;
mod sweep;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use undercroft_text::{bytes, word as shell_word};

pub use page::{Axis, Cell, Chart, Column, Page, Section, Series, Shape, Statement, Table, Unit};

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A file is no JSON.
    #[error(
        "{path}: no JSON, but a page is made of results ({source}); of a trace `undercroft advise \
         TRACE --report page.html` makes one"
    )]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// The JSON is of another kind than those that are known.
    #[error(
        "no results that are known: expected those of sweep (results.json in its folder), of \
         characterize --json or of advise --json{0}"
    )]
    Unknown(String),
}

/// The command that made the results of a folder, as `command.json` there says.
#[derive(Deserialize)]
struct Made {
    command: Vec<String>,
}

/// Reads the results of a sweep's folder, or a file of JSON, and makes their page.
///
/// # Errors
/// There are none, they cannot be read, or they are of another kind.
pub fn open(path: &Path) -> Result<Page, Error> {
    let file = if path.is_dir() { path.join("results.json") } else { path.to_path_buf() };
    if path.is_dir() && !file.exists() {
        return Err(Error::Unknown(format!(", and {} has none", path.display())));
    }
    let made = file.with_file_name("command.json");
    let command = match path.is_dir() && made.exists() {
        true => read::<Made>(&made)?.command,
        false => Vec::new(),
    };
    page(read(&file)?, &command).map_err(|error| match error {
        Error::Unknown(why) => Error::Unknown(format!("{why}, in {}", file.display())),
        other => other,
    })
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let path = path.to_path_buf();
    match fs::read_to_string(&path) {
        Err(source) => Err(Error::Read { path, source }),
        Ok(text) => serde_json::from_str(&text).map_err(|source| Error::Json { path, source }),
    }
}

/// The page of results. `command` is the command line that made them, word by word, for results
/// that do not say it themselves.
///
/// # Errors
/// The JSON is none that `undercroft` writes, or a field is missing.
pub fn page(found: Value, command: &[String]) -> Result<Page, Error> {
    let unknown = |error: serde_json::Error| Error::Unknown(format!(": {error}"));
    let from = |found: Value| -> Result<Page, serde_json::Error> {
        if found.is_array() {
            Ok(sweep::page(&serde_json::from_value::<Vec<sweep::Row>>(found)?))
        } else if found.get("findings").is_some() {
            Ok(advice::page(&serde_json::from_value(found)?))
        } else {
            Ok(characterization::page(&serde_json::from_value(found)?))
        }
    };
    let said = found.get("command").and_then(|words| {
        let words = words.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned);
        Some(words.collect::<Vec<_>>())
    });
    if found.as_array().is_some_and(Vec::is_empty) {
        return Err(Error::Unknown(": there are no runs".into()));
    }
    let mut page = from(found).map_err(unknown)?;
    page.command = command_line(said.as_deref().unwrap_or(command));
    Ok(page)
}

/// The cache above, as `characterize` and `advise` print it.
#[derive(Deserialize)]
struct Upper {
    policy: String,
    capacity_blocks: u32,
}

impl Upper {
    /// `below 32 MiB:lru`.
    fn below(&self, block_bytes: u64) -> String {
        let size = bytes(u64::from(self.capacity_blocks) * block_bytes);
        format!("below {size}:{}", self.policy)
    }
}

/// Words as a shell reads them; of the program only its name. Empty without words.
fn command_line(words: &[String]) -> String {
    let Some(program) = words.first() else { return String::new() };
    let name = program.rsplit('/').next().unwrap_or(program);
    let words = words.iter().skip(1).map(|word| shell_word(word));
    std::iter::once(name.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
