//! Miss ratio curves against simulations at every size, against the definition of stack distance,
//! and against the best that any choice of victims could do.
//!
//! A failure prints the seed; `UNDERCROFT_SEED=n cargo test -p undercroft-sim` runs that one again.

use std::sync::Arc;

use crate::common::{Random, online_policies, seeds, spec};
use undercroft_level::DenseLevel;
use undercroft_policy::{Context, Future, Reference, WriteMode};
use undercroft_sim::curve::{Curve, LruStack, opt_curve, sampled_curve};
use undercroft_sim::{Config, Error, LevelConfig, simulate};
use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, GeneratorSpec};

/// Random references to blocks that are numbered by first touch, a quarter of them writes.
fn random_refs(random: &mut Random, blocks: u32, length: usize) -> Vec<Reference> {
    let mut numbers = vec![u32::MAX; blocks as usize];
    let mut met = 0;
    let one = |_| {
        let number = &mut numbers[random.block(blocks) as usize];
        if *number == u32::MAX {
            *number = met;
            met += 1;
        }
        Reference::new(*number, random.one_in(4))
    };
    (0..length).map(one).collect()
}

fn entries(refs: &[Reference]) -> u32 {
    refs.iter().map(|r| r.entry() + 1).max().unwrap_or(0)
}

fn lru_curve(refs: &[Reference]) -> Curve {
    let mut stack = LruStack::new();
    stack.feed(entries(refs), refs);
    stack.finish()
}

/// Read and write hits of a policy.
fn simulated(text: &str, capacity: u32, refs: &[Reference]) -> (u64, u64) {
    let coming = refs.iter().map(|r| r.entry()).collect();
    let future = Some(Arc::new(Future::new(coming).expect("short enough")));
    let policy = spec(text).build(&Context { capacity, future }).expect(text);
    let mut level = DenseLevel::new(policy, WriteMode::Allocate);
    level.replay(entries(refs), refs, None);
    (level.counts().read_hits, level.counts().write_hits)
}

/// Every string of this length over four blocks, up to the names of the blocks.
fn short_strings(length: u32) -> impl Iterator<Item = Vec<Reference>> {
    (0..4_u32.pow(length)).filter_map(move |code| {
        let string: Vec<_> = (0..length).map(|i| code >> (2 * i) & 3).collect();
        let in_order = string.iter().try_fold(0, |next, &b| match b {
            b if b < next => Some(next),
            b if b == next => Some(next + 1),
            _ => None,
        });
        in_order.map(|_| string.into_iter().map(Reference::read).collect())
    })
}

/// The definition: 1 + the number of distinct other blocks since the last reference to the block.
fn stack_distance(refs: &[Reference], at: usize) -> Option<u32> {
    let last = (0..at).rev().find(|&i| refs[i].entry() == refs[at].entry())?;
    let mut between: Vec<_> = refs[last + 1..at].iter().map(|r| r.entry()).collect();
    between.sort_unstable();
    between.dedup();
    Some(between.len() as u32 + 1)
}

#[test]
fn lru_hits_where_the_stack_distance_is_at_most_the_capacity() {
    for refs in short_strings(7) {
        let curve = lru_curve(&refs);
        let distances: Vec<_> = (0..refs.len()).filter_map(|i| stack_distance(&refs, i)).collect();
        for capacity in 0..6 {
            let hits = distances.iter().filter(|&&distance| distance <= capacity).count() as u64;
            assert_eq!(curve.hits(capacity), (hits, 0), "{refs:?} in {capacity}");
        }
    }
}

/// The example of the specification: in A B C D B A X, B is found at depth 3 and A at depth 4.
#[test]
fn worked_example_of_the_reuse_distance() {
    let refs: Vec<_> = [0, 1, 2, 3, 1, 0, 4].map(Reference::read).to_vec();
    assert_eq!(lru_curve(&refs).read_hits(), [0, 0, 0, 1, 2]);
}

