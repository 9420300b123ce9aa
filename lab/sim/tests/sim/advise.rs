//! Advice: its figures are those of simulations, and it says nothing that they do not carry.

use undercroft_adviser::{
    Advice, Assumption, Estimate, Finding, FlashGain, SMALL_IN_TRACES, Verdict,
};
use undercroft_policy::WriteMode;
use undercroft_sim::advise::{CurvePoint, Figure, Part, Prices, Question, Study, advise, study};
use undercroft_sim::{Config, Evictions, LevelConfig, simulate};
use undercroft_trace::DenseTrace;

use crate::common::{Random, blocks, config, seeds, spec, trace};

/// Requests of which some blocks get many, among scans.
fn mixed(random: &mut Random, count: u64) -> DenseTrace {
    let record = |random: &mut Random| {
        let hot = random.below(3) > 0;
        let address = if hot { random.below(200) } else { 200 + random.below(1500) };
        blocks(address.into(), (1 + random.below(2)).into(), random.one_in(10))
    };
    trace((0..count).map(|_| record(random)).collect())
}

fn question(upper: Option<u32>) -> Question {
    Question {
        upper: upper.map(|capacity| LevelConfig { capacity, policy: spec("lru") }),
        evictions: upper.map(|_| Evictions::Exact),
        block_bytes: 4096,
        sizes: Vec::new(),
        policies: ["arc", "mq", "2q"].map(spec).to_vec(),
        exact_requests: u64::MAX,
    }
}

fn found(study: &Study) -> Advice {
    advise(study, None)
}

#[test]
fn figures_are_those_of_simulations() {
    for seed in seeds(3) {
        let trace = mixed(&mut Random(seed), 6000);
        for upper in [None, Some(64)] {
            let found = study(&trace, &question(upper), &|_| ()).unwrap();
            assert_eq!(found.figures.iter().any(|f| !f.is_access()), upper.is_some());
            for figure in &found.figures {
                let levels: Vec<_> = upper
                    .map(|size| (size, "lru"))
                    .into_iter()
                    .chain([(figure.capacity_blocks, figure.policy.as_str())])
                    .collect();
                let config = Config {
                    rule: figure.placement.parse().unwrap(),
                    ..config(&levels, WriteMode::Allocate, 0)
                };
                let run = simulate(&trace, &config, |_| ()).unwrap();
                let level = run.levels.last().unwrap();
                let what = format!("{} {} {upper:?}", figure.policy, figure.placement);
                assert_eq!(found.reads, level.reads, "{what}");
                let ratio = level.read_hits as f64 / level.reads as f64;
                assert_eq!(figure.read_hit_ratio, ratio, "{what}");
                assert_eq!(figure.disk_reads, run.disk_reads() + run.reloads(), "{what}");
                let hits: u64 = figure.parts.iter().map(|part| part.read_hits).sum();
                assert_eq!((hits, figure.parts.len()), (level.read_hits, 8), "{what}");
            }
            for point in &found.lru {
                let same = |f: &&Figure| {
                    f.policy == "lru" && f.capacity_blocks == point.capacity_blocks && f.is_access()
                };
                if let Some(figure) = found.figures.iter().find(same) {
                    assert_eq!(figure.read_hit_ratio, point.read_hit_ratio);
                }
            }
        }
    }
}

/// The parts of all figures are of the same requests, though the client's cache serves fewer at its
/// start than later.
#[test]
fn parts_of_all_figures_are_of_the_same_requests() {
    for seed in seeds(3) {
        let trace = mixed(&mut Random(seed), 6000);
        let found = study(&trace, &question(Some(64)), &|_| ()).unwrap();
        let reads = |parts: &[Part]| parts.iter().map(|part| part.reads).collect::<Vec<_>>();
        let expected = reads(&found.figures[0].parts);
        assert_eq!(expected.len(), 8);
        let parts = found.figures.iter().map(|figure| &figure.parts);
        for parts in parts.chain(found.flash.iter().map(|figure| &figure.parts)) {
            assert_eq!(reads(parts), expected, "UNDERCROFT_SEED={seed}");
        }
        assert!(!found.flash.is_empty() && found.figures.iter().any(|f| !f.is_access()));
    }
}

