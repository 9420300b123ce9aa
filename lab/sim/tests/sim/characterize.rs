//! The characterisation of traces: the worked examples of the specification, every metric against
//! its definition on random and on all short inputs, samples against the whole, and pinned figures
//! of real traces.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use undercroft_level::DenseLevel;
use undercroft_policy::{Reference, WriteMode};
use undercroft_sim::characterize::{
    Cells, Characterization, Config, DistanceReport, Frequencies, Histogram, IdleDistances, Split,
    StackDepths, bin, characterize, watch,
};
use undercroft_sim::{Error, LevelConfig};
use undercroft_trace::{
    BlockOptions, BlockStream, GeneratorSpec, Reader, Record, Renumbering, Unit,
};

use crate::common::{Memory, Random, blocks, seeds, spec};
use crate::real_traces::reader;

/// An example of the specification.
fn example(id: &str) -> Value {
    let text = include_str!("data/metric-examples.json");
    let data: Value = serde_json::from_str(text).unwrap();
    let examples = data["examples"].as_array().unwrap();
    examples.iter().find(|example| example["id"] == id).unwrap().clone()
}

/// A = 0, B = 1, ...
fn letters(list: &Value) -> Vec<u32> {
    let number = |letter: &Value| u32::from(letter.as_str().unwrap().as_bytes()[0] - b'A');
    list.as_array().unwrap().iter().map(number).collect()
}

fn numbers(list: &Value) -> Vec<Option<u64>> {
    list.as_array().unwrap().iter().map(Value::as_u64).collect()
}

/// By the definition: (temporal, stack) distance of each reference, no matter how slowly.
fn naive_distances(refs: &[u32]) -> Vec<(Option<u64>, Option<u64>)> {
    let distance = |at: usize| {
        let Some(last) = (0..at).rev().find(|&i| refs[i] == refs[at]) else { return (None, None) };
        let between: BTreeSet<u32> = refs[last + 1..at].iter().copied().collect();
        (Some((at - last) as u64), Some(between.len() as u64 + 1))
    };
    (0..refs.len()).map(distance).collect()
}

fn config(caches: &[(u32, &str)]) -> Config {
    let level = |&(capacity, text): &(u32, &str)| LevelConfig { capacity, policy: spec(text) };
    Config {
        block_bytes: 4096,
        unit_bytes: None,
        rate: 1.0,
        max_blocks: u32::MAX,
        caches: caches.iter().map(level).collect(),
        upper: None,
    }
}

fn try_to(reader: Box<dyn Reader>, config: &Config) -> Result<Option<Characterization>, Error> {
    let (reader, counter) = watch(reader);
    let options = BlockOptions {
        block_bytes: config.block_bytes,
        sample_rate: config.rate,
        origins: true,
        evictions: true,
        ..BlockOptions::default()
    };
    let mut stream = BlockStream::new(reader, &options).unwrap();
    characterize(&mut stream, &counter, config, |_| ())
}

fn describe(reader: Box<dyn Reader>, config: &Config) -> Option<Characterization> {
    try_to(reader, config).unwrap()
}

fn describe_records(records: Vec<Record>, config: &Config) -> Characterization {
    describe(Box::new(Memory::new(Unit::Blocks, records)), config).unwrap()
}

/// Reads of single blocks.
fn read_all(refs: &[u32]) -> Vec<Record> {
    refs.iter().map(|&block| blocks(block.into(), 1, false)).collect()
}

fn bins(of: &Histogram) -> Vec<(u64, u64)> {
    of.bins().filter(|&(_, count)| count > 0).collect()
}

#[test]
fn reuse_1() {
    let example = example("reuse-1");
    let refs = letters(&example["refs"]);
    let naive = naive_distances(&refs);
    let (temporal, stack): (Vec<_>, Vec<_>) = naive.into_iter().unzip();
    assert_eq!(temporal, numbers(&example["temporal_distance"]));
    assert_eq!(stack, numbers(&example["stack_distance_1based"]));
    let mut depths = StackDepths::default();
    depths.grow(26);
    let ours = refs.iter().map(|&block| depths.reference(block).map(u64::from));
    assert_eq!(ours.collect::<Vec<_>>(), numbers(&example["stack_distance_1based"]));
    let found = describe_records(read_all(&refs), &config(&[]));
    let counted = |report: &undercroft_sim::characterize::DistanceReport| -> Vec<(u64, u64)> {
        report.bins.iter().map(|bin| (bin.up_to, bin.requests)).collect()
    };
    assert_eq!(counted(&found.stack_distance), [(4, 2)]);
    assert_eq!(counted(&found.temporal_distance), [(4, 1), (8, 1)]);
}

