//! The readers against real traces: the counts of requests, blocks and reads that are published
//! with them must come out exactly. The traces are other people's data and no part of this
//! repository: where they are absent, each test says so and passes.
//!
//! Folder: environment variable UNDERCROFT_TRACES, else `shared/traces` beside the checkout.

use std::collections::HashSet;
use std::path::PathBuf;

use undercroft_trace::{Meta, Op, OpenOptions, Record, Unit, create, open};

fn folder() -> PathBuf {
    std::env::var_os("UNDERCROFT_TRACES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
        PathBuf::from,
    )
}

struct Trace {
    meta: Meta,
    records: Vec<Record>,
    spaces: Vec<String>,
    left_out: u64,
}

fn load(path: &std::path::Path, format: Option<&str>) -> Trace {
    let options = OpenOptions { format: format.map(String::from) };
    let mut reader = open(path, &options).unwrap();
    let mut records = Vec::new();
    loop {
        let before = records.len();
        reader.read(&mut records).unwrap();
        if records.len() == before {
            let (meta, spaces) = (reader.meta().clone(), reader.spaces().to_vec());
            return Trace { meta, records, spaces, left_out: reader.left_out().total() };
        }
    }
}

fn real(name: &str) -> Option<Trace> {
    let path = folder().join(name);
    if !path.exists() {
        println!("skipped: no {}", path.display());
        return None;
    }
    Some(load(&path, None))
}

impl Trace {
    /// References to blocks, and how many distinct blocks they touch. `unit` is the size of one
    /// number of the trace in bytes, `block` that of a block.
    fn blocks(&self, unit: u64, block: u64) -> (usize, usize) {
        let mut seen = HashSet::new();
        let mut references = 0;
        for record in &self.records {
            let first = record.address * unit / block;
            let last = ((record.address + record.length) * unit - 1) / block;
            references += (last - first + 1) as usize;
            seen.extend((first..=last).map(|number| (record.space, number)));
        }
        (references, seen.len())
    }

    fn reads(&self) -> usize {
        self.records.iter().filter(|record| record.op == Op::Read).count()
    }

    fn seconds(&self) -> f64 {
        let times = || self.records.iter().map(|record| record.time_ns);
        (times().max().unwrap_or(0) - times().min().unwrap_or(0)) as f64 / 1e9
    }
}

#[test]
fn arc() {
    let pages = [("OLTP", 914_145, 914_145, 186_880)];
    let sectors = [("P3", 238_578, 3_912_296, 762_543), ("P6", 519_711, 12_672_123, 773_770)];
    for (name, records, references, unique) in pages.into_iter().chain(sectors) {
        let Some(trace) = real(&format!("arc/{name}.lis.zst")) else { continue };
        assert_eq!(trace.meta.format, "lis");
        assert_eq!(trace.meta.unit, Unit::Blocks);
        assert_eq!(trace.records.len(), records, "{name}");
        assert_eq!(trace.blocks(1, 1), (references, unique), "{name}");
    }
    for (name, references, unique) in [("P3", 611_918, 102_348), ("P6", 2_021_684, 101_903)] {
        let Some(trace) = real(&format!("arc/{name}.lis.zst")) else { continue };
        assert_eq!(trace.blocks(512, 4096), (references, unique), "{name} at 4 KiB");
    }
}

#[test]
fn lirs() {
    for (name, records, unique) in [
        ("cpp", 9_047, 1_223),
        ("cs", 6_781, 1_409),
        ("gli", 6_015, 2_529),
        ("ps", 10_448, 3_083),
        ("multi1", 15_858, 2_606),
        ("multi2", 26_311, 5_684),
        ("multi3", 30_241, 7_454),
        ("sprite", 133_996, 7_075),
        ("2_pools", 100_000, 9_939),
        ("loop", 505_500, 1_011),
        ("scan", 50_025, 2_001),
        ("zigzag", 52_001, 2_001),
    ] {
        let Some(trace) = real(&format!("lirs/{name}.trc.zst")) else { continue };
        assert_eq!(trace.meta.format, "trc");
        assert_eq!(trace.blocks(1, 1), (records, unique), "{name}");
    }
}

/// Name of the file, format, records, references and unique blocks of 4 KiB, reads in %, seconds,
/// spaces.
type Disk = (&'static str, &'static str, usize, usize, usize, f64, f64, usize);

