//! `undercroft stats`: the counters of a running server.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use serde_json::Value;
use undercroft_server::{COUNTERS, Counter, Stats, Unit};

use crate::error::Error;
use crate::held::{self, caches};
use crate::saved;
use crate::status::{StatusOptions, store_state, volumes as each};
use crate::table::{Table, bytes, count, percent};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the JSON as the server gives it
    #[arg(long)]
    json: bool,
    /// Print what has happened lately, the latest first: losses, refusals, changes, reloads
    #[arg(long)]
    events: bool,
    /// Ask again every so many seconds, until it is interrupted
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
    #[command(flatten)]
    server: StatusOptions,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let Some(pause) = args.watch.map(Duration::from_secs) else {
        return show(args, &mut stdout().lock());
    };
    loop {
        // As a whole, so that a terminal does not flicker.
        let mut shown = Vec::new();
        show(args, &mut shown)?;
        let mut out = stdout().lock();
        if out.is_terminal() {
            // From the top left, and nothing of the last time.
            out.write_all(b"\x1b[H\x1b[2J")?;
        }
        out.write_all(&shown)?;
        if !out.is_terminal() && !args.json {
            writeln!(out)?;
        }
        out.flush()?;
        drop(out);
        std::thread::sleep(pause);
    }
}

/// Asks the server once, and prints what it says.
fn show(args: &Args, out: &mut impl Write) -> Result<(), Error> {
    let stats = args.server.stats()?;
    if args.json {
        let what = if args.events { &stats["events"] } else { &stats };
        writeln!(out, "{}", serde_json::to_string_pretty(what)?)?;
        return Ok(());
    }
    if args.events {
        return saved::events(out, &stats);
    }
    volumes(out, &stats)?;
    troubles(out, &stats)?;
    saved::table(out, &stats)?;
    shares(out, &stats)?;
    times(out, &stats)?;
    groups(out, &stats)?;
    leaders(out, &stats)?;
    clients(out, &stats)
}

/// What each volume served: the numbers of the table of counters that have a heading, and what
/// follows from them.
fn volumes(out: &mut impl Write, stats: &Value) -> Result<(), Error> {
    // Only volumes with a cutoff let streams pass.
    let has_streams = stats["total"]["streamed"].as_u64().is_some_and(|blocks| blocks > 0);
    let rows: Vec<_> =
        shown(Stats::ROWS).filter(|(row, _)| has_streams || row.name != "streamed").collect();
    let ratio_at = 1 + rows.iter().position(|(row, _)| row.name == "read_hits").unwrap_or(0);
    let line = |name: &str, cells: Vec<String>, ratio: String, store: String| {
        let (before, after) = cells.split_at(ratio_at);
        [&[name.to_owned()], before, &[ratio], after, &[store]].concat()
    };
    let headings = rows.iter().map(|(_, heading)| (*heading).to_owned()).collect();
    let headings = line("volume", headings, "hit ratio".into(), "store".into());
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, volume) in each(stats).into_iter().chain([("total", &stats["total"])]) {
        let store = match volume.get("policy") {
            Some(_) => held::shown(store_state(volume)),
            None => stores(stats),
        };
        let cells = rows.iter().map(|(row, _)| cell(row, &volume[row.name])).collect();
        let ratio = percent(volume["read_hit_ratio"].as_f64().unwrap_or(0.0));
        table.row(line(name, cells, ratio, store));
    }
    table.print(out, 1)?;
    Ok(())
}

/// The rows of the table of counters that have a heading here.
fn shown(rows: &'static [Counter]) -> impl Iterator<Item = (&'static Counter, &'static str)> {
    rows.iter().filter_map(|row| Some((row, row.heading?)))
}

/// A number in its unit; `-` if there is none.
fn cell(row: &Counter, value: &Value) -> String {
    match (row.unit, value.as_u64()) {
        (_, None) => "-".to_owned(),
        (Unit::Bytes, Some(value)) => bytes(value),
        (Unit::Millionths | Unit::Percent, Some(value)) => {
            percent(value as f64 / f64::from(row.unit.scale()))
        }
        (_, Some(value)) => count(value),
    }
}

/// The groups of counters that some volumes have, each in a table of its own: of the volumes that
/// have counted something there.
fn groups(out: &mut impl Write, stats: &Value) -> Result<(), Error> {
    for group in COUNTERS.iter().filter(|group| !group.json.is_empty()) {
        let rows: Vec<_> = shown(group.rows).collect();
        let headings = ["volume"].into_iter().chain(rows.iter().map(|(_, heading)| *heading));
        let mut table = Table::new(&headings.collect::<Vec<_>>());
        for (name, volume) in each(stats) {
            let values = rows.iter().map(|(row, _)| (*row, &volume[group.json][row.name]));
            if values.clone().any(|(_, value)| value.as_u64().is_some_and(|value| value > 0)) {
                let cells = values.map(|(row, value)| cell(row, value));
                table.row([name.to_owned()].into_iter().chain(cells).collect());
            }
        }
        table.print_if_filled(out, 1)?;
    }
    Ok(())
}