#[test]
fn lru_curve_equals_a_simulation_at_every_capacity() {
    for seed in seeds(12) {
        let mut random = Random(seed);
        let blocks = 1 + random.below(150);
        let refs = random_refs(&mut random, blocks, 3000);
        // In pieces, each of which may bring new blocks.
        let mut stack = LruStack::new();
        let mut at = 0;
        while at < refs.len() {
            let end = refs.len().min(at + 1 + random.below(500) as usize);
            stack.feed(entries(&refs[..end]), &refs[at..end]);
            at = end;
        }
        let curve = stack.finish();
        assert_eq!(curve, lru_curve(&refs), "UNDERCROFT_SEED={seed}: in pieces and at once");
        assert_eq!(curve.reads + curve.writes, 3000);
        for capacity in 1..blocks + 2 {
            let expected = simulated("lru", capacity, &refs);
            assert_eq!(
                curve.hits(capacity),
                expected,
                "UNDERCROFT_SEED={seed}, capacity {capacity}"
            );
        }
    }
}

/// The bitmap of times starts with room for 65,536: few blocks make it compact again and again at
/// that size, many make it grow as well.
#[test]
fn lru_curve_survives_compaction() {
    for seed in seeds(2) {
        for (blocks, length) in [(1, 200_000), (300, 400_000), (33_500, 400_000), (90_000, 500_000)]
        {
            let mut random = Random(seed);
            let refs = random_refs(&mut random, blocks, length);
            let curve = lru_curve(&refs);
            let sizes = [1, 2, 3, blocks / 100, blocks / 10, blocks / 2, blocks - 1, blocks];
            for capacity in sizes.into_iter().filter(|&size| size > 0) {
                let expected = simulated("lru", capacity, &refs);
                assert_eq!(
                    curve.hits(capacity),
                    expected,
                    "UNDERCROFT_SEED={seed}, {blocks}: {capacity}"
                );
            }
        }
    }
}

/// Loops over as many blocks as the bitmap has times, a few less and a few more: everything is
/// found at the bottom of the stack, or nothing is.
#[test]
fn lru_curve_of_loops_about_as_long_as_the_bitmap() {
    for blocks in [32_767, 32_768, 32_769, 65_535, 65_536, 65_537] {
        let refs: Vec<_> = (0..4 * blocks).map(|i| Reference::read(i % blocks)).collect();
        let curve = lru_curve(&refs);
        assert_eq!(curve.hits(blocks - 1), (0, 0));
        assert_eq!(curve.hits(blocks), (3 * u64::from(blocks), 0));
    }
}

#[test]
fn opt_curve_equals_a_simulation_at_every_capacity() {
    for seed in seeds(12) {
        let mut random = Random(seed);
        let blocks = 1 + random.below(60);
        let refs = random_refs(&mut random, blocks, 2000);
        let curve = opt_curve(&refs).expect("short enough");
        for capacity in 1..blocks + 2 {
            let expected = simulated("opt", capacity, &refs);
            assert_eq!(
                curve.hits(capacity),
                expected,
                "UNDERCROFT_SEED={seed}, capacity {capacity}"
            );
        }
    }
    for seed in seeds(2) {
        let mut random = Random(seed);
        let refs = random_refs(&mut random, 5000, 60_000);
        let curve = opt_curve(&refs).expect("short enough");
        for capacity in [1, 2, 10, 100, 1000, 2500, 4000, 4999, 5000] {
            let expected = simulated("opt", capacity, &refs);
            assert_eq!(
                curve.hits(capacity),
                expected,
                "UNDERCROFT_SEED={seed}, capacity {capacity}"
            );
        }
    }
}

