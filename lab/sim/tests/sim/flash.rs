//! A flash level below simulated caches.

use crate::common::{blocks, config, seeds, spec, trace};
use crate::real_traces::load;
use undercroft_adviser::{Adviser, Event, Kind, Options, Today};
use undercroft_level::Level;
use undercroft_level::placement::Placement;
use undercroft_policy::{Counts, WriteMode};
use undercroft_random::SplitMix64;
use undercroft_sim::{Config, FlashReport, Lowest, Outcome, Population, Report, Timing, simulate};
use undercroft_trace::{DenseTrace, Op, Record};

fn with_flash(levels: &[(u32, &str)], flash: &str) -> Config {
    let lowest = Lowest { flash: Some(flash.parse().unwrap()), ..Lowest::default() };
    Config { lowest, block_bytes: 4096, ..config(levels, WriteMode::Allocate, 0) }
}

fn run(trace: &DenseTrace, config: &Config) -> (Outcome, FlashReport) {
    let outcome = simulate(trace, config, |_| ()).unwrap();
    let report = Report::new("trace", trace, config, &outcome).flash.unwrap();
    (outcome, report)
}

/// Each letter is a block: lower case reads, upper case writes.
fn letters(text: &str) -> DenseTrace {
    let record =
        |letter: u8| blocks(u64::from(letter.to_ascii_lowercase()), 1, letter.is_ascii_uppercase());
    trace(text.bytes().map(record).collect())
}

/// What a level counted, without what only one of the loops needs.
fn plain(counts: &[Counts]) -> Vec<Counts> {
    counts.iter().map(|counts| Counts { known: 0, ..*counts }).collect()
}

/// Memory has two blocks, in LRU order.
#[test]
fn a_small_case_by_hand() {
    // a b: read. c drives a out, without evidence. a comes back (b leaves). d drives c out, b comes
    // back and drives a out, which had returned: written. d and b are in memory.
    let config = with_flash(&[(2, "lru")], "128blk");
    let (_, flash) = run(&letters("abcadb"), &config);
    assert_eq!((flash.reads, flash.read_hits, flash.written), (6, 0, 1));
    assert_eq!(flash.without_evidence, 3);
    // a is read from flash, and leaves again with its copy still good. b, d and c go to flash,
    // since they had come back; d and b are read from there. A write ends the copy of a; when a
    // leaves for the last time it is written anew.
    let (outcome, flash) = run(&letters("abcadbadcAdb"), &config);
    assert_eq!((flash.read_hits, flash.kept, flash.ended, flash.rewritten), (3, 1, 1, 1));
    assert_eq!(flash.written, 5);
    assert_eq!(outcome.read_hits() + outcome.disk_reads(), outcome.reads());
    assert_eq!(outcome.disk_writes(), 1);
}

/// With rule=access and an order of its own, flash is a second level that places at the access: the
/// simulation of levels says the same, by another loop.
#[test]
fn access_is_a_second_level() {
    let traces = ["recorded/postgres-tpcc10w-sb32m.csv.zst", "arc/OLTP.lis.zst"];
    for trace in traces.into_iter().filter_map(|name| load(name, 4096, None)) {
        let flash = "16000blk,rule=access,order=lru";
        let (outcome, flash) = run(&trace, &with_flash(&[(2000, "mq")], flash));
        let levels = config(&[(2000, "mq"), (16_000, "lru")], WriteMode::Allocate, 0);
        let two = simulate(&trace, &levels, |_| ()).unwrap();
        assert_eq!(plain(&outcome.levels), plain(&two.levels[..1]));
        assert_eq!(flash.read_hits, two.levels[1].read_hits);
        assert_eq!(outcome.disk_reads(), two.disk_reads());
        let second = two.levels[1];
        assert_eq!(flash.written, second.reads - second.read_hits + second.writes);
    }
}

