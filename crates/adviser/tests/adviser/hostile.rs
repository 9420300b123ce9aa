//! Streams that clients may choose to do harm.

use undercroft_adviser::{Adviser, Event, Kind, State};
use undercroft_random::SplitMix64;
use undercroft_random::testing::seed;

use crate::support::{cell, feed, read, today, with_rate};

#[test]
fn one_block_only() {
    for rate in [1.0, 0.01] {
        let mut adviser = Adviser::new(today("arc", 1000), &with_rate(rate, 3)).unwrap();
        feed(&mut adviser, (0..50_000).map(|_| read(7)));
        let figures = adviser.figures();
        for cell in &figures.cells {
            assert!(cell.hits.value > 0.99 && cell.gain.value.abs() < 0.01, "{cell:?}");
        }
    }
}

#[test]
fn all_distinct() {
    let mut adviser = Adviser::new(today("lru", 1000), &with_rate(0.2, 3)).unwrap();
    feed(&mut adviser, (0..100_000).map(read));
    let figures = adviser.figures();
    assert_eq!(figures.state, State::Ready);
    for cell in &figures.cells {
        let off = cell.hits.value - cell.hits.error;
        assert!(off <= 0.0 && cell.gain.value == 0.0, "{cell:?}");
    }
}

#[test]
fn only_writes_have_no_ratios() {
    let mut adviser = Adviser::new(today("lru", 100), &with_rate(1.0, 3)).unwrap();
    let write = Kind::Write { is_whole: true, tells: true };
    feed(&mut adviser, (0..10_000).map(|at| (at % 300, write)));
    assert!(adviser.figures().cells.is_empty());
}

/// Skipped stretches are told, and what comes after them does not count at once.
#[test]
fn skipped_stretches_are_told() {
    let mut adviser = Adviser::new(today("lru", 100), &with_rate(1.0, 3)).unwrap();
    let mut at = 0;
    let mut stretch = |adviser: &mut Adviser, count: u64| {
        feed(adviser, (at..at + count).map(|at| read(at % 90)));
        at += count;
    };
    stretch(&mut adviser, 4000);
    for _ in 0..40 {
        stretch(&mut adviser, 1000);
        adviser.skipped(1000);
    }
    let figures = adviser.figures();
    assert!((0.4..0.7).contains(&figures.skipped_share), "{}", figures.skipped_share);
    assert!(cell(&figures, "lru", 100).0 > 0.99);
}

#[test]
fn anything_goes() {
    let mut random = SplitMix64::new(seed());
    for placement in ["access", "eviction", "auto"] {
        let mut today = today("mq", 1 + random.below(300) as u32);
        today.placement = placement.parse().unwrap();
        let mut adviser = Adviser::new(today, &with_rate(0.5, random.next_u64())).unwrap();
        for _ in 0..300 {
            let events: Vec<_> = (0..random.below(300))
                .map(|_| {
                    let kind = match random.below(5) {
                        0 | 1 => Kind::Read { is_whole: random.below(2) == 0, tells: true },
                        2 => Kind::Write { is_whole: true, tells: random.below(2) == 0 },
                        3 => Kind::Evicted { has_contents: random.below(2) == 0 },
                        _ => Kind::Discarded,
                    };
                    let block = match random.below(3) {
                        0 => random.next_u64(),
                        _ => random.below(900),
                    };
                    let reads = if random.below(100) == 0 { u32::MAX } else { 2 };
                    let client = random.below(256) as u8;
                    Event { block, at_us: random.next_u64(), reads, kind, client }
                })
                .collect();
            adviser.take(&events);
            if random.below(50) == 0 {
                adviser.skipped(random.below(1000));
            }
            let figures = adviser.figures();
            assert!(figures.cells.iter().all(|cell| (0.0..=1.0).contains(&cell.hits.value)));
        }
    }
}
