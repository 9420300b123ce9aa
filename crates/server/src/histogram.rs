//! A lock-free histogram of durations: four buckets per doubling, from 1 ns to 9 minutes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BUCKETS: usize = 4 * 40;

/// Counts durations from any number of threads.
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = [const { AtomicU64::new(0) }; BUCKETS];
        Self { buckets, sum_ns: AtomicU64::new(0) }
    }
}

/// The bucket of a duration: below 4 ns one bucket per nanosecond, then by the two bits after the
/// leading one.
fn bucket(ns: u64) -> usize {
    if ns < 4 {
        return ns as usize;
    }
    let doubling = 63 - ns.leading_zeros();
    let quarter = (ns >> (doubling - 2)) & 3;
    (((doubling - 1) as usize) * 4 + quarter as usize).min(BUCKETS - 1)
}

/// The upper bound of a bucket in nanoseconds (exclusive).
fn upper_ns(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64 + 1;
    }
    let doubling = bucket as u32 / 4 + 1;
    (5 + (bucket as u64 & 3)) << (doubling - 2)
}

impl Histogram {
    /// Counts `count` equal durations.
    pub fn record(&self, time: Duration, count: u64) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(ns)].fetch_add(count, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns.saturating_mul(count), Ordering::Relaxed);
    }

    /// Number of durations counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }

    /// Sum of all durations in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns.load(Ordering::Relaxed)
    }

    /// The non-empty buckets: upper bound in nanoseconds (exclusive), and count.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let counts = self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).enumerate();
        counts.filter(|&(_, count)| count > 0).map(|(b, count)| (upper_ns(b), count)).collect()
    }

    /// An upper bound, at most a quarter too large, of the `q` quantile (0 to 1) in nanoseconds; 0
    /// if nothing was counted.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let buckets = self.buckets();
        let total: u64 = buckets.iter().map(|&(_, count)| count).sum();
        let wanted = (q.clamp(0.0, 1.0) * total as f64).ceil() as u64;
        let mut seen = 0;
        for &(upper, count) in &buckets {
            seen += count;
            if seen >= wanted {
                return upper;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_times() {
        for ns in (0..100_000).chain((1..39).flat_map(|b| [(1 << b) - 1, 1 << b, (1 << b) + 1])) {
            let b = bucket(ns);
            assert!(ns < upper_ns(b), "{ns} in bucket {b}");
            assert!(b == 0 || ns >= upper_ns(b - 1), "{ns} in bucket {b}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_bound_from_above() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(0.5), 0);
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us), 1);
        }
        assert_eq!(histogram.count(), 1000);
        assert_eq!(histogram.sum_ns(), 500_500_000);
        for (q, exact) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let bound = histogram.quantile_ns(q);
            assert!(bound >= exact && bound <= exact * 5 / 4 + 1, "{q}: {bound}");
        }
    }
}
