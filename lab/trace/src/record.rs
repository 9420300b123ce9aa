//! A trace being read: its records, whatever format they come in. Splitting records into cache
//! blocks is in `blocks.rs`; the formats are in `format/`.

pub use undercroft_recording::{Meta, Op, Record, Unit};

use crate::left_out::LeftOut;

/// A trace being read, record by record, in trace order, in bounded memory.
pub trait Reader: Send {
    /// Facts about the trace.
    fn meta(&self) -> &Meta;

    /// Appends the next records (a few thousand at most) to `records`. Nothing appended means the
    /// end of the trace.
    ///
    /// # Errors
    /// The input is damaged or cannot be read: the error names file, line or byte, and what was
    /// expected. Records before the damage have been appended; no further call may follow.
    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), crate::Error>;

    /// Names of the address spaces met so far, indexed by [`Record::space`].
    fn spaces(&self) -> &[String];

    /// What was met so far that moves no data (discards, flushes, lengths of zero, ...) and is
    /// therefore no record.
    fn left_out(&self) -> LeftOut {
        LeftOut::default()
    }

    /// Names of the columns that are not used, where the file names its columns.
    fn unused(&self) -> &[String] {
        &[]
    }
}