#[test]
fn sizes_end_where_nothing_is_gained() {
    // Two rounds over 1000 blocks: LRU hits at 1000 blocks, and nothing before.
    let trace = trace((0..2000).map(|i| blocks(i % 1000, 1, false)).collect());
    let found = study(&trace, &question(None), &|_| ()).unwrap();
    let mut sizes: Vec<u32> = found.figures.iter().map(|f| f.capacity_blocks).collect();
    sizes.sort_unstable();
    sizes.dedup();
    assert_eq!(sizes, [16, 32, 64, 128, 256, 512, 1024]);
    assert_eq!((found.reads, found.cold_reads), (2000, 1000));
    let advice = advise(&found, None);
    let wasted = advice.findings.iter().find_map(|finding| match finding {
        Finding::LruWasted { up_to_blocks, .. } => Some(*up_to_blocks),
        _ => None,
    });
    assert!((512..1000).contains(&wasted.unwrap()), "{wasted:?}");
    let enough = advice.findings.iter().find_map(|finding| match finding {
        Finding::Enough { choice } => Some((choice.policy.as_str(), choice.capacity_blocks)),
        _ => None,
    });
    assert_eq!(enough, Some(("lru", 1024)));
}

#[test]
fn a_trace_with_nothing_to_gain_says_so() {
    let trace = trace((0..3000).map(|i| blocks(i, 1, false)).collect());
    let found = study(&trace, &question(None), &|_| ()).unwrap();
    assert!(matches!(advise(&found, None).findings[..], [Finding::NothingToGain { .. }]));
}

/// A loop over 3,000 blocks, not in a row: memory is too small for it, flash is not.
#[test]
fn flash_is_advised_where_it_serves_more() {
    let trace = trace((0..60_000).map(|i| blocks(7 * i % 3000, 1, false)).collect());
    let asked = Question { sizes: vec![500, 1000], ..question(None) };
    let flash = |exact_requests: u64| {
        let found = study(&trace, &Question { exact_requests, ..asked.clone() }, &|_| ()).unwrap();
        advise(&found, None).findings.into_iter().find_map(|finding| match finding {
            Finding::Flash(gain) => Some(gain),
            _ => None,
        })
    };
    let gain = flash(u64::MAX).expect("flash is simulated");
    let FlashGain { memory, flash_blocks, read_hit_ratio, difference, .. } = gain;
    assert_eq!((memory.capacity_blocks, flash_blocks), (1000, 4000));
    assert!(memory.read_hit_ratio < 0.4 && read_hit_ratio > 0.85, "{read_hit_ratio}");
    assert!(difference.value > 0.5, "{difference:?}");
    assert_eq!(flash(1000), None, "a trace that is sampled is too long for it");
}

#[test]
fn a_sample_says_how_far_it_is_off() {
    let trace = mixed(&mut Random(seeds(1)[0]), 60_000);
    let exact = study(&trace, &question(None), &|_| ()).unwrap();
    let sampled = Question { exact_requests: 30_000, ..question(None) };
    let sampled = study(&trace, &sampled, &|_| ()).unwrap();
    let sample = sampled.sampling.unwrap();
    assert!(exact.sampling.is_none() && sample.rate < 0.5 && sample.error > 0.0, "{sample:?}");
    assert_eq!(exact.lru, sampled.lru, "the curve is always exact");
    for (a, b) in exact.figures.iter().zip(&sampled.figures) {
        assert_eq!((&a.policy, a.capacity_blocks), (&b.policy, b.capacity_blocks));
        let off = (a.read_hit_ratio - b.read_hit_ratio).abs();
        let is_lru = a.policy == "lru";
        assert!(!is_lru || off <= sample.error, "{}: {off}", a.policy);
        assert!(off < 0.15, "{} at {}: {off}", a.policy, a.capacity_blocks);
    }
    let named = advise(&sampled, None).assumptions;
    assert!(named.iter().any(|named| matches!(named, Assumption::Sampled { .. })));
}

/// A study of one size with these hit ratios in each eighth of 8,000 reads.
fn study_of(figures: &[(&str, &str, [u64; 8], u64)]) -> Study {
    let figure = |&(policy, placement, hits, reloads): &(&str, &str, [u64; 8], u64)| {
        let sum: u64 = hits.iter().sum();
        let part = |&read_hits: &u64| Part { reads: 1000, read_hits, reloads: reloads / 8 };
        Figure {
            policy: policy.into(),
            placement: placement.into(),
            capacity_blocks: 1024,
            read_hit_ratio: sum as f64 / 8000.0,
            disk_reads: 8000 - sum + reloads,
            reloads,
            parts: hits.iter().map(part).collect(),
        }
    };
    Study {
        block_bytes: 4096,
        reads: 8000,
        writes: 0,
        cold_reads: 1000,
        unique_blocks: 1000,
        upper: None,
        sampling: None,
        lru: vec![CurvePoint { capacity_blocks: 1024, read_hit_ratio: 0.3 }],
        figures: figures.iter().map(figure).collect(),
        flash: Vec::new(),
    }
}

const LRU: (&str, &str, [u64; 8], u64) = ("lru", "access", [300; 8], 0);

