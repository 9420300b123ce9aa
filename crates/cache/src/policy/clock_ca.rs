//! CLOCK-CA: CLOCK, but of the blocks that the hand would evict next the first goes that the
//! neighbouring cache holds too. The hand passes those before it as CLOCK's does: they get another
//! turn. Where no such block is found within the window, it is CLOCK.
//!
//! The poster says "also for CLOCK" and no more; the rest is ours. The hand does not move, and
//! clears no bit, before it is known which block it will come to rest at: bits that are cleared in
//! a search that finds nothing would make it another policy than CLOCK.

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
