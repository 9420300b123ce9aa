//! How far the adviser's figures are from full simulations of the same requests, and how often the
//! stated intervals hold the truth. `make advice` writes the result to
//! `docs/measurements/advice.md`.
//!
//!     coverage FOLDER-OF-TRACES [PART-OF-A-NAME [BLOCKS]]
//!
//! With further arguments it follows only cases with such a name, or only caches of so many blocks.
//!
//! An adviser follows a trace. At every eighth epoch its figures are compared with levels of full
//! size that saw every request from the beginning, over exactly the reads that the figures are of.
//! The adviser is told what today's level of full size missed, as a server tells it: a ratio for
//! each round of its feeder.
//!
//! Left out is LFU: it counts accesses without end, so what it is worth depends on when it began,
//! and the adviser gives it a turn only now and then.
//!
//! In some cases the trace passes an LRU cache of a client first. The client tells what it evicts,
//! and today's level places these blocks at their eviction.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use undercroft_adviser::{
    Adviser, CellFigure, Event, Figures, Kind, Options, Today, WIDENING_CORRECTED, budget,
};
use undercroft_level::placement::{DataSource, Placement};
use undercroft_level::{Level, PlacementStep};
use undercroft_policy::{Spec, WriteMode};
use undercroft_random::{SplitMix64, hash};
use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, OpenOptions, open};

/// What is compared.
struct Case {
    trace: &'static str,
    /// The unit of the trace's numbers in bytes, if the trace does not say it, and the block size.
    unit: Option<u32>,
    block_bytes: u32,
    /// The blocks of the client's cache above, if there is one.
    client: Option<u32>,
    /// The caches to be advised about: their blocks, and the bytes of a block that the budget is
    /// reckoned with.
    caches: &'static [(u32, u64)],
}

const fn case(
    trace: &'static str,
    unit: Option<u32>,
    block_bytes: u32,
    client: Option<u32>,
    caches: &'static [(u32, u64)],
) -> Case {
    Case { trace, unit, block_bytes, client, caches }
}

/// Two sizes that most traces have room for: 16 and 64 MiB of blocks of 4 KiB.
const TWO: &[(u32, u64)] = &[(4096, 4096), (16384, 4096)];

/// What stands for 1 GiB.
const LARGE: &[(u32, u64)] = &[(262_144, 4096)];

const CASES: &[Case] = &[
    case("lirs/sprite.trc.zst", None, 4096, None, &[(2048, 4096)]),
    case("arc/OLTP.lis.zst", None, 512, None, TWO),
    case("arc/P3.lis.zst", Some(512), 4096, None, TWO),
    case("arc/P6.lis.zst", Some(512), 4096, None, TWO),
    case("vscsi/cloudPhysicsIO.vscsi", None, 4096, None, TWO),
    case("recorded/postgres-tpcc10w-sb32m.csv.zst", None, 4096, None, TWO),
    case("recorded/mariadb-tpcc10w-pool32m.csv.zst", None, 4096, None, TWO),
    case("arc/P6.lis.zst", Some(512), 512, None, LARGE),
    case(GENERATED, None, 4096, None, LARGE),
    case("arc/OLTP.lis.zst", None, 512, Some(2000), TWO),
    case("recorded/postgres-tpcc10w-L1.csv.zst", None, 4096, Some(4096), TWO),
];

impl Case {
    fn name(&self) -> String {
        let below = self.client.map(|blocks| format!(", below a client of {blocks}"));
        format!("{}, {}{}", self.trace, self.block_bytes, below.unwrap_or_default())
    }

    /// The placement of today's cache.
    fn placement(&self) -> Placement {
        match self.client {
            None => Placement::Access,
            Some(_) => "eviction,on-hit=move".parse().expect("a placement"),
        }
    }
}

/// A block, and what a client does with it.
type Reference = (u64, Deed);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    Read,
    Write,
    Evict,
}

/// The name of the generated trace.
const GENERATED: &str = "generated";

