//! What a directory of the blocks on flash must do, and why blocks come to be there.

/// Number of a place on flash that holds one block.
pub type Slot = u32;

impl<D: Directory + ?Sized> Directory for Box<D> {
    fn capacity(&self) -> u32 {
        (**self).capacity()
    }

    fn limit(&self) -> u64 {
        (**self).limit()
    }

    fn find(&self, block: u64) -> Option<Slot> {
        (**self).find(block)
    }

    fn touch(&mut self, slot: Slot) -> Evidence {
        (**self).touch(slot)
    }

    fn keep(&mut self, slot: Slot) {
        (**self).keep(slot);
    }

    fn place(&mut self, block: u64, evidence: Evidence) -> Option<(Slot, Option<u64>)> {
        (**self).place(block, evidence)
    }

    fn empty(&mut self, slot: Slot) {
        (**self).empty(slot);
    }

    fn block_in(&self, slot: Slot) -> Option<u64> {
        (**self).block_in(slot)
    }

    fn has_room(&self) -> bool {
        (**self).has_room()
    }
}

/// What is on flash, and which block goes next.
pub trait Directory {
    /// Number of slots.
    fn capacity(&self) -> u32;

    /// Only blocks with numbers below this can lie here.
    fn limit(&self) -> u64;

    /// The slot of a block that is on flash.
    fn find(&self, block: u64) -> Option<Slot>;

    /// The block in this slot was read from flash: memory has it too. Returns why
    /// it had been written there.
    fn touch(&mut self, slot: Slot) -> Evidence;

    /// Memory let the block in this slot go.
    fn keep(&mut self, slot: Slot);

    /// Puts a block that is not there into a slot. Returns the slot and the block that had to go;
    /// `None` if a block of this number cannot lie on flash.
    fn place(&mut self, block: u64, evidence: Evidence) -> Option<(Slot, Option<u64>)>;

    /// Empties a slot.
    fn empty(&mut self, slot: Slot);

    /// The block in a slot.
    fn block_in(&self, slot: Slot) -> Option<u64>;

    /// Whether many slots may be emptied now: the ends of copies may have to be written down.
    fn has_room(&self) -> bool {
        true
    }
}

/// Why a block in memory should go to flash when it leaves memory. Keep one for each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Evidence {
    /// No reason yet: it was read or written once.
    #[default]
    None = 0,
    /// It was hit in memory.
    Hit = 1,
    /// It had left memory, and came back while its ghost was remembered.
    Returned = 2,
    /// It was read from flash.
    WasThere = 3,
    /// It had left memory and come back, but as part of a sequential stream, which is no reason.
    Streamed = 4,
    /// It was on flash until it was written.
    Changed = 5,
}

impl Evidence {
    /// Number of kinds.
    pub(crate) const KINDS: usize = 6;

    /// After a hit in memory.
    #[must_use]
    pub fn hit(self) -> Self {
        if matches!(self, Self::None | Self::Streamed) { Self::Hit } else { self }
    }

    pub(crate) fn of(bits: u8) -> Self {
        match bits {
            1 => Self::Hit,
            2 => Self::Returned,
            3 => Self::WasThere,
            5 => Self::Changed,
            _ => Self::None,
        }
    }
}
