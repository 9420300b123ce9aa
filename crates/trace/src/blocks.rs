//! From records to references: splits requests into cache blocks, samples them if asked to, and
//! renumbers what is left densely.
//!
//! The numbering itself is in `renumber.rs`; a whole trace kept for many readers is in `dense.rs`.

use crate::error::Error;
use crate::record::{Meta, Op, Reader, Record, Unit};
use crate::renumber::{BlockNames, Key, MAX_BLOCKS, Renumbering};
use crate::rng::mix;

/// Most references in a chunk.
pub const CHUNK_REFERENCES: usize = 1 << 16;

/// Most records that end in a chunk. Only a sample, where most records leave no reference, has
/// more records than references.
const CHUNK_RECORDS: usize = 1 << 18;

/// Smallest cache block, in bytes: a sector.
pub const MIN_BLOCK_BYTES: u32 = 512;

const WRITE: u32 = 1 << 31;

/// One reference to one block: a dense block number and a write flag.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Ref(u32);

impl Ref {
    /// A reference to `block`, at most [`MAX_BLOCKS`] - 1.
    #[inline]
    pub const fn new(block: u32, write: bool) -> Self {
        debug_assert!(block < WRITE);
        Self(block | if write { WRITE } else { 0 })
    }

    /// Dense number of the block.
    #[inline]
    pub const fn block(self) -> u32 {
        self.0 & !WRITE
    }

    /// Whether the block was written.
    #[inline]
    pub const fn is_write(self) -> bool {
        self.0 & WRITE != 0
    }

    /// Names the block of a reference made with block 0.
    #[inline]
    pub(crate) const fn set_block(&mut self, block: u32) {
        debug_assert!(self.block() == 0);
        self.0 |= block;
    }

    #[inline]
    pub(crate) const fn to_bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl std::fmt::Debug for Ref {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.is_write() { 'w' } else { 'r' }, self.block())
    }
}

/// How a trace becomes references.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockOptions {
    /// Size of a cache block in bytes, at least [`MIN_BLOCK_BYTES`]; need not be a power of two.
    /// Default 4096.
    pub block_bytes: u32,
    /// The numbers of a trace of [`Unit::Blocks`] are addresses in units of so many bytes, and
    /// are regrouped into cache blocks. Default none: one number is one block.
    pub unit_bytes: Option<u32>,
    /// Share of the blocks to keep, in (0, 1]: all references to a block are kept or none, by a
    /// hash of its space and number (spatial sampling as in SHARDS). Default 1.
    pub sample_rate: f64,
    /// Fill [`BlockStream::origins`]. Default no.
    pub origins: bool,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self { block_bytes: 4096, unit_bytes: None, sample_rate: 1.0, origins: false }
    }
}

/// What has been counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records of the trace.
    pub records: u64,
    /// Block requests that read.
    pub reads: u64,
    /// Block requests that write.
    pub writes: u64,
}

impl Counts {
    /// Block requests: reads and writes.
    pub fn references(&self) -> u64 {
        self.reads + self.writes
    }
}

/// Where a reference came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Address space of the block.
    pub space: u32,
    /// Time of the request in nanoseconds; 0 where the trace has none.
    pub time_ns: u64,
    /// Address, in the client's memory, of the first byte that the request moved from or to this
    /// block; where the trace recorded buffers.
    pub buffer: Option<u64>,
}

/// The part of a request that has not become references yet.
#[derive(Clone, Copy, Debug)]
struct Span {
    space: u32,
    write: bool,
    next: u64,
    /// Blocks left, `next` included.
    left: u64,
    time_ns: u64,
    buffer: Option<u64>,
    /// Bytes by which the request begins inside its first block.
    skip: u32,
}

/// A trace as a stream of references to dense block numbers, in bounded memory apart from the
/// numbering of the distinct blocks.
pub struct BlockStream {
    reader: Box<dyn Reader>,
    splitter: Splitter,
    /// Sampling: blocks with smaller hashes are kept.
    keep_below: Option<u64>,
    want_origins: bool,
    numbering: Renumbering,
    records: Vec<Record>,
    next_record: usize,
    span: Option<Span>,
    keys: Vec<Key>,
    record_ends: Vec<u32>,
    origins: Vec<Origin>,
    seen: Counts,
    kept: Counts,
}

