//! Pools, by examples of databases, and against the rule as it is written.

use std::collections::HashMap;
use std::ops::Range;

use undercroft_tracker::GRANULE;
use undercroft_tracker::pools::{Pool, Pools, find};
use undercroft_tracker::segment::Segment;
use undercroft_tracker::table::{Key, Place, Table};

use crate::{Nobody, Random};

const MIB: u64 = 1 << 20;
const SHARED: u64 = 0x7f00_0000_0000;

/// Reads a page of some granules.
fn read(table: Table<'_>, space: u16, address: u64, page: u64, granules: u64) {
    for n in 0..granules {
        let place = Place::new(space, address + n * GRANULE).unwrap();
        table.read(place, Key::new(300, page * granules + n).unwrap(), &mut Nobody);
    }
}

/// Pages in no order, each once.
fn anywhere(n: u64) -> u64 {
    (n * 0x9e37_79b9) >> 16
}

fn has_page(segment: &Segment, address: u64, bytes: u64) -> bool {
    Pools::new(segment).has_page(address, bytes, 7 * bytes)
}

#[test]
fn shared_buffers_are_told_from_the_buffers_of_the_log_before_them() {
    let segment = Segment::anonymous(64 << 20).unwrap();
    let table = Table::new(&segment);
    let mapping = SHARED..SHARED + 40 * MIB;
    let (log, states, pool) = (SHARED + 4096, SHARED + 2 * MIB + 1280, SHARED + 3 * MIB + 5632);
    (0..2).for_each(|n| read(table, 0, states + n * 8192, 9000 + n, 2));
    // Not all in their order.
    (0..120).for_each(|n| read(table, 0, pool + n * 8192, anywhere(n), 2));
    assert_eq!(find(table, std::slice::from_ref(&mapping)), [], "less than 1 MiB");
    (120..130).for_each(|n| read(table, 0, pool + n * 8192, anywhere(n), 2));
    // Memory of a process by itself is nobody's pool.
    (0..300).for_each(|n| read(table, 5, pool + 8 * MIB + n * 5000, 2000 + n, 1));
    let found = find(table, std::slice::from_ref(&mapping));
    assert_eq!(found, [Pool { start: pool, end: mapping.end, page: 8192 }]);
    Pools::new(&segment).publish(&found);
    assert!(has_page(&segment, pool + 4000 * 8192, 8192));
    assert!(has_page(&segment, pool + 4001 * 8192 + 4096, 4096), "a smaller one");
    for (address, bytes) in [
        (log + 8 * 8192, 8192),
        (states, 8192),
        (pool - 8192, 8192),
        (pool + 500 * 8192 + 4096, 8192),
        (pool + 500 * 8192 + 512, 8192),
        (pool + 500 * 8192, 16384),
        (pool + 500 * 8192, 6000),
        (pool + 500 * 8192, 2048),
        (pool + 500 * 8192, 0),
        (mapping.end - 4096 - (mapping.end - pool) % 4096, 8192),
        (u64::MAX - 100, 8192),
    ] {
        assert!(!has_page(&segment, address, bytes), "{address:x} {bytes}");
    }
    assert!(!Pools::new(&segment).has_page(pool, 8192, 4096), "pages lie at multiples in files");
    // Known to whoever opens the segment, until there is none any more.
    assert_eq!(segment.status().pools, found);
    Pools::new(&segment).publish(&[]);
    assert_eq!(segment.status().pools, []);
    assert!(!has_page(&segment, pool, 8192));
}

#[test]
fn the_largest_mappings_are_published() {
    let segment = Segment::anonymous(64 << 20).unwrap();
    let table = Table::new(&segment);
    let starts = (0..12).map(|n| SHARED + n * 8 * MIB);
    let mappings: Vec<Range<u64>> = starts.map(|start| start..start + 4 * MIB).collect();
    for (n, mapping) in mappings.iter().enumerate() {
        let pages = 64 + n as u64;
        (0..pages)
            .for_each(|p| read(table, 0, mapping.start + p * 16384, anywhere(p + 1000 * pages), 4));
    }
    let found = find(table, &mappings);
    let starts: Vec<_> = found.iter().map(|pool| pool.start).collect();
    let largest: Vec<_> = mappings[4..].iter().rev().map(|mapping| mapping.start).collect();
    assert_eq!(starts, largest);
    assert!(found.iter().all(|pool| pool.page == 16384), "{found:?}");
    Pools::new(&segment).publish(&found);
    assert_eq!(segment.status().pools, found);
}

