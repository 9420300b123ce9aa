//! The recorded databases: evictions derived from their buffer addresses, and the reference table
//! of second-level hit ratios that came with the traces.
//!
//! The traces lie in a folder beside the repository, or where UNDERCROFT_TRACES says; without
//! them, or without one of them, its tests are skipped.

use std::sync::Arc;

use crate::common::config;
use crate::real_traces::reader;
use undercroft_policy::WriteMode;
use undercroft_sim::{Config, DerivedEvictions, Evictions, Outcome, simulate};
use undercroft_trace::{BlockOptions, BlockStream, DenseTrace};

const MARIADB: (&str, u32) = ("recorded/mariadb-tpcc10w-pool32m.csv.zst", 16_384);
const POSTGRES: (&str, u32) = ("recorded/postgres-tpcc10w-sb32m.csv.zst", 8192);

/// A recorded trace and its evictions, if it is there.
fn load((name, block_bytes): (&str, u32)) -> Option<(DenseTrace, Arc<DerivedEvictions>)> {
    let options = BlockOptions { block_bytes, origins: true, ..BlockOptions::default() };
    let stream = BlockStream::new(reader(name)?, &options).unwrap();
    let (trace, evictions) = DerivedEvictions::load(stream, block_bytes, |_| ()).unwrap();
    Some((trace, Arc::new(evictions)))
}

struct Database {
    trace: DenseTrace,
    evictions: Arc<DerivedEvictions>,
}

impl Database {
    fn load(which: (&str, u32)) -> Option<Self> {
        load(which).map(|(trace, evictions)| Self { trace, evictions })
    }

    fn run(&self, blocks: u32, policy: &str, placement: &str, mode: WriteMode) -> Outcome {
        let warmup = self.trace.seen().records / 10;
        let config = Config {
            rule: placement.parse().unwrap(),
            evictions: Evictions::Derived(self.evictions.clone()),
            ..config(&[(blocks, policy)], mode, warmup)
        };
        simulate(&self.trace, &config, |_| ()).unwrap()
    }

    /// Read hit ratio in percent.
    fn percent(&self, blocks: u32, policy: &str, placement: &str) -> f64 {
        // OPT is judged by the reads alone.
        let mode = if policy == "opt" { WriteMode::NoAllocate } else { WriteMode::Allocate };
        100.0 * self.run(blocks, policy, placement, mode).read_hit_ratio()
    }
}

#[test]
fn evictions_derived_from_buffer_addresses() {
    for (which, all, late) in [(MARIADB, 1_165_410, 106_133), (POSTGRES, 970_349, 0)] {
        let Some(database) = Database::load(which) else { continue };
        let counts = database.evictions.counts().expect("of the table");
        println!("{}: {counts:?}", which.0);
        assert_eq!(database.evictions.len() as u64, counts.reported);
        // The other table was a separate program; corner cases may differ in a few hundred.
        let near = |ours: u64, theirs: u64, per_mille: u64| {
            ours.abs_diff(theirs) * 1000 <= theirs * per_mille
        };
        assert!(near(counts.reported + counts.late, all, 1), "{}: {counts:?}", which.0);
        assert!(near(counts.late, late, 5), "{}: {counts:?}", which.0);
    }
}

/// A size in blocks and its read hit ratios in percent.
type Line = (u32, [f64; 5]);

/// LRU, LRU-EV, MQ, MQ-EV and OPT: the reference table. MQ was tuned by hand there and adapts here.
#[test]
fn the_reference_table() {
    let table: [(_, &[Line]); 2] = [
        (
            MARIADB,
            &[
                (1024, [5.6, 16.4, 24.4, 28.5, 42.0]),
                (2048, [20.1, 29.2, 41.6, 43.6, 58.1]),
                (4096, [46.1, 49.4, 61.7, 60.1, 75.2]),
                (8192, [74.7, 71.1, 81.9, 75.3, 89.4]),
                (16_384, [92.9, 84.8, 93.3, 85.1, 97.0]),
            ],
        ),
        (
            POSTGRES,
            &[
                (2048, [4.9, 18.6, 18.8, 26.8, 32.7]),
                (4096, [10.8, 33.1, 33.0, 45.0, 49.1]),
                (8192, [33.0, 52.8, 51.0, 60.7, 67.9]),
                (16_384, [65.0, 73.1, 71.0, 76.1, 83.6]),
                (32_768, [84.6, 86.4, 86.1, 87.6, 91.8]),
            ],
        ),
    ];
    let columns = [
        ("lru", "access", 0.3),
        ("lru", "eviction,on-hit=move", 0.3),
        ("mq", "access", 2.5),
        ("mq", "eviction,on-hit=move", 2.5),
        ("opt", "access", 0.3),
    ];
    let mut wrong = Vec::new();
    for (which, rows) in table {
        let Some(database) = Database::load(which) else { continue };
        for &(blocks, expected) in rows {
            for ((policy, placement, within), expected) in columns.into_iter().zip(expected) {
                let ours = database.percent(blocks, policy, placement);
                let line =
                    format!("{} {blocks} {policy} {placement}: {ours:.2}, {expected}", which.0);
                println!("{line}");
                // Where the lifetime that adapts is furthest from the best of those tried by hand:
                // with that one, in `real_traces.rs`, ours has 33.0 as well.
                let is_known = (blocks, policy, placement) == (4096, "mq", "access");
                let within = if is_known { 3.1 } else { within };
                // Half a digit for the rounding of the reference.
                if (ours - expected).abs() > within + 0.05 {
                    wrong.push(line);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What adapts is at least the better of both placements less a point at every size, and with LRU
/// below MariaDB it is ahead of both where this cache is no larger than the database's. (With MQ it
/// gives up a third of a point there, and the disk reads a fifth less.)
#[test]
fn adaptive_placement_is_as_good_as_the_better_one() {
    let sizes = [
        (MARIADB, [1024, 2048, 4096, 8192, 16_384]),
        (POSTGRES, [2048, 4096, 8192, 16_384, 32_768]),
    ];
    let mut wrong = Vec::new();
    for (which, sizes) in sizes {
        let Some(database) = Database::load(which) else { continue };
        for policy in ["lru", "mq"] {
            for blocks in sizes {
                let percent = |placement| database.percent(blocks, policy, placement);
                let (access, moves) = (percent("access"), percent("eviction,on-hit=move"));
                let ours = percent("eviction,on-hit=adaptive");
                let line = format!(
                    "{} {blocks} {policy}: adaptive {ours:.2}, access {access:.2}, move {moves:.2}",
                    which.0
                );
                println!("{line}");
                let must_lead = which == MARIADB && blocks <= 2048 && policy == "lru";
                let least = access.max(moves) - if must_lead { 0.0 } else { 1.0 };
                if ours < least || (must_lead && ours <= least) {
                    wrong.push(line);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
