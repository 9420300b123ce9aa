//! How far the adviser's figures are from full simulations of the same requests, and how often the
//! stated intervals hold the truth. `make advice` writes the result to
//! `docs/measurements/advice.md`.
//!
//!     coverage FOLDER-OF-TRACES > docs/measurements/advice.md
//!
//! An adviser follows a trace. At every eighth epoch its figures are compared with levels of full
//! size that saw every request from the beginning, over exactly the reads that the figures are of.

use std::path::Path;
use std::process::ExitCode;

use undercroft_adviser::{Adviser, Event, Figures, Kind, Options, Today, WIDENING, budget};
use undercroft_cache::placement::Placement;
use undercroft_cache::policy::Spec;
use undercroft_cache::{Level, WriteMode};
use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, OpenOptions, open};

/// A trace, the unit of its numbers and its block size in bytes, and the caches to be advised
/// about: their blocks, and the bytes of a block that the budget is reckoned with.
type Case = (&'static str, Option<u32>, u32, &'static [(u32, u64)]);

/// What is compared.
const CASES: &[Case] = &[
    ("lirs/sprite.trc.zst", None, 4096, &[(2048, 4096)]),
    ("arc/OLTP.lis.zst", None, 512, &[(4096, 4096), (16384, 4096)]),
    ("arc/P3.lis.zst", Some(512), 4096, &[(4096, 4096), (16384, 4096)]),
    ("arc/P6.lis.zst", Some(512), 4096, &[(4096, 4096), (16384, 4096)]),
    ("vscsi/cloudPhysicsIO.vscsi", None, 4096, &[(4096, 4096), (16384, 4096)]),
    ("recorded/postgres-tpcc10w-sb32m.csv.zst", None, 4096, &[(4096, 4096), (16384, 4096)]),
    ("recorded/mariadb-tpcc10w-pool32m.csv.zst", None, 4096, &[(4096, 4096), (16384, 4096)]),
    ("arc/P3.lis.zst", Some(512), 512, &[(65536, 16384)]),
    ("arc/P6.lis.zst", Some(512), 512, &[(262_144, 4096)]),
];

/// Seeds of the sample: each is a sample of its own.
const SEEDS: std::ops::Range<u64> = 1..4;

/// Bytes of events that a server's tap takes from the budget.
const RESERVED: u64 = 768 << 10;

/// The figures at a moment, and the references that they are of.
struct Moment {
    figures: Figures,
    from: usize,
    to: usize,
}

/// Differences between figures and the truth.
#[derive(Default)]
struct Errors {
    off: Vec<f64>,
    /// How many times the stated error each is.
    ratios: Vec<f64>,
}

impl Errors {
    fn add(&mut self, value: f64, truth: f64, error: f64) {
        let off = (value - truth).abs();
        self.off.push(off);
        // What is exact to the last digits is within any interval.
        self.ratios.push(if off < 1e-9 { 0.0 } else { off / error.max(1e-12) });
    }

    fn quantile(of: &[f64], q: f64) -> f64 {
        let mut sorted = of.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
            .get(((sorted.len() as f64 * q) as usize).min(sorted.len().max(1) - 1))
            .copied()
            .unwrap_or(0.0)
    }

    /// 95th percentile in points, share within the interval in percent, and the factor with which
    /// nine in ten would be.
    fn columns(&self) -> String {
        let within = self.ratios.iter().filter(|&&ratio| ratio <= 1.0).count();
        format!(
            "{:.2} | {:.1} % | {:.2}",
            100.0 * Self::quantile(&self.off, 0.95),
            100.0 * within as f64 / self.ratios.len().max(1) as f64,
            WIDENING * Self::quantile(&self.ratios, 0.9)
        )
    }
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("expected the folder of the traces");
        return ExitCode::FAILURE;
    };
    println!(
        "| trace | blocks of the cache | rate | moments | ratio: 95th percentile, points | within | \
         factor | gain: 95th percentile, points | within | factor |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let (mut all_ratios, mut all_gains) = (Errors::default(), Errors::default());
    for &(name, unit, block_bytes, caches) in CASES {
        let path = Path::new(&folder).join(name);
        let references = match read(&path, unit, block_bytes) {
            Ok(references) => references,
            Err(error) => {
                eprintln!("{name}: {error}");
                continue;
            }
        };
        for &(blocks, bytes) in caches {
            let (mut ratios, mut gains) = (Errors::default(), Errors::default());
            let budget = budget(u64::from(blocks) * bytes);
            let mut moments = Vec::new();
            for seed in SEEDS {
                let options = Options { budget, reserved: RESERVED, seed, ..Options::default() };
                let options = Options { policies: options.policies[..7].to_vec(), ..options };
                moments.extend(follow(&references, blocks, &options));
            }
            compare(&references, blocks, &moments, (&mut ratios, &mut gains));
            if ratios.off.is_empty() {
                eprintln!("{name} with {blocks} blocks: too short for a figure");
                continue;
            }
            let (rate, moments) = (moments[0].figures.rate, moments.len());
            println!(
                "| {name}, {block_bytes} | {blocks} | {rate:.4} | {moments} | {} | {} |",
                ratios.columns(),
                gains.columns()
            );
            all_ratios.off.append(&mut ratios.off);
            all_ratios.ratios.append(&mut ratios.ratios);
            all_gains.off.append(&mut gains.off);
            all_gains.ratios.append(&mut gains.ratios);
        }
    }
    println!("| all | | | | {} | {} |", all_ratios.columns(), all_gains.columns());
    ExitCode::SUCCESS
}

