//! The evictions of a recorded client. The client content table derives them from the buffer
//! addresses of a second-level trace, while the trace is read.

use undercroft_cache::{Cct, CctCounts, Frames};
use undercroft_trace::{BlockStream, DenseOptions, DenseTrace, Ref};

use crate::Error;

/// Most frames of the table: 64 GiB of blocks of 8 KiB.
const MAX_FRAMES: u32 = 1 << 23;

/// The evictions of the client above a trace, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DerivedEvictions {
    /// The number of references of the trace after which each eviction is known; never falls.
    after: Vec<u64>,
    blocks: Vec<u32>,
    counts: CctCounts,
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
        let trace = DenseTrace::load_watched(stream, &DenseOptions::default(), |stream, refs| {
            watch.chunk(stream, refs);
            progress(stream.seen().records);
        })?;
        watch.derived.counts = *watch.table.counts();
        Ok((trace, watch.derived))
    }

    /// Number of evictions that became known in time.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether no eviction became known.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The counts of the table.
    pub fn counts(&self) -> &CctCounts {
        &self.counts
    }

    /// The block of the `at`-th eviction, if that is known after `references` references.
    pub(super) fn known(&self, at: usize, references: u64) -> Option<u32> {
        self.after.get(at).filter(|&&after| after <= references).map(|_| self.blocks[at])
    }
}

/// Runs the table on a stream.
struct Watch {
    table: Cct,
    derived: DerivedEvictions,
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
            derived: DerivedEvictions::default(),
            references: 0,
            begun: None,
            blocks: Vec::new(),
            evicted: Vec::new(),
        }
    }

    fn chunk(&mut self, stream: &BlockStream, refs: &[Ref]) {
        let mut ends = stream.record_ends().iter().copied().peekable();
        for (i, (r, origin)) in refs.iter().zip(stream.origins()).enumerate() {
            self.references += 1;
            if self.begun.is_none() {
                self.begun = origin.buffer.map(|buffer| (buffer, r.is_write()));
            }
            self.blocks.push(r.block().into());
            while ends.next_if(|&end| end as usize <= i + 1).is_some() {
                self.end_request();
            }
        }
    }

    fn end_request(&mut self) {
        self.evicted.clear();
        let blocks = self.blocks.drain(..);
        match self.begun.take() {
            Some((buffer, false)) => self.table.read(0, buffer, blocks, &mut self.evicted),
            Some((buffer, true)) => self.table.write(0, buffer, blocks, &mut self.evicted),
            None => drop(blocks),
        }
        for &block in &self.evicted {
            self.derived.after.push(self.references);
            // The table was given block numbers of the trace, which have 32 bits.
            self.derived.blocks.push(block as u32);
        }
    }
}
