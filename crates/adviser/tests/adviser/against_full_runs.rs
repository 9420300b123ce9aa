//! Figures against simulations of all blocks.

use std::collections::{BTreeMap, BTreeSet};

use undercroft_adviser::{Adviser, Figures, Kind, Options, SIZES, State};
use undercroft_level::Level;
use undercroft_level::placement::Placement;
use undercroft_policy::{Spec, WriteMode};
use undercroft_random::SplitMix64;
use undercroft_random::testing::{seed, seed_or};

use crate::support::{cell, feed, feed_round, read, skewed, today, with_rate};

/// With every block in the sample, each cell is a full simulation: the ratios of the epochs that
/// are kept are those of plain levels over the same reads, exactly, and so are the differences.
#[test]
fn rate_one_is_the_full_simulation() {
    let mut random = SplitMix64::new(seed());
    let stream: Vec<_> = (0..30_000)
        .map(|_| match random.below(10) {
            0 => (random.below(3000), Kind::Write { is_whole: true, tells: false }),
            _ => skewed(&mut random, 3000),
        })
        .collect();
    // Without turns: a policy that begins later has not seen what is before.
    let options = with_rate(1.0, 5);
    let policies = options.policies[..8].to_vec();
    let options = Options { policies, ..options };
    let mut adviser = Adviser::new(today("lru", 200), &options).unwrap();
    feed(&mut adviser, stream.iter().copied());
    let figures = adviser.figures();
    assert_eq!(figures.state, State::Ready);
    // The epochs that are kept end at the last multiple of 64 events, or before.
    let mut checked = 0;
    for policy in ["lru", "auto", "arc", "mq", "lirs", "2q", "w-tinylfu", "s3-fifo"] {
        for (numerator, denominator) in SIZES {
            let blocks = 200 * numerator / denominator;
            let spec = undercroft_policy::Spec::parse(policy).unwrap();
            let access = undercroft_level::placement::Placement::Access;
            let mut level = Level::new(&spec, blocks, &access, WriteMode::Allocate, 1).unwrap();
            let hits: Vec<_> = stream
                .iter()
                .map(|&(block, kind)| {
                    let is_write = matches!(kind, Kind::Write { .. });
                    (!is_write).then_some(level.reference(block, is_write, || false).hit)
                })
                .collect();
            // Some stretch of so many references has exactly the reads and hits of the figures.
            let length = figures.references as usize;
            let (hit_ratio, _, error) = cell(&figures, policy, blocks);
            let ends = (length..=stream.len()).rev().filter(|end| end % 8 == 0).take(200);
            let is_found = ends.into_iter().any(|end| {
                let counted = hits[end - length..end].iter().flatten();
                let reads = counted.clone().count();
                let found = counted.filter(|&&hit| hit).count();
                reads as u64 == figures.reads
                    && (found as f64 / reads as f64 - hit_ratio).abs() < 1e-9
            });
            assert!(is_found, "{policy} {blocks}: {hit_ratio}");
            assert_eq!(error, 0.0);
            checked += 1;
        }
    }
    assert_eq!(checked, 40);
}

/// Skewed reads of 20,000 blocks, and every fourth in a loop over 9,000 others.
fn skewed_with_a_loop(seed: u64) -> Vec<(u64, Kind)> {
    let (mut random, mut scan) = (SplitMix64::new(seed), 0);
    let mut next = || match random.below(4) {
        0 => {
            scan = (scan + 1) % 9000;
            read(100_000 + scan)
        }
        _ => skewed(&mut random, 20_000),
    };
    (0..150_000).map(|_| next()).collect()
}

/// Figures against those with every block: how many intervals hold the truth, of how many, and the
/// sum of the squares of all errors.
fn held(figures: &Figures, exact: &Figures) -> (u32, u32, f64) {
    let (mut within, mut all, mut squares) = (0, 0, 0.0);
    for one in &figures.cells {
        let is_it = |cell: &&undercroft_adviser::CellFigure| {
            (&cell.policy, cell.blocks) == (&one.policy, one.blocks)
        };
        // Another policy may have had its turn.
        let Some(truth) = exact.cells.iter().find(is_it) else { continue };
        for (one, truth) in [(one.hits, truth.hits), (one.gain, truth.gain)] {
            let off = (one.value - truth.value).abs();
            within += u32::from(off <= one.error);
            squares += off.powi(2);
            all += 1;
        }
    }
    (within, all, squares)
}

