//! Maps the blocks of a trace to a volume: block n lies at n times the block size. The files of a
//! trace lie one after another, in the order of their first occurrence.

use undercroft_trace::DenseTrace;

/// Offsets of the blocks of a trace.
pub(super) struct Layout {
    /// The first block of each space on the volume.
    bases: Vec<u64>,
    /// Number of blocks that the volume must have.
    blocks: u64,
}

impl Layout {
    /// Returns `None` if the length in bytes does not fit 64 bits.
    pub(super) fn new(trace: &DenseTrace, block_bytes: u32) -> Option<Self> {
        let mut lengths = Vec::<u64>::new();
        for number in 0..trace.unique() {
            let (space, block) = trace.names().block(number)?;
            let space = space as usize;
            if lengths.len() <= space {
                lengths.resize(space + 1, 0);
            }
            lengths[space] = lengths[space].max(block.checked_add(1)?);
        }
        let mut blocks = 0_u64;
        let mut bases = Vec::with_capacity(lengths.len());
        for length in lengths {
            bases.push(blocks);
            blocks = blocks.checked_add(length)?;
        }
        blocks.checked_mul(u64::from(block_bytes))?;
        Some(Self { bases, blocks })
    }

    /// Number of blocks that the volume must have.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The block on the volume of a dense number.
    pub(super) fn place(&self, trace: &DenseTrace, number: u32) -> u64 {
        let (space, block) = trace.names().block(number).unwrap_or_default();
        self.bases[space as usize] + block
    }
}
