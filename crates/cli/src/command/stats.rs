//! `undercroft stats`: the counters of a running server.

use std::io::{Write, stdout};

use serde_json::Value;

use crate::error::Error;
use crate::table::{Table, count, percent};
use crate::tls::TlsOptions;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// http://HOST:PORT of a server, or any NBD URI of one of its volumes
    uri: String,
    #[command(flatten)]
    tls: TlsOptions,
    /// Print the JSON as the server gives it
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let text = if args.uri.starts_with("http://") {
        args.tls.client(None)?;
        over_http(&args.uri)?
    } else {
        let uri = args.uri.parse().map_err(|error| {
            Error::Usage(format!("{error}; or http://HOST:PORT of its HTTP listener"))
        })?;
        let options = args.tls.client(Some(&uri))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(undercroft_server::status_over_nbd(&uri, &options)).map_err(Error::Work)?
    };
    let stats: Value = serde_json::from_str(&text)?;
    let mut out = stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&stats)?)?;
        return Ok(());
    }
    let columns = [
        "volume",
        "reads",
        "hits",
        "hit ratio",
        "writes",
        "hits",
        "evictions",
        "resident",
        "dirty",
    ];
    let mut table = Table::new(&columns);
    let empty = serde_json::Map::new();
    let volumes = stats["volumes"].as_object().unwrap_or(&empty);
    let total = ("total".to_owned(), stats["total"].clone());
    let rows = volumes.iter().map(|(name, volume)| (name.clone(), volume.clone()));
    for (name, volume) in rows.chain([total]) {
        let number = |key: &str| count(volume[key].as_u64().unwrap_or(0));
        table.row(vec![
            name,
            number("reads"),
            number("read_hits"),
            percent(volume["read_hit_ratio"].as_f64().unwrap_or(0.0)),
            number("writes"),
            number("write_hits"),
            number("evictions"),
            number("resident"),
            number("dirty"),
        ]);
    }
    table.print(&mut out, 1)?;
    Ok(())
}

fn over_http(uri: &str) -> Result<String, Error> {
    let path = if uri.trim_end_matches('/').matches('/').count() > 2 { "" } else { "/stats" };
    let uri = format!("{}{path}", uri.trim_end_matches('/'));
    let failed = |error: ureq::Error| Error::Work(format!("{uri}: {error}"));
    let mut response = ureq::get(&uri).call().map_err(failed)?;
    response.body_mut().read_to_string().map_err(failed)
}
