//! Placement that adapts: it is compared as the two placements that it chooses between.

use undercroft_adviser::{Adapting, Adviser, CellFigure, Figures, Kind, Options};
use undercroft_level::placement::{DataSource, Eviction, Placement};
use undercroft_level::{Level, PlacementStep};
use undercroft_policy::{Spec, WriteMode};
use undercroft_random::SplitMix64;
use undercroft_random::testing::seed_or;

use crate::support::{feed, skewed, today, with_rate};

const READ: Kind = Kind::Read { is_whole: true, tells: true };

/// What a client with an LRU cache of so many blocks passes down of these reads. It tells what it
/// evicts, and hands the contents over or does not.
fn below(client: u32, reads: impl Iterator<Item = u64>, has_contents: bool) -> Vec<(u64, Kind)> {
    let lru = Spec::parse("lru").unwrap();
    let mut cache = Level::new(&lru, client, &Placement::Access, WriteMode::Allocate, 1).unwrap();
    let mut all = Vec::new();
    for block in reads {
        if !cache.reference(block, false, || false).hit {
            all.push((block, READ));
        }
        let gone = cache.evicted().iter().map(|evicted| evicted.block);
        all.extend(gone.map(|block| (block, Kind::Evicted { has_contents })));
    }
    all
}

fn of<'a>(figures: &'a Figures, placement: &str) -> &'a CellFigure {
    let is_it = |cell: &&CellFigure| {
        cell.policy == "lru" && cell.blocks == 1000 && cell.placement.starts_with(placement)
    };
    figures.cells.iter().find(is_it).unwrap_or_else(|| panic!("no {placement}: {figures:?}"))
}

fn adviser(placement: &str, options: &Options) -> Adviser {
    let mut today = today("lru", 1000);
    today.placement = placement.parse().unwrap();
    Adviser::new(today, options).unwrap()
}

/// A client with 1,000 blocks in a loop of 1,900 never hits, and what it evicts is read again. What
/// placement at eviction is worth depends on what comes down.
#[test]
fn what_auto_would_place_depends_on_what_comes_down() {
    let stream = below(1000, (0..40_000).map(|at| at % 1900), false);
    let figures = |contents: f64, busy: f64| {
        let mut adviser = adviser("auto", &with_rate(1.0, 3));
        adviser.adapts(Adapting { by_eviction: 0.0, contents, busy });
        feed(&mut adviser, stream.iter().copied());
        adviser.figures()
    };
    let handed_over = figures(1.0, 1.0);
    assert!(of(&handed_over, "access").is_today, "auto begins so");
    assert!(of(&handed_over, "access").hits.value < 0.1);
    assert!(of(&handed_over, "eviction").hits.value > 0.9);
    assert!(of(&handed_over, "eviction").disk.value < 0.1, "nothing was reloaded");
    let nothing = figures(0.0, 1.0);
    assert!(of(&nothing, "eviction").hits.value < 0.01, "there is no time for reloads");
    let reloaded = figures(0.0, 0.1);
    let hits = of(&reloaded, "eviction").hits.value;
    assert!((0.75..0.95).contains(&hits), "nine in ten are reloaded: {hits}");
    assert!(of(&reloaded, "eviction").disk.value > 0.9, "each hit was reloaded");
}

/// The cache changes sides: today's figures are of the other placement then.
#[test]
fn today_is_the_side_that_the_cache_is_on() {
    let stream = below(1000, (0..40_000).map(|at| at % 1900), true);
    let mut adviser = adviser("auto", &with_rate(1.0, 3));
    adviser.adapts(Adapting { by_eviction: 0.0, contents: 1.0, busy: 1.0 });
    feed(&mut adviser, stream[..20_000].iter().copied());
    let before = adviser.figures();
    assert!(of(&before, "access").is_today);
    assert_eq!(before.adapts.map(|adapts| adapts.name), Some("auto"));
    assert!(of(&before, "eviction").gain.value > 0.8);
    adviser.adapts(Adapting { by_eviction: 1.0, contents: 1.0, busy: 1.0 });
    feed(&mut adviser, stream[20_000..].iter().copied());
    let after = adviser.figures();
    assert!(of(&after, "eviction").is_today);
    assert!(of(&after, "access").gain.value < -0.8);
    assert_eq!(after.adapts.map(|adapts| adapts.by_eviction), Some(1.0));
}