/// The rule: of the sizes from 64 KiB down to 4, the first for which at least 15 of 16 granules of
/// space 0 in a mapping, 256 at least, are of pages that begin in the mapping at one remainder of
/// that size; a page lies behind the first of these, by a multiple of its own size.
fn naive(held: &[(u64, u64)], mapping: &Range<u64>) -> Option<Pool> {
    let inside: Vec<_> = held.iter().filter(|held| mapping.contains(&held.0)).collect();
    [65536_u64, 32768, 16384, 8192, 4096].into_iter().find_map(|page| {
        let mut begins: HashMap<u64, Vec<u64>> = HashMap::new();
        for (address, granule) in &inside {
            let Some(first) = address.checked_sub(granule * GRANULE % page) else { continue };
            if first >= mapping.start {
                begins.entry(first % page).or_default().push(first);
            }
        }
        let most = begins.values().max_by_key(|pages| pages.len())?;
        let agree = inside.len() >= 256 && most.len() * 16 >= inside.len() * 15;
        agree.then(|| Pool { start: *most.iter().min().unwrap(), end: mapping.end, page })
    })
}

#[test]
fn it_is_the_rule() {
    let mut random = Random::seeded();
    let (mut found_some, mut sizes) = (0, [0_u32; 5]);
    for round in 0..120 {
        let segment = Segment::anonymous(32 << 20).unwrap();
        let table = Table::new(&segment);
        let mut mappings = Vec::<Range<u64>>::new();
        for _ in 0..1 + random.below(4) {
            let before = mappings.last().map_or(SHARED, |mapping| mapping.end);
            let start = before + random.below(3) * 4096;
            mappings.push(start..start + MIB + random.below(800) * 4096);
        }
        for mapping in &mappings {
            let granules = 1 << random.below(5);
            let phase = random.below(3) * 512;
            let pages = (mapping.end - mapping.start) / (granules * GRANULE) - 1;
            // In order, or anyhow; and some that lie otherwise.
            let in_order = random.below(4) == 0;
            for n in 0..random.below(900 / granules) {
                let at = if in_order { n % pages } else { random.below(pages) };
                let address = mapping.start + phase + at * granules * GRANULE;
                let page = if in_order { n } else { random.below(1 << 20) };
                let stray = if random.below(40) == 0 { 4096 * random.below(2) } else { 0 };
                read(table, random.below(20) as u16 / 19, address + stray, page, granules);
            }
        }
        let held: Vec<_> = table.content().filter(|(place, _)| place.space() == 0).collect();
        let held: Vec<_> =
            held.iter().map(|(place, block)| (place.address(), block.granule())).collect();
        let mut wanted: Vec<_> = mappings.iter().filter_map(|m| naive(&held, m)).collect();
        let mut found = find(table, &mappings);
        Pools::new(&segment).publish(&found);
        found_some += found.len();
        for pool in &found {
            sizes[(pool.page / 4096).trailing_zeros() as usize] += 1;
        }
        for _ in 0..300 {
            let bytes = 4096 << random.below(6);
            let address = SHARED + random.below(8 * MIB / 512) * 512;
            let is_page = wanted.iter().any(|pool| {
                let mut steps =
                    (pool.start..pool.end.saturating_sub(bytes - 1)).step_by(bytes as usize);
                bytes <= pool.page && steps.any(|page| page == address)
            });
            assert_eq!(
                has_page(&segment, address, bytes),
                is_page,
                "{address:x} {bytes} {wanted:x?}"
            );
        }
        wanted.sort_by_key(|pool| pool.start);
        found.sort_by_key(|pool| pool.start);
        assert_eq!(found, wanted, "round {round}");
    }
    assert!(found_some > 40 && sizes.iter().all(|size| *size > 0), "{sizes:?}");
}
