//! What a volume had counted at the ends of the adviser's epochs, to compare and to put figures
//! into disk reads and seconds.

use std::collections::VecDeque;
use std::time::Instant;

use undercroft_adviser::{Figures, Measured};
use undercroft_nbd::CommandKind;

use crate::clock;
use crate::counters::{Latencies, Source};
use crate::volume::Volume;

/// Moments that are kept: more than an adviser keeps epochs.
const KEPT: usize = 16;

/// Fewest hits and misses whose times are compared.
const TIMED_MIN: u64 = 20;

/// The last moments, the oldest first.
#[derive(Default)]
pub(super) struct Moments(VecDeque<Moment>);

#[derive(Clone, Copy)]
struct Moment {
    /// Complete epochs of the adviser.
    epochs: u64,
    at: Instant,
    reads: u64,
    read_hits: u64,
}

impl Moments {
    /// Notes what a volume has counted, if an epoch has ended since, and says what it counted in
    /// the epochs that the figures are of; the second number is its read hit ratio.
    pub(super) fn measure(&mut self, volume: &Volume, figures: &Figures) -> (Measured, f64) {
        let stats = volume.stats();
        let (at, epochs) = (clock::now(), figures.epochs);
        let now = Moment { epochs, at, reads: stats.reads, read_hits: stats.read_hits };
        let begin = epochs.saturating_sub(figures.kept as u64);
        let since = self.0.iter().rev().find(|moment| moment.epochs <= begin);
        let since = since.or(self.0.front()).copied().unwrap_or(now);
        if self.0.back().is_none_or(|last| last.epochs != epochs) {
            self.0.truncate(KEPT);
            if self.0.len() == KEPT {
                self.0.pop_front();
            }
            self.0.push_back(now);
        }
        let reads = now.reads.saturating_sub(since.reads) as f64;
        let hits = now.read_hits.saturating_sub(since.read_hits) as f64;
        let seconds = now.at.saturating_duration_since(since.at).as_secs_f64();
        let measured = Measured {
            block_bytes: volume.config().block_bytes,
            reads_per_s: if seconds > 0.0 { reads / seconds } else { 0.0 },
            miss_costs_s: miss_costs_s(volume.latencies()),
        };
        (measured, if reads > 0.0 { hits / reads } else { 0.0 })
    }
}

/// How much longer reads took that missed than those that hit, in seconds.
fn miss_costs_s(latencies: &Latencies) -> Option<f64> {
    let mean = |source| {
        let times = latencies.of(CommandKind::Read, source);
        let count = times.count();
        (count >= TIMED_MIN).then(|| times.sum_ns() as f64 / count as f64 / 1e9)
    };
    Some((mean(Source::Miss)? - mean(Source::Hit)?).max(0.0))
}
