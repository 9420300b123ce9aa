//! The page of a sweep: for each trace the best at each size, curves of hit ratio, disk reads and
//! response time, and every run.

use std::collections::BTreeMap;

use crate::page::{Axis, Cell, Chart, Page, Section, Series, Shape, Statement, Table, Unit};
use serde::Deserialize;
use undercroft_text::{bytes, count, percent};

/// A difference in hit ratio that is not worth a change.
const SMALL: f64 = 0.01;

/// Curves that are shown at first.
const SHOWN: usize = 7;

/// A run, as `results.json` has it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Row {
    trace: String,
    upper: String,
    #[serde(default)]
    ratio: String,
    policy: String,
    placement: String,
    #[serde(default)]
    flash: String,
    size: String,
    capacity_blocks: u32,
    block_bytes: u32,
    requests: u64,
    unique_blocks: u64,
    reads: u64,
    read_hit_ratio: f64,
    cold_reads: u64,
    aggregate_read_hit_ratio: f64,
    disk_demand_reads: u64,
    disk_reloads: u64,
    response_time_ms: f64,
}

impl Row {
    /// The hit ratio that a sweep compares: the level's, or that of all levels if they all vary or
    /// flash lies below.
    fn hit_ratio(&self) -> f64 {
        let is_one = self.ratio.is_empty() && self.flash.is_empty();
        if is_one { self.read_hit_ratio } else { self.aggregate_read_hit_ratio }
    }

    fn bytes(&self) -> u64 {
        u64::from(self.capacity_blocks) * u64::from(self.block_bytes)
    }

    fn disk_reads(&self) -> u64 {
        self.disk_demand_reads + self.disk_reloads
    }

    fn name(&self) -> String {
        let flash = if self.flash.is_empty() { "" } else { " + " };
        let placement = if self.placement == "access" { "" } else { &self.placement };
        let policy = format!("{} {placement}", self.policy);
        format!("{}{flash}{}", policy.trim_end(), self.flash)
    }

    fn is_opt(&self) -> bool {
        self.policy == "opt"
    }
}

/// What response times are, and are not.
const TIMES: &str = "Response time: mean of a read, by fixed times of the levels and the disk. \
                     Reloads and demotions cost it nothing, as if the disk were idle for them.";

pub(crate) fn page(rows: &[Row]) -> Page {
    let mut traces: Vec<&str> = Vec::new();
    for row in rows {
        if !traces.contains(&row.trace.as_str()) {
            traces.push(&row.trace);
        }
    }
    let mut page = Page { kind: "sweep", ..Page::default() };
    page.title = match traces[..] {
        [one] => one.to_owned(),
        _ => format!("{} traces", traces.len()),
    };
    page.facts.push(format!("{} runs", count(rows.len() as u64)));
    for trace in &traces {
        let of_trace: Vec<&Row> = rows.iter().filter(|row| row.trace == *trace).collect();
        let first = of_trace[0];
        let blocks = bytes(u64::from(first.block_bytes));
        let (requests, unique) = (count(first.requests), count(first.unique_blocks));
        let facts = format!("{requests} requests, {unique} distinct blocks of {blocks}");
        let below = match (&*first.upper, &*first.ratio) {
            ("", "") => None,
            ("", ratio) => Some(format!("levels {ratio}")),
            (upper, _) => Some(format!("below {upper}")),
        };
        if traces.len() == 1 {
            page.facts.push(facts);
            page.facts.extend(below);
        } else {
            page.sections.push(Section::Heading((*trace).to_owned()));
        }
        let prefix = if traces.len() == 1 { String::new() } else { format!("{trace}: ") };
        let said = answer(&of_trace).into_iter().map(|text| Statement::new(prefix.clone() + &text));
        page.answer.extend(said);
        sections(&of_trace, &mut page.sections);
    }
    page
}

