//! The counters of a replay, and its report.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{LatencyReport, ReplayReport};

/// Longest latency that is recorded; longer ones count as this.
const MAX_LATENCY_NS: u64 = 100_000_000_000;

/// Most mismatches that are described; further ones are only counted.
const DESCRIBED: usize = 5;

/// The counters.
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) read: u64,
    pub(super) written: u64,
    verified: u64,
    mismatches: u64,
    mismatched: Vec<String>,
    latencies: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let latencies = Histogram::new_with_max(MAX_LATENCY_NS, 3).expect("these bounds are valid");
        let mismatched = Vec::new();
        Self { sent: 0, read: 0, written: 0, verified: 0, mismatches: 0, mismatched, latencies }
    }

    pub(super) fn latency(&mut self, taken: Duration) {
        let ns = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(ns.max(1));
    }

    pub(super) fn verify(&mut self, is_right: bool, block: u32, version: u32) {
        self.verified += 1;
        if is_right {
            return;
        }
        self.mismatches += 1;
        if self.mismatched.len() < DESCRIBED {
            let wanted = match version {
                0 => "zeroes: this replay has not written it".to_owned(),
                version => format!("what its write number {version} left"),
            };
            self.mismatched.push(format!("distinct block {block}: expected {wanted}"));
        }
    }

    pub(super) fn report(self, elapsed: Duration, requests: u64) -> ReplayReport {
        let at = |percent| self.latencies.value_at_percentile(percent) as f64 / 1e3;
        let seconds = elapsed.as_secs_f64();
        ReplayReport {
            requests,
            l1: None,
            told: None,
            known: None,
            probed: None,
            requests_sent: self.sent,
            blocks_read: self.read,
            blocks_written: self.written,
            blocks_verified: self.verified,
            mismatches: self.mismatches,
            elapsed_s: seconds,
            requests_per_s: self.sent as f64 / seconds.max(1e-9),
            latency_us: LatencyReport { p50: at(50.0), p99: at(99.0), max: at(100.0) },
            mismatched: self.mismatched,
        }
    }
}