/// The stated intervals hold the truth, which is what an adviser with every block says. Of many
/// intervals nine in ten must; the streams differ by their seeds.
#[test]
fn intervals_hold_the_truth() {
    let (first, mut within, mut all) = (seed_or(1), 0, 0);
    for seed in first..first + 12 {
        let stream = skewed_with_a_loop(seed);
        let figures = |rate| {
            let mut adviser = Adviser::new(today("lru", 4000), &with_rate(rate, seed)).unwrap();
            feed(&mut adviser, stream.iter().copied());
            adviser.figures()
        };
        let (held, of, _) = held(&figures(0.1), &figures(1.0));
        (within, all) = (within + held, all + of);
    }
    println!("{within} of {all}");
    // The intervals of a stream go together, so a few streams are off by some.
    assert!(within * 100 >= all * 85, "{within} of {all}");
}

/// What the cache itself counted corrects all figures: their errors are smaller than without, their
/// intervals hold the truth, and today's ratio is the cache's own. The budget narrows the samples
/// of the larger sizes.
#[test]
fn what_the_cache_counts_corrects_the_figures() {
    let (first, mut within, mut all) = (seed_or(1), 0, 0);
    let (mut plain, mut corrected) = (0.0, 0.0);
    for seed in first..first + 6 {
        let stream = &skewed_with_a_loop(seed)[..75_000];
        let (lru, access) = (Spec::parse("lru").unwrap(), Placement::Access);
        let figures = |options: &Options, tells: bool| {
            let mut level = Level::new(&lru, 4000, &access, WriteMode::Allocate, 1).unwrap();
            let mut adviser = Adviser::new(today("lru", 4000), options).unwrap();
            for round in stream.chunks(500) {
                let mut missed =
                    round.iter().filter(|(block, _)| !level.reference(*block, false, || false).hit);
                let ratio = missed.by_ref().count() as f64 / round.len() as f64;
                feed_round(&mut adviser, round.iter().copied(), tells.then_some(ratio));
            }
            adviser.figures()
        };
        let options = Options { budget: 2 << 20, seed, ..Options::default() };
        let exact = figures(&with_rate(1.0, seed), false);
        let told = figures(&options, true);
        assert!(told.rate < 0.2, "{}", told.rate);
        let today = told.today().unwrap();
        assert!((today.hits.value - exact.today().unwrap().hits.value).abs() < 0.01);
        let (held_now, of, squares) = held(&told, &exact);
        (within, all, corrected) = (within + held_now, all + of, corrected + squares);
        plain += held(&figures(&options, false), &exact).2;
    }
    println!("{within} of {all}; squares {corrected:.4}, without correction {plain:.4}");
    assert!(within * 100 >= all * 85, "{within} of {all}");
    assert!(corrected < 0.7 * plain, "{corrected} {plain}");
}

