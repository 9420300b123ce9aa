//! A recording or trace being written, in any format.

use std::path::Path;

use crate::{Error, Record};

/// A trace being written.
///
/// Dropped without [`Writer::finish`] it leaves no file behind.
pub trait Writer: Send {
    /// Appends records. `spaces` are the names of the spaces met so far; one without a name is
    /// called by its number.
    ///
    /// # Errors
    /// The system refuses, or the format cannot carry a record: the message says which and why.
    fn write(&mut self, records: &[Record], spaces: &[String]) -> Result<(), Error>;

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// The system refuses; then there is no file.
    fn finish(self: Box<Self>) -> Result<(), Error>;
}

/// Record number `count` of the trace cannot go into this file.
pub fn refused(path: &Path, count: u64, reason: &str) -> Error {
    Error::Format(format!("{}: record {count} cannot be written: {reason}", path.display()))
}

/// Name of a space, or its number where nobody gave it a name.
pub fn space_name(space: u32, spaces: &[String]) -> String {
    spaces.get(space as usize).cloned().unwrap_or_else(|| space.to_string())
}