impl BlockStream {
    /// Begins to split the trace of `reader`.
    ///
    /// # Errors
    /// [`Error::Format`] if an option is out of its range or does not fit the trace.
    pub fn new(reader: Box<dyn Reader>, options: &BlockOptions) -> Result<Self, Error> {
        let rate = options.sample_rate;
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(Error::Format(format!("sample rate {rate}: expected above 0, at most 1")));
        }
        Ok(Self {
            splitter: Splitter::new(reader.meta(), options)?,
            reader,
            // 2^64 is exact in a double, and a rate below 1 times it fits 64 bits.
            keep_below: (rate < 1.0).then_some((rate * 18_446_744_073_709_551_616.0) as u64),
            want_origins: options.origins,
            numbering: Renumbering::new(),
            records: Vec::new(),
            next_record: 0,
            span: None,
            keys: Vec::with_capacity(CHUNK_REFERENCES),
            record_ends: Vec::new(),
            origins: Vec::new(),
            seen: Counts::default(),
            kept: Counts::default(),
        })
    }

    /// Replaces `refs` by the next chunk, of at most [`CHUNK_REFERENCES`]. False, with nothing in
    /// `refs`, at the end of the trace. A chunk of a sample may be empty before the end.
    ///
    /// # Errors
    /// Those of the reader; [`Error::Limit`] on more than [`MAX_BLOCKS`] distinct blocks, on a
    /// request of more blocks than that, and on one that ends beyond 2^64.
    pub fn next_chunk(&mut self, refs: &mut Vec<Ref>) -> Result<bool, Error> {
        refs.clear();
        self.keys.clear();
        self.record_ends.clear();
        self.origins.clear();
        while refs.len() < CHUNK_REFERENCES && self.record_ends.len() < CHUNK_RECORDS {
            let Some(mut span) = self.next_span()? else { break };
            let blocks = span.left.min((CHUNK_REFERENCES - refs.len()) as u64);
            self.expand(&span, blocks, refs);
            if blocks < span.left {
                self.skip_blocks(&mut span, blocks);
                self.span = Some(span);
            } else {
                self.record_ends.push(refs.len() as u32);
                self.seen.records += 1;
                self.kept.records += 1;
            }
        }
        self.numbering.assign(&self.keys, refs)?;
        Ok(!refs.is_empty() || !self.record_ends.is_empty())
    }

    /// For each record that ended in the last chunk, the references of the chunk up to its end.
    /// A warm-up of N records ends where the N-th of all these says.
    pub fn record_ends(&self) -> &[u32] {
        &self.record_ends
    }

    /// Where each reference of the last chunk came from; empty unless the options ask for it.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// Everything that the trace asked for, whether the sample kept it or not.
    pub fn seen(&self) -> Counts {
        self.seen
    }

    /// What was handed out; equal to [`BlockStream::seen`] without sampling.
    pub fn kept(&self) -> Counts {
        self.kept
    }

    /// Distinct blocks handed out.
    pub fn unique(&self) -> u32 {
        self.numbering.len()
    }

    /// Records that are no reads or writes and that the format says to leave out, so far.
    pub fn left_out(&self) -> u64 {
        self.reader.left_out()
    }

    /// Facts about the trace.
    pub fn meta(&self) -> &Meta {
        self.reader.meta()
    }

    /// Names of the address spaces met so far.
    pub fn spaces(&self) -> &[String] {
        self.reader.spaces()
    }

    /// The (space, block number) behind each dense number, at the block size of the options.
    pub fn names(&self) -> &BlockNames {
        self.numbering.names()
    }

    /// Ends the stream and keeps the names, without the look-up table.
    pub fn into_names(self) -> BlockNames {
        self.numbering.into_names()
    }

    /// The request begun in the last chunk, or the next one; none at the end.
    #[inline]
    fn next_span(&mut self) -> Result<Option<Span>, Error> {
        if let Some(span) = self.span.take() {
            return Ok(Some(span));
        }
        if self.next_record == self.records.len() {
            self.records.clear();
            self.next_record = 0;
            self.reader.read(&mut self.records)?;
            if self.records.is_empty() {
                return Ok(None);
            }
        }
        let record = self.records[self.next_record];
        self.next_record += 1;
        match self.splitter.split(&record) {
            Some(span) => Ok(Some(span)),
            None => Err(self.refuse(&record)),
        }
    }

    #[cold]
    fn refuse(&self, record: &Record) -> Error {
        Error::Limit(format!(
            "record {}: address {}, length {}: expected at least 1 and at most {MAX_BLOCKS} \
             blocks, all below 2^64 bytes",
            self.seen.records + 1,
            record.address,
            record.length,
        ))
    }

    /// Appends the references to the first `blocks` blocks of a span, block numbers still open.
    #[inline]
    fn expand(&mut self, span: &Span, blocks: u64, refs: &mut Vec<Ref>) {
        let before = refs.len();
        let mark = Ref::new(0, span.write);
        match self.keep_below {
            None => {
                for i in 0..blocks {
                    self.keys.push(self.numbering.key(span.space, span.next + i));
                }
                refs.resize(before + blocks as usize, mark);
                if self.want_origins {
                    self.origins.extend((0..blocks).map(|i| self.splitter.origin(span, i)));
                }
            }
            Some(keep_below) => {
                for i in 0..blocks {
                    if sample_hash(span.space, span.next + i) >= keep_below {
                        continue;
                    }
                    self.keys.push(self.numbering.key(span.space, span.next + i));
                    refs.push(mark);
                    if self.want_origins {
                        self.origins.push(self.splitter.origin(span, i));
                    }
                }
            }
        }
        let kept = (refs.len() - before) as u64;
        if span.write {
            self.seen.writes += blocks;
            self.kept.writes += kept;
        } else {
            self.seen.reads += blocks;
            self.kept.reads += kept;
        }
    }

    fn skip_blocks(&self, span: &mut Span, blocks: u64) {
        if blocks == 0 {
            return;
        }
        span.buffer = self.splitter.origin(span, blocks).buffer;
        span.skip = 0;
        span.next += blocks;
        span.left -= blocks;
    }
}