/// The most hits that any choice of victims gives, by trying all choices. The missed block is
/// always cached, as in the curve.
fn best_of_all_choices(refs: &[Reference], capacity: u32) -> u64 {
    let mut best = [None; 16];
    best[0] = Some(0_u64);
    for reference in refs {
        let block = 1_usize << reference.entry();
        let mut next = [None; 16];
        for (held, hits) in
            best.iter().enumerate().filter_map(|(held, hits)| Some((held, (*hits)?)))
        {
            let mut reach = |held: usize, hits| next[held] = next[held].max(Some(hits));
            if held & block != 0 {
                reach(held, hits + 1);
            } else if held.count_ones() < capacity {
                reach(held | block, hits);
            } else {
                let victims = (0..4).map(|i| 1 << i).filter(|victim| held & victim != 0);
                victims.for_each(|victim| reach(held & !victim | block, hits));
            }
        }
        best = next;
    }
    best.into_iter().flatten().max().expect("some state is reached")
}

#[test]
fn opt_is_the_best_of_all_choices() {
    for refs in short_strings(8) {
        let curve = opt_curve(&refs).expect("short enough");
        for capacity in 1..=4 {
            assert_eq!(curve.hits(capacity).0, best_of_all_choices(&refs, capacity), "{refs:?}");
        }
    }
}

/// OPT is the bound of reads and writes together: with writes it may serve fewer reads than others.
#[test]
fn nothing_exceeds_opt() {
    for seed in seeds(6) {
        let mut random = Random(seed);
        let blocks = 2 + random.below(80);
        let refs = random_refs(&mut random, blocks, 3000);
        let bound = opt_curve(&refs).expect("short enough");
        for name in online_policies() {
            for capacity in [1, 2, blocks / 4 + 1, blocks / 2 + 1, blocks] {
                let (reads, writes) = simulated(name, capacity, &refs);
                let (opt_reads, opt_writes) = bound.hits(capacity);
                assert!(
                    reads + writes <= opt_reads + opt_writes,
                    "UNDERCROFT_SEED={seed}: {name} in {capacity} has {reads} + {writes} hits, \
                     opt {opt_reads} + {opt_writes}"
                );
            }
        }
    }
}

#[test]
fn all_sizes_at_once_are_the_sizes_one_by_one() {
    for seed in seeds(10) {
        let mut random = Random(seed);
        let blocks = 1 + random.below(100);
        let refs = random_refs(&mut random, blocks, 1000);
        for curve in [lru_curve(&refs), opt_curve(&refs).expect("short enough")] {
            let all = curve.read_hits();
            for (capacity, &hits) in all.iter().enumerate() {
                assert_eq!(
                    curve.hits(capacity as u32).0,
                    hits,
                    "UNDERCROFT_SEED={seed}, {capacity}"
                );
            }
            let most = *all.last().expect("never empty");
            for beyond in [all.len() as u32, blocks, 1 << 30, u32::MAX] {
                assert_eq!(
                    curve.hits(beyond).0.max(most),
                    most,
                    "UNDERCROFT_SEED={seed}, {beyond}"
                );
            }
            assert_eq!(curve.hits(u32::MAX).0, most);
            assert!(
                all.len() == 1 || all[all.len() - 2] < most,
                "UNDERCROFT_SEED={seed}: ends too late"
            );
            let ratio = curve.read_hit_ratio(u32::MAX);
            assert_eq!(ratio, most as f64 / curve.reads as f64);
        }
    }
}

#[test]
fn curves_of_next_to_nothing() {
    let nothing = [LruStack::new().finish(), opt_curve(&[]).expect("short enough")];
    for curve in nothing {
        assert_eq!((curve.read_hits(), curve.hits(9), curve.reads), (vec![0], (0, 0), 0));
        assert_eq!(curve.read_hit_ratio(1), 0.0);
    }
    let once: Vec<_> = [Reference::read(0), Reference::write(1)].to_vec();
    for curve in [lru_curve(&once), opt_curve(&once).expect("short enough")] {
        assert_eq!((curve.read_hits(), curve.reads, curve.writes), (vec![0], 1, 1));
    }
    // Only a write is repeated: the read that finds what was written counts, at depth 1.
    let refs: Vec<_> = [Reference::write(0), Reference::write(0), Reference::read(0)].to_vec();
    for curve in [lru_curve(&refs), opt_curve(&refs).expect("short enough")] {
        assert_eq!((curve.read_hits(), curve.hits(1)), (vec![0, 1], (1, 1)));
    }
}

