//! The references that a level does not serve, as a trace for the level below: its misses and,
//! since it is write-through, all its writes. Each record is one block, with the original time and
//! place.

use undercroft_level::DenseLevel;
use undercroft_policy::{Awareness, Context, Counts, Reference, WriteMode};
use undercroft_trace::{BlockStream, Meta, Op, Record, Ref, Unit};

use crate::{Error, LevelConfig};

/// A level that runs on a stream, and the records that it does not serve.
pub struct Filter {
    stream: BlockStream,
    level: DenseLevel,
    meta: Meta,
    /// Bytes of a block, to compute addresses.
    scale: u64,
    chunk: Vec<Ref>,
    /// Block numbers for which the policy has names.
    bound: u32,
    written: u64,
}

impl Filter {
    /// Makes a level over a stream of blocks of `block_bytes`; the stream must carry origins.
    ///
    /// # Errors
    /// The policy cannot be made. OPT is refused, since it needs the whole trace first, and a
    /// content-aware policy, which nobody would tell what another cache holds.
    pub fn new(
        stream: BlockStream,
        level: &LevelConfig,
        block_bytes: u32,
        mode: WriteMode,
    ) -> Result<Self, Error> {
        if Awareness::of(&level.policy).is_some() {
            let why = format!("{}: a filter has no neighbouring cache to learn of", level.policy);
            return Err(Error::Request(why));
        }
        let policy = level.policy.build(&Context::new(level.capacity))?;
        let meta = Meta {
            block_bytes: Some(block_bytes),
            has_buffers: false,
            has_evictions: false,
            ..stream.meta().clone()
        };
        let scale = if meta.unit == Unit::Bytes { u64::from(block_bytes) } else { 1 };
        Ok(Self {
            stream,
            level: DenseLevel::new(policy, mode),
            meta,
            scale,
            chunk: Vec::new(),
            bound: 0,
            written: 0,
        })
    }

    /// Replaces `records` by the unserved records of the next chunk of the trace; false at the end.
    /// The first `warmup` records of the trace yield none.
    ///
    /// # Errors
    /// The trace is damaged or has too many distinct blocks.
    pub fn next(&mut self, warmup: u64, records: &mut Vec<Record>) -> Result<bool, Error> {
        records.clear();
        let mut ended = self.stream.seen().records;
        if !self.stream.next_chunk(&mut self.chunk)? {
            return Ok(false);
        }
        let names = self.stream.names();
        self.level.bind(self.bound, (self.bound..names.len()).map(|number| names.name(number)));
        self.bound = names.len();
        let mut ends = self.stream.record_ends().iter().copied().peekable();
        for (i, (r, origin)) in self.chunk.iter().zip(self.stream.origins()).enumerate() {
            let reference = Reference::new(r.block(), r.is_write());
            let hit = self.level.reference(self.stream.unique(), reference);
            if ended >= warmup && (!hit || r.is_write()) {
                let (space, block) = self.stream.names().block(r.block()).expect("a known block");
                records.push(Record {
                    time_ns: origin.time_ns,
                    op: if r.is_write() { Op::Write } else { Op::Read },
                    space,
                    address: block * self.scale,
                    length: self.scale,
                    buffer: None,
                    client: 0,
                });
            }
            while ends.next_if(|&end| end as usize <= i + 1).is_some() {
                ended += 1;
            }
        }
        self.written += records.len() as u64;
        Ok(true)
    }

    /// The metadata of the filtered trace.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Names of the address spaces seen so far.
    pub fn spaces(&self) -> &[String] {
        self.stream.spaces()
    }

    /// Records read so far.
    pub fn records(&self) -> u64 {
        self.stream.seen().records
    }

    /// Records written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The counts of the level, the warm-up included.
    pub fn counts(&self) -> &Counts {
        self.level.counts()
    }
}
