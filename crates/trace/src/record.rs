//! What one line of a trace says, whatever format it came in: the record, its unit, and the facts
//! about the whole trace that a reader knows before the first record.
//!
//! Splitting records into cache blocks is in `blocks.rs`; the formats are in `format/`.

use crate::left_out::LeftOut;

/// What a record says of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A read, and every reference of a trace that does not tell reads from writes.
    Read,
    /// A write (in the recorded format also `N`, a block added at the end of a file).
    Write,
    /// No request: the client said that it evicted the blocks, at the time of the record. Only
    /// where [`Meta::has_evictions`].
    Evict,
}

/// What the numbers of a trace count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Addresses and lengths are bytes; a request touches every cache block that it overlaps.
    Bytes,
    /// One number is one block, whatever the block size is.
    Blocks,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time of the request in nanoseconds, from the origin that the format uses; 0 where it has
    /// none. Of an eviction it may be before the time of preceding records.
    pub time_ns: u64,
    /// Read, write or eviction.
    pub op: Op,
    /// Address space (device, unit, file): numbered 0, 1, ... in order of first appearance.
    /// Equal addresses in different spaces are different blocks.
    pub space: u32,
    /// First byte or first block, see [`Unit`].
    pub address: u64,
    /// Length in the same unit, at least 1.
    pub length: u64,
    /// Address of the client's buffer, where the trace recorded it.
    pub buffer: Option<u64>,
    /// Number of the client, where the trace has evictions; otherwise 0.
    pub client: u8,
}

/// What a reader knows about its trace before the first record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Name of the format, as `--format` takes it.
    pub format: &'static str,
    /// Whether addresses are bytes or block numbers.
    pub unit: Unit,
    /// Block size in bytes that the trace itself states (the recorded format's header, ours).
    pub block_bytes: Option<u32>,
    /// Whether reads and writes are told apart; if not, everything is a read.
    pub has_ops: bool,
    /// Whether `time_ns` means anything.
    pub has_time: bool,
    /// Whether records carry buffer addresses.
    pub has_buffers: bool,
    /// Whether there are records of evictions among the requests, and numbers of clients.
    pub has_evictions: bool,
}

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
