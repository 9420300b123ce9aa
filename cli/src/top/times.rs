//! Response times of `undercroft top`: percentiles of the requests between two looks, from the
//! histograms in the counters.

use std::collections::BTreeMap;

use serde_json::Value;
use undercroft_server::quantile;

/// Sources of a request's slowest block, as the counters name them.
pub(super) const SOURCES: [&str; 3] = ["hit", "joined", "miss"];

/// The kinds of requests whose times are shown: reads that hit and that miss, writes, and FLUSH.
pub(super) const KINDS: [(&str, &[&str]); 4] =
    [("read", &["hit"]), ("read", &["joined", "miss"]), ("write", &SOURCES), ("flush", &SOURCES)];

/// Response times that were counted: upper bound in nanoseconds, and number.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Times(BTreeMap<u64, u64>);

impl Times {
    /// The times of a kind of request, of some sources, in the JSON of a volume.
    pub(super) fn of(volume: &Value, request: &str, sources: &[&str]) -> Times {
        let mut times = Times::default();
        for source in sources {
            let buckets = volume["latency_us"][request][source]["buckets"].as_array();
            for bucket in buckets.into_iter().flatten() {
                if let (Some(upper_us), Some(count)) = (bucket[0].as_f64(), bucket[1].as_u64()) {
                    times.count((upper_us * 1e3).round() as u64, count);
                }
            }
        }
        times
    }

    fn count(&mut self, upper_ns: u64, count: u64) {
        let sum = self.0.entry(upper_ns).or_default();
        *sum = sum.saturating_add(count);
    }

    /// The times that were counted since an earlier look.
    pub(super) fn since(mut self, earlier: &Times) -> Times {
        for (upper, count) in &mut self.0 {
            *count = count.saturating_sub(earlier.0.get(upper).copied().unwrap_or(0));
        }
        self
    }

    /// Adds the times of another volume.
    pub(super) fn add(&mut self, other: &Times) {
        other.0.iter().for_each(|(&upper, &count)| self.count(upper, count));
    }

    /// An upper bound, at most a quarter too large, of the `q` quantile (0 to 1) in microseconds;
    /// `None` without requests.
    pub(crate) fn quantile_us(&self, q: f64) -> Option<f64> {
        let total = self.0.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let filled = self.0.iter().map(|(&upper, &count)| (upper, count));
        (total > 0).then(|| quantile(filled, total, q) as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn percentiles_of_what_came_in_between() {
        let volume = |fast: u64, slow: u64| {
            let buckets = json!([[1.28, fast], [160.0, slow]]);
            json!({ "latency_us": { "read": {
                "joined": { "buckets": buckets }, "miss": { "buckets": [[1.28, 1]] },
            } } })
        };
        let (request, sources) = KINDS[1];
        let earlier = Times::of(&volume(100, 5), request, sources);
        assert_eq!(earlier.quantile_us(0.5), Some(1.28));
        let mut grown = Times::of(&volume(198, 7), request, sources).since(&earlier);
        assert_eq!((grown.quantile_us(0.98), grown.quantile_us(0.99)), (Some(1.28), Some(160.0)));
        let same = grown.clone();
        grown.add(&same);
        assert_eq!(grown.quantile_us(0.99), Some(160.0));
        // Counts that were reset, or that are not told, are no times.
        assert_eq!(
            Times::of(&volume(0, 0), request, sources).since(&earlier).quantile_us(0.5),
            None
        );
        assert_eq!(Times::of(&json!({}), "write", &SOURCES).quantile_us(0.5), None);
        let odd =
            json!({ "latency_us": { "read": { "hit": { "buckets": [[-1, 2], ["x"], 3] } } } });
        assert_eq!(Times::of(&odd, "read", &SOURCES).quantile_us(0.5), Some(0.0));
    }
}
