//! `undercroft curve`: hit ratio against size.

use std::io::{Write, stdout};

use serde::Serialize;
use undercroft_cache::Reference;
use undercroft_cache::policy::Spec;
use undercroft_sim::Size;
use undercroft_sim::curve::{Curve, LruStack, opt_curve, sampled_curve};
use undercroft_trace::DenseTrace;

use crate::error::Error;
use crate::input::{TraceArg, TraceOptions};
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
    #[command(flatten)]
    options: TraceOptions,
    /// Print CSV; an exact curve without --sizes then has every size
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
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
    let name = args.policy.info().name;
    let exact = args.rate == 1.0;
    if exact && name != "lru" && name != "opt" {
        return Err(Error::Usage(format!(
            "an exact curve of {name} takes a simulation a size: use sweep, or sample with \
             --rate 0.01; lru and opt have exact curves"
        )));
    }
    if !(args.rate > 0.0 && args.rate <= 1.0) {
        return Err(Error::Usage(format!("--rate {}: expected above 0, at most 1", args.rate)));
    }
    let sizes = args.sizes.as_deref().map(Size::parse_list).transpose()?;
    let (trace, block_bytes) = args.options.load(&args.trace.path, args.rate)?;
    let estimated_blocks = (f64::from(trace.unique()) / args.rate) as u32;
    let capacities = match &sizes {
        Some(sizes) => sizes
            .iter()
            .map(|size| size.blocks(block_bytes, estimated_blocks))
            .collect::<Result<_, _>>()?,
        None if args.csv && exact => (1..=estimated_blocks.max(1)).collect(),
        // A cache of less than ten sampled blocks says nothing.
        None => spread((10.0 / args.rate) as u32 * u32::from(!exact), estimated_blocks, 20),
    };
    let least = (1.0 / args.rate).ceil();
    if let Some(small) = capacities.iter().find(|&&size| f64::from(size) < least) {
        return Err(Error::Usage(format!(
            "--rate {}: a cache of {small} blocks is less than one sampled block; from {least} on",
            args.rate
        )));
    }
    let ratios = if exact {
        ratios(&exact_curve(&trace, name)?, &capacities)
    } else {
        let points = sampled_curve(&trace, args.rate, &args.policy, &capacities)?;
        points.iter().map(|point| point.read_hit_ratio).collect()
    };
    let point = |(&capacity_blocks, ratio): (&u32, f64)| Point {
        capacity_blocks,
        capacity_bytes: u64::from(capacity_blocks) * u64::from(block_bytes),
        read_hit_ratio: ratio,
        read_miss_ratio: 1.0 - ratio,
    };
    let output = Output {
        trace: args.trace.path.display().to_string(),
        policy: args.policy.to_string(),
        sample_rate: args.rate,
        block_bytes,
        reads: trace.seen().reads,
        points: capacities.iter().zip(ratios).map(point).collect(),
    };
    print(&output, args)
}

fn exact_curve(trace: &DenseTrace, policy: &str) -> Result<Curve, Error> {
    let mut stack = LruStack::new();
    let mut all = Vec::new();
    let mut refs = Vec::new();
    let mut chunks = trace.forward();
    while let Some((_, chunk)) = chunks.next()? {
        refs.clear();
        refs.extend(chunk.iter().map(|r| Reference::new(r.block(), r.is_write())));
        match policy {
            "opt" => all.extend_from_slice(&refs),
            _ => stack.feed(trace.unique(), &refs),
        }
    }
    Ok(if policy == "opt" { opt_curve(&all)? } else { stack.finish() })
}

fn ratios(curve: &Curve, capacities: &[u32]) -> Vec<f64> {
    let hits = curve.read_hits();
    let at = |&capacity: &u32| hits[(capacity as usize).min(hits.len() - 1)];
    capacities.iter().map(|c| at(c) as f64 / curve.reads.max(1) as f64).collect()
}

/// About `points` sizes from `min` (at least 1) to `max`, in equal ratios.
fn spread(min: u32, max: u32, points: u32) -> Vec<u32> {
    let min = f64::from(min.max(1));
    let step = (f64::from(max) / min).max(1.0).ln() / f64::from(points - 1);
    let mut sizes: Vec<_> =
        (0..points).map(|i| (min * (step * f64::from(i)).exp()).round() as u32).collect();
    sizes.dedup();
    sizes
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
