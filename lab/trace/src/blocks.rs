//! From records to references: splits requests into cache blocks, samples them if asked to, and
//! renumbers what is left densely.
//!
//! The arithmetic of splitting is in `blocks/split.rs`, the numbering in `renumber.rs`; a whole
//! trace kept for many readers is in `dense.rs`.

mod split;

use crate::Error;
use crate::left_out::{LeftOut, Reason};
use crate::record::{Meta, Op, Reader, Record, Unit};
use crate::renumber::{BlockNames, Key, MAX_BLOCKS, Renumbering};
use split::{Span, Splitter};
use undercroft_random::mix;

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
    /// The numbers of a trace of [`Unit::Blocks`](crate::Unit::Blocks) are addresses in units of
    /// so many bytes, and are regrouped into cache blocks. Default none: one number is one block.
    pub unit_bytes: Option<u32>,
    /// Share of the blocks to keep, in (0, 1]: all references to a block are kept or none, by a
    /// hash of its space and number (spatial sampling as in SHARDS). Default 1.
    pub sample_rate: f64,
    /// Fill [`BlockStream::origins`]. Default no.
    pub origins: bool,
    /// Fill [`BlockStream::evictions`]. Default no: records of evictions are left out.
    pub evictions: bool,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self {
            block_bytes: 4096,
            unit_bytes: None,
            sample_rate: 1.0,
            origins: false,
            evictions: false,
        }
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
    /// Number of the client, where the trace has evictions; otherwise 0.
    pub client: u8,
    /// Number of the reference in the whole trace, counted from 0; a sample leaves numbers out.
    pub position: u64,
}

/// A block that a client said to have evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// References of the chunk before it.
    pub after: u32,
    /// Dense number of the block.
    pub block: u32,
    /// Number of the client.
    pub client: u8,
    /// When the client evicted the block, in nanoseconds, on the clock of [`Origin::time_ns`].
    pub time_ns: u64,
}

/// A trace as a stream of references to dense block numbers, in bounded memory apart from the
/// numbering of the distinct blocks.
pub struct BlockStream {
    reader: Box<dyn Reader>,
    splitter: Splitter,
    /// Sampling: blocks with smaller hashes are kept.
    keep_below: Option<u64>,
    want_origins: bool,
    want_evictions: bool,
    numbering: Renumbering,
    records: Vec<Record>,
    next_record: usize,
    /// Blocks of the next record that earlier chunks hold.
    handed_out: u64,
    keys: Vec<Key>,
    record_ends: Vec<u32>,
    origins: Vec<Origin>,
    evictions: Vec<Gone>,
    /// Records of evictions that nobody asked for.
    unasked: u64,
    seen: Counts,
    kept: Counts,
    numbers: Numbers,
}

/// What all block numbers of a trace have in common.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    /// Greatest common divisors of the first blocks and of the lengths so far; 0 at the beginning.
    addresses: u64,
    lengths: u64,
    longest: u64,
}

impl Numbers {
    fn add(&mut self, record: &Record) {
        self.addresses = common_divisor(self.addresses, record.address);
        self.lengths = common_divisor(self.lengths, record.length);
        self.longest = self.longest.max(record.length);
    }

    fn divisor(self) -> u64 {
        match self.longest {
            0 | 1 => self.addresses,
            _ => common_divisor(self.addresses, self.lengths),
        }
    }
}

