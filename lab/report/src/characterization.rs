//! The page of a characterisation: the hill of reuse distances, the working set over time, how
//! frequent blocks are, and how long they lie idle.

use std::collections::BTreeSet;

use crate::Upper;
use crate::page::{Axis, Cell, Chart, Page, Section, Series, Shape, Statement, Table, Unit};
use serde::Deserialize;
use undercroft_text::{bytes, count, percent};

/// What `characterize --json` prints, as far as it is shown.
#[derive(Deserialize)]
pub(crate) struct Characterization {
    trace: Trace,
    block_bytes: u32,
    sampling: Option<Sampling>,
    requests: Requests,
    upper: Option<Upper>,
    blocks: Blocks,
    working_set: WorkingSet,
    stack_distance: Distances,
    temporal_distance: Distances,
    frequency: Vec<Frequency>,
    concentration: Vec<Concentration>,
    idle_distance: Option<Idle>,
}

#[derive(Deserialize)]
struct Trace {
    path: String,
    format: String,
    has_ops: bool,
}

#[derive(Deserialize)]
struct Sampling {
    rate: f64,
    share_error: f64,
}

#[derive(Deserialize)]
struct Requests {
    requests: u64,
    reads: u64,
    sequential_share: f64,
    duration_s: Option<f64>,
}

#[derive(Deserialize)]
struct Blocks {
    requests: u64,
    unique_blocks: u64,
    cold_share: f64,
}

#[derive(Deserialize)]
struct WorkingSet {
    window_requests: u64,
    windows: Vec<Window>,
}

#[derive(Deserialize)]
struct Window {
    start_s: Option<f64>,
    requests: u64,
    unique_blocks: u64,
    new_blocks: u64,
}

#[derive(Deserialize)]
struct Distances {
    median: Option<u64>,
    hill: Option<Hill>,
    bins: Vec<Bin>,
}

#[derive(Clone, Copy, Deserialize)]
struct Hill {
    min: u64,
    peak: u64,
    max: u64,
}

#[derive(Deserialize)]
struct Bin {
    up_to: u64,
    share: f64,
    cumulative_share: f64,
}

#[derive(Deserialize)]
struct Frequency {
    at_least: u64,
    blocks: u64,
    block_share: f64,
    reference_share: f64,
}

#[derive(Deserialize)]
struct Concentration {
    reference_share: f64,
    blocks: u64,
}

#[derive(Deserialize)]
struct Idle {
    mean_access_based: f64,
    mean_eviction_based: f64,
    access_based: Distances,
    eviction_based: Distances,
}

/// A share of the requests that is too small to see.
const HARDLY_ANY: f64 = 0.001;

impl Distances {
    /// The bins without those at the beginning that have hardly any requests together.
    fn without_few(&self) -> &[Bin] {
        let few = self.bins.iter().take_while(|bin| bin.cumulative_share < HARDLY_ANY).count();
        &self.bins[few.saturating_sub(1)..]
    }
}

pub(crate) fn page(found: &Characterization) -> Page {
    let mut page = Page {
        kind: "characterisation",
        title: found.trace.path.clone(),
        facts: facts(found),
        answer: answer(found),
        ..Page::default()
    };
    if !found.stack_distance.bins.is_empty() {
        page.sections.push(Section::Chart(reuse(found)));
        page.sections.push(Section::Chart(lru_hits(found)));
    }
    page.sections.push(Section::Chart(working_set(found)));
    page.sections.push(Section::Chart(frequency(found)));
    page.sections.extend(found.idle_distance.as_ref().map(idle).map(Section::Chart));
    page.sections.push(Section::Table(windows_table(found)));
    page.sections.push(Section::Table(frequency_table(found)));
    if !found.stack_distance.bins.is_empty() {
        page.sections.push(Section::Table(distance_table(found)));
    }
    page
}

fn facts(found: &Characterization) -> Vec<String> {
    let requests = &found.requests;
    let mut facts = vec![
        found.trace.format.clone(),
        format!("{} requests", count(requests.requests)),
        format!("{} sequential", percent(requests.sequential_share)),
    ];
    if found.trace.has_ops {
        let reads = requests.reads as f64 / requests.requests.max(1) as f64;
        facts.push(format!("{} reads", percent(reads)));
    }
    facts.extend(requests.duration_s.map(|s| format!("over {s:.0} s")));
    facts.push(match &found.sampling {
        None => "figures are exact".into(),
        Some(sample) => format!(
            "estimated from {} of the blocks, shares off by up to about {:.1} points",
            percent(sample.rate),
            100.0 * sample.share_error
        ),
    });
    facts
}

