//! What a sample says: for each volume, and for all together, what was counted since the sample
//! before it, what there is now, and how long requests took in between. Numbers alone, in the order
//! of [`fields`], since hundreds of samples are kept.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::{Map, Value, json};
use undercroft_nbd::CommandKind;

use crate::clock;
use crate::counters::{Latencies, Source, Stats};
use crate::histogram::BucketCounts;
use crate::serve::exports::ExportEntry;
use crate::serve::metrics::About;

/// What is counted, in blocks where not said otherwise.
const COUNTERS: [&str; 18] = [
    "reads",
    "read_hits",
    "joined_reads",
    "demoted_hits",
    "reloaded_hits",
    "staged_hits",
    "writes",
    "write_hits",
    "read_bytes",
    "written_bytes",
    "store_read_bytes",
    "store_written_bytes",
    "evictions",
    "bounded_writes",
    "store_failures",
    "told_evictions",
    "useless_evictions",
    "reloads",
];

/// What there is now.
const GAUGES: [&str; 8] = [
    "resident_bytes",
    "capacity_bytes",
    "dirty_bytes",
    "in_progress",
    "starved",
    "reloads_waiting",
    "stores_down",
    // Of several volumes the largest.
    "dirty_age_s",
];

/// Kinds of requests, with the sources of their slowest blocks. Of each: the number of requests,
/// and median and 99th percentile in microseconds.
const TIMES: [(&str, CommandKind, &[Source]); 5] = [
    ("read", CommandKind::Read, &[Source::Hit, Source::Joined, Source::Miss]),
    ("read_hit", CommandKind::Read, &[Source::Hit]),
    ("read_miss", CommandKind::Read, &[Source::Joined, Source::Miss]),
    ("write", CommandKind::Write, &[Source::Hit, Source::Joined, Source::Miss]),
    ("flush", CommandKind::Flush, &[Source::Hit, Source::Joined, Source::Miss]),
];

/// The names of the numbers of a volume, in their order.
pub(super) fn fields() -> Vec<String> {
    let plain = COUNTERS.iter().chain(&GAUGES).map(|&name| name.to_owned());
    let times = ["requests", "p50_us", "p99_us"];
    let times = TIMES.iter().flat_map(|(name, ..)| times.map(|what| format!("{name}_{what}")));
    plain.chain(times).collect()
}

/// The counters of a volume at some time, or their growth between two times.
#[derive(Clone, Default)]
struct Reading {
    counters: [u64; COUNTERS.len()],
    gauges: [u64; GAUGES.len()],
    times: [BucketCounts; TIMES.len()],
}

impl Reading {
    fn of(entry: &ExportEntry) -> Reading {
        let volume = entry.volume();
        let block_bytes = u64::from(volume.config().block_bytes);
        let mut reading = Reading::of_stats(&volume.stats(), block_bytes);
        for (times, (_, kind, sources)) in reading.times.iter_mut().zip(TIMES) {
            let latencies: &Latencies = volume.latencies();
            let all = sources.iter().map(|&source| latencies.of(kind, source).counts());
            all.for_each(|counts| times.add(&counts));
        }
        reading
    }

    fn of_stats(stats: &Stats, block_bytes: u64) -> Reading {
        let coop = stats.cooperation.unwrap_or_default();
        let aware = stats.aware.unwrap_or_default();
        Reading {
            counters: [
                stats.reads,
                stats.read_hits,
                stats.joined_reads,
                coop.demoted_hits,
                coop.reloaded_hits,
                coop.staged_hits + coop.restaged_hits,
                stats.writes,
                stats.write_hits,
                stats.reads * block_bytes,
                stats.writes * block_bytes,
                stats.store_reads * block_bytes,
                stats.store_writes * block_bytes,
                stats.evictions,
                stats.bounded_writes,
                stats.store_failures,
                coop.hints + aware.hints,
                coop.late_hints + coop.stale_hints + aware.late_hints + aware.stale_hints,
                coop.reloads,
            ],
            gauges: [
                stats.resident * block_bytes,
                stats.capacity_blocks * block_bytes,
                stats.dirty * block_bytes,
                stats.in_progress,
                stats.starved,
                coop.reloads_waiting,
                1_u64.saturating_sub(stats.store_up),
                stats.dirty_age_s,
            ],
            ..Reading::default()
        }
    }

