//! Divides a cache among several clients by marginal benefit. TPDS 2004 names the method; the rule
//! is ours. Each client has a list of block numbers in order of use, twice as long as its part. The
//! list shows which reads a slightly larger part would have served, and which a slightly smaller
//! one would lose. From time to time a slice moves from the client that would lose least to the one
//! that would gain most.
//!
//! Invariants (checked by [`Marginal::validate`]):
//! 1. the parts add up to the capacity, and none is smaller than a slice;
//! 2. a list is no longer than twice its part, and a band holds blocks only if all earlier bands
//!    are full.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use undercroft_level::placement::PlacementError;
use undercroft_policy::containers::lists::Lists;

/// Number of slices of the cache; one moves at a time.
const SLICES: u32 = 64;

/// The gain must be larger than the loss by this factor.
const LEAD: f64 = 1.1;

/// Bands of a list, newest block first: the part without its last slice, its last slice, the slice
/// below the part, the rest.
const BANDS: u32 = 4;
const LAST_SLICE: u32 = 1;
const NEXT_SLICE: u32 = 2;

/// A move of blocks from one part to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// The part that becomes smaller.
    pub from: usize,
    /// The part that becomes larger.
    pub to: usize,
    /// Number of blocks.
    pub blocks: u32,
}

/// The parts of a cache, with the gain and loss of each.
pub struct Marginal {
    parts: Vec<Part>,
    capacity: u32,
    slice: u32,
    /// References since the last decision.
    references: u32,
    moved: u64,
}

struct Part {
    size: u32,
    names: Names,
    gain: u64,
    loss: u64,
}

impl Marginal {
    /// A cache of `capacity` blocks in equal parts; the first parts get the remainder.
    ///
    /// # Errors
    /// There are fewer blocks than parts, or more parts than slices.
    pub fn new(parts: usize, capacity: u32, seed: u64) -> Result<Self, PlacementError> {
        let sizes = equal_parts(parts, capacity)?;
        if parts > SLICES as usize {
            let why = format!("{parts} parts of a cache: at most {SLICES}");
            return Err(PlacementError::new(why));
        }
        let slice = (capacity / SLICES).max(1);
        let part = |size| Part { size, names: Names::new(size, slice, seed), gain: 0, loss: 0 };
        let parts = sizes.into_iter().map(part).collect();
        Ok(Self { parts, capacity, slice, references: 0, moved: 0 })
    }

    /// Counts a read of a part's client. `stays`: a block that is in the part stays and becomes the
    /// newest; otherwise it moves up.
    pub fn read(&mut self, part: usize, block: u64, stays: bool) {
        let part = &mut self.parts[part];
        match part.names.remove(block) {
            Some(LAST_SLICE) => part.loss += 1,
            Some(NEXT_SLICE) => part.gain += 1,
            Some(_) => (),
            None => return,
        }
        if stays {
            part.names.push(block);
        }
    }

    /// Notes that a block was placed or used in a part.
    pub fn placed(&mut self, part: usize, block: u64) {
        self.parts[part].names.push(block);
    }

    /// Removes a block.
    pub fn discard(&mut self, part: usize, block: u64) {
        self.parts[part].names.remove(block);
    }

    /// Call it after each reference. Once per as many references as the cache has blocks it may
    /// return blocks to move; the parts here then have their new sizes already.
    pub fn tick(&mut self) -> Option<Shift> {
        self.references += 1;
        if self.references < self.capacity {
            return None;
        }
        self.references = 0;
        let shift = self.choose();
        for part in &mut self.parts {
            (part.gain, part.loss) = (0, 0);
        }
        let Shift { from, to, blocks } = shift?;
        self.moved += u64::from(blocks);
        for (at, size) in
            [(from, self.parts[from].size - blocks), (to, self.parts[to].size + blocks)]
        {
            let part = &mut self.parts[at];
            part.size = size;
            part.names.resize(size, self.slice);
        }
        shift
    }

    fn choose(&self) -> Option<Shift> {
        // Of equals, the first wins.
        let to = (0..self.parts.len()).rev().max_by_key(|&i| self.parts[i].gain)?;
        let can_give = |&i: &usize| i != to && self.parts[i].size >= 2 * self.slice;
        let from = (0..self.parts.len()).filter(can_give).min_by_key(|&i| self.parts[i].loss)?;
        let (gain, loss) = (self.parts[to].gain as f64, self.parts[from].loss as f64);
        (gain > LEAD * loss).then_some(Shift { from, to, blocks: self.slice })
    }

