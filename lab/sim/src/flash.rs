//! A flash level below a simulated server's memory: how it is configured, and what is reported of
//! it.
//!
//! Not here: what goes to flash and what leaves (`undercroft_flash`), and how it learns what the
//! memory does (`tree/flash.rs`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use undercroft_flash::{FlashCounts, FlashSpec};
use undercroft_policy::Spec;

use crate::Error;
use crate::size::{Size, stands_alone};

/// Drive writes that flash endures: one a day for five years.
const ENDURANCE: f64 = 5.0 * 365.0;

/// A flash level below the lowest level of a simulation: `SIZE[,key=value...]`.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashLevel {
    /// Its size.
    pub size: Size,
    /// What goes there.
    pub spec: FlashSpec,
    /// Another order than that of a server, by any policy.
    pub order: Option<Spec>,
    /// Requests a second that reach the first level; for a budget, and for figures of a day.
    pub requests_per_s: Option<f64>,
    /// What its device takes, in a simulation with a clock.
    pub times: FlashTimes,
}

/// What a flash device takes: `READ_US:WRITE_US:CHANNELS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashTimes {
    /// Time of a channel to read a block, in microseconds, up to an hour.
    pub read_us: u64,
    /// Time of a channel to write a block, likewise.
    pub write_us: u64,
    /// Channels, from 1 to 4096, each of which does one thing at a time.
    pub channels: u32,
}

impl Default for FlashTimes {
    fn default() -> Self {
        Self { read_us: 100, write_us: 200, channels: 8 }
    }
}

impl FlashTimes {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<u64> = text.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
        let &[read_us, write_us, channels] = &words[..] else { return None };
        let is_right = read_us.max(write_us) <= 3_600_000_000 && (1..=4096).contains(&channels);
        is_right.then_some(Self { read_us, write_us, channels: channels as u32 })
    }
}

impl FromStr for FlashLevel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (mut order, mut requests_per_s) = (Ok(None), None);
        let mut times = FlashTimes::default();
        let own = |key: &str, value: &str| match key {
            // A policy's own parameters are divided by colons, since commas divide these.
            "order" => {
                order = Spec::parse(&value.replace(':', ",")).map(Some);
                true
            }
            "rate" => {
                requests_per_s = value.parse().ok().filter(|rate| (1e-6..1e12).contains(rate));
                requests_per_s.is_some()
            }
            "times" => {
                let given = FlashTimes::parse(value);
                times = given.unwrap_or_default();
                given.is_some()
            }
            _ => false,
        };
        let spec = FlashSpec::parse(text, own).map_err(|why| {
            Error::Request(format!(
                "flash {why}, rate=REQUESTS (a second), order=POLICY, \
                 times=READ_US:WRITE_US:CHANNELS; as 64GiB,budget=64GiB/day,rate=5000"
            ))
        })?;
        let order = order?;
        if !order.iter().all(stands_alone) {
            let why = "flash order: any policy but opt and those that are content-aware";
            return Err(Error::Request(why.into()));
        }
        Ok(Self { size: spec.size.parse()?, spec, order, requests_per_s, times })
    }
}

impl fmt::Display for FlashLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.spec)?;
        if let Some(order) = &self.order {
            write!(f, ",order={}", order.to_string().replace(',', ":"))?;
        }
        if let Some(rate) = self.requests_per_s {
            write!(f, ",rate={rate}")?;
        }
        let FlashTimes { read_us, write_us, channels } = self.times;
        if self.times != FlashTimes::default() {
            write!(f, ",times={read_us}:{write_us}:{channels}")?;
        }
        Ok(())
    }
}

