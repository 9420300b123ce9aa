//! The time of a store's last change, as the file system of a real one keeps it: a power cut can
//! set it back, since it becomes durable later than the data.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::random::Random;

/// After so long it is as durable as the data.
const SETTLES: Duration = Duration::from_secs(30);

/// Nanoseconds since 1970 at a moment of a simulation that began then.
pub fn wall_ns(began: Instant, now: Instant) -> u64 {
    1_700_000_000_000_000_000 + (now - began).as_nanos() as u64
}

pub(super) struct Changed {
    began: Instant,
    /// The times of changes, of which any may be that of the last one after a power cut.
    times: VecDeque<Instant>,
}

impl Changed {
    pub(super) fn new() -> Changed {
        Changed { began: Instant::now(), times: VecDeque::from([Instant::now()]) }
    }

    /// A change is made now.
    pub(super) fn note(&mut self) {
        let now = Instant::now();
        if self.times.back() != Some(&now) {
            self.times.push_back(now);
        }
        while self.times.get(1).is_some_and(|&next| next + SETTLES < now) {
            self.times.pop_front();
        }
    }

    /// All changes so far are durable, and so is the time of the last.
    pub(super) fn flushed(&mut self) {
        self.times.drain(..self.times.len() - 1);
    }

    pub(super) fn cut(&mut self, random: &mut Random) {
        let at = random.below(self.times.len() as u64) as usize;
        self.times = VecDeque::from([self.times[at]]);
    }

    pub(super) fn last_ns(&self) -> u64 {
        wall_ns(self.began, self.times[self.times.len() - 1])
    }
}
