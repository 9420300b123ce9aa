//! Pools: memory mappings in which a cache lies. Pages that a program makes, in frames into which
//! nothing was ever read, are told by where they lie: in a mapping into which much was read, behind
//! the first frame known there, at a place where a page of that mapping may begin.
//!
//! Nothing else tells them from other memory that is written to files. The buffers of PostgreSQL's
//! log lie in one mapping with its pool, and are written page by page, ever other pages from the
//! same addresses, as frames are while a table grows. But they lie before the pool, and at other
//! remainders of the size of a page unless these happen to agree. InnoDB's pool has a mapping of
//! its own; doublewrite, log and sorting have others, into which no pages are read.
//!
//! The sender looks for pools ([`find`]) and publishes them; a call of the program only compares
//! numbers ([`Pools::has_page`]).

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::segment::Segment;
use crate::segment::layout::{POOL, POOLS, POOLS_MAX};
use crate::table::{GRANULE, Table};

/// Sizes of pages that are told apart: powers of two from 4 to 64 KiB.
const SIZES: usize = 5;
/// Granules with blocks that it takes to speak of a pool: 1 MiB.
const ENOUGH: u64 = 256;
/// Of so many of them, all but one must lie as pages of one size do.
const OF: u64 = 16;

/// A mapping that is a pool from its first known frame on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Address of the first known page.
    pub start: u64,
    /// End of the mapping.
    pub end: u64,
    /// Size of the largest pages in bytes, a power of two from 4 to 64 KiB. Pages may be smaller:
    /// InnoDB's compressed ones are, and pages that were read in their order into frames one
    /// behind the other look like larger ones.
    pub page: u64,
}

impl Pool {
    /// Whether a page of so many bytes may begin at an address.
    #[inline]
    fn has_page(&self, address: u64, bytes: u64) -> bool {
        bytes.is_power_of_two()
            && (GRANULE..=self.page).contains(&bytes)
            && self.end.checked_sub(bytes).is_some_and(|last| address <= last)
            && address.checked_sub(self.start).is_some_and(|from| from & (bytes - 1) == 0)
    }
}

/// The pools that are known to all processes of a segment.
#[derive(Clone, Copy)]
pub struct Pools<'a>(&'a [AtomicU64]);

impl<'a> Pools<'a> {
    /// Those of a segment.
    #[inline]
    pub fn new(segment: &'a Segment) -> Pools<'a> {
        Pools(&segment.header()[POOLS..POOLS + POOL * POOLS_MAX])
    }

    /// All of them.
    #[inline]
    pub fn list(self) -> impl Iterator<Item = Pool> + use<'a> {
        let of = |words: &'a [AtomicU64]| {
            let [end, start, page] = [0, 1, 2].map(|at| words[at].load(Acquire));
            Pool { start, end, page }
        };
        self.0.chunks_exact(POOL).map(of).take_while(|pool| pool.end != 0)
    }

    /// Whether a piece of space 0 is a page of one of them. Pages lie at multiples of their size
    /// in their files.
    #[inline]
    pub fn has_page(self, address: u64, bytes: u64, offset: u64) -> bool {
        self.list().any(|pool| pool.has_page(address, bytes)) && offset & (bytes - 1) == 0
    }

    /// Makes them known in place of what was. A call at the same moment may see half of a change,
    /// and take a page for one or not, once.
    pub fn publish(self, pools: &[Pool]) {
        let wanted = pools.iter().map(Some).chain(std::iter::repeat(None));
        for (words, pool) in self.0.chunks_exact(POOL).zip(wanted) {
            let values = pool.map_or([0; 3], |pool| [pool.end, pool.start, pool.page]);
            if words.iter().zip(values).all(|(word, value)| word.load(Relaxed) == value) {
                continue;
            }
            words[0].store(0, Release);
            words[1].store(values[1], Release);
            words[2].store(values[2], Release);
            words[0].store(values[0], Release);
        }
    }
}

/// How pages of one size would lie in a mapping.
#[derive(Clone, Copy, Default)]
struct Lie {
    /// Where most begin, modulo their size, if there is a majority at all: found by a vote, in
    /// which each page cancels out one that begins elsewhere.
    phase: u64,
    lead: u64,
    /// Granules that lie so, and the first page of them.
    agree: u64,
    start: u64,
}

/// A mapping, and what is known to be in it.
struct Area {
    bytes: Range<u64>,
    granules: u64,
    lies: [Lie; SIZES],
}

fn size(index: usize) -> u64 {
    GRANULE << index
}

impl Area {
    /// Where a page of each size would begin of which a granule is at an address.
    fn begins(address: u64, granule: u64) -> [u64; SIZES] {
        std::array::from_fn(|index| address.wrapping_sub((granule * GRANULE) & (size(index) - 1)))
    }

    fn vote(&mut self, address: u64, granule: u64) {
        self.granules += 1;
        for (index, begins) in Self::begins(address, granule).into_iter().enumerate() {
            let (lie, phase) = (&mut self.lies[index], begins & (size(index) - 1));
            if lie.lead == 0 {
                lie.phase = phase;
            }
            lie.lead = if lie.phase == phase { lie.lead + 1 } else { lie.lead - 1 };
        }
    }

    fn count(&mut self, address: u64, granule: u64) {
        for (index, begins) in Self::begins(address, granule).into_iter().enumerate() {
            let lie = &mut self.lies[index];
            if lie.phase == begins & (size(index) - 1) && begins >= self.bytes.start {
                let first = if lie.agree == 0 { begins } else { lie.start };
                (lie.agree, lie.start) = (lie.agree + 1, first.min(begins));
            }
        }
    }

    fn pool(&self) -> Option<Pool> {
        if self.granules < ENOUGH {
            return None;
        }
        let agrees = |lie: &Lie| lie.agree * OF >= self.granules * (OF - 1);
        let index = self.lies.iter().rposition(agrees)?;
        Some(Pool { start: self.lies[index].start, end: self.bytes.end, page: size(index) })
    }
}

/// Finds the pools of space 0 among mappings in order of their addresses: the largest, by what is
/// known to be in them.
pub fn find(table: Table<'_>, mappings: &[Range<u64>]) -> Vec<Pool> {
    let area = |bytes: &Range<u64>| {
        let (bytes, lies) = (bytes.clone(), [Lie::default(); SIZES]);
        Area { bytes, granules: 0, lies }
    };
    let mut areas: Vec<Area> = mappings.iter().map(area).collect();
    for look in [Area::vote, Area::count] {
        for (place, block) in table.content().filter(|(place, _)| place.space() == 0) {
            let address = place.address();
            let after = mappings.partition_point(|bytes| bytes.start <= address);
            let area = after.checked_sub(1).map(|at| &mut areas[at]);
            if let Some(area) = area.filter(|area| address < area.bytes.end) {
                look(area, address, block.granule());
            }
        }
    }
    areas.sort_by_key(|area| std::cmp::Reverse(area.granules));
    areas.iter().filter_map(Area::pool).take(POOLS_MAX).collect()
}
