//! `undercroft trace`: look at, convert, filter and generate traces.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use undercroft_sim::characterize::RequestReport;
use undercroft_sim::{LevelSpec, Size};
use undercroft_trace::{
    BlockOptions, GENERATORS, GeneratorSpec, LeftOut, Meta, OpenOptions, Reader, Unit, Writer,
    create, formats, open,
};

use crate::error::Error;
use crate::lab::input::{SimulationOptions, TraceArg, TraceOptions};
use crate::lab::progress::Reading;
use crate::lab::requests;
use crate::table::{Table, bytes, count, percent};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// What a trace holds
    Info(Info),
    /// Write a trace in another format; -o FILE.zst or FILE.gz compresses
    Convert(Convert),
    /// Write what one cache level misses (and all writes), as the trace for the level below
    Filter(Filter),
    /// Make a synthetic trace; without arguments, list the generators
    Generate(Generate),
    /// List the trace formats
    Formats,
}

pub(crate) fn run(command: &Command) -> Result<(), Error> {
    match command {
        Command::Info(args) => info(args),
        Command::Convert(args) => convert(args),
        Command::Filter(args) => filter_trace(args),
        Command::Generate(args) => generate(args),
        Command::Formats => list_formats(),
    }
}

#[derive(clap::Args)]
pub(crate) struct Info {
    #[command(flatten)]
    trace: TraceArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: TraceOptions,
}

#[derive(Serialize)]
struct Facts {
    path: String,
    format: &'static str,
    /// `bytes` or `blocks`: what its numbers count.
    unit: &'static str,
    block_bytes: u32,
    records: u64,
    requests: u64,
    reads: u64,
    writes: u64,
    unique_blocks: u64,
    /// Records that move no data, and how many for which reason.
    left_out: u64,
    left_out_reasons: BTreeMap<&'static str, u64>,
    has_ops: bool,
    has_time: bool,
    has_buffers: bool,
    /// Names of the columns that are not used.
    unused: Vec<String>,
    spaces: Vec<String>,
    read_bytes: u64,
    write_bytes: u64,
    sequential_share: f64,
    duration_s: Option<f64>,
    requests_per_s: Option<f64>,
    bytes_per_s: Option<f64>,
}

fn info(args: &Info) -> Result<(), Error> {
    let path = &args.trace.path;
    let (mut stream, counter, block_bytes) = args.options.stream_silently(path)?;
    let bar = Reading::start(path);
    let mut refs = Vec::new();
    while stream.next_chunk(&mut refs)? {
        bar.at(stream.seen().records);
    }
    bar.done();
    let (meta, seen, left_out) = (stream.meta().clone(), stream.seen(), stream.left_out());
    args.options.remark_on_numbers(path, &meta, seen.records, stream.divisor());
    let asked = counter.report(&meta, args.options.unit.unwrap_or(block_bytes));
    let facts = Facts {
        path: path.display().to_string(),
        format: meta.format,
        unit: if meta.unit == Unit::Bytes { "bytes" } else { "blocks" },
        block_bytes,
        records: seen.records,
        requests: seen.references(),
        reads: seen.reads,
        writes: seen.writes,
        unique_blocks: u64::from(stream.unique()),
        left_out: stream.left_out().total(),
        left_out_reasons: left_out.by_reason().map(|(why, count)| (why.name(), count)).collect(),
        has_ops: meta.has_ops,
        has_time: meta.has_time,
        has_buffers: meta.has_buffers,
        unused: stream.unused().to_vec(),
        spaces: stream.spaces().to_vec(),
        read_bytes: asked.read_bytes,
        write_bytes: asked.write_bytes,
        sequential_share: asked.sequential_share,
        duration_s: asked.duration_s,
        requests_per_s: asked.requests_per_s,
        bytes_per_s: asked.bytes_per_s,
    };
    let mut out = stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&facts)?)?;
        return Ok(());
    }
    print_facts(&mut out, &facts, &asked, left_out)
}

