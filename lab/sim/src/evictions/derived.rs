//! The evictions of recorded clients, found while a second-level trace is read: derived from the
//! buffer addresses by the client content table, or as the clients told them, where the trace has
//! that.

use undercroft_level::{Cct, CctCounts, Deliveries, Frames, Standing};
use undercroft_trace::{BlockStream, DenseOptions, DenseTrace, Ref};

use crate::Error;

/// Most frames of the table: 64 GiB of blocks of 8 KiB.
const MAX_FRAMES: u32 = 1 << 23;

/// Blocks of which it is remembered to whom they were delivered; a server of this size remembers
/// as many.
const REMEMBERED: u32 = 1 << 20;

/// The evictions of the clients above a trace, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DerivedEvictions {
    /// The number of references of the trace after which each eviction is known; never falls.
    after: Vec<u64>,
    blocks: Vec<u32>,
    counts: Option<CctCounts>,
}

impl DerivedEvictions {
    /// Reads a trace to its end, and derives the evictions from the addresses. The stream must
    /// carry origins. The evictions are kept in memory, 12 bytes each.
    ///
    /// # Errors
    /// The trace has no buffer addresses, or cannot be read.
    pub fn load(
        stream: BlockStream,
        block_bytes: u32,
        mut progress: impl FnMut(u64),
    ) -> Result<(DenseTrace, Self), Error> {
        if !stream.meta().has_buffers {
            return Err(Error::Request(format!(
                "evictions from the client content table: a {} trace without buffer addresses \
                 says nothing of the client's frames; a recorded trace with the column buf does",
                stream.meta().format
            )));
        }
        let mut watch = Watch::new(block_bytes);
        let mut derived = Self::default();
        let trace = DenseTrace::load_watched(stream, &DenseOptions::default(), |stream, refs| {
            watch.chunk(stream, refs, &mut |after, block| derived.push(after, block));
            progress(stream.seen().records);
        })?;
        derived.counts = Some(*watch.table.counts());
        Ok((trace, derived))
    }

    /// Reads a trace to its end, with the evictions that clients told. They are judged as a server
    /// judges them: one that is older than a read of the block does not count, nor one of a block
    /// that another client holds. The stream must carry origins and evictions.
    ///
    /// # Errors
    /// The trace has no evictions, or cannot be read.
    pub fn load_told(
        stream: BlockStream,
        mut progress: impl FnMut(u64),
    ) -> Result<(DenseTrace, Self), Error> {
        if !stream.meta().has_evictions {
            return Err(Error::Request(format!(
                "recorded evictions: this {} trace has none; a server records them of volumes \
                 whose placement acts on them, and attach --record of the program",
                stream.meta().format
            )));
        }
        let (mut watch, mut told) = (Told::new(), Self::default());
        let trace = DenseTrace::load_watched(stream, &DenseOptions::default(), |stream, refs| {
            watch.chunk(stream, refs, &mut |after, block| told.push(after, block));
            progress(stream.seen().records);
        })?;
        Ok((trace, told))
    }

    fn push(&mut self, after: u64, block: u32) {
        self.after.push(after);
        self.blocks.push(block);
    }

    /// Number of evictions that became known in time.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether no eviction became known.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The counts of the table, if the evictions are from there.
    pub fn counts(&self) -> Option<&CctCounts> {
        self.counts.as_ref()
    }

    /// The block of the `at`-th eviction, if that is known after `references` references.
    pub(crate) fn known(&self, at: usize, references: u64) -> Option<u32> {
        self.after.get(at).filter(|&&after| after <= references).map(|_| self.blocks[at])
    }
}

/// Where the evictions of the clients above a trace are known from, while it is read.
pub(crate) enum EvictionSource {
    /// The buffer addresses of its requests.
    Buffers(Box<Watch>),
    /// The clients.
    Told(Box<Told>),
}

