//! Hierarchies of levels against a plain chain of policies that is driven one reference at a time,
//! the identities between what the levels count, and the filter against the hierarchy.
//!
//! A failure prints the seed; `UNDERCROFT_SEED=n cargo test -p undercroft-sim` runs that one again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Memory, Random, blocks, config, letters, online_policies, seeds, spec, trace};
use undercroft_level::DenseLevel;
use undercroft_policy::{Context, Counts, Evictions, Future, Policy, Reference, WriteMode};
use undercroft_sim::{Config, Error, Filter, LevelConfig, Outcome, Report, simulate};
use undercroft_trace::{CHUNK_REFERENCES, DenseOptions, DenseTrace, Op, Record, Unit};

const MODES: [WriteMode; 3] = [WriteMode::Allocate, WriteMode::NoAllocate, WriteMode::Invalidate];

/// One block request of a trace: block, direction, and whether it comes after the warm-up.
#[derive(Clone, Copy)]
struct Request {
    block: u32,
    /// Its number in the trace, whose blocks are all in one space.
    name: u64,
    is_write: bool,
    counted: bool,
}

/// The block requests of records of a trace of block numbers, numbered by first touch.
fn requests(records: &[Record], warmup: u64) -> Vec<Request> {
    let mut numbers = HashMap::new();
    let mut requests = Vec::new();
    for (i, record) in records.iter().enumerate() {
        for address in record.address..record.address + record.length {
            let next = numbers.len() as u32;
            let block = *numbers.entry((record.space, address)).or_insert(next);
            let is_write = record.op == Op::Write;
            let counted = i as u64 >= warmup;
            requests.push(Request { block, name: address, is_write, counted });
        }
    }
    requests
}

/// A level of the chain.
struct Link {
    policy: Box<dyn Policy>,
    counts: Counts,
}

/// The chain: a request goes down until a level serves it; a write goes down to the disk.
struct Chain {
    links: Vec<Link>,
    mode: WriteMode,
    known: HashSet<u32>,
}

impl Chain {
    /// A level with OPT is told what passes the levels above it.
    fn new(levels: &[LevelConfig], mode: WriteMode, requests: &[Request]) -> Self {
        let entries = requests.iter().map(|r| r.block + 1).max().unwrap_or(0);
        let link = |(above, level): (usize, &LevelConfig)| {
            let mut coming = Vec::new();
            if level.policy.info().name == "opt" {
                let mut upper = Chain::new(&levels[..above], mode, requests);
                let passed = requests.iter().filter(|request| upper.request(**request));
                let seen = passed.filter(|r| !r.is_write || mode == WriteMode::Allocate);
                coming = seen.map(|request| request.block).collect();
            }
            let future = Some(Arc::new(Future::new(coming).expect("short enough")));
            let context = Context { capacity: level.capacity, future };
            let mut policy = level.policy.build(&context).expect("a policy");
            policy.grow(entries);
            requests.iter().for_each(|request| policy.bind(request.block, request.name));
            Link { policy, counts: Counts::default() }
        };
        let links = levels.iter().enumerate().map(link).collect();
        Self { links, mode, known: HashSet::new() }
    }

    /// True if the request reaches the disk.
    fn request(&mut self, request: Request) -> bool {
        let Request { block, is_write, counted, .. } = request;
        let is_cold = self.known.insert(block) && !is_write;
        let mut out = Evictions::new();
        for link in &mut self.links {
            let hit = link.policy.contains(block);
            out.clear();
            match (is_write, self.mode) {
                (false, _) => {
                    link.policy.access(block, &mut out);
                }
                (true, WriteMode::Allocate) => {
                    link.policy.write(block, &mut out);
                }
                (true, WriteMode::NoAllocate) => {}
                (true, WriteMode::Invalidate) => link.policy.discard(block, &mut out),
            }
            if counted {
                let counts = &mut link.counts;
                counts.reads += u64::from(!is_write);
                counts.writes += u64::from(is_write);
                counts.read_hits += u64::from(hit && !is_write);
                counts.write_hits += u64::from(hit && is_write);
                counts.cold_reads += u64::from(is_cold);
                counts.evictions += out.evicted().count() as u64;
            }
            if hit && !is_write {
                return false;
            }
        }
        true
    }