fn print_facts(
    out: &mut impl Write,
    facts: &Facts,
    asked: &RequestReport,
    left_out: LeftOut,
) -> Result<(), Error> {
    let block = u64::from(facts.block_bytes);
    writeln!(out, "trace     {}", facts.path)?;
    writeln!(out, "format    {}, addresses in {}", facts.format, facts.unit)?;
    writeln!(out, "records   {}", count(facts.records))?;
    let size = bytes(block);
    let reads = percent(facts.reads as f64 / facts.requests.max(1) as f64);
    let marked = if facts.has_ops { "" } else { " (the trace does not tell reads from writes)" };
    writeln!(
        out,
        "requests  {} of one {size} block, {reads} reads{marked}",
        count(facts.requests)
    )?;
    let footprint = bytes(facts.unique_blocks * block);
    writeln!(out, "distinct  {} blocks, {footprint}", count(facts.unique_blocks))?;
    if let Some(times) = requests::times(asked) {
        writeln!(out, "time      {times}")?;
    }
    if asked.requests > 0 {
        let moved = [("read", asked.read_bytes), ("written", asked.write_bytes)];
        let moved = moved.map(|(what, moved)| format!("{} {what}", bytes(moved)));
        let moved = if facts.has_ops { moved.join(", ") } else { moved[0].clone() };
        writeln!(out, "bytes     {moved}")?;
        writeln!(out, "sizes     {}", requests::sizes(asked))?;
        writeln!(out, "in a row  {}", requests::sequential(asked, facts.spaces.len()))?;
    }
    let reasons: Vec<_> = left_out.by_reason().collect();
    for (at, (reason, number)) in reasons.iter().enumerate() {
        let head = if at == 0 { "left out" } else { "" };
        writeln!(out, "{head:8}  {} records {}", count(*number), reason.words())?;
    }
    let has = [(facts.has_time, "times"), (facts.has_buffers, "buffer addresses")];
    let has: Vec<_> = has.iter().filter(|(yes, _)| *yes).map(|(_, what)| *what).collect();
    if !has.is_empty() {
        writeln!(out, "carries   {}", has.join(", "))?;
    }
    if !facts.unused.is_empty() {
        writeln!(out, "not used  columns {}", facts.unused.join(", "))?;
    }
    if facts.spaces.len() > 1 {
        let shown: Vec<_> = facts.spaces.iter().take(12).map(String::as_str).collect();
        let more = if facts.spaces.len() > 12 { ", ..." } else { "" };
        writeln!(out, "spaces    {}: {}{more}", facts.spaces.len(), shown.join(", "))?;
    }
    Ok(())
}

/// Where a trace is written.
#[derive(clap::Args)]
struct Target {
    /// File to write; an ending .zst or .gz compresses; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Format to write [default: what the name of the file says]
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,
}

impl Target {
    /// Begins to write a trace of this kind. A format that does not exist or cannot carry it is a
    /// mistake in the command line.
    fn create(&self, meta: &Meta) -> Result<Box<dyn Writer>, Error> {
        create(&self.output, self.to.as_deref(), meta).map_err(|error| match error {
            undercroft_trace::Error::Format(what) => Error::Usage(what),
            error => error.into(),
        })
    }
}

