//! What a sample says: for each volume, and for all together, what was counted since the sample
//! before it, what there is now, and how long requests took in between. Numbers alone, in the order
//! of [`fields`], since hundreds of samples are kept.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use serde_json::{Map, Value, json};
use undercroft_nbd::CommandKind;

use crate::clock;
use crate::counters::{COUNTERS, Counter, Group, Kind, Page, Source, Stats};
use crate::exports::ExportEntry;
use crate::histogram::BucketCounts;
use crate::http::metrics::About;

/// Kinds of requests, with the sources of their slowest blocks. Of each: the number of requests,
/// and median and 99th percentile in microseconds.
const TIMES: [(&str, CommandKind, &[Source]); 5] = [
    ("read", CommandKind::Read, &[Source::Hit, Source::Joined, Source::Miss]),
    ("read_hit", CommandKind::Read, &[Source::Hit]),
    ("read_miss", CommandKind::Read, &[Source::Joined, Source::Miss]),
    ("write", CommandKind::Write, &[Source::Hit, Source::Joined, Source::Miss]),
    ("flush", CommandKind::Flush, &[Source::Hit, Source::Joined, Source::Miss]),
];

/// The rows of a group that the page shows, with their places in it.
fn shown(group: &Group) -> impl Iterator<Item = (usize, &Counter)> {
    group.rows.iter().enumerate().filter(|(_, row)| row.page != Page::No)
}

/// The names of the numbers of a volume, in their order: those of the table of counters as in JSON,
/// behind the name of their group and a point, or as in `/metrics` where they are in bytes.
pub(super) fn fields() -> Vec<String> {
    let mut all = Vec::new();
    for group in COUNTERS {
        let before = if group.json.is_empty() { String::new() } else { format!("{}.", group.json) };
        for (_, row) in shown(group) {
            let bytes = row.metric.trim_end_matches(row.unit.suffix());
            let (plain, bytes) = (format!("{before}{}", row.name), format!("{before}{bytes}bytes"));
            all.extend((row.page != Page::Bytes).then_some(plain));
            all.extend((row.page != Page::Plain).then_some(bytes));
        }
    }
    let times = ["requests", "p50_us", "p99_us"];
    all.extend(TIMES.iter().flat_map(|(name, ..)| times.map(|what| format!("{name}_{what}"))));
    all
}

/// A number of the page.
#[derive(Clone, Copy)]
struct Number {
    kind: Kind,
    value: u64,
}

/// The counters of a volume at some time, or their growth between two times.
#[derive(Clone, Default)]
struct Reading {
    /// In the order of [`fields`].
    numbers: Vec<Number>,
    times: [BucketCounts; TIMES.len()],
}

impl Reading {
    fn of(entry: &ExportEntry) -> Reading {
        let volume = entry.volume();
        let block_bytes = u64::from(volume.config().block_bytes);
        let mut reading = Reading::of_stats(&volume.stats(), block_bytes);
        for (times, (_, kind, sources)) in reading.times.iter_mut().zip(TIMES) {
            let all = sources.iter().map(|&source| volume.latencies().of(kind, source).counts());
            all.for_each(|counts| times.add(&counts));
        }
        reading
    }

    fn of_stats(stats: &Stats, block_bytes: u64) -> Reading {
        let mut numbers = Vec::new();
        for group in COUNTERS {
            let values = (group.values)(stats);
            for (at, row) in shown(group) {
                let value = values.as_ref().map_or(0, |values| values[at]);
                let number = |value| Number { kind: row.kind, value };
                let bytes = number(value.saturating_mul(block_bytes));
                numbers.extend((row.page != Page::Bytes).then_some(number(value)));
                numbers.extend((row.page != Page::Plain).then_some(bytes));
            }
        }
        Reading { numbers, ..Reading::default() }
    }

    /// What was counted since an earlier reading. Counts that were reset begin at 0.
    fn since(&self, earlier: &Reading) -> Reading {
        let mut grown = self.clone();
        for (now, before) in grown.numbers.iter_mut().zip(&earlier.numbers) {
            if now.kind == Kind::Counter {
                now.value = now.value.saturating_sub(before.value);
            }
        }
        for (now, before) in grown.times.iter_mut().zip(&earlier.times) {
            *now = now.since(before);
        }
        grown
    }

    fn add(&mut self, other: &Reading) {
        let own = self.numbers.iter_mut().zip(&other.numbers);
        own.for_each(|(own, other)| own.kind.add(&mut own.value, other.value));
        self.times.iter_mut().zip(&other.times).for_each(|(own, other)| own.add(other));
    }

    /// The numbers in the order of [`fields`]; times are null without requests.
    fn row(&self) -> Value {
        let mut row: Vec<_> = self.numbers.iter().map(|number| json!(number.value)).collect();
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
        let shown: HashSet<&String> = order.iter().take(super::VOLUMES).collect();
        let mut total = Reading::of_stats(&Stats::default(), 0);
        let (mut by, mut after) = (Map::new(), HashMap::new());
        for entry in about.exports.all() {
            let (name, reading) = (entry.volume().config().name.clone(), Reading::of(&entry));
            // A volume that has just come has counted nothing before.
            let grown = reading.since(self.before.get(&name).unwrap_or(&reading));
            total.add(&grown);
            if shown.contains(&name) {
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
            ("dirty_age_s", json!(0)),
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
        assert_eq!(value(&row, "dirty_age_s"), 40);
    }

    #[test]
    fn the_page_uses_each_number_that_it_gets() {
        let script = crate::http::live::files::FILES.iter().find(|file| file.name == "live.js");
        let script = script.unwrap().text;
        let fields = fields();
        for field in &fields[..fields.len() - 3 * TIMES.len()] {
            let is_used = [format!("\"{field}\""), format!(".{field}")]
                .iter()
                .any(|text| script.contains(text));
            assert!(is_used, "{field}");
        }
        // And it asks for no other.
        for asked in script.split(['"']).skip(1).step_by(2) {
            let groups = ["cooperation.", "aware.", "flash.", "log."];
            let is_number = groups.iter().any(|group| asked.starts_with(group));
            assert!(!is_number || fields.iter().any(|field| field == asked), "{asked}");
        }
    }
}