    /// What each level counts over all requests.
    fn run(mut self, requests: &[Request]) -> Vec<Counts> {
        for &request in requests {
            self.request(request);
        }
        self.links.into_iter().map(|link| link.counts).collect()
    }
}

/// Everything that is counted; `known` is bookkeeping.
fn counted(counts: &[Counts]) -> Vec<Counts> {
    counts.iter().map(|counts| Counts { known: 0, ..*counts }).collect()
}

fn run(trace: &DenseTrace, config: &Config) -> Outcome {
    let mut told = 0;
    let outcome = simulate(trace, config, |references| told = references).expect("a simulation");
    assert_eq!(told, trace.len(), "progress ends at the end");
    assert_eq!(outcome.references, trace.len());
    outcome
}

/// A simulation must count what the chain counts.
fn check(records: &[Record], trace: &DenseTrace, config: &Config, what: &str) -> Outcome {
    let requests = requests(records, config.warmup_records);
    let expected = Chain::new(&config.levels, config.write_mode, &requests).run(&requests);
    let outcome = run(trace, config);
    assert_eq!(counted(&outcome.levels), expected, "{what}, {config:?}");
    outcome
}

/// The identities that hold whatever the policies are.
fn check_identities(outcome: &Outcome) {
    let levels = &outcome.levels;
    for pair in levels.windows(2) {
        assert_eq!(pair[1].reads, pair[0].reads - pair[0].read_hits);
        assert_eq!(pair[1].writes, pair[0].writes);
        assert_eq!(pair[1].cold_reads, pair[0].cold_reads);
    }
    let (top, bottom) = (levels[0], levels[levels.len() - 1]);
    assert_eq!(outcome.reads(), top.reads);
    assert_eq!(outcome.read_hits(), levels.iter().map(|level| level.read_hits).sum::<u64>());
    assert_eq!(outcome.disk_reads(), bottom.reads - bottom.read_hits);
    assert_eq!(outcome.disk_writes(), top.writes);
    assert!(outcome.disk_reads() >= top.cold_reads);
    let ratio = outcome.read_hits() as f64 / outcome.reads().max(1) as f64;
    assert_eq!(outcome.read_hit_ratio(), ratio);
}

/// Requests of up to `longest` blocks.
fn random_records(random: &mut Random, world: u32, longest: u32, count: usize) -> Vec<Record> {
    let one = |_| {
        let length = 1 + random.below(longest);
        blocks(random.block(world).into(), length.into(), random.one_in(4))
    };
    (0..count).map(one).collect()
}

fn random_levels(random: &mut Random, count: usize, names: &[&str]) -> Vec<LevelConfig> {
    let one = |_| LevelConfig {
        capacity: 1 + random.below(30),
        policy: spec(names[random.below(names.len() as u32) as usize]),
    };
    (0..count).map(one).collect()
}

#[test]
fn any_levels_equal_a_chain_of_policies() {
    let names = online_policies();
    for seed in seeds(150) {
        let mut random = Random(seed);
        let world = 5 + random.below(100);
        let records = random_records(&mut random, world, 6, 800);
        let trace = trace(records.clone());
        for write_mode in MODES {
            let count = 1 + random.below(3) as usize;
            let levels = random_levels(&mut random, count, &names);
            let warmup_records = [0, 0, 100, 799, 900][random.below(5) as usize];
            let config = Config { levels, write_mode, warmup_records, ..Config::default() };
            check_identities(&check(&records, &trace, &config, &format!("UNDERCROFT_SEED={seed}")));
        }
    }
}

/// Every policy below an LRU of the same size, where recency is used up.
#[test]
fn every_policy_as_a_second_level() {
    let mut random = Random(1);
    let records = random_records(&mut random, 200, 2, 5000);
    let trace = trace(records.clone());
    for name in online_policies() {
        for mode in MODES {
            let config = config(&[(20, "lru"), (20, name)], mode, 0);
            check_identities(&check(&records, &trace, &config, name));
        }
    }
}