/// The sample of a generated trace.
fn generated(parameters: &str, sample_rate: f64) -> DenseTrace {
    let reader = GeneratorSpec::parse("zipf", parameters).expect("a generator").reader();
    let options = BlockOptions { sample_rate, ..BlockOptions::default() };
    let stream = BlockStream::new(reader, &options).expect("right options");
    DenseTrace::load(stream, |_| ()).expect("nothing to go wrong")
}

fn exact(trace: &DenseTrace, policy: &str, capacity: u32) -> f64 {
    let config = Config {
        levels: vec![LevelConfig { capacity, policy: spec(policy) }],
        write_mode: WriteMode::Allocate,
        ..Config::default()
    };
    simulate(trace, &config, |_| ()).expect("nothing to go wrong").read_hit_ratio()
}

const SIZES: [u32; 8] = [30, 100, 300, 1000, 3000, 6000, 12_000, 24_000];

#[test]
fn a_sample_of_nearly_all_blocks_is_exact() {
    let parameters = "blocks=30000,requests=100000,writes=0.2,seed=7";
    let whole = generated(parameters, 1.0);
    let rate = 1.0 - 1e-9;
    let sample = generated(parameters, rate);
    assert_eq!(sample.kept(), whole.seen());
    for policy in ["lru", "mq", "arc"] {
        let curve = sampled_curve(&sample, rate, &spec(policy), &SIZES).expect("a curve");
        for (point, capacity) in curve.iter().zip(SIZES) {
            let difference = point.read_hit_ratio - exact(&whole, policy, capacity);
            assert_eq!(point.capacity, capacity);
            assert!(difference.abs() < 1e-8, "{policy} in {capacity}: {difference}");
        }
    }
}

/// From 1 % of the blocks upwards. Below that the caches of the sample hold a handful of blocks,
/// and whether the few most popular ones are among them decides: errors of 0.1 and more occur.
const SIZES_FROM_A_HUNDREDTH: [u32; 7] = [300, 600, 1200, 3000, 6000, 12_000, 24_000];

#[test]
fn a_sample_of_a_tenth_is_near() {
    const SIZES: [u32; 7] = SIZES_FROM_A_HUNDREDTH;
    for seed in [1, 2, 3] {
        let parameters = format!("blocks=30000,requests=300000,alpha=0.9,seed={seed}");
        let (whole, sample) = (generated(&parameters, 1.0), generated(&parameters, 0.1));
        for policy in ["lru", "mq", "arc"] {
            let curve = sampled_curve(&sample, 0.1, &spec(policy), &SIZES).expect("a curve");
            let errors = curve.iter().map(|p| p.read_hit_ratio - exact(&whole, policy, p.capacity));
            let mean = errors.map(f64::abs).sum::<f64>() / SIZES.len() as f64;
            println!("seed {seed}, {policy}: mean absolute error {mean:.4}");
            assert!(mean < 0.02, "seed {seed}, {policy}: mean absolute error {mean}");
            let again = sampled_curve(&sample, 0.1, &spec(policy), &SIZES).expect("a curve");
            assert_eq!(curve, again);
        }
    }
}

/// It says nothing about the hit ratio; taken at its word it would promise 100 %.
#[test]
fn a_sample_without_any_block_is_refused() {
    let sample = generated("blocks=10,requests=100", 1e-9);
    assert!(sample.is_empty());
    let error = sampled_curve(&sample, 1e-9, &spec("lru"), &SIZES).unwrap_err();
    assert!(matches!(&error, Error::Request(why) if why.contains("larger rate")), "{error}");
}
