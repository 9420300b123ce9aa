//! The working set over time: the distinct blocks of each of a few windows of the trace.
//!
//! Windows are 2^k references long, all aligned, and k grows with the trace. A reference is the
//! first to its block in its window if the reference before it to the block is in another window,
//! which is so if their positions differ in bit k or above. So each window counts its references
//! by the highest bit in which the two differ, and two windows become one by adding these counts:
//! one pass is exact at every length.

use serde::Serialize;

use super::report::scaled;

/// Most windows.
const MOST: usize = 16;

/// log2 of the first length of a window.
const FIRST_LOG2: u32 = 10;

/// Bits of a position; a first reference counts as one that differs in the bit above.
const COLD: usize = 64;

/// The windows of a trace so far.
pub struct WorkingSet {
    log2: u32,
    windows: Vec<Counts>,
}

#[derive(Clone)]
struct Counts {
    start_ns: u64,
    reads: u64,
    /// References by the highest bit in which the position differs from that of the one before.
    differ: [u64; COLD + 1],
}

impl Counts {
    fn starting(start_ns: u64) -> Self {
        Self { start_ns, reads: 0, differ: [0; COLD + 1] }
    }
}

/// The working set of a window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// Time of its first reference, in seconds from the first of the trace; `None` without times.
    pub start_s: Option<f64>,
    /// References.
    pub requests: u64,
    /// Of those, reads.
    pub reads: u64,
    /// Distinct blocks.
    pub unique_blocks: u64,
    /// Of those, blocks that no window before it has.
    pub new_blocks: u64,
}

impl Window {
    /// What the counts of a sample mean for the whole.
    pub(super) fn scale(&mut self, references: f64, blocks: f64) {
        self.requests = scaled(self.requests, references);
        self.reads = scaled(self.reads, references);
        self.unique_blocks = scaled(self.unique_blocks, blocks);
        self.new_blocks = scaled(self.new_blocks, blocks);
    }
}

impl Default for WorkingSet {
    fn default() -> Self {
        Self { log2: FIRST_LOG2, windows: Vec::new() }
    }
}

impl WorkingSet {
    /// Counts a reference at a position from 0 on. `previous` is that of the reference before it to
    /// the same block.
    #[inline]
    pub fn reference(
        &mut self,
        position: u64,
        previous: Option<u64>,
        time_ns: u64,
        is_write: bool,
    ) {
        let window = (position >> self.log2) as usize;
        if window >= self.windows.len() {
            return self.begin(position, previous, time_ns, is_write);
        }
        let differ = previous.map_or(COLD, |previous| (previous ^ position).ilog2() as usize);
        let window = &mut self.windows[window];
        window.reads += u64::from(!is_write);
        window.differ[differ] += 1;
    }

    /// Counts the first reference of a window.
    #[cold]
    fn begin(&mut self, position: u64, previous: Option<u64>, time_ns: u64, is_write: bool) {
        while position >> self.log2 >= MOST as u64 {
            self.log2 += 1;
            let merge = |pair: &[Counts]| {
                let mut whole = pair[0].clone();
                for half in &pair[1..] {
                    whole.reads += half.reads;
                    whole.differ.iter_mut().zip(&half.differ).for_each(|(a, b)| *a += b);
                }
                whole
            };
            self.windows = self.windows.chunks(2).map(merge).collect();
        }
        // A sample may have no reference in a window.
        while self.windows.len() as u64 <= position >> self.log2 {
            self.windows.push(Counts::starting(time_ns));
        }
        self.reference(position, previous, time_ns, is_write);
    }

    /// References of a full window.
    pub fn length(&self) -> u64 {
        1 << self.log2
    }

    /// The windows in order; only the last may be shorter than the others.
    pub fn windows(&self, has_time: bool) -> Vec<Window> {
        let first_ns = self.windows.first().map_or(0, |window| window.start_ns);
        let window = |counts: &Counts| Window {
            start_s: has_time.then(|| counts.start_ns.saturating_sub(first_ns) as f64 / 1e9),
            requests: counts.differ.iter().sum(),
            reads: counts.reads,
            unique_blocks: counts.differ[self.log2 as usize..].iter().sum(),
            new_blocks: counts.differ[COLD],
        };
        self.windows.iter().map(window).collect()
    }
}