const DISKS: [Disk; 6] = [
    ("vscsi/cloudPhysicsIO.vscsi", "vscsi", 113_872, 1_141_869, 269_210, 41.3, 7200.0, 1),
    ("spc/Financial1-first10000.spc.zst", "spc", 10_000, 22_511, 7_322, 40.8, 259.6, 22),
    ("spc/WebSearch1-first24783.spc.zst", "spc", 24_783, 93_312, 93_029, 100.0, 60.1, 6),
    ("disksim/tpcc-small.trace.zst", "disksim", 6_999, 20_669, 20_470, 62.6, 0.136, 16),
    ("msr/hm_0-899.csv.zst", "msr", 899, 2_073, 1_545, 45.3, 127.0, 1),
    ("blkparse/java-nvme.blkparse.zst", "blkparse", 1_695, 48_379, 48_379, 100.0, 0.68, 1),
];

#[test]
fn disks() {
    for (name, format, records, references, unique, reads, seconds, spaces) in DISKS {
        let Some(trace) = real(name) else { continue };
        assert_eq!(trace.meta.format, format);
        assert_eq!(trace.meta.unit, Unit::Bytes);
        assert_eq!(trace.records.len(), records, "{name}");
        assert_eq!(trace.blocks(1, 4096), (references, unique), "{name}");
        let share = 100.0 * trace.reads() as f64 / records as f64;
        assert!((share - reads).abs() < 0.051, "{name}: {share} % reads");
        assert!((trace.seconds() / seconds - 1.0).abs() < 0.01, "{name}: {} s", trace.seconds());
        assert_eq!(trace.spaces.len(), spaces, "{name}");
        assert_eq!(trace.left_out, 0, "{name}");
    }
}

/// The published 48,347 blocks are those of the 1,694 requests that reached the disk; the last of
/// the 1,695 that were asked for is cut off before that.
#[test]
fn blkparse_by_action() {
    let path = folder().join("blkparse/java-nvme.blkparse.zst");
    if !path.exists() {
        println!("skipped: no {}", path.display());
        return;
    }
    for action in ["D", "C", "I"] {
        let trace = load(&path, Some(&format!("blkparse,action={action}")));
        assert_eq!(trace.records.len(), 1_694);
        assert_eq!(trace.blocks(1, 4096), (48_347, 48_347));
    }
}

#[test]
fn recorded() {
    for (name, block_bytes, records, writes, buffers, space) in [
        ("mariadb-tpcc10w-pool32m", 16_384, 1_500_000, 348_204, true, "ibdata1"),
        ("postgres-tpcc10w-sb32m", 8_192, 1_486_858, 519_734, true, "global/pg_control"),
    ] {
        let Some(trace) = real(&format!("recorded/{name}.csv.zst")) else { continue };
        assert_eq!(trace.meta.format, "recorded");
        assert_eq!(trace.meta.block_bytes, Some(block_bytes));
        assert_eq!(trace.meta.has_buffers, buffers);
        assert_eq!(trace.records.len(), records, "{name}");
        assert_eq!(records - trace.reads(), writes, "{name}");
        assert!(trace.records.iter().all(|record| record.buffer.is_some()));
        assert_eq!(trace.spaces[0], space);
    }
    let Some(trace) = real("recorded/postgres-tpcc10w-L1.csv.zst") else { return };
    assert_eq!(trace.meta.format, "recorded");
    assert!(!trace.meta.has_buffers);
    assert_eq!((trace.records.len(), trace.spaces.len()), (1_420_645, 91));
}

#[test]
fn real_traces_survive_every_writer_that_can_carry_them() {
    let folder = tempfile::tempdir().unwrap();
    for (name, formats) in [
        ("arc/P3.lis.zst", &["uct", "lis", "csv", "recorded"][..]),
        ("lirs/sprite.trc.zst", &["uct", "trc", "plain", "oraclegeneral", "lis", "csv"]),
        ("spc/Financial1-first10000.spc.zst", &["uct", "spc", "csv"]),
        ("msr/hm_0-899.csv.zst", &["uct", "msr", "csv"]),
        ("recorded/mariadb-tpcc10w-pool32m.csv.zst", &["uct", "recorded"]),
    ] {
        let Some(trace) = real(name) else { continue };
        for format in formats {
            let path = folder.path().join(format!("{format}.zst"));
            let mut writer = create(&path, Some(format), &trace.meta).unwrap();
            writer.write(&trace.records, &trace.spaces).unwrap();
            writer.finish().unwrap();
            let again = load(&path, Some(format));
            assert_eq!(again.spaces, trace.spaces, "{name} as {format}");
            assert!(again.records == trace.records, "{name} as {format}");
        }
    }
}
