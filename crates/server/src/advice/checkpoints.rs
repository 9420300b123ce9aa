//! What a volume had counted at the ends of the adviser's epochs, to compare and to put figures
//! into disk reads and seconds.

use std::collections::VecDeque;
use std::time::Instant;

use undercroft_adviser::{Figures, Measured};
use undercroft_nbd::CommandKind;

use crate::clock;
use crate::counters::{Latencies, Source, Stats};

/// Checkpoints that are kept: more than an adviser keeps epochs.
const KEPT: usize = 16;

/// Fewest hits and misses whose times are compared.
const TIMED_MIN: u64 = 20;

/// The last checkpoints, the oldest first.
#[derive(Default)]
pub(super) struct Checkpoints {
    ends: VecDeque<Moment>,
    /// Reads and read hits at the last round of the feeder, and the share that missed until then.
    counted: Option<(u64, u64)>,
    missed: Option<f64>,
}

#[derive(Clone, Copy)]
struct Moment {
    /// Complete epochs of the adviser.
    epochs: u64,
    at: Instant,
    reads: u64,
    read_hits: u64,
}

impl Checkpoints {
    /// The share of the reads that missed since the last call; that of the time before if there
    /// were none.
    pub(super) fn miss_ratio(&mut self, stats: &Stats) -> Option<f64> {
        let (reads, hits) = self.counted.replace((stats.reads, stats.read_hits))?;
        let reads = stats.reads.saturating_sub(reads);
        if reads > 0 {
            let hits = stats.read_hits.saturating_sub(hits);
            self.missed = Some(1.0 - hits.min(reads) as f64 / reads as f64);
        }
        self.missed
    }

    /// Notes what a volume has counted, if an epoch has ended since, and says what it counted in
    /// the epochs that the figures are of; the second number is its read hit ratio.
    pub(super) fn measure(
        &mut self,
        stats: &Stats,
        latencies: &Latencies,
        block_bytes: u32,
        figures: &Figures,
    ) -> (Measured, f64) {
        let (at, epochs) = (clock::now(), figures.epochs);
        let now = Moment { epochs, at, reads: stats.reads, read_hits: stats.read_hits };
        let begin = epochs.saturating_sub(figures.kept as u64);
        let since = self.ends.iter().rev().find(|moment| moment.epochs <= begin);
        let since = since.or(self.ends.front()).copied().unwrap_or(now);
        if self.ends.back().is_none_or(|last| last.epochs != epochs) {
            if self.ends.len() == KEPT {
                self.ends.pop_front();
            }
            self.ends.push_back(now);
        }
        let reads = now.reads.saturating_sub(since.reads) as f64;
        let hits = now.read_hits.saturating_sub(since.read_hits) as f64;
        let seconds = now.at.saturating_duration_since(since.at).as_secs_f64();
        let measured = Measured {
            block_bytes,
            reads_per_s: if seconds > 0.0 { reads / seconds } else { 0.0 },
            miss_costs_s: miss_costs_s(latencies),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_misses_is_of_the_reads_since_the_last_round() {
        let mut checkpoints = Checkpoints::default();
        let stats = |reads, read_hits| Stats { reads, read_hits, ..Stats::default() };
        assert_eq!(checkpoints.miss_ratio(&stats(100, 90)), None, "what was before is not known");
        assert_eq!(checkpoints.miss_ratio(&stats(100, 90)), None);
        assert_eq!(checkpoints.miss_ratio(&stats(140, 120)), Some(0.25));
        assert_eq!(checkpoints.miss_ratio(&stats(140, 120)), Some(0.25), "no reads: as before");
        assert_eq!(checkpoints.miss_ratio(&stats(150, 130)), Some(0.0));
    }
}
