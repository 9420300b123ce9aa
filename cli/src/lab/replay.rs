//! `undercroft replay`: a trace through a running server.

use std::io::{Write, stdout};

use undercroft_hints::Report;
use undercroft_level::Below;
use undercroft_nbd::{ClientOptions, Uri};
use undercroft_policy::{Awareness, Context, Knows, Spec};
use undercroft_sim::LevelSpec;
use undercroft_tools::{KnownReport, ProbeReport, Replay, ReplayReport, first_data, replay};

use crate::error::Error;
use crate::lab::input::{SimulationOptions, TraceArg, TraceOptions};
use crate::lab::progress::Simulating;
use crate::table::{count, percent};
use crate::tls::TlsOptions;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trace: TraceArg,
    /// The volume: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH; nbds: over TLS
    #[arg(long, value_name = "URI")]
    to: Uri,
    /// A first-level cache in front of the server: SIZE:POLICY, as 32MiB:lru
    #[arg(long, value_name = "LEVEL")]
    l1: Option<LevelSpec>,
    /// Requests in flight, all connections together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    depth: u32,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// Send each block as a request of its own, as the simulator counts them
    #[arg(long)]
    single: bool,
    /// Write where the trace writes even if the volume holds data; otherwise only an empty volume
    /// is written to
    #[arg(long)]
    overwrite: bool,
    /// Check every byte: blocks that this replay wrote hold what it wrote, all others zeroes
    #[arg(long)]
    verify: bool,
    /// What the server is told of the first level: nothing, evictions, demotions (evictions with
    /// the data), or digest (a Bloom summary of what is there)
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "nothing",
        requires_if("evictions", "l1"),
        requires_if("demotions", "l1"),
        requires_if("digest", "l1")
    )]
    report: Report,
    /// What a first level with knows=emulation emulates: the server's cache, SIZE:POLICY, or probe
    #[arg(long, value_name = "LEVEL", requires = "l1")]
    below: Option<Emulated>,
    /// Find out from the replies what policy and size the server's cache has
    #[arg(long)]
    probe: bool,
    /// Hints in a message, and requests between two questions about what the server holds; with 1,
    /// each goes with the request that caused it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    batch: u8,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: TraceOptions,
    #[command(flatten)]
    simulation: SimulationOptions,
    #[command(flatten)]
    tls: TlsOptions,
}

/// What is to be emulated.
#[derive(Clone, Debug)]
enum Emulated {
    Probe,
    Level(LevelSpec),
}

impl std::str::FromStr for Emulated {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "probe" {
            return Ok(Self::Probe);
        }
        text.parse().map(Self::Level).map_err(|error| format!("{error}; or probe"))
    }
}