/// The references of a trace: block, and whether it is a write.
fn read(
    path: &Path,
    unit_bytes: Option<u32>,
    block_bytes: u32,
) -> Result<Vec<(u64, bool)>, undercroft_trace::Error> {
    let reader = open(path, &OpenOptions::default())?;
    let options = BlockOptions { block_bytes, unit_bytes, ..BlockOptions::default() };
    let trace = DenseTrace::load(BlockStream::new(reader, &options)?, |_| ())?;
    let mut all = Vec::new();
    trace.for_each_chunk(|_, chunk| {
        let named = |one: &undercroft_trace::Ref| (trace.names().name(one.block()), one.is_write());
        all.extend(chunk.iter().map(named));
    })?;
    Ok(all)
}

/// Lets an adviser follow the references. Returns what it knew at every eighth epoch.
fn follow(references: &[(u64, bool)], blocks: u32, options: &Options) -> Vec<Moment> {
    let policy = Spec::parse("lru").expect("lru is a policy");
    let today = Today { policy, placement: Placement::Access, blocks, mode: WriteMode::Allocate };
    let mut adviser = Adviser::new(today, options).expect("there is advice for LRU");
    let sample = adviser.sample();
    // Where each epoch ended.
    let (mut ends, mut moments) = (vec![0], Vec::new());
    let (mut events, mut reads) = (Vec::new(), 0);
    for (at, &(block, is_write)) in references.iter().enumerate() {
        reads += u32::from(!is_write);
        if !sample.takes(block) {
            continue;
        }
        let (is_whole, tells) = (true, false);
        let kind =
            if is_write { Kind::Write { is_whole, tells } } else { Kind::Read { is_whole, tells } };
        events.push(Event { block, at_us: 0, reads, kind, client: 0 });
        reads = 0;
        // An epoch ends with so many events, or with none.
        if events.len() == 64 {
            adviser.take(&events);
            events.clear();
            if ends.len() as u64 <= adviser.epochs() {
                ends.push(at + 1);
                let figures = adviser.figures();
                if figures.kept == 8 && figures.epochs % 8 == 0 {
                    let from = ends[ends.len() - 1 - figures.kept];
                    moments.push(Moment { figures, from, to: at + 1 });
                }
            }
        }
    }
    moments
}

/// Adds how far the figures are from full simulations.
fn compare(
    references: &[(u64, bool)],
    today: u32,
    moments: &[Moment],
    (ratios, gains): (&mut Errors, &mut Errors),
) {
    let Some(first) = moments.first() else { return };
    let full = |policy: &str, blocks: u32| {
        let spec = Spec::parse(policy).expect("a policy that the adviser knows");
        let level = Level::new(&spec, blocks, &Placement::Access, WriteMode::Allocate, 1);
        let mut level = level.expect("a level that the adviser made");
        let (mut hits, mut before) = (0_u64, vec![0]);
        before.extend(references.iter().map(|&(block, is_write)| {
            let hit = level.reference(block, is_write, || false).hit;
            hits += u64::from(hit && !is_write);
            hits
        }));
        let ratio = |moment: &Moment| {
            (before[moment.to] - before[moment.from]) as f64 / moment.figures.reads.max(1) as f64
        };
        moments.iter().map(ratio).collect::<Vec<_>>()
    };
    let of_today = full("lru", today);
    for (at, cell) in first.figures.cells.iter().enumerate() {
        let truth = full(&cell.policy, cell.blocks);
        for (number, moment) in moments.iter().enumerate() {
            let cell = &moment.figures.cells[at];
            ratios.add(cell.hits.value, truth[number], cell.hits.error);
            if !cell.is_today {
                gains.add(cell.gain.value, truth[number] - of_today[number], cell.gain.error);
            }
        }
    }
}
