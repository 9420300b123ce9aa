//! What one record says, its unit, and the facts about a whole recording or trace that are known
//! before the first record.

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

impl Unit {
    /// The longest length of a record: 4 GiB, or 2^24 blocks. More is damage, not a request.
    pub fn longest(self) -> u64 {
        match self {
            Unit::Bytes => 1 << 32,
            Unit::Blocks => 1 << 24,
        }
    }

    /// Whether a record may have this place: neither empty nor too long, and within 64 bits.
    pub fn holds(self, address: u64, length: u64) -> bool {
        (1..=self.longest()).contains(&length) && address.checked_add(length).is_some()
    }
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

/// What is known about a recording or trace before its first record.
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