impl Target {
    /// Says so if the file does not state the block size that the trace had: sizes in bytes would
    /// then mean another number of blocks.
    fn say_what_is_lost(&self, meta: &Meta) {
        let (Some(had), Unit::Blocks) = (meta.block_bytes, meta.unit) else { return };
        if self.output.as_os_str() == "-" {
            return;
        }
        let options = OpenOptions { format: self.to.clone() };
        if open(&self.output, &options).is_ok_and(|file| file.meta().block_bytes != Some(had)) {
            eprintln!("note: the file does not state the block size; read it with --block {had}");
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct Convert {
    #[command(flatten)]
    trace: TraceArg,
    #[command(flatten)]
    target: Target,
    /// Format of the trace, with options [default: recognised]
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
}

fn convert(args: &Convert) -> Result<(), Error> {
    let options = TraceOptions { format: args.format.clone(), block: None, unit: None };
    check_output(&args.trace.path, &args.target.output)?;
    copy(options.open(&args.trace.path)?, &args.target)
}

/// Refuses to write a trace over the one that is read.
fn check_output(input: &Path, output: &Path) -> Result<(), Error> {
    let file = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    if file(input).is_some() && file(input) == file(output) {
        let what = format!("-o {}: that is the trace itself; name another file", output.display());
        return Err(Error::Usage(what));
    }
    Ok(())
}

fn copy(mut reader: Box<dyn Reader>, target: &Target) -> Result<(), Error> {
    let mut writer = target.create(reader.meta())?;
    let bar = Reading::start(&target.output);
    let mut records = Vec::new();
    let mut total = 0;
    loop {
        records.clear();
        reader.read(&mut records)?;
        if records.is_empty() {
            break;
        }
        writer.write(&records, reader.spaces())?;
        total += records.len() as u64;
        bar.at(total);
    }
    let meta = reader.meta().clone();
    writer.finish()?;
    bar.done();
    eprintln!("{} records to {}", count(total), target.output.display());
    target.say_what_is_lost(&meta);
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct Filter {
    #[command(flatten)]
    trace: TraceArg,
    /// The level whose misses are written: SIZE:POLICY[,key=value...], without a share of the trace
    #[arg(long, value_name = "LEVEL")]
    l1: LevelSpec,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    options: TraceOptions,
    #[command(flatten)]
    simulation: SimulationOptions,
}

fn filter_trace(args: &Filter) -> Result<(), Error> {
    args.simulation.check()?;
    let path = &args.trace.path;
    check_output(path, &args.target.output)?;
    let origins = BlockOptions { origins: true, ..BlockOptions::default() };
    let (stream, block_bytes) = args.options.stream(path, origins)?;
    let bar = Reading::start(path);
    let warmup = match args.simulation.warmup {
        undercroft_sim::Warmup::Records(records) => records,
        undercroft_sim::Warmup::Percent(_) => {
            return Err(Error::Usage("trace filter: give --warmup in records".into()));
        }
    };
    if let Size::Percent(_) = args.l1.size {
        let why = "trace filter reads the trace only once: give --l1 a size in bytes or blocks";
        return Err(Error::Usage(why.into()));
    }
    if args.l1.policy.info().name == "opt" {
        let why = "trace filter reads the trace only once, and opt must know all of it";
        return Err(Error::Usage(why.into()));
    }
    let level = args.l1.config(block_bytes, 0)?;
    let mut filter =
        undercroft_sim::Filter::new(stream, &level, block_bytes, args.simulation.write_mode)?;
    let mut writer = args.target.create(filter.meta())?;
    let mut records = Vec::new();
    while filter.next(warmup, &mut records)? {
        writer.write(&records, filter.spaces())?;
        bar.at(filter.records());
    }
    writer.finish()?;
    bar.done();
    args.target.say_what_is_lost(filter.meta());
    let counts = filter.counts();
    eprintln!(
        "{} of {} requests to {} (hit ratio of {}: {})",
        count(filter.written()),
        count(counts.reads + counts.writes),
        args.target.output.display(),
        args.l1,
        percent(counts.read_hit_ratio()),
    );
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct Generate {
    /// Generator with its parameters, as zipf,blocks=100000,alpha=0.9,requests=1000000,seed=42
    #[arg(value_name = "GENERATOR", requires = "output")]
    generator: Option<String>,
    /// File to write; an ending .zst or .gz compresses; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format to write [default: what the name of the file says]
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,
}

fn generate(args: &Generate) -> Result<(), Error> {
    let (Some(text), Some(output)) = (&args.generator, &args.output) else {
        let mut out = stdout().lock();
        for generator in GENERATORS {
            writeln!(out, "{}", generator.help())?;
        }
        return Ok(());
    };
    let (name, parameters) = text.split_once(',').unwrap_or((text, ""));
    let spec = GeneratorSpec::parse(name, parameters)?;
    copy(spec.reader(), &Target { output: output.clone(), to: args.to.clone() })
}

fn list_formats() -> Result<(), Error> {
    let mut out = stdout().lock();
    let mut table = Table::new(&["format", "", "files", "about", "options"]);
    for format in formats() {
        let written = if format.writable { "read, write" } else { "read" };
        let options = format.options.to_string();
        let files = format.extensions.join(" ");
        table.row(vec![format.name.into(), written.into(), files, format.about.into(), options]);
    }
    table.print(&mut out, 5)?;
    Ok(())
}
