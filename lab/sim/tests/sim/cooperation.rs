//! Levels that cooperate, driven by traces: what is counted, the warm-up, traces that are cut into
//! chunks, and how well an emulated client is known.

use crate::common::{self, Random, config, seeds};
use undercroft_level::placement::Placement;
use undercroft_level::{CONFIDENT, Level};
use undercroft_policy::{Context, Reference, Spec, WriteMode};
use undercroft_sim::tree::Tree;
use undercroft_sim::{Config, Error, Evictions, Outcome, simulate};
use undercroft_trace::DenseTrace;

const BLOCKS: u32 = 3000;

/// A skewed trace, with writes, of more than one chunk.
fn trace(seed: u64, requests: u32) -> DenseTrace {
    let mut random = Random(seed);
    let mut request = || common::blocks(random.block(BLOCKS).into(), 1, random.one_in(5));
    common::trace((0..requests).map(|_| request()).collect())
}

fn run(
    trace: &DenseTrace,
    config: &Config,
    placement: &str,
    evictions: Evictions,
) -> Result<Outcome, Error> {
    let rule = placement.parse().unwrap();
    simulate(trace, &Config { rule, evictions, ..config.clone() }, |_| ())
}

/// The simulation counts what a `Tree` counts that is driven by hand, with and
/// without a warm-up.
#[test]
fn counts_what_the_levels_count() {
    for seed in seeds(3) {
        let trace = trace(seed, 150_000);
        for (placement, levels) in [
            ("gl", &[(200, "lru"), (300, "mq"), (500, "2q")][..]),
            ("eviction,on-hit=move", &[(200, "lru"), (400, "mq")]),
            ("eviction,on-hit=adaptive,staging=auto", &[(200, "arc"), (400, "lru")]),
        ] {
            let warmup = 70_000;
            let config = config(levels, WriteMode::Allocate, warmup);
            let ours = run(&trace, &config, placement, Evictions::Exact).unwrap();
            let spec = |text: &str| Spec::parse(text).unwrap();
            let rules: Placement = placement.parse().unwrap();
            let lower = levels[1..].iter().map(|&(size, text)| {
                Level::new(&spec(text), size, &rules, WriteMode::Allocate, 0).unwrap()
            });
            let lower = lower.collect();
            let top = spec(levels[0].1).build(&Context::new(levels[0].0)).unwrap();
            let mut theirs = Tree::line(Some((top, WriteMode::Allocate)), lower).unwrap();
            let mut chunks = trace.forward();
            let mut at = 0;
            while let Some((_, chunk)) = chunks.next().unwrap() {
                for r in chunk {
                    if at == warmup {
                        theirs.restart_counts();
                    }
                    theirs.refer(Reference::new(r.block(), r.is_write()));
                    at += 1;
                }
            }
            assert_eq!(
                &ours.levels[0],
                theirs.clients().first().unwrap().cache().counts(),
                "{placement}"
            );
            let placed = &ours.cooperation.as_ref().unwrap().levels;
            for (i, level) in theirs.lower().iter().enumerate() {
                assert_eq!(&ours.levels[i + 1], level.cache().counts(), "{placement}");
                assert_eq!(placed[i + 1], level.placement().unwrap().counts(), "{placement}");
            }
            assert_eq!(ours.reads(), ours.levels[0].reads);
            let below = ours.levels[0].reads - ours.levels[0].read_hits;
            assert_eq!(ours.levels[1].reads, below, "what the first level misses goes down");
        }
    }
}

/// What is evicted above is what comes down, and each of these costs a read where it is reloaded.
#[test]
fn every_eviction_is_accounted_for() {
    let trace = trace(1, 100_000);
    let levels = config(&[(200, "lru"), (400, "mq")], WriteMode::Allocate, 0);
    for placement in ["eviction,on-hit=move", "eviction,on-hit=keep,threshold=3,staging=50", "gl"] {
        let outcome = run(&trace, &levels, placement, Evictions::Exact).unwrap();
        let cooperation = outcome.cooperation.as_ref().unwrap();
        let placed = cooperation.levels[1];
        let came = placed.already_here + placed.reloads + placed.demotions_in;
        assert_eq!(placed.known_evictions, outcome.levels[0].evictions, "{placement}");
        assert_eq!(placed.known_evictions, came + placed.staged + placed.skipped, "{placement}");
        assert_eq!(outcome.reloads(), placed.reloads);
        let hints = if placement == "gl" { 0 } else { 8 * placed.known_evictions };
        assert_eq!(cooperation.hint_bytes, hints, "{placement}");
    }
}

/// Below a client of LRU the emulation finds roughly its evictions, and says how well; a client
/// that nothing can be told of is served with access-based placement.
#[test]
fn an_emulated_client() {
    let trace = trace(7, 400_000);
    let levels = config(&[(300, "lru"), (600, "lru")], WriteMode::NoAllocate, 200_000);
    let percent = |placement: &str, evictions: Evictions| {
        let outcome = run(&trace, &levels, placement, evictions).unwrap();
        (100.0 * outcome.levels[1].read_hit_ratio(), outcome.cooperation)
    };
    let (access, _) = percent("access", Evictions::Exact);
    let (exact, _) = percent("eviction,on-hit=move", Evictions::Exact);
    let (ours, cooperation) = percent("eviction,on-hit=move", Evictions::Estimated);
    let estimate = cooperation.unwrap().estimate.unwrap();
    println!("access {access:.2}, exact {exact:.2}, estimated {ours:.2}: {estimate:?}");
    assert!(estimate.client_blocks > 0 && estimate.client_blocks <= 600, "{estimate:?}");
    assert!(estimate.fallback <= 1.0 && estimate.true_precision.is_some());
    assert!(ours > access - 1.0 && ours <= exact + 1.0, "{access} {ours} {exact}");
    // Every block is asked for and at once asked for again: it never holds anything.
    let pair = |i: u64| common::blocks(i / 2 % 500, 1, false);
    let pairs = common::trace((0..60_000).map(pair).collect());
    let one = config(&[(50, "lru")], WriteMode::Allocate, 0);
    let outcome = run(&pairs, &one, "eviction,on-hit=move", Evictions::Estimated).unwrap();
    let estimate = outcome.cooperation.as_ref().unwrap().estimate.unwrap();
    assert!(estimate.recall < CONFIDENT && estimate.fallback > 0.9, "{estimate:?}");
    assert_eq!(estimate.true_precision, None);
}
