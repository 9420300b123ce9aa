//! Tells fast replies from slow ones, by the valley between the two highest peaks of their times.

/// Bins of times per doubling, and the number of bins.
const STEPS: f64 = 2.0;
const BINS: usize = 64;

/// After this many times all counts are halved, so that newer ones weigh more.
const TIMES_MAX: u32 = 1 << 14;

/// Fewest times before any is called fast or slow.
const TIMES_MIN: u32 = 128;

/// Smallest distance in bins between fast and slow times: a factor of 2.
const APART: usize = 2;

/// The valley is at most this share of the lower peak.
const VALLEY: f64 = 0.25;

/// The lower peak is at least this share of all times.
const PEAK: f64 = 0.01;

/// The times of replies: a histogram with bins of a factor of the square root of two, and the
/// border between its two highest peaks.
#[derive(Clone, Debug)]
pub struct Latencies {
    bins: [u32; BINS],
    total: u32,
    border_us: Option<f64>,
    since: u32,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { bins: [0; BINS], total: 0, border_us: None, since: 0 }
    }
}

impl Latencies {
    /// Adds a time in microseconds. Returns whether it is fast, if that is known.
    pub fn label(&mut self, us: f64) -> Option<bool> {
        self.bins[bin(us)] += 1;
        self.total += 1;
        self.since += 1;
        if self.total >= TIMES_MAX {
            self.bins.iter_mut().for_each(|count| *count /= 2);
            self.total = self.bins.iter().sum();
        }
        if self.since >= TIMES_MIN / 2 && self.total >= TIMES_MIN {
            self.since = 0;
            self.border_us = self.valley();
        }
        self.is_fast(us)
    }

    /// Whether a time in microseconds is fast, if that is known. Does not add the time.
    pub fn is_fast(&self, us: f64) -> Option<bool> {
        self.border_us.map(|border| us < border)
    }

    /// Replies below this time in microseconds are fast; `None` without two peaks.
    pub fn border_us(&self) -> Option<f64> {
        self.border_us
    }

    /// The middle of the valley between the two highest peaks, if there are two.
    fn valley(&self) -> Option<f64> {
        // Smooth the bins: a time near the border of two bins counts for both.
        let near = |at: usize| {
            let of = |at: usize| f64::from(self.bins[at]);
            let (before, after) = (at.saturating_sub(1), (at + 1).min(BINS - 1));
            of(at) * 2.0 + of(before) + of(after)
        };
        let smooth: Vec<f64> = (0..BINS).map(near).collect();
        let highest = (0..BINS).max_by(|&a, &b| smooth[a].total_cmp(&smooth[b]))?;
        let all: f64 = smooth.iter().sum();
        let other = (0..BINS)
            .filter(|&at| at.abs_diff(highest) >= APART)
            .filter_map(|at| {
                let (from, to) = (at.min(highest), at.max(highest));
                let low = smooth[from..=to].iter().copied().fold(f64::MAX, f64::min);
                (low <= VALLEY * smooth[at]).then_some((at, smooth[at]))
            })
            .max_by(|a, b| a.1.total_cmp(&b.1))?;
        if other.1 < PEAK * all {
            return None;
        }
        let (from, to) = (other.0.min(highest), other.0.max(highest));
        let low = smooth[from..=to].iter().copied().fold(f64::MAX, f64::min);
        let lowest: Vec<usize> = (from..=to).filter(|&at| smooth[at] == low).collect();
        let middle = (lowest[0] + lowest[lowest.len() - 1]) as f64 / 2.0 + 0.5;
        Some((middle / STEPS).exp2())
    }
}

fn bin(us: f64) -> usize {
    ((us.max(1.0).log2() * STEPS) as usize).min(BINS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_and_slow_replies_are_told_apart_if_there_are_both() {
        let mut latencies = Latencies::default();
        for i in 0..2000_u32 {
            latencies.label(f64::from(20 + i % 15));
        }
        assert_eq!(latencies.border_us(), None);
        for i in 0..2000_u32 {
            latencies.label(f64::from(400 + i % 300));
        }
        assert_eq!([30.0, 60.0, 300.0, 600.0].map(|us| latencies.is_fast(us)), {
            [Some(true), Some(true), Some(false), Some(false)]
        });
        // One kind is much rarer than the other.
        let mut latencies = Latencies::default();
        for i in 0..4000_u32 {
            latencies.label(f64::from(if i % 30 == 0 { 9000 + i } else { 50 + i % 20 }));
        }
        assert_eq!(latencies.is_fast(9000.0), Some(false));
        assert_eq!(latencies.is_fast(60.0), Some(true));
    }
}
