//! `undercroft simulate`: one hierarchy on one trace.

use std::io::{Write, stdout};

use undercroft_sim::{
    Config, Cooperation, CooperationReport, LevelSpec, Report, simulate_placed, trace_report,
};

use crate::cooperation::CooperationOptions;
use crate::error::Error;
use crate::input::{SimulationOptions, TraceArg, TraceOptions, Warmup};
use crate::progress::{Reading, Simulating};
use crate::table::{Table, bytes, count, percent};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trace: TraceArg,
    /// The first level: SIZE:POLICY[,key=value...], as 64MiB:lru, 1000blk:mq,m=8 or 10%:arc
    #[arg(long, value_name = "LEVEL")]
    l1: LevelSpec,
    /// The level below it
    #[arg(long, value_name = "LEVEL")]
    l2: Option<LevelSpec>,
    /// The level below that
    #[arg(long, value_name = "LEVEL", requires = "l2")]
    l3: Option<LevelSpec>,
    #[command(flatten)]
    options: TraceOptions,
    #[command(flatten)]
    simulation: SimulationOptions,
    #[command(flatten)]
    cooperation: CooperationOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let placement = args.cooperation.one_placement(&args.simulation)?;
    let path = &args.trace.path;
    let bar = Reading::start(path);
    let (trace, block_bytes, evictions) =
        args.cooperation.load(&args.options, path, |records| bar.at(records))?;
    bar.done();
    let specs = [Some(&args.l1), args.l2.as_ref(), args.l3.as_ref()];
    let levels = specs.into_iter().flatten().map(|spec| spec.config(block_bytes, trace.unique()));
    let config = Config {
        levels: levels.collect::<Result<_, _>>()?,
        write_mode: args.simulation.write_mode,
        warmup_records: args.simulation.warmup.records(trace.seen().records)?,
    };
    let bar = Simulating::start(trace.len());
    let cooperation = Cooperation { placement, evictions };
    let outcome = simulate_placed(&trace, &config, &cooperation, |requests| bar.at(requests))?;
    bar.done();
    let about = trace_report(&path.display().to_string(), &trace);
    let report = Report::new(about, block_bytes, &config, &placement, &outcome);
    let mut out = stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&mut out, &report, args)?;
    }
    Ok(())
}

/// What the hits cost: time, disk traffic, and what goes between the levels.
fn print_price(out: &mut impl Write, report: &Report) -> Result<(), Error> {
    let demotions: u64 = report.levels.iter().map(|level| level.demotions_in).sum();
    write!(out, "\nresponse time  {:.3} ms a read", report.response_time_ms)?;
    if demotions > 0 {
        let charged = report.response_time_with_demotions_ms;
        write!(out, ", {charged:.3} ms if each demotion costs a round trip")?;
    }
    let disk = &report.disk;
    let (reads, writes) = (count(disk.demand_reads), count(disk.writes));
    write!(out, "\ndisk           {reads} blocks read, ")?;
    if disk.reloads > 0 {
        write!(out, "{} reloaded, ", count(disk.reloads))?;
    }
    writeln!(out, "{writes} written")?;
    if let Some(cooperation) = &report.cooperation {
        let sent = count(demotions);
        let hints = bytes(cooperation.hint_bytes);
        writeln!(out, "between levels {sent} blocks sent down, {hints} of hints")?;
        print_cooperation(out, report, cooperation)?;
    }
    writeln!(out)?;
    Ok(())
}

fn print_cooperation(
    out: &mut impl Write,
    report: &Report,
    cooperation: &CooperationReport,
) -> Result<(), Error> {
    if cooperation.staging_blocks > 0 {
        let staging = count(cooperation.staging_blocks.into());
        writeln!(out, "staging area   {staging} blocks beside the cache, at the end")?;
    }
    if let Some(estimate) = &cooperation.estimate {
        let truth = estimate.true_precision.map_or_else(String::new, |share| {
            format!(", {} by the simulated client", percent(share))
        });
        writeln!(
            out,
            "client         {} blocks by emulation; precision {}{truth}, recall {}; {} of the \
             references placed at the access for want of confidence",
            count(estimate.client_blocks.into()),
            percent(estimate.precision),
            percent(estimate.recall),
            percent(estimate.fallback),
        )?;
    }
    if let Some(late) = cooperation.late_evictions {
        let all = late + cooperation.derived_evictions.unwrap_or(0);
        let (late, all) = (count(late), count(all));
        writeln!(
            out,
            "evictions      {all} derived from buffer addresses, {late} of them too late"
        )?;
    }
    let columns =
        ["level", "placement", "evicted above", "reloads", "sent down", "staged", "skipped"];
    let mut table = Table::new(&columns);
    for level in report.levels.iter().filter(|level| level.placement != "access") {
        let numbers = [
            level.known_evictions,
            level.reloads,
            level.demotions_in,
            level.staged,
            level.reloads_skipped,
        ];
        let names = [level.name.clone(), level.placement.clone()];
        table.row(names.into_iter().chain(numbers.into_iter().map(count)).collect());
    }
    writeln!(out)?;
    table.print(out, 2)?;
    Ok(())
}

/// The answer first, the bookkeeping after it.
fn print(out: &mut impl Write, report: &Report, args: &Args) -> Result<(), Error> {
    let block = u64::from(report.block_bytes);
    let mut table = Table::new(&["level", "policy", "size", "", "hit ratio", "of all reads"]);
    for level in &report.levels {
        let size = u64::from(level.capacity_blocks);
        let share = level.read_hits as f64 / report.aggregate.reads.max(1) as f64;
        table.row(vec![
            level.name.clone(),
            level.policy.clone(),
            format!("{} blocks", count(size)),
            bytes(size * block),
            percent(level.read_hit_ratio),
            percent(share),
        ]);
    }
    if report.levels.len() > 1 {
        let all = percent(report.aggregate.read_hit_ratio);
        let dash = String::new;
        table.row(vec!["all".into(), dash(), dash(), dash(), dash(), all]);
    }
    table.print(out, 2)?;
    print_price(out, report)?;
    let columns = ["level", "reads", "hits", "cold", "writes", "write hits", "evictions"];
    let mut table = Table::new(&columns);
    for level in &report.levels {
        let numbers = [
            level.reads,
            level.read_hits,
            level.cold_reads,
            level.writes,
            level.write_hits,
            level.evictions,
        ];
        let cells = numbers.into_iter().map(count);
        table.row([level.name.clone()].into_iter().chain(cells).collect());
    }
    table.print(out, 1)?;
    let trace = &report.trace;
    writeln!(
        out,
        "\ntrace {} ({}): {} requests, {} distinct blocks of {}{}",
        trace.path,
        trace.format,
        count(trace.requests),
        count(trace.unique_blocks),
        bytes(block),
        match args.simulation.warmup {
            Warmup::Records(0) => String::new(),
            Warmup::Records(records) => format!("; the first {} records uncounted", count(records)),
            Warmup::Percent(share) => format!("; the first {share} % of the records uncounted"),
        }
    )?;
    if trace.left_out > 0 {
        writeln!(out, "{} records neither read nor write: left out", count(trace.left_out))?;
    }
    let rate = report.requests_per_s / 1e6;
    writeln!(out, "simulated in {:.2} s, {rate:.1} million requests/s", report.elapsed_s)?;
    Ok(())
}