#[test]
fn opt_at_any_level_equals_the_chain_and_is_the_bound_there() {
    let online = online_policies();
    for seed in seeds(40) {
        let mut random = Random(seed);
        let world = 5 + random.below(60);
        let records = random_records(&mut random, world, 3, 600);
        let trace = trace(records.clone());
        for mode in [WriteMode::Allocate, WriteMode::NoAllocate] {
            let upper = random_levels(&mut random, 1, &online);
            let capacity = 1 + random.below(20);
            let below = |name| {
                let level = LevelConfig { capacity, policy: spec(name) };
                let levels = vec![upper[0].clone(), level];
                Config { levels, write_mode: mode, ..Config::default() }
            };
            let what = format!("UNDERCROFT_SEED={seed}");
            let best = check(&records, &trace, &below("opt"), &what).levels[1];
            check_identities(&check(&records, &trace, &below("opt"), &what));
            for name in &online {
                let other = run(&trace, &below(name)).levels[1];
                // Without allocation writes are no references: OPT is the bound of the reads.
                let hits = |c: Counts| match mode {
                    WriteMode::Allocate => c.read_hits + c.write_hits,
                    _ => c.read_hits,
                };
                assert!(hits(other) <= hits(best), "{what}: {name} beats opt below {upper:?}");
            }
            let both = config(&[(capacity, "opt"), (7, "opt"), (9, "lru")], mode, 50);
            check_identities(&check(&records, &trace, &both, &what));
        }
    }
}

#[test]
fn opt_is_refused_where_writes_drop_blocks() {
    let trace = letters("A B A");
    for levels in [&[(2, "opt")][..], &[(2, "lru"), (2, "opt")], &[(1, "opt"), (1, "lru")]] {
        let config = config(levels, WriteMode::Invalidate, 0);
        let error = simulate(&trace, &config, |_| ()).unwrap_err();
        assert!(matches!(&error, Error::Request(why) if why.contains("invalidate")), "{error}");
    }
}

#[test]
fn a_level_without_room_is_refused() {
    let config = config(&[(0, "lru")], WriteMode::Allocate, 0);
    assert!(matches!(simulate(&letters("A"), &config, |_| ()), Err(Error::Request(_))));
}

/// Chunks end every 65,536 references; a record of three blocks lies across that. The warm-up ends
/// with a record, wherever that is.
#[test]
fn the_warm_up_ends_with_its_last_record() {
    let chunk = CHUNK_REFERENCES as u64;
    for length in [1, 3] {
        let mut random = Random(length);
        let count = 140_000 / length;
        let records: Vec<_> = (0..count)
            .map(|_| blocks(random.block(3000).into(), length, random.one_in(5)))
            .collect();
        let trace = trace(records.clone());
        let at = chunk / length;
        let edges = [0, 1, 2, at - 1, at, at + 1, 2 * at - 1, 2 * at, 2 * at + 1, 2 * at + 2];
        for warmup in edges.into_iter().chain([count / 2, count - 1, count, count + 1, u64::MAX]) {
            let config = config(&[(100, "lru"), (300, "mq")], WriteMode::Allocate, warmup);
            let outcome = check(&records, &trace, &config, "warm-up");
            check_identities(&outcome);
            let requests = outcome.levels[0].reads + outcome.levels[0].writes;
            assert_eq!(requests, (count - warmup.min(count)) * length);
        }
    }
}

/// What was met in the warm-up is not cold after it, and what is resident stays so.
#[test]
fn the_warm_up_is_remembered() {
    let trace = letters("A B A C A");
    let outcome = run(&trace, &config(&[(2, "lru")], WriteMode::Allocate, 2));
    let expected =
        Counts { reads: 3, read_hits: 2, cold_reads: 1, evictions: 1, ..outcome.levels[0] };
    assert_eq!(outcome.levels[0], expected);
    let all = run(&trace, &config(&[(2, "lru")], WriteMode::Allocate, 5));
    assert_eq!(counted(&all.levels), [Counts::default()]);
    assert_eq!((all.read_hit_ratio(), all.disk_reads()), (0.0, 0));
}