/// The sizes of caches that may lend room, or borrow, or whose shares move: now, the share, and
/// their bounds.
fn shares(out: &mut impl Write, stats: &Value) -> Result<(), Error> {
    let mut table = Table::new(&["volume", "cache now", "share", "keeps", "grows to"]);
    for (name, volume) in each(stats) {
        let terms = [&volume["cache_min_bytes"], &volume["cache_max_bytes"]];
        let is_auto = volume["share"] == "auto";
        if terms.iter().all(|bytes| bytes.is_null()) && !is_auto {
            continue;
        }
        let block = volume["block_bytes"].as_u64().unwrap_or(0);
        let of_blocks = |key: &str| volume[key].as_u64().unwrap_or(0).saturating_mul(block);
        let share = of_blocks("share_blocks");
        let sizes = [of_blocks("capacity_blocks"), share];
        let terms = terms.map(|term| match (term.as_u64(), is_auto) {
            (Some(term), _) => bytes(term),
            (None, true) => "auto".to_owned(),
            (None, false) => bytes(share),
        });
        let cells = sizes.map(bytes).into_iter().chain(terms);
        table.row([name.to_owned()].into_iter().chain(cells).collect());
    }
    table.print_if_filled(out, 1)
}

/// How many stores have each state; those that are up come last.
fn stores(stats: &Value) -> String {
    let mut counts = BTreeMap::from([("up", 0)]);
    for (_, volume) in each(stats) {
        *counts.entry(store_state(volume)).or_default() += 1;
    }
    let mut all: Vec<(&str, u64)> = counts.into_iter().collect();
    all.sort_by_key(|(state, _)| *state == "up");
    let all = all.into_iter().map(|(state, count)| format!("{count} {}", held::shown(state)));
    all.collect::<Vec<_>>().join(", ")
}

/// What is not as it should be, by volume.
fn troubles(out: &mut impl Write, stats: &Value) -> Result<(), Error> {
    for (name, volume) in each(stats) {
        if let Some(why) = volume["store_trouble"].as_str() {
            writeln!(out, "{}: {}", held::shown(name), held::shown(why))?;
        }
    }
    Ok(())
}

/// How long requests took since the start, by kind, and by the source of their slowest block.
fn times(out: &mut impl Write, stats: &Value) -> Result<(), Error> {
    let mut table = Table::new(&["volume", "request", "from", "requests", "median us", "99 % us"]);
    for (name, volume) in each(stats) {
        for (request, sources) in volume["latency_us"].as_object().into_iter().flatten() {
            for (source, times) in sources.as_object().into_iter().flatten() {
                let us = |at: &str| count(times[at].as_f64().unwrap_or(0.0).round() as u64);
                let names = [name, request, source].map(str::to_owned);
                let numbers = [number(&times["count"]), us("p50"), us("p99")];
                table.row(names.into_iter().chain(numbers).collect());
            }
        }
    }
    table.print_if_filled(out, 3)
}

/// What decides now which block leaves, where a policy chooses among several ways: a name a shard.
fn leaders(out: &mut impl Write, stats: &Value) -> Result<(), Error> {
    let mut table = Table::new(&["volume", "policy", "leads now"]);
    for (name, volume) in each(stats) {
        let leaders = volume["leaders"].as_array().into_iter().flatten();
        let leaders: Vec<_> = leaders.filter_map(Value::as_str).collect();
        if !leaders.is_empty() {
            let policy = volume["policy"].as_str().unwrap_or("-");
            table.row(vec![name.to_owned(), policy.to_owned(), leaders.join(", ")]);
        }
    }
    table.print_if_filled(out, 2)
}

/// The caches of the clients, as they were last described by themselves or their trackers.
fn clients(out: &mut impl Write, stats: &Value) -> Result<(), Error> {
    let columns = [
        "volume",
        "client",
        "policy",
        "blocks",
        "reads",
        "hits",
        "evictions",
        "late",
        "untold",
        "precision",
        "recall",
    ];
    let mut table = Table::new(&columns);
    for (name, volume) in each(stats) {
        for client in caches(volume) {
            let Some(reads) = client.reads else { continue };
            let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
            table.row(vec![
                name.to_owned(),
                client.client,
                or_none(client.policy),
                count(client.capacity_blocks.unwrap_or(0)),
                count(reads),
                or_none(client.hit_ratio.map(percent)),
                count(client.evictions.unwrap_or(0)),
                or_none(client.late.map(percent)),
                or_none(client.untold.map(count)),
                or_none(client.precision.map(percent)),
                or_none(client.recall.map(percent)),
            ]);
        }
    }
    table.print_if_filled(out, 1)
}

fn number(value: &Value) -> String {
    count(value.as_u64().unwrap_or(0))
}
