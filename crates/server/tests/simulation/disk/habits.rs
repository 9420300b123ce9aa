//! How a simulated disk behaves while nothing is wrong with it, and what can be wrong.

use std::ops::Range;

use super::Service;
use crate::random::Random;

/// How the disk behaves while nothing is wrong.
#[derive(Clone, Debug)]
pub struct Habits {
    pub alignment: u32,
    pub zeroes_fast: bool,
    /// Requests of a hundred that are answered without waiting.
    pub at_once: u64,
    /// Most milliseconds to the effect, and from there to the answer.
    pub slow_ms: u64,
    /// Requests that it does at a time, if that is bounded: further ones wait, in order.
    pub at_a_time: Option<usize>,
    /// Whether many writes go in one call.
    pub takes_many: bool,
    /// Whether TRIM leaves zeroes.
    pub trim_zeroes: bool,
    /// If it is no disk.
    pub service: Option<Service>,
}

impl Habits {
    /// Of a device of flash.
    pub fn of_flash(random: &mut Random) -> Habits {
        Habits {
            alignment: 512,
            zeroes_fast: false,
            at_once: random.pick(&[0, 50, 95]),
            slow_ms: random.pick(&[1, 5, 30]),
            at_a_time: None,
            takes_many: false,
            trim_zeroes: true,
            service: None,
        }
    }
}

/// What is wrong with it now.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Bytes that cannot be written, for ever.
    pub bad_writes: Vec<Range<u64>>,
    /// Bytes that cannot be read.
    pub bad_reads: Vec<Range<u64>>,
    /// Of a hundred requests of each kind, so many fail.
    pub failing_reads: u64,
    pub failing_writes: u64,
    pub failing_flushes: u64,
    /// This many requests later one fails; with `dead_after`, all that come then.
    pub nth: Option<u64>,
    pub dead_after: bool,
    /// No change has room.
    pub full: bool,
    /// Nothing goes on until this ends.
    pub stalled: bool,
    /// Of failing writes, a part took effect.
    pub torn: bool,
    /// Of a hundred reads of a block or less, so many find a bit changed. Longer reads do not: a
    /// device for flash is trusted with its journal.
    pub flips: u64,
}
