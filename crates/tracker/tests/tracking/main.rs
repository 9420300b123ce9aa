//! The parts of the tracker: the table against a naive model, invariants after every step; the
//! ring; several processes at work on one segment, some of them killed.

mod contents;
mod files;
mod places;
mod pools;
mod processes;
mod ring;
mod strangers;
mod strays;
mod table;

use undercroft_random::SplitMix64 as Random;
use undercroft_tracker::table::{Key, Sink};

/// Hears what leaves a table, and does nothing.
struct Nobody;

impl Sink for Nobody {
    fn evicted(&mut self, _: Key) {}
    fn late(&mut self, _: Key) {}
}