#[test]
fn bins_1() {
    let example = example("bins-1");
    let ours: Vec<_> = numbers(&example["values"]).iter().map(|v| Some(bin(v.unwrap()))).collect();
    assert_eq!(ours, numbers(&example["bins"]));
    assert_eq!(bin(u64::MAX), 1 << 63);
}

#[test]
fn freq_1() {
    let example = example("freq-1");
    let mut frequencies = Frequencies::default();
    frequencies.grow(26);
    letters(&example["refs"]).into_iter().for_each(|block| frequencies.reference(block));
    let table = frequencies.table();
    let at_least: Vec<_> = table.iter().map(|row| Some(row.at_least)).collect();
    assert_eq!(at_least, numbers(&example["f"]));
    let percents = |list: &Value| -> Vec<f64> {
        list.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    };
    let ours = |share: fn(&undercroft_sim::characterize::FrequencyRow) -> f64| -> Vec<f64> {
        table.iter().map(|row| 100.0 * share(row)).collect()
    };
    assert_eq!(ours(|row| row.block_share), percents(&example["blocks_pct"]));
    assert_eq!(ours(|row| row.reference_share), percents(&example["accesses_pct"]));
}

#[test]
fn hill_1() {
    let example = example("hill-1");
    let mut histogram = Histogram::default();
    for (distance, count) in example["hist"].as_object().unwrap() {
        histogram.add_many(distance.parse().unwrap(), count.as_u64().unwrap());
    }
    let hill = histogram.hill().unwrap();
    let expected = ["minDist", "peakDist", "maxDist"].map(|name| example[name].as_u64().unwrap());
    assert_eq!([hill.min, hill.peak, hill.max], expected);
    assert_eq!(Histogram::default().hill(), None);
    assert_eq!(Histogram::default().median(), None);
}

/// The idle distances below a cache with this policy and size, as rows (position, block, access
/// based, eviction based).
fn idle_rows(refs: &[u32], capacity: u32) -> Vec<(u64, u32, u64, u64)> {
    let policy = spec("lru").build(&undercroft_policy::Context::new(capacity)).unwrap();
    let mut upper = DenseLevel::new(policy, WriteMode::Allocate);
    let mut idle = IdleDistances::default();
    idle.grow(26);
    let (mut position, mut last, mut rows) = (0, BTreeMap::new(), Vec::new());
    for &block in refs {
        if !upper.reference(26, Reference::read(block)) {
            position += 1;
            let previous = last.insert(block, position);
            let row = idle.reference(block, position, previous);
            rows.extend(row.map(|(access, eviction)| (position, block, access, eviction)));
        }
        upper.evicted().for_each(|block| idle.evicted(block, position));
    }
    rows
}

#[test]
fn idle_1() {
    let example = example("idle-1");
    let refs = letters(&example["refs"]);
    let row = |row: &Value| {
        let number = |name: &str| row[name].as_u64().unwrap();
        assert_eq!(number("reuse"), number("idle_access_based"));
        assert_eq!(number("eviction"), number("idle_eviction_based"));
        let block = letters(&serde_json::json!([row["block"]]))[0];
        (number("t"), block, number("reuse"), number("eviction"))
    };
    let expected: Vec<_> = example["rows"].as_array().unwrap().iter().map(row).collect();
    assert_eq!(idle_rows(&refs, 2), expected);

    let config =
        Config { upper: Some(LevelConfig { capacity: 2, policy: spec("lru") }), ..config(&[]) };
    let idle = describe_records(read_all(&refs), &config).idle_distance.unwrap();
    let sums = expected.iter().fold((0, 0), |sums, row| (sums.0 + row.2, sums.1 + row.3));
    let rows = expected.len() as f64;
    assert_eq!(idle.mean_access_based, sums.0 as f64 / rows);
    assert_eq!(idle.mean_eviction_based, sums.1 as f64 / rows);
    assert_eq!((idle.requests, idle.left_out, idle.source), (5, 0, "upper"));
}

