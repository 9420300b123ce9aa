//! Real traces: the LRU hit ratios published with them, to the last printed digit; those of LRU and
//! MQ on the recorded databases; and pinned hits of every policy.
//!
//! The traces lie in a folder beside the repository, or where UNDERCROFT_TRACES says; without
//! them, or without one of them, its tests are skipped.

use std::path::PathBuf;

use crate::common::{config, online_policies};
use undercroft_policy::{Reference, WriteMode};
use undercroft_sim::curve::{LruStack, opt_curve};
use undercroft_sim::simulate;
use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, OpenOptions, Reader, open};

/// The requests of a trace, if it is there.
pub(crate) fn reader(name: &str) -> Option<Box<dyn Reader>> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("UNDERCROFT_TRACES").map_or_else(beside, PathBuf::from);
    let path = folder.join(name);
    if !path.exists() {
        println!("skipped: no {name}");
        return None;
    }
    Some(open(&path, &OpenOptions::default()).unwrap())
}

/// A trace, if it is there; `unit_bytes` as for [`BlockOptions`].
pub(crate) fn load(name: &str, block_bytes: u32, unit_bytes: Option<u32>) -> Option<DenseTrace> {
    let options = BlockOptions { block_bytes, unit_bytes, ..BlockOptions::default() };
    let stream = BlockStream::new(reader(name)?, &options).unwrap();
    Some(DenseTrace::load(stream, |_| ()).unwrap())
}

fn references(trace: &DenseTrace) -> Vec<Reference> {
    let mut all = Vec::with_capacity(trace.len() as usize);
    let mut add = |_, refs: &[undercroft_trace::Ref]| {
        all.extend(refs.iter().map(|r| Reference::new(r.block(), r.is_write())));
    };
    trace.for_each_chunk(&mut add).unwrap();
    all
}

/// Hits over reads and writes in percent, as published: a simulation a size, and the curve.
fn check_lru(name: &str, trace: &DenseTrace, published: &[(u32, &str)]) {
    let mut stack = LruStack::new();
    stack.feed(trace.unique(), &references(trace));
    let curve = stack.finish();
    for &(capacity, expected) in published {
        let config = config(&[(capacity, "lru")], WriteMode::Allocate, 0);
        let level = simulate(trace, &config, |_| ()).unwrap().levels[0];
        assert_eq!(curve.hits(capacity), (level.read_hits, level.write_hits), "{name} {capacity}");
        let share = (level.read_hits + level.write_hits) as f64 / trace.len() as f64;
        assert_eq!(format!("{:.2}", 100.0 * share), expected, "{name} in {capacity}");
    }
}

#[test]
fn lru_on_page_references() {
    let published: [(&str, &[(u32, &str)]); 12] = [
        (
            "arc/OLTP.lis.zst",
            &[
                (1000, "32.83"),
                (2000, "42.47"),
                (5000, "53.65"),
                (10_000, "60.70"),
                (15_000, "64.63"),
            ],
        ),
        (
            "lirs/sprite.trc.zst",
            &[(100, "21.58"), (250, "48.84"), (500, "78.30"), (1000, "90.64"), (2000, "93.48")],
        ),
        ("lirs/ps.trc.zst", &[(500, "48.55"), (2000, "70.48")]),
        ("lirs/multi1.trc.zst", &[(1000, "48.23")]),
        ("lirs/multi2.trc.zst", &[(1000, "47.80")]),
        ("lirs/multi3.trc.zst", &[(1000, "37.70")]),
        ("lirs/cpp.trc.zst", &[(250, "83.00")]),
        ("lirs/cs.trc.zst", &[(1000, "1.83"), (2000, "79.22")]),
        ("lirs/gli.trc.zst", &[(1000, "11.21")]),
        ("lirs/2_pools.trc.zst", &[(1000, "54.41")]),
        ("lirs/zigzag.trc.zst", &[(1000, "48.03")]),
        ("lirs/loop.trc.zst", &[(1000, "0.00"), (2000, "99.80")]),
    ];
    for (name, published) in published {
        let Some(trace) = load(name, 4096, None) else { continue };
        check_lru(name, &trace, published);
    }
}

/// The workstation disks, with blocks of 512 bytes as they are and regrouped into 4 KiB.
#[test]
fn lru_on_workstation_disks() {
    for (name, sectors, blocks) in [
        (
            "arc/P3.lis.zst",
            [(65_536, "12.72"), (262_144, "65.12")],
            [(1024, "11.48"), (16_384, "48.52"), (65_536, "81.87")],
        ),
        (
            "arc/P6.lis.zst",
            [(65_536, "17.76"), (262_144, "90.16")],
            [(1024, "12.65"), (16_384, "75.04"), (65_536, "94.56")],
        ),
    ] {
        if let Some(trace) = load(name, 512, None) {
            check_lru(name, &trace, &sectors);
        }
        if let Some(trace) = load(name, 4096, Some(512)) {
            check_lru(name, &trace, &blocks);
        }
    }
}

