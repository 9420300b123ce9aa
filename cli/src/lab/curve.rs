//! `undercroft curve`: hit ratio against size.

use std::io::{Write, stdout};

use serde::Serialize;
use undercroft_policy::Spec;
use undercroft_sim::Size;
use undercroft_sim::curve::{self, check_rate, curve};

use crate::error::Error;
use crate::lab::input::{TraceArg, TraceOptions};
use crate::table::{Table, bytes, count, percent};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trace: TraceArg,
    /// lru or opt: exact, all sizes in one pass; with --rate, any policy with its parameters
    #[arg(long, value_name = "POLICY", default_value = "lru")]
    policy: Spec,
    /// Share of the blocks to sample, as 0.01: an estimate, for every policy
    #[arg(long, value_name = "RATE", default_value_t = 1.0)]
    rate: f64,
    /// Sizes to show: a list, and ranges in doublings [default: 20 from 1 block to all]
    #[arg(long, value_name = "SIZES")]
    sizes: Option<String>,
    /// Print CSV; an exact curve without --sizes then has every size
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: TraceOptions,
}

/// One point of a curve, as printed.
#[derive(Serialize)]
struct Point {
    capacity_blocks: u32,
    capacity_bytes: u64,
    read_hit_ratio: f64,
    read_miss_ratio: f64,
}

#[derive(Serialize)]
struct Output {
    trace: String,
    policy: String,
    /// 1 = exact.
    sample_rate: f64,
    block_bytes: u32,
    reads: u64,
    points: Vec<Point>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let is_rate = check_rate(&args.policy, args.rate);
    is_rate.map_err(|why| Error::Usage(format!("--rate: {why}")))?;
    let sizes = args.sizes.as_deref().map(Size::parse_list).transpose()?;
    let (trace, block_bytes) = args.options.load(&args.trace.path, args.rate)?;
    let sizes = sizes.as_deref();
    let points = curve(&trace, block_bytes, args.rate, &args.policy, sizes, args.csv)?;
    let point = |point: curve::Point| Point {
        capacity_blocks: point.capacity,
        capacity_bytes: u64::from(point.capacity) * u64::from(block_bytes),
        read_hit_ratio: point.read_hit_ratio,
        read_miss_ratio: 1.0 - point.read_hit_ratio,
    };
    let output = Output {
        trace: args.trace.path.display().to_string(),
        policy: args.policy.to_string(),
        sample_rate: args.rate,
        block_bytes,
        reads: trace.seen().reads,
        points: points.into_iter().map(point).collect(),
    };
    print(&output, args)
}

fn print(output: &Output, args: &Args) -> Result<(), Error> {
    let mut out = stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(output)?)?;
        return Ok(());
    }
    if args.csv {
        let mut csv = csv::Writer::from_writer(out);
        output.points.iter().try_for_each(|point| csv.serialize(point))?;
        csv.flush()?;
        return Ok(());
    }
    let how = match output.sample_rate {
        1.0 => "exact".to_string(),
        rate => format!("estimated from {} of the blocks", percent(rate)),
    };
    let reads = count(output.reads);
    writeln!(out, "{} on {}: {how}; {reads} block reads", output.policy, output.trace)?;
    let mut table = Table::new(&["blocks", "size", "hit ratio", ""]);
    for point in &output.points {
        let bar = "#".repeat((40.0 * point.read_hit_ratio).round() as usize);
        table.row(vec![
            count(u64::from(point.capacity_blocks)),
            bytes(point.capacity_bytes),
            percent(point.read_hit_ratio),
            format!("{bar:<40}"),
        ]);
    }
    table.print(&mut out, 0)?;
    Ok(())
}
