//! The page of an advice: the sentences with their runs, the curves of every policy beside the
//! exact LRU curve, and the assumptions.

use std::collections::BTreeSet;

use crate::Upper;
use crate::page::{Axis, Cell, Chart, Page, Section, Series, Shape, Statement, Table, Unit};
use serde::Deserialize;
use undercroft_text::{bytes, count, percent};

/// What `advise --json` prints, as far as it is shown.
#[derive(Deserialize)]
pub(crate) struct Advice {
    trace: Trace,
    block_bytes: u32,
    reads: u64,
    unique_blocks: u64,
    upper: Option<Upper>,
    lru: Vec<Point>,
    figures: Vec<Figure>,
    findings: Vec<Said>,
    assumptions: Vec<Said>,
}

#[derive(Deserialize)]
struct Trace {
    path: String,
    requests: u64,
    duration_s: Option<f64>,
}

#[derive(Deserialize)]
struct Point {
    capacity_blocks: u32,
    read_hit_ratio: f64,
}

#[derive(Deserialize)]
struct Figure {
    policy: String,
    placement: String,
    capacity_blocks: u32,
    read_hit_ratio: f64,
    disk_reads: u64,
    reloads: u64,
}

#[derive(Deserialize)]
struct Said {
    text: String,
    runs: Vec<String>,
}

impl Figure {
    fn name(&self) -> String {
        match self.placement.as_str() {
            "access" => self.policy.clone(),
            placement => format!("{} {placement}", self.policy),
        }
    }
}

pub(crate) fn page(advice: &Advice) -> Page {
    let block = u64::from(advice.block_bytes);
    let mut facts = vec![
        format!("{} requests", count(advice.trace.requests)),
        format!("{} distinct blocks of {}", count(advice.unique_blocks), bytes(block)),
        format!("{} reads arrive", count(advice.reads)),
    ];
    if let Some(upper) = &advice.upper {
        facts.insert(0, upper.below(block));
    }
    facts.extend(advice.trace.duration_s.map(|s| format!("over {s:.0} s")));
    let said = |said: &Said| Statement { text: said.text.clone(), runs: said.runs.clone() };
    let note = "Of the reads that arrive. LRU at every size; the others at the points.";
    let hits = chart(advice, "Read hit ratio by size", note, Unit::Share, true, |figure| {
        figure.read_hit_ratio
    });
    let note = "Blocks read from the disk, those for placement included.";
    let disk = chart(advice, "Disk reads by size", note, Unit::Count, false, |figure| {
        figure.disk_reads as f64
    });
    Page {
        kind: "advice",
        title: advice.trace.path.clone(),
        facts,
        answer: advice.findings.iter().map(said).collect(),
        sections: vec![
            Section::Chart(hits),
            Section::Chart(disk),
            Section::Table(runs(advice, block)),
        ],
        assumptions: advice.assumptions.iter().map(said).collect(),
        command: String::new(),
    }
}

fn chart(
    advice: &Advice,
    title: &str,
    note: &str,
    unit: Unit,
    has_curve: bool,
    value: impl Fn(&Figure) -> f64,
) -> Chart {
    let block = f64::from(advice.block_bytes);
    let mut sizes: BTreeSet<u32> = advice.figures.iter().map(|f| f.capacity_blocks).collect();
    if has_curve {
        let least = sizes.first().copied().unwrap_or(0);
        let curve = advice.lru.iter().map(|point| point.capacity_blocks);
        sizes.extend(curve.filter(|&size| size >= least));
    }
    let best = ["auto", "eviction"].map(|placement| best_name(advice, placement));
    let mut names: Vec<String> = Vec::new();
    for figure in &advice.figures {
        if !(names.contains(&figure.name()) || has_curve && figure.name() == "lru") {
            names.push(figure.name());
        }
    }
    let lru = |size: &u32| {
        let point = advice.lru.iter().find(|point| point.capacity_blocks == *size)?;
        Some(point.read_hit_ratio)
    };
    let mut series: Vec<Series> = Vec::new();
    if has_curve {
        let ys = sizes.iter().map(lru).collect();
        series.push(Series { name: "lru".into(), shape: Shape::Line, shown: true, ys });
    }
    series.extend(names.iter().map(|name| {
        let at = |size: &u32| {
            let is = |figure: &&Figure| figure.capacity_blocks == *size && figure.name() == *name;
            advice.figures.iter().find(is).map(&value)
        };
        let shape = if name == "opt" { Shape::Dashed } else { Shape::Points };
        let is_access = !name.contains(' ');
        let shown = is_access || best.iter().flatten().any(|best| best == name);
        Series { name: name.clone(), shape, shown, ys: sizes.iter().map(at).collect() }
    }));
    Chart {
        title: title.into(),
        note: note.into(),
        x: Axis { label: "Size".into(), unit: Unit::Bytes, log: true },
        y: Axis { label: title.into(), unit, log: false },
        xs: sizes.iter().map(|&size| f64::from(size) * block).collect(),
        series,
    }
}

/// The best curve of a placement, at the sizes at which most policies were tried with it.
fn best_name(advice: &Advice, placement: &str) -> Option<String> {
    let of = || advice.figures.iter().filter(|figure| figure.placement == placement);
    let tried =
        |figure: &Figure| of().filter(|f| f.capacity_blocks == figure.capacity_blocks).count();
    let most = of().map(tried).max()?;
    let at = of().filter(|figure| tried(figure) == most);
    let best = at.max_by(|a, b| a.read_hit_ratio.total_cmp(&b.read_hit_ratio))?;
    Some(best.name())
}

fn runs(advice: &Advice, block: u64) -> Table {
    let columns = ["Policy", "Placement", "#Size", "#Hit ratio", "#Disk reads", "#Of them reloads"];
    let mut table = Table::new("Every run", "", &columns);
    for figure in &advice.figures {
        let size = u64::from(figure.capacity_blocks) * block;
        table.rows.push(vec![
            Cell::text(&figure.policy),
            Cell::text(&figure.placement),
            Cell::number(size as f64, bytes(size)),
            Cell::number(figure.read_hit_ratio, percent(figure.read_hit_ratio)),
            Cell::number(figure.disk_reads as f64, count(figure.disk_reads)),
            Cell::number(figure.reloads as f64, count(figure.reloads)),
        ]);
    }
    table
}
