//! `undercroft probe`: what cache does a server have?

use std::io::{Write, stdout};

use undercroft_nbd::Uri;
use undercroft_sim::Size;
use undercroft_tools::{ProbeOptions, Probed, probe};

use crate::error::Error;
use crate::table::{bytes, count};
use crate::tls::TlsOptions;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The volume, of any NBD server: nbd://HOST[:PORT]/EXPORT or
    /// nbd+unix:///EXPORT?socket=PATH; nbds: over TLS. It is read, never written; nobody else
    /// should use the server meanwhile
    uri: Uri,
    /// Most that is read into the cache: a larger one is not told from one of this size
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    most: Size,
    /// Bytes of a block [default: what the server prefers]
    #[arg(long, value_name = "SIZE")]
    block: Option<Size>,
    /// Which blocks are read first: another seed reads others
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: TlsOptions,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let block_bytes = match &args.block {
        None => None,
        Some(Size::Bytes(bytes)) if bytes.is_power_of_two() && (512..=65536).contains(bytes) => {
            Some(*bytes as u32)
        }
        Some(_) => {
            let what = "--block: expected a power of two from 512 to 64KiB";
            return Err(Error::Usage(what.into()));
        }
    };
    let (blocks_max, bytes_max) = match args.most {
        Size::Bytes(bytes) => (u64::MAX, bytes),
        Size::Blocks(blocks) => (blocks, u64::MAX),
        Size::Percent(_) => return Err(Error::Usage("--most: a share of what?".into())),
    };
    let options = args.tls.client(Some(&args.uri))?;
    let how = ProbeOptions { blocks_max, bytes_max, block_bytes, seed: args.seed, options };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let probed = runtime.block_on(probe(&args.uri, &how));
    let probed = probed.map_err(|error| Error::Work(format!("{}: {error}", args.uri)))?;
    let mut out = stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&probed)?)?;
        return Ok(());
    }
    print(&mut out, &probed)
}

fn print(out: &mut impl Write, probed: &Probed) -> Result<(), Error> {
    let Probed { slow_us, fast_us, block_bytes, .. } = *probed;
    writeln!(out, "first reads    {slow_us:.0} us, second ones {fast_us:.0} us (medians)")?;
    match probed.blocks {
        None => writeln!(
            out,
            "cache          none to be seen: first and second reads take as long. There is none, \
             or it held these blocks already, or the disk is as fast"
        )?,
        Some(blocks) => {
            let least = if probed.is_least { "at least " } else { "" };
            let size = bytes(blocks * u64::from(block_bytes));
            let blocks = count(blocks);
            writeln!(out, "cache          {least}{blocks} blocks of {block_bytes} bytes, {size}")?;
        }
    }
    if let Some(is_by_recency) = probed.is_by_recency {
        let (how, like) = if is_by_recency {
            ("a block that is used again stays longer", "LRU and most others")
        } else {
            ("a block goes in its turn, used again or not", "FIFO")
        };
        writeln!(out, "replacement    {how}, as with {like}")?;
    }
    writeln!(out, "read           {} blocks", count(probed.reads))?;
    Ok(())
}