/// The rows of each size, by bytes.
fn by_size<'a>(rows: &[&'a Row]) -> BTreeMap<u64, Vec<&'a Row>> {
    let mut sizes: BTreeMap<u64, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| sizes.entry(row.bytes()).or_default().push(row));
    sizes
}

fn best<'a>(rows: &[&'a Row]) -> Option<&'a Row> {
    let own = rows.iter().filter(|row| !row.is_opt()).copied();
    let simple = |row: &Row| (row.policy == "lru", row.placement == "access");
    own.max_by(|a, b| a.hit_ratio().total_cmp(&b.hit_ratio()).then(simple(a).cmp(&simple(b))))
}

fn plain_lru<'a>(rows: &[&'a Row]) -> Option<&'a Row> {
    let is_plain = |row: &&Row| row.policy == "lru" && row.placement == "access";
    rows.iter().copied().find(|row| is_plain(row) && row.flash.is_empty())
}

/// What the runs on a trace say in words.
fn answer(rows: &[&Row]) -> Vec<String> {
    let sizes = by_size(rows);
    let Some(most) = best(rows) else { return Vec::new() };
    if most.hit_ratio() < SMALL {
        return vec![format!(
            "No policy serves one read in a hundred at any of these sizes; the most is {}.",
            percent(most.hit_ratio())
        )];
    }
    let mut said = Vec::new();
    let pairs = sizes.values().filter_map(|rows| Some((best(rows)?, plain_lru(rows)?)));
    let gain = |(best, lru): &(&Row, &Row)| best.hit_ratio() - lru.hit_ratio();
    match pairs.max_by(|a, b| gain(a).total_cmp(&gain(b))) {
        Some(pair) if gain(&pair) < SMALL => {
            said.push("At each size, no choice is a point better than LRU.".to_owned());
        }
        Some((best, lru)) => {
            said.push(format!(
                "{} gains most over LRU at {}: it serves {} of the reads, LRU {}.",
                best.name(),
                bytes(best.bytes()),
                percent(best.hit_ratio()),
                percent(lru.hit_ratio())
            ));
            said.extend(price(best, lru, &sizes[&best.bytes()]));
        }
        None => {}
    }
    let enough = sizes.values().filter_map(|rows| best(rows));
    if let Some(row) = enough.into_iter().find(|row| row.hit_ratio() >= most.hit_ratio() - SMALL) {
        said.push(format!(
            "{} serves {} at {}; no configuration of the sweep serves a point more.",
            row.name(),
            percent(row.hit_ratio()),
            bytes(row.bytes())
        ));
    }
    said
}

/// What the reloads of the best row of a size cost beside LRU, and what is possible without them.
fn price(row: &Row, lru: &Row, of_size: &[&Row]) -> Option<String> {
    if row.disk_reloads == 0 {
        return None;
    }
    let mut text = format!(
        "That takes {} reloads: {} reads {} blocks from the disk, LRU {}.",
        count(row.disk_reloads),
        row.name(),
        count(row.disk_reads()),
        count(lru.disk_reads())
    );
    let without = of_size.iter().filter(|row| row.disk_reloads == 0).copied();
    let without = best(&without.collect::<Vec<_>>()).filter(|row| row.policy != "lru");
    if let Some(without) = without {
        let (name, ratio) = (without.name(), percent(without.hit_ratio()));
        let reads = count(without.disk_reads());
        text += &format!(" Without reloads {name} serves most, {ratio}, with {reads} disk reads.");
    }
    Some(text)
}

fn sections(rows: &[&Row], into: &mut Vec<Section>) {
    let note = "Size on a logarithmic axis.";
    let hits = chart(rows, "Read hit ratio", note, Unit::Share, |row| row.hit_ratio());
    into.extend(hits.map(Section::Chart));
    into.push(Section::Table(best_table(rows)));
    let note = "Blocks read from the disk, those for placement included.";
    let disk = chart(rows, "Disk reads", note, Unit::Count, |row| row.disk_reads() as f64);
    into.extend(disk.map(Section::Chart));
    let note = TIMES;
    let times = chart(rows, "Response time", note, Unit::Ms, |row| row.response_time_ms);
    into.extend(times.map(Section::Chart));
    into.push(Section::Table(all_runs(rows)));
}

