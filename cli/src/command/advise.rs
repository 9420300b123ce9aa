//! `undercroft advise URI`: what a running server advises. The sentences are the server's; here is
//! how a terminal shows them.

use std::io::{Write, stdout};
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::error::Error;
use crate::status::{self, Page};
use crate::table::{Table, bytes, percent, word, wrapped};
use crate::tls::TlsOptions;

/// How a running server is asked.
#[derive(clap::Args)]
#[command(next_help_heading = "Running server")]
pub(crate) struct ServerOptions {
    /// What is in the http-token-file of the server, if it demands that
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsOptions,
}

/// Without the laboratory, which advises for traces as well.
#[cfg(not(feature = "lab"))]
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A running server: http://HOST:PORT or unix:PATH of its HTTP listener, or an NBD URI of a
    /// volume
    #[arg(value_name = "URI")]
    uri: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

#[cfg(not(feature = "lab"))]
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    show(&args.uri, &args.server, args.json)
}

/// Whether an argument names a server, and not a trace.
#[cfg(feature = "lab")]
pub(crate) fn is_uri(text: &str) -> bool {
    text.contains("://") || text.starts_with("unix:")
}

/// Asks a server, and shows what it advises.
pub(crate) fn show(uri: &str, server: &ServerOptions, is_json: bool) -> Result<(), Error> {
    let advice = status::read(Page::Advice, uri, server.token_file.as_deref(), &server.tls)?;
    let mut out = stdout().lock();
    if is_json {
        writeln!(out, "{}", serde_json::to_string_pretty(&advice)?)?;
        return Ok(());
    }
    let none = Map::new();
    let volumes = advice["volumes"].as_object().unwrap_or(&none);
    for (at, (name, volume)) in volumes.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{name}{}", now(volume))?;
        say(&mut out, &volume["sentences"])?;
        for change in volume["changes"].as_array().into_iter().flatten() {
            let (uri, change) = (admin_uri(uri), change.as_str().unwrap_or_default());
            writeln!(out, "      undercroft set {uri} {} {}", word(name), word(change))?;
        }
        figures(&mut out, volume)?;
        if volume["assumptions"].as_array().is_some_and(|all| !all.is_empty()) {
            writeln!(out, "\nassumed")?;
            say(&mut out, &volume["assumptions"])?;
        }
    }
    let total = &advice["total"]["sentences"];
    if total.as_array().is_some_and(|all| !all.is_empty()) {
        writeln!(out, "\nbetween the volumes")?;
        say(&mut out, total)?;
    }
    Ok(())
}

/// The server's address as `undercroft set` takes it: that of the advice, if that is NBD's.
fn admin_uri(uri: &str) -> String {
    if uri.starts_with("nbd") { word(uri) } else { "NBD-URI".to_owned() }
}

fn say(out: &mut impl Write, sentences: &Value) -> Result<(), Error> {
    let sentences = sentences.as_array().into_iter().flatten().filter_map(Value::as_str);
    for sentence in sentences {
        writeln!(out, "{}", wrapped(sentence, "* ", "  "))?;
    }
    Ok(())
}

/// The configuration of a volume, and how well it does.
fn now(volume: &Value) -> String {
    let today = &volume["today"];
    let (Some(policy), Some(placement), Some(size), Some(ratio)) = (
        today["policy"].as_str(),
        today["placement"].as_str(),
        today["cache_bytes"].as_u64(),
        today["read_hit_ratio"].as_f64(),
    ) else {
        return String::new();
    };
    let (size, hits) = (bytes(size), percent(ratio));
    format!(": {size} with {policy}, placement {placement}; {hits} of the reads hit")
}

/// The hit ratios by policy and size; that of today is marked.
fn figures(out: &mut impl Write, volume: &Value) -> Result<(), Error> {
    let cells: Vec<&Value> = volume["cells"].as_array().into_iter().flatten().collect();
    let mut sizes: Vec<u64> =
        cells.iter().filter_map(|cell| cell["cache_bytes"].as_u64()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.is_empty() {
        return Ok(());
    }
    let mut heading = vec!["read hits in %".to_owned()];
    heading.extend(sizes.iter().map(|&size| bytes(size)));
    let names: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut table = Table::new(&names);
    let named = |cell: &Value| {
        let policy = cell["policy"].as_str().unwrap_or_default();
        match cell["placement"].as_str() {
            Some("access") | None => policy.to_owned(),
            Some(placement) => format!("{policy} {placement}"),
        }
    };
    let mut rows: Vec<String> = cells.iter().map(|cell| named(cell)).collect();
    let mut seen = std::collections::BTreeSet::new();
    rows.retain(|name| seen.insert(name.clone()));
    for row in rows {
        let at = |&size: &u64| {
            let is_it = |cell: &&&Value| cell["cache_bytes"] == size && named(cell) == row;
            let Some(cell) = cells.iter().find(is_it) else { return String::new() };
            let number = |name: &str| 100.0 * cell[name].as_f64().unwrap_or(0.0);
            let mark = if cell["is_today"] == true { "*" } else { "" };
            format!("{mark}{:.1} +- {:.1}", number("read_hit_ratio"), number("error"))
        };
        table.row(std::iter::once(row.clone()).chain(sizes.iter().map(at)).collect());
    }
    writeln!(out)?;
    table.print(out, 1)?;
    writeln!(out, "* today")?;
    Ok(())
}
