//! A flash level below simulated caches.

use crate::common::{blocks, config, trace};
use crate::real_traces::load;
use undercroft_policy::{Counts, WriteMode};
use undercroft_sim::{Config, FlashReport, Lowest, Outcome, Population, Report, Timing, simulate};
use undercroft_trace::DenseTrace;

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