/// The two cells stand for what a cache with such a placement does: a level of full size that
/// places blocks where its own evidence says has the hits of one of them, and the adviser, which
/// sees a sixth of the blocks, says so.
#[test]
fn a_cache_that_adapts_does_what_one_of_the_cells_does() {
    let (first, samples) = (seed_or(1), 4);
    let mut random = SplitMix64::new(first);
    let reads: Vec<u64> = (0..200_000).map(|_| skewed(&mut random, 20_000).0).collect();
    for (placement, has_contents) in [("auto", true), ("eviction", false)] {
        let stream = below(3000, reads.iter().copied(), has_contents);
        let (mut now, mut other, mut truth) = (0.0, 0.0, 0.0);
        for seed in first..first + samples {
            let (figures, hits) = follow(&stream, placement, seed);
            let counted = &hits[hits.len() - figures.reads as usize..];
            truth += counted.iter().filter(|&&hit| hit).count() as f64 / counted.len() as f64;
            let today = figures.today().unwrap();
            assert!(today.placement.starts_with("eviction"), "{placement}: {today:?}");
            now += today.hits.value;
            let is_other = |cell: &&CellFigure| {
                (&cell.policy, cell.blocks, cell.placement.as_str())
                    == (&today.policy, 3000, "access")
            };
            other += figures.cells.iter().find(is_other).unwrap().hits.value;
        }
        let [now, other, truth] = [now, other, truth].map(|sum| sum / samples as f64);
        assert!((now - truth).abs() < 0.04, "{placement}: {now}, in truth {truth}");
        assert!(truth - other > 0.1, "{placement}: {truth}, at the access {other}");
    }
}

/// Lets a level with a placement that adapts, and an adviser, follow what a client passes down.
/// Returns the figures, and which reads the level hit.
fn follow(stream: &[(u64, Kind)], placement: &str, seed: u64) -> (Figures, Vec<bool>) {
    let rules: Placement = match placement {
        "auto" => auto_below_a_server(),
        other => other.parse().unwrap(),
    };
    let lru = Spec::parse("lru").unwrap();
    let mut level = Level::new(&lru, 3000, &rules, WriteMode::Allocate, 1).unwrap();
    let mut today = today("lru", 3000);
    today.placement = rules;
    let mut adviser = Adviser::new(today, &with_rate(1.0 / 6.0, seed)).unwrap();
    let mut hits = Vec::new();
    for round in stream.chunks(500) {
        for &(block, kind) in round {
            let (down, way) = match kind {
                Kind::Evicted { has_contents: true } => {
                    (level.handed_over(block), DataSource::Demote)
                }
                Kind::Evicted { .. } => (level.client_evicted(block), DataSource::Reload),
                _ => {
                    hits.push(level.reference(block, false, || false).hit);
                    (PlacementStep::Skip, DataSource::Reload)
                }
            };
            if down == PlacementStep::Fetch {
                level.arrived(block, way);
            }
            while let Some((block, down)) = level.next_placement() {
                if down == PlacementStep::Fetch {
                    level.arrived(block, DataSource::Reload);
                }
            }
        }
        let at_eviction = level.placement().unwrap();
        adviser.adapts(Adapting {
            by_eviction: if at_eviction.places_evicted() { 1.0 } else { 0.0 },
            contents: at_eviction.contents_share(),
            busy: 1.0,
        });
        feed(&mut adviser, round.iter().copied());
    }
    (adviser.figures(), hits)
}

/// The placement `auto` as a server runs it.
fn auto_below_a_server() -> Placement {
    let Placement::Eviction(rules) = "auto".parse().unwrap() else { unreachable!() };
    Placement::Eviction(Eviction { down: DataSource::Reload, ..rules })
}
