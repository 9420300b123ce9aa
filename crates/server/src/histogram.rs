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

/// The counts of a histogram at some time, or of the durations between two times.
#[derive(Clone)]
pub(crate) struct BucketCounts(Box<[u64; BUCKETS]>);

impl Default for BucketCounts {
    fn default() -> Self {
        Self(Box::new([0; BUCKETS]))
    }
}

impl BucketCounts {
    /// Adds the counts of another histogram.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&*other.0).for_each(|(own, other)| *own += other);
    }

    /// What was counted since an earlier time.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.clone();
        let pairs = counts.0.iter_mut().zip(&*earlier.0);
        pairs.for_each(|(now, before)| *now = now.saturating_sub(*before));
        counts
    }

    /// Number of durations counted.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The non-empty buckets: upper bound in nanoseconds (exclusive), and count.
    fn filled(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.0.iter().copied().enumerate();
        all.filter(|&(_, count)| count > 0).map(|(bucket, count)| (upper_ns(bucket), count))
    }

    /// An upper bound, at most a quarter too large, of the `q` quantile (0 to 1) in nanoseconds; 0
    /// if nothing was counted.
    pub(crate) fn quantile_ns(&self, q: f64) -> u64 {
        quantile(self.filled(), self.count(), q)
    }
}

/// The upper bound of the bucket with the `q` quantile (0 to 1) of `total` values. `filled` has the
/// buckets in ascending order: upper bound, and count. 0 if nothing was counted.
pub fn quantile(filled: impl IntoIterator<Item = (u64, u64)>, total: u64, q: f64) -> u64 {
    let wanted = (q.clamp(0.0, 1.0) * total as f64).ceil() as u64;
    let mut seen = 0;
    let mut reached = filled.into_iter().skip_while(|&(_, count)| {
        seen += count;
        seen < wanted
    });
    reached.next().map_or(0, |(upper, _)| upper)
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

    /// The counts so far.
    pub(crate) fn counts(&self) -> BucketCounts {
        let mut counts = BucketCounts::default();
        let pairs = counts.0.iter_mut().zip(&self.buckets);
        pairs.for_each(|(count, bucket)| *count = bucket.load(Ordering::Relaxed));
        counts
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
        self.counts().filled().collect()
    }

    /// An upper bound, at most a quarter too large, of the `q` quantile (0 to 1) in nanoseconds; 0
    /// if nothing was counted.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        self.counts().quantile_ns(q)
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
        let before = histogram.counts();
        histogram.record(Duration::from_secs(1), 2);
        let since = histogram.counts().since(&before);
        assert_eq!((since.count(), before.count()), (2, 1000));
        assert!((1_000_000_000..1_250_000_002).contains(&since.quantile_ns(0.01)));
        assert_eq!(before.since(&histogram.counts()).quantile_ns(0.5), 0);
        let histogram = Histogram::default();
        histogram.record(Duration::from_micros(1), 1);
        (2..=1000).for_each(|us| histogram.record(Duration::from_micros(us), 1));
        for (q, exact) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let bound = histogram.quantile_ns(q);
            assert!(bound >= exact && bound <= exact * 5 / 4 + 1, "{q}: {bound}");
        }
    }
}
