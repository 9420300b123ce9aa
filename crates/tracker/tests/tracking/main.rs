//! The parts of the tracker: the table against a naive model, invariants after every step; the
//! ring; several processes at work on one segment, some of them killed.

mod files;
mod places;
mod pools;
mod processes;
mod ring;
mod strangers;
mod strays;
mod table;

use std::hash::{BuildHasher, RandomState};

/// Numbers that are the same for the same seed (splitmix64).
struct Random(u64);

impl Random {
    /// From `UNDERCROFT_SEED`, or any; printed, so that a failure can be had again.
    fn new() -> Random {
        let given = std::env::var("UNDERCROFT_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
        println!("UNDERCROFT_SEED={seed}");
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
