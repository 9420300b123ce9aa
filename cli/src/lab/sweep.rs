//! `undercroft sweep`: every combination of traces, sizes, policies and placements.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use undercroft_sim::{
    Config, CostSpec, DemotionCost, LevelSpec, Plan, Ratio, Row, Size, Source, Times,
    parse_policies, sweep,
};

use crate::error::Error;
use crate::lab::cooperation::CooperationOptions;
use crate::lab::input::{SimulationOptions, TraceOptions};
use crate::lab::lowest::LowestOptions;
use crate::lab::progress::Sweeping;
use crate::lab::report::{ReportOption, command};
use crate::table::{Table, bytes, count, percent};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Trace files
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// A level above the one that varies: SIZE:POLICY[,key=value...]; or, without --l2 and without
    /// a policy, the sizes of the only level
    #[arg(long, value_name = "LEVEL|SIZES")]
    l1: Option<String>,
    /// Sizes of the level that varies: a list, and ranges in doublings with their ends, as
    /// 1%,64MiB..4GiB [default: 1% to 100% of the trace's distinct blocks]
    #[arg(long, value_name = "SIZES")]
    l2: Option<String>,
    /// Let all levels vary, their sizes as parts of the first one's, as 1:4 or 1:2:4
    #[arg(long, value_name = "PARTS", conflicts_with_all = ["l1", "l2"], requires = "sizes")]
    ratio: Option<Ratio>,
    /// With --ratio: sizes of the first level, written as those of --l2
    #[arg(long, value_name = "SIZES", requires = "ratio")]
    sizes: Option<String>,
    /// Its policies: a list, as lru,arc,mq,m=8,2q; all stands for all but opt, lru-ca and clock-ca
    #[arg(long, value_name = "POLICIES", default_value = "all")]
    policy: String,
    /// Times of the levels and of the disk, as those of simulate
    #[arg(long, value_name = "COSTS")]
    costs: Option<CostSpec>,
    /// What a block sent down costs reads under a scheme that moves blocks by hints: free, rtt or
    /// link=N [default: rtt]
    #[arg(long, value_name = "COST")]
    demotions: Option<DemotionCost>,
    /// Start of the random numbers of schemes that toss coins
    #[arg(long, value_name = "N", default_value = "42")]
    seed: u64,
    /// Folder of the results: results.csv, results.json, and runs.jsonl to resume from
    #[arg(short, long, value_name = "DIR", default_value = "undercroft-sweep")]
    output: PathBuf,
    #[command(flatten)]
    report: ReportOption,
    /// Runs side by side [default: the number of cores]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: TraceOptions,
    #[command(flatten)]
    simulation: SimulationOptions,
    #[command(flatten)]
    lowest: LowestOptions,
    #[command(flatten)]
    cooperation: CooperationOptions,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let sizes = args.l2.as_deref().or(args.sizes.as_deref());
    let (upper, sizes) = match (args.l1.as_deref(), sizes) {
        (Some(level), sizes) if sizes.is_some() || level.contains(':') => {
            (Some(level.parse::<LevelSpec>()?), sizes.unwrap_or(Plan::SIZES))
        }
        (only, sizes) => (None, only.or(sizes).unwrap_or(Plan::SIZES)),
    };
    let plan = Plan {
        placements: distinct(args.cooperation.rules(&args.simulation)?),
        upper,
        ratio: args.ratio.clone(),
        sizes: distinct(Size::parse_list(sizes)?),
        policies: parse_policies(&args.policy)?,
        flash: distinct(args.lowest.flash.clone()),
        config: Config {
            times: Times { costs: args.costs.clone(), demotions: args.demotions, seed: args.seed },
            write_mode: args.simulation.write_mode,
            lowest: args.lowest.lowest(),
            evictions: args.cooperation.kind(),
            ..Config::default()
        },
    };
    let sizes = plan.sizes.iter().chain(plan.upper.iter().map(|level| &level.size));
    let sizes = sizes.chain(plan.flash.iter().map(|flash| &flash.size));
    for path in &args.traces {
        let block_bytes = args.options.block_bytes(args.options.open(path)?.as_ref())?;
        for size in sizes.clone() {
            if !matches!(size, Size::Percent(_)) {
                size.blocks(block_bytes, 0)?;
            }
        }
    }
    let bar = Sweeping::start(
        args.traces.len() * plan.sizes.len() * plan.pairs()?.len() * plan.flash.len().max(1),
    );
    let sources: Vec<_> = args.traces.iter().map(|path| source(path, args)).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(args.jobs.unwrap_or(0));
    let pool = pool.build().map_err(|e| Error::Usage(format!("--jobs: {e}")))?;
    let rows = pool.install(|| sweep(&plan, &sources, &args.output, &bar))?;
    bar.done();
    keep_command(&args.output)?;
    args.report.write(&rows)?;
    let mut out = stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
    } else {
        print(&mut out, &rows, &args.output)?;
    }
    Ok(())
}