#[test]
fn a_difference_below_its_error_is_none() {
    let gains = |hits: [u64; 8]| {
        let advice = found(&study_of(&[LRU, ("mq", "access", hits, 0)]));
        let finding = advice.findings.into_iter().find_map(|finding| match finding {
            Finding::PolicyGains { difference, .. } => Some((true, difference)),
            Finding::NoPolicyGains { difference, .. } => Some((false, difference)),
            _ => None,
        });
        finding.unwrap()
    };
    // Five points in each part.
    let (is_gain, difference) = gains([350; 8]);
    assert!(is_gain && difference.error < 1e-12 && (difference.value - 0.05).abs() < 1e-12);
    // Five points in the mean, of one part.
    let (is_gain, difference) = gains([300, 300, 300, 300, 300, 300, 300, 700]);
    assert!((difference.value - 0.05).abs() < 1e-12 && difference.error > 0.05, "{difference:?}");
    assert!(!is_gain);
    // Steady, but not worth a change.
    assert!(!gains([305; 8]).0);
    // By hand: parts differ by 0 and 20 points in turn, a mean of 10, each 10 away from it.
    let (_, Estimate { error, .. }) = gains([300, 500, 300, 500, 300, 500, 300, 500]);
    let expected = 2.0 * (8.0 * (0.1_f64 / 8.0).powi(2) * 8.0 / 7.0).sqrt();
    assert!((error - expected).abs() < 1e-12, "{error} {expected}");
}

#[test]
fn placement_shows_its_price_in_disk_reads() {
    let study = study_of(&[LRU, ("lru", "eviction", [420; 8], 4000)]);
    let placement = found(&study).findings.into_iter().find_map(|finding| match finding {
        Finding::Placement { choice, base, hits, disk } => Some((choice, base, hits, disk)),
        _ => None,
    });
    let (choice, access, hits, disk) = placement.unwrap();
    assert_eq!((choice.placement.as_str(), access.placement.as_str()), ("eviction", "access"));
    let is_gain = |difference: &Estimate| difference.verdict(SMALL_IN_TRACES) == Verdict::Gain;
    assert!(is_gain(&hits) && (hits.value - 0.12).abs() < 1e-12);
    assert_eq!((choice.disk_reads, access.disk_reads), (8640, 5600));
    assert!(is_gain(&disk) && (disk.value - 0.38).abs() < 1e-12, "{disk:?}");
}

#[test]
fn the_cheapest_is_found_and_a_cache_that_does_not_pay_is_none() {
    let study = study_of(&[LRU, ("mq", "access", [500; 8], 0)]);
    // 1,024 blocks of 4 KiB are 1/256 GiB; 80 reads a second without a cache, of 100 a disk.
    let prices = |memory_gib: f64| Prices {
        memory_gib,
        disk: 50.0,
        disk_reads_per_s: 100.0,
        duration_s: 100.0,
    };
    let first = |memory: f64| advise(&study, Some(&prices(memory))).findings.swap_remove(1);
    let Finding::Cheapest { choice, cost, without, .. } = first(256.0) else { panic!("a price") };
    assert_eq!(choice.unwrap().policy, "mq");
    assert_eq!((cost.memory, cost.disks, cost.total), (1.0, 0.4, 21.0));
    assert_eq!((without.disks, without.total), (0.8, 40.0));
    // Memory that costs 25 saves 20.
    let Finding::Cheapest { choice, cost, without, .. } = first(6400.0) else { panic!("a price") };
    assert_eq!((choice, cost), (None, without));
}

#[test]
fn a_trace_from_above_a_cache_is_suspected() {
    let advice = found(&study_of(&[LRU]));
    let first = &advice.findings[0];
    assert!(matches!(first, Finding::Unfiltered { lru } if lru.policy == "lru"), "{first:?}");
    assert!(advice.assumptions.contains(&Assumption::BelowClient));
    assert!(advice.assumptions.contains(&Assumption::EvictionsUnknown));
    let trace = mixed(&mut Random(seeds(1)[0]), 2000);
    let below = study(&trace, &question(Some(64)), &|_| ()).unwrap();
    let client = Assumption::Client { policy: "lru".into(), capacity_blocks: 64 };
    assert_eq!(found(&below).assumptions[..2], [client, Assumption::EvictionsKnown]);
    let suspected = |found: &Finding| matches!(found, Finding::Unfiltered { .. });
    assert!(!found(&below).findings.iter().any(suspected), "a client's cache was named");
    let alone = simulate(&trace, &config(&[(64, "lru")], WriteMode::Allocate, 0), |_| ()).unwrap();
    assert_eq!(below.upper.unwrap().read_hits, alone.levels[0].read_hits);
}
