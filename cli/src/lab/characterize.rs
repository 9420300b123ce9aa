//! `undercroft characterize`: what a trace asks for. The figures are those of
//! `undercroft_sim::characterize`; here are the arguments, and the tables that people read.

use std::io::Write;

use serde::Serialize;
use undercroft_sim::LevelSpec;
use undercroft_sim::characterize::{
    self, Cells, Characterization, Config, DistanceReport, IdleReport, SplitReport, TraceFacts,
};

use crate::error::Error;
use crate::lab::input::{TraceArg, TraceOptions, note};
use crate::lab::progress::Reading;
use crate::lab::report::{ReportOption, command};
use crate::lab::requests;
use crate::table::{Table, bytes, count, percent};

/// A share of the references that is shown together with its neighbours.
const HARDLY_ANY: f64 = 0.001;

/// Width of a bar.
const BAR: usize = 24;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trace: TraceArg,
    /// A cache above: describe what it passes on, as 64MiB:lru
    #[arg(long, value_name = "LEVEL")]
    l1: Option<LevelSpec>,
    /// A cache whose hits are split by reuse distance: SIZE, or SIZE:POLICY (the default is lru);
    /// may be given several times
    #[arg(long, value_name = "LEVEL", value_parser = cache)]
    cache: Vec<LevelSpec>,
    /// Most distinct blocks for which all figures are exact; of a trace with more, a sample of the
    /// blocks is described. A million takes about 40 MiB of memory
    #[arg(long, value_name = "N", default_value = "50000000",
        value_parser = clap::value_parser!(u32).range(1000..))]
    sample: u32,
    /// Share of the blocks to sample from the beginning, as 0.01
    #[arg(long, value_name = "RATE", default_value_t = 1.0)]
    rate: f64,
    #[command(flatten)]
    report: ReportOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: TraceOptions,
}

fn cache(text: &str) -> Result<LevelSpec, undercroft_sim::Error> {
    if text.contains(':') { text.parse() } else { format!("{text}:lru").parse() }
}

#[derive(Serialize)]
struct Output {
    command: Vec<String>,
    trace: TraceFacts,
    block_bytes: u32,
    #[serde(flatten)]
    found: Characterization,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    if !(args.rate > 0.0 && args.rate <= 1.0) {
        return Err(Error::Usage(format!("--rate {}: expected above 0, at most 1", args.rate)));
    }
    let mut rate = args.rate;
    let output = loop {
        if let Some(output) = read(args, rate)? {
            break output;
        }
        let path = args.trace.path.display();
        let most = count(args.sample.into());
        let refuse = |why: &str| {
            let what = format!("{path}: more than {most} distinct blocks: {why}");
            Err(Error::Usage(what))
        };
        if args.trace.path.as_os_str() == "-" {
            return refuse(
                "standard input cannot be read twice; give a larger --sample, or --rate",
            );
        }
        if args.l1.is_some() {
            return refuse(
                "give a larger --sample, or write what --l1 passes on with trace filter",
            );
        }
        rate /= 4.0;
        note(&format!("{path}: more than {most} distinct blocks: sampling, at a rate of {rate}"));
    };
    args.report.show(&output, args.json, |out, output| print(out, output))
}

/// Reads the trace once. `None`: it has too many distinct blocks.
fn read(args: &Args, rate: f64) -> Result<Option<Output>, Error> {
    let path = &args.trace.path;
    let (mut stream, requests, block_bytes) = args.options.stream_counted(path, rate)?;
    let level = |spec| characterize::level(spec, block_bytes);
    let config = Config {
        block_bytes,
        unit_bytes: args.options.unit,
        rate,
        max_blocks: args.sample,
        caches: args.cache.iter().map(level).collect::<Result<_, _>>()?,
        upper: args.l1.as_ref().map(level).transpose()?,
    };
    let meta = stream.meta().clone();
    let bar = Reading::start(path);
    let progress = |records| bar.at(records);
    let found = characterize::characterize(&mut stream, &requests, &config, progress);
    bar.done();
    let Some(found) = found? else { return Ok(None) };
    let trace = TraceFacts::new(path, &meta, &requests)?;
    args.options.remark_on_numbers(path, &meta, stream.seen().records, stream.divisor());
    Ok(Some(Output { command: command(), trace, block_bytes, found }))
}