/// A block that was first written is not cold when it is read.
#[test]
fn a_read_of_what_was_written_is_not_cold() {
    let records = vec![blocks(1, 1, true), blocks(1, 1, false), blocks(2, 1, false)];
    for mode in MODES {
        let outcome = run(&trace(records.clone()), &config(&[(2, "lru"), (2, "lru")], mode, 0));
        assert!(outcome.levels.iter().all(|level| level.cold_reads == 1), "{mode:?}");
    }
}

#[test]
fn a_spooled_trace_gives_the_same() {
    let mut random = Random(5);
    let records = random_records(&mut random, 5000, 5, 60_000);
    let options = DenseOptions { memory_bytes: 0, ..DenseOptions::default() };
    let stream = Memory::new(Unit::Blocks, records.clone()).stream(4096);
    let spooled = DenseTrace::load_with(stream, &options, |_| ()).expect("a folder to spool to");
    assert!(spooled.is_spooled());
    for upper in ["lru", "opt"] {
        let config = config(&[(500, upper), (900, "opt")], WriteMode::Allocate, 30_000);
        let (here, there) = (run(&trace(records.clone()), &config), run(&spooled, &config));
        assert_eq!(here.levels, there.levels);
    }
}

/// `local-lru-lru` of the specification: nothing hits, and both levels end with the same blocks.
#[test]
fn worked_example_of_two_lrus() {
    let text = "A B C D A B C E D A";
    let outcome = run(&letters(text), &config(&[(2, "lru"), (2, "lru")], WriteMode::Allocate, 0));
    let level = Counts { reads: 10, cold_reads: 5, evictions: 8, ..Counts::default() };
    assert_eq!(counted(&outcome.levels), [level; 2]);
    assert_eq!((outcome.read_hits(), outcome.disk_reads()), (0, 10));

    let lru = || spec("lru").build(&Context::new(2)).expect("lru");
    let mut levels = [lru(), lru()].map(|policy| DenseLevel::new(policy, WriteMode::Allocate));
    let mut refs: Vec<_> = text.bytes().filter(|b| *b != b' ').map(|b| (b - b'A').into()).collect();
    let mut refs: Vec<_> = refs.drain(..).map(Reference::read).collect();
    for level in &mut levels {
        let mut below = Vec::new();
        level.replay(5, &refs, Some(&mut below));
        refs = below;
    }
    for level in &levels {
        assert_eq!(level.policy().residents(), [3, 0], "D, then A");
    }
}

/// `write-1` of the specification: read hits of five reads in each mode.
#[test]
fn worked_example_of_the_write_modes() {
    let of = |text: &str| blocks(text.as_bytes()[1].into(), 1, text.starts_with('w'));
    let records: Vec<_> = "rA wB rA wA rA wC rB rA".split(' ').map(of).collect();
    for (mode, hits) in MODES.into_iter().zip([2, 3, 2]) {
        let outcome = run(&trace(records.clone()), &config(&[(2, "lru")], mode, 0));
        assert_eq!((outcome.reads(), outcome.read_hits()), (5, hits), "{mode:?}");
    }
}

/// The response time for read hits at each level and reads from disk; `writes` must not matter.
fn response_time(hits: &[u64], disk: u64, writes: u64) -> f64 {
    let mut reads = hits.iter().sum::<u64>() + disk;
    let mut levels = Vec::new();
    for &read_hits in hits {
        levels.push(Counts { reads, read_hits, writes, ..Counts::default() });
        reads -= read_hits;
    }
    let outcome = Outcome {
        levels,
        references: 0,
        elapsed: Duration::ZERO,
        cpu: Duration::ZERO,
        cooperation: None,
        flash: None,
        clients: None,
        timed: None,
        leaders: Vec::new(),
        aware: Vec::new(),
        movement: None,
        write_back: None,
    };
    let config = config(&vec![(1, "lru"); hits.len()], WriteMode::Allocate, 0);
    let report = Report::new("a trace", &letters("A"), &config, &outcome);
    assert_eq!(report.disk.demand_reads, disk);
    assert_eq!(report.response_time_with_demotions_ms, report.response_time_ms);
    report.response_time_ms
}

