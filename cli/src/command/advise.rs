//! `undercroft advise URI`: what a running server advises. The sentences are the server's; here is
//! how a terminal shows them, and those on traces (`lab/advise.rs`).

use std::collections::BTreeSet;
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
        say_all(&mut out, "", &volume["sentences"])?;
        for change in texts(&volume["changes"]) {
            let uri = admin_uri(uri);
            writeln!(out, "      undercroft set {uri} {} {}", word(name), word(change))?;
        }
        figures(&mut out, volume)?;
        say_all(&mut out, "\nassumed\n", &volume["assumptions"])?;
    }
    say_all(&mut out, "\nbetween the volumes\n", &advice["total"]["sentences"])
}

/// The server's address as `undercroft set` takes it: that of the advice, if that is NBD's.
fn admin_uri(uri: &str) -> String {
    if uri.starts_with("nbd") { word(uri) } else { "NBD-URI".to_owned() }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// All sentences of a list, below a heading if there are any.
fn say_all(out: &mut impl Write, heading: &str, list: &Value) -> Result<(), Error> {
    for (at, sentence) in texts(list).enumerate() {
        write!(out, "{}", if at == 0 { heading } else { "" })?;
        say(out, sentence, [])?;
    }
    Ok(())
}

/// A sentence, and below it commands.
pub(crate) fn say<'a>(
    out: &mut impl Write,
    sentence: &str,
    commands: impl IntoIterator<Item = &'a String>,
) -> Result<(), Error> {
    writeln!(out, "{}", wrapped(sentence, "* ", "  "))?;
    commands.into_iter().try_for_each(|command| writeln!(out, "      {command}"))?;
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
    let cells = volume["cells"].as_array().into_iter().flatten().filter_map(|cell| {
        let number = |name: &str| 100.0 * cell[name].as_f64().unwrap_or(0.0);
        let mark = if cell["is_today"] == true { "*" } else { "" };
        let text = format!("{mark}{:.1} +- {:.1}", number("read_hit_ratio"), number("error"));
        let name = named(cell["policy"].as_str()?, cell["placement"].as_str().unwrap_or("access"));
        Some((name, cell["cache_bytes"].as_u64()?, text))
    });
    let cells: Vec<_> = cells.collect();
    if !cells.is_empty() {
        by_size(out, "read hits in %", &cells)?;
        writeln!(out, "* today")?;
    }
    Ok(())
}

/// A policy, and its placement if it is none at the access.
pub(crate) fn named(policy: &str, placement: &str) -> String {
    if placement == "access" { policy.to_owned() } else { format!("{policy} {placement}") }
}

/// A table of cells, each with its name, its size in bytes and its text: a row for each name, in
/// their order, and a column for each size.
pub(crate) fn by_size(
    out: &mut impl Write,
    title: &str,
    cells: &[(String, u64, String)],
) -> Result<(), Error> {
    let sizes: BTreeSet<u64> = cells.iter().map(|cell| cell.1).collect();
    let heading: Vec<_> =
        std::iter::once(title.to_owned()).chain(sizes.iter().map(|&size| bytes(size))).collect();
    let mut table = Table::new(&heading.iter().map(String::as_str).collect::<Vec<_>>());
    let mut seen = BTreeSet::new();
    for (name, ..) in cells.iter().filter(|cell| seen.insert(&cell.0)) {
        let at = |size: &u64| {
            let cell = cells.iter().find(|cell| (&cell.0, &cell.1) == (name, size));
            cell.map_or(String::new(), |cell| cell.2.clone())
        };
        table.row(std::iter::once(name.clone()).chain(sizes.iter().map(at)).collect());
    }
    writeln!(out)?;
    table.print(out, 1)?;
    Ok(())
}