fn cells(example: &Value) -> Cells {
    let cell = |name: &str| example[name].as_u64().unwrap();
    Cells {
        lt_hits: cell("lt_hits"),
        lt_misses: cell("lt_misses"),
        ge_hits: cell("ge_hits"),
        ge_misses: cell("ge_misses"),
        first: cell("first"),
    }
}

#[test]
fn split_1() {
    let example = example("split-1");
    let refs = letters(&example["refs"]);
    let (temporal, stack): (Vec<_>, Vec<_>) = naive_distances(&refs).into_iter().unzip();
    assert_eq!(temporal, numbers(&example["temporal"]));
    assert_eq!(stack, numbers(&example["stack"]));
    let mut split = Split::new(&config(&[(3, "lru")]).caches[0], 1.0).unwrap();
    for (i, &block) in refs.iter().enumerate() {
        split.reference(26, Reference::read(block), temporal[i], stack[i]);
    }
    assert_eq!(split.by_temporal, cells(&example["by_temporal"]));
    assert_eq!(split.by_stack, cells(&example["by_stack"]));
    let found = describe_records(read_all(&refs), &config(&[(3, "lru")]));
    assert_eq!(found.splits[0].by_temporal, cells(&example["by_temporal"]));
    assert_eq!(found.splits[0].by_stack, cells(&example["by_stack"]));
}