/// Policies take turns. One that has just begun, with blocks that another one chose, does not count
/// until it has settled: every figure is that of a level which had the policy from the beginning.
#[test]
fn policies_that_take_a_turn_count_when_they_have_settled() {
    let mut random = SplitMix64::new(seed());
    let mut adviser = Adviser::new(today("lru", 1000), &with_rate(1.0, 3)).unwrap();
    let (mut stream, mut seen) = (Vec::new(), BTreeSet::new());
    let mut levels = BTreeMap::new();
    // What LFU has counted depends on all that ever was, and SIEVE takes longest to settle.
    let is_steady = |policy: &str| !["lfu", "sieve"].contains(&policy);
    for _ in 0..400 {
        let round: Vec<_> = (0..1000).map(|_| skewed(&mut random, 8000)).collect();
        feed(&mut adviser, round.iter().copied());
        stream.extend(round.iter().map(|(block, _)| *block));
        let figures = adviser.figures();
        for cell in figures.cells.iter().filter(|cell| is_steady(&cell.policy)) {
            let key = (cell.policy.clone(), cell.blocks);
            let (level, hits) = levels.entry(key.clone()).or_insert_with(|| {
                let spec = Spec::parse(&cell.policy).unwrap();
                let access = Placement::Access;
                let level = Level::new(&spec, cell.blocks, &access, WriteMode::Allocate, 1);
                (level.unwrap(), vec![0_u64])
            });
            for &block in &stream[hits.len() - 1..] {
                let hit = level.reference(block, false, || false).hit;
                hits.push(hits[hits.len() - 1] + u64::from(hit));
            }
            let of_now = &hits[hits.len() - 1 - figures.reads as usize..];
            let truth = (of_now[of_now.len() - 1] - of_now[0]) as f64 / figures.reads as f64;
            let off = (cell.hits.value - truth).abs();
            assert!(off < 0.08, "{key:?}: {}, in truth {truth}", cell.hits.value);
            seen.insert(cell.policy.clone());
        }
    }
    assert!(seen.len() > 10, "{seen:?}");
}

/// A loop that does not fit is where MRU-like policies gain: the adviser finds it, from a sample.
#[test]
fn a_loop_is_recognised() {
    let mut adviser = Adviser::new(today("lru", 4000), &with_rate(0.1, 3)).unwrap();
    feed(&mut adviser, (0..100_000).map(|at| read(at % 6000)));
    let figures = adviser.figures();
    let (hits, gain, error) = cell(&figures, "lirs", 4000);
    assert!(hits > 0.5 && gain > 0.5 && error < 0.2, "{hits} {gain} {error}");
    let (enough, ..) = cell(&figures, "lru", 8000);
    assert!(enough > 0.98, "{enough}");
}

#[test]
fn a_change_of_workload_is_seen_and_forgotten() {
    let mut random = SplitMix64::new(seed());
    let mut adviser = Adviser::new(today("lru", 2000), &with_rate(0.2, 3)).unwrap();
    feed(&mut adviser, (0..60_000).map(|at| read(at % 3000)));
    assert!(cell(&adviser.figures(), "lirs", 2000).1 > 0.4);
    let mut was_changed = false;
    // Two turnovers: at most so many reads that miss.
    for _ in 0..20 {
        feed(
            &mut adviser,
            (0..1000).map(|_| skewed(&mut random, 40_000)).map(|(b, k)| (b + 9000, k)),
        );
        was_changed |= adviser.figures().state == State::Changed;
    }
    assert!(was_changed);
    feed(
        &mut adviser,
        (0..30_000).map(|_| skewed(&mut random, 40_000)).map(|(b, k)| (b + 9000, k)),
    );
    let figures = adviser.figures();
    assert_eq!(figures.state, State::Ready);
    assert!(cell(&figures, "lirs", 2000).1 < 0.3, "the loop is forgotten");
}

/// A cache that changes its size is advised about again after a turnover, since the miniatures keep
/// their blocks; and what is said is that of caches which always had these sizes.
#[test]
fn a_cache_that_changes_its_size_is_advised_about_soon() {
    let mut random = SplitMix64::new(seed());
    let mut adviser = Adviser::new(today("lru", 1000), &with_rate(1.0, 3)).unwrap();
    let mut done = Vec::new();
    let mut until_ready = |adviser: &mut Adviser| {
        let before = done.len();
        while adviser.figures().state != State::Ready {
            let some: Vec<_> = (0..64).map(|_| skewed(&mut random, 20_000)).collect();
            done.extend(some.iter().map(|(block, _)| *block));
            feed(adviser, some);
        }
        (done.len() - before, done.clone())
    };
    let (at_first, _) = until_ready(&mut adviser);
    for blocks in [1060, 900, 960] {
        assert!(adviser.resize(blocks, u64::MAX));
        assert_ne!(adviser.figures().state, State::Ready);
        let (now, done) = until_ready(&mut adviser);
        assert!(3 * now < 2 * at_first, "{now} reads, {at_first} at first");
        let figures = adviser.figures();
        assert_eq!(figures.today().map(|today| today.blocks), Some(blocks));
        for (numerator, denominator) in [(1, 4), (1, 2), (1, 1)] {
            let blocks = blocks * numerator / denominator;
            let access = Placement::Access;
            let lru = Spec::parse("lru").unwrap();
            let mut level = Level::new(&lru, blocks, &access, WriteMode::Allocate, 1).unwrap();
            let hits: Vec<_> =
                done.iter().map(|&block| level.reference(block, false, || false).hit).collect();
            let counted = &hits[hits.len() - figures.reads as usize..];
            let truth = counted.iter().filter(|&&hit| hit).count() as f64 / counted.len() as f64;
            let (hit_ratio, ..) = cell(&figures, "lru", blocks);
            assert!((hit_ratio - truth).abs() < 0.01, "{blocks}: {hit_ratio}, in truth {truth}");
        }
    }
    assert!(!adviser.resize(4000, 1 << 20), "that does not fit into the memory");
    assert_eq!(adviser.figures().today().map(|today| today.blocks), Some(960));
}

