//! Removes frames that do not belong to a cache. A program also reads into memory that it soon uses
//! for something else, such as the first pages of a file that it opens. Nothing is ever read over
//! these blocks, so the table would consider them resident for ever.
//!
//! A cache is much memory in few places. So a *region* of 1 MiB counts as transient memory if three
//! conditions hold: it and its two neighbours have few frames with a block; the table has many
//! frames in other regions; and nothing changed in the region between two scans. (Blocks read into
//! transient memory are later read again into the cache, so frames without a block are frequent
//! there and tell nothing.) If a real cache looks like this, a few of its known blocks are
//! forgotten, until they are read again.

use std::collections::{HashMap, HashSet};

use undercroft_random::mix;

use super::{Place, Table};

/// Binary logarithm of the bytes of a region.
const REGION_BITS: u32 = 20;
/// Fewer frames than this, in a region and its neighbours, are strays: 128 KiB of 3 MiB.
const FEW: u64 = 32;
/// Least number of frames in other regions: 4 MiB.
const CACHE: u64 = 1024;

/// What was found in a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Region {
    frames: u64,
    /// A hash that changes with any of its frames.
    content: u64,
}

/// Finds stray frames by periodic scans.
#[derive(Debug, Default)]
pub struct Strays {
    /// The lonely regions at the last scan.
    before: HashMap<u64, Region>,
}

fn region(place: Place) -> u64 {
    place.word() >> REGION_BITS
}

impl Strays {
    /// Scans the table, and forgets the regions that have been lonely and unchanged since the last
    /// scan. Returns the number of forgotten blocks.
    pub fn forget(&mut self, table: Table<'_>) -> u64 {
        let mut regions = HashMap::<u64, Region>::new();
        for (place, block) in table.content() {
            let region = regions.entry(region(place)).or_default();
            region.frames += 1;
            region.content ^= mix(mix(place.word()) ^ block.word());
        }
        let frames_of = |at: u64| regions.get(&at).map_or(0, |region| region.frames);
        let is_lonely = |at: u64| (at.saturating_sub(1)..=at + 1).map(frames_of).sum::<u64>() < FEW;
        let lonely = regions.iter().filter(|(at, _)| is_lonely(**at));
        let lonely: HashMap<u64, Region> = lonely.map(|(at, region)| (*at, *region)).collect();
        let total =
            |regions: &HashMap<u64, Region>| regions.values().map(|r| r.frames).sum::<u64>();
        let in_company = total(&regions) - total(&lonely);
        let stayed = |(at, region): &(&u64, &Region)| self.before.get(at) == Some(region);
        let strays: HashSet<u64> = lonely.iter().filter(stayed).map(|(at, _)| *at).collect();
        self.before = lonely;
        if strays.is_empty() || in_company < CACHE {
            return 0;
        }
        table.forget(|place, _| strays.contains(&region(place)))
    }
}
