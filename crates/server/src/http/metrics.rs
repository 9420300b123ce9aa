//! The counters for scripts: JSON with the documented names, and Prometheus text.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use serde_json::{Map, Value, json};
use undercroft_nbd::{COMMANDS, CommandInfo, Server};

use crate::clock;
use crate::config::VolumeConfig;
use crate::counters::{COUNTERS, Counter, Group, Kind, Source, Stats};
use crate::events::Kept;
use crate::exports::{ExportEntry, ExportTable};
use crate::process::pending_volume::PendingVolume;
use crate::savings::Savings;
use crate::volume::store_state::StoreState;

/// Upper bounds of the buckets of the latency histograms, in seconds.
const LATENCY_BOUNDS_S: [f64; 16] = [
    5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.5,
    2.0,
];

/// Most events in `/stats`.
pub(crate) const EVENTS: usize = 200;

/// The object of `/stats` for these volumes: `{"volumes": {NAME: {...}}, "total": {...}}`. Volumes
/// that are not served yet have the same names, with counts of 0, and `"away": true`. `order`: the
/// names in the order of the configuration. `events`: the last ones that the reader may see.
pub(crate) fn json(
    exports: &[Arc<ExportEntry>],
    pending: &[Arc<PendingVolume>],
    order: &[String],
    events: Vec<Kept>,
) -> Value {
    let (mut total, mut total_saved) = (Stats::default(), Savings::default());
    let mut volumes = Map::new();
    for entry in exports {
        let stats = entry.volume().stats();
        let config = entry.volume().now();
        let mut one = described(&config, &stats);
        one.insert("size_bytes".into(), json!(entry.volume().size()));
        let condition = entry.volume().store_health.look();
        one.insert("store_state".into(), json!(condition.state));
        one.insert("store_trouble".into(), json!(condition.sentence));
        let saved = entry.volume().savings(&stats);
        one.insert("saved".into(), json!(saved));
        total_saved.sum(&saved);
        one.insert("latency_us".into(), latencies(entry));
        one.insert("clients".into(), json!(entry.clients()));
        let leaders = entry.volume().shards.leaders();
        if !leaders.is_empty() {
            one.insert("leaders".into(), json!(leaders));
        }
        if let Some(told) = entry.volume().clients.told() {
            one.insert("client_caches".into(), json!(told));
        }
        volumes.insert(config.name.clone(), Value::Object(one));
        total.sum(&stats);
    }
    for pending in pending {
        let config = pending.config();
        let mut one = described(config, &Stats::default());
        one.insert("away".into(), json!(true));
        one.insert("size_bytes".into(), json!(config.size));
        one.insert("store_state".into(), json!(StoreState::Away));
        one.insert("store_trouble".into(), json!(pending.why()));
        one.insert("saved".into(), json!(Savings::default()));
        one.insert("latency_us".into(), json!({}));
        one.insert("clients".into(), json!([]));
        volumes.insert(config.name.clone(), Value::Object(one));
    }
    for (name, one) in &mut volumes {
        let position = order.iter().position(|other| other == name);
        one["position"] = json!(position);
    }
    let mut total = numbers(&total);
    total.insert("saved".into(), json!(total_saved));
    json!({ "volumes": volumes, "total": total, "events": events })
}

/// The counters of a volume, and what is configured.
fn described(config: &VolumeConfig, stats: &Stats) -> Map<String, Value> {
    let mut one = numbers(stats);
    one.insert("policy".into(), json!(config.policy.to_string()));
    one.insert("placement".into(), json!(config.placement.to_string()));
    one.insert("block_bytes".into(), json!(config.block_bytes));
    if config.is_share_auto {
        one.insert("share".into(), json!("auto"));
    }
    for (name, bytes) in
        [("cache_min_bytes", config.cache_min), ("cache_max_bytes", config.cache_max)]
    {
        if let Some(bytes) = bytes {
            one.insert(name.into(), json!(bytes));
        }
    }
    one
}

/// The counters of one volume, or the total of all.
fn numbers(stats: &Stats) -> Map<String, Value> {
    let mut numbers = match serde_json::to_value(stats) {
        Ok(Value::Object(numbers)) => numbers,
        _ => Map::new(),
    };
    numbers.insert("read_hit_ratio".into(), json!(stats.read_hit_ratio()));
    numbers
}