/// A stretch in which clients only write has no ratio, whichever policy had its turn there.
#[test]
fn epochs_without_reads_have_no_ratios() {
    let mut random = SplitMix64::new(seed());
    let mut adviser = Adviser::new(today("lru", 500), &with_rate(1.0, 3)).unwrap();
    for part in 0..60 {
        let stretch: Vec<_> = (0..4000).map(|_| skewed(&mut random, 40_000)).collect();
        let writes = Kind::Write { is_whole: true, tells: false };
        let of = |(block, kind)| (block, if part % 3 == 0 { kind } else { writes });
        for some in stretch.chunks(100) {
            feed(&mut adviser, some.iter().copied().map(of));
            for cell in adviser.figures().cells {
                assert!(cell.hits.value < 0.95, "{cell:?}");
            }
        }
    }
}

/// Clients that tell what they evict: placement at eviction keeps what they do not.
#[test]
fn placements_are_compared_when_hints_are_heard() {
    let mut today = today("lru", 1000);
    today.placement = "eviction".parse().unwrap();
    let mut adviser = Adviser::new(today, &with_rate(1.0, 3)).unwrap();
    // A client with an LRU cache of 1,000 blocks in a loop of 1,900: it always misses.
    let read = Kind::Read { is_whole: true, tells: true };
    let steps = (0..40_000_u64).flat_map(|at| {
        let evicted =
            at.checked_sub(1000).map(|old| (old % 1900, Kind::Evicted { has_contents: false }));
        std::iter::once((at % 1900, read)).chain(evicted)
    });
    feed(&mut adviser, steps);
    let figures = adviser.figures();
    let at = |placement: &str| {
        let is_it = |cell: &&undercroft_adviser::CellFigure| {
            cell.policy == "lru" && cell.blocks == 1000 && cell.placement.starts_with(placement)
        };
        figures.cells.iter().find(is_it).unwrap()
    };
    assert!(at("eviction").hits.value > 0.9, "{:?}", at("eviction"));
    assert!(at("access").hits.value < 0.1, "{:?}", at("access"));
    assert!(at("eviction").is_today && !figures.misses_hints);
    assert!(at("eviction").disk.value > 0.9, "each hit was reloaded");
}

#[test]
fn without_hints_placements_are_not_compared() {
    let mut today = today("lru", 100);
    today.placement = "eviction".parse().unwrap();
    let mut adviser = Adviser::new(today, &with_rate(1.0, 3)).unwrap();
    feed(&mut adviser, (0..10_000).map(|at| read(at % 300)));
    let figures = adviser.figures();
    assert!(figures.misses_hints);
    assert!(!figures.cells.is_empty(), "{figures:?}");
    assert!(figures.cells.iter().all(|cell| cell.placement.starts_with("eviction")));
}

#[test]
fn there_is_no_advice_for_a_policy_that_depends_on_a_neighbour() {
    let refused = Adviser::new(today("lru-ca", 100), &with_rate(1.0, 3)).err().unwrap();
    assert!(refused.0.contains("content-aware"), "{refused:?}");
}