fn answer(found: &Characterization) -> Vec<Statement> {
    let block = u64::from(found.block_bytes);
    let size = |blocks: u64| bytes(blocks.saturating_mul(block));
    let blocks = &found.blocks;
    let below =
        found.upper.as_ref().map_or(String::new(), |upper| format!(" {}", upper.below(block)));
    let mut said = vec![format!(
        "{} block requests{below} go to {} distinct blocks, {}. {} of them are the first of their \
         blocks: no cache serves those.",
        count(blocks.requests),
        count(blocks.unique_blocks),
        size(blocks.unique_blocks),
        percent(blocks.cold_share)
    )];
    if let (Some(hill), Some(median)) = (found.stack_distance.hill, found.stack_distance.median) {
        said.push(format!(
            "Most blocks that are requested again come back at a stack distance of {} to {}, most \
             of all at {}; the median is {}. An LRU cache below the beginning of this hill serves \
             few requests, and one beyond its end few more.",
            size(hill.min),
            size(hill.max),
            size(hill.peak),
            size(median)
        ));
    }
    let half = found.concentration.iter().find(|part| part.reference_share >= 0.5);
    let most = found.concentration.iter().find(|part| part.reference_share >= 0.9);
    if let (Some(half), Some(most)) = (half, most) {
        said.push(format!(
            "Half of the requests go to {}, {:.0} % to {}.",
            size(half.blocks),
            100.0 * most.reference_share,
            size(most.blocks)
        ));
    }
    if let Some(idle) = &found.idle_distance {
        said.push(format!(
            "A block lies idle for {} requests in the mean if it is placed at its request, and for \
             {} if it is placed at its eviction from the client's cache.",
            count(idle.mean_access_based.round() as u64),
            count(idle.mean_eviction_based.round() as u64)
        ));
    }
    said.into_iter().map(Statement::new).collect()
}

/// Two histograms in powers of two over one axis, as steps that begin at the lower end of the first
/// bin. A unit of the axis is worth `scale`.
fn histograms(parts: [(&str, &Distances); 2], scale: f64) -> (Vec<f64>, Vec<Series>) {
    let many = parts.iter().flat_map(|(_, distances)| distances.without_few());
    let first = many.map(|bin| bin.up_to).min().unwrap_or(0);
    let all = parts.iter().flat_map(|(_, distances)| &distances.bins);
    let mut ends: BTreeSet<u64> =
        all.map(|bin| bin.up_to).filter(|&up_to| up_to >= first).collect();
    if let Some(&first) = ends.first() {
        ends.insert((first / 2).max(1));
    }
    let curve = |(name, distances): &(&str, &Distances)| {
        let at = |end: &u64| {
            let bin = distances.bins.iter().find(|bin| bin.up_to == *end);
            Some(bin.map_or(0.0, |bin| bin.share))
        };
        let ys = ends.iter().map(at).collect();
        Series { name: (*name).into(), shape: Shape::StepsBefore, shown: true, ys }
    };
    let series = parts.iter().map(curve).collect();
    (ends.iter().map(|&end| end as f64 * scale).collect(), series)
}

fn share_of(label: &str) -> Axis {
    Axis { label: label.into(), unit: Unit::Share, log: false }
}

fn reuse(found: &Characterization) -> Chart {
    let parts = [("stack", &found.stack_distance), ("temporal", &found.temporal_distance)];
    let (xs, series) = histograms(parts, f64::from(found.block_bytes));
    Chart {
        title: "Reuse distances".into(),
        note: "How far apart two requests of a block are, in powers of two. Stack: distinct other \
               blocks between them; temporal: all requests between them, as if each were of \
               another block."
            .into(),
        x: Axis { label: "Distance".into(), unit: Unit::Bytes, log: true },
        y: share_of("Share of the block requests"),
        xs,
        series,
    }
}

fn lru_hits(found: &Characterization) -> Chart {
    let bins = found.stack_distance.without_few();
    let block = f64::from(found.block_bytes);
    let ys = bins.iter().map(|bin| Some(bin.cumulative_share)).collect();
    let most = bins.iter().map(|_| Some(1.0 - found.blocks.cold_share)).collect();
    let line = |name: &str, shape, ys| Series { name: name.into(), shape, shown: true, ys };
    Chart {
        title: "Hits of an LRU cache".into(),
        note: "Share of the block requests, writes included, that an LRU cache of this size would \
               find; beside what no cache exceeds."
            .into(),
        x: Axis { label: "Size".into(), unit: Unit::Bytes, log: true },
        y: share_of("Share of the block requests"),
        xs: bins.iter().map(|bin| bin.up_to as f64 * block).collect(),
        series: vec![line("lru", Shape::Points, ys), line("not cold", Shape::Dashed, most)],
    }
}