#[test]
fn lru_on_disks_of_servers() {
    let published: [(&str, &[(u32, &str)]); 3] = [
        (
            "vscsi/cloudPhysicsIO.vscsi",
            &[(1024, "9.89"), (16_384, "11.57"), (65_536, "24.92"), (131_072, "46.83")],
        ),
        ("spc/Financial1-first10000.spc.zst", &[(128, "52.45"), (512, "58.90"), (4096, "67.15")]),
        ("msr/hm_0-899.csv.zst", &[(256, "24.22")]),
    ];
    for (name, published) in published {
        let Some(trace) = load(name, 4096, None) else { continue };
        check_lru(name, &trace, published);
    }
}

/// Read hit ratios of the second level below two databases, after a warm-up of 10 % of the rows.
/// MQ is the best of the lifetimes of 2, 8 and 24 times the cache size.
#[test]
fn lru_and_mq_below_databases() {
    for (name, block_bytes, published) in [
        (
            "recorded/mariadb-tpcc10w-pool32m.csv.zst",
            16_384,
            [(1024, "5.6", "24.4"), (2048, "20.1", "41.6"), (8192, "74.7", "81.9")],
        ),
        (
            "recorded/postgres-tpcc10w-sb32m.csv.zst",
            8192,
            [(2048, "4.9", "18.8"), (4096, "10.8", "33.0"), (16_384, "65.0", "71.0")],
        ),
    ] {
        let Some(trace) = load(name, block_bytes, None) else { continue };
        let warmup = trace.seen().records / 10;
        for (capacity, lru, mq) in published {
            let percent = |policy: &str| {
                let config = config(&[(capacity, policy)], WriteMode::Allocate, warmup);
                100.0 * simulate(&trace, &config, |_| ()).unwrap().read_hit_ratio()
            };
            let lifetimes = [2, 8, 24].map(|times| times * capacity);
            let best = lifetimes.map(|life| percent(&format!("mq,lifetime={life},qout=4")));
            println!("{name} in {capacity}: lru {:.3}, mq {best:.3?}", percent("lru"));
            let best = best.into_iter().fold(0.0, f64::max);
            let ours = (format!("{:.1}", percent("lru")), format!("{best:.1}"));
            assert_eq!(ours, (lru.into(), mq.into()), "{name} in {capacity}");
        }
    }
}

/// Read hits on sprite in 500 blocks and on multi2 in 1000.
///
/// These are the engine's own results, written down so that none changes unnoticed. That they are
/// right is for the naive models to say, which every policy is compared with in its own crate.
/// Those of `auto`, `fbr` and `lfru` are what their naive models count on these traces.
const PINNED: &[(&str, u64, u64)] = &[
    ("lru", 104_922, 12_577),
    ("mru", 16_165, 5_027),
    ("fifo", 98_632, 10_202),
    ("lfu", 93_339, 13_129),
    ("fbr", 102_137, 13_176),
    ("lru-k", 101_267, 13_118),
    ("lfru", 97_420, 13_146),
    ("2q", 104_758, 12_911),
    ("mq", 101_198, 13_109),
    ("lirs", 101_958, 15_299),
    ("arc", 103_673, 13_352),
    ("clock", 104_980, 12_634),
    ("clock-pro", 104_988, 14_986),
    ("car", 103_892, 13_352),
    ("s3-fifo", 105_709, 13_102),
    ("sieve", 97_273, 13_341),
    ("w-tinylfu", 99_932, 14_692),
    ("auto", 106_877, 14_641),
    ("opt", 117_760, 16_354),
];

#[test]
fn hits_of_every_policy_stay_as_they_are() {
    let sprite = load("lirs/sprite.trc.zst", 4096, None);
    let multi2 = load("lirs/multi2.trc.zst", 4096, None);
    let (Some(sprite), Some(multi2)) = (sprite, multi2) else { return };
    let hits = |trace: &DenseTrace, capacity: u32, name: &str| {
        let config = config(&[(capacity, name)], WriteMode::Allocate, 0);
        simulate(trace, &config, |_| ()).unwrap().read_hits()
    };
    let best = [(&sprite, 500), (&multi2, 1000)]
        .map(|(trace, size)| opt_curve(&references(trace)).unwrap().hits(size).0);
    let mut wrong = Vec::new();
    for name in online_policies().into_iter().chain(["opt"]) {
        let ours = (hits(&sprite, 500, name), hits(&multi2, 1000, name));
        assert!(ours.0 <= best[0] && ours.1 <= best[1], "{name} beats opt");
        let row = format!("    (\"{name}\", {}, {}),", ours.0, ours.1);
        match PINNED.iter().find(|pinned| pinned.0 == name) {
            Some(pinned) if *pinned != (name, ours.0, ours.1) => wrong.push(row),
            Some(_) => {}
            None => println!("not pinned:\n{row}"),
        }
    }
    assert!(wrong.is_empty(), "not as pinned:\n{}", wrong.join("\n"));
}