/// For each operation and source that occurred: count; in microseconds the sum, the median and the
/// 99th percentile; and the non-empty buckets, as upper bound in microseconds and count. Buckets of
/// two times show the percentiles in between.
fn latencies(entry: &ExportEntry) -> Value {
    let mut all = Map::new();
    for CommandInfo { kind, name, .. } in &COMMANDS {
        let mut sources = Map::new();
        for (source, source_name) in Source::ALL {
            let histogram = entry.volume().latencies().of(*kind, source);
            if histogram.count() > 0 {
                let at = |q| histogram.quantile_ns(q) as f64 / 1e3;
                let buckets = histogram.buckets().into_iter();
                let buckets =
                    buckets.map(|(upper_ns, count)| json!([upper_ns as f64 / 1e3, count]));
                sources.insert(
                    source_name.into(),
                    json!({
                        "count": histogram.count(),
                        "total": histogram.sum_ns() as f64 / 1e3,
                        "p50": at(0.5),
                        "p99": at(0.99),
                        "buckets": buckets.collect::<Vec<_>>(),
                    }),
                );
            }
        }
        if !sources.is_empty() {
            all.insert((*name).into(), Value::Object(sources));
        }
    }
    Value::Object(all)
}

/// Leaves the buckets of the histograms out of the object of `/stats`, which are half of it.
pub(crate) fn leave_out_buckets(stats: &mut Value) {
    for volume in stats["volumes"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        let kinds = volume["latency_us"].as_object_mut().into_iter().flat_map(Map::values_mut);
        let times = kinds.filter_map(Value::as_object_mut).flat_map(Map::values_mut);
        times.filter_map(Value::as_object_mut).for_each(|times| drop(times.remove("buckets")));
    }
}

/// The text of `/metrics`.
pub(crate) fn prometheus(about: &About) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(about.clone()));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

/// What the pages tell of.
#[derive(Clone)]
pub(crate) struct About {
    pub(crate) exports: Arc<ExportTable>,
    pub(crate) server: Server,
    /// When the server began.
    pub(crate) began: Instant,
    /// When its certificates expire, in seconds since 1970; 0 without certificates.
    pub(crate) expiry: Arc<AtomicI64>,
}

impl fmt::Debug for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("About")
    }
}

impl About {
    /// What does not belong to a volume.
    fn encode_server(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: f64| {
            encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
        };
        let uptime = clock::now().saturating_duration_since(self.began).as_secs_f64();
        gauge("undercroft_uptime_seconds", "Time since the server began", uptime)?;
        let expiry = self.expiry.load(Ordering::Relaxed);
        if expiry != 0 {
            let help = "When the first of the server's certificates expires, since 1970";
            gauge("undercroft_certificate_expiry_seconds", help, expiry as f64)?;
        }
        let (name, help) = ("undercroft_build", "The program's version");
        let mut build = encoder.encode_descriptor(name, help, None, MetricType::Info)?;
        build.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        let (name, help) = ("undercroft_refused_connections", "NBD connections that were refused");
        let mut refused = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        refused.encode_counter::<NoLabelSet, u64, u64>(&self.server.refused(), None)
    }
}

/// The counters are read when Prometheus asks.
impl Collector for About {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.encode_server(&mut encoder)?;
        let exports = self.exports.all();
        let there =
            exports.iter().map(|entry| (label(entry.volume().config()), entry.volume().stats()));
        let pending = self.exports.pending();
        let away = pending.iter().map(|one| (label(one.config()), Stats::default()));
        let all: Vec<_> = there.chain(away).collect();
        for group in COUNTERS {
            let have = all.iter().filter_map(|(name, stats)| Some((name, (group.values)(stats)?)));
            let have: Vec<_> = have.collect();
            if have.is_empty() {
                continue;
            }
            for (at, row) in group.rows.iter().enumerate() {
                let values: Vec<_> =
                    have.iter().map(|(name, values)| (name.as_str(), values[at])).collect();
                encode_row(&mut encoder, group, row, &values)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "undercroft_request_seconds",
            "Time from a request's arrival to its answer",
            None,
            MetricType::Histogram,
        )?;
        for entry in &exports {
            for CommandInfo { kind, name: operation, .. } in &COMMANDS {
                for (source, source_name) in Source::ALL {
                    let histogram = entry.volume().latencies().of(*kind, source);
                    if histogram.count() == 0 {
                        continue;
                    }
                    let volume = label(entry.volume().config());
                    let labels = [
                        ("volume", volume.as_str()),
                        ("operation", operation),
                        ("source", source_name),
                    ];
                    let sum = histogram.sum_ns() as f64 / 1e9;
                    let (count, buckets) = coarse(&histogram.buckets());
                    let mut metric = family.encode_family(&labels)?;
                    metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
                }
            }
        }
        Ok(())
    }
}

