//! The options of simulations with a clock, and how their times are shown.

use std::io::Write;

use clap::{Args, ValueEnum};
use undercroft_sim::{ReloadTime, Report, Size, TimedReport, Timing};

use crate::error::Error;
use crate::table::{Table, count};

/// How long things take.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "With a clock")]
pub(crate) struct TimedOptions {
    /// Simulate with a clock: links, disks that serve one request at a time, and reloads when they
    /// have nothing else to do
    #[arg(long)]
    timed: bool,
    /// Requests that each client has under way
    #[arg(long, value_name = "N", default_value = "1", requires = "timed")]
    outstanding: u32,
    /// Mean time of a client from an answer to the next request, in microseconds
    #[arg(long, value_name = "US", default_value = "0", requires = "timed")]
    think_us: u64,
    /// Disks of each server
    #[arg(long, value_name = "N", default_value = "1", requires = "timed")]
    disks: u32,
    /// Time of a disk for a block, in microseconds
    #[arg(long, value_name = "US", default_value_t = Timing::DISK_US, requires = "timed")]
    disk_us: u64,
    /// What the link of each client carries a second, as 40MiB [default: no limit]
    #[arg(long, value_name = "SIZE", requires = "timed")]
    link: Option<String>,
    /// When reloads are done: when a disk is idle, or in turn with the demand
    #[arg(long, value_name = "WHEN", default_value = "idle", requires = "timed")]
    reloads: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Idle,
    Demand,
}

impl TimedOptions {
    /// The times; nothing where there is no clock.
    pub(crate) fn timing(&self) -> Result<Option<Timing>, Error> {
        if !self.timed {
            return Ok(None);
        }
        let rate = |text: &String| match text.parse() {
            Ok(Size::Bytes(bytes)) if bytes > 0 => Ok(bytes as f64),
            _ => Err(Error::Usage(format!("--link {text}: expected bytes a second, as 40MiB"))),
        };
        Ok(Some(Timing {
            outstanding: self.outstanding,
            think_us: self.think_us,
            disks: self.disks,
            disk_us: self.disk_us,
            link_bytes_per_s: self.link.as_ref().map(rate).transpose()?,
            reloads: match self.reloads {
                When::Idle => ReloadTime::Idle,
                When::Demand => ReloadTime::Demand,
            },
        }))
    }
}

type Column = (&'static str, fn(&TimedReport) -> String);

/// Times first, then what the disks and links did.
const COLUMNS: [Column; 11] = [
    ("response ms", |t| format!("{:.3}", t.response_ms)),
    ("caches", |t| format!("{:.3}", t.cache_ms)),
    ("link", |t| format!("{:.3}", t.link_ms)),
    ("disk wait", |t| format!("{:.3}", t.disk_wait_ms)),
    ("of it for reloads", |t| format!("{:.3}", t.behind_reloads_ms)),
    ("disk", |t| format!("{:.3}", t.disk_ms)),
    ("requests/s", |t| format!("{:.1}", t.requests_per_s)),
    ("disk busy", |t| whole_percent(t.disk_reads_busy + t.disk_writes_busy)),
    ("reloading", |t| whole_percent(t.disk_reloads_busy)),
    ("link busy", |t| whole_percent(t.link_demand_busy)),
    ("demoting", |t| whole_percent(t.link_demotions_busy)),
];

fn whole_percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// What took how long, beside the same without placement.
pub(crate) fn print(out: &mut impl Write, report: &Report) -> Result<(), Error> {
    let Some(timed) = &report.timed else { return Ok(()) };
    let names = COLUMNS.map(|(name, _)| name);
    let heading: Vec<_> = std::iter::once("placement").chain(names).collect();
    let mut table = Table::new(&heading);
    let lower = report.levels.last().map_or("", |level| level.placement.as_str());
    let rows = [("access", report.timed_access.as_ref()), (lower, Some(timed))];
    for (name, timed) in rows {
        let Some(timed) = timed else { continue };
        let cells = COLUMNS.iter().map(|(_, cell)| cell(timed));
        table.row(std::iter::once(name.into()).chain(cells).collect());
    }
    table.print(out, 1)?;
    writeln!(out)?;
    if timed.reloads_queued > 0 {
        writeln!(
            out,
            "reloads        {} queued; dropped: {} asked for, {} written, {} for want of room; {} \
             done, {} of them in vain; {} reads joined one",
            count(timed.reloads_queued),
            count(timed.reloads_demanded),
            count(timed.reloads_written),
            count(timed.reloads_overflowed),
            count(timed.reloads_issued),
            count(timed.reloads_unwanted),
            count(timed.joined),
        )?;
    }
    if lower.contains("down=auto") {
        writeln!(out, "way down       changed {} times", count(timed.way_changes))?;
    }
    Ok(())
}