/// What the flash level counted, in blocks, and what follows from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlashReport {
    /// Its configuration.
    pub flash: String,
    /// Its slots.
    pub capacity_blocks: u32,
    /// Reads that missed in memory.
    pub reads: u64,
    /// Reads that found the block on flash.
    pub read_hits: u64,
    /// Read hits / reads of the applications.
    pub share_of_reads: f64,
    /// Blocks written to flash.
    pub written: u64,
    /// Those of them that lay there before a write ended their copy.
    pub rewritten: u64,
    /// Blocks that left memory and had a good copy still.
    pub kept: u64,
    /// Copies that writes ended.
    pub ended: u64,
    /// Blocks read from flash because a client had evicted them.
    #[serde(default)]
    pub reloads: u64,
    /// Blocks that had to go for others.
    pub evicted: u64,
    /// Blocks refused: nothing spoke for them.
    pub without_evidence: u64,
    /// Blocks refused: they belonged to a sequential stream.
    pub sequential: u64,
    /// Blocks refused: they were worth less than a write cost while the budget was short.
    pub too_dear: u64,
    /// Blocks refused: the budget was spent.
    pub over_budget: u64,
    /// Blocks written for 1,000 reads of the applications.
    pub written_per_1000_reads: f64,
    /// Blocks written for a hit.
    pub written_per_hit: f64,
    /// Reads that the store was spared for a gigabyte (10^9 bytes) written.
    pub hits_per_gb_written: f64,
    /// Gigabytes written a day, at the given rate, or by the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gb_a_day: Option<f64>,
    /// Writes of the whole level a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive_writes_a_day: Option<f64>,
    /// With a clock: mean time of a read from flash in milliseconds, its wait for a channel
    /// included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ms: Option<f64>,
    /// With a clock: shares of the time in which the channels read and wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<[f64; 2]>,
    /// Years until it was written as often as flash usually endures, which is once a day for five
    /// years. What the device writes beside is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub years: Option<f64>,
}

/// What the flash level counted after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlashOutcome {
    /// Its slots.
    pub capacity: u32,
    /// What happened.
    pub counts: FlashCounts,
    /// Reloads that read from flash, and not from the store.
    pub reloads: u64,
    /// With a clock: the nanoseconds of all reads from flash, and the shares of the time in which
    /// the channels read and wrote.
    pub timed: Option<(u64, [f64; 2])>,
}

impl FlashReport {
    /// The report of a flash level. `reads`: those of the applications; `days`: how long it took,
    /// if that is known.
    pub(crate) fn new(
        level: &FlashLevel,
        outcome: &FlashOutcome,
        block_bytes: u32,
        (reads, days): (u64, Option<f64>),
    ) -> Self {
        let FlashOutcome { capacity, counts, .. } = *outcome;
        let per = |a: f64, b: u64| a / b.max(1) as f64;
        let gb = counts.written as f64 * f64::from(block_bytes) / 1e9;
        let days = days.filter(|&days| days > 0.0);
        let writes = days.map(|days| per(counts.written as f64 / days, capacity.into()));
        Self {
            flash: level.to_string(),
            capacity_blocks: capacity,
            reads: counts.reads,
            read_hits: counts.hits,
            share_of_reads: per(counts.hits as f64, reads),
            written: counts.written,
            rewritten: counts.rewritten,
            kept: counts.kept,
            ended: counts.ended,
            reloads: outcome.reloads,
            evicted: counts.evicted,
            without_evidence: counts.without_evidence,
            sequential: counts.sequential,
            too_dear: counts.too_dear,
            over_budget: counts.over_budget,
            written_per_1000_reads: per(1000.0 * counts.written as f64, reads),
            written_per_hit: per(counts.written as f64, counts.hits),
            hits_per_gb_written: if gb > 0.0 { counts.hits as f64 / gb } else { 0.0 },
            gb_a_day: days.map(|days| gb / days),
            drive_writes_a_day: writes,
            read_ms: outcome.timed.map(|(ns, _)| per(ns as f64 / 1e6, counts.hits)),
            busy: outcome.timed.map(|(_, busy)| busy),
            years: writes.filter(|&writes| writes > 0.0).map(|writes| ENDURANCE / writes / 365.0),
        }
    }
}
