//! The files of a sweep: `runs.jsonl`, to which each finished run is appended and from which an
//! interrupted sweep goes on, and at the end `results.csv` and `results.json`.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::Row;
use crate::Error;

/// The folder of a sweep's results.
pub struct Journal {
    folder: PathBuf,
    done: Mutex<HashMap<String, Row>>,
    file: Mutex<File>,
}

/// A row of the journal, with the key of its run.
#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    key: String,
    row: std::borrow::Cow<'a, Row>,
}

impl Journal {
    /// Opens the folder, which is created if needed, and reads the finished runs. A last line that
    /// an interruption cut short is dropped.
    ///
    /// # Errors
    /// The folder cannot be used, or the journal is damaged otherwise.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|source| results_error(folder, source))?;
        let (done, file) = open_file(&folder.join("runs.jsonl"))?;
        Ok(Self { folder: folder.to_owned(), done: Mutex::new(done), file: Mutex::new(file) })
    }

    /// The row of a finished run.
    pub fn row(&self, key: &str) -> Option<Row> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Appends a finished run in one write, so that an interruption can cut short only the last
    /// line.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn append(&self, key: &str, row: &Row) -> Result<(), Error> {
        let write = || -> io::Result<()> {
            let entry = Entry { key: key.to_owned(), row: std::borrow::Cow::Borrowed(row) };
            let mut line = serde_json::to_string(&entry)?;
            line.push('\n');
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(line.as_bytes())
        };
        write().map_err(|source| results_error(&self.folder, source))?;
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.insert(key.to_owned(), row.clone());
        Ok(())
    }

    /// Writes the results of the finished runs of `keys` in this order, under temporary names
    /// first, so that no partial results are visible. Returns the rows.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn finish<'k>(&self, keys: impl Iterator<Item = &'k str>) -> Result<Vec<Row>, Error> {
        let rows: Vec<Row> = keys.filter_map(|key| self.row(key)).collect();
        let folder = &self.folder;
        let write = || -> io::Result<()> {
            let csv_part = folder.join("results.csv.part");
            let mut csv = csv::Writer::from_writer(new_file(&csv_part)?);
            rows.iter().try_for_each(|row| csv.serialize(row)).map_err(io::Error::other)?;
            csv.flush()?;
            let json_part = folder.join("results.json.part");
            let json = serde_json::to_string_pretty(&rows)? + "\n";
            new_file(&json_part)?.write_all(json.as_bytes())?;
            fs::rename(csv_part, folder.join("results.csv"))?;
            fs::rename(json_part, folder.join("results.json"))
        };
        write().map_err(|source| results_error(folder, source))?;
        Ok(rows)
    }
}

/// The finished runs of a journal, and the journal opened for more.
fn open_file(path: &Path) -> Result<(HashMap<String, Row>, File), Error> {
    let error = |source| results_error(path, source);
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(error(e)),
    };
    let whole = text.rfind('\n').map_or(0, |last| last + 1);
    let mut done = HashMap::new();
    for (number, line) in text[..whole].lines().enumerate() {
        let entry: Entry<'_> = serde_json::from_str(line).map_err(|e| {
            let what = format!("line {}: {e}; delete the file to start anew", number + 1);
            error(io::Error::new(io::ErrorKind::InvalidData, what))
        })?;
        done.insert(entry.key, entry.row.into_owned());
    }
    let file = OpenOptions::new().create(true).append(true).open(path).map_err(error)?;
    file.set_len(whole as u64).map_err(error)?;
    Ok((done, file))
}

/// Creates an empty file in place of any file with this name. Does not follow a link.
fn new_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
    }
}

pub(super) fn results_error(path: &Path, source: io::Error) -> Error {
    Error::Results { path: path.display().to_string(), source }
}