#[test]
fn response_times_by_hand() {
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    // The example `resp-1`: (50 * 0.2 + 30 * 2 + 20 * 10) / 100.
    near(response_time(&[50, 30], 20, 0), 2.7);
    near(response_time(&[50, 30], 20, 1000), 2.7);
    // A single level counts as the second: (3 * 2 + 1 * 10) / 4.
    near(response_time(&[3], 1, 0), 4.0);
    // The third level takes 5 ms: (40 * 0.2 + 30 * 2 + 20 * 5 + 10 * 10) / 100.
    near(response_time(&[40, 30, 20], 10, 0), 2.68);
    near(response_time(&[0, 0], 7, 0), 10.0);
    near(response_time(&[0, 0], 0, 9), 0.0);
}

#[test]
fn the_report_says_what_was_simulated() {
    let records = vec![blocks(1, 3, false), blocks(1, 1, true), blocks(2, 2, false)];
    let trace = trace(records);
    let config = config(&[(2, "lru"), (3, "mq,m=4")], WriteMode::Allocate, 1);
    let config = Config { block_bytes: 8192, ..config };
    let report = Report::new("x.trc", &trace, &config, &run(&trace, &config));
    let about = &report.trace;
    assert_eq!((about.records, about.requests, about.reads, about.writes), (3, 6, 5, 1));
    assert_eq!((about.unique_blocks, report.block_bytes), (3, 8192));
    let names: Vec<_> = report.levels.iter().map(|l| (&*l.name, &*l.policy)).collect();
    assert_eq!(names, [("l1", "lru"), ("l2", "mq,m=4")]);
    assert_eq!(report.levels[1].capacity_blocks, 3);
    // After the warm-up (1, 2, 3) come a write of 1 and reads of 2 and 3.
    let l1 = &report.levels[0];
    assert_eq!((l1.reads, l1.read_hits, l1.writes, l1.write_hits), (2, 0, 1, 0));
    let l2 = &report.levels[1];
    assert_eq!((l2.reads, l2.read_hits, l2.writes, l2.write_hits), (2, 2, 1, 1));
    assert_eq!((report.aggregate.reads, report.aggregate.read_hits), (2, 2));
    assert_eq!(report.aggregate.read_hit_ratio, 1.0);
    assert_eq!((report.disk.demand_reads, report.disk.reloads, report.disk.writes), (0, 0, 1));
    assert_eq!(report.response_time_ms, 2.0);
}

/// Timed requests of bytes, not aligned to anything, on three devices.
fn random_disk_records(random: &mut Random, count: usize) -> Vec<Record> {
    let one = |i| Record {
        time_ns: 1000 * i as u64 + u64::from(random.below(1000)),
        op: if random.one_in(3) { Op::Write } else { Op::Read },
        space: random.below(3),
        address: u64::from(random.block(400_000)),
        length: 1 + u64::from(random.below(20_000)),
        buffer: Some(4096),
        client: 0,
    };
    (0..count).map(one).collect()
}

/// What one level lets through, by driving the policy over blocks split by hand.
fn filtered_by_hand(records: &[Record], unit: u64, level: &LevelConfig) -> Vec<Record> {
    let mut policy = level.policy.build(&Context::new(level.capacity)).expect("a policy");
    let mut out = Evictions::new();
    let mut numbers = HashMap::new();
    let mut through = Vec::new();
    for record in records {
        let first = record.address / unit;
        let last = (record.address + record.length - 1) / unit;
        for block in first..=last {
            let next = numbers.len() as u32;
            let entry = *numbers.entry((record.space, block)).or_insert(next);
            policy.grow(entry + 1);
            let hit = match record.op {
                Op::Write => policy.write(entry, &mut out),
                _ => policy.access(entry, &mut out),
            };
            if !hit || record.op == Op::Write {
                let (address, length) = (block * unit, unit);
                through.push(Record { address, length, buffer: None, ..*record });
            }
        }
    }
    through
}