/// Everything about references to single blocks, by definition.
fn check(refs: &[u32], writes: &[bool]) {
    let records: Vec<_> = refs.iter().zip(writes).map(|(&b, &w)| blocks(b.into(), 1, w)).collect();
    let found = describe_records(records, &config(&[(3, "lru"), (5, "mq"), (4, "w-tinylfu")]));
    let naive = naive_distances(refs);
    let distinct: BTreeSet<u32> = refs.iter().copied().collect();
    assert_eq!(found.blocks.requests, refs.len() as u64);
    assert_eq!(found.blocks.unique_blocks, distinct.len() as u64);
    assert_eq!(found.blocks.cold_requests, distinct.len() as u64);

    // Distances.
    let check_bins = |distances: Vec<u64>,
                      report: &undercroft_sim::characterize::DistanceReport| {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for distance in &distances {
            let bin = (0..64).map(|i| 1 << i).find(|bin| bin >= distance).unwrap();
            *counts.entry(bin).or_default() += 1;
        }
        let ours = report.bins.iter().filter(|bin| bin.requests > 0);
        let ours: BTreeMap<u64, u64> = ours.map(|bin| (bin.up_to, bin.requests)).collect();
        assert_eq!(ours, counts, "{refs:?}");
        let sum = report.bins.last().map_or(0.0, |bin| bin.cumulative_share);
        assert!((sum - distances.len() as f64 / refs.len().max(1) as f64).abs() < 1e-12);
        let mut sorted = distances;
        sorted.sort_unstable();
        let median = sorted.get(sorted.len().saturating_sub(1) / 2).map(|&d| d.next_power_of_two());
        assert_eq!(report.median, median, "{refs:?}");
        let full = counts.values().max().copied();
        let peak = full.and_then(|full| counts.iter().find(|(_, count)| **count == full));
        assert_eq!(report.hill.map(|hill| hill.peak), peak.map(|(&bin, _)| bin));
        if let Some(hill) = report.hill {
            let high = |bin: u64| counts.get(&bin).is_some_and(|&c| 10 * c >= full.unwrap());
            assert!(
                (0..64).map(|i| 1 << i).filter(|b| (hill.min..=hill.max).contains(b)).all(high)
            );
            assert!((hill.min == 1 || !high(hill.min / 2)) && !high(hill.max * 2));
        }
    };
    check_bins(naive.iter().filter_map(|d| d.0).collect(), &found.temporal_distance);
    check_bins(naive.iter().filter_map(|d| d.1).collect(), &found.stack_distance);

    // Frequencies.
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    refs.iter().for_each(|&block| *counts.entry(block).or_default() += 1);
    for row in &found.frequency {
        let often: Vec<u64> = counts.values().copied().filter(|&n| n >= row.at_least).collect();
        assert_eq!(row.blocks, often.len() as u64, "{refs:?}");
        let share = often.iter().sum::<u64>() as f64 / refs.len().max(1) as f64;
        assert!((row.reference_share - share).abs() < 1e-12);
    }
    assert_eq!(found.frequency.last().unwrap().blocks, 0);
    for part in &found.concentration {
        let mut most: Vec<u64> = counts.values().copied().collect();
        most.sort_unstable_by(|a, b| b.cmp(a));
        let wanted = (part.reference_share * refs.len() as f64).ceil() as u64;
        let enough = |n: &usize| most[..*n].iter().sum::<u64>() >= wanted;
        assert_eq!(part.blocks, (0..=most.len()).find(enough).unwrap() as u64, "{refs:?}");
    }

    // Working sets.
    let length = found.working_set.window_requests as usize;
    assert!(length.is_power_of_two() && found.working_set.windows.len() <= 16);
    assert_eq!(found.working_set.windows.len(), refs.len().div_ceil(length));
    let mut seen = BTreeSet::new();
    let windows = refs.chunks(length).zip(writes.chunks(length));
    for ((refs, writes), ours) in windows.zip(&found.working_set.windows) {
        let here: BTreeSet<u32> = refs.iter().copied().collect();
        let new = here.difference(&seen).count() as u64;
        seen.extend(&here);
        let reads = writes.iter().filter(|w| !**w).count() as u64;
        let expected = (refs.len() as u64, reads, here.len() as u64, new);
        assert_eq!((ours.requests, ours.reads, ours.unique_blocks, ours.new_blocks), expected);
    }

    // Splits: the hits of caches of their own.
    let mut numbering = Renumbering::new();
    let numbered: Vec<u32> = refs.iter().map(|&b| numbering.number(0, b.into()).unwrap()).collect();
    for (split, size) in found.splits.iter().zip([3, 5, 4]) {
        let policy = undercroft_policy::Spec::parse(&split.policy).unwrap();
        let policy = policy.build(&undercroft_policy::Context::new(size)).unwrap();
        let mut level = DenseLevel::new(policy, WriteMode::Allocate);
        level.bind(0, refs_names(&numbering));
        let (mut temporal, mut stack) = (Cells::default(), Cells::default());
        for (i, &block) in numbered.iter().enumerate() {
            let hit = level.reference(numbering.len(), Reference::new(block, writes[i]));
            for (cells, distance) in [(&mut temporal, naive[i].0), (&mut stack, naive[i].1)] {
                *match (distance.map(|d| d < u64::from(size)), hit) {
                    (None, hit) => {
                        assert!(!hit);
                        &mut cells.first
                    }
                    (Some(true), true) => &mut cells.lt_hits,
                    (Some(true), false) => &mut cells.lt_misses,
                    (Some(false), true) => &mut cells.ge_hits,
                    (Some(false), false) => &mut cells.ge_misses,
                } += 1;
            }
        }
        assert_eq!((split.by_temporal, split.by_stack), (temporal, stack), "{}", split.policy);
        assert_eq!((split.capacity_blocks, split.by_stack.first), (size, distinct.len() as u64));
    }
}

/// The names of all blocks.
fn refs_names(numbering: &Renumbering) -> impl ExactSizeIterator<Item = u64> + '_ {
    (0..numbering.len()).map(|number| numbering.names().name(number))
}

#[test]
fn every_short_trace_is_described_by_definition() {
    for length in 1..=6_u32 {
        for code in 0..4_u32.pow(length) {
            let refs: Vec<_> = (0..length).map(|i| code >> (2 * i) & 3).collect();
            let writes: Vec<_> = (0..length).map(|i| (code >> i) % 3 == 0).collect();
            check(&refs, &writes);
        }
    }
}