/// Hash that decides whether a block is in a sample: a function of the block alone, and unlike
/// the one of the numbering's table, which must spread the kept blocks evenly.
#[inline]
fn sample_hash(space: u32, block: u64) -> u64 {
    const SALT: u64 = 0x5348_4152_4453_2121;
    mix(block ^ mix(u64::from(space) ^ SALT))
}

/// The arithmetic of splitting, with everything that depends on the trace and the options only.
#[derive(Debug)]
struct Splitter {
    block_bytes: u32,
    /// Bytes that one step of an address means; none if one number is one block.
    unit_bytes: Option<u32>,
    /// log2 of `block_bytes` where that is a whole number: shifts are cheaper than divisions.
    shift: Option<u32>,
}

impl Splitter {
    fn new(meta: &Meta, options: &BlockOptions) -> Result<Self, Error> {
        let BlockOptions { block_bytes, unit_bytes, .. } = *options;
        if block_bytes < MIN_BLOCK_BYTES {
            return Err(Error::Format(format!(
                "block size {block_bytes} bytes: expected at least {MIN_BLOCK_BYTES}"
            )));
        }
        let unit_bytes = match (meta.unit, unit_bytes) {
            (_, Some(0)) => {
                return Err(Error::Format("unit 0 bytes: expected at least 1".into()));
            }
            (Unit::Bytes, Some(_)) => {
                return Err(Error::Format(format!(
                    "format {} gives addresses in bytes already: no unit can be set",
                    meta.format
                )));
            }
            (Unit::Bytes, None) => Some(1),
            (Unit::Blocks, unit) => unit,
        };
        let shift = block_bytes.is_power_of_two().then(|| block_bytes.trailing_zeros());
        Ok(Self { block_bytes, unit_bytes, shift })
    }

    /// The blocks that a request touches; none if they are none or cannot be numbered.
    #[inline]
    fn split(&self, record: &Record) -> Option<Span> {
        let &Record { address, length, space, .. } = record;
        let last = address.checked_add(length.checked_sub(1)?)?;
        let (first_block, last_block, skip) = match self.unit_bytes {
            None => (address, last, 0),
            Some(unit) => {
                let first_byte = address.checked_mul(u64::from(unit))?;
                let last_byte =
                    last.checked_mul(u64::from(unit))?.checked_add(u64::from(unit - 1))?;
                let (first_block, last_block) = match self.shift {
                    Some(shift) => (first_byte >> shift, last_byte >> shift),
                    None => {
                        let size = u64::from(self.block_bytes);
                        (first_byte / size, last_byte / size)
                    }
                };
                let skip = first_byte - first_block * u64::from(self.block_bytes);
                (first_block, last_block, skip as u32)
            }
        };
        let more = last_block - first_block;
        (more < u64::from(MAX_BLOCKS)).then_some(Span {
            space,
            write: record.op == Op::Write,
            next: first_block,
            left: more + 1,
            time_ns: record.time_ns,
            buffer: record.buffer,
            skip,
        })
    }

    /// Origin of the i-th block of a span.
    fn origin(&self, span: &Span, i: u64) -> Origin {
        let offset = match i {
            0 => 0,
            _ => i * u64::from(self.block_bytes) - u64::from(span.skip),
        };
        // An address near the top of memory is the recorder's business: never panic over it.
        Origin {
            space: span.space,
            time_ns: span.time_ns,
            buffer: span.buffer.map(|at| at.wrapping_add(offset)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