/// What reached the store and what was written to flash, in blocks, counted once and kept here.
#[test]
fn counts_on_real_traces() {
    for (name, block_bytes, unit, sizes, pinned) in [
        ("arc/P6.lis.zst", 4096, Some(512), (4096, 32_768), (201_251, 93_096)),
        (
            "recorded/mariadb-tpcc10w-pool32m.csv.zst",
            16_384,
            None,
            (2048, 16_384),
            (94_889, 236_081),
        ),
    ] {
        let Some(trace) = load(name, block_bytes, unit) else { continue };
        let (memory, flash) = sizes;
        let text = format!("{flash}blk");
        let config = Config { block_bytes, ..with_flash(&[(memory, "s3-fifo")], &text) };
        let (outcome, flash) = run(&trace, &config);
        assert_eq!((outcome.disk_reads(), flash.written), pinned, "{name}");
    }
}

/// The budget of a day, at a rate that makes the trace last a day.
#[test]
fn a_budget_is_kept() {
    let Some(trace) = load("arc/P3.lis.zst", 4096, Some(512)) else { return };
    let rate = trace.len() as f64 / 86_400.0;
    let text = |budget: u64| format!("32768blk,rate={rate},budget={}/day", budget * 4096);
    let (_, free) = run(&trace, &with_flash(&[(4096, "mq")], "32768blk"));
    let mut before = 0;
    for budget in [1000, 20_000, 1_000_000] {
        let (_, flash) = run(&trace, &with_flash(&[(4096, "mq")], &text(budget)));
        assert!(flash.written <= budget * 101 / 100 + 1, "{} of {budget}", flash.written);
        let is_short = flash.over_budget + flash.too_dear > 0;
        assert_eq!(is_short, flash.written < free.written, "{budget}");
        assert!(flash.read_hits > before, "a larger budget brings more");
        before = flash.read_hits;
        assert!(flash.drive_writes_a_day.unwrap() <= budget as f64 * 1.01 / 32_768.0 + 0.001);
    }
}

/// Below clients whose evictions are placed, and with a clock: reads are served once, and what is
/// on flash is not read from the disk again.
#[test]
fn flash_below_placement_and_with_a_clock() {
    let Some(trace) = load("arc/OLTP.lis.zst", 4096, None) else { return };
    let population = Population::one(trace, "trace".into());
    let trace = population.trace();
    for rule in ["access", "eviction", "eviction,down=demote", "gl"] {
        let levels = [(1000, "lru"), (2000, "mq")];
        let config = Config { rule: rule.parse().unwrap(), ..with_flash(&levels, "16000blk") };
        let (outcome, flash) = run(trace, &config);
        let without = Config { lowest: Lowest::default(), ..config.clone() };
        let without = simulate(trace, &without, |_| ()).unwrap();
        assert_eq!(plain(&outcome.levels), plain(&without.levels), "{rule}: as without flash");
        assert_eq!(outcome.disk_reads() + flash.read_hits, without.disk_reads(), "{rule}");
        assert_eq!(outcome.reloads() + flash.reloads, without.reloads(), "{rule}");
        assert!(flash.read_hits > 100_000, "{rule}: {flash:?}");
        let timed = Config { timing: Some(Timing::default()), ..config };
        let outcome = simulate(&population, &timed, |_| ()).unwrap();
        let report = Report::new("trace", &population, &timed, &outcome).flash.unwrap();
        if rule == "access" {
            // One request at a time reaches the caches in the same order.
            let counts = |flash: &FlashReport| (flash.reads, flash.read_hits, flash.written);
            assert_eq!(counts(&report), counts(&flash));
        }
        assert!(report.read_ms.is_some_and(|ms| (0.09..1.0).contains(&ms)), "{rule}: {report:?}");
        assert!(
            report.busy.is_some_and(|busy| busy.iter().all(|share| (0.0..=1.0).contains(share)))
        );
    }
}