#[test]
fn random_traces_are_described_by_definition() {
    for seed in seeds(12) {
        let mut random = Random(seed);
        let (number, length) = (1 + random.below(60), 1 + random.below(3000) as usize);
        let refs: Vec<_> = (0..length).map(|_| random.block(number)).collect();
        let writes: Vec<_> = refs.iter().map(|_| random.one_in(4)).collect();
        check(&refs, &writes);
    }
    // Many merges of windows.
    let mut random = Random(1);
    let refs: Vec<_> = (0..40_000).map(|_| random.block(30)).collect();
    check(&refs, &vec![false; refs.len()]);
}

/// Idle distances below an LRU cache, by walking back through what it did.
#[test]
fn idle_distances_are_those_of_a_naive_walk() {
    for seed in seeds(30) {
        let mut random = Random(seed);
        let capacity = 1 + random.below(6);
        let refs: Vec<_> = (0..400).map(|_| random.below(12)).collect();
        // The cache as a list, most recent first; the stream below; when blocks left the cache.
        let (mut cache, mut below) = (Vec::new(), Vec::<u32>::new());
        let mut left: Vec<(u32, u64)> = Vec::new();
        let mut expected = Vec::new();
        for &block in &refs {
            let hit = cache.contains(&block);
            cache.retain(|other| *other != block);
            cache.insert(0, block);
            if hit {
                continue;
            }
            let position = below.len() as u64 + 1;
            if let Some(last) = below.iter().rposition(|other| *other == block) {
                let evicted = left.iter().rev().find(|(gone, _)| *gone == block).unwrap().1;
                expected.push((position, block, position - last as u64 - 1, position - evicted));
            }
            below.push(block);
            if cache.len() > capacity as usize {
                left.push((cache.pop().unwrap(), position));
            }
        }
        assert_eq!(idle_rows(&refs, capacity), expected, "seed {seed}");
    }
}

/// A block whose eviction is not known since its last reference is left out, and counted.
#[test]
fn references_without_a_known_eviction_are_left_out() {
    let mut idle = IdleDistances::default();
    idle.grow(2);
    assert_eq!(idle.reference(0, 1, None), None);
    assert_eq!(idle.reference(0, 2, Some(1)), None);
    idle.evicted(0, 3);
    assert_eq!(idle.reference(0, 5, Some(2)), Some((3, 2)));
    assert_eq!(idle.reference(0, 6, Some(5)), None);
    assert_eq!((idle.evictions, idle.left_out), (1, 2));
    assert_eq!(
        (bins(&idle.access_based), bins(&idle.eviction_based)),
        (vec![(4, 1)], vec![(2, 1)])
    );
}

#[test]
fn requests_are_counted_as_they_are() {
    let mut records = vec![
        blocks(10, 2, false),
        blocks(12, 4, false),
        blocks(16, 1, true),
        blocks(0, 1, false),
        blocks(1, 8, true),
    ];
    for (i, record) in records.iter_mut().enumerate() {
        record.time_ns = 1_000_000_000 + 500_000_000 * i as u64;
    }
    records[3].space = 1;
    let found = describe_records(records, &config(&[]));
    let requests = &found.requests;
    assert_eq!((requests.requests, requests.reads, requests.writes), (5, 3, 2));
    assert_eq!((requests.read_bytes, requests.write_bytes), (7 * 4096, 9 * 4096));
    // 12 follows 10 + 2, and 16 follows 12 + 4; 1 in the first space follows nothing.
    assert_eq!(requests.sequential_share, 2.0 / 5.0);
    assert_eq!((requests.duration_s, requests.requests_per_s), (Some(2.0), Some(2.5)));
    assert_eq!(requests.bytes_per_s, Some(16.0 * 4096.0 / 2.0));
    let sizes: Vec<_> = requests.sizes.iter().map(|s| (s.up_to_bytes / 4096, s.requests)).collect();
    assert_eq!(sizes, [(1, 2), (2, 1), (4, 1), (8, 1)]);
    assert_eq!(found.blocks.requests, 16);
}

