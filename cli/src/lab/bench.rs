//! `undercroft bench`: load on a running server.

use std::io::{Write, stdout};
use std::time::Duration;

use serde_json::json;
use undercroft_nbd::Uri;
use undercroft_sim::Size;
use undercroft_tools::{Latencies, Load};

use crate::error::Error;
use crate::table::count;
use crate::tls::TlsOptions;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Requests of one size as fast as an NBD server answers them
    Nbd(Args),
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The volume: nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH; nbds: over TLS
    uri: Uri,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    depth: u32,
    /// Connections, with a thread each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// Bytes of each request
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    block: Size,
    /// One after another instead of anywhere
    #[arg(long)]
    sequential: bool,
    /// Percent of reads; the others are writes, which destroy what the volume holds
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    reads: u8,
    /// Tell the server of so many evicted blocks in front of every so many reads; 0: only ask for
    /// the mailbox, which changes the form of answers, to compare with
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    hints: Option<u32>,
    /// Seconds
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Where random offsets begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: TlsOptions,
}

pub(crate) fn run(command: &Command) -> Result<(), Error> {
    let Command::Nbd(args) = command;
    let block_bytes = match args.block {
        Size::Bytes(bytes) if (1..=64 << 20).contains(&bytes) => bytes as u32,
        size => return Err(Error::Usage(format!("--block {size}: expected 1 to 64MiB"))),
    };
    if !(args.seconds > 0.0 && args.seconds <= 86_400.0) {
        return Err(Error::Usage(format!("--seconds {}: expected up to 86400", args.seconds)));
    }
    let load = Load {
        depth: args.depth,
        connections: args.connections,
        block_bytes,
        sequential: args.sequential,
        read_percent: args.reads,
        hints: args.hints,
        duration: Duration::from_secs_f64(args.seconds),
        seed: args.seed,
    };
    let options = args.tls.client(Some(&args.uri))?;
    let report = load.run(&args.uri, &options).map_err(|error| Error::Work(error.to_string()))?;
    let mut out = stdout().lock();
    let kinds = [("read", &report.reads), ("write", &report.writes)];
    let kinds = kinds.into_iter().filter(|(_, latencies)| latencies.count() > 0);
    if args.json {
        let mut object = json!({
            "requests_per_s": report.requests_per_second(),
            "bytes_per_s": report.bytes_per_second(),
            "elapsed_s": report.elapsed.as_secs_f64(),
            "messages": report.messages,
            "errors": report.errors,
        });
        for (name, latencies) in kinds {
            object[name] = json!({
                "count": latencies.count(),
                "mean_us": latencies.mean_us(),
                "p50_us": latencies.percentile_us(50.0),
                "p99_us": latencies.percentile_us(99.0),
                "max_us": latencies.max_us(),
            });
        }
        writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
    } else {
        let rate = report.requests_per_second();
        let mib = report.bytes_per_second() / f64::from(1 << 20);
        writeln!(out, "{rate:.0} requests/s  {mib:.0} MiB/s")?;
        for (name, latencies) in kinds {
            writeln!(out, "{}", describe(name, latencies))?;
        }
        if report.messages > 0 {
            writeln!(out, "hints  {} messages", count(report.messages))?;
        }
    }
    match report.errors {
        0 => Ok(()),
        errors => Err(Error::Work(format!("{errors} requests failed"))),
    }
}

fn describe(name: &str, latencies: &Latencies) -> String {
    let at = |percent| latencies.percentile_us(percent);
    format!(
        "{name:<6} {} requests  {:.0} us median  {:.0} us at 99 %  {:.0} us at most",
        count(latencies.count()),
        at(50.0),
        at(99.0),
        latencies.max_us()
    )
}