/// Writes down, for a report, what made the results of a folder.
fn keep_command(folder: &Path) -> Result<(), Error> {
    let path = folder.join("command.json");
    let made = serde_json::json!({"command": command(), "version": env!("CARGO_PKG_VERSION")});
    std::fs::write(&path, serde_json::to_string_pretty(&made)? + "\n")
        .map_err(|error| Error::Work(format!("{}: {error}", path.display())))
}

fn source<'a>(path: &Path, args: &'a Args) -> Source<'a> {
    let path = path.to_path_buf();
    Source {
        path: path.clone(),
        reading: args.options.input().reading(args.simulation.warmup, &args.cooperation.describe()),
        warmup: args.simulation.warmup,
        load: Box::new(move || {
            let load = args.cooperation.load(&args.options, &path, |_| ());
            load.map_err(|error| match error {
                Error::Trace(error) => error.into(),
                Error::Simulation(error) => error,
                other => undercroft_sim::Error::Request(other.to_string()),
            })
        }),
    }
}

/// The items in their order, each once.
fn distinct<T: PartialEq>(items: Vec<T>) -> Vec<T> {
    let mut kept = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

/// The rows of one trace, by policy and placement, those with the best hit ratios first.
struct Ranked<'a> {
    /// The rows of each policy and placement, by size.
    lines: Vec<&'a [Row]>,
    /// The best hit ratio of each size without OPT; none if all have the same one.
    best: Vec<Option<f64>>,
}

/// The hit ratio that a sweep compares: the level's, or that of all levels if they all vary.
fn ratio(row: &Row) -> f64 {
    if row.ratio.is_empty() && row.flash.is_empty() {
        row.read_hit_ratio
    } else {
        row.aggregate_read_hit_ratio
    }
}

fn is_opt(row: &Row) -> bool {
    row.policy == "opt"
}

impl<'a> Ranked<'a> {
    fn new(of_trace: &'a [Row]) -> Self {
        let is_same = |a: &Row, b: &Row| {
            (&a.policy, &a.placement, &a.flash) == (&b.policy, &b.placement, &b.flash)
        };
        let mut lines: Vec<&[Row]> = of_trace.chunk_by(is_same).collect();
        let sum = |line: &[Row]| line.iter().map(ratio).sum::<f64>();
        lines.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
        let best = |size: usize| {
            let own = lines.iter().filter_map(|line| line.get(size)).filter(|row| !is_opt(row));
            let ratios: Vec<f64> = own.map(ratio).collect();
            let best = ratios.iter().copied().reduce(f64::max)?;
            ratios.iter().any(|&ratio| ratio < best).then_some(best)
        };
        let best = (0..lines.first().map_or(0, |line| line.len())).map(best).collect();
        Self { lines, best }
    }

    /// Policies down, sizes across.
    fn table(&self, cell: impl Fn(&Row, Option<f64>) -> String) -> Table {
        let sizes = self.lines.first().map_or(&[][..], |line| line).iter().map(|row| &*row.size);
        let heading: Vec<_> = std::iter::once("policy").chain(sizes).collect();
        let mut table = Table::new(&heading);
        for line in &self.lines {
            let cells = line.iter().zip(&self.best).map(|(row, &best)| cell(row, best));
            let name = match line[0].placement.as_str() {
                "access" => line[0].policy.clone(),
                placement => format!("{} {placement}", line[0].policy),
            };
            let name = match line[0].flash.as_str() {
                "" => name,
                flash => format!("{name} + {flash}"),
            };
            table.row(std::iter::once(name).chain(cells).collect());
        }
        table
    }

