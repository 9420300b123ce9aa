//! CLOCK-CA: CLOCK, but of the blocks from the hand on, as far as the window goes, the first goes
//! whose bit is clear and that the neighbouring cache holds too. Where there is no such block, or
//! it is the one that CLOCK would evict, it is CLOCK.
//!
//! The poster says "also for CLOCK" and no more; the rest is ours. A block that is found is taken
//! from its place: the hand stays and no bit is cleared. A hand that went there would pass all that
//! came before and give it another turn, though nobody referenced it, and would come to rest among
//! the newest blocks, which the neighbour holds; so the window is counted in places, too, and
//! not in blocks whose bit is clear. What else was tried, and what it costs, is in
//! `docs/measurements/content-aware.md`.

use super::awareness::{ALPHA, FILTER_BITS, HASHES, KNOWS, PUBLISH};
use super::clock::Clock;
use super::neighbour::Held;
use super::registry::PolicyInfo;

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "clock-ca",
    aliases: &[],
    summary: "content-aware CLOCK: evicts first what the neighbouring cache holds too",
    source: "Collaborative buffer caches in data centers (poster)",
    parameters: &[ALPHA, KNOWS, FILTER_BITS, HASHES, PUBLISH],
    build: |arguments, context| {
        let held = Held::new(arguments.real("alpha"), context.capacity);
        Ok(Box::new(Clock::new(context.capacity, 1, held)))
    },
};
