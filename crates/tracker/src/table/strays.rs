//! Frames that are no cache. A program also reads into memory that it uses for something else a
//! moment later, as for the first pages of its files when it opens them; nothing is ever read over
//! these, so that the table would take them for resident for good.
//!
//! A cache is much memory in few places. So a *region* of 1 MiB is taken for passing memory if it
//! and the two beside it have few frames with a block, the table has many that lie in company, and
//! nothing happened in it from one look to the next. (What is read into passing memory is read
//! again, into the cache: frames without a block are many there, and say nothing.) A cache of that
//! kind which is really one loses a few blocks of what is known, until they are read again.

use std::collections::{HashMap, HashSet};

use undercroft_random::mix;

use super::{Place, Table};

/// Bytes of a region.
const REGION_BITS: u32 = 20;
/// Fewer frames than these, in a region and those beside it, are strays: 128 KiB of 3 MiB.
const FEW: u64 = 32;
/// Frames in company that it takes to say so: 4 MiB.
const CACHE: u64 = 1024;

/// What was seen of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Region {
    frames: u64,
    /// Changes with any of its frames.
    content: u64,
}

/// Finds such frames, by looking now and then.
#[derive(Debug, Default)]
pub struct Strays {
    /// Lonely regions at the last look.
    before: HashMap<u64, Region>,
}

fn region(place: Place) -> u64 {
    place.word() >> REGION_BITS
}

impl Strays {
    /// Looks at the table, and forgets what has been lonely and unchanged since the last look.
    /// Gives how many blocks that were.
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