/// Where a first level knows from what the server holds, as its policy says.
fn below(
    args: &Args,
    policy: &Spec,
    blocks: impl Fn(&LevelSpec) -> Result<u32, Error>,
) -> Result<Below, Error> {
    let usage = |text: &str| Err(Error::Usage(format!("--l1 {policy}: {text}")));
    let Some(awareness) = Awareness::of(policy) else {
        return match args.below {
            Some(_) => usage("--below is for a content-aware policy, as lru-ca,knows=emulation"),
            None => Ok(Below::Nothing),
        };
    };
    awareness.check()?;
    if args.report == Report::Demotions {
        return usage("a content-aware policy keeps what the server lacks: report evictions");
    }
    match (awareness.knows, &args.below) {
        (Knows::Exact, None) => Ok(Below::Told),
        (Knows::Bloom, None) => Ok(Below::Digests),
        (Knows::Emulation, Some(Emulated::Probe)) => Ok(Below::Probed),
        (Knows::Emulation, Some(Emulated::Level(level))) => {
            Ok(Below::Emulated(level.policy.clone(), blocks(level)?))
        }
        (Knows::Emulation, None) => {
            usage("what is below? --below SIZE:POLICY, or --below probe to find it out")
        }
        (_, Some(_)) => usage("--below is for knows=emulation"),
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    args.simulation.check().map_err(|_| {
        let placement = &args.simulation.placement;
        Error::Usage(format!(
            "--placement {placement}: the volume's placement is the server's setting; a client \
             with --l1 tells it what it evicts with --report evictions"
        ))
    })?;
    if args.simulation.warmup != undercroft_sim::Warmup::Records(0) {
        let why = "--warmup: the server counts everything; replay the beginning on its own instead";
        return Err(Error::Usage(why.into()));
    }
    let options = args.tls.client(Some(&args.to))?;
    let (trace, block_bytes) = args.options.load(&args.trace.path, 1.0)?;
    let (mut l1, mut known, mut awareness) = (None, Below::Nothing, Awareness::default());
    if let Some(spec) = &args.l1 {
        let config = spec.config(block_bytes, trace.unique())?;
        let blocks = |level: &LevelSpec| Ok(level.config(block_bytes, trace.unique())?.capacity);
        known = below(args, &config.policy, blocks)?;
        awareness = Awareness::of(&config.policy).unwrap_or_default();
        l1 = Some(config.policy.build(&Context::new(config.capacity))?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if trace.kept().writes > 0 && !args.overwrite {
        runtime.block_on(must_be_empty(&args.to, &options, trace.kept().writes))?;
    }
    let how = Replay {
        l1,
        write_mode: args.simulation.write_mode,
        depth: args.depth as usize,
        connections: args.connections as usize,
        single: args.single,
        verify: args.verify,
        report: args.report,
        batch: args.batch.into(),
        below: known,
        awareness,
        probe: args.probe,
        options,
    };
    let bar = Simulating::start(trace.len());
    let played = replay(&trace, block_bytes, &args.to, how, |requests| bar.at(requests));
    let report = runtime.block_on(played).map_err(|error| Error::Work(error.to_string()))?;
    bar.done();
    let mut out = stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&mut out, &report)?;
    }
    match report.mismatches {
        0 => Ok(()),
        wrong => Err(Error::Work(format!("{wrong} blocks came back wrong"))),
    }
}

/// Refuses to overwrite what a volume holds.
async fn must_be_empty(uri: &Uri, options: &ClientOptions, writes: u64) -> Result<(), Error> {
    let found = first_data(uri, options).await;
    match found.map_err(|error| Error::Work(format!("{uri}: {error}")))? {
        None => Ok(()),
        Some(at) => Err(Error::Usage(format!(
            "the trace writes {} blocks, and {uri} may hold data, from byte {at} on, that they \
             would overwrite: replay to an empty volume, or say --overwrite",
            count(writes)
        ))),
    }
}

fn print(out: &mut impl Write, report: &ReplayReport) -> Result<(), Error> {
    writeln!(out, "requests       {} block requests of the trace", count(report.requests))?;
    if let Some(l1) = &report.l1 {
        let ratio = percent(l1.read_hit_ratio);
        writeln!(out, "first level    {ratio} of {} reads hit", count(l1.reads))?;
    }
    let (read, written) = (count(report.blocks_read), count(report.blocks_written));
    writeln!(
        out,
        "to the server  {} requests: {read} blocks read, {written} written",
        count(report.requests_sent)
    )?;
    if let Some(told) = &report.told {
        let (evictions, messages) = (count(told.evictions), count(told.messages));
        let (sent, refused) = (count(told.handed_over), count(told.refused));
        writeln!(
            out,
            "told           {evictions} evictions, {sent} with data, in {messages} messages, \
             {refused} of them refused"
        )?;
    }
    if let Some(known) = &report.known {
        print_known(out, known)?;
    }
    if let Some(probed) = &report.probed {
        print_probed(out, probed)?;
    }
    let latency = &report.latency_us;
    writeln!(
        out,
        "latency        {:.0} us median, {:.0} us at 99 %, {:.0} us at most",
        latency.p50, latency.p99, latency.max
    )?;
    writeln!(
        out,
        "took           {:.2} s, {:.0} requests/s",
        report.elapsed_s, report.requests_per_s
    )?;
    if report.blocks_verified > 0 {
        let (checked, wrong) = (count(report.blocks_verified), count(report.mismatches));
        writeln!(out, "verified       {checked} blocks, {wrong} wrong")?;
    }
    for text in &report.mismatched {
        writeln!(out, "  {text}")?;
    }
    Ok(())
}

fn print_known(out: &mut impl Write, known: &KnownReport) -> Result<(), Error> {
    let (held, bytes) = (count(known.held_evictions), count(known.news_bytes));
    writeln!(out, "known          {held} evictions of what the server was believed to hold")?;
    if known.news > 0 {
        let (news, summaries) = (count(known.news), count(known.summaries));
        let (whole, lost) = (count(known.whole_summaries), count(known.summaries_unusable));
        writeln!(
            out,
            "from           {news} answers of {bytes} bytes, {summaries} summaries, {whole} of \
             them whole, {lost} of no use"
        )?;
    }
    if let Some(share) = known.false_positives {
        writeln!(out, "               {} false positives as the filter is now", percent(share))?;
    }
    if known.predictions > 0 {
        let right = percent(known.confirmed as f64 / known.predictions as f64);
        let (all, not) = (count(known.predictions), count(known.distrusted));
        writeln!(
            out,
            "from           an emulation: {right} of {all} replies as foretold, {not} requests \
             without trust"
        )?;
    }
    if known.published > 0 {
        let (published, bytes) = (count(known.published), count(known.published_bytes));
        writeln!(out, "published      {published} summaries of {bytes} bytes")?;
    }
    Ok(())
}

fn print_probed(out: &mut impl Write, probed: &ProbeReport) -> Result<(), Error> {
    let Some(policy) = &probed.policy else {
        writeln!(out, "probed         nothing: the replies cannot be told apart, or are too few")?;
        return Ok(());
    };
    let least = if probed.is_least { "at least " } else { "" };
    let sure = if probed.is_certain { "" } else { ", or one that does alike" };
    let blocks = count(probed.blocks.into());
    writeln!(
        out,
        "probed         {policy}{sure}, {least}{blocks} blocks: {} of the last replies as foretold",
        percent(probed.agreement)
    )?;
    Ok(())
}