/// The greatest common divisor; one of 0 and a number is that number.
fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    if a == 1 {
        return 1;
    }
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
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
            want_evictions: options.evictions,
            numbering: Renumbering::new(),
            records: Vec::new(),
            next_record: 0,
            handed_out: 0,
            keys: Vec::new(),
            record_ends: Vec::new(),
            origins: Vec::new(),
            evictions: Vec::new(),
            unasked: 0,
            seen: Counts::default(),
            kept: Counts::default(),
            numbers: Numbers::default(),
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
        self.evictions.clear();
        loop {
            self.take_single_blocks(refs);
            let is_full = refs.len() == CHUNK_REFERENCES
                || self.record_ends.len() == CHUNK_RECORDS
                || self.evictions.len() >= CHUNK_REFERENCES;
            if is_full {
                break;
            }
            if let Some(&record) = self.records.get(self.next_record) {
                match record.op {
                    Op::Read | Op::Write => self.take(&record, refs)?,
                    Op::Evict => self.take_eviction(&record, refs)?,
                }
                continue;
            }
            self.number(refs)?;
            if !self.refill()? {
                break;
            }
        }
        self.kept.records = self.seen.records;
        self.number(refs)?;
        Ok(!refs.is_empty() || !self.record_ends.is_empty() || !self.evictions.is_empty())
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

    /// Blocks that clients evicted, in order; empty unless the options ask for it. A block that the
    /// trace has not named before is not among them, nor one that the sample does not keep.
    pub fn evictions(&self) -> &[Gone] {
        &self.evictions
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

    /// What has been left out so far since it moves no data.
    pub fn left_out(&self) -> LeftOut {
        self.reader.left_out() + LeftOut::of(Reason::Eviction, self.unasked)
    }

    /// Greatest number so far that divides all first blocks and lengths of a trace of block
    /// numbers; lengths do not count if all are 1. 0: there is none yet.
    pub fn divisor(&self) -> u64 {
        self.numbers.divisor()
    }

    /// Names of the columns that are not used.
    pub fn unused(&self) -> &[String] {
        self.reader.unused()
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

    /// Numbers the blocks of the last references, whose keys are waiting.
    fn number(&mut self, refs: &mut [Ref]) -> Result<(), Error> {
        let numbered = refs.len() - self.keys.len();
        self.numbering.assign(&self.keys, &mut refs[numbered..])?;
        self.keys.clear();
        Ok(())
    }

    /// Reads the next records. False: there are none.
    fn refill(&mut self) -> Result<bool, Error> {
        self.records.clear();
        self.next_record = 0;
        self.reader.read(&mut self.records)?;
        let is_end = self.records.is_empty();
        if self.reader.meta().has_evictions && !self.want_evictions {
            let all = self.records.len();
            self.records.retain(|record| record.op != Op::Evict);
            self.unasked += (all - self.records.len()) as u64;
        }
        if self.reader.meta().unit == Unit::Blocks {
            self.records.iter().for_each(|record| self.numbers.add(record));
        }
        Ok(!is_end)
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

    /// Takes the next record, or as much of it as the chunk has room for.
    fn take(&mut self, record: &Record, refs: &mut Vec<Ref>) -> Result<(), Error> {
        let Some(span) = self.splitter.split(record) else {
            return Err(self.refuse(record));
        };
        let room = (CHUNK_REFERENCES - refs.len()) as u64;
        let end = span.blocks.min(self.handed_out + room);
        self.expand(record, &span, end, refs);
        if end < span.blocks {
            self.handed_out = end;
        } else {
            self.handed_out = 0;
            self.next_record += 1;
            self.record_ends.push(refs.len() as u32);
            self.seen.records += 1;
        }
        Ok(())
    }

    /// Takes the next record, which is no request and counts as none.
    fn take_eviction(&mut self, record: &Record, refs: &mut [Ref]) -> Result<(), Error> {
        self.next_record += 1;
        // What comes before it has its numbers first.
        self.number(refs)?;
        let Some(span) = self.splitter.split(record) else {
            return Err(self.refuse(record));
        };
        let &Record { space, client, time_ns, .. } = record;
        for block in (0..span.blocks).map(|i| span.first + i) {
            let is_kept = self.keep_below.is_none_or(|limit| sample_hash(space, block) < limit);
            let key = self.numbering.key(space, block);
            if let Some(block) = self.numbering.find(key).filter(|_| is_kept) {
                self.evictions.push(Gone { after: refs.len() as u32, block, client, time_ns });
            }
        }
        Ok(())
    }

    /// Takes the records to come up to the first that touches more than one block. The same as
    /// one by one, but with nothing to ask for each: in most traces these are nearly all.
    fn take_single_blocks(&mut self, refs: &mut Vec<Ref>) {
        if self.handed_out > 0 || self.keep_below.is_some() || self.want_origins {
            return;
        }
        let before = refs.len();
        let room = (CHUNK_REFERENCES - before).min(CHUNK_RECORDS - self.record_ends.len());
        let (splitter, numbering) = (&self.splitter, &mut self.numbering);
        let records = &self.records[self.next_record..];
        let single = |record: &&Record| {
            let span = splitter.split(record).filter(|_| record.op != Op::Evict);
            span.is_some_and(|span| span.blocks == 1)
        };
        let taken = records.iter().take(room).take_while(single).count();
        let records = &records[..taken];
        // A pass for each, because then the room for all is made at once.
        let key = |record: &Record| numbering.key(record.space, splitter.block(record.address));
        self.keys.extend(records.iter().map(key));
        refs.extend(records.iter().map(|record| Ref::new(0, record.op == Op::Write)));
        let writes = records.iter().filter(|record| record.op == Op::Write).count() as u64;
        self.record_ends.extend(before as u32 + 1..=(before + taken) as u32);
        self.next_record += taken;
        self.seen.records += taken as u64;
        for counts in [&mut self.seen, &mut self.kept] {
            counts.reads += taken as u64 - writes;
            counts.writes += writes;
        }
    }

    /// Appends the references to the blocks of a span from the `handed_out`-th to before the
    /// `end`-th, block numbers still open.
    #[inline]
    fn expand(&mut self, record: &Record, span: &Span, end: u64, refs: &mut Vec<Ref>) {
        let before = refs.len();
        let write = record.op == Op::Write;
        for i in self.handed_out..end {
            let block = span.first + i;
            if self.keep_below.is_some_and(|limit| sample_hash(record.space, block) >= limit) {
                continue;
            }
            self.keys.push(self.numbering.key(record.space, block));
            refs.push(Ref::new(0, write));
            if self.want_origins {
                let position = self.seen.references() + i - self.handed_out;
                self.origins.push(self.splitter.origin(record, span, i, position));
            }
        }
        let seen = end - self.handed_out;
        let kept = (refs.len() - before) as u64;
        if write {
            self.seen.writes += seen;
            self.kept.writes += kept;
        } else {
            self.seen.reads += seen;
            self.kept.reads += kept;
        }
    }
}

/// Hash that decides whether a block is in a sample: a function of the block alone, and unlike
/// the one of the numbering's table, which must spread the kept blocks evenly.
#[inline]
fn sample_hash(space: u32, block: u64) -> u64 {
    const SALT: u64 = 0x5348_4152_4453_2121;
    mix(block ^ mix(u64::from(space) ^ SALT))
}

#[cfg(test)]
pub(crate) mod tests;
