//! The keys of the table: blocks, and frames of memory.

/// Bits of an address; the bits above are the number of its space.
pub(super) const ADDRESS_BITS: u32 = 48;
pub(super) const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;

/// A granule of a file: the file's id in the upper 24 bits, then a bit that is set if it was
/// written since it was read, then its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u64);

impl Key {
    const DIRTY: u64 = 1 << 39;
    const NUMBERS: u64 = 1 << 39;

    /// The key of a granule, from a file's id (1 to 2^24 - 1) and the granule's number; `None` if
    /// either is out of range.
    pub fn new(file: u32, granule: u64) -> Option<Key> {
        let fits = (1..1 << 24).contains(&file) && granule < Self::NUMBERS;
        fits.then_some(Key(u64::from(file) << 40 | granule))
    }

    /// The file's id.
    pub fn file(self) -> u32 {
        (self.0 >> 40) as u32
    }

    /// Number of the granule in its file.
    pub fn granule(self) -> u64 {
        self.0 & (Self::NUMBERS - 1)
    }

    /// Whether it was written since it was read.
    pub fn is_dirty(self) -> bool {
        self.0 & Self::DIRTY != 0
    }

    /// The key, marked as written since it was read.
    pub fn dirty(self) -> Key {
        Key(self.0 | Self::DIRTY)
    }

    /// The key without that mark.
    pub fn clean(self) -> Key {
        Key(self.0 & !Self::DIRTY)
    }

    /// Encodes the key.
    pub fn word(self) -> u64 {
        self.0
    }

    /// Decodes a key.
    pub fn from_word(word: u64) -> Key {
        Key(word)
    }

    /// Decodes the block of a frame; `None` if the word is 0.
    pub(super) fn known(word: u64) -> Option<Key> {
        (word != 0).then_some(Key(word))
    }
}

/// The address of a frame, with its address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub(super) u64);

impl Place {
    /// Returns `None` for addresses that do not fit: 0, and those from 2^48 on.
    pub fn new(space: u16, address: u64) -> Option<Place> {
        let fits = (1..1 << ADDRESS_BITS).contains(&address);
        fits.then_some(Place(u64::from(space) << ADDRESS_BITS | address))
    }

    /// Decodes a place.
    pub fn from_word(word: u64) -> Place {
        Place(word)
    }

    /// The address space.
    pub fn space(self) -> u16 {
        (self.0 >> ADDRESS_BITS) as u16
    }

    /// The address.
    pub fn address(self) -> u64 {
        self.0 & ADDRESS_MASK
    }

    /// Encodes both.
    pub fn word(self) -> u64 {
        self.0
    }
}
