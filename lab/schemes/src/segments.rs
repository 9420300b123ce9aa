//! A queue in ten segments that learns where read blocks and where demoted blocks should enter: the
//! adaptive array of Wong & Wilkes (USENIX 2002, section 4), with the details of the authors'
//! simulator.
//!
//! Two ghost caches as large as the array hold blocks without data. One simulates an array that
//! keeps only read blocks, the other an array that keeps only demoted blocks. Each counts the reads
//! that it would have served. A new block enters the segment given by the share of its kind in
//! these counts; a hit moves a block to the protected end.
//!
//! Invariants: no segment holds more than its size; a block is in one segment at most.

use crate::list_queues::ListQueues;
use undercroft_policy::Entry;
use undercroft_policy::containers::lists::Lists;

const SEGMENTS: usize = 10;

/// How a block came to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Demotion,
}

/// How the segments and the entry points are chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Each segment is twice the size of the one before; otherwise all have one size.
    pub(super) exponential: bool,
    /// The better kind enters at the protected end; otherwise both enter by their share.
    pub(super) normalised: bool,
}

/// The queue. Segment 0 is evicted first; the front of a segment leaves it first.
pub(super) struct Segments {
    queues: ListQueues,
    sizes: [u32; SEGMENTS],
    shape: Shape,
    ghosts: [Ghosts; 2],
}

/// A ghost cache: blocks without data.
struct Ghosts {
    capacity: u32,
    recency: Lists,
    /// Reads that it would have served, plus one.
    hits: u64,
}

impl Ghosts {
    fn new(capacity: u32) -> Self {
        Self { capacity, recency: Lists::new(1), hits: 1 }
    }

    fn read(&mut self, entry: Entry) {
        if self.recency.linked(entry) {
            self.recency.move_to_back(0, entry);
            self.hits += 1;
        }
    }

    fn put(&mut self, entry: Entry) {
        if self.recency.linked(entry) {
            self.recency.move_to_back(0, entry);
            return;
        }
        if self.recency.len(0) == self.capacity {
            self.recency.pop_front(0);
        }
        self.recency.push_back(0, entry);
    }
}

impl Segments {
    pub(super) fn new(capacity: u32, shape: Shape) -> Self {
        let parts = (1_u64 << SEGMENTS) - 1;
        // Blocks of the first `n` segments; the last segment gets the rounding remainder.
        let until = |n: usize| {
            let share = if shape.exponential {
                u64::from(capacity) * ((1 << n) - 1) / parts
            } else {
                u64::from(capacity) * n as u64 / SEGMENTS as u64
            };
            share as u32
        };
        let sizes = std::array::from_fn(|i| until(i + 1) - until(i));
        let queues = ListQueues::new(SEGMENTS as u32);
        Self { queues, sizes, shape, ghosts: [Ghosts::new(capacity), Ghosts::new(capacity)] }
    }

    pub(super) fn grow(&mut self, entries: u32) {
        self.queues.grow(entries);
        self.ghosts.iter_mut().for_each(|ghosts| ghosts.recency.grow(entries));
    }

    pub(super) fn contains(&self, entry: Entry) -> bool {
        self.queues.list_of(entry).is_some()
    }

    pub(super) fn len(&self) -> u32 {
        (0..SEGMENTS as u32).map(|segment| self.queues.len(segment)).sum()
    }

    /// The segment in which a new block of a kind enters.
    fn entrance(&self, kind: Kind) -> usize {
        let [read, demoted] = [self.ghosts[0].hits, self.ghosts[1].hits];
        let own = if kind == Kind::Read { read } else { demoted };
        let whole = if self.shape.normalised { read.max(demoted) } else { read + demoted };
        // Very small arrays have empty segments: use the first one that can hold a block.
        let first = self.sizes.iter().position(|&size| size > 0).unwrap_or(0);
        let segment = SEGMENTS as u64 * own / whole;
        (segment as usize).clamp(first, SEGMENTS - 1)
    }

    /// A block comes by a read or a demotion. Returns the block that is evicted for it.
    pub(super) fn bring(&mut self, entry: Entry, kind: Kind) -> Option<Entry> {
        if kind == Kind::Read {
            self.ghosts.iter_mut().for_each(|ghosts| ghosts.read(entry));
        }
        let segment = if self.contains(entry) {
            self.queues.remove(entry);
            SEGMENTS - 1
        } else {
            self.entrance(kind)
        };
        let ejected = self.put(entry, segment);
        self.ghosts[usize::from(kind == Kind::Demotion)].put(entry);
        ejected
    }

    /// Puts a block at the newest end of a segment. If the segment is over its size, its front
    /// moves to the next lower segment, and so on.
    fn put(&mut self, entry: Entry, segment: usize) -> Option<Entry> {
        let mut falling = Some(entry);
        for i in (0..=segment).rev() {
            let Some(entry) = falling.take() else { break };
            self.queues.push(i as u32, entry);
            if self.queues.len(i as u32) > self.sizes[i] {
                falling = self.queues.pop(i as u32);
            }
        }
        falling
    }

    /// All blocks, the next to be evicted first.
    pub(super) fn order(&self) -> Vec<Entry> {
        (0..SEGMENTS as u32).flat_map(|segment| self.queues.iter(segment)).collect()
    }

    pub(super) fn ghost_hits(&self) -> [u64; 2] {
        [self.ghosts[0].hits, self.ghosts[1].hits]
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        for (i, &size) in self.sizes.iter().enumerate() {
            if self.queues.len(i as u32) > size {
                return Err(format!("segment {i} holds more than {size}"));
            }
        }
        self.ghosts.iter().try_for_each(|ghosts| ghosts.recency.check())?;
        self.queues.check()
    }
}
