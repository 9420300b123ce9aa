//! `undercroft advise` of a trace: what a cache below would be worth for it. The figures and
//! findings are those of `undercroft_sim::advise`, the sentences those of `undercroft_adviser`;
//! here are the arguments, and what is printed. `command/advise.rs` asks a running server.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use undercroft_adviser::{Advice, Assumption, Finding, Words};
use undercroft_policy::Awareness;
use undercroft_sim::advise::{self, Figure, Prices, Question, Study};
use undercroft_sim::{DerivedEvictions, Evictions, LevelSpec, Progress, Size, parse_policies};
use undercroft_trace::DenseTrace;

use crate::command::advise::{self as live, ServerOptions, by_size, named, say};
use crate::error::Error;
use crate::lab::input::TraceOptions;
use crate::lab::progress::{Reading, Sweeping};
use crate::lab::report::{ReportOption, command};
use crate::lab::runs::Runs;
use crate::table::{bytes, count, percent, word};

/// The policies that are compared without --policy.
const POLICIES: &str = "auto,mq,lfru,arc,lirs,2q,w-tinylfu";

/// Block requests that are simulated exactly without --exact.
const EXACT: u64 = 8_000_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Trace file; zstd, gzip, bzip2 and xz are undone; `-` is standard input. Or a running server:
    /// http://HOST:PORT or unix:PATH of its HTTP listener, or an NBD URI of a volume
    #[arg(value_name = "TRACE|URI")]
    source: PathBuf,
    /// The client's cache, as 64MiB:lru; without it the trace is one from below that cache
    #[arg(long, value_name = "LEVEL")]
    l1: Option<LevelSpec>,
    /// Sizes to study, as those of sweep [default: seven doublings, up to where nothing is gained]
    #[arg(long, value_name = "SIZES")]
    l2: Option<String>,
    /// Policies to compare with LRU: a list
    #[arg(long, value_name = "POLICIES", default_value = POLICIES)]
    policy: String,
    /// Simulate every request; without it, of more than 8 million that arrive a sample of the
    /// blocks is simulated, and its error said
    #[arg(long)]
    exact: bool,
    #[command(flatten)]
    report: ReportOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    prices: PriceOptions,
    #[command(flatten)]
    options: TraceOptions,
}

/// What memory and disks cost.
#[derive(clap::Args)]
#[command(next_help_heading = "Prices")]
struct PriceOptions {
    /// Price of a GiB of memory, in any currency, for any period
    #[arg(long, value_name = "PRICE", requires = "disk_price", value_parser = price)]
    memory_price: Option<f64>,
    /// Price of a disk, in that currency for that period
    #[arg(long, value_name = "PRICE", requires = "memory_price", value_parser = price)]
    disk_price: Option<f64>,
    /// Blocks that a disk reads in a second
    #[arg(long, value_name = "N", default_value = "200", requires = "memory_price",
        value_parser = above_zero)]
    disk_reads: f64,
    /// Duration of the trace in seconds [default: what its times say]
    #[arg(long, value_name = "SECONDS", requires = "memory_price", value_parser = above_zero)]
    duration: Option<f64>,
}

fn price(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|price| (0.0..=1e12).contains(price));
    number.ok_or_else(|| "expected a number from 0 on, as 2.50".to_owned())
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (1e-9..=1e12).contains(number));
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

impl PriceOptions {
    /// The prices, for a trace whose times span so many seconds.
    fn prices(&self, duration_s: Option<f64>) -> Result<Option<Prices>, Error> {
        let (Some(memory_gib), Some(disk)) = (self.memory_price, self.disk_price) else {
            return Ok(None);
        };
        let Some(duration_s) = self.duration.or(duration_s).filter(|&s| s > 0.0) else {
            let what = "--disk-price: the trace has no times, so nobody knows how many reads a \
                        second there are: give the --duration that it took";
            return Err(Error::Usage(what.into()));
        };
        Ok(Some(Prices { memory_gib, disk, disk_reads_per_s: self.disk_reads, duration_s }))
    }
}

