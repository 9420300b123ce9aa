//! OPT stack depths (Mattson et al. 1970), without walking the stack.
//!
//! On a reference the block moves to the top, and the former top sinks. At each place the sinking
//! block is compared with the block there, and the one with the farther next use sinks on, down to
//! the place that the referenced block left. This sorts: most of the stack is ascending by next
//! use, and in such a part every block moves down by one place. So the stack is divided into rings
//! of 512 places. An ascending ring moves by a rotation; a ring whose farthest block is nearer than
//! the sinking one does not change; only other rings are scanned.

use undercroft_policy::{Future, Reference, SpecError};

use super::Curve;

/// The curve of OPT (demand caching, no bypass) over a whole trace.
///
/// # Errors
/// The trace has more references than [`Future`] can hold.
pub fn opt_curve(refs: &[Reference]) -> Result<Curve, SpecError> {
    let future = Future::new(refs.iter().map(|r| r.entry()).collect())?;
    let entries = refs.iter().map(|r| r.entry() as usize + 1).max().unwrap_or(0);
    let mut stack = Stack::new(entries);
    let mut curve = Curve::default();
    for (now, reference) in refs.iter().enumerate() {
        // Larger is farther. Of blocks never used again, the least recently used one is farthest.
        let key = future.next_use(now).map_or(u32::MAX - now as u32, |next| next as u32);
        let depth = stack.reference(reference.entry(), key);
        curve.count(depth, reference.is_write());
    }
    Ok(curve)
}

const NOWHERE: u32 = u32::MAX;

/// Places in a chunk.
const CHUNK: usize = 512;

/// A block and its key in one number that is ordered by key; no two blocks have equal numbers.
fn item(block: u32, key: u32) -> u64 {
    u64::from(key) << 32 | u64::from(block)
}

fn block_of(item: u64) -> u32 {
    item as u32
}

/// `CHUNK` consecutive places of the stack as a ring, so that one rotation moves all by one place.
/// Places below the bottom of the stack hold `u64::MAX`, which is no block.
struct Chunk {
    ring: Box<[u64; CHUNK]>,
    /// The slot of the first place in the ring.
    start: usize,
    /// Largest item.
    max: u64,
    /// Whether the items ascend.
    ascending: bool,
}

impl Chunk {
    fn new() -> Self {
        Self { ring: Box::new([u64::MAX; CHUNK]), start: 0, max: u64::MAX, ascending: false }
    }

    fn slot(&self, place: usize) -> usize {
        (self.start + place) % CHUNK
    }

    fn find(&self, block: u32) -> Option<usize> {
        let slot = self.ring.iter().position(|&item| block_of(item) == block)?;
        Some((slot + CHUNK - self.start) % CHUNK)
    }

    /// Lets `sinking` sink through the first `to` places. A farther block in a place, or any block
    /// at the top of the stack, sinks on instead of it. Returns the block that leaves at the
    /// bottom.
    fn sink(&mut self, mut sinking: u64, to: usize, is_top: bool) -> u64 {
        for place in 0..to {
            let slot = self.slot(place);
            if self.ring[slot] > sinking || (is_top && place == 0) {
                std::mem::swap(&mut self.ring[slot], &mut sinking);
            }
        }
        sinking
    }

    /// Lets `sinking` sink through all places of a full chunk. Returns the block that leaves at the
    /// bottom.
    fn sink_through(&mut self, sinking: u64, is_top: bool) -> u64 {
        if is_top {
            // The top chunk changes with every reference, so its state is not tracked.
            return self.sink(sinking, CHUNK, true);
        }
        if sinking > self.max {
            return sinking;
        }
        if self.ascending && sinking < self.ring[self.start] {
            // Every block is farther than the one before it: all move down by one place.
            self.start = (self.start + CHUNK - 1) % CHUNK;
            let last = std::mem::replace(&mut self.ring[self.start], sinking);
            self.max = self.ring[self.slot(CHUNK - 1)];
            return last;
        }
        let last = self.sink(sinking, CHUNK, false);
        self.inspect();
        last
    }

    /// Lets `sinking` sink down to place `end`, which the block then sinking takes. Returns that
    /// block.
    fn settle(&mut self, sinking: u64, end: usize, is_top: bool) -> u64 {
        let resting = self.sink(sinking, end, is_top);
        let slot = self.slot(end);
        self.ring[slot] = resting;
        if !is_top {
            self.inspect();
        }
        resting
    }

    /// Updates `max` and `ascending` of a full chunk after a change.
    fn inspect(&mut self) {
        let (older, newer) = self.ring.split_at(self.start);
        let items = || newer.iter().chain(older);
        self.ascending = items().zip(items().skip(1)).all(|(a, b)| a < b);
        self.max = items().copied().max().unwrap_or(0);
    }
}

/// The stack, top first, in chunks; all but the last are full.
struct Stack {
    chunks: Vec<Chunk>,
    len: usize,
    /// Chunk of each block.
    chunk_of: Vec<u32>,
}

impl Stack {
    fn new(entries: usize) -> Self {
        Self { chunks: Vec::new(), len: 0, chunk_of: vec![NOWHERE; entries] }
    }

    /// Moves a block to the top with a new key. Returns its former depth, 1 for the top.
    fn reference(&mut self, block: u32, key: u32) -> Option<u32> {
        let former = self.place(block);
        let end = former.unwrap_or(self.len);
        if end == self.len {
            self.len += 1;
            if end % CHUNK == 0 {
                self.chunks.push(Chunk::new());
            }
        }
        let last = end / CHUNK;
        let mut sinking = item(block, key);
        for at in 0..last {
            let entering = block_of(sinking);
            sinking = self.chunks[at].sink_through(sinking, at == 0);
            if block_of(sinking) != entering {
                self.chunk_of[entering as usize] = at as u32;
            }
        }
        let resting = self.chunks[last].settle(sinking, end % CHUNK, last == 0);
        self.chunk_of[block_of(sinking) as usize] = last as u32;
        self.chunk_of[block_of(resting) as usize] = last as u32;
        former.map(|place| place as u32 + 1)
    }

    fn place(&self, block: u32) -> Option<usize> {
        let at = self.chunk_of[block as usize];
        if at == NOWHERE {
            return None;
        }
        let within = self.chunks[at as usize].find(block).expect("a block is where it is noted");
        Some(at as usize * CHUNK + within)
    }
}