fn print(out: &mut impl Write, output: &Output) -> Result<(), Error> {
    let (found, block) = (&output.found, u64::from(output.block_bytes));
    print_facts(out, output)?;
    print_working_set(out, output)?;
    print_frequency(out, found, block)?;
    print_distances(out, found, block)?;
    for split in &found.splits {
        print_split(out, split, block)?;
    }
    if let Some(idle) = &found.idle_distance {
        print_idle(out, idle)?;
    }
    Ok(())
}

fn print_facts(out: &mut impl Write, output: &Output) -> Result<(), Error> {
    let (found, block) = (&output.found, u64::from(output.block_bytes));
    let (asked, blocks) = (&found.requests, &found.blocks);
    writeln!(out, "trace       {} ({})", output.trace.path, output.trace.format)?;
    let share = |part: u64, whole: u64| percent(part as f64 / whole.max(1) as f64);
    let marked = match output.trace.has_ops {
        true => format!("{} reads", share(asked.reads, asked.requests)),
        false => "the trace does not tell reads from writes".into(),
    };
    writeln!(out, "requests    {}, {marked}", count(asked.requests))?;
    if let Some(times) = requests::times(asked) {
        writeln!(out, "time        {times}")?;
    }
    writeln!(out, "sizes       {}", requests::sizes(asked))?;
    writeln!(out, "sequential  {}", requests::sequential(asked, output.trace.spaces))?;
    if let Some(upper) = &found.upper {
        let size = bytes(u64::from(upper.capacity_blocks) * block);
        let hits = share(upper.read_hits, upper.reads);
        writeln!(out, "above       {size}:{} serves {hits} of the block reads;", upper.policy)?;
        writeln!(out, "            all that follows is of the requests that it passes on")?;
    }
    let about = if found.sampling.is_some() { "about " } else { "" };
    let (unique, footprint) = (count(blocks.unique_blocks), bytes(blocks.unique_blocks * block));
    let reads = match output.trace.has_ops {
        true => format!(", {} reads", share(blocks.reads, blocks.requests)),
        false => String::new(),
    };
    writeln!(
        out,
        "blocks      {} requests of one {} block{reads}; {about}{unique} distinct, {footprint}",
        count(blocks.requests),
        bytes(block),
    )?;
    let (cold, cold_share) = (count(blocks.cold_requests), percent(blocks.cold_share));
    writeln!(out, "cold        {about}{cold} first requests of a block, {cold_share}")?;
    match &found.sampling {
        None => writeln!(out, "figures     exact")?,
        Some(sampling) => writeln!(
            out,
            "figures     estimated from {} blocks, a share of {}: shares are off by up to about {} \
             points;\n            distances below {} blocks are not resolved",
            count(sampling.sampled_blocks),
            percent(sampling.rate),
            format_args!("{:.1}", 100.0 * sampling.share_error),
            count((1.0 / sampling.rate).round() as u64),
        )?,
    }
    Ok(())
}

fn print_working_set(out: &mut impl Write, output: &Output) -> Result<(), Error> {
    let (found, block) = (&output.found, u64::from(output.block_bytes));
    let has_ops = output.trace.has_ops;
    let windows = &found.working_set.windows;
    let length = count(found.working_set.window_requests);
    writeln!(out, "\nworking set, in windows of {length} block requests; the last may be shorter")?;
    let has_time = windows.iter().all(|window| window.start_s.is_some());
    let mut heading = vec!["from request"];
    if has_time {
        heading.push("from");
    }
    if has_ops {
        heading.push("reads");
    }
    heading.extend(["distinct blocks", "size", "of them new", ""]);
    let mut table = Table::new(&heading);
    let most = windows.iter().map(|window| window.unique_blocks).max().unwrap_or(0);
    for (i, window) in windows.iter().enumerate() {
        let mut row = vec![count(i as u64 * found.working_set.window_requests)];
        if let Some(start) = window.start_s.filter(|_| has_time) {
            row.push(format!("{start:.1} s"));
        }
        let share = |part: u64, whole: u64| percent(part as f64 / whole.max(1) as f64);
        if has_ops {
            row.push(share(window.reads, window.requests));
        }
        row.extend([
            count(window.unique_blocks),
            bytes(window.unique_blocks * block),
            share(window.new_blocks, window.unique_blocks),
            bar(window.unique_blocks as f64, most as f64),
        ]);
        table.row(row);
    }
    table.print(out, 0)?;
    Ok(())
}