/// The adviser of a running server, with every block in its sample, says of flash below today's
/// memory what a simulation of the same requests counts, exactly: over its epochs, after all that
/// came before. So it does below a client that tells what it evicts.
#[test]
fn a_running_server_is_advised_as_simulations_say() {
    for seed in seeds(3) {
        let mut random = SplitMix64::new(seed);
        let mut reference = || {
            let block = (random.next_f64().powi(2) * 6000.0) as u64;
            blocks(block, 1, random.below(10) == 0)
        };
        let records: Vec<_> = (0..60_000).map(|_| reference()).collect();
        let (alone, below) = ("access", "eviction,on-hit=move");
        for (levels, rule) in [
            (&[(200, "lru")][..], alone),
            (&[(333, "s3-fifo")], alone),
            (&[(64, "mq")], alone),
            (&[(100, "lru"), (200, "lru")], below),
            (&[(50, "lru"), (300, "mq")], below),
        ] {
            let (memory, policy) = levels[levels.len() - 1];
            let mut client = (levels.len() > 1).then(|| client(levels[0].0));
            let mut adviser = adviser((policy, memory), rule);
            let mut ends = vec![0];
            for (at, round) in records.chunks(16).enumerate() {
                let events = round.iter().flat_map(|record| events(client.as_mut(), record));
                adviser.take(&events.collect::<Vec<_>>());
                adviser.end_round();
                assert!(adviser.epochs() <= ends.len() as u64);
                if adviser.epochs() == ends.len() as u64 {
                    ends.push(at * 16 + round.len());
                }
            }
            let figures = adviser.figures();
            let sizes: Vec<_> = figures.flash.iter().map(|flash| flash.blocks).collect();
            assert_eq!(sizes, [4, 8, 16].map(|times| times * memory));
            let (from, to) = (ends[ends.len() - 1 - figures.kept], ends[ends.len() - 1]);
            let trace = trace(records[..to].to_vec());
            for advised in &figures.flash {
                let flash = format!("{}blk", advised.blocks);
                let mut config = with_flash(levels, &flash);
                config.rule = rule.parse().unwrap();
                config.warmup_records = from as u64;
                let (outcome, flash) = run(&trace, &config);
                assert_eq!(outcome.levels[levels.len() - 1].reads, figures.reads);
                let gain = flash.read_hits as f64 / figures.reads as f64;
                let case = format!("seed {seed}, {policy} {rule}: {advised:?}, {flash:?}");
                assert!(flash.read_hits > 0 && (advised.gain.value - gain).abs() < 1e-9, "{case}");
                let written = flash.written as f64 / flash.read_hits as f64;
                assert!((advised.written_per_hit - written).abs() < 1e-9, "{case}");
            }
        }
    }
}

/// With every block in the sample. Flash has the same sets as in a simulation.
fn adviser((policy, blocks): (&str, u32), placement: &str) -> Adviser {
    let (policy, placement) = (spec(policy), placement.parse().unwrap());
    let today = Today { policy, placement, blocks, mode: WriteMode::Allocate };
    Adviser::new(today, &Options { rate: Some(1.0), seed: 0, ..Options::default() }).unwrap()
}

fn client(blocks: u32) -> Level {
    Level::new(&spec("lru"), blocks, &Placement::Access, WriteMode::Allocate, 1).unwrap()
}

/// What a server hears of a request, through a client's cache if there is one.
fn events(client: Option<&mut Level>, record: &Record) -> Vec<Event> {
    let (is_write, is_whole, tells) = (record.op == Op::Write, true, client.is_some());
    let event = |block, reads, kind| Event { block, at_us: 0, reads, kind, client: 0 };
    let reference = match is_write {
        true => event(record.address, 0, Kind::Write { is_whole, tells }),
        false => event(record.address, 1, Kind::Read { is_whole, tells }),
    };
    let Some(client) = client else { return vec![reference] };
    let hit = client.reference(record.address, is_write, || false).hit;
    let gone = client.evicted().iter();
    let gone = gone.map(|gone| event(gone.block, 0, Kind::Evicted { has_contents: false }));
    (is_write || !hit).then_some(reference).into_iter().chain(gone).collect()
}
