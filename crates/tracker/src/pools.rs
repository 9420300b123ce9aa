//! Pools: memory mappings that contain a cache. A program can create a page in a frame into which
//! nothing was ever read. Such pages are recognised by their position: in a mapping into which much
//! was read, behind the first known frame, at an address where a page of that mapping may begin.
//!
//! Nothing else distinguishes them from other memory that is written to files. The log buffers of
//! PostgreSQL are in the same mapping as its pool, and different pages are written from the same
//! addresses, as from frames while a table grows. But they lie before the pool, and their addresses
//! usually have other remainders modulo the page size. InnoDB's pool has a mapping of its own;
//! doublewrite, log and sorting use others, into which no pages are read.
//!
//! The sender searches for pools ([`find`]) and publishes them; a tracked call only compares
//! numbers ([`Pools::has_page`]).

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::segment::Segment;
use crate::segment::layout::{POOL, POOLS, POOLS_MAX};
use crate::table::{GRANULE, Table};

/// Number of page sizes: powers of two from 4 to 64 KiB.
const SIZES: usize = 5;
/// Least number of granules with blocks in a pool: 1 MiB.
const ENOUGH: u64 = 256;
/// Of this many granules, all but one must lie like pages of one size.
const OF: u64 = 16;

/// A mapping that is a pool from its first known frame on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Address of the first known page.
    pub start: u64,
    /// End of the mapping.
    pub end: u64,
    /// Size of the largest pages in bytes, a power of two from 4 to 64 KiB. Pages may be smaller:
    /// InnoDB's compressed pages are, and pages read in order into successive frames look like
    /// larger ones.
    pub page: u64,
}

impl Pool {
    /// Whether a page of `bytes` bytes may begin at an address.
    #[inline]
    fn has_page(&self, address: u64, bytes: u64) -> bool {
        bytes.is_power_of_two()
            && (GRANULE..=self.page).contains(&bytes)
            && self.end.checked_sub(bytes).is_some_and(|last| address <= last)
            && address.checked_sub(self.start).is_some_and(|from| from & (bytes - 1) == 0)
    }
}

/// The pools known to all processes of a segment.
#[derive(Clone, Copy)]
pub struct Pools<'a>(&'a [AtomicU64]);

impl<'a> Pools<'a> {
    /// The pools of a segment.
    #[inline]
    pub fn new(segment: &'a Segment) -> Pools<'a> {
        Pools(&segment.header()[POOLS..POOLS + POOL * POOLS_MAX])
    }

    /// The known pools.
    #[inline]
    pub fn list(self) -> impl Iterator<Item = Pool> + use<'a> {
        let of = |words: &'a [AtomicU64]| {
            let [end, start, page] = [0, 1, 2].map(|at| words[at].load(Acquire));
            Pool { start, end, page }
        };
        self.0.chunks_exact(POOL).map(of).take_while(|pool| pool.end != 0)
    }

    /// Whether a piece of memory in space 0 is a page in one of the pools. Pages are aligned to
    /// their size in their files.
    #[inline]
    pub fn has_page(self, address: u64, bytes: u64, offset: u64) -> bool {
        self.list().any(|pool| pool.has_page(address, bytes)) && offset & (bytes - 1) == 0
    }

    /// Replaces the known pools. A concurrent call may see half of the change, and misjudge one
    /// page.
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
    /// The most frequent address of a page modulo its size, if one has a majority. A vote finds it:
    /// each page cancels one with another remainder.
    phase: u64,
    lead: u64,
    /// Number of granules with this remainder, and the first page among them.
    agree: u64,
    start: u64,
}

/// A mapping, and statistics about the granules in it.
struct Area {
    bytes: Range<u64>,
    granules: u64,
    lies: [Lie; SIZES],
}

fn size(index: usize) -> u64 {
    GRANULE << index
}

impl Area {
    /// Where a page of each size would begin if it contains this granule at this address.
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

/// Finds the pools of space 0 among mappings, which must be ordered by address. Returns those with
/// the most known granules.
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