    /// Hit ratios, the best of each size with a star, and below them the share of reads that are
    /// not the first ones of their blocks.
    fn hit_ratios(&self) -> Table {
        let mut table = self.table(|row, best| {
            let is_best = best == Some(ratio(row)) && !is_opt(row);
            format!("{}{}", if is_best { "*" } else { "" }, percent(ratio(row)))
        });
        // Of all levels together the rows do not say how many reads there were.
        let is_of_level =
            |row: &Row| row.ratio.is_empty() && (row.flash.is_empty() || row.upper.is_empty());
        if self.lines.iter().all(|line| line.iter().all(is_of_level)) {
            let most = |size: usize| {
                let rows = self.lines.iter().filter_map(|line| line.get(size));
                let shares = rows.filter(|row| row.reads > 0);
                shares.map(|row| 1.0 - row.cold_reads as f64 / row.reads as f64).reduce(f64::max)
            };
            let cells = (0..self.best.len()).map(|size| most(size).map_or(String::new(), percent));
            table.row(std::iter::once("(not cold)".to_owned()).chain(cells).collect());
        }
        table
    }

    /// Said if nothing is to be gained by another policy, or by any of these sizes.
    fn remark(&self) -> Option<&'static str> {
        let all = || self.lines.iter().flat_map(|line| line.iter()).filter(|row| !is_opt(row));
        let most = all().map(ratio).fold(0.0, f64::max);
        if most < SMALL {
            return Some("no policy hits one read in a hundred at any of these sizes");
        }
        let spread = |best: &Option<f64>, size: usize| {
            let rows = self.lines.iter().filter_map(|line| line.get(size));
            let ratios = rows.filter(|row| !is_opt(row)).map(ratio);
            best.is_none_or(|best| ratios.fold(best, f64::min) > best - SMALL)
        };
        let is_even = self.best.iter().enumerate().all(|(size, best)| spread(best, size));
        let compares = self.lines.iter().filter(|line| !is_opt(&line[0])).count() > 1;
        (is_even && compares).then_some("at each size, no choice is a point better than another")
    }
}

/// A difference in hit ratio that is not worth a change.
const SMALL: f64 = 0.01;

/// A table a trace with the hit ratio of the level in each cell; with reloads also one with what
/// they cost, beside what they gain.
fn print(out: &mut impl Write, rows: &[Row], folder: &Path) -> Result<(), Error> {
    for of_trace in rows.chunk_by(|a, b| a.trace == b.trace) {
        let first = &of_trace[0];
        writeln!(
            out,
            "{}: read hit ratio{}; {} requests, {} distinct blocks of {}",
            first.trace,
            match (&*first.upper, &*first.ratio) {
                (_, "") if !first.flash.is_empty() => " of all levels and flash".into(),
                ("", "") => String::new(),
                ("", ratio) => format!(" of all levels, {ratio}"),
                (upper, _) => format!(" below {upper}"),
            },
            count(first.requests),
            count(first.unique_blocks),
            bytes(u64::from(first.block_bytes)),
        )?;
        let ranked = Ranked::new(of_trace);
        ranked.hit_ratios().print(out, 1)?;
        if let Some(remark) = ranked.remark() {
            writeln!(out, "{remark}")?;
        }
        writeln!(out)?;
        if of_trace.iter().any(|row| !row.flash.is_empty()) {
            writeln!(out, "{}: blocks written to flash for 1,000 reads of memory", first.trace)?;
            let share = |row: &Row| 1000.0 * row.flash_written as f64 / row.reads.max(1) as f64;
            ranked.table(|row, _| format!("{:.1}", share(row))).print(out, 1)?;
            writeln!(out)?;
        }
        if of_trace.iter().any(|row| row.disk_reloads > 0) {
            writeln!(out, "{}: blocks read from the disk, reloads included", first.trace)?;
            let reads = |row: &Row, _| count(row.disk_demand_reads + row.disk_reloads);
            ranked.table(reads).print(out, 1)?;
            writeln!(out)?;
        }
    }
    writeln!(out, "{} runs in {}", count(rows.len() as u64), folder.join("results.csv").display())?;
    Ok(())
}