/// A chart with a curve for each policy and placement, the best first. None for one size.
fn chart(
    rows: &[&Row],
    title: &str,
    note: &str,
    unit: Unit,
    value: impl Fn(&Row) -> f64,
) -> Option<Chart> {
    let sizes = by_size(rows);
    if sizes.len() < 2 {
        return None;
    }
    let mut names: Vec<(String, f64)> = Vec::new();
    for row in rows {
        match names.iter_mut().find(|(name, _)| *name == row.name()) {
            Some((_, sum)) => *sum += row.hit_ratio(),
            None => names.push((row.name(), row.hit_ratio())),
        }
    }
    names.sort_by(|a, b| b.1.total_cmp(&a.1));
    let curve = |(rank, (name, _)): (usize, &(String, f64))| {
        let at = |rows: &Vec<&Row>| rows.iter().find(|row| row.name() == *name).map(|r| value(r));
        Series {
            name: name.clone(),
            shape: if name == "opt" { Shape::Dashed } else { Shape::Points },
            shown: rank < SHOWN || name == "lru",
            ys: sizes.values().map(at).collect(),
        }
    };
    Some(Chart {
        title: title.into(),
        note: note.into(),
        x: Axis { label: "Size".into(), unit: Unit::Bytes, log: true },
        y: Axis { label: title.into(), unit, log: false },
        xs: sizes.keys().map(|&size| size as f64).collect(),
        series: names.iter().enumerate().map(curve).collect(),
    })
}

fn best_table(rows: &[&Row]) -> Table {
    let columns = ["#Size", "Best", "#Hit ratio", "#LRU", "#Disk reads", "#With LRU", "#Not cold"];
    let note = "The best at each size, without OPT, beside LRU placed at the access.";
    let mut table = Table::new("At each size", note, &columns);
    for rows in by_size(rows).values() {
        let Some(best) = best(rows) else { continue };
        let lru = plain_lru(rows);
        let share = |ratio: f64| Cell::number(ratio, percent(ratio));
        let reads = |row: &Row| Cell::number(row.disk_reads() as f64, count(row.disk_reads()));
        // Of all levels together the rows do not say how many reads there were.
        let is_of_level = best.ratio.is_empty() && (best.flash.is_empty() || best.upper.is_empty());
        let not_cold = 1.0 - best.cold_reads as f64 / best.reads.max(1) as f64;
        table.rows.push(vec![
            Cell::number(best.bytes() as f64, bytes(best.bytes())),
            Cell::text(best.name()),
            Cell { is_best: true, ..share(best.hit_ratio()) },
            lru.map_or(Cell::default(), |lru| share(lru.hit_ratio())),
            reads(best),
            lru.map_or(Cell::default(), reads),
            if is_of_level { share(not_cold) } else { Cell::default() },
        ]);
    }
    table
}

fn all_runs(rows: &[&Row]) -> Table {
    let columns = [
        "Policy",
        "Placement",
        "#Size",
        "#Hit ratio",
        "#All levels",
        "#Disk reads",
        "#Reloads",
        "#Response time",
    ];
    let mut table = Table::new("Every run", TIMES, &columns);
    for row in rows {
        let share = |ratio: f64| Cell::number(ratio, percent(ratio));
        let number = |n: u64| Cell::number(n as f64, count(n));
        table.rows.push(vec![
            Cell::text(&row.policy),
            Cell::text(&row.placement),
            Cell::number(row.bytes() as f64, &row.size),
            share(row.hit_ratio()),
            share(row.aggregate_read_hit_ratio),
            number(row.disk_reads()),
            number(row.disk_reloads),
            Cell::number(row.response_time_ms, format!("{:.3} ms", row.response_time_ms)),
        ]);
    }
    table
}