#[derive(Serialize)]
struct Output<'a> {
    command: Vec<String>,
    trace: Trace,
    #[serde(flatten)]
    study: &'a Study,
    prices: Option<Prices>,
    findings: Vec<Said<&'a Finding>>,
    assumptions: Vec<Said<&'a Assumption>>,
    elapsed_s: f64,
}

#[derive(Serialize)]
struct Trace {
    path: String,
    format: &'static str,
    /// Block requests.
    requests: u64,
    duration_s: Option<f64>,
}

/// A finding or an assumption, with its sentence.
#[derive(Serialize)]
struct Said<T> {
    #[serde(flatten)]
    found: T,
    text: String,
    /// Commands that print its figures.
    runs: Vec<String>,
    /// The command that serves what it advises.
    #[serde(skip_serializing_if = "Option::is_none")]
    serve: Option<String>,
}

/// A trace that has been read, and what it says of its clients.
struct Loaded {
    trace: DenseTrace,
    block_bytes: u32,
    evictions: Option<Evictions>,
    /// The option of a simulation that gets the same evictions.
    option: &'static str,
    duration_s: Option<f64>,
}

fn load(args: &Args) -> Result<Loaded, Error> {
    let path = &args.source;
    let (stream, requests, block_bytes) = args.options.stream_counted(path, 1.0)?;
    let meta = stream.meta().clone();
    let bar = Reading::start(path);
    let at = |records| bar.at(records);
    let derived = |derived| Some(Evictions::Derived(std::sync::Arc::new(derived)));
    let (trace, evictions, option) = if args.l1.is_some() {
        (DenseTrace::load(stream, at)?, Some(Evictions::Exact), "")
    } else if meta.has_evictions {
        let (trace, told) = DerivedEvictions::load_told(stream, at)?;
        (trace, derived(told), " --evictions told")
    } else if meta.has_buffers {
        let (trace, found) = DerivedEvictions::load(stream, block_bytes, at)?;
        (trace, derived(found), " --evictions cct")
    } else {
        (DenseTrace::load(stream, at)?, None, "")
    };
    bar.done();
    let seen = trace.seen();
    if seen.reads == 0 {
        let what = match seen.records {
            0 => "the trace holds no requests",
            _ => "the trace holds no reads, which are all that a cache can serve",
        };
        return Err(Error::Work(format!("{}: {what}", path.display())));
    }
    args.options.remark_on_numbers(path, &meta, seen.records, trace.divisor());
    let times = requests.counts().times.filter(|_| meta.has_time);
    let duration_s = times.map(|(first, last)| (last - first) as f64 / 1e9);
    Ok(Loaded { trace, block_bytes, evictions, option, duration_s })
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let source = args.source.to_string_lossy();
    if live::is_uri(&source) {
        let TraceOptions { format, block, unit } = &args.options;
        let of_traces = [
            args.l1.is_some() || args.l2.is_some() || args.exact || args.policy != POLICIES,
            args.report.report.is_some() || args.prices.memory_price.is_some(),
            format.is_some() || block.is_some() || unit.is_some(),
        ];
        if of_traces.contains(&true) {
            let what = "--l1, --l2, --policy, --exact, --report, prices, --format, --block and \
                        --unit are for traces: leave them out; a running server knows its cache";
            return Err(Error::Usage(what.to_owned()));
        }
        return live::show(&source, &args.server, args.json);
    }
    let started = Instant::now();
    let policies = parse_policies(&args.policy)?;
    if let Some(aware) = policies.iter().find(|policy| Awareness::of(policy).is_some()) {
        let what = format!("--policy {aware}: content-aware policies are compared by simulate");
        return Err(Error::Usage(what));
    }
    let sizes = args.l2.as_deref().map(Size::parse_list).transpose()?.unwrap_or_default();
    let Loaded { trace, block_bytes, evictions, option, duration_s } = load(args)?;
    let prices = args.prices.prices(duration_s)?;
    let sizes = sizes.iter().map(|size| size.blocks(block_bytes, trace.unique()));
    let mut sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    let upper = args.l1.as_ref().map(|level| level.config(block_bytes, trace.unique()));
    let question = Question {
        upper: upper.transpose()?,
        evictions,
        block_bytes,
        sizes,
        policies,
        exact_requests: if args.exact { u64::MAX } else { EXACT },
    };
    let bar = Sweeping::start(1);
    bar.reading(&args.source);
    let study = advise::study(&trace, &question, &|share| bar.advanced(share))?;
    bar.done();
    let Advice { findings, assumptions } = advise::advise(&study, prices.as_ref());
    let words = Words::of_trace(block_bytes, &findings);
    let runs = runs(args, block_bytes, option, prices.is_some());
    let said = findings.iter().map(|found| Said {
        found,
        text: words.finding(found),
        runs: runs.finding(found),
        serve: runs.serve(found),
    });
    let assumed = assumptions.iter().map(|found| {
        let text = words.assumption(found);
        Said { found, text, runs: Vec::new(), serve: None }
    });
    let output = Output {
        command: command(),
        trace: Trace {
            path: args.source.display().to_string(),
            format: trace.meta().format,
            requests: trace.seen().references(),
            duration_s,
        },
        study: &study,
        prices,
        findings: said.collect(),
        assumptions: assumed.collect(),
        elapsed_s: started.elapsed().as_secs_f64(),
    };
    args.report.show(&output, args.json, |out, output| print(out, output))
}