impl EvictionSource {
    /// The best source that a stream has; it must carry origins, and evictions if it has them.
    pub(crate) fn of(stream: &BlockStream, block_bytes: u32) -> Option<Self> {
        match stream.meta() {
            meta if meta.has_evictions => Some(Self::Told(Box::new(Told::new()))),
            meta if meta.has_buffers => Some(Self::Buffers(Box::new(Watch::new(block_bytes)))),
            _ => None,
        }
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Buffers(_) => "buffers",
            Self::Told(_) => "told",
        }
    }

    /// Takes the last chunk of the stream. `known` is told of every eviction that became known, in
    /// order: after how many references of the trace, and the block.
    pub(crate) fn chunk(
        &mut self,
        stream: &BlockStream,
        refs: &[Ref],
        known: &mut dyn FnMut(u64, u32),
    ) {
        match self {
            Self::Buffers(watch) => watch.chunk(stream, refs, known),
            Self::Told(told) => told.chunk(stream, refs, known),
        }
    }
}

/// Judges the evictions that clients told.
pub(crate) struct Told {
    deliveries: Deliveries,
    references: u64,
}

impl Told {
    fn new() -> Self {
        Self { deliveries: Deliveries::new(REMEMBERED, 0), references: 0 }
    }

    fn chunk(&mut self, stream: &BlockStream, refs: &[Ref], known: &mut dyn FnMut(u64, u32)) {
        let mut gone = stream.evictions().iter().peekable();
        for at in 0..=refs.len() {
            while let Some(gone) = gone.next_if(|gone| gone.after as usize <= at) {
                let (block, client, us) = (gone.block.into(), gone.client, gone.time_ns / 1000);
                if self.deliveries.evict(block, client, us, u64::MAX) == Standing::Last {
                    known(self.references, gone.block);
                }
            }
            let Some((r, origin)) = refs.get(at).zip(stream.origins().get(at)) else { break };
            let (block, client, us) = (r.block().into(), origin.client, origin.time_ns / 1000);
            if r.is_write() {
                self.deliveries.write(block, client, true, us);
            } else {
                self.deliveries.read(block, client, true, us, u64::MAX);
            }
            self.references += 1;
        }
    }
}

/// Runs the table on a stream.
pub(crate) struct Watch {
    table: Cct,
    references: u64,
    /// A request that the end of a chunk divided: its start, and its blocks so far.
    begun: Option<(u64, bool)>,
    blocks: Vec<u64>,
    evicted: Vec<u64>,
}

impl Watch {
    fn new(block_bytes: u32) -> Self {
        Self {
            table: Cct::new(block_bytes, Frames::Read, MAX_FRAMES, 0),
            references: 0,
            begun: None,
            blocks: Vec::new(),
            evicted: Vec::new(),
        }
    }

    fn chunk(&mut self, stream: &BlockStream, refs: &[Ref], known: &mut dyn FnMut(u64, u32)) {
        let mut ends = stream.record_ends().iter().copied().peekable();
        for (i, (r, origin)) in refs.iter().zip(stream.origins()).enumerate() {
            self.references += 1;
            if self.begun.is_none() {
                self.begun = origin.buffer.map(|buffer| (buffer, r.is_write()));
            }
            self.blocks.push(r.block().into());
            while ends.next_if(|&end| end as usize <= i + 1).is_some() {
                self.end_request(known);
            }
        }
    }

    fn end_request(&mut self, known: &mut dyn FnMut(u64, u32)) {
        self.evicted.clear();
        let blocks = self.blocks.drain(..);
        match self.begun.take() {
            Some((buffer, false)) => self.table.read(0, buffer, blocks, &mut self.evicted),
            Some((buffer, true)) => self.table.write(0, buffer, blocks, &mut self.evicted),
            None => drop(blocks),
        }
        for &block in &self.evicted {
            // The table was given block numbers of the trace, which have 32 bits.
            known(self.references, block as u32);
        }
    }
}
