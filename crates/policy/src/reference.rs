//! A reference to a block, as policies and levels are told of it.

/// Handle of something a policy may hold: below the number given to [`Policy::grow`].
pub type Entry = u32;

/// A reference to one block: entry and direction in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference(u32);

impl Reference {
    const WRITE: u32 = 1 << 31;

    /// A read of `entry`, which must be below 2^31.
    #[inline(always)]
    pub fn read(entry: Entry) -> Self {
        debug_assert!(entry < Self::WRITE);
        Self(entry)
    }

    /// A write of `entry`, which must be below 2^31.
    #[inline(always)]
    pub fn write(entry: Entry) -> Self {
        debug_assert!(entry < Self::WRITE);
        Self(entry | Self::WRITE)
    }

    /// A reference to `entry`, which must be below 2^31.
    #[inline(always)]
    pub fn new(entry: Entry, is_write: bool) -> Self {
        debug_assert!(entry < Self::WRITE);
        Self(entry | u32::from(is_write) << 31)
    }

    /// The entry.
    #[inline(always)]
    pub fn entry(self) -> Entry {
        self.0 & !Self::WRITE
    }

    /// Whether it is a write.
    #[inline(always)]
    pub fn is_write(self) -> bool {
        self.0 & Self::WRITE != 0
    }
}

/// What a write does to a level (TPDS 2004, section 8.1: `Allocate`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// A write is a reference like a read: it promotes, and it allocates.
    #[default]
    Allocate,
    /// A write updates a resident copy; it neither promotes nor allocates.
    NoAllocate,
    /// A write drops a resident copy, and what the policy remembers about the block.
    Invalidate,
}

impl WriteMode {
    /// Whether a read or a write that misses brings its block into the level.
    pub fn admits(self, is_write: bool) -> bool {
        !is_write || self == Self::Allocate
    }
}
