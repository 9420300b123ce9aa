//! How far the adviser's figures are from full simulations of the same requests, and how often the
//! stated intervals hold the truth. `make advice` writes the result to
//! `docs/measurements/advice.md`.
//!
//!     coverage FOLDER-OF-TRACES [PART-OF-A-NAME [BLOCKS]]
//!
//! With further arguments it follows only traces with such a name, or only caches of so many
//! blocks.
//!
//! An adviser follows a trace. At every eighth epoch its figures are compared with levels of full
//! size that saw every request from the beginning, over exactly the reads that the figures are of.
//! The adviser is told what today's level of full size missed, as a server tells it: a ratio for
//! each round of its feeder.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use undercroft_adviser::{
    Adviser, CellFigure, Event, Figures, Kind, Options, Today, WIDENING_CORRECTED, budget,
};
use undercroft_cache::placement::Placement;
use undercroft_cache::policy::Spec;
use undercroft_cache::{Level, WriteMode};
use undercroft_random::{SplitMix64, hash};
use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, OpenOptions, open};

/// A trace, the unit of its numbers and its block size in bytes, and the caches to be advised
/// about: their blocks, and the bytes of a block that the budget is reckoned with.
type Case = (&'static str, Option<u32>, u32, &'static [(u32, u64)]);

/// What is compared. A trace without a file is generated: [`drifting`].
const CASES: &[Case] = &[
    ("lirs/sprite.trc.zst", None, 4096, &[(2048, 4096)]),
    ("arc/OLTP.lis.zst", None, 512, &[(4096, 4096), (16384, 4096)]),
    ("arc/P3.lis.zst", Some(512), 4096, &[(4096, 4096), (16384, 4096)]),
    ("arc/P6.lis.zst", Some(512), 4096, &[(4096, 4096), (16384, 4096)]),
    ("vscsi/cloudPhysicsIO.vscsi", None, 4096, &[(4096, 4096), (16384, 4096)]),
    ("recorded/postgres-tpcc10w-sb32m.csv.zst", None, 4096, &[(4096, 4096), (16384, 4096)]),
    ("recorded/mariadb-tpcc10w-pool32m.csv.zst", None, 4096, &[(4096, 4096), (16384, 4096)]),
    ("arc/P3.lis.zst", Some(512), 512, &[(262_144, 4096)]),
    ("arc/P6.lis.zst", Some(512), 512, &[(262_144, 4096)]),
    (GENERATED, None, 4096, &[(262_144, 4096)]),
];

/// The name of the generated trace.
const GENERATED: &str = "generated";

/// References between two rounds of a server's feeder.
const ROUND: usize = 4096;

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
            WIDENING_CORRECTED * Self::quantile(&self.ratios, 0.9)
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
    let chosen = std::env::args().nth(2).unwrap_or_default();
    let blocks = std::env::args().nth(3).and_then(|blocks| blocks.parse::<u32>().ok());
    let cases = CASES.iter().filter(|(name, ..)| name.contains(&chosen));
    for &(name, unit, block_bytes, caches) in cases {
        let path = Path::new(&folder).join(name);
        let references = match name {
            GENERATED => Ok(drifting()),
            _ => read(&path, unit, block_bytes),
        };
        let references = match references {
            Ok(references) => references,
            Err(error) => {
                eprintln!("{name}: {error}");
                continue;
            }
        };
        let caches = caches.iter().filter(|cache| blocks.is_none_or(|blocks| cache.0 == blocks));
        for &(blocks, bytes) in caches {
            let today = hits(&references, "lru", blocks);
            let (mut ratios, mut gains) = (Errors::default(), Errors::default());
            let budget = budget(u64::from(blocks) * bytes);
            let mut moments = Vec::new();
            for seed in SEEDS {
                let options = Options { budget, reserved: RESERVED, seed, ..Options::default() };
                let mut policies = options.policies[..7].to_vec();
                policies.extend(Spec::parse("lru-k"));
                let options = Options { policies, ..options };
                moments.extend(follow(&references, (blocks, &today), &options));
            }
            compare(&references, &today, &moments, (&mut ratios, &mut gains));
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
        }
    }
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

/// Six million reads of two million blocks: skewed, over a part of them that moves slowly, and
/// every fifth in a loop over a million others.
fn drifting() -> Vec<(u64, bool)> {
    let mut random = SplitMix64::new(1);
    let block = |at: u64| match at % 5 {
        0 => (1 << 32) + at / 5 % (1 << 20),
        _ => at / 16 + (random.next_f64().powi(4) * f64::from(1 << 20)) as u64,
    };
    (0..6_000_000).map(block).map(|block| (hash(block), false)).collect()
}

/// How many reads were hits before each reference, and in the end.
fn hits(references: &[(u64, bool)], policy: &str, blocks: u32) -> Vec<u64> {
    let spec = Spec::parse(policy).expect("a policy that the adviser knows");
    let level = Level::new(&spec, blocks, &Placement::Access, WriteMode::Allocate, 1);
    let mut level = level.expect("a level that the adviser made");
    let (mut hits, mut before) = (0, vec![0]);
    before.extend(references.iter().map(|&(block, is_write)| {
        let hit = level.reference(block, is_write, || false).hit;
        hits += u64::from(hit && !is_write);
        hits
    }));
    before
}

/// The share of the reads that missed in a stretch, if there were any.
fn miss_ratio(references: &[(u64, bool)], hits: u64) -> Option<f64> {
    let reads = references.iter().filter(|(_, is_write)| !is_write).count();
    (reads > 0).then(|| 1.0 - hits as f64 / reads as f64)
}

/// Lets an adviser follow the references; today's cache has so many blocks, and these hits. Returns
/// what the adviser knew at every eighth epoch.
fn follow(
    references: &[(u64, bool)],
    (blocks, hits): (u32, &[u64]),
    options: &Options,
) -> Vec<Moment> {
    let policy = Spec::parse("lru").expect("lru is a policy");
    let today = Today { policy, placement: Placement::Access, blocks, mode: WriteMode::Allocate };
    let mut adviser = Adviser::new(today, options).expect("there is advice for LRU");
    let sample = adviser.sample();
    // Where each epoch ended.
    let (mut ends, mut moments) = (vec![0], Vec::new());
    let (mut events, mut reads) = (Vec::new(), 0);
    for (at, &(block, is_write)) in references.iter().enumerate() {
        if at % ROUND == 0 {
            let round = at..references.len().min(at + ROUND);
            let hits = hits[round.end] - hits[at];
            adviser.set_miss_ratio(miss_ratio(&references[round], hits));
        }
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
    today: &[u64],
    moments: &[Moment],
    (ratios, gains): (&mut Errors, &mut Errors),
) {
    let of_moment = |hits: &[u64], moment: &Moment| {
        (hits[moment.to] - hits[moment.from]) as f64 / moment.figures.reads.max(1) as f64
    };
    let cells = moments.iter().flat_map(|moment| &moment.figures.cells);
    let all: BTreeSet<_> = cells.map(|cell| (cell.policy.clone(), cell.blocks)).collect();
    for (policy, blocks) in all {
        let hits = hits(references, &policy, blocks);
        for moment in moments {
            let is_it = |cell: &&CellFigure| cell.policy == policy && cell.blocks == blocks;
            let Some(cell) = moment.figures.cells.iter().find(is_it) else { continue };
            let (truth, of_today) = (of_moment(&hits, moment), of_moment(today, moment));
            ratios.add(cell.hits.value, truth, cell.hits.error);
            if !cell.is_today {
                gains.add(cell.gain.value, truth - of_today, cell.gain.error);
            }
        }
    }
}
