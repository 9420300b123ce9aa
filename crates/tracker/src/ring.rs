//! The queue from tracked calls to the sender, and a second one to a recorder (`calls.rs`):
//! records of three words in a ring in shared memory, with many writers and one reader. If the ring
//! is full, records are dropped.
//!
//! Each cell has a lap counter: even while the cell is free for that lap, odd when its record is
//! complete. A writer claims a cell by advancing the tail, and then fills it. A writer killed in
//! between leaves a cell that is never filled; the reader skips it after a while ([`Ring::skip`]).
//! If that writer was only slow, it finds that the lap has changed, and publishes nothing. Only if
//! a third writer interferes may a record be mixed from two: a wrong hint, which costs a hit.

use crate::ahead;
use crate::segment::Segment;
use crate::segment::layout::{CALLS_HEAD, CALLS_TAIL, CELL, RING_HEAD, RING_TAIL};
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Cells in two cache lines, which processors fetch together.
const LINE: u64 = 4;

/// Attempts of a writer before it drops its record.
const TRIES: usize = 16;

/// The ring of a segment.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    cells: &'a [AtomicU64],
    tail: &'a AtomicU64,
    head: &'a AtomicU64,
    bits: u32,
}

/// What the reader gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A record.
    Record([u64; 3]),
    /// The ring is empty.
    Nothing,
    /// The oldest record, which its writer has not completed.
    Unfinished,
}

impl<'a> Ring<'a> {
    /// The ring of a segment.
    pub fn new(segment: &'a Segment) -> Ring<'a> {
        Ring {
            cells: segment.map().words(segment.layout().ring()),
            tail: segment.word(RING_TAIL),
            head: segment.word(RING_HEAD),
            bits: segment.layout().ring_bits,
        }
    }

    /// The ring of calls for a recorder, which must be allocated.
    pub(crate) fn of_calls(segment: &'a Segment) -> Ring<'a> {
        Ring {
            cells: segment.map().words(segment.layout().calls()),
            tail: segment.word(CALLS_TAIL),
            head: segment.word(CALLS_HEAD),
            bits: segment.layout().ring_bits,
        }
    }

    /// Number of cells.
    pub fn capacity(&self) -> u64 {
        1 << self.bits
    }

    fn cell(&self, at: u64) -> &'a [AtomicU64] {
        let start = (at & (self.capacity() - 1)) as usize * CELL;
        &self.cells[start..start + CELL]
    }

    /// Appends a record; returns false if it was dropped.
    #[inline]
    pub fn push(&self, record: [u64; 3]) -> bool {
        let mut tail = self.tail.load(Relaxed);
        for _ in 0..TRIES {
            let cell = self.cell(tail);
            let free = (tail >> self.bits) * 2;
            let lap = cell[0].load(Acquire);
            if lap < free {
                return false;
            }
            if lap > free {
                tail = self.tail.load(Relaxed);
                continue;
            }
            match self.tail.compare_exchange_weak(tail, tail + 1, AcqRel, Relaxed) {
                Ok(_) => {
                    for (word, value) in cell[1..].iter().zip(record) {
                        word.store(value, Relaxed);
                    }
                    // Prefetches the next line, which the reader wrote last, for the next record.
                    ahead::write(&self.cell(tail + LINE)[0]);
                    return cell[0].compare_exchange(free, free + 1, Release, Relaxed).is_ok();
                }
                Err(now) => tail = now,
            }
        }
        false
    }

    /// Takes the oldest record. Only one reader may run at a time.
    pub fn pop(&self) -> Next {
        let head = self.head.load(Relaxed);
        let cell = self.cell(head);
        let free = (head >> self.bits) * 2;
        if cell[0].load(Acquire) != free + 1 {
            let claimed = self.tail.load(Acquire) > head;
            return if claimed { Next::Unfinished } else { Next::Nothing };
        }
        let record = std::array::from_fn(|word| cell[1 + word].load(Relaxed));
        cell[0].store(free + 2, Release);
        self.head.store(head + 1, Release);
        Next::Record(record)
    }

    /// Skips the oldest cell, if it is incomplete.
    pub fn skip(&self) {
        let head = self.head.load(Relaxed);
        let free = (head >> self.bits) * 2;
        let cell = self.cell(head);
        if cell[0].compare_exchange(free, free + 2, AcqRel, Relaxed).is_ok() {
            self.head.store(head + 1, Release);
        }
    }

    /// Number of waiting records.
    pub fn len(&self) -> u64 {
        self.tail.load(Relaxed).saturating_sub(self.head.load(Relaxed))
    }

    /// Whether no record waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