/// References between two rounds of a server's feeder.
const ROUND: usize = 1024;

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
    for case in CASES.iter().filter(|case| case.name().contains(&chosen)) {
        let path = Path::new(&folder).join(case.trace);
        let references = match case.trace {
            GENERATED => Ok(drifting()),
            _ => read(&path, case.unit, case.block_bytes),
        };
        let references = match references {
            Ok(references) => references,
            Err(error) => {
                eprintln!("{}: {error}", case.trace);
                continue;
            }
        };
        let references = match case.client {
            Some(client) => below(&references, client),
            None => references,
        };
        let caches =
            case.caches.iter().filter(|cache| blocks.is_none_or(|blocks| cache.0 == blocks));
        for &cache in caches {
            match row(case, &references, cache) {
                Some(row) => println!("{row}"),
                None => {
                    eprintln!("{} with {} blocks: too short for a figure", case.name(), cache.0);
                }
            }
        }
    }
    ExitCode::SUCCESS
}

/// The row of the table for a cache, if the trace is long enough.
fn row(case: &Case, references: &[Reference], (blocks, bytes): (u32, u64)) -> Option<String> {
    let placement = case.placement();
    let today = hits(references, "lru", &placement, blocks);
    let (mut ratios, mut gains) = (Errors::default(), Errors::default());
    let budget = budget(u64::from(blocks) * bytes);
    let mut moments = Vec::new();
    for seed in SEEDS {
        let options = Options { budget, reserved: RESERVED, seed, ..Options::default() };
        moments.extend(follow(references, placement, (blocks, &today), &options));
    }
    compare(references, &today, &moments, (&mut ratios, &mut gains));
    let rate = moments.first().filter(|_| !ratios.off.is_empty())?.figures.rate;
    Some(format!(
        "| {} | {blocks} | {rate:.4} | {} | {} | {} |",
        case.name(),
        moments.len(),
        ratios.columns(),
        gains.columns()
    ))
}

/// The references of a trace.
fn read(
    path: &Path,
    unit_bytes: Option<u32>,
    block_bytes: u32,
) -> Result<Vec<Reference>, undercroft_trace::Error> {
    let reader = open(path, &OpenOptions::default())?;
    let options = BlockOptions { block_bytes, unit_bytes, ..BlockOptions::default() };
    let trace = DenseTrace::load(BlockStream::new(reader, &options)?, |_| ())?;
    let mut all = Vec::new();
    trace.for_each_chunk(|_, chunk| {
        all.extend(chunk.iter().map(|one| {
            let deed = if one.is_write() { Deed::Write } else { Deed::Read };
            (trace.names().name(one.block()), deed)
        }));
    })?;
    Ok(all)
}

/// What a client with an LRU cache of so many blocks passes down: reads that it misses, all writes,
/// and what it evicts.
fn below(references: &[Reference], client: u32) -> Vec<Reference> {
    let mut cache = level("lru", &Placement::Access, client);
    let mut all = Vec::new();
    for &(block, deed) in references {
        let is_write = deed == Deed::Write;
        let hit = cache.reference(block, is_write, || false).hit;
        if is_write || !hit {
            all.push((block, deed));
        }
        all.extend(cache.evicted().iter().map(|evicted| (evicted.block, Deed::Evict)));
    }
    all
}

/// Six million reads of two million blocks: skewed, over a part of them that moves slowly, and
/// every fifth in a loop over a million others.
fn drifting() -> Vec<Reference> {
    let mut random = SplitMix64::new(1);
    let block = |at: u64| match at % 5 {
        0 => (1 << 32) + at / 5 % (1 << 20),
        _ => at / 16 + (random.next_f64().powi(4) * f64::from(1 << 20)) as u64,
    };
    (0..6_000_000).map(block).map(|block| (hash(block), Deed::Read)).collect()
}

fn level(policy: &str, placement: &Placement, blocks: u32) -> Level {
    let spec = Spec::parse(policy).expect("a policy that the adviser knows");
    let level = Level::new(&spec, blocks, placement, WriteMode::Allocate, 1);
    level.expect("a level that the adviser made")
}