    /// The size of each part in blocks.
    pub fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        self.parts.iter().map(|part| part.size)
    }

    /// Blocks of a slice, which is the smallest size of a part.
    pub fn slice(&self) -> u32 {
        self.slice
    }

    /// Blocks moved between parts so far.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Checks the invariants in the head of this file.
    ///
    /// # Errors
    /// Says which one does not hold.
    pub fn validate(&self) -> Result<(), String> {
        let sizes: Vec<u32> = self.sizes().collect();
        if sizes.iter().sum::<u32>() != self.capacity || sizes.iter().any(|&s| s < self.slice) {
            return Err(format!("{sizes:?} of {}, {} a slice", self.capacity, self.slice));
        }
        self.parts.iter().try_for_each(|part| part.names.check())
    }
}

/// `capacity` blocks in equal parts; the first parts get the remainder.
///
/// # Errors
/// There are fewer blocks than parts.
pub(super) fn equal_parts(parts: usize, capacity: u32) -> Result<Vec<u32>, PlacementError> {
    let count = u32::try_from(parts).unwrap_or(u32::MAX);
    if count == 0 || capacity < count {
        let why = format!("a cache of {capacity} blocks in {parts} parts: at least one block each");
        return Err(PlacementError::new(why));
    }
    Ok((0..count).map(|i| capacity / count + u32::from(i < capacity % count)).collect())
}

/// Block numbers in order of use, in bands: the band of a block says how deep in the list it is.
struct Names {
    slots: HashMap<u64, u32, FixedState>,
    blocks: Vec<u64>,
    free: Vec<u32>,
    /// One list for each band, newest block first; the payload is the band.
    bands: Lists<u32>,
    room: [u32; BANDS as usize],
}

impl Names {
    fn new(size: u32, slice: u32, seed: u64) -> Self {
        Self {
            slots: HashMap::with_hasher(FixedState::with_seed(seed)),
            blocks: Vec::new(),
            free: Vec::new(),
            bands: Lists::new(BANDS),
            room: room(size, slice),
        }
    }

    fn resize(&mut self, size: u32, slice: u32) {
        self.room = room(size, slice);
        self.settle();
    }

    /// Removes a block. Returns its band.
    fn remove(&mut self, block: u64) -> Option<u32> {
        let slot = self.slots.remove(&block)?;
        let band = self.bands.data(slot);
        self.bands.remove(band, slot);
        self.free.push(slot);
        self.settle();
        Some(band)
    }

    /// Makes a block the newest; inserts it if necessary.
    fn push(&mut self, block: u64) {
        self.remove(block);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.blocks[slot as usize] = block;
                slot
            }
            None => {
                self.blocks.push(block);
                self.bands.grow(self.blocks.len() as u32);
                self.blocks.len() as u32 - 1
            }
        };
        self.slots.insert(block, slot);
        *self.bands.data_mut(slot) = 0;
        self.bands.push_front(0, slot);
        self.settle();
    }

    /// Moves blocks between bands until each band is full before the next one has any. Drops the
    /// blocks that do not fit in the last band.
    fn settle(&mut self) {
        for band in 0..BANDS {
            while self.bands.len(band) > self.room[band as usize] {
                let slot = self.bands.back(band).expect("more than there is room for");
                self.bands.remove(band, slot);
                if band + 1 < BANDS {
                    *self.bands.data_mut(slot) = band + 1;
                    self.bands.push_front(band + 1, slot);
                } else {
                    self.slots.remove(&self.blocks[slot as usize]);
                    self.free.push(slot);
                }
            }
        }
        for band in 0..BANDS - 1 {
            while self.bands.len(band) < self.room[band as usize] {
                let Some(from) = (band + 1..BANDS).find(|&b| self.bands.len(b) > 0) else { return };
                let slot = self.bands.front(from).expect("it has some");
                self.bands.remove(from, slot);
                *self.bands.data_mut(slot) = band;
                self.bands.push_back(band, slot);
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        self.bands.check()?;
        let lens: Vec<u32> = (0..BANDS).map(|band| self.bands.len(band)).collect();
        let total = lens.iter().sum::<u32>() as usize;
        let over = lens.iter().zip(&self.room).any(|(len, room)| len > room);
        let gap = (1..lens.len()).any(|i| lens[i] > 0 && lens[i - 1] < self.room[i - 1]);
        if over || gap || total != self.slots.len() || total + self.free.len() != self.blocks.len()
        {
            return Err(format!("bands {lens:?} of {:?}, {total} names", self.room));
        }
        Ok(())
    }
}

fn room(size: u32, slice: u32) -> [u32; BANDS as usize] {
    let slice = slice.min(size);
    [size - slice, slice, slice, size - slice]
}