fn runs(args: &Args, block_bytes: u32, option: &str, has_prices: bool) -> Runs {
    let options = &args.options;
    let mut simulate = format!("undercroft simulate {}", word(&args.source.to_string_lossy()));
    for (name, value) in [
        ("--format", options.format.clone()),
        ("--block", options.block.clone()),
        ("--unit", options.unit.map(|unit| unit.to_string())),
        ("--l1", args.l1.as_ref().map(ToString::to_string)),
    ] {
        simulate += &value.map_or(String::new(), |value| format!(" {name} {}", word(&value)));
    }
    let level = if args.l1.is_some() { "--l2" } else { "--l1" };
    Runs { block_bytes, simulate, level, evictions: option.into(), has_prices }
}

fn print(out: &mut impl Write, output: &Output) -> Result<(), Error> {
    let study = output.study;
    let block = u64::from(study.block_bytes);
    let below = study.upper.as_ref().map_or(String::new(), |upper| {
        let size = bytes(u64::from(upper.capacity_blocks) * block);
        let hits = percent(upper.read_hits as f64 / upper.reads.max(1) as f64);
        format!("; {size}:{} above serves {hits} of the reads", upper.policy)
    });
    writeln!(
        out,
        "{}: {} requests, {} distinct blocks of {}{below}",
        output.trace.path,
        count(output.trace.requests),
        count(study.unique_blocks),
        bytes(block)
    )?;
    writeln!(out, "{} reads arrive at the cache below\n", count(study.reads))?;
    for said in &output.findings {
        say(out, &said.text, said.runs.iter().chain(&said.serve))?;
    }
    figures(out, study)?;
    writeln!(out, "\nassumed")?;
    output.assumptions.iter().try_for_each(|said| say(out, &said.text, &said.runs))
}

/// The hit ratios, and the disk reads where there are reloads.
fn figures(out: &mut impl Write, study: &Study) -> Result<(), Error> {
    let mut table = |title: &str, cell: fn(&Figure) -> String| {
        let cells = study.figures.iter().map(|figure| {
            let size = u64::from(figure.capacity_blocks) * u64::from(study.block_bytes);
            (named(&figure.policy, &figure.placement), size, cell(figure))
        });
        by_size(out, title, &cells.collect::<Vec<_>>())
    };
    table("read hit ratio", |figure| percent(figure.read_hit_ratio))?;
    if study.figures.iter().any(|figure| figure.reloads > 0) {
        table("disk reads", |figure| count(figure.disk_reads))?;
    }
    Ok(())
}