/// A metric of each volume for a row, and, where it was called otherwise before, another one under
/// that name.
fn encode_row(
    encoder: &mut DescriptorEncoder<'_>,
    group: &Group,
    row: &Counter,
    volumes: &[(&str, u64)],
) -> Result<(), fmt::Error> {
    let (name, suffix) = (format!("undercroft_{}{}", group.prefix, row.metric), row.unit.suffix());
    let stem = name.strip_suffix(suffix).and_then(|stem| stem.strip_suffix('_'));
    let unit = stem.map(|_| Unit::Other(suffix.into()));
    let stem = stem.unwrap_or(&name);
    let family = encoder.encode_descriptor(stem, row.help, unit.as_ref(), row.kind.metric())?;
    encode_volumes(family, row, row.unit.scale(), volumes)?;
    if row.name == row.metric {
        return Ok(());
    }
    let name = format!("undercroft_{}{}", group.prefix, row.name);
    let help = format!("Deprecated, the next version has only {}.", group.metric(row));
    let family = encoder.encode_descriptor(&name, &help, None, row.kind.metric())?;
    encode_volumes(family, row, 1, volumes)
}

/// The values of a metric, each divided by `scale`.
fn encode_volumes(
    mut family: MetricEncoder<'_>,
    row: &Counter,
    scale: u32,
    volumes: &[(&str, u64)],
) -> Result<(), fmt::Error> {
    for (volume, value) in volumes {
        let labels = [("volume", *volume)];
        let mut metric = family.encode_family(&labels)?;
        match (row.kind, scale) {
            (Kind::Counter, 1) => metric.encode_counter::<NoLabelSet, u64, u64>(value, None)?,
            (Kind::Counter, scale) => {
                let value = *value as f64 / f64::from(scale);
                metric.encode_counter::<NoLabelSet, f64, u64>(&value, None)?;
            }
            (_, 1) => metric.encode_gauge(value)?,
            (_, scale) => metric.encode_gauge(&(*value as f64 / f64::from(scale)))?,
        }
    }
    Ok(())
}

/// The value of the label of a volume: its name, in which the format wants these escaped.
fn label(volume: &VolumeConfig) -> String {
    volume.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Sums the fine buckets (upper bound in nanoseconds, count) into the published ones.
fn coarse(fine: &[(u64, u64)]) -> (u64, Vec<(f64, u64)>) {
    let mut buckets: Vec<(f64, u64)> =
        LATENCY_BOUNDS_S.iter().chain(&[f64::MAX]).map(|&bound| (bound, 0)).collect();
    let mut total = 0;
    for &(upper_ns, count) in fine {
        let seconds = upper_ns as f64 / 1e9;
        if let Some((_, sum)) = buckets.iter_mut().find(|(bound, _)| seconds <= *bound) {
            *sum += count;
        }
        total += count;
    }
    (total, buckets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_can_be_left_out() {
        let volume =
            |times: Value| json!({ "reads": 1, "latency_us": { "read": { "hit": times } } });
        let away = json!({ "latency_us": {} });
        let full = volume(json!({ "count": 2, "p50": 1.0, "buckets": [[1.0, 2]] }));
        let mut stats = json!({ "volumes": { "a": full, "b": away }, "total": { "reads": 1 } });
        leave_out_buckets(&mut stats);
        let thin = volume(json!({ "count": 2, "p50": 1.0 }));
        assert_eq!(stats, json!({ "volumes": { "a": thin, "b": away }, "total": { "reads": 1 } }));
    }

    #[test]
    fn fine_buckets_are_gathered() {
        let (total, buckets) = coarse(&[(4_000, 2), (6_000, 1), (10_000_000_000, 5)]);
        assert_eq!(total, 8);
        assert_eq!(buckets[0].1, 2);
        assert_eq!(buckets[1].1, 1);
        assert_eq!(buckets.last().unwrap().1, 5);
    }
}