/// Runs the filter over a trace.
fn filtered(
    source: Memory,
    block_bytes: u32,
    level: &LevelConfig,
    mode: WriteMode,
    warmup: u64,
) -> (Vec<Record>, Filter) {
    let stream = source.stream(block_bytes);
    let mut filter = Filter::new(stream, level, block_bytes, mode).expect("a filter");
    let (mut all, mut records) = (Vec::new(), vec![blocks(9, 9, false)]);
    while filter.next(warmup, &mut records).expect("nothing to go wrong") {
        all.extend_from_slice(&records);
    }
    assert!(records.is_empty());
    assert_eq!(filter.written(), all.len() as u64);
    (all, filter)
}

#[test]
fn what_the_filter_writes_is_the_trace_of_the_second_level() {
    for seed in seeds(20) {
        let mut random = Random(seed);
        let (unit, block_bytes, records) = match seed % 2 {
            0 => (Unit::Blocks, 4096, random_records(&mut random, 100, 6, 20_000)),
            _ => (Unit::Bytes, 2048, random_disk_records(&mut random, 10_000)),
        };
        let scale = if unit == Unit::Bytes { u64::from(block_bytes) } else { 1 };
        // Driven by hand, a policy knows no names of blocks that a sketch could hash.
        let exact = |name| match name {
            "w-tinylfu" => "w-tinylfu,sketch=exact",
            name => name,
        };
        let names: Vec<&str> = online_policies().into_iter().map(exact).collect();
        for mode in MODES {
            let levels = random_levels(&mut random, 2, &names);
            let source = || Memory::new(unit, records.clone());
            let (through, filter) = filtered(source(), block_bytes, &levels[0], mode, 0);
            assert_eq!(filter.meta().unit, unit);
            assert_eq!(filter.meta().block_bytes, Some(block_bytes));
            assert_eq!(
                (filter.records(), filter.spaces().len()),
                (records.len() as u64, if unit == Unit::Bytes { 3 } else { 1 })
            );
            if mode == WriteMode::Allocate {
                assert!(
                    through == filtered_by_hand(&records, scale, &levels[0]),
                    "UNDERCROFT_SEED={seed}"
                );
            }

            let config = Config { levels: levels.clone(), write_mode: mode, ..Config::default() };
            let both = run(&source().load(block_bytes), &config);
            assert_eq!(
                counted(&[*filter.counts()]),
                counted(&both.levels[..1]),
                "UNDERCROFT_SEED={seed}"
            );
            let second = Memory::new(unit, through).load(block_bytes);
            let alone = Config { levels: levels[1..].to_vec(), ..config };
            let alone = run(&second, &alone);
            assert_eq!(
                counted(&alone.levels),
                counted(&both.levels[1..]),
                "UNDERCROFT_SEED={seed} {mode:?}"
            );
        }
    }
}

#[test]
fn the_warm_up_of_a_filter_writes_nothing_and_warms_the_level() {
    let mut random = Random(3);
    // 200,000 blocks: several chunks, with records that lie across their ends.
    let records = random_records(&mut random, 3000, 7, 50_000);
    let level = LevelConfig { capacity: 500, policy: spec("lru") };
    let expected = |warmup: usize| {
        let all = filtered_by_hand(&records, 1, &level).len();
        let warm = filtered_by_hand(&records[..warmup.min(records.len())], 1, &level).len();
        filtered_by_hand(&records, 1, &level)[warm..all].to_vec()
    };
    for warmup in [0, 1, 16_384, 20_000, 49_999, 50_000, 60_000] {
        let source = Memory::new(Unit::Blocks, records.clone());
        let (through, _) = filtered(source, 4096, &level, WriteMode::Allocate, warmup as u64);
        assert!(through == expected(warmup), "{warmup}");
    }
}

#[test]
fn a_filter_with_opt_is_refused() {
    let level = LevelConfig { capacity: 5, policy: spec("opt") };
    let stream = Memory::new(Unit::Blocks, vec![]).stream(4096);
    let refused = Filter::new(stream, &level, 4096, WriteMode::Allocate);
    assert!(matches!(refused, Err(Error::Request(_))));
}