fn working_set(found: &Characterization) -> Chart {
    let windows = &found.working_set.windows;
    let block = f64::from(found.block_bytes);
    let has_time = windows.iter().all(|window| window.start_s.is_some());
    let start = |(at, window): (usize, &Window)| match window.start_s {
        Some(start) if has_time => start,
        _ => (at as u64 * found.working_set.window_requests) as f64,
    };
    let mut xs: Vec<f64> = windows.iter().enumerate().map(start).collect();
    let last = windows.last().map_or(0, |window| window.requests);
    let end = match found.requests.duration_s {
        Some(duration) if has_time => duration,
        _ => xs.last().copied().unwrap_or(0.0) + last as f64,
    };
    // Windows that begin at one moment are drawn as the last of them.
    xs.push(end.max(xs.last().copied().unwrap_or(0.0)));
    let series = |name: &str, of: fn(&Window) -> u64| {
        let values = windows.iter().map(of);
        let mut ys: Vec<_> = values.map(|blocks| Some(blocks as f64 * block)).collect();
        ys.push(ys.last().copied().flatten());
        Series { name: name.into(), shape: Shape::StepsAfter, shown: true, ys }
    };
    let (label, unit) =
        if has_time { ("Time", Unit::Seconds) } else { ("Block requests", Unit::Count) };
    Chart {
        title: "Working set over time".into(),
        note: format!(
            "Distinct blocks in windows of {} block requests, and those that no window before had.",
            count(found.working_set.window_requests)
        ),
        x: Axis { label: label.into(), unit, log: false },
        y: Axis { label: "Distinct blocks".into(), unit: Unit::Bytes, log: false },
        xs,
        series: vec![
            series("distinct", |window| window.unique_blocks),
            series("new", |window| window.new_blocks),
        ],
    }
}

fn frequency(found: &Characterization) -> Chart {
    let rows = || found.frequency.iter().filter(|row| row.blocks > 0);
    let series = |name: &str, of: fn(&Frequency) -> f64| {
        let ys = rows().map(|row| Some(of(row))).collect();
        Series { name: name.into(), shape: Shape::Points, shown: true, ys }
    };
    Chart {
        title: "Access frequencies".into(),
        note: "Blocks with at least so many requests: their share of all blocks, and of all \
               requests."
            .into(),
        x: Axis { label: "Requests of a block, at least".into(), unit: Unit::Count, log: true },
        y: share_of("Share"),
        xs: rows().map(|row| row.at_least as f64).collect(),
        series: vec![
            series("of the blocks", |row| row.block_share),
            series("of the requests", |row| row.reference_share),
        ],
    }
}

fn idle(idle: &Idle) -> Chart {
    let parts = [
        ("placed at the request", &idle.access_based),
        ("placed at the eviction", &idle.eviction_based),
    ];
    let (xs, series) = histograms(parts, 1.0);
    Chart {
        title: "Idle distances".into(),
        note:
            "Block requests until a placed block is requested again, in powers of two. Placement \
               at the eviction saves the difference."
                .into(),
        x: Axis { label: "Block requests".into(), unit: Unit::Count, log: true },
        y: share_of("Share of the requests with a known eviction"),
        xs,
        series,
    }
}

fn number(number: u64) -> Cell {
    Cell::number(number as f64, count(number))
}

fn share(share: f64) -> Cell {
    Cell::number(share, percent(share))
}

fn windows_table(found: &Characterization) -> Table {
    let columns = ["#From request", "#From", "#Distinct blocks", "#Size", "#Of them new"];
    let mut table = Table::new("Working set", "The windows of the curve.", &columns);
    let block = u64::from(found.block_bytes);
    for (at, window) in found.working_set.windows.iter().enumerate() {
        let size = window.unique_blocks.saturating_mul(block);
        let start = window.start_s;
        table.rows.push(vec![
            number(at as u64 * found.working_set.window_requests),
            start.map_or(Cell::default(), |s| Cell::number(s, format!("{s:.1} s"))),
            number(window.unique_blocks),
            Cell::number(size as f64, bytes(size)),
            share(window.new_blocks as f64 / window.unique_blocks.max(1) as f64),
        ]);
    }
    table
}

fn frequency_table(found: &Characterization) -> Table {
    let columns = ["#Requests, at least", "#Blocks", "#Of all blocks", "#Of all requests"];
    let mut table = Table::new("Frequencies", "", &columns);
    for row in found.frequency.iter().filter(|row| row.blocks > 0) {
        table.rows.push(vec![
            number(row.at_least),
            number(row.blocks),
            share(row.block_share),
            share(row.reference_share),
        ]);
    }
    table
}

fn distance_table(found: &Characterization) -> Table {
    let columns = ["#Up to", "#Size", "#Stack", "#LRU hits", "#Temporal"];
    let note = "Shares of the block requests.";
    let mut table = Table::new("Reuse distances", note, &columns);
    let (stack, temporal) = (&found.stack_distance.bins, &found.temporal_distance.bins);
    let ends: BTreeSet<u64> = stack.iter().chain(temporal).map(|bin| bin.up_to).collect();
    let mut hits = 0.0;
    for end in ends {
        let at = |bins: &[Bin]| bins.iter().find(|bin| bin.up_to == end).map(|bin| bin.share);
        let sum = stack.iter().find(|bin| bin.up_to == end).map(|bin| bin.cumulative_share);
        hits = sum.unwrap_or(hits);
        let size = end.saturating_mul(u64::from(found.block_bytes));
        table.rows.push(vec![
            number(end),
            Cell::number(size as f64, bytes(size)),
            share(at(stack).unwrap_or(0.0)),
            share(hits),
            share(at(temporal).unwrap_or(0.0)),
        ]);
    }
    table
}