    /// What was counted since an earlier reading. Counts that were reset begin at 0.
    fn since(&self, earlier: &Reading) -> Reading {
        let mut grown = self.clone();
        let counters = grown.counters.iter_mut().zip(&earlier.counters);
        counters.for_each(|(now, before)| *now = now.saturating_sub(*before));
        for (now, before) in grown.times.iter_mut().zip(&earlier.times) {
            *now = now.since(before);
        }
        grown
    }

    fn add(&mut self, other: &Reading) {
        let [.., age] = self.gauges;
        let own = self.counters.iter_mut().chain(&mut self.gauges);
        let sums = own.zip(other.counters.iter().chain(&other.gauges));
        sums.for_each(|(own, other)| *own = own.saturating_add(*other));
        let [.., sum] = &mut self.gauges;
        *sum = age.max(other.gauges[GAUGES.len() - 1]);
        self.times.iter_mut().zip(&other.times).for_each(|(own, other)| own.add(other));
    }

    /// The numbers in the order of [`fields`]; times are null without requests.
    fn row(&self) -> Value {
        let mut row: Vec<Value> =
            self.counters.iter().chain(&self.gauges).map(|&number| json!(number)).collect();
        for times in &self.times {
            let requests = times.count();
            let at = |q| (requests > 0).then(|| times.quantile_ns(q).div_ceil(1000));
            row.extend([json!(requests), json!(at(0.5)), json!(at(0.99))]);
        }
        Value::Array(row)
    }
}

/// The last sample, with which the next one is compared.
#[derive(Default)]
pub(super) struct Sampler {
    at: Option<Instant>,
    before: HashMap<String, Reading>,
}

impl Sampler {
    /// The next sample, without its time of day: `s` seconds, `all` volumes together, and `by`
    /// volume the first [`VOLUMES`](super::VOLUMES) of the configuration. `None` the first time.
    pub(super) fn sample(&mut self, about: &About) -> Option<Value> {
        let now = clock::now();
        let order = about.exports.order();
        let shown: HashMap<&str, ()> =
            order.iter().take(super::VOLUMES).map(|name| (name.as_str(), ())).collect();
        let (mut total, mut by, mut after) = (Reading::default(), Map::new(), HashMap::new());
        for entry in about.exports.all() {
            let (name, reading) = (entry.volume().config().name.clone(), Reading::of(&entry));
            // A volume that has just come has counted nothing before.
            let grown = reading.since(self.before.get(&name).unwrap_or(&reading));
            total.add(&grown);
            if shown.contains_key(name.as_str()) {
                by.insert(name.clone(), grown.row());
            }
            after.insert(name, reading);
        }
        self.before = after;
        let before = self.at.replace(now)?;
        let seconds = now.saturating_duration_since(before).as_secs_f64();
        let seconds = (seconds * 1e3).round() / 1e3;
        Some(json!({ "s": seconds, "all": total.row(), "by": by }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::histogram::Histogram;

    fn value(row: &Value, name: &str) -> Value {
        let place = fields().iter().position(|field| field == name).unwrap();
        row[place].clone()
    }

    #[test]
    fn a_row_has_growth_levels_and_times() {
        let stats = |reads, dirty| Stats { reads, dirty, store_up: 1, ..Stats::default() };
        let before = Reading::of_stats(&stats(100, 7), 4096);
        let mut now = Reading::of_stats(&stats(130, 2), 4096);
        let histogram = Histogram::default();
        histogram.record(Duration::from_micros(90), 3);
        now.times[0] = histogram.counts();
        let row = now.since(&before).row();
        assert_eq!(row.as_array().unwrap().len(), fields().len());
        for (name, wanted) in [
            ("reads", json!(30)),
            ("read_bytes", json!(30 * 4096)),
            ("dirty_bytes", json!(2 * 4096)),
            ("stores_down", json!(0)),
            ("read_requests", json!(3)),
            ("write_p99_us", Value::Null),
        ] {
            assert_eq!(value(&row, name), wanted, "{name}");
        }
        assert!((90..115).contains(&value(&row, "read_p50_us").as_u64().unwrap()));
        // After a restart of the counts nothing is negative.
        assert_eq!(value(&before.since(&now).row(), "reads"), 0);
    }

    #[test]
    fn sums_take_the_oldest_change() {
        let reading = |dirty, dirty_age_s| {
            Reading::of_stats(&Stats { dirty, dirty_age_s, ..Stats::default() }, 512)
        };
        let mut all = reading(3, 40);
        all.add(&reading(4, 9));
        let row = all.row();
        assert_eq!(value(&row, "dirty_bytes"), 7 * 512);
        assert_eq!((value(&row, "dirty_age_s"), value(&row, "stores_down")), (40.into(), 2.into()));
    }
}