/// What a cache passes on is described as the trace that it passes on.
#[test]
fn a_cache_above_is_a_filter() {
    let mut random = Random(7);
    let refs: Vec<_> = (0..5000).map(|_| random.block(80)).collect();
    let upper = LevelConfig { capacity: 10, policy: spec("lru") };
    let below = Config { upper: Some(upper), ..config(&[(20, "mq")]) };
    let mut found = describe_records(read_all(&refs), &below);
    let mut cache: Vec<u32> = Vec::new();
    let mut passed = Vec::new();
    for &block in &refs {
        if !cache.contains(&block) {
            passed.push(block);
        }
        cache.retain(|other| *other != block);
        cache.insert(0, block);
        cache.truncate(10);
    }
    let upper = found.upper.take().unwrap();
    assert_eq!((upper.reads, upper.reads - upper.read_hits), (5000, passed.len() as u64));
    let expected = describe_records(read_all(&passed), &config(&[(20, "mq")]));
    assert_eq!(found.blocks, expected.blocks);
    assert_eq!(found.stack_distance, expected.stack_distance);
    assert_eq!(found.temporal_distance, expected.temporal_distance);
    assert_eq!((found.frequency, found.splits), (expected.frequency, expected.splits));
    // Between two references below a block leaves the cache: every one has both distances.
    let idle = found.idle_distance.unwrap();
    assert_eq!((idle.left_out, idle.requests), (0, passed.len() as u64 - 80));
    assert!(idle.mean_eviction_based < idle.mean_access_based);

    let sampled = Config { rate: 0.5, ..below };
    let reader = Box::new(Memory::new(Unit::Blocks, read_all(&refs)));
    let refused = try_to(reader, &sampled).unwrap_err();
    assert!(refused.to_string().contains("trace filter"), "{refused}");
}

fn generated(name: &str, parameters: &str) -> Box<dyn Reader> {
    GeneratorSpec::parse(name, parameters).unwrap().reader()
}

/// A sample says how far it may be off, and is not farther off.
#[test]
fn a_sample_is_off_by_no_more_than_it_says() {
    for (name, parameters) in [
        ("zipf", "blocks=40000,alpha=0.8,requests=400000,seed=5"),
        ("zipf", "blocks=40000,alpha=0.6,requests=400000,seed=6"),
        ("zipf", "blocks=40000,alpha=0,requests=300000,seed=7"),
    ] {
        let whole = describe(generated(name, parameters), &config(&[(8000, "lru")])).unwrap();
        let sampled = Config { rate: 0.125, ..config(&[(8000, "lru")]) };
        let sample = describe(generated(name, parameters), &sampled).unwrap();
        let sampling = sample.sampling.unwrap();
        println!("{name} {parameters}: {sampling:?}");
        assert!((0.001..0.2).contains(&sampling.share_error), "{sampling:?}");
        assert_eq!((whole.sampling, &whole.requests), (None, &sample.requests));
        let share = |found: &Characterization, distance: u64| {
            let bins = &found.stack_distance.bins;
            bins.iter().rev().find(|bin| bin.up_to <= distance).map_or(0.0, |b| b.cumulative_share)
        };
        for log2 in 6..17 {
            let (ours, exact) = (share(&sample, 1 << log2), share(&whole, 1 << log2));
            println!("  {}: {ours:.4} for {exact:.4}", 1 << log2);
            assert!((ours - exact).abs() <= 1.5 * sampling.share_error, "{name} at 2^{log2}");
        }
        let unique = (sample.blocks.unique_blocks as f64, whole.blocks.unique_blocks as f64);
        assert!((unique.0 / unique.1 - 1.0).abs() < 0.05, "{unique:?}");
        assert_eq!(sample.blocks.requests, whole.blocks.requests);
        let hits = |found: &Characterization| {
            let cells = found.splits[0].by_stack;
            (cells.lt_hits + cells.ge_hits) as f64 / found.blocks.requests as f64
        };
        assert!((hits(&sample) - hits(&whole)).abs() <= 1.5 * sampling.share_error);
    }
}