fn print_frequency(
    out: &mut impl Write,
    found: &Characterization,
    block: u64,
) -> Result<(), Error> {
    writeln!(
        out,
        "\nfrequency: blocks with at least n requests, and the share of requests to them"
    )?;
    let mut table = Table::new(&["n", "blocks", "of all blocks", "of all requests", ""]);
    for row in found.frequency.iter().filter(|row| row.blocks > 0) {
        table.row(vec![
            count(row.at_least),
            count(row.blocks),
            percent(row.block_share),
            percent(row.reference_share),
            bar(row.reference_share, 1.0),
        ]);
    }
    table.print(out, 0)?;
    let part = |part: &characterize::Concentration| {
        let share = 100.0 * part.reference_share;
        format!("{share:.0} % to {} blocks ({})", count(part.blocks), bytes(part.blocks * block))
    };
    let parts: Vec<_> = found.concentration.iter().map(part).collect();
    let (most, all) = parts.split_at(parts.len() / 2);
    writeln!(out, "of the requests go {},\n{}", most.join(", "), all.join(", "))?;
    Ok(())
}

fn print_distances(
    out: &mut impl Write,
    found: &Characterization,
    block: u64,
) -> Result<(), Error> {
    let (stack, temporal) = (&found.stack_distance, &found.temporal_distance);
    writeln!(out, "\nreuse distances, in shares of the block requests")?;
    if stack.bins.is_empty() {
        writeln!(out, "no block is requested twice")?;
        return Ok(());
    }
    writeln!(
        out,
        "stack: 1 + distinct other blocks in between; a hit in an LRU cache of this size"
    )?;
    writeln!(out, "temporal: block requests from one to the next")?;
    let heading = ["up to", "size", "stack", "LRU hits", "", "temporal", ""];
    let mut table = Table::new(&heading);
    let rows = distance_rows(stack, temporal);
    let most = |of: fn(&DistanceRow) -> f64| rows.iter().map(of).fold(0.0, f64::max);
    let (most_stack, most_temporal) = (most(|row| row.left), most(|row| row.right));
    for row in &rows {
        table.row(vec![
            count(row.up_to),
            bytes(row.up_to.saturating_mul(block)),
            percent(row.left),
            percent(row.left_sum),
            bar(row.left, most_stack),
            percent(row.right),
            bar(row.right, most_temporal),
        ]);
    }
    table.print(out, 0)?;
    print_hill(out, "stack   ", stack, block)?;
    print_hill(out, "temporal", temporal, block)?;
    if let (Some(upper), Some(hill)) = (&found.upper, temporal.hill) {
        let size = u64::from(upper.capacity_blocks);
        let place = if hill.peak > size { "above" } else { "not above" };
        writeln!(
            out,
            "the temporal hill peaks {place} the size of the cache above, {} blocks",
            count(size)
        )?;
    }
    Ok(())
}

/// A bin of two histograms side by side.
#[derive(Clone, Copy)]
struct DistanceRow {
    up_to: u64,
    left: f64,
    /// Up to this bin.
    left_sum: f64,
    right: f64,
}

/// Every bin of either histogram. The first row takes in the bins at the beginning with hardly any
/// references.
fn distance_rows(left: &DistanceReport, right: &DistanceReport) -> Vec<DistanceRow> {
    let all = || left.bins.iter().chain(&right.bins).map(|bin| bin.up_to);
    let (first, last) = (all().min().unwrap_or(1), all().max().unwrap_or(1));
    let mut rows: Vec<DistanceRow> = Vec::new();
    for up_to in (first.ilog2()..=last.ilog2()).map(|log2| 1_u64 << log2) {
        let bin = |of: &DistanceReport| of.bins.iter().find(|b| b.up_to == up_to).copied();
        let before = rows.last().map_or(0.0, |row| row.left_sum);
        let mut row = DistanceRow {
            up_to,
            left: bin(left).map_or(0.0, |bin| bin.share),
            left_sum: bin(left).map_or(before, |bin| bin.cumulative_share),
            right: bin(right).map_or(0.0, |bin| bin.share),
        };
        if let [only] = rows[..] {
            let (left, right) = (only.left + row.left, only.right + row.right);
            if left.max(right) < HARDLY_ANY {
                (row.left, row.right) = (left, right);
                rows.clear();
            }
        }
        rows.push(row);
    }
    rows
}