/// How many reads were hits before each reference, and in the end.
fn hits(references: &[Reference], policy: &str, placement: &Placement, blocks: u32) -> Vec<u64> {
    let mut level = level(policy, placement, blocks);
    let (mut hits, mut before) = (0, vec![0]);
    before.extend(references.iter().map(|&(block, deed)| {
        if deed == Deed::Evict {
            if level.client_evicted(block) == PlacementStep::Fetch {
                level.arrived(block, DataSource::Reload);
            }
        } else {
            let is_read = deed == Deed::Read;
            hits += u64::from(level.reference(block, !is_read, || false).hit && is_read);
        }
        hits
    }));
    before
}

/// The share of the reads that missed in a stretch, if there were any.
fn miss_ratio(references: &[Reference], hits: u64) -> Option<f64> {
    let reads = references.iter().filter(|(_, deed)| *deed == Deed::Read).count();
    (reads > 0).then(|| 1.0 - hits as f64 / reads as f64)
}

/// Lets an adviser follow the references; today's cache has so many blocks, and these hits. Returns
/// what the adviser knew at every eighth epoch.
fn follow(
    references: &[Reference],
    placement: Placement,
    (blocks, hits): (u32, &[u64]),
    options: &Options,
) -> Vec<Moment> {
    let policy = Spec::parse("lru").expect("lru is a policy");
    let today = Today { policy, placement, blocks, mode: WriteMode::Allocate };
    let mut adviser = Adviser::new(today, options).expect("there is advice for LRU");
    let sample = adviser.sample();
    // Where each epoch ended.
    let (mut ends, mut moments, mut events) = (vec![0], Vec::new(), Vec::new());
    for (number, round) in references.chunks(ROUND).enumerate() {
        let (from, to) = (number * ROUND, number * ROUND + round.len());
        adviser.begin_round(miss_ratio(round, hits[to] - hits[from]));
        let mut reads = 0;
        for &(block, deed) in round {
            reads += u32::from(deed == Deed::Read);
            if !sample.takes(block) {
                continue;
            }
            let (is_whole, tells) = (true, placement != Placement::Access);
            let kind = match deed {
                Deed::Read => Kind::Read { is_whole, tells },
                Deed::Write => Kind::Write { is_whole, tells },
                Deed::Evict => Kind::Evicted { has_contents: false },
            };
            events.push(Event { block, at_us: 0, reads, kind, client: 0 });
            reads = 0;
        }
        adviser.take(&events);
        adviser.saw_reads(reads.into());
        events.clear();
        adviser.end_round();
        // A round is shorter than two epochs, so at most one ended, and here.
        if ends.len() as u64 <= adviser.epochs() {
            ends.push(to);
            let figures = adviser.figures();
            if figures.kept == 8 && figures.epochs % 8 == 0 {
                let from = ends[ends.len() - 1 - figures.kept];
                moments.push(Moment { figures, from, to });
            }
        }
    }
    moments
}

/// Adds how far the figures are from full simulations.
fn compare(
    references: &[Reference],
    today: &[u64],
    moments: &[Moment],
    (ratios, gains): (&mut Errors, &mut Errors),
) {
    let of_moment = |hits: &[u64], moment: &Moment| {
        (hits[moment.to] - hits[moment.from]) as f64 / moment.figures.reads.max(1) as f64
    };
    let cells = moments.iter().flat_map(|moment| &moment.figures.cells);
    let cells = cells.filter(|cell| cell.policy != "lfu");
    let named = |cell: &CellFigure| (cell.policy.clone(), cell.placement.clone(), cell.blocks);
    let all: BTreeSet<_> = cells.map(named).collect();
    for (policy, placement, blocks) in all {
        let its = placement.parse().expect("a placement that the adviser knows");
        let hits = hits(references, &policy, &its, blocks);
        for moment in moments {
            let is_it = |cell: &&CellFigure| {
                (&cell.policy, &cell.placement, cell.blocks) == (&policy, &placement, blocks)
            };
            let Some(cell) = moment.figures.cells.iter().find(is_it) else { continue };
            let (truth, of_today) = (of_moment(&hits, moment), of_moment(today, moment));
            ratios.add(cell.hits.value, truth, cell.hits.error);
            if !cell.is_today {
                gains.add(cell.gain.value, truth - of_today, cell.gain.error);
            }
        }
    }
}