/// More blocks than allowed: the caller is told, and no figures.
#[test]
fn too_many_blocks_are_not_described() {
    let small = Config { max_blocks: 1000, ..config(&[]) };
    assert_eq!(describe(generated("zipf", "blocks=5000,alpha=0,requests=90000"), &small), None);
    assert!(describe(generated("zipf", "blocks=500,alpha=0,requests=90000"), &small).is_some());
}

/// No block is allowed, or a sample has none: an error, and no empty figures.
#[test]
fn nothing_is_not_described() {
    for (wrong, why) in [
        (Config { max_blocks: 0, ..config(&[]) }, "expected 1 or more"),
        (Config { rate: 1e-9, ..config(&[]) }, "larger rate"),
    ] {
        let few = generated("zipf", "blocks=50,alpha=0,requests=100");
        let error = try_to(few, &wrong).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// A recorded trace, whose header says how large its blocks are.
fn recorded(name: &str, config: &Config) -> Option<Characterization> {
    describe(reader(name)?, config)
}

type Pinned = ([u64; 3], ([u64; 3], [u64; 3]), [u64; 3], [u64; 2], u64);

/// Requests, block requests, distinct blocks; the hills; evictions known, references with both idle
/// distances, those left out; the mean idle distances; hits at temporal distances from the size of
/// the cache above on.
const PINNED: [Pinned; 2] = [
    (
        [1_486_858, 1_486_858, 85_994],
        ([4096, 8192, 65_536], [4096, 8192, 262_144]),
        [970_306, 888_412, 512_452],
        [61_931, 59_311],
        9776,
    ),
    (
        [1_500_000, 1_825_160, 37_557],
        ([512, 2048, 32_768], [512, 2048, 131_072]),
        [1_059_115, 1_023_185, 764_418],
        [37_795, 36_119],
        114_364,
    ),
];

/// Figures of two recorded streams below databases, written down so that none changes unnoticed;
/// and the shapes that the literature found on such streams.
#[test]
fn recorded_streams_have_the_known_shapes() {
    for (name, block_bytes, upper, pinned) in [
        ("recorded/postgres-tpcc10w-sb32m.csv.zst", 8192, 4096, PINNED[0]),
        ("recorded/mariadb-tpcc10w-pool32m.csv.zst", 16_384, 2048, PINNED[1]),
    ] {
        let Some(found) = recorded(name, &Config { block_bytes, ..config(&[(upper, "lru")]) })
        else {
            continue;
        };
        let idle = found.idle_distance.as_ref().unwrap();
        let (stack, temporal) = (&found.stack_distance, &found.temporal_distance);
        let hill = |report: &DistanceReport| {
            report.hill.map(|hill| [hill.min, hill.peak, hill.max]).unwrap()
        };
        let ours = (
            [found.requests.requests, found.blocks.requests, found.blocks.unique_blocks],
            (hill(stack), hill(temporal)),
            [idle.evictions, idle.requests, idle.left_out],
            [idle.mean_access_based.round() as u64, idle.mean_eviction_based.round() as u64],
            found.splits[0].by_temporal.ge_hits,
        );
        assert_eq!(ours, pinned, "{name}");
        // Blocks are requested again after more requests than the cache above has blocks: the peak
        // is beyond its size (MariaDB: in the bin that ends there, since its pool keeps a new block
        // for three eighths of its size only), most of the requests too.
        let upper = u64::from(upper);
        let beyond = |report: &DistanceReport, limit: u64| {
            let bins = report.bins.iter().filter(|bin| bin.up_to > limit);
            bins.map(|bin| bin.requests).sum::<u64>() as f64
        };
        let all = beyond(temporal, 0);
        assert!(hill(temporal)[1] >= upper, "{name}");
        assert!(beyond(temporal, upper) > 0.5 * all, "{name}: {}", beyond(temporal, upper) / all);
        // From the eviction on, fewer blocks lie idle for long than from the access on.
        assert!(idle.mean_eviction_based < idle.mean_access_based);
        let late = |report: &DistanceReport| beyond(report, 2 * upper);
        let (by_eviction, by_access) = (late(&idle.eviction_based), late(&idle.access_based));
        assert!(by_eviction < 0.9 * by_access, "{name}: {by_eviction} {by_access}");
    }
}
