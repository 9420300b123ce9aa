//! What AUTO knows of a block, in 8 bytes, and the class in which that puts it.

/// Classes of the learned table: half octaves of references, each twice.
pub(super) const CLASSES: usize = 2 * WEIGHTS;
const WEIGHTS: usize = 24;

/// How blocks are classed, and what is assumed or learned of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// By the distance between the last two references; values are assumed.
    Fixed,
    /// By the number of references and the kind of the last one; values are learned.
    Learned,
}

impl Table {
    /// Number of classes in use.
    pub(super) fn classes(self) -> usize {
        match self {
            Self::Fixed => DISTANCES.len() + 2,
            Self::Learned => CLASSES,
        }
    }
}

/// Where distances are divided, in ticks: a quarter of the capacity, a half, and so on.
const DISTANCES: [u32; 5] = [4, 8, 16, 32, 64];

/// What is known of a block. The default is an unknown block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// Tick of the last reference.
    pub(super) last: u32,
    /// References; 0 if the block is unknown. It stops at the largest number.
    pub(super) count: u16,
    /// The age bucket of a block in an order.
    pub(super) bucket: u8,
    /// The distance class, and `WRITTEN`, `SAMPLED` and `RESIDENT`.
    pub(super) bits: u8,
}

const DISTANCE: u8 = 0b111;
const WRITTEN: u8 = 1 << 3;
const SAMPLED: u8 = 1 << 4;
const RESIDENT: u8 = 1 << 5;

impl Block {
    /// The largest `bits`.
    pub(super) const BITS_MAX: u8 = DISTANCE | WRITTEN | SAMPLED | RESIDENT;

    /// Whether this can be what is known of a block: its distance class is one.
    pub(super) fn is_sound(self) -> bool {
        self.class(Table::Fixed) < Table::Fixed.classes()
    }

    #[inline(always)]
    pub(super) fn is_known(self) -> bool {
        self.count > 0
    }

    #[inline(always)]
    pub(super) fn is_resident(self) -> bool {
        self.bits & RESIDENT > 0
    }

    pub(super) fn set_resident(&mut self, is_resident: bool) {
        self.bits = self.bits & !RESIDENT | if is_resident { RESIDENT } else { 0 };
    }

    /// Whether the block is in the miniatures' sample.
    #[inline(always)]
    pub(super) fn is_sampled(self) -> bool {
        self.bits & SAMPLED > 0
    }

    pub(super) fn set_sampled(&mut self, is_sampled: bool) {
        self.bits = self.bits & !SAMPLED | if is_sampled { SAMPLED } else { 0 };
    }

    /// The block after a reference at this time.
    #[inline(always)]
    pub(super) fn referenced(self, tick: u32, is_write: bool) -> Self {
        let distance = tick - self.last;
        let distance = match self.count {
            0 => 0,
            _ => 1 + DISTANCES.iter().filter(|&&end| distance >= end).count() as u8,
        };
        let written = if is_write { WRITTEN } else { 0 };
        Self {
            last: tick,
            count: self.count.saturating_add(1),
            bucket: 0,
            bits: self.bits & (SAMPLED | RESIDENT) | written | distance,
        }
    }

    /// The class in a table.
    #[inline(always)]
    pub(super) fn class(self, table: Table) -> usize {
        match table {
            Table::Fixed => usize::from(self.bits & DISTANCE),
            Table::Learned => 2 * weight(self.count) + usize::from(self.bits & WRITTEN > 0),
        }
    }
}

/// Half octaves: 0 for one reference, and then one more from 2, 3, 4, 6, 8, 12 and so on.
#[inline(always)]
fn weight(count: u16) -> usize {
    if count < 2 {
        return 0;
    }
    let octave = count.ilog2();
    let is_upper_half = count >> (octave - 1) & 1;
    (2 * octave as usize - 1 + usize::from(is_upper_half)).min(WEIGHTS - 1)
}