fn print_hill(
    out: &mut impl Write,
    name: &str,
    report: &DistanceReport,
    block: u64,
) -> Result<(), Error> {
    let (Some(hill), Some(median)) = (report.hill, report.median) else { return Ok(()) };
    let at = |distance: u64| format!("{} ({})", count(distance), bytes(distance * block));
    writeln!(
        out,
        "{name} hill from {} to {}, peak {}; median {}",
        at(hill.min),
        at(hill.max),
        at(hill.peak),
        at(median),
    )?;
    Ok(())
}

fn print_split(out: &mut impl Write, split: &SplitReport, block: u64) -> Result<(), Error> {
    let size = u64::from(split.capacity_blocks);
    writeln!(
        out,
        "\nhits by distance in {}:{}, {} blocks",
        bytes(size * block),
        split.policy,
        count(size)
    )?;
    let mut table = Table::new(&["distance", "requests", "hits", "misses", "hit ratio"]);
    let mut add = |name: &str, hits: u64, misses: u64| {
        let ratio = percent(hits as f64 / (hits + misses).max(1) as f64);
        table.row(vec![name.into(), count(hits + misses), count(hits), count(misses), ratio]);
    };
    let mut rows = |kind: &str, cells: &Cells| {
        add(&format!("{kind}, below the size"), cells.lt_hits, cells.lt_misses);
        add(&format!("{kind}, from the size on"), cells.ge_hits, cells.ge_misses);
    };
    rows("temporal", &split.by_temporal);
    rows("stack", &split.by_stack);
    add("none: first requests", 0, split.by_stack.first);
    table.print(out, 1)?;
    Ok(())
}

fn print_idle(out: &mut impl Write, idle: &IdleReport) -> Result<(), Error> {
    let source = match idle.source {
        "upper" => "of the cache above",
        "told" => "as the clients told them",
        _ => "from the buffer addresses in the trace",
    };
    let (requests, evictions) = (count(idle.requests), count(idle.evictions));
    writeln!(out, "\nidle distances: block requests until a block is requested again")?;
    writeln!(out, "of {requests} requests whose block had left the cache above;")?;
    writeln!(out, "{evictions} evictions are known, {source};")?;
    let left_out = count(idle.left_out);
    writeln!(out, "{left_out} more requests, of blocks that seem to be still there, are left out")?;
    if idle.requests == 0 {
        return Ok(());
    }
    let (access, eviction) = (&idle.access_based, &idle.eviction_based);
    let rows = distance_rows(access, eviction);
    let most = rows.iter().map(|row| row.left.max(row.right)).fold(0.0, f64::max);
    let mut table = Table::new(&["up to", "since its request", "", "since its eviction", ""]);
    for row in &rows {
        table.row(vec![
            count(row.up_to),
            percent(row.left),
            bar(row.left, most),
            percent(row.right),
            bar(row.right, most),
        ]);
    }
    table.print(out, 0)?;
    let mean = |mean: f64| count(mean.round() as u64);
    writeln!(
        out,
        "mean {} since the request, {} since the eviction; median {} and {}",
        mean(idle.mean_access_based),
        mean(idle.mean_eviction_based),
        count(access.median.unwrap_or(0)),
        count(eviction.median.unwrap_or(0)),
    )?;
    Ok(())
}

/// A bar of a histogram whose longest bar is `most`.
fn bar(value: f64, most: f64) -> String {
    let length = if most > 0.0 { (BAR as f64 * value / most).round() as usize } else { 0 };
    format!("{:<BAR$}", "#".repeat(length))
}
